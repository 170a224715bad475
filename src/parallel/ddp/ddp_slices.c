/* Slices: each rank steps its own elements of the parameters, and has their optimizer state alone.
 *
 *     bucket of gradients     reduced and scattered: this rank's slice of the averages is right
 *     slices                  stepped by whichever optimizer has the parameters (slice.h)
 *     bucket of parameters    gathered behind the step: everybody has all again; where the step is
 *                             taken in backward (ddp_optim.c), while that goes on
 *
 * Parameters lie in buckets as their gradients do, so that a gathering is one call for each bucket,
 * in place. They keep their storages, whose memory is the bucket's from now on, also when DDP has
 * gone.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "compute/autograd/node.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

static bool has_slices(const tutti_ddp_t *ddp)
{
    return ddp->options.stage > 0;
}

/* At stage 3 parameters lie in flats of units instead. */
static bool has_buckets(const tutti_ddp_t *ddp)
{
    return has_slices(ddp) && !tt_ddp_has_units(ddp);
}

/* ---- what optimizers ask --------------------------------------------------------------------- */

static tutti_ddp_t *ddp_of(tt_slicer_t *slicer)
{
    return (tutti_ddp_t *)(void *)((char *)slicer - offsetof(tutti_ddp_t, slices.slicer));
}

static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    tutti_ddp_t *ddp = ddp_of(slicer);
    status = status < 0 ? status : tt_ddp_check_dismissed(ddp, "optim_step");
    status = status < 0 ? status : tt_ddp_check_slices(ddp);
    return tt_group_agree(ddp->group, status);
}

/* In a tensor of its own: a failed call may write into it later. */
static tutti_status_t sum(tt_slicer_t *slicer, double *numbers, size_t count)
{
    tutti_tensor_t *x = NULL;
    tutti_group_t *group = ddp_of(slicer)->group;
    tutti_status_t status =
        tt_group_agree(group, tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE((int64_t)count), &x));
    if (status >= 0) {
        memcpy(tutti_tensor_data(x), numbers, count * sizeof *numbers);
        status = tutti_all_reduce(group, x, TUTTI_SUM, NULL);
        memcpy(numbers, tutti_tensor_data(x), count * sizeof *numbers);
    }
    tutti_tensor_release(x);
    return status < 0 ? tt_group_give_up(group, status) : TUTTI_OK;
}

static void touch_params(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->param_count; i++) {
        tt_tensor_touch(ddp->params[i].tensor);
    }
}

static tutti_status_t gather(const tutti_ddp_t *ddp)
{
    const int count = ddp->reducer->plan.bucket_count;
    tutti_work_t *work = NULL;
    tutti_status_t status = tutti_prepared_start_all(ddp->slices.gathers, count, &work);
    status = status < 0 ? status : tutti_work_wait(work, 0);
    tutti_work_release(work);
    if (status < 0) {
        return tt_group_give_up(ddp->group, status);
    }
    touch_params(ddp);
    return TUTTI_OK;
}

/* Of buckets, everybody has a copy, which the gathering writes. */
static tutti_status_t begin(tt_slicer_t *slicer)
{
    tutti_ddp_t *ddp = ddp_of(slicer);
    const tutti_status_t status = tt_ddp_has_units(ddp) ? tt_ddp_units_claim(ddp) : TUTTI_OK;
    return status < 0 ? tt_group_give_up(ddp->group, status) : TUTTI_OK;
}

/* Also what was stepped in part: it has been written. */
static tutti_status_t publish(tutti_ddp_t *ddp, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    if (status >= 0) {
        tt_ddp_note_loaded(ddp);
    }
    const tutti_status_t published = tt_ddp_units_publish(ddp);
    return status < 0 ? tt_fail_again(status, text) : published;
}

/* What a rank has written without a summons, all hear of. */
static tutti_status_t go(tutti_ddp_t *ddp, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    const tutti_status_t gone = tt_ddp_units_go(ddp);
    return status < 0 ? tt_fail_again(status, text) : gone;
}

static tutti_status_t stepped(tt_slicer_t *slicer, tutti_status_t status)
{
    tutti_ddp_t *ddp = ddp_of(slicer);
    if (tt_ddp_has_units(ddp)) {
        return publish(ddp, tt_group_agree(ddp->group, go(ddp, status)));
    }
    status = tt_group_agree(ddp->group, status);
    return status < 0 ? status : gather(ddp);
}

/* ---- parameters move into buckets ------------------------------------------------------------ */

static void return_to_bucket(tt_storage_t *storage)
{
    tutti_tensor_release(storage->owner);
}

