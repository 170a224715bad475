/* Waiting for operations of a group. A wait spins for a few polls, then looks at the clock, at the
 * health of the others, and sleeps a little (tt_peers_idle). */
#include "comm/coll/coll.h"
#include "comm/coll/coll_fail.h"
#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p.h"

static tutti_status_t outcome(const tt_coll_t *coll, const tt_op_t *op)
{
    return op->status < 0 ? tt_fail_again(op->status, coll->error) : op->status;
}

tutti_status_t tt_coll_test(tt_coll_t *coll, tt_op_t *op)
{
    if (op->status == TUTTI_PENDING) {
        tt_coll_progress(coll);
    }
    if (op->status == TUTTI_PENDING) {
        const int64_t now = tt_clock_ns();
        tt_op_await(op, now);
        (void)tt_coll_check_health(coll, now);
    }
    return outcome(coll, op);
}

/* The time of the operation's own end, so that no sleep passes it. */
static tt_deadline_t end_of(const tt_coll_t *coll, const tt_op_t *op, int64_t now)
{
    const tt_op_t *first =
        op->kind == TT_OP_CALL && coll->queue.head != NULL ? &coll->queue.head->op : op;
    const int64_t started = first->waited_since_ns > 0 ? first->waited_since_ns : now;
    return tt_deadline_after(started, coll->options.timeout_ms);
}

static void expect_arrivals(tt_coll_t *coll)
{
    const tt_run_t *run = coll->queue.head;
    if (run != NULL && run->state == TT_RUN_POSTED &&
        !tt_node_peers_is_oversubscribed(coll->node_peers)) {
        (void)tt_coll_expect(coll, run->sequence, run->fingerprint, TT_EXPECT_POLLS);
    }
}

/* Longer than a few polls. */
static void wait_long(tt_coll_t *coll, const tt_until_t *until, tt_deadline_t deadline)
{
    tt_idle_t idle = {0};
    bool is_over = until->is_over(until->user);
    while (!is_over) {
        tt_deadline_t wake = deadline;
        if (idle.start_ns != 0) { /* it takes longer than a few more */
            const int64_t now = tt_clock_ns();
            if (now >= deadline) {
                break;
            }
            tt_op_await(until->op, now);
            (void)tt_coll_check_health(coll, now);
            const tt_deadline_t end = end_of(coll, until->op, now);
            wake = end < deadline ? end : deadline;
            is_over = until->is_over(until->user);
        }
        if (!is_over) {
            tt_peers_idle(coll->peers, &idle, wake);
            tt_coll_progress(coll);
            is_over = until->is_over(until->user);
        }
    }
    tt_peers_idle_end(coll->peers, &idle);
    if (is_over && (coll->waiting.posted_record | coll->waiting.put_record) != 0) {
        tt_coll_end_wait(coll);
    }
}

static bool is_op_done(void *user)
{
    const tt_op_t *op = user;
    return op->status != TUTTI_PENDING;
}

void tt_coll_wait_until(tt_coll_t *coll, const tt_until_t *until, tt_deadline_t deadline)
{
    coll->waiting.op = until->op;
    tt_coll_progress(coll);
    wait_long(coll, until, deadline);
    coll->waiting.op = NULL;
}

tutti_status_t tt_coll_wait(tt_coll_t *coll, tt_op_t *op, tt_deadline_t deadline)
{
    if (op->status == TUTTI_PENDING) {
        coll->waiting.op = op;
        expect_arrivals(coll);
        tt_coll_progress(coll);
        if (op->status == TUTTI_PENDING ||
            (coll->waiting.posted_record | coll->waiting.put_record) != 0) {
            wait_long(coll, &(tt_until_t){op, is_op_done, op}, deadline);
        }
        coll->waiting.op = NULL;
    }
    return outcome(coll, op);
}
