/* Waiting for the flags of host blocks. A wait looks at the flags for a few polls, then at the
 * health of the others too, and sleeps as calls do: ranks that post something ring.
 *
 * Cost: posting is a store, and a look at each local rank's doorbell; a wait for what is there
 * loads a line of each rank.
 */
#include "comm/coll/coll_block.h"

#include <stdio.h>

#include "comm/coll/coll_fail.h"
#include "comm/diagnose/stragglers.h"
#include "comm/exec/coll_flags.h"
#include "core/base/log.h"

static _Atomic uint64_t *word_of(tt_block_flags_t *flags, tt_block_word_t word)
{
    return word == TT_BLOCK_POSTED ? &flags->posted : &flags->finished;
}

static bool is_behind(const tt_block_wait_t *wait, int rank)
{
    return atomic_load_explicit(word_of(&wait->flags[rank], wait->word), memory_order_acquire) <
           wait->version;
}

int tt_coll_block_behind(const tt_coll_t *coll, const tt_block_wait_t *wait)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (is_behind(wait, rank)) {
            return rank;
        }
    }
    return -1;
}

void tt_coll_block_set(tt_coll_t *coll, tt_block_flags_t *flags, tt_block_word_t word,
                       uint64_t version)
{
    atomic_store_explicit(word_of(&flags[coll->rank], word), version, memory_order_release);
    tt_coll_wake_node_peers(coll);
}

bool tt_coll_is_on_one_host(const tt_coll_t *coll)
{
    return coll->local_count == coll->size;
}

/* ---- what can go wrong ---------------------------------------------------------------------- */

static const tt_verdict_t ALL_WELL = {TUTTI_OK, -1, false};

typedef struct {
    char text[96];
} how_t;

/* "(process 123) died", "has left the group"; "": it is there. */
static how_t how_gone(const tt_coll_t *coll, int rank)
{
    how_t how = {""};
    const int local = coll->node_peer_ranks[rank];
    const tt_node_peer_state_t state =
        rank == coll->rank ? TT_NODE_PEER_HERE : tt_node_peers_state(coll->node_peers, local);
    const uint64_t failure =
        atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
    if (state == TT_NODE_PEER_DEAD) {
        snprintf(how.text, sizeof how.text, "(process %lld) %.60s",
                 (long long)tt_node_peers_pid(coll->node_peers, local),
                 tt_node_peers_how(coll->node_peers, local));
    } else if (state == TT_NODE_PEER_LEFT || tt_failure_status(failure) == TUTTI_END) {
        snprintf(how.text, sizeof how.text, "has left the group");
    }
    return how;
}

static tt_verdict_t blame_gone(const char *what, int rank, const how_t *how)
{
    return (tt_verdict_t){TT_FAIL(TUTTI_ERR_PEER, "%s: rank %d %s", what, rank, how->text), rank,
                          how->text[0] == 'h'};
}

static uint64_t failure_of(const tt_coll_t *coll, int rank)
{
    const uint64_t failure =
        atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
    return tt_failure_status(failure) != TUTTI_END ? failure : 0;
}

/* What another rank gave up for is seen here soon, if it is a death, and is the better explanation:
 * it may have seen it in another group, and aborted this one. */
static bool may_be_seen_soon(tt_block_wait_t *wait, tutti_status_t status, int64_t now)
{
    enum { PEER_MS = 1000, ABORTED_MS = 50 };
    const int64_t patience_ms = status == TUTTI_ERR_PEER      ? PEER_MS
                                : status == TUTTI_ERR_ABORTED ? ABORTED_MS
                                                              : 0;
    wait->heard_ns = wait->heard_ns == 0 ? now : wait->heard_ns;
    return now < tt_deadline_after(wait->heard_ns, patience_ms);
}

