/* Clipping and unscaling of gradients. The norm is a sum in f64 of fixed blocks within a parameter,
 * and of parameters in their order, so that it is the same for any number of threads, and for
 * a rank that holds only some of the blocks. Source: torch.nn.utils.clip_grad_norm_,
 * clip_grad_value_.
 */
#include <math.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/optim/flat.h"
#include "core/tensor/tensor_impl.h"

/* A number where gradients lie, which kernels there add to: of the host, or of a device. */
typedef struct {
    double value;
    tutti_tensor_t *tensor; /* NULL: it is `value` */
} cell_t;

static tutti_status_t open_cell(const tutti_tensor_t *beside, cell_t *cell)
{
    *cell = (cell_t){0};
    return beside->storage->device == NULL ? TUTTI_OK
                                           : tt_tensor_new(beside->storage->device, TUTTI_F64,
                                                           TUTTI_SCALAR, true, &cell->tensor);
}

static double *place_of(cell_t *cell)
{
    return cell->tensor == NULL ? &cell->value : tt_tensor_data(cell->tensor);
}

/* value: where it goes, unless that is NULL, which is when a device's is waited for. On meta it is
 * no number. */
static tutti_status_t close_cell(cell_t *cell, double *value, tutti_status_t status)
{
    if (status >= 0 && value != NULL && cell->tensor != NULL) {
        if (tt_device_has_values(cell->tensor->storage->device)) {
            status = tt_tensor_read(cell->tensor, &cell->value);
        } else {
            cell->value = NAN;
        }
    }
    if (value != NULL) {
        *value = cell->value;
    }
    tt_tensors_release(&cell->tensor, 1);
    return status;
}

/* Where kernels reach it: itself, or a copy of one that lies in a file, which goes back. */
static tutti_status_t bring(tutti_tensor_t *grad, tutti_tensor_t **near)
{
    if (!tt_device_is_store(grad->storage->device)) {
        *near = tutti_tensor_retain(grad);
        return TUTTI_OK;
    }
    return tt_tensor_on_host(grad, near);
}

static tutti_status_t put_back(tutti_tensor_t *grad, tutti_tensor_t *near, tutti_status_t status)
{
    if (near != grad && status >= 0) {
        status = tutti_tensor_copy(grad, near);
    }
    tutti_tensor_release(near);
    return status;
}

static tutti_status_t scale_grad(const tutti_optim_t *opt, tutti_tensor_t *grad, float factor)
{
    tutti_tensor_t *near;
    TT_TRY(bring(grad, &near));
    return put_back(grad, near,
                    tt_flat_scale(tt_tensor_exec(opt->ctx, near), tt_tensor_data(near),
                                  (size_t)near->numel, factor));
}

static tutti_status_t clamp_grad(const tutti_optim_t *opt, tutti_tensor_t *grad, double most)
{
    tutti_tensor_t *near;
    TT_TRY(bring(grad, &near));
    const tt_strided_t x = tt_tensor_strided(near);
    return put_back(grad, near,
                    tt_map_unary(tt_tensor_exec(opt->ctx, near), TT_UNARY_CLAMP,
                                 (tt_map_params_t){-most, most}, &x, &x));
}

static tutti_status_t measure_grad(tutti_optim_t *opt, const tutti_tensor_t *grad, bool is_largest,
                                   double *total)
{
    return tt_flat_measure(tt_tensor_exec(opt->ctx, grad), tt_tensor_data(grad),
                           (size_t)grad->numel, is_largest, total);
}

