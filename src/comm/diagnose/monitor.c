/* The monitor: what can go wrong while a group waits. Ranks that are dead, gone or late, and ranks
 * in another call, are errors of their own that name rank and call. Nothing is done about them
 * here: a verdict says what is wrong, and coll.c gives the group up with it.
 */
#include <stdio.h>
#include <string.h>

#include "comm/diagnose/diagnosis.h"
#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p.h"
#include "core/base/integers.h"
#include "core/base/log.h"

static const tt_verdict_t ALL_WELL = {TUTTI_OK, -1, false};

/* "all_reduce #5 f32[1024] of group dp (train.c:88)" */
static tt_call_text_t describe_run(const tt_coll_t *coll, const tt_run_t *run)
{
    const tt_record_t record = {.kind = TT_RECORD_CALL,
                                .collective = (int)run->call.collective,
                                .sequence = run->sequence,
                                .dtype = (int)run->call.dtype,
                                .count = run->call.count};
    return tt_record_in_group(&record, coll->options.name, tt_site_name(run->call.site).text);
}

/* A rank of another host may have died or left without a message: what its wire says, if it says
 * that the rank is gone. */
static const char *ask_wire(const tt_coll_t *coll, int rank)
{
    const tt_wire_t *wire = &coll->links.all[rank].endpoint.wire;
    return wire->ops != NULL && wire->ops->probe(wire->state) < 0 ? tutti_last_error()
                                                                  : "its connections are closed";
}

static tt_verdict_t judge_gone(const tt_coll_t *coll, const tt_run_t *run, int rank, bool has_left)
{
    char how[120] = "has left the group";
    if (!has_left && !tt_coll_is_node_peer(coll, rank)) {
        snprintf(how, sizeof how, "is gone: %.60s", ask_wire(coll, rank));
    } else if (!has_left) {
        const int local = coll->node_peer_ranks[rank];
        snprintf(how, sizeof how, "(process %lld) %.90s",
                 (long long)tt_node_peers_pid(coll->node_peers, local),
                 tt_node_peers_how(coll->node_peers, local));
    }
    return (tt_verdict_t){
        TT_FAIL(TUTTI_ERR_PEER, "%s: rank %d %s", describe_run(coll, run).text, rank, how), rank,
        has_left};
}

/* Ranks that never exchange a frame find out only at the deadline that they are in different calls.
 */
static tt_verdict_t judge_mismatch(const tt_coll_t *coll, const tt_run_t *run,
                                   const tt_stragglers_t *stragglers)
{
    const tt_call_descriptor_t descriptor = tt_run_descriptor(run);
    const tutti_status_t status =
        tt_call_mismatch(coll, run->sequence,
                         &(tt_party_t){stragglers->mismatched, &stragglers->mismatch.descriptor,
                                       stragglers->mismatch.site},
                         &(tt_party_t){coll->rank, &descriptor, NULL});
    return (tt_verdict_t){status, stragglers->mismatched, false};
}

/* A deadline has passed, this rank's or that of another (`how`). If a rank waited for this one,
 * which itself waits for others, those are late; blamed: if no rank is known to be late, -1: none.
 */
static tt_verdict_t judge_late(tt_coll_t *coll, const tt_run_t *run, const char *how, int blamed)
{
    tt_stragglers_t stragglers;
    tt_coll_find_stragglers(coll, run, &stragglers);
    if (stragglers.mismatched >= 0) {
        return judge_mismatch(coll, run, &stragglers);
    }
    const bool is_known = stragglers.first >= 0 || blamed < 0;
    const tutti_status_t status =
        TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s%s%s", describe_run(coll, run).text,
                is_known ? stragglers.text : "", is_known ? "; " : "", how);
    return (tt_verdict_t){status, is_known ? stragglers.first : blamed, false};
}

/* Another rank has given up, and says why. */
static tt_verdict_t judge_like(tt_coll_t *coll, const tt_run_t *run, int rank, uint64_t failure)
{
    tutti_status_t status = tt_failure_status(failure);
    const int blamed = tt_failure_rank(failure), first = tt_failure_first(rank, failure);
    const tt_call_text_t call = describe_run(coll, run);
    char how[64];
    switch (status) {
    case TUTTI_ERR_PEER:
        if (blamed >= 0 && blamed < coll->size && blamed != coll->rank) {
            return judge_gone(coll, run, blamed, tt_failure_has_left(failure));
        }
        status = TT_FAIL(status, "%s: rank %d lost a peer", call.text, rank);
        break;
    case TUTTI_ERR_TIMEOUT:
        snprintf(how, sizeof how, "rank %d gave up waiting for rank %d", rank, blamed);
        return judge_late(coll, run, how, blamed);
    default: /* the one that began, not the one that followed */
        status = TT_FAIL(status, "%s: rank %d gave the group up%s", call.text, first,
                         tt_coll_why(coll, first, status).text);
    }
    return (tt_verdict_t){status, tt_failure_blames(rank, failure), false};
}

