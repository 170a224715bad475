/* The wires of a group (to a rank of this host, oneself included, or to one elsewhere; one for each
 * lane), and messages of a plan over them: a frame that says which call and how many bytes, then
 * the bytes.
 *
 * Between two ranks, messages of one direction keep the order of the plan's steps: the first one
 * that is not done blocks those behind it for this pass. A frame of another call is a mismatch.
 *
 * A frame has its number among the messages of its call between these two ranks. It does not have
 * the round of the plan: the ranks of a host whose memory is foreign use bounce buffers, which
 * takes rounds of its own, and other hosts do not know that.
 */
#include "comm/exec/call_text.h"
#include "comm/exec/coll_exec.h"
#include "comm/wire/shm_wire.h"

/* What tells the wires of two groups and lanes between the same processes apart. */
static uint64_t channel_of(const tt_coll_t *coll, int lane)
{
    return (coll->options.group ^ (uint64_t)coll->options.epoch << 32) * TT_LANES + (uint64_t)lane;
}

tutti_status_t tt_coll_open_wire(tt_coll_t *coll, int rank, int lane, tt_wire_t *wire)
{
    if (coll->node_peer_ranks[rank] < 0) {
        return tt_peers_open_wire(coll->peers, coll->peer_ranks[rank], channel_of(coll, lane),
                                  wire);
    }
    const int size = coll->size;
    const tt_shm_pair_t pair = {.node_peers = coll->node_peers,
                                .peer = coll->node_peer_ranks[rank],
                                .outbox = &coll->block->outbox[lane * size + rank],
                                .inbox = &coll->blocks[rank]->outbox[lane * size + coll->rank],
                                .quarantine = coll->lease.quarantine};
    return tt_wire_open_shm(&pair, wire);
}

tutti_status_t tt_coll_open_link(tt_coll_t *coll, int rank)
{
    tt_link_t *link = &coll->links.all[rank];
    link->endpoint.header_bytes = sizeof(tt_frame_t);
    return tt_endpoint_is_open(&link->endpoint)
               ? TUTTI_OK
               : tt_coll_open_wire(coll, rank, TT_LANE_CALLS, &link->endpoint.wire);
}

/* Begins to count when the messages are another call's. */
static void count_for(tt_passed_t *passed, const tt_run_t *run)
{
    if (passed->sequence != run->sequence) {
        *passed = (tt_passed_t){.sequence = run->sequence};
    }
}

/* Two ranks of an all_to_all of uneven parts know what they give and want themselves alone. Each
 * frame says what its sender wants on the way back, so that both find what differs. */
static bool is_uneven_exchange(const tt_run_t *run)
{
    return run->call.collective == TT_ALL_TO_ALL && run->call.counts != NULL;
}

static uint64_t wanted_of(const tt_run_t *run, int peer)
{
    return is_uneven_exchange(run) ? run->call.recv_counts[peer] : 0;
}

tutti_status_t tt_coll_send(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned,
                            const void *data, size_t bytes)
{
    tt_link_t *link = &coll->links.all[planned->peer];
    if (link->is_blocked_out) {
        return TUTTI_PENDING;
    }
    TT_TRY(tt_coll_open_link(coll, planned->peer));
    if (link->endpoint.sent == 0) {
        count_for(&link->out_passed, run);
        link->out = (tt_frame_t){.magic = TT_FRAME_MAGIC,
                                 .index = link->out_passed.count,
                                 .sequence = run->sequence,
                                 .fingerprint = run->fingerprint,
                                 .bytes = bytes,
                                 .descriptor = tt_run_descriptor(run),
                                 .wanted = wanted_of(run, planned->peer)};
    }
    const tutti_status_t status = tt_endpoint_send(&link->endpoint, &link->out, data, bytes);
    link->is_blocked_out = status != TUTTI_OK;
    link->out_passed.count += status == TUTTI_OK;
    coll->links.sent_bytes[run->call.collective] += status == TUTTI_OK ? (int64_t)bytes : 0;
    return status;
}

static tutti_status_t check_exchange(const tt_coll_t *coll, const tt_run_t *run, int peer,
                                     const tt_frame_t *frame)
{
    const tt_exchange_t in = {peer, coll->rank, frame->bytes / tt_dtype_bytes(run->call.dtype),
                              run->call.recv_counts[peer]};
    const tt_exchange_t out = {coll->rank, peer, run->call.counts[peer], frame->wanted};
    TT_TRY(tt_exchange_check(run->sequence, &in));
    return tt_exchange_check(run->sequence, &out);
}

/* A frame of another call is kept: the text of the mismatch describes it. */
static tutti_status_t check_frame(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *planned,
                                  size_t bytes)
{
    const tt_link_t *link = &coll->links.all[planned->peer];
    const tt_frame_t *frame = &link->in;
    if (frame->magic != TT_FRAME_MAGIC) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d sent bytes that are no message of ours",
                       planned->peer);
    }
    if (frame->sequence != run->sequence || frame->fingerprint != run->fingerprint) {
        coll->links.mismatched = planned->peer;
        coll->links.mismatched_descriptor = frame->descriptor;
        return TT_FAIL(TUTTI_ERR_MISMATCH, "rank %d is in another call", planned->peer);
    }
    if (is_uneven_exchange(run)) {
        TT_TRY(check_exchange(coll, run, planned->peer, frame));
    }
    if (frame->bytes != bytes || frame->index != link->in_passed.count) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "%s #%llu: message %u of rank %d has %llu bytes; rank %d wants message %u "
                       "with %zu in round %d",
                       tt_collective_name(run->call.collective), (unsigned long long)run->sequence,
                       frame->index, planned->peer, (unsigned long long)frame->bytes, coll->rank,
                       link->in_passed.count, bytes, run->round);
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_recv(tt_coll_t *coll, tt_run_t *run, const tt_step_t *planned, void *data,
                            size_t bytes)
{
    tt_link_t *link = &coll->links.all[planned->peer];
    if (link->is_blocked_in) {
        return TUTTI_PENDING;
    }
    TT_TRY(tt_coll_open_link(coll, planned->peer));
    count_for(&link->in_passed, run);
    const bool had_header = tt_endpoint_has_header(&link->endpoint);
    tutti_status_t status = tt_endpoint_recv_header(&link->endpoint, &link->in);
    if (status == TUTTI_OK && !had_header) {
        TT_TRY(check_frame(coll, run, planned, bytes));
    }
    if (status == TUTTI_OK) {
        status = tt_endpoint_recv_payload(&link->endpoint, data, bytes);
    }
    link->is_blocked_in = status != TUTTI_OK;
    link->in_passed.count += status == TUTTI_OK;
    return status;
}
