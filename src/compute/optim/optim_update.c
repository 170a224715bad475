/* The step of a parameter: one launch on its device, cut there for the threads (optim_pieces.c); of
 * slices, sums are added by all ranks (optim_slices.c).
 */
#include <string.h>

#include "compute/optim/optim_offload.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/base/profiler.h"

typedef struct {
    const tutti_optim_ops_t *ops;
    tutti_optim_piece_t piece; /* but for its options */
    _Alignas(16) char options[TUTTI_OPTIM_OPTIONS_BYTES_MAX];
} step_t;

static tutti_status_t run_step(tt_threads_t *threads, const void *arguments)
{
    const step_t *step = arguments;
    const tutti_optim_ops_t *ops = step->ops;
    double sections[TUTTI_OPTIM_SECTIONS_MAX * TUTTI_OPTIM_SUMS_MAX];
    double sums[TUTTI_OPTIM_SUMS_MAX] = {0};
    tutti_optim_piece_t whole = step->piece;
    whole.options = step->options;
    if (ops->measure != NULL && whole.sums == NULL) {
        const size_t length = tt_optim_section(whole.count);
        tt_optim_measure_now(ops, threads, &whole, length, sections);
        tt_optim_add_sections(sections, tt_divide_up(whole.count, length), sums);
        whole.sums = sums;
    }
    tt_optim_update_now(ops, threads, &whole);
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

bool tt_optim_has_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                         tutti_shape_t *shape)
{
    const tutti_optim_ops_t *ops = opt->ops;
    *shape = slot->tensor->shape;
    return ops->moments[i] != NULL &&
           (ops->has_moment == NULL || ops->has_moment(opt->groups[slot->group].options, i, shape));
}

bool tt_optim_wants_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                           tutti_shape_t *shape)
{
    const tt_tensor_slice_t *slice = slot->tensor->slice;
    const bool is_elsewhere = slice != NULL && opt->ops->wants_whole && slice->values->numel == 0;
    return tt_optim_has_moment(opt, slot, i, shape) && !is_elsewhere;
}

/* Of a slice, unless the kind looks at whole parameters. */
tutti_status_t tt_optim_new_moment(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i,
                                   tt_device_t *device, tutti_tensor_t **out)
{
    tutti_shape_t shape;
    tutti_tensor_t *moment;
    const tutti_tensor_t *x = tt_optim_weight(slot);
    if (!tt_optim_wants_moment(opt, slot, i, &shape)) {
        return TUTTI_OK;
    }
    if (opt->ops->wants_whole) {
        return tt_tensor_new(device, TUTTI_F32, shape, true, out);
    }
    if (!tutti_shape_equal(shape, slot->tensor->shape)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: moment %s of \"%s\" is not of the parameter's shape: that is for "
                       "kinds with wants_whole",
                       opt->ops->name, opt->ops->moments[i], slot->name);
    }
    TT_TRY(tt_tensor_new(device, TUTTI_F32, x->shape, true, &moment));
    const tutti_status_t status = tt_optim_like_part(moment, x);
    if (status < 0) {
        tutti_tensor_release(moment);
        return status;
    }
    *out = moment;
    return TUTTI_OK;
}

