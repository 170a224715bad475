/* Clipping and unscaling of gradients. The norm is a sum in f64 of fixed blocks within a parameter,
 * and of parameters in their order, so that it is the same for any number of threads, and for
 * a rank that holds only some of the blocks. Source: torch.nn.utils.clip_grad_norm_,
 * clip_grad_value_.
 */
#include <math.h>

#include "compute/optim/optimizer.h"
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

/* value: where it goes, unless that is NULL, which is when a device's is waited for. */
static tutti_status_t close_cell(cell_t *cell, double *value, tutti_status_t status)
{
    if (status >= 0 && value != NULL && cell->tensor != NULL) {
        status = tt_tensor_read(cell->tensor, &cell->value);
    }
    if (value != NULL) {
        *value = cell->value;
    }
    tt_tensors_release(&cell->tensor, 1);
    return status;
}

static tutti_status_t measure_grad(tutti_optim_t *opt, const tutti_tensor_t *grad, bool is_largest,
                                   cell_t *cell)
{
    return tt_flat_measure(tt_tensor_exec(opt->ctx, grad), tt_tensor_data(grad),
                           (size_t)grad->numel, is_largest, place_of(cell));
}

/* Of gradients on one device, in order: the sum stays there. */
static tutti_status_t measure_all(tutti_optim_t *opt, bool is_largest, cell_t *cell)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        TT_TRY(grad != NULL ? measure_grad(opt, grad, is_largest, cell) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* Of several devices: the host adds up, in order, what it is told of each gradient. */
static tutti_status_t measure_apart(tutti_optim_t *opt, bool is_largest, double *total)
{
    *total = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        cell_t cell;
        double one;
        TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
        if (grad != NULL) {
            TT_TRY(open_cell(grad, &cell));
            TT_TRY(close_cell(&cell, &one, measure_grad(opt, grad, is_largest, &cell)));
            *total = !is_largest ? *total + one : isnan(one) || one > *total ? one : *total;
        }
    }
    return TUTTI_OK;
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
        TT_TRY(grad != NULL ? tt_flat_scale(tt_tensor_exec(opt->ctx, grad), tt_tensor_data(grad),
                                            (size_t)grad->numel, (float)factor)
                            : TUTTI_OK);
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
    TT_TRY(find_devices(opt, &first, &are_several));
    double total = 0;
    if (first != NULL) {
        TT_TRY(are_several ? clip_apart(opt, max_norm, p == INFINITY, &total)
                           : clip_together(opt, first, max_norm, p == INFINITY,
                                           norm == NULL ? NULL : &total));
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
        if (grad != NULL) {
            const tt_strided_t x = tt_tensor_strided(grad);
            TT_TRY(tt_map_unary(tt_tensor_exec(opt->ctx, grad), TT_UNARY_CLAMP,
                                (tt_map_params_t){-clip_value, clip_value}, &x, &x));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t unscale_grad(tutti_optim_t *opt, size_t slot, float factor, cell_t *cell,
                                   bool *is_finite)
{
    tutti_tensor_t *grad;
    double bad;
    TT_TRY(open_grad(opt, slot, &grad));
    if (grad == NULL) {
        return TUTTI_OK;
    }
    const tt_device_t *device = cell->tensor == NULL ? NULL : cell->tensor->storage->device;
    if (device != grad->storage->device) { /* the number is read where another device's begins */
        TT_TRY(close_cell(cell, &bad, TUTTI_OK));
        *is_finite = *is_finite && bad == 0;
        TT_TRY(open_cell(grad, cell));
    }
    return tt_flat_unscale(tt_tensor_exec(opt->ctx, grad), tt_tensor_data(grad),
                           (size_t)grad->numel, factor, place_of(cell));
}

tutti_status_t tt_optim_unscale(tutti_optim_t *opt, double factor, bool *is_finite)
{
    tutti_tensor_t *first;
    cell_t cell = {0};
    bool are_several;
    double bad;
    tutti_status_t status = TUTTI_OK;
    *is_finite = true;
    TT_TRY(tt_optim_check_free(opt, "scaler: unscale"));
    TT_TRY(find_devices(opt, &first, &are_several));
    for (size_t i = 0; i < opt->slot_count && status >= 0; i++) {
        status = unscale_grad(opt, i, (float)factor, &cell, is_finite);
    }
    TT_TRY(close_cell(&cell, &bad, status));
    *is_finite = *is_finite && bad == 0;
    return TUTTI_OK;
}
