/* Messages of a plan over wires: a frame that says which call and how many bytes, then the bytes.
 *
 * Between two ranks, messages of one direction keep the order of the plan's steps: the first one
 * that is not done blocks those behind it for this pass. A frame of another call is a mismatch.
 *
 * A frame has its number among the messages of its call between these two ranks. It does not have
 * the round of the plan: the ranks of a host whose memory is foreign use stages, which takes rounds
 * of its own, and other hosts do not know that.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "comm/wire/shm_wire.h"

/* What tells the wires of two groups and lanes between the same processes apart. */
static uint64_t channel_of(const tt_coll_t *coll, int lane)
{
    return (coll->options.group ^ (uint64_t)coll->options.epoch << 32) * TT_LANES + (uint64_t)lane;
}

tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire)
{
    if (rank == coll->rank) {
        return tt_wire_open_self(wire);
    }
    if (coll->mate_ranks[rank] < 0) {
        return tt_peers_open_wire(coll->peers, coll->peer_ranks[rank], channel_of(coll, lane),
                                  wire);
    }
    const int size = coll->size;
    return tt_wire_open_shm(coll->mates, coll->mate_ranks[rank],
                            &coll->block->outbox[lane * size + rank],
                            &coll->blocks[rank]->outbox[lane * size + coll->rank], wire);
}

tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank)
{
    tt_link_t *link = &coll->links[rank];
    return link->wire.ops != NULL ? TUTTI_OK
                                  : tt_coll_open_wire(coll, rank, TT_LANE_CALLS, &link->wire);
}

/* Sends what is left of the frame and the data behind it; OK when all is gone. */
static tutti_status_t push(tt_link_t *link, const void *data, size_t bytes)
{
    const size_t all = sizeof link->out + bytes;
    while (link->out_done < all) {
        const size_t header = link->out_done < sizeof link->out ? link->out_done : sizeof link->out;
        const size_t payload = link->out_done - header;
        const tt_span_t spans[] = {
            {(const char *)&link->out + header, sizeof link->out - header},
            {bytes > 0 ? (const char *)data + payload : NULL, bytes - payload},
        };
        const int skip = header == sizeof link->out;
        size_t part;
        TT_TRY(
            link->wire.ops->send(link->wire.state, spans + skip, bytes > 0 ? 2 - skip : 1, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        link->out_done += part;
    }
    return TUTTI_OK;
}

/* Receives [begin, end) of the frame and the data behind it. */
static tutti_status_t pull(tt_link_t *link, void *base, size_t begin, size_t end)
{
    while (link->in_done < end) {
        size_t part;
        TT_TRY(link->wire.ops->recv(link->wire.state, (char *)base + (link->in_done - begin),
                                    end - link->in_done, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        link->in_done += part;
    }
    return TUTTI_OK;
}

/* Begins to count when the messages are another call's. */
static void count_for(tt_passed_t *passed, const tt_run_t *run)
{
    if (passed->sequence != run->sequence) {
        *passed = (tt_passed_t){.sequence = run->sequence};
    }
}

tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, int step, const void *data,
                            size_t bytes)
{
    const tt_step_t *planned = &run->plan->plan->steps[step];
    tt_link_t *link = &coll->links[planned->peer];
    if (link->is_blocked_out) {
        return TUTTI_PENDING;
    }
    TT_TRY(tt_coll_open_link(coll, planned->peer));
    if (link->out_done == 0) {
        count_for(&link->out_passed, run);
        link->out = (tt_frame_t){.magic = TT_FRAME_MAGIC,
                                 .index = link->out_passed.count,
                                 .sequence = run->sequence,
                                 .fingerprint = run->fingerprint,
                                 .bytes = bytes,
                                 .sign = tt_run_sign(run)};
    }
    const tutti_status_t status = push(link, data, bytes);
    link->is_blocked_out = status != TUTTI_OK;
    if (status == TUTTI_OK) {
        link->out_done = 0;
        link->out_passed.count++;
    }
    return status;
}

static tutti_status_t check_frame(const tt_coll_t *coll, const tt_run_t *run,
                                  const tt_step_t *planned, size_t bytes)
{
    const tt_link_t *link = &coll->links[planned->peer];
    const tt_frame_t *frame = &link->in;
    if (frame->magic != TT_FRAME_MAGIC) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d sent bytes that are no message of ours",
                       planned->peer);
    }
    if (frame->sequence != run->sequence || frame->fingerprint != run->fingerprint) {
        const tt_sign_t sign = tt_run_sign(run);
        return tt_sign_mismatch(coll, run->sequence,
                                &(tt_party_t){planned->peer, &frame->sign, NULL},
                                &(tt_party_t){coll->rank, &sign, NULL});
    }
    if (frame->bytes != bytes || frame->index != link->in_passed.count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "%s #%llu: message %u of rank %d has %llu bytes; rank %d wants message %u "
                       "with %zu in round %d",
                       tt_collective_name(run->call.collective), (unsigned long long)run->sequence,
                       frame->index, planned->peer, (unsigned long long)frame->bytes, coll->rank,
                       link->in_passed.count, bytes, planned->round);
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, int step, void *data, size_t bytes)
{
    const tt_step_t *planned = &run->plan->plan->steps[step];
    tt_link_t *link = &coll->links[planned->peer];
    if (link->is_blocked_in) {
        return TUTTI_PENDING;
    }
    TT_TRY(tt_coll_open_link(coll, planned->peer));
    count_for(&link->in_passed, run);
    const bool had_header = link->in_done >= sizeof link->in;
    tutti_status_t status = pull(link, &link->in, 0, sizeof link->in);
    if (status == TUTTI_OK && !had_header) {
        TT_TRY(check_frame(coll, run, planned, bytes));
    }
    if (status == TUTTI_OK) {
        status = pull(link, data, sizeof link->in, sizeof link->in + bytes);
    }
    link->is_blocked_in = status != TUTTI_OK;
    if (status == TUTTI_OK) {
        link->in_done = 0;
        link->in_passed.count++;
    }
    return status;
}

/* For a rank with which no message was exchanged, and which may want to receive one. */
static void say_farewell_to_mail(tt_coll_t *coll, int rank, uint64_t reason)
{
    tt_wire_t wire = {0};
    if ((coll->mail == NULL || !tt_mail_has_wire(coll->mail, rank)) &&
        tt_coll_open_wire(coll, rank, TT_LANE_MAIL, &wire) >= 0) {
        wire.ops->farewell(wire.state, reason);
        tt_wire_close(&wire);
    }
}

/* Ranks of other hosts learn why from their connections; also those that have none yet, when they
 * make one to see what is the matter. */
void tt_coll_say_farewell(tt_coll_t *coll, uint64_t reason)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (coll->mate_ranks[rank] >= 0) {
            continue;
        }
        if (tt_coll_open_link(coll, rank) >= 0) {
            const tt_wire_t *wire = &coll->links[rank].wire;
            wire->ops->farewell(wire->state, reason);
        }
        say_farewell_to_mail(coll, rank, reason);
    }
    if (coll->mail != NULL) {
        tt_mail_say_farewell(coll->mail, reason);
    }
}
