/* Buffers under DDP (running statistics): shard 0's are everybody's, or those of the first shard
 * that has data.
 *
 *     step begins            buffers ──> start      what every shard of the step begins with
 *     a later shard begins   start ──> buffers
 *     the first shard ends   buffers ──> result
 *     finish                 result of its rank ──broadcast──> result of all ──> buffers
 *
 * So no shard sees what another one wrote, whichever rank hosts them, and a step leaves the same
 * bits on every rank and for any number of ranks (docs/decisions/0009-buffers-of-shard-0.md).
 * Cost: one broadcast a step of all buffers together, under way while the last buckets are;
 * where shards may be without data, it waits until all ranks know which.
 */
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { SPACING = 16 }; /* bytes that a buffer's place is a multiple of */

static size_t bytes_of(const tutti_tensor_t *x)
{
    return (size_t)x->numel * tutti_dtype_bytes(x->dtype);
}

static size_t space_of(const tutti_tensor_t *x)
{
    return (bytes_of(x) + SPACING - 1) / SPACING * SPACING;
}

static tutti_status_t list_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_ddp_t *ddp = user;
    return tt_ddp_is_ignored(ddp, x) || tt_slice_is_elsewhere(x)
               ? TUTTI_OK
               : tt_tensor_list_add(&ddp->buffers.list, name, x);
}

tutti_status_t tt_ddp_open_buffers(tutti_ddp_t *ddp)
{
    tt_ddp_buffers_t *buffers = &ddp->buffers;
    TT_TRY(tutti_module_each_buffer(ddp->module, list_buffer, ddp));
    for (size_t i = 0; i < buffers->list.count; i++) {
        const tutti_named_tensor_t *item = &buffers->list.items[i];
        if (!tutti_tensor_is_contiguous(item->tensor)) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: buffer %s is not contiguous", item->name);
        }
        buffers->bytes += space_of(item->tensor);
    }
    if (buffers->list.count == 0) {
        return TUTTI_OK;
    }
    buffers->start = tt_alloc(buffers->bytes, "ddp buffers");
    TT_TRY_ALLOC(buffers->start);
    return tutti_group_tensor(ddp->group, TUTTI_U8, TUTTI_SHAPE((int64_t)buffers->bytes),
                              &buffers->result);
}

tutti_status_t tt_ddp_check_buffers(const tutti_ddp_t *ddp)
{
    size_t bytes = 0;
    for (size_t i = 0; i < ddp->buffers.list.count; i++) {
        bytes += space_of(tt_listed(&ddp->buffers.list, i));
    }
    return bytes == ddp->buffers.bytes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "ddp: buffers have %zu bytes, and had %zu when ddp was made: cast the "
                         "module before",
                         bytes, ddp->buffers.bytes);
}

void tt_ddp_close_buffers(tutti_ddp_t *ddp)
{
    tt_ddp_buffers_t *buffers = &ddp->buffers;
    tutti_work_release(buffers->work);
    tt_tensor_list_release(&buffers->list);
    tutti_tensor_release(buffers->result);
    tt_free(buffers->start);
}

static bool are_moved(const tutti_ddp_t *ddp)
{
    return ddp->driver != NULL && ddp->driver->moves_buffers;
}

/* ---- copying --------------------------------------------------------------------------------- */

static tutti_status_t keep(const tt_ddp_buffers_t *buffers, char *to)
{
    for (size_t i = 0; i < buffers->list.count; i++) {
        const tutti_tensor_t *x = tt_listed(&buffers->list, i);
        TT_TRY(tt_tensor_read(x, to));
        to += space_of(x);
    }
    return TUTTI_OK;
}