static tutti_status_t check_param(const char *name, const tutti_tensor_t *x)
{
    const tt_device_t *device = x->storage->device;
    if (device != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: parameter %s lies on %s: stages 1 to 3 are for parameters of the host",
                       name, tt_device_text(device));
    }
    return tt_tensor_is_whole(x)
               ? TUTTI_OK
               : TT_FAIL(
                     TUTTI_ERR_UNSUPPORTED,
                     "ddp: parameter %s shares its memory with other tensors: stages 1 to 3 want "
                     "memory of its own for each",
                     name);
}

static tutti_status_t move_param(const tt_ddp_param_t *param, tutti_tensor_t *bucket,
                                 int64_t offset)
{
    tt_storage_t *storage = param->tensor->storage;
    char *place =
        (char *)tt_tensor_data(bucket) + offset * (int64_t)tutti_dtype_bytes(param->tensor->dtype);
    memcpy(place, storage->data, storage->bytes);
    TT_TRY(tt_storage_evict(storage, "it moves into a bucket"));
    TT_TRY(tt_storage_lend(storage, place, return_to_bucket, tutti_tensor_retain(bucket)));
    return tt_storage_publish(storage);
}

static tutti_status_t view_of(const tutti_tensor_t *flat, int64_t begin, int64_t count,
                              tutti_tensor_t **out)
{
    return tt_tensor_over(flat->storage, flat->dtype, TUTTI_SHAPE(count), NULL,
                          flat->offset + begin, out);
}

/* This rank's part of a bucket is its input, in place. */
static tutti_status_t prepare_gather(const tutti_ddp_t *ddp, const tt_bucket_t *bucket,
                                     tutti_tensor_t *values, tutti_prepared_t **out)
{
    tutti_tensor_t *own;
    const int rank = tutti_group_rank(ddp->group);
    TT_TRY(view_of(values, bucket->cuts[rank], bucket->counts[rank], &own));
    const tutti_status_t status =
        tutti_prepare_all_gather_uneven(ddp->slices.group != NULL ? ddp->slices.group : ddp->group,
                                        values, own, bucket->counts, out);
    tutti_tensor_release(own);
    return status;
}

static tutti_status_t open_bucket(tutti_ddp_t *ddp, int index)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[index];
    const int *members = plan->members + spec->first;
    tutti_tensor_t **values = &ddp->slices.values[index];
    TT_TRY(tutti_group_tensor(ddp->group, ddp->params[members[0]].tensor->dtype,
                              TUTTI_SHAPE(spec->numel), values));
    for (int k = 0; k < spec->param_count; k++) {
        TT_TRY(move_param(&ddp->params[members[k]], *values, plan->slots[members[k]].offset));
    }
    return prepare_gather(ddp, &ddp->reducer->buckets[index], *values, &ddp->slices.gathers[index]);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* Which elements of a parameter are this rank's: of a flat that is cut, where it lies at `offset`.
 */
typedef struct {
    int64_t first, count, begin; /* begin: in the rank's slice of the flat */
} share_t;

static share_t share_of(const tutti_ddp_t *ddp, const int64_t *cuts, int64_t offset, int64_t numel)
{
    const int rank = tutti_group_rank(ddp->group);
    const int64_t first = clamp(cuts[rank] - offset, numel),
                  count = clamp(cuts[rank + 1] - offset, numel) - first;
    return (share_t){first, count, count == 0 ? 0 : offset + first - cuts[rank]};
}

/* A part of x in the slice of a flat. */
static tutti_status_t open_part(const tutti_tensor_t *own, const tutti_tensor_t *x, share_t share,
                                tutti_tensor_t **out)
{
    TT_TRY(view_of(own, share.begin, share.count, out));
    tt_tensor_set_spread(*out, x->spread);
    return tt_tensor_set_part(*out, x->shape, share.first);
}

static tutti_status_t open_grad(tutti_ddp_t *ddp, int index)
{
    const tt_bucket_slot_t place = ddp->reducer->plan.slots[index];
    const tt_bucket_t *bucket = &ddp->reducer->buckets[place.bucket];
    const tutti_tensor_t *x = ddp->params[index].tensor;
    return open_part(bucket->own_result, x, share_of(ddp, bucket->cuts, place.offset, x->numel),
                     &ddp->slices.slices[index].grad);
}

static tutti_status_t hang(tutti_ddp_t *ddp, tutti_tensor_t *x, tt_ddp_slice_t *slice)
{
    return tt_slice_hang(x, &slice->seen, &ddp->slices.slicer);
}

static tutti_status_t open_slice(tutti_ddp_t *ddp, int index)
{
    tutti_tensor_t *x = ddp->params[index].tensor;
    tt_ddp_slice_t *slice = &ddp->slices.slices[index];
    const tt_bucket_slot_t place = ddp->reducer->plan.slots[index];
    share_t share = share_of(ddp, ddp->reducer->buckets[place.bucket].cuts, place.offset, x->numel);
    share.begin = share.first; /* the whole is there */
    TT_TRY(open_part(x, x, share, &slice->seen.values));
    TT_TRY(open_grad(ddp, index));
    return hang(ddp, x, slice);
}