static tutti_status_t ensure_moments(const tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        if (slot->moments[i] == NULL) {
            TT_TRY(tt_optim_new_moment(opt, slot, i, tt_optim_state_device(opt, slot),
                                       &slot->moments[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t launch_step(tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                  const tutti_tensor_t *grad, const double *sums)
{
    const tutti_tensor_t *weight = slot->master == NULL ? tt_optim_weight(slot) : slot->master;
    step_t step; /* options are filled in as far as they go */
    step.ops = opt->ops;
    step.piece = tt_optim_piece_of(opt, slot, grad);
    step.piece.sums = sums;
    memcpy(step.options, opt->groups[slot->group].options, opt->ops->options_bytes);
    return tt_launch(tt_tensor_exec(opt->ctx, weight), &kernel_step, &step);
}

/* sums: of the whole parameter, if they are known; NULL: they are measured. */
static tutti_status_t update_slot(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                  const tutti_tensor_t *grad, const double *sums)
{
    tutti_tensor_t *weight = slot->master == NULL ? tt_optim_weight(slot) : slot->master;
    if (tt_optim_is_offloaded(opt, slot)) {
        return tt_optim_offload_update(opt, slot, grad, sums);
    }
    if (weight->part == NULL || weight->numel > 0) {
        TT_TRY(launch_step(opt, slot, grad, sums));
    }
    slot->step++;
    tt_tensor_touch(weight);
    return tt_optim_round_master(opt, slot);
}

/* All that may fail: moments, master and f32 gradient are there behind it. */
static tutti_status_t prepare_slot(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    tutti_tensor_t *grad;
    if (tt_optim_grad(slot) == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(ensure_moments(opt, slot));
    TT_TRY(tt_optim_prepare_master(opt, slot));
    return tt_optim_flat_grad(opt, slot, &grad);
}

static tutti_status_t step_slot(tutti_optim_t *opt, tt_optim_slot_t *slot, const double *sums)
{
    tutti_tensor_t *grad;
    TT_TRY(tt_optim_flat_grad(opt, slot, &grad));
    return grad != NULL ? update_slot(opt, slot, grad, sums) : TUTTI_OK;
}

/* wanted: where it must lie. */
static tutti_status_t check_place(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                  const char *what, const tutti_tensor_t *beside,
                                  const tt_device_t *wanted)
{
    const tutti_tensor_t *x = tt_optim_weight(slot);
    return beside == NULL || beside->storage->device == wanted
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: the %s of parameter \"%s\" lies on %s, the parameter on %s: behind "
                         "tutti_module_to() make a new optimizer, or load the state that "
                         "tutti_optim_save() wrote before",
                         opt->ops->name, what, slot->name, tt_device_text(beside->storage->device),
                         tt_device_text(x->storage->device));
}

static tutti_status_t check_part(const tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                 const tutti_tensor_t *kept)
{
    const tt_tensor_part_t *part = tt_optim_weight(slot)->part,
                           *of = kept == NULL ? NULL : kept->part;
    const int64_t first = part == NULL ? 0 : part->first, from = of == NULL ? 0 : of->first;
    return kept == NULL || (first == from && kept->numel == tt_optim_weight(slot)->numel)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: parameter \"%s\": the state is of %lld elements from %lld on, but "
                         "this rank steps %lld from %lld on: save and load it by "
                         "tutti_checkpoint_save() and tutti_checkpoint_load()",
                         opt->ops->name, slot->name, (long long)kept->numel, (long long)from,
                         (long long)tt_optim_weight(slot)->numel, (long long)first);
}

/* Of a kind that looks at whole parameters: who has stepped this one has its moments. */
static tutti_status_t check_whole(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i)
{
    tutti_shape_t shape;
    return slot->step == 0 || slot->moments[i] != NULL ||
                   !tt_optim_wants_moment(opt, slot, i, &shape)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: parameter \"%s\": another rank has its state: save and load it by "
                         "tutti_checkpoint_save() and tutti_checkpoint_load()",
                         opt->ops->name, slot->name);
}

/* A module may have been moved since its last step. */
static tutti_status_t check_places(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    const tt_device_t *device = tt_optim_state_device(opt, slot);
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        TT_TRY(check_place(opt, slot, opt->ops->moments[i], slot->moments[i], device));
        TT_TRY(opt->ops->wants_whole ? check_whole(opt, slot, i)
                                     : check_part(opt, slot, slot->moments[i]));
    }
    TT_TRY(check_part(opt, slot, slot->master));
    return check_place(opt, slot, "master", slot->master, device);
}

/* Values may be elsewhere (storage.h), a schedule may have said what is no rate. */
static tutti_status_t check_slot(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    const tutti_tensor_t *grad = tt_optim_grad(slot);
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
    TT_TRY(tt_tensor_check_named(tt_optim_weight(slot), slot->name));
    TT_TRY(tt_tensor_check_named(grad, slot->name));
    TT_TRY(check_place(opt, slot, "gradient", grad, tt_optim_weight(slot)->storage->device));
    TT_TRY(tt_optim_offload_admit(opt, opt->ops->name, slot->name, tt_optim_weight(slot)));
    if (opt->ops->wants_whole && grad->numel != 0 && grad->numel != slot->tensor->numel) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "%s looks at whole parameters, and this rank steps a slice of \"%s\": cut "
                       "none (options.whole_slices of DDP)",
                       opt->ops->name, slot->name);
    }
    return check_places(opt, slot);
}

