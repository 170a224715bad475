/* The step of a parameter: one launch on its device, cut there for the threads.
 *
 *     measure    at most 256 sections of at least 16384 elements, by the number of elements alone;
 *                their sums are added in order
 *     update     parts of 16384 elements, of 65536 where there are many
 */
#include <string.h>

#include "compute/optim/optimizer.h"
#include "core/base/integers.h"
#include "core/tensor/tensor_impl.h"

enum { PART = TUTTI_OPTIM_SECTION, PARTS_MANY = 64 };

typedef struct {
    const tutti_optim_ops_t *ops;
    tutti_optim_piece_t whole;
    tt_threads_t *threads;
    size_t length; /* of a part, but for the last */
    double sums[TUTTI_OPTIM_SECTIONS_MAX][TUTTI_OPTIM_SUMS_MAX];
} job_t;

static tutti_optim_piece_t part_of(const job_t *job, size_t index)
{
    tutti_optim_piece_t part = job->whole;
    const size_t first = index * job->length;
    part.first += first;
    part.count = tt_min_size(part.count - first, job->length);
    part.weight += first;
    part.gradient += first;
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        part.moments[i] = part.moments[i] == NULL ? NULL : part.moments[i] + first;
    }
    return part;
}

static void measure_part(void *arg, size_t index)
{
    job_t *job = arg;
    const tutti_optim_piece_t part = part_of(job, index);
    memset(job->sums[index], 0, sizeof job->sums[index]);
    job->ops->measure(&part, job->sums[index]);
}

static void update_part(void *arg, size_t index)
{
    const job_t *job = arg;
    const tutti_optim_piece_t part = part_of(job, index);
    job->ops->update(&part);
}

static void measure(job_t *job, double *sums)
{
    const size_t even = tt_divide_up(job->whole.count, TUTTI_OPTIM_SECTIONS_MAX);
    job->length = even < TUTTI_OPTIM_SECTION ? TUTTI_OPTIM_SECTION : even;
    const size_t sections = tt_divide_up(job->whole.count, job->length);
    tt_threads_run(job->threads, sections, measure_part, job);
    for (size_t i = 0; i < sections; i++) {
        for (int k = 0; k < TUTTI_OPTIM_SUMS_MAX; k++) {
            sums[k] += job->sums[i][k];
        }
    }
    job->whole.sums = sums;
}

typedef struct {
    const tutti_optim_ops_t *ops;
    tutti_optim_piece_t piece; /* but for its options */
    _Alignas(16) char options[TUTTI_OPTIM_OPTIONS_BYTES_MAX];
} step_t;

static tutti_status_t run_step(tt_threads_t *threads, const void *arguments)
{
    const step_t *step = arguments;
    const tutti_optim_ops_t *ops = step->ops;
    job_t job;
    double sums[TUTTI_OPTIM_SUMS_MAX] = {0};
    job.ops = ops;
    job.threads = threads;
    job.whole = step->piece;
    job.whole.options = step->options;
    if (ops->wants_whole) {
        ops->update(&job.whole);
        return TUTTI_OK;
    }
    if (ops->measure != NULL) {
        measure(&job, sums);
    }
    job.length = job.whole.count < (size_t)PARTS_MANY * PART ? PART : 4 * PART;
    tt_threads_run(threads, tt_divide_up(job.whole.count, job.length), update_part, &job);
    return TUTTI_OK;
}

#define MOMENT(i) TT_POINTER(step_t, piece.moments[i])

static const tt_pointer_t step_pointers[] = {TT_POINTER(step_t, piece.weight),
                                             TT_POINTER(step_t, piece.gradient),
                                             MOMENT(0),
                                             MOMENT(1),
                                             MOMENT(2),
                                             MOMENT(3),
                                             MOMENT(4),
                                             MOMENT(5),
                                             MOMENT(6),
                                             MOMENT(7),
                                             TT_NO_POINTER};
static const tt_kernel_t kernel_step = TT_KERNEL("optim_step", step_t, run_step, step_pointers);

tt_update_buffers_t tt_optim_buffers(const tutti_optim_piece_t *piece, size_t i)
{
    float *const *m = piece->moments;
    return (tt_update_buffers_t){
        .weight = piece->weight + i,
        .gradient = piece->gradient + i,
        .a = m[0] == NULL ? NULL : m[0] + i,
        .b = m[1] == NULL ? NULL : m[1] + i,
        .c = m[2] == NULL ? NULL : m[2] + i,
    };
}

void tt_optim_update(const tutti_optim_piece_t *piece, tt_update_t rule,
                     const tt_update_numbers_t *numbers)
{
    const tt_update_buffers_t at = tt_optim_buffers(piece, 0);
    tt_kernels()->optim_steps->update[rule](numbers, &at, piece->count);
}

/* ---- slots ----------------------------------------------------------------------------------- */

bool tt_optim_wants_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                           tutti_shape_t *shape)
{
    const tutti_optim_ops_t *ops = opt->ops;
    *shape = tutti_tensor_shape(slot->tensor);
    return ops->moments[i] != NULL &&
           (ops->has_moment == NULL || ops->has_moment(opt->groups[slot->group].options, i, shape));
}