/* The first rank that went without a word, or -1. */
static int find_dead(const tt_coll_t *coll)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (rank != coll->rank && failure_of(coll, rank) == 0 &&
            tt_node_peers_state(coll->node_peers, coll->node_peer_ranks[rank]) ==
                TT_NODE_PEER_DEAD) {
            return rank;
        }
    }
    return -1;
}

/* A rank has given the group up: the one that began is blamed, not the one that followed. */
static tt_verdict_t follow(const tt_coll_t *coll, tt_block_wait_t *wait, int rank, int64_t now)
{
    const uint64_t failure = failure_of(coll, rank);
    tutti_status_t status = tt_failure_status(failure);
    const int blamed = tt_failure_rank(failure);
    const bool is_known = blamed >= 0 && blamed < coll->size && blamed != rank;
    const bool is_peer = status == TUTTI_ERR_PEER && is_known;
    tt_node_peers_check(coll->node_peers);
    const int dead = find_dead(coll), gone = dead < 0 && is_peer ? blamed : dead;
    const how_t how = gone >= 0 ? how_gone(coll, gone) : (how_t){""};
    if (how.text[0] != 0) {
        return blame_gone(wait->what, gone, &how);
    }
    if ((is_peer || status == TUTTI_ERR_ABORTED) && may_be_seen_soon(wait, status, now)) {
        return ALL_WELL;
    }
    if (status == TUTTI_ERR_TIMEOUT && is_known) {
        status =
            TT_FAIL(status, "%s: rank %d gave up waiting for rank %d", wait->what, rank, blamed);
    } else {
        const int first = tt_failure_first(rank, failure);
        status = TT_FAIL(status, "%s: rank %d gave the group up%s", wait->what, first,
                         tt_coll_why(coll, first, status).text);
    }
    return (tt_verdict_t){status, tt_failure_blames(rank, failure), false};
}

/* "rank 2", "rank 2 and 3 more" */
static how_t list_behind(const tt_coll_t *coll, const tt_block_wait_t *wait, int first)
{
    how_t how;
    int more = 0;
    for (int rank = first + 1; rank < coll->size; rank++) {
        more += is_behind(wait, rank);
    }
    const int used = snprintf(how.text, sizeof how.text, "rank %d", first);
    if (more > 0) {
        snprintf(how.text + used, sizeof how.text - (size_t)used, " and %d more", more);
    }
    return how;
}

typedef struct {
    char text[384];
} line_t;

/* What it waits for, with where the first late rank waits in turn if that is known. */
static line_t describe_wait(tt_coll_t *coll, const tt_block_wait_t *wait, int first)
{
    line_t out;
    const tt_call_text_t where = tt_coll_wait_state(coll, first);
    snprintf(out.text, sizeof out.text, "%.80s: %s %s version %llu%s%.*s", wait->what,
             list_behind(coll, wait, first).text,
             wait->word == TT_BLOCK_POSTED ? "has not written its slice of"
                                           : "has not finished reading",
             (unsigned long long)wait->version, where.text[0] != 0 ? "; " : "", 100, where.text);
    return out;
}

static void report_hang(tt_coll_t *coll, tt_block_wait_t *wait, int first, int64_t now)
{
    if (!wait->is_reported && now >= tt_deadline_after(wait->since_ns, tt_coll_report_ms(coll))) {
        wait->is_reported = true;
        tt_log(TT_LOG_WARN, "rank %d of group %s has been waiting for %.1f s: %s", coll->rank,
               coll->options.name, (double)(now - wait->since_ns) / (double)TT_NS_PER_S,
               describe_wait(coll, wait, first).text);
    }
}

/* First a rank that is gone by itself, then one that has given up. */
static tt_verdict_t look_for_failures(const tt_coll_t *coll, tt_block_wait_t *wait, int64_t now)
{
    int given_up = -1;
    for (int rank = 0; rank < coll->size; rank++) {
        if (failure_of(coll, rank) != 0) {
            given_up = rank;
            continue;
        }
        const how_t how = is_behind(wait, rank) ? how_gone(coll, rank) : (how_t){""};
        if (how.text[0] != 0 && is_behind(wait, rank)) { /* what it wrote before it went counts */
            return blame_gone(wait->what, rank, &how);
        }
    }
    return given_up >= 0 ? follow(coll, wait, given_up, now) : ALL_WELL;
}