/* In backward others follow: the first step finds out whether there is room for all. */
static tutti_status_t prepare_offload(tutti_optim_t *opt)
{
    for (size_t i = 0; opt->offload != NULL && i < opt->slot_count; i++) {
        tt_optim_slot_t *slot = &opt->slots[i];
        if (slot->step == 0 && tutti_tensor_requires_grad(slot->tensor)) {
            TT_TRY(ensure_moments(opt, slot));
            TT_TRY(tt_optim_prepare_master(opt, slot));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t prepare_one(tutti_optim_t *opt, tt_optim_slot_t *slot)
{
    TT_TRY(tt_optim_offload_attach(opt));
    TT_TRY(tt_optim_offload_check(opt));
    TT_TRY(check_slot(opt, slot));
    TT_TRY(prepare_offload(opt));
    TT_TRY(prepare_slot(opt, slot));
    return tt_optim_offload_begin(opt);
}

tutti_status_t tt_optim_step_slot(tutti_optim_t *opt, int slot)
{
    TT_TRY(prepare_one(opt, &opt->slots[slot]));
    return tt_optim_offload_note(opt, step_slot(opt, &opt->slots[slot], NULL));
}

void tt_optim_end_slots(tutti_optim_t *opt)
{
    (void)tt_optim_offload_end(opt, TUTTI_OK);
}

/* Before any is changed. */
static tutti_status_t prepare_all(tutti_optim_t *opt)
{
    TT_TRY(tt_optim_offload_attach(opt));
    TT_TRY(tt_optim_offload_check(opt));
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(check_slot(opt, &opt->slots[i]));
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(prepare_slot(opt, &opt->slots[i]));
    }
    return tt_optim_offload_begin(opt);
}

static tutti_status_t step_all(tutti_optim_t *opt, double (*sums)[TUTTI_OPTIM_SUMS_MAX])
{
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < opt->slot_count && status >= 0; i++) {
        const bool is_measured = sums != NULL && opt->slots[i].tensor->slice != NULL;
        status = step_slot(opt, &opt->slots[i], is_measured ? sums[i] : NULL);
    }
    return tt_optim_offload_end(opt, status);
}

/* Others' slices come behind a step, which is no write by somebody: masters stay right, unless the
 * parameter was written before, and is not stepped now. */
void tt_optim_note_current(tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_optim_slot_t *slot = &opt->slots[i];
        slot->is_current =
            tt_optim_grad(slot) != NULL || slot->version == tt_optim_weight(slot)->storage->version;
    }
}

void tt_optim_keep_current(tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_optim_slot_t *slot = &opt->slots[i];
        if (slot->is_current) {
            slot->version = tt_optim_weight(slot)->storage->version;
        }
    }
}

/* What is measured of slices, all ranks put together. */
static tutti_status_t step_slices(tutti_optim_t *opt)
{
    double(*sums)[TUTTI_OPTIM_SUMS_MAX] = NULL;
    tutti_status_t status = prepare_all(opt);
    if (opt->ops->measure != NULL && status >= 0) {
        sums = tt_alloc_array(opt->slot_count, sizeof *sums, "optimizer");
        status = sums == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    }
    status = tt_optim_agree(opt, status);
    if (sums != NULL && status >= 0) {
        status = tt_optim_offload_note(opt, tt_optim_measure_slices(opt, sums));
    }
    tt_optim_note_current(opt);
    if (status >= 0) {
        status = tt_optim_begin_step(opt);
        status = tt_optim_end_step(opt, status < 0 ? status : step_all(opt, sums));
    }
    if (status >= 0) {
        tt_optim_keep_current(opt);
    }
    tt_free(sums);
    return status;
}

static tutti_status_t step_all_or_slices(tutti_optim_t *opt)
{
    if (tt_optim_has_slices(opt)) {
        return step_slices(opt);
    }
    TT_TRY(prepare_all(opt));
    return step_all(opt, NULL);
}

tutti_status_t tt_optim_step_all(tutti_optim_t *opt)
{
    const bool is_profiled = tt_profile_begin(TT_PROFILE_REGION, "optimizer step", 0);
    const tutti_status_t status = step_all_or_slices(opt);
    if (is_profiled) {
        tt_profile_end((tt_profile_end_t){0});
    }
    return status;
}

tutti_status_t tutti_optim_step(tutti_optim_t *opt)
{
    TT_WANT("optim_step", opt);
    TT_TRY(tt_optim_check_free(opt, "optim_step"));
    if (opt->slot_count == 0) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "optim_step: this %s has no parameters: tutti_optim_add_module() adds those "
                       "of a module",
                       opt->ops->name);
    }
    return tt_optim_step_all(opt);
}
