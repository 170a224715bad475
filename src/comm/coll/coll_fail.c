/* What follows when a group has been given up, or is left: goaways say it to the ranks of other
 * hosts, and the recorders are dumped. The failure word (coll_lease.c) has said it to those of this
 * host.
 */
#include <stdio.h>

#include "comm/coll/coll.h"
#include "comm/coll/coll_fail.h"
#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p.h"

/* For a rank with which no message was exchanged, and which may want to receive one. */
static void say_goaway_to_p2p(tt_coll_t *coll, int rank, uint64_t reason)
{
    tt_wire_t wire = {0};
    if ((coll->p2p == NULL || !tt_p2p_has_wire(coll->p2p, rank)) &&
        tt_coll_open_wire(coll, rank, TT_LANE_P2P, &wire) >= 0) {
        tt_wire_goaway(&wire, reason);
        tt_wire_close(&wire);
    }
}

/* Ranks of other hosts learn why from their connections; also those that have none yet, when they
 * make one to see what is the matter. */
static void say_goaway(tt_coll_t *coll, uint64_t reason)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (coll->node_peer_ranks[rank] >= 0) {
            continue;
        }
        if (tt_coll_open_link(coll, rank) >= 0) {
            tt_wire_goaway(&coll->links.all[rank].endpoint.wire, reason);
        }
        say_goaway_to_p2p(coll, rank, reason);
    }
    if (coll->p2p != NULL) {
        tt_p2p_say_goaway(coll->p2p, reason);
    }
}

/* One that follows another leaves the board to that one, which has been there before. */
static void tell_hosts(tt_coll_t *coll, uint64_t failure)
{
    const int blamed = tt_failure_rank(failure);
    int first;
    if (blamed < 0 || blamed == coll->rank || tt_coll_find_end(coll, &first) == 0) {
        tt_coll_post_end(coll, failure);
    }
    say_goaway(coll, failure);
}

void tt_coll_announce(tt_coll_t *coll)
{
    if (coll->status < 0 && !coll->queue.is_announced) {
        coll->queue.is_announced = true;
        if (coll->host_count > 1) {
            tell_hosts(coll, atomic_load(&coll->block->failure));
        }
        tt_coll_dump_failure(coll);
    }
}

void tt_coll_fail(tt_coll_t *coll, tt_verdict_t verdict)
{
    if (verdict.status < 0) {
        tt_coll_give_up(coll, verdict);
        tt_coll_announce(coll);
    }
}

/* These are followed: they are no failures of the rank that says them. */
static bool is_of_others(tutti_status_t status)
{
    return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
           status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED;
}

/* The text of a call that another rank has ended: which, and how. */
static tt_verdict_t explain_call(tt_coll_t *coll, const tt_run_t *run, tutti_status_t status)
{
    tt_verdict_t verdict = {status, -1, false};
    if (status == TUTTI_ERR_MISMATCH && coll->links.mismatched >= 0) {
        const tt_call_descriptor_t descriptor = tt_run_descriptor(run);
        verdict.status = tt_call_mismatch(
            coll, run->sequence,
            &(tt_party_t){coll->links.mismatched, &coll->links.mismatched_descriptor, NULL},
            &(tt_party_t){coll->rank, &descriptor, NULL});
    } else if (status == TUTTI_ERR_ABORTED) {
        const tt_verdict_t followed = tt_coll_follow(coll, run);
        verdict = followed.status < 0 ? followed : verdict;
    }
    return verdict;
}

void tt_coll_fail_call(tt_coll_t *coll, const tt_run_t *run, tutti_status_t status)
{
    if (is_of_others(status)) {
        tt_coll_fail(coll, explain_call(coll, run, status));
    } else {
        tt_coll_fail_for(coll, status);
    }
}

/* What the board fails of is not the cause. */
static tutti_status_t put_last_error(tt_coll_t *coll, tutti_status_t status)
{
    char cause[TT_ERROR_TEXT_BYTES];
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    tt_coll_put_cause(coll, cause);
    return tt_fail_again(status, cause);
}

void tt_coll_fail_for(tt_coll_t *coll, tutti_status_t status)
{
    if (coll->status >= 0) {
        status = put_last_error(coll, is_of_others(status) ? TUTTI_ERR_STATE : status);
        tt_coll_fail(coll, (tt_verdict_t){status, coll->rank, false});
    }
}

/* That a message is not what is received is seen here alone: the others hear which. */
void tt_coll_fail_message(tt_coll_t *coll, tutti_status_t status, int blamed)
{
    if (!is_of_others(status)) {
        tt_coll_fail_for(coll, status);
    } else if (coll->status >= 0) {
        status = status == TUTTI_ERR_MISMATCH ? put_last_error(coll, status) : status;
        tt_coll_fail(coll, (tt_verdict_t){status, blamed, false});
    }
}

void tt_coll_take_leave(tt_coll_t *coll)
{
    uint64_t none = 0;
    const uint64_t reason = tt_failure_pack(TUTTI_END, coll->rank);
    if (atomic_compare_exchange_strong(&coll->block->failure, &none, reason) &&
        coll->host_count > 1) {
        say_goaway(coll, reason);
    }
    tt_coll_wake_node_peers(coll);
}
