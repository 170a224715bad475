/* Slices: each rank steps its own elements of the parameters, and has their optimizer state alone.
 *
 *     bucket of gradients     reduced and scattered: this rank's slice of the averages is right
 *     slices                  stepped by whichever optimizer has the parameters (slice.h)
 *     bucket of parameters    gathered behind the step: everybody has all again
 *
 * Parameters lie in buckets as their gradients do, so that a gathering is one call for each bucket,
 * in place. They keep their storages, whose memory is the bucket's from now on, also when DDP has
 * gone.
 */
#include <stddef.h>
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

/* ---- what optimizers ask --------------------------------------------------------------------- */

static tutti_ddp_t *ddp_of(tt_slicer_t *slicer)
{
    return (tutti_ddp_t *)(void *)((char *)slicer - offsetof(tutti_ddp_t, slices.slicer));
}

static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    return tt_group_agree(ddp_of(slicer)->group, status);
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
    for (int i = 0; i < ddp->param_count; i++) {
        tt_tensor_touch(ddp->params[i].tensor);
    }
    return TUTTI_OK;
}

static tutti_status_t stepped(tt_slicer_t *slicer, tutti_status_t status)
{
    const tutti_ddp_t *ddp = ddp_of(slicer);
    TT_TRY(tt_group_agree(ddp->group, status));
    return gather(ddp);
}

/* ---- parameters move into buckets ------------------------------------------------------------ */

static void return_to_bucket(tt_storage_t *storage)
{
    tutti_tensor_release(storage->owner);
}

static tutti_status_t check_param(const tt_ddp_param_t *param)
{
    const tt_device_t *device = param->tensor->storage->device;
    if (param->tensor->spread != NULL) {
        return TT_FAIL(
            TUTTI_ERR_UNSUPPORTED,
            "ddp: parameter %s is a part by tensor parallelism: stage 1 cannot deal such "
            "out yet; use stage 0",
            param->name);
    }
    if (device != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: parameter %s lies on %s: stage 1 is for parameters of the host",
                       param->name, tt_device_text(device));
    }
    return tt_tensor_is_whole(param->tensor)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "ddp: parameter %s shares its memory with other tensors: stage 1 wants "
                         "memory of its own for each",
                         param->name);
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
        tutti_prepare_all_gather_uneven(ddp->group, values, own, bucket->counts, out);
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

/* Elements of a parameter, counted from `begin` of the memory of another tensor. */
static tutti_status_t open_part(const tutti_tensor_t *flat, int64_t begin, const tutti_tensor_t *x,
                                int64_t first, int64_t count, tutti_tensor_t **out)
{
    TT_TRY(view_of(flat, begin + first, count, out));
    return tt_tensor_set_part(*out, x->shape, first);
}

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

static tutti_status_t open_slice(tutti_ddp_t *ddp, int index)
{
    tutti_tensor_t *x = ddp->params[index].tensor;
    tt_ddp_slice_t *slice = &ddp->slices.slices[index];
    const tt_bucket_slot_t place = ddp->reducer->plan.slots[index];
    const tt_bucket_t *bucket = &ddp->reducer->buckets[place.bucket];
    const int rank = tutti_group_rank(ddp->group);
    const int64_t first = clamp(bucket->cuts[rank] - place.offset, x->numel),
                  count = clamp(bucket->cuts[rank + 1] - place.offset, x->numel) - first;
    TT_TRY(open_part(x, 0, x, first, count, &slice->seen.values));
    TT_TRY(open_part(bucket->result, place.offset, x, first, count, &slice->grad));
    slice->seen.slicer = &ddp->slices.slicer;
    x->slice = &slice->seen;
    return TUTTI_OK;
}

static tutti_status_t open_all(tutti_ddp_t *ddp)
{
    tt_ddp_slices_t *slices = &ddp->slices;
    const size_t buckets = (size_t)ddp->reducer->plan.bucket_count;
    for (int i = 0; i < ddp->param_count; i++) {
        TT_TRY(check_param(&ddp->params[i]));
    }
    slices->values = tt_alloc_array(buckets, sizeof(tutti_tensor_t *), "ddp slices");
    TT_TRY_ALLOC(slices->values);
    slices->gathers = tt_alloc_array(buckets, sizeof(tutti_prepared_t *), "ddp slices");
    TT_TRY_ALLOC(slices->gathers);
    slices->slices = tt_alloc_array((size_t)ddp->param_count, sizeof *slices->slices, "ddp slices");
    TT_TRY_ALLOC(slices->slices);
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
    ddp->slices.slicer = (tt_slicer_t){.agree = agree, .sum = sum, .stepped = stepped};
    return has_slices(ddp) ? open_all(ddp) : TUTTI_OK;
}

void tt_ddp_close_slices(tutti_ddp_t *ddp)
{
    tt_ddp_slices_t *slices = &ddp->slices;
    for (int i = 0; slices->slices != NULL && i < ddp->param_count; i++) {
        if (ddp->params[i].tensor->slice == &slices->slices[i].seen) {
            ddp->params[i].tensor->slice = NULL;
        }
        tutti_tensor_release(slices->slices[i].seen.values);
        tutti_tensor_release(slices->slices[i].grad);
    }
    for (int b = 0; slices->gathers != NULL && b < ddp->reducer->plan.bucket_count; b++) {
        tutti_prepared_release(slices->gathers[b]);
        tutti_tensor_release(slices->values[b]);
    }
    tt_free(slices->slices);
    tt_free(slices->gathers);
    tt_free(slices->values);
}

/* ---- in a step ------------------------------------------------------------------------------- */

void tt_ddp_slices_begin_step(tutti_ddp_t *ddp)
{
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
        slice->seen.grad = autograd->grad_is_stale ? NULL : slice->grad;
        autograd->grad_is_stale = true;
    }
}

/* ---- grains ---------------------------------------------------------------------------------- */

int64_t tt_ddp_grain(const void *user, const tutti_tensor_t *param)
{
    const tutti_ddp_options_t *options = user;
    return options->whole_slices ? 0 : (int64_t)tt_optim_section((size_t)param->numel);
}
