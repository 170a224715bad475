/* Messages of a plan over wires: a frame that says which call and how many bytes, then the bytes.
 *
 * Between two ranks, messages of one direction keep the order of the plan's steps: the first one
 * that is not done blocks those behind it for this pass. A frame of another call is a mismatch.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "comm/wire/shm_wire.h"

static tutti_status_t open_link(tt_coll_t *coll, int rank)
{
    tt_link_t *link = &coll->links[rank];
    if (link->wire.ops != NULL) {
        return TUTTI_OK;
    }
    return tt_wire_open_shm(coll->mates, coll->mate_ranks[rank], &coll->block->outbox[rank],
                            &coll->blocks[rank]->outbox[coll->rank], &link->wire);
}

/* Sends data[*done, bytes) as far as it goes; OK when all is gone. */
static tutti_status_t push(tt_link_t *link, const void *data, size_t bytes, size_t *done)
{
    while (*done < bytes) {
        size_t part;
        TT_TRY(link->wire.ops->send(link->wire.state, (const char *)data + *done, bytes - *done,
                                    &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        *done += part;
    }
    return TUTTI_OK;
}

static tutti_status_t pull(tt_link_t *link, void *data, size_t bytes, size_t *done)
{
    while (*done < bytes) {
        size_t part;
        TT_TRY(link->wire.ops->recv(link->wire.state, (char *)data + *done, bytes - *done, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        *done += part;
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, int step, const void *data,
                            size_t bytes)
{
    const tt_step_t *planned = &run->plan->steps[step];
    tt_link_t *link = &coll->links[planned->peer];
    if (link->is_blocked_out) {
        return TUTTI_PENDING;
    }
    TT_TRY(open_link(coll, planned->peer));
    if (link->out_header == 0) {
        link->out = (tt_frame_t){.magic = TT_FRAME_MAGIC,
                                 .round = (uint32_t)planned->round,
                                 .sequence = run->sequence,
                                 .fingerprint = run->fingerprint,
                                 .bytes = bytes,
                                 .sign = run->sign};
    }
    tutti_status_t status = push(link, &link->out, sizeof link->out, &link->out_header);
    if (status == TUTTI_OK) {
        status = push(link, data, bytes, &coll->step_bytes[step]);
    }
    link->is_blocked_out = status != TUTTI_OK;
    if (status == TUTTI_OK) {
        link->out_header = 0;
    }
    return status;
}

static tutti_status_t check_frame(const tt_coll_t *coll, const tt_run_t *run,
                                  const tt_step_t *planned, size_t bytes)
{
    const tt_frame_t *frame = &coll->links[planned->peer].in;
    if (frame->magic != TT_FRAME_MAGIC) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d sent bytes that are no message of ours",
                       planned->peer);
    }
    if (frame->sequence != run->sequence || frame->fingerprint != run->fingerprint) {
        return tt_sign_mismatch(coll, run->sequence, planned->peer, &frame->sign, coll->rank,
                                &run->sign);
    }
    if (frame->bytes != bytes || frame->round != (uint32_t)planned->round) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s #%llu: rank %d sent %llu bytes in round %u where %zu in round %d were "
                       "due",
                       tt_collective_name(run->call.collective), (unsigned long long)run->sequence,
                       planned->peer, (unsigned long long)frame->bytes, frame->round, bytes,
                       planned->round);
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, int step, void *data, size_t bytes)
{
    const tt_step_t *planned = &run->plan->steps[step];
    tt_link_t *link = &coll->links[planned->peer];
    if (link->is_blocked_in) {
        return TUTTI_PENDING;
    }
    TT_TRY(open_link(coll, planned->peer));
    const bool had_header = link->in_header == sizeof link->in;
    tutti_status_t status = pull(link, &link->in, sizeof link->in, &link->in_header);
    if (status == TUTTI_OK && !had_header) {
        TT_TRY(check_frame(coll, run, planned, bytes));
    }
    if (status == TUTTI_OK) {
        status = pull(link, data, bytes, &coll->step_bytes[step]);
    }
    link->is_blocked_in = status != TUTTI_OK;
    if (status == TUTTI_OK) {
        link->in_header = 0;
    }
    return status;
}