static tutti_status_t put_back(const tt_ddp_buffers_t *buffers, const char *from)
{
    for (size_t i = 0; i < buffers->list.count; i++) {
        tutti_tensor_t *x = tt_listed(&buffers->list, i);
        TT_TRY(tutti_tensor_copy_from(x, from));
        from += space_of(x);
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_buffers_begin_step(tutti_ddp_t *ddp)
{
    ddp->buffers.is_kept = false;
    return keep(&ddp->buffers, ddp->buffers.start);
}

tutti_status_t tt_ddp_buffers_begin_shard(tutti_ddp_t *ddp)
{
    return ddp->step.next_shard > 0 && !are_moved(ddp) ? put_back(&ddp->buffers, ddp->buffers.start)
                                                       : TUTTI_OK;
}

tutti_status_t tt_ddp_buffers_end_shard(tutti_ddp_t *ddp)
{
    tt_ddp_buffers_t *buffers = &ddp->buffers;
    if (buffers->list.count == 0 || buffers->is_kept || ddp->step.weight == 0 || are_moved(ddp)) {
        return TUTTI_OK;
    }
    buffers->is_kept = true;
    return keep(buffers, tutti_tensor_data(buffers->result));
}

/* ---- one of them, by a driver ---------------------------------------------------------------- */

/* Where its place begins. */
static bool find_place(const tt_ddp_buffers_t *buffers, const tutti_tensor_t *x, size_t *place)
{
    *place = 0;
    for (size_t i = 0; i < buffers->list.count; i++) {
        if (tt_listed(&buffers->list, i) == x) {
            return true;
        }
        *place += space_of(tt_listed(&buffers->list, i));
    }
    return false;
}

tutti_status_t tt_ddp_restart_buffer(tutti_ddp_t *ddp, tutti_tensor_t *x)
{
    size_t place;
    return find_place(&ddp->buffers, x, &place)
               ? tutti_tensor_copy_from(x, ddp->buffers.start + place)
               : TUTTI_OK;
}

static char *result_of(const tt_ddp_buffers_t *buffers, size_t place)
{
    return (char *)tutti_tensor_data(buffers->result) + place;
}

tutti_status_t tt_ddp_keep_buffer(tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    size_t place;
    return find_place(&ddp->buffers, x, &place) ? tt_tensor_read(x, result_of(&ddp->buffers, place))
                                                : TUTTI_OK;
}

tutti_status_t tt_ddp_put_kept_buffer(tutti_ddp_t *ddp, tutti_tensor_t *x)
{
    size_t place;
    return find_place(&ddp->buffers, x, &place)
               ? tutti_tensor_copy_from(x, result_of(&ddp->buffers, place))
               : TUTTI_OK;
}

/* ---- sharing --------------------------------------------------------------------------------- */

static tutti_status_t send_from(tutti_ddp_t *ddp, int shard)
{
    tt_ddp_buffers_t *buffers = &ddp->buffers;
    const int owner = tt_tree_host(ddp->options.shards, tutti_group_size(ddp->group), shard,
                                   tt_ddp_is_sharded_sum(ddp));
    return tutti_broadcast(ddp->group, buffers->result, owner, &buffers->work);
}

/* There is one, for it is not the end. */
static int first_with_data(const tutti_ddp_t *ddp)
{
    int shard = 0;
    while (ddp->control.weights[shard] == 0) {
        shard++;
        TT_ASSERT(shard < ddp->options.shards);
    }
    return shard;
}

tutti_status_t tt_ddp_buffers_leave(tutti_ddp_t *ddp)
{
    const bool is_known = ddp->options.uneven == TUTTI_DDP_EVEN;
    return is_known && ddp->buffers.list.count > 0 ? send_from(ddp, 0) : TUTTI_OK;
}

tutti_status_t tt_ddp_buffers_arrive(tutti_ddp_t *ddp, bool is_end)
{
    tt_ddp_buffers_t *buffers = &ddp->buffers;
    if (buffers->list.count == 0) {
        return TUTTI_OK;
    }
    if (is_end) {
        return put_back(buffers, buffers->start);
    }
    if (buffers->work == NULL) {
        TT_TRY(send_from(ddp, first_with_data(ddp)));
    }
    TT_TRY(tutti_work_wait(buffers->work, 0));
    tutti_work_release(buffers->work);
    buffers->work = NULL;
    return put_back(buffers, tutti_tensor_data(buffers->result));
}