/* Of gradients on one device, in order: the sum stays there. */
static tutti_status_t measure_all(tutti_optim_t *opt, bool is_largest, cell_t *cell)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        TT_TRY(grad != NULL ? measure_grad(opt, grad, is_largest, place_of(cell)) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* Of several devices: a number of each gradient beside it. All are launched before the first device
 * is waited for, and each is waited for once. */
typedef struct {
    tutti_tensor_t **tensors; /* [device_count], of one device each: f64[slot_count], of zeros */
    double *values;           /* [slot_count] of all devices */
    size_t slot_count, device_count;
} numbers_t;

static tutti_tensor_t *numbers_beside(const numbers_t *numbers, const tutti_tensor_t *grad)
{
    size_t i = 0;
    while (i < numbers->device_count &&
           numbers->tensors[i]->storage->device != grad->storage->device) {
        i++;
    }
    return i < numbers->device_count ? numbers->tensors[i] : NULL;
}

static tutti_status_t add_device(const tutti_tensor_t *grad, numbers_t *numbers)
{
    if (tt_device_is_store(grad->storage->device) || numbers_beside(numbers, grad) != NULL) {
        return TUTTI_OK; /* in a file nothing is added up */
    }
    TT_TRY(tt_tensor_new(grad->storage->device, TUTTI_F64,
                         TUTTI_SHAPE((int64_t)numbers->slot_count), true,
                         &numbers->tensors[numbers->device_count]));
    numbers->device_count++;
    return TUTTI_OK;
}

static void close_numbers(numbers_t *numbers)
{
    tt_tensors_release(numbers->tensors, numbers->device_count);
    tt_free(numbers->tensors);
    tt_free(numbers->values);
}

/* Closed by the caller, also if it fails. */
static tutti_status_t open_numbers(tutti_optim_t *opt, numbers_t *numbers)
{
    *numbers = (numbers_t){.slot_count = opt->slot_count};
    numbers->tensors = tt_alloc(opt->slot_count * sizeof(*numbers->tensors), "numbers");
    TT_TRY_ALLOC(numbers->tensors);
    numbers->values = tt_alloc(2 * opt->slot_count * sizeof(*numbers->values), "numbers");
    TT_TRY_ALLOC(numbers->values);
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        TT_TRY(grad != NULL ? add_device(grad, numbers) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static double *number_of(const numbers_t *numbers, const tutti_tensor_t *grad, size_t slot)
{
    if (tt_device_is_store(grad->storage->device)) {
        return &numbers->values[slot];
    }
    return (double *)tt_tensor_data(numbers_beside(numbers, grad)) + slot;
}

/* A device's are zero where the gradient is another one's. Nothing is allocated: gradients may have
 * been changed already. skips_meta: of gradients on meta, which have none, they are zero; else an
 * error. */
static tutti_status_t read_numbers(numbers_t *numbers, bool skips_meta)
{
    double *read = numbers->values + numbers->slot_count;
    for (size_t d = 0; d < numbers->device_count; d++) {
        const tutti_tensor_t *there = numbers->tensors[d];
        if (skips_meta && !tt_device_has_values(there->storage->device)) {
            continue;
        }
        TT_TRY(tt_device_move(NULL, read, there->storage->device, tt_tensor_data(there),
                              tutti_tensor_bytes(there)));
        for (size_t i = 0; i < numbers->slot_count; i++) {
            numbers->values[i] += read[i];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t launch_measures(tutti_optim_t *opt, bool is_largest, const numbers_t *numbers)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        TT_TRY(grad != NULL && opt->slots[i].tensor->slice == NULL &&
                       opt->slots[i].tensor->spread == NULL
                   ? measure_grad(opt, grad, is_largest, number_of(numbers, grad, i))
                   : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* The host adds up, in order, what it is told of each gradient; of slices, by all ranks. */
static tutti_status_t measure_apart(tutti_optim_t *opt, bool is_largest, double *total)
{
    numbers_t numbers;
    const bool has_slices = tt_optim_has_slices(opt);
    tutti_status_t status = open_numbers(opt, &numbers);
    if (status >= 0) {
        status = launch_measures(opt, is_largest, &numbers);
    }
    if (status >= 0) {
        status = read_numbers(&numbers, false);
    }
    if (has_slices) {
        status = tt_optim_agree(opt, status);
        status = status < 0 ? status : tt_optim_norms_of_slices(opt, is_largest, numbers.values);
    }
    if (tt_optim_has_spreads(opt)) {
        status = tt_optim_agree_spreads(opt, status);
        status = status < 0 ? status : tt_optim_norms_of_spreads(opt, is_largest, numbers.values);
    }
    *total = 0;
    for (size_t i = 0; i < opt->slot_count && status >= 0; i++) {
        *total = tt_flat_fold(*total, numbers.values[i], is_largest);
    }
    close_numbers(&numbers);
    return status;
}

/* Whether the gradients lie on several devices; `first` is one of them, NULL: there is none. */
static tutti_status_t find_devices(tutti_optim_t *opt, tutti_tensor_t **first, bool *are_several)
{
    *first = NULL;
    *are_several = false;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        *first = *first == NULL ? grad : *first;
        *are_several |= grad != NULL && grad->storage->device != (*first)->storage->device;
    }
    return TUTTI_OK;
}

/* A parameter's gradient, to be written; NULL if there is none. After
 * find_devices(): all that may fail on the host did not. */
static tutti_status_t open_grad(tutti_optim_t *opt, size_t slot, tutti_tensor_t **grad)
{
    TT_TRY(tt_optim_flat_grad(opt, &opt->slots[slot], grad));
    if (*grad != NULL) {
        tt_tensor_touch(*grad);
    }
    return TUTTI_OK;
}

static tutti_status_t clip_apart(tutti_optim_t *opt, double max_norm, bool is_largest,
                                 double *total)
{
    TT_TRY(measure_apart(opt, is_largest, total));
    const double factor = tt_flat_clip_factor(*total, is_largest, max_norm);
    for (size_t i = 0; i < opt->slot_count && !(factor >= 1); i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        TT_TRY(grad != NULL ? scale_grad(opt, grad, (float)factor) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t clip_all(tutti_optim_t *opt, double max_norm, bool is_largest, cell_t *cell)
{
    for (size_t i = 0; i < opt->slot_count && max_norm != INFINITY; i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        TT_TRY(grad != NULL
                   ? tt_flat_clip(tt_tensor_exec(opt->ctx, grad), tt_tensor_data(grad),
                                  (size_t)grad->numel, place_of(cell), is_largest, max_norm)
                   : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* On one device: nobody waits for the norm, unless it is asked for (total is not NULL). */
static tutti_status_t clip_together(tutti_optim_t *opt, const tutti_tensor_t *first,
                                    double max_norm, bool is_largest, double *total)
{
    cell_t cell;
    TT_TRY(open_cell(first, &cell));
    tutti_status_t status = measure_all(opt, is_largest, &cell);
    if (status >= 0) {
        status = clip_all(opt, max_norm, is_largest, &cell);
    }
    return close_cell(&cell, total, status);
}

tutti_status_t tutti_clip_grad_norm(tutti_optim_t *opt, double max_norm, double p, double *norm)
{
    TT_WANT("clip_grad_norm", opt);
    if (!(max_norm >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: max_norm is %g: it must be at least 0",
                       max_norm);
    }
    if (p != 2 && p != INFINITY) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_norm: p is %g: it must be 2 or infinity", p);
    }
    tutti_tensor_t *first;
    bool are_several;
    TT_TRY(tt_optim_check_free(opt, "clip_grad_norm"));
    TT_TRY(tt_optim_agree(opt, find_devices(opt, &first, &are_several)));
    double total = 0;
    if (first != NULL) {
        TT_TRY(
            are_several || tt_optim_has_slices(opt) || tt_optim_has_spreads(opt)
                ? clip_apart(opt, max_norm, p == INFINITY, &total)
                : clip_together(opt, first, max_norm, p == INFINITY, norm == NULL ? NULL : &total));
    }
    if (norm != NULL) {
        *norm = p == INFINITY ? total : sqrt(total);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_clip_grad_value(tutti_optim_t *opt, double clip_value)
{
    if (!(clip_value >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "clip_grad_value: clip_value is %g: it must be at least 0",
                       clip_value);
    }
    tutti_tensor_t *first;
    bool are_several;
    TT_TRY(tt_optim_check_free(opt, "clip_grad_value"));
    TT_TRY(find_devices(opt, &first, &are_several));
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        TT_TRY(grad != NULL ? clamp_grad(opt, grad, clip_value) : TUTTI_OK);
    }
    return TUTTI_OK;
}

static tutti_status_t launch_unscaling(tutti_optim_t *opt, float factor, const numbers_t *numbers,
                                       bool *is_begun)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(open_grad(opt, i, &grad));
        if (grad != NULL) {
            tutti_tensor_t *near;
            TT_TRY(bring(grad, &near));
            TT_TRY(put_back(grad, near,
                            tt_flat_unscale(tt_tensor_exec(opt->ctx, near), tt_tensor_data(near),
                                            (size_t)near->numel, factor,
                                            number_of(numbers, grad, i))));
            *is_begun = true;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t unscale(tutti_optim_t *opt, float factor, tt_unscaled_t *out)
{
    numbers_t numbers;
    tutti_status_t status = open_numbers(opt, &numbers);
    if (status >= 0) {
        status = launch_unscaling(opt, factor, &numbers, &out->is_begun);
    }
    if (status >= 0) { /* on meta a step is tried that is not skipped */
        status = read_numbers(&numbers, true);
    }
    out->is_finite = status >= 0;
    for (size_t i = 0; i < opt->slot_count && out->is_finite; i++) {
        out->is_finite = numbers.values[i] == 0;
    }
    close_numbers(&numbers);
    status = tt_optim_agree(opt, status);
    return status < 0 ? status : tt_optim_all_agree(opt, &out->is_finite);
}

tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, tt_unscaled_t *out)
{
    tutti_tensor_t *first;
    bool are_several;
    *out = (tt_unscaled_t){0};
    TT_TRY(tt_optim_check_free(opt, "scaler: unscale"));
    TT_TRY(tt_optim_agree(opt, find_devices(opt, &first, &are_several)));
    if (first == NULL) {
        out->is_finite = true;
        return TUTTI_OK;
    }
    return unscale(opt, (float)factor, out);
}