tutti_status_t tt_optim_new_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                                   tt_device_t *device, tutti_tensor_t **out)
{
    tutti_shape_t shape;
    if (!tt_optim_wants_moment(opt, slot, i, &shape)) {
        return TUTTI_OK;
    }
    if (!opt->ops->wants_whole && !tutti_shape_equal(shape, slot->tensor->shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: moment %s of \"%s\" is not of the parameter's shape: that is for "
                       "kinds with wants_whole",
                       opt->ops->name, opt->ops->moments[i], slot->name);
    }
    return tt_tensor_new(device, TUTTI_F32, shape, true, out);
}

static tutti_status_t ensure_moments(const tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        if (slot->moments[i] == NULL) {
            TT_TRY(tt_optim_new_moment(opt, slot, i, slot->tensor->storage->device,
                                       &slot->moments[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t update_slot(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                  const tutti_tensor_t *grad)
{
    const tt_optim_group_t *group = &opt->groups[slot->group];
    tutti_tensor_t *weight = slot->master == NULL ? slot->tensor : slot->master;
    step_t step; /* options are filled in as far as they go */
    step.ops = opt->ops;
    step.piece = (tutti_optim_piece_t){.ctx = weight->storage->device == NULL ? opt->ctx : NULL,
                                       .lr = group->lr,
                                       .step = slot->step + 1,
                                       .shape = tutti_tensor_shape(slot->tensor),
                                       .count = (size_t)tutti_tensor_numel(slot->tensor),
                                       .weight = tt_tensor_data(weight),
                                       .gradient = tt_tensor_data(grad)};
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        tutti_tensor_t *moment = slot->moments[i];
        step.piece.moments[i] = moment == NULL ? NULL : tt_tensor_data(moment);
    }
    memcpy(step.options, group->options, opt->ops->options_bytes);
    TT_TRY(tt_launch(tt_tensor_exec(opt->ctx, weight), &kernel_step, &step));
    slot->step++;
    tt_tensor_touch(weight);
    return tt_optim_round_master(opt, slot);
}

/* All that may fail: moments, master and f32 gradient are there behind it. */
static tutti_status_t prepare_slot(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    tutti_tensor_t *grad;
    if (tutti_tensor_grad(slot->tensor) == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(ensure_moments(opt, slot));
    TT_TRY(tt_optim_prepare_master(opt, slot));
    return tt_optim_flat_grad(opt, slot, &grad);
}

static tutti_status_t step_slot(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    tutti_tensor_t *grad;
    TT_TRY(tt_optim_flat_grad(opt, slot, &grad));
    if (grad != NULL) {
        return update_slot(opt, slot, grad);
    }
    return TUTTI_OK;
}

static tutti_status_t check_place(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                  const char *what, const tutti_tensor_t *beside)
{
    const tutti_tensor_t *x = slot->tensor;
    return beside == NULL || beside->storage->device == x->storage->device
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: the %s of parameter \"%s\" lies on %s, the parameter on %s: behind "
                         "tutti_module_to() make a new optimizer, or load the state that "
                         "tutti_optim_save() wrote before",
                         opt->ops->name, what, slot->name, tt_device_text(beside->storage->device),
                         tt_device_text(x->storage->device));
}

/* A module may have been moved since its last step. */
static tutti_status_t check_places(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        TT_TRY(check_place(opt, slot, opt->ops->moments[i], slot->moments[i]));
    }
    return check_place(opt, slot, "master", slot->master);
}

/* Values may be elsewhere (storage.h), a schedule may have said what is no rate. */
static tutti_status_t check_slot(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    tutti_tensor_t *grad = tutti_tensor_grad(slot->tensor);
    const double lr = opt->groups[slot->group].lr;
    if (grad == NULL) {
        return TUTTI_OK;
    }
    if (!isfinite(lr)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: the learning rate of group %d is %g: tutti_optim_set_lr() wants a "
                       "finite one, and tutti_schedule_check() tells what is wrong with a schedule",
                       opt->ops->name, slot->group, lr);
    }
    TT_TRY(tt_optim_check_dtype(opt, slot->name, slot->tensor));
    TT_TRY(tt_tensor_check_named(slot->tensor, slot->name));
    TT_TRY(tt_tensor_check_named(grad, slot->name));
    TT_TRY(check_place(opt, slot, "gradient", grad));
    return check_places(opt, slot);
}

tutti_status_t tt_optim_step_slot(tutti_optim_t *opt, int slot)
{
    TT_TRY(check_slot(opt, &opt->slots[slot]));
    TT_TRY(prepare_slot(opt, &opt->slots[slot]));
    return step_slot(opt, &opt->slots[slot]);
}

tutti_status_t tutti_optim_step(tutti_optim_t *opt)
{
    TT_TRY(tt_optim_check_free(opt, "optim_step"));
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(check_slot(opt, &opt->slots[i]));
    }
    for (size_t i = 0; i < opt->slot_count; i++) { /* before any is changed */
        TT_TRY(prepare_slot(opt, &opt->slots[i]));
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(step_slot(opt, &opt->slots[i]));
    }
    return TUTTI_OK;
}