static bool has_left(uint64_t failure)
{
    return failure != 0 && tt_failure_status(failure) == TUTTI_END;
}

/* Why a rank has left the group, 0 while it has not; `is_dead`: it went without a word. */
static uint64_t ask_rank(tt_coll_t *coll, const tt_run_t *run, int rank, bool *is_dead)
{
    *is_dead = false;
    if (tt_coll_is_node_peer(coll, rank)) {
        const tt_node_peer_state_t state =
            tt_node_peers_state(coll->node_peers, coll->node_peer_ranks[rank]);
        *is_dead = state == TT_NODE_PEER_DEAD;
        const uint64_t failure =
            atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
        return failure == 0 && state == TT_NODE_PEER_LEFT ? tt_failure_pack(TUTTI_END, rank)
                                                          : failure;
    }
    const tt_wire_t *wire = &coll->links.all[rank].endpoint.wire;
    if (wire->ops == NULL) {
        return 0;
    }
    const uint64_t peer_reason = wire->ops->peer_reason(wire->state);
    if (has_left(peer_reason) && !wire->ops->has_ended(wire->state)) {
        return 0; /* what it sent before is taken first */
    }
    if (peer_reason == 0 && tt_coll_awaits(coll, run, rank)) {
        *is_dead = wire->ops->probe(wire->state) < 0;
    }
    return peer_reason;
}

/* It may have given up before it went, and there was no connection to say so. */
static tt_verdict_t judge_lost(tt_coll_t *coll, const tt_run_t *run, int rank, bool has_left)
{
    int giver = -1;
    const bool is_elsewhere = !tt_coll_is_node_peer(coll, rank);
    const uint64_t failure = is_elsewhere && !has_left ? tt_coll_find_end(coll, &giver) : 0;
    return failure != 0 ? judge_like(coll, run, giver, failure)
                        : judge_gone(coll, run, rank, has_left);
}

/* A rank that is gone is to blame only for what it has not finished. First look for one that died
 * by itself, then for one that followed another. */
tt_verdict_t tt_coll_follow(tt_coll_t *coll, const tt_run_t *run)
{
    int follower = -1;
    uint64_t cause = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        if (rank == coll->rank) {
            continue;
        }
        bool is_dead;
        const uint64_t failure = ask_rank(coll, run, rank, &is_dead);
        const bool is_needed = tt_coll_is_node_peer(coll, rank)
                                   ? !tt_coll_has_finished(coll, run, rank)
                                   : tt_coll_awaits(coll, run, rank);
        if (failure != 0 && !has_left(failure)) {
            follower = rank;
            cause = failure;
        } else if ((is_dead || has_left(failure)) && is_needed) {
            return judge_lost(coll, run, rank, has_left(failure));
        }
    }
    return follower >= 0 ? judge_like(coll, run, follower, cause) : ALL_WELL;
}

static void report_hang(tt_coll_t *coll, tt_run_t *run, int64_t waited_ns)
{
    if (run->op.is_reported || waited_ns < tt_ms_in_ns(tt_coll_report_ms(coll))) {
        return;
    }
    tt_stragglers_t stragglers;
    run->op.is_reported = true;
    tt_coll_find_stragglers(coll, run, &stragglers);
    tt_log(TT_LOG_WARN, "rank %d has been waiting for %.1f s in %s: %s", coll->rank,
           (double)waited_ns / (double)TT_NS_PER_S, describe_run(coll, run).text, stragglers.text);
}

/* Memory that a local rank has shown cannot be mapped. */
static tt_verdict_t look_for_starvation(const tt_coll_t *coll, const tt_run_t *run)
{
    const tutti_status_t status = tt_node_peers_status(coll->node_peers);
    if (status >= 0) {
        return ALL_WELL;
    }
    return (tt_verdict_t){
        TT_FAIL(status, "%s: %s", describe_run(coll, run).text, tutti_last_error()), coll->rank,
        false};
}

tt_verdict_t tt_coll_watch(tt_coll_t *coll, int64_t now)
{
    tt_run_t *run = coll->queue.head;
    if (run == NULL) {
        return ALL_WELL;
    }
    tt_verdict_t verdict = tt_coll_follow(coll, run);
    if (verdict.status >= 0) {
        verdict = look_for_starvation(coll, run);
    }
    if (verdict.status < 0) {
        return verdict;
    }
    if (run->op.waited_since_ns == 0) {
        run->op.waited_since_ns = now;
    }
    report_hang(coll, run, now - run->op.waited_since_ns);
    if (now < tt_deadline_after(run->op.waited_since_ns, coll->options.timeout_ms)) {
        return ALL_WELL;
    }
    char how[64];
    snprintf(how, sizeof how, "gave up after %lld ms", (long long)coll->options.timeout_ms);
    return judge_late(coll, run, how, -1);
}