static tutti_status_t open_unit_slice(tutti_ddp_t *ddp, int index)
{
    const tt_unit_param_t *param = &ddp->units.params[index];
    tt_ddp_slice_t *slice = &ddp->slices.slices[index];
    share_t share =
        share_of(ddp, tt_ddp_unit_cuts(ddp, param->flat), param->offset, param->tensor->numel);
    share.begin = tt_ddp_has_store(ddp) ? ddp->units.store.pieces[index].at : share.begin;
    TT_TRY(
        open_part(tt_ddp_unit_slice(ddp, param->flat), param->tensor, share, &slice->seen.values));
    if (index < ddp->param_count) {
        TT_TRY(open_grad(ddp, index));
        TT_TRY(tt_ddp_has_store(ddp) ? open_part(ddp->units.store.grads[param->flat], param->tensor,
                                                 share, &slice->stored_grad)
                                     : TUTTI_OK);
    }
    return hang(ddp, param->tensor, slice);
}

tutti_status_t tt_ddp_open_unit_slices(tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        TT_TRY(open_unit_slice(ddp, i));
    }
    return TUTTI_OK;
}

static tutti_status_t new_slices(tutti_ddp_t *ddp)
{
    const int frozen = tt_ddp_has_units(ddp) ? (int)ddp->frozen.count : 0;
    tt_ddp_slices_t *slices = &ddp->slices;
    slices->count = ddp->param_count + frozen;
    slices->slices = tt_alloc_array((size_t)slices->count, sizeof *slices->slices, "ddp slices");
    TT_TRY_ALLOC(slices->slices);
    return TUTTI_OK;
}

static tutti_status_t open_all(tutti_ddp_t *ddp)
{
    tt_ddp_slices_t *slices = &ddp->slices;
    const size_t buckets = (size_t)ddp->reducer->plan.bucket_count;
    slices->values = tt_alloc_array(buckets, sizeof(tutti_tensor_t *), "ddp slices");
    TT_TRY_ALLOC(slices->values);
    slices->gathers = tt_alloc_array(buckets, sizeof(tutti_prepared_t *), "ddp slices");
    TT_TRY_ALLOC(slices->gathers);
    slices->works = tt_alloc_array(buckets, sizeof(tutti_work_t *), "ddp slices");
    TT_TRY_ALLOC(slices->works);
    for (size_t b = 0; b < buckets; b++) {
        TT_TRY(open_bucket(ddp, (int)b));
    }
    for (int i = 0; i < ddp->param_count; i++) {
        TT_TRY(open_slice(ddp, i));
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_open_slices(tutti_ddp_t *ddp)
{
    ddp->slices.slicer =
        (tt_slicer_t){.agree = agree, .sum = sum, .begin = begin, .stepped = stepped};
    for (int i = 0; i < ddp->param_count && has_slices(ddp); i++) {
        TT_TRY(check_param(ddp->params[i].name, ddp->params[i].tensor));
    }
    for (size_t i = 0; i < ddp->frozen.count && tt_ddp_has_units(ddp); i++) {
        TT_TRY(check_param(ddp->frozen.items[i].name, tt_listed(&ddp->frozen, i)));
    }
    TT_TRY(has_slices(ddp) ? new_slices(ddp) : TUTTI_OK);
    return has_buckets(ddp) ? open_all(ddp) : TUTTI_OK;
}

static tutti_tensor_t *sliced(const tutti_ddp_t *ddp, int index)
{
    return index < ddp->param_count ? ddp->params[index].tensor
                                    : tt_listed(&ddp->frozen, (size_t)(index - ddp->param_count));
}

/* Also where its storage is another one. */
static bool is_in_bucket(const tutti_ddp_t *ddp, int index)
{
    const tt_bucket_slot_t place = ddp->reducer->plan.slots[index];
    const tutti_tensor_t *x = ddp->params[index].tensor, *values = ddp->slices.values[place.bucket];
    return x->storage->release == return_to_bucket && x->storage->owner == values;
}

tutti_status_t tt_ddp_check_slices(const tutti_ddp_t *ddp)
{
    for (int i = 0; has_buckets(ddp) && i < ddp->param_count; i++) {
        if (!is_in_bucket(ddp, i)) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp: parameter %s has other memory than when ddp was made: move and "
                           "cast the module before",
                           ddp->params[i].name);
        }
    }
    return tt_ddp_check_units(ddp);
}