static tt_verdict_t judge(tt_coll_t *coll, tt_block_wait_t *wait, int64_t now)
{
    const tt_verdict_t failure = look_for_failures(coll, wait, now);
    const int first = tt_coll_block_behind(coll, wait);
    if (failure.status < 0 || first < 0) {
        return failure;
    }
    if (now >= tt_deadline_after(wait->since_ns, coll->options.timeout_ms)) {
        return (tt_verdict_t){TT_FAIL(TUTTI_ERR_TIMEOUT, "%s; gave up after %lld ms",
                                      describe_wait(coll, wait, first).text,
                                      (long long)coll->options.timeout_ms),
                              first, false};
    }
    report_hang(coll, wait, first, now);
    return ALL_WELL;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Calls under way go on meanwhile: the rank that is behind may wait for them. */
static tutti_status_t look(tt_coll_t *coll, tt_block_wait_t *wait, int64_t now)
{
    (void)tt_coll_check_health(coll, now);
    if (coll->status >= 0) {
        tt_coll_fail(coll, judge(coll, wait, now));
    }
    return coll->status < 0 ? tt_fail_again(coll->status, coll->error) : TUTTI_OK;
}

/* No sleep passes the end. */
static tt_deadline_t end_of(const tt_coll_t *coll, const tt_block_wait_t *wait,
                            tt_deadline_t deadline)
{
    const tt_deadline_t end = tt_deadline_after(wait->since_ns, coll->options.timeout_ms);
    return end < deadline ? end : deadline;
}

tutti_status_t tt_coll_block_await(tt_coll_t *coll, tt_block_wait_t *wait, tt_deadline_t deadline)
{
    tt_idle_t idle = {0};
    tutti_status_t status = coll->status < 0 ? tt_fail_again(coll->status, coll->error) : TUTTI_OK;
    wait->since_ns = wait->since_ns == 0 ? tt_clock_ns() : wait->since_ns;
    while (status == TUTTI_OK && tt_coll_block_behind(coll, wait) >= 0) {
        tt_peers_idle(coll->peers, &idle, end_of(coll, wait, deadline));
        tt_coll_progress(coll);
        if (idle.start_ns == 0) { /* the first few polls */
            continue;
        }
        const int64_t now = tt_clock_ns();
        status = look(coll, wait, now);
        if (status == TUTTI_OK && now >= deadline && tt_coll_block_behind(coll, wait) >= 0) {
            status = TUTTI_PENDING;
        }
    }
    tt_peers_idle_end(coll->peers, &idle);
    return status;
}

tutti_status_t tt_coll_find_block(tt_coll_t *coll, int rank, tt_heap_span_t span, void **out)
{
    const int local = coll->node_peer_ranks[rank];
    const tt_deadline_t deadline = tt_deadline_in_ms(coll->options.timeout_ms);
    tt_idle_t idle = {0};
    tutti_status_t status = tt_node_peers_find(coll->node_peers, local, span, out);
    while (status == TUTTI_PENDING) {
        const how_t how = how_gone(coll, rank);
        if (how.text[0] != 0) {
            status = blame_gone("shared memory", rank, &how).status;
        } else if (tt_deadline_is_past(deadline)) {
            status = TT_FAIL(
                TUTTI_ERR_TIMEOUT,
                "shared memory: rank %d has not sent segment %d of its heap in %lld ms", rank,
                tt_heap_address_segment(span.place), (long long)coll->options.timeout_ms);
        } else {
            tt_peers_idle(coll->peers, &idle, deadline);
            status = tt_node_peers_find(coll->node_peers, local, span, out);
        }
    }
    tt_peers_idle_end(coll->peers, &idle);
    return status;
}