/* ---- while no call waits ------------------------------------------------------------------- */

/* What a rank has said about the group, as far as it has been heard. */
static uint64_t last_word(const tt_coll_t *coll, int rank)
{
    if (tt_coll_is_node_peer(coll, rank)) {
        const tt_flag_block_t *block = coll->blocks[rank];
        return block != NULL ? atomic_load_explicit(&block->failure, memory_order_acquire) : 0;
    }
    const uint64_t reason = tt_wire_peer_reason(&coll->links.all[rank].endpoint.wire);
    return reason == 0 && coll->p2p != NULL ? tt_p2p_peer_reason(coll->p2p, rank) : reason;
}

/* What a rank sent to calls that have been given up is in the way of its end. */
static void discard(const tt_wire_t *wire)
{
    enum { BYTES = 4096, READS_MAX = 64 };
    char bytes[BYTES];
    size_t done = 1;
    for (int i = 0; i < READS_MAX && done > 0; i++) {
        if (wire->ops->recv(wire->state, bytes, sizeof bytes, &done) < 0) {
            return;
        }
    }
}

bool tt_coll_is_gone(tt_coll_t *coll, int rank)
{
    if (rank == coll->rank) {
        return false;
    }
    if (tt_coll_is_node_peer(coll, rank)) {
        tt_node_peers_check(coll->node_peers);
        return tt_node_peers_state(coll->node_peers, coll->node_peer_ranks[rank]) !=
                   TT_NODE_PEER_HERE ||
               has_left(last_word(coll, rank));
    }
    if (tt_coll_open_link(coll, rank) < 0) {
        return false;
    }
    const tt_wire_t *wire = &coll->links.all[rank].endpoint.wire;
    if (coll->status < 0) {
        discard(wire);
    }
    return has_left(last_word(coll, rank)) || wire->ops->probe(wire->state) < 0;
}

/* "group dp: rank 2 gave it up (…" */
static tutti_status_t describe_end(const tt_coll_t *coll, int rank, uint64_t failure)
{
    const tutti_status_t status = tt_failure_status(failure);
    const int blamed = tt_failure_rank(failure);
    if (status == TUTTI_ERR_PEER && blamed >= 0 && blamed < coll->size) {
        return TT_FAIL(status, "group %s: rank %d gave it up (%s: rank %d)", coll->options.name,
                       rank, tutti_status_text(status), blamed);
    }
    const int first = tt_failure_first(rank, failure);
    return TT_FAIL(status, "group %s: rank %d gave it up%s", coll->options.name, first,
                   tt_coll_why(coll, first, status).text);
}

tt_verdict_t tt_coll_listen_to(tt_coll_t *coll)
{
    for (int rank = 0; rank < coll->size; rank++) {
        const uint64_t failure = rank != coll->rank ? last_word(coll, rank) : 0;
        if (failure != 0 && !has_left(failure)) {
            const tutti_status_t status = describe_end(coll, rank, failure);
            return (tt_verdict_t){status, tt_failure_blames(rank, failure), false};
        }
    }
    return ALL_WELL;
}

/* ---- what no connection says ----------------------------------------------------------------- */

/* Half as long as the wait has been, within limits. */
static bool is_time_to_ask(const tt_coll_t *coll, const tt_op_t *op, int64_t now)
{
    enum { FIRST_MS = 500, LAST_MS = 5000 };
    const int64_t waited_ns = now - op->waited_since_ns;
    const int64_t least_ns = FIRST_MS * TT_NS_PER_MS, most_ns = LAST_MS * TT_NS_PER_MS;
    const int64_t half_ns = tt_max(least_ns, waited_ns / 2);
    return waited_ns >= least_ns && now - coll->waiting.asked_end_ns >= tt_min(half_ns, most_ns);
}

tt_verdict_t tt_coll_ask_end(tt_coll_t *coll, int64_t now)
{
    const tt_op_t *op = coll->waiting.op;
    int rank = -1;
    if (coll->host_count == 1 || op == NULL || op->waited_since_ns == 0 ||
        !is_time_to_ask(coll, op, now)) {
        return ALL_WELL;
    }
    coll->waiting.asked_end_ns = now;
    const uint64_t failure = tt_coll_find_end(coll, &rank);
    if (failure == 0 || tt_coll_is_node_peer(coll, rank)) {
        return ALL_WELL;
    }
    return coll->queue.head != NULL ? judge_like(coll, coll->queue.head, rank, failure)
                                    : (tt_verdict_t){describe_end(coll, rank, failure),
                                                     tt_failure_blames(rank, failure), false};
}