void tt_ddp_close_slices(tutti_ddp_t *ddp)
{
    tt_ddp_slices_t *slices = &ddp->slices;
    for (int i = 0; slices->slices != NULL && i < slices->count; i++) {
        tt_slice_take(sliced(ddp, i), &slices->slices[i].seen);
        tutti_tensor_release(slices->slices[i].seen.values);
        tutti_tensor_release(slices->slices[i].grad);
        tutti_tensor_release(slices->slices[i].stored_grad);
    }
    for (int b = 0; slices->works != NULL && b < ddp->reducer->plan.bucket_count; b++) {
        tutti_work_release(slices->works[b]);
    }
    for (int b = 0; slices->gathers != NULL && b < ddp->reducer->plan.bucket_count; b++) {
        tutti_prepared_release(slices->gathers[b]);
        tutti_tensor_release(slices->values[b]);
    }
    tt_free(slices->slices);
    tt_free(slices->gathers);
    tt_free(slices->works);
    tt_free(slices->values);
    tutti_group_release(slices->group);
}

/* ---- in a step ------------------------------------------------------------------------------- */

void tt_ddp_slices_begin_step(tutti_ddp_t *ddp)
{
    ddp->slices.next = 0;
    tutti_group_set_tag(ddp->slices.group, ddp->step.number);
    for (int i = 0; has_slices(ddp) && i < ddp->param_count; i++) {
        ddp->slices.slices[i].seen.grad = NULL;
    }
}

/* What a rank has of a gradient beside its slice is no average: nobody reads it. */
void tt_ddp_slices_arrive(tutti_ddp_t *ddp)
{
    for (int i = 0; has_slices(ddp) && i < ddp->param_count; i++) {
        tt_ddp_slice_t *slice = &ddp->slices.slices[i];
        tt_autograd_t *autograd = tt_autograd_of(ddp->params[i].tensor);
        slice->seen.grad = autograd->grad_is_stale      ? NULL
                           : slice->stored_grad != NULL ? slice->stored_grad
                                                        : slice->grad;
        autograd->grad_is_stale = true;
    }
}

void tt_ddp_slices_show(const tutti_ddp_t *ddp, int bucket)
{
    const tt_bucket_plan_t *plan = &ddp->reducer->plan;
    const tt_bucket_spec_t *spec = &plan->buckets[bucket];
    for (int k = 0; has_slices(ddp) && k < spec->param_count; k++) {
        tt_ddp_slice_t *slice = &ddp->slices.slices[plan->members[spec->first + k]];
        slice->seen.grad = slice->grad;
    }
}

/* ---- gathers in a step ----------------------------------------------------------------------- */

tutti_status_t tt_ddp_open_gathers(tutti_ddp_t *ddp)
{
    const tutti_group_options_t options = {.name = "slices of ddp"};
    if (!has_buckets(ddp) || tutti_group_size(ddp->group) == 1) {
        return TUTTI_OK;
    }
    const tutti_status_t status =
        tutti_group_new(ddp->group, NULL, 0, &options, &ddp->slices.group);
    return status < 0 ? tt_group_give_up(ddp->group, status) : TUTTI_OK;
}

tutti_status_t tt_ddp_start_gather(tutti_ddp_t *ddp, int bucket)
{
    tt_ddp_slices_t *slices = &ddp->slices;
    if (!has_buckets(ddp)) {
        return TUTTI_OK;
    }
    TT_ASSERT(bucket == slices->next && slices->works[bucket] == NULL);
    slices->next++;
    return tutti_prepared_start(slices->gathers[bucket], &slices->works[bucket]);
}

static tutti_status_t wait_for_gathers(tutti_ddp_t *ddp)
{
    const int count = ddp->reducer->plan.bucket_count;
    while (ddp->slices.next < count) {
        TT_TRY(tt_ddp_start_gather(ddp, ddp->slices.next));
    }
    for (int b = 0; b < count; b++) {
        TT_TRY(tutti_work_wait(ddp->slices.works[b], 0));
        tutti_work_release(ddp->slices.works[b]);
        ddp->slices.works[b] = NULL;
    }
    return TUTTI_OK;
}

/* Parameters count as written from here on. No node that has run since the first gather has read
 * them. */
tutti_status_t tt_ddp_end_gathers(tutti_ddp_t *ddp)
{
    const tutti_status_t status = wait_for_gathers(ddp);
    if (status < 0) {
        return tt_group_give_up(ddp->group, status);
    }
    tt_optim_note_current(ddp->options.optimizer);
    touch_params(ddp);
    tt_optim_keep_current(ddp->options.optimizer);
    return TUTTI_OK;
}

/* ---- grains ---------------------------------------------------------------------------------- */

/* Leaves of tensor parallelism are measured where all of them are (optim_spreads.c), and saved as
 * boxes: such a parameter is one rank's. */
int64_t tt_ddp_grain(const void *user, const tutti_tensor_t *param)
{
    const tutti_ddp_t *ddp = user;
    return ddp->options.whole_slices || param->spread != NULL
               ? 0
               : (int64_t)tt_optim_section((size_t)param->numel);
}
