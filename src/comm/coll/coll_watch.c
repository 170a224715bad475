/* What can go wrong while a group waits: ranks in another call, dead, gone or late. Each is an
 * error of its own that names rank and call; the group keeps the first one and tells the others
 * through its failure word, so that all blame the same rank. */
#include <stdio.h>
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/log.h"

enum { REPORT_MS_DEFAULT = 30000, VALUES_BYTES = 160, TEXT_BYTES = 256 };

typedef struct {
    char text[TEXT_BYTES];
} text_t;

typedef struct {
    char text[VALUES_BYTES];
} values_t;

/* "f32[1024]", and the first other thing in which the two calls differ. */
static values_t describe_values(const tt_sign_t *sign, const tt_sign_t *other)
{
    values_t out;
    char extra[80] = "";
    if (sign->reduction != other->reduction) {
        snprintf(extra, sizeof extra, " %s",
                 tutti_reduction_name((tutti_reduction_t)sign->reduction));
    } else if (sign->root != other->root) {
        snprintf(extra, sizeof extra, " with root %d", sign->root);
    } else if (sign->tag != other->tag) {
        snprintf(extra, sizeof extra, " with tag %llu", (unsigned long long)sign->tag);
    } else if (sign->leaves != other->leaves || sign->layout != other->layout) {
        snprintf(extra, sizeof extra, " of %u leaves (layout %08x)", sign->leaves,
                 (unsigned)sign->layout);
    } else if (sign->out_dtype != other->out_dtype) {
        snprintf(extra, sizeof extra, " into %s", tutti_dtype_name((tutti_dtype_t)sign->out_dtype));
    } else if (sign->epoch != other->epoch || sign->group != other->group) {
        snprintf(extra, sizeof extra, " in epoch %u of group %08x", sign->epoch,
                 (unsigned)sign->group);
    }
    snprintf(out.text, sizeof out.text, "%s[%llu]%s", tutti_dtype_name((tutti_dtype_t)sign->dtype),
             (unsigned long long)sign->count, extra);
    return out;
}

tutti_status_t tt_sign_mismatch(const tt_coll_t *coll, uint64_t sequence, int rank,
                                const tt_sign_t *sign, int other_rank, const tt_sign_t *other)
{
    const char *name = tt_collective_name((tt_collective_t)sign->collective);
    const char *other_name = tt_collective_name((tt_collective_t)other->collective);
    if (sign->collective != other->collective) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "call #%llu of group %s: rank %d called %s %s, rank %d called %s %s",
                       (unsigned long long)sequence, coll->options.name, rank, name,
                       describe_values(sign, sign).text, other_rank, other_name,
                       describe_values(other, other).text);
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "%s #%llu: rank %d passed %s, rank %d passed %s", name,
                   (unsigned long long)sequence, rank, describe_values(sign, other).text,
                   other_rank, describe_values(other, sign).text);
}

/* All mates have come. The lowest that differs from the first is named, so that all say the same.
 */
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run)
{
    const int first = coll->locals[0];
    const tt_flag_slot_t *one = tt_coll_slot(coll, first, run->sequence);
    for (int i = 1; i < coll->local_count; i++) {
        const int rank = coll->locals[i];
        const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
        if (slot->fingerprint != one->fingerprint) {
            return tt_sign_mismatch(coll, run->sequence, rank, &slot->sign, first, &one->sign);
        }
    }
    return TUTTI_OK;
}

void tt_coll_fail(tt_coll_t *coll, tutti_status_t status, int blamed_rank)
{
    if (coll->status < 0) {
        return;
    }
    coll->status = status;
    snprintf(coll->error, sizeof coll->error, "%s", tutti_last_error());
    const uint64_t failure =
        tt_failure_pack(status, blamed_rank) | (coll->has_blamed_left ? TT_FAILURE_LEFT : 0);
    atomic_store_explicit(&coll->block->failure, failure, memory_order_release);
    tt_coll_wake_mates(coll);
    if (coll->host_count > 1) {
        tt_coll_say_farewell(coll, failure);
    }
}

/* "all_reduce #5 f32[1024]" */
static text_t describe_run(const tt_run_t *run)
{
    text_t out;
    snprintf(out.text, sizeof out.text, "%s #%llu %s", tt_collective_name(run->call.collective),
             (unsigned long long)run->sequence, describe_values(&run->sign, &run->sign).text);
    return out;
}

static bool is_mate(const tt_coll_t *coll, int rank)
{
    return coll->mate_ranks[rank] >= 0;
}

static bool has_come(const tt_coll_t *coll, const tt_run_t *run, int mate)
{
    const tt_flag_slot_t *slot = tt_coll_slot(coll, mate, run->sequence);
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == run->sequence;
}

static bool has_finished(const tt_coll_t *coll, const tt_run_t *run, int mate)
{
    return atomic_load_explicit(&coll->blocks[mate]->done, memory_order_acquire) >= run->sequence;
}

/* Whether a step of the round under way waits for a rank of another host. */
static bool is_awaited(const tt_coll_t *coll, const tt_run_t *run, int rank)
{
    const tt_plan_t *plan = run->plan->plan;
    if (run->state != TT_RUN_RUNNING || run->round < 0 || run->round >= plan->rounds) {
        return false;
    }
    for (int i = plan->round_starts[run->round]; i < plan->round_starts[run->round + 1]; i++) {
        const tt_step_t *step = &plan->steps[i];
        if ((step->kind == TT_STEP_RECV || step->kind == TT_STEP_SEND) && step->peer == rank &&
            !tt_coll_is_step_done(coll, i)) {
            return true;
        }
    }
    return false;
}

/* The last call that a mate has shown. */
static text_t describe_last_call(const tt_coll_t *coll, int mate)
{
    text_t out = {"has made no call yet"};
    uint64_t newest = 0;
    for (int i = 0; i < TT_FLAG_SLOTS; i++) {
        const tt_flag_slot_t *slot = &coll->blocks[mate]->slots[i];
        const uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        if (sequence > newest) {
            newest = sequence;
            snprintf(out.text, sizeof out.text, "its last call is %s #%llu",
                     tt_collective_name((tt_collective_t)slot->sign.collective),
                     (unsigned long long)sequence);
        }
    }
    return out;
}

/* What a rank is late with; "" if it is not. `all_came` speaks of the mates. */
static text_t describe_lateness(const tt_coll_t *coll, const tt_run_t *run, int rank, bool all_came)
{
    text_t out = {""};
    if (rank == coll->rank) {
        return out;
    }
    if (!is_mate(coll, rank)) {
        if (is_awaited(coll, run, rank)) {
            snprintf(out.text, sizeof out.text, "rank %d is awaited in round %d", rank, run->round);
        }
    } else if (!all_came && !has_come(coll, run, rank)) {
        snprintf(out.text, sizeof out.text, "rank %d has not come (%.100s)", rank,
                 describe_last_call(coll, rank).text);
    } else if (all_came && !has_finished(coll, run, rank)) {
        snprintf(out.text, sizeof out.text, "rank %d has not finished", rank);
    }
    return out;
}

static bool have_mates_come(const tt_coll_t *coll, const tt_run_t *run)
{
    for (int i = 0; i < coll->local_count; i++) {
        if (!has_come(coll, run, coll->locals[i])) {
            return false;
        }
    }
    return true;
}

static bool awaits_other_hosts(const tt_coll_t *coll, const tt_run_t *run)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (!is_mate(coll, rank) && is_awaited(coll, run, rank)) {
            return true;
        }
    }
    return false;
}

/* "rank 1 has not come (its last call is barrier #4), rank 3 has not come (…)"; when all mates have
 * come, those that have not finished, unless ranks of other hosts are awaited. Returns the first.
 */
static int describe_late(const tt_coll_t *coll, const tt_run_t *run, char *text, size_t bytes)
{
    const bool all_came = have_mates_come(coll, run), is_remote = awaits_other_hosts(coll, run);
    int first = -1;
    size_t length = 0;
    text[0] = 0;
    for (int rank = 0; rank < coll->size && length + 1 < bytes; rank++) {
        if (is_remote && is_mate(coll, rank)) {
            continue;
        }
        const text_t late = describe_lateness(coll, run, rank, all_came);
        if (late.text[0] == 0) {
            continue;
        }
        first = first < 0 ? rank : first;
        const int n =
            snprintf(text + length, bytes - length, "%s%s", length > 0 ? ", " : "", late.text);
        length += n > 0 ? (size_t)n : 0;
    }
    return first;
}

/* Of a rank elsewhere nobody can tell whether it died or went without a word. */
static void fail_gone(tt_coll_t *coll, const tt_run_t *run, int rank, bool has_left)
{
    char how[60] = "is gone: its connections are closed";
    if (has_left) {
        snprintf(how, sizeof how, "has left the group");
    } else if (is_mate(coll, rank)) {
        snprintf(how, sizeof how, "(process %lld) died",
                 (long long)tt_mates_pid(coll->mates, coll->mate_ranks[rank]));
    }
    (void)TT_FAIL(TUTTI_ERR_PEER, "%s of group %s: rank %d %s", describe_run(run).text,
                  coll->options.name, rank, how);
    coll->has_blamed_left = has_left;
    tt_coll_fail(coll, TUTTI_ERR_PEER, rank);
}

/* Another rank's deadline has passed. If it waited for this one, which itself waits for others,
 * those are late. */
static void fail_late(tt_coll_t *coll, const tt_run_t *run, int rank, int blamed)
{
    char late[400] = "";
    const int first = blamed == coll->rank ? describe_late(coll, run, late, sizeof late) : -1;
    (void)TT_FAIL(TUTTI_ERR_TIMEOUT, "%s of group %s: %s%srank %d gave up waiting for rank %d",
                  describe_run(run).text, coll->options.name, late, first >= 0 ? "; " : "", rank,
                  blamed);
    tt_coll_fail(coll, TUTTI_ERR_TIMEOUT, first >= 0 ? first : blamed);
}

/* Another rank has given up, and says why. */
static void fail_like(tt_coll_t *coll, const tt_run_t *run, int rank, uint64_t failure)
{
    const tutti_status_t status = tt_failure_status(failure);
    const int blamed = tt_failure_rank(failure);
    const text_t call = describe_run(run);
    switch (status) {
    case TUTTI_ERR_PEER:
        if (blamed >= 0 && blamed < coll->size && blamed != coll->rank) {
            fail_gone(coll, run, blamed, tt_failure_has_left(failure));
            return;
        }
        (void)TT_FAIL(status, "%s of group %s: rank %d lost a peer", call.text, coll->options.name,
                      rank);
        break;
    case TUTTI_ERR_TIMEOUT:
        fail_late(coll, run, rank, blamed);
        return;
    default: /* the one that began, not the one that followed */
        (void)TT_FAIL(status, "%s of group %s: rank %d gave the group up (%s)", call.text,
                      coll->options.name, blamed >= 0 ? blamed : rank, tutti_status_text(status));
    }
    tt_coll_fail(coll, status, blamed);
}

static bool has_left(uint64_t failure)
{
    return failure != 0 && tt_failure_status(failure) == TUTTI_END;
}

/* Why a rank has left the group, 0 while it has not; `is_dead`: it went without a word. */
static uint64_t ask_rank(tt_coll_t *coll, const tt_run_t *run, int rank, bool *is_dead)
{
    *is_dead = false;
    if (is_mate(coll, rank)) {
        const tt_mate_state_t state = tt_mates_state(coll->mates, coll->mate_ranks[rank]);
        *is_dead = state == TT_MATE_DEAD;
        const uint64_t failure =
            atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
        return failure == 0 && state == TT_MATE_LEFT ? tt_failure_pack(TUTTI_END, rank) : failure;
    }
    const tt_wire_t *wire = &coll->links[rank].wire;
    if (wire->ops == NULL) {
        return 0;
    }
    const uint64_t heard = wire->ops->heard(wire->state);
    if (has_left(heard) && !wire->ops->has_ended(wire->state)) {
        return 0; /* what it sent before is taken first */
    }
    if (heard == 0 && is_awaited(coll, run, rank)) {
        *is_dead = wire->ops->probe(wire->state) < 0;
    }
    return heard;
}

/* A rank that is gone is to blame only for what it has not finished. First look for one that died
 * by itself, then for one that followed another. */
static bool look_for_the_gone(tt_coll_t *coll, const tt_run_t *run)
{
    int follower = -1;
    uint64_t cause = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        if (rank == coll->rank) {
            continue;
        }
        bool is_dead;
        const uint64_t failure = ask_rank(coll, run, rank, &is_dead);
        const bool is_needed =
            is_mate(coll, rank) ? !has_finished(coll, run, rank) : is_awaited(coll, run, rank);
        if (failure != 0 && !has_left(failure)) {
            follower = rank;
            cause = failure;
        } else if ((is_dead || has_left(failure)) && is_needed) {
            fail_gone(coll, run, rank, has_left(failure));
            return true;
        }
    }
    if (follower >= 0) {
        fail_like(coll, run, follower, cause);
    }
    return follower >= 0;
}

static void report_hang(const tt_coll_t *coll, tt_run_t *run, int64_t waited_ns)
{
    const int64_t report_ms =
        coll->options.report_ms > 0 ? coll->options.report_ms : REPORT_MS_DEFAULT;
    if (run->is_reported || waited_ns < report_ms * TT_NS_PER_MS) {
        return;
    }
    char late[400];
    run->is_reported = true;
    (void)describe_late(coll, run, late, sizeof late);
    tt_log(TT_LOG_WARN, "rank %d of group %s has been waiting in %s for %lld s: %s", coll->rank,
           coll->options.name, describe_run(run).text, (long long)(waited_ns / TT_NS_PER_S), late);
}

static void watch_mail(tt_coll_t *coll, int64_t now)
{
    int blamed = -1;
    const tutti_status_t status = tt_mail_watch(coll->mail, now, &blamed);
    if (status < 0) {
        tt_coll_fail(coll, status, blamed);
    }
}

static void watch_calls(tt_coll_t *coll, int64_t now)
{
    tt_run_t *run = coll->head;
    if (look_for_the_gone(coll, run)) {
        return;
    }
    if (run->started_ns == 0) {
        run->started_ns = now;
    }
    const int64_t waited_ns = now - run->started_ns;
    report_hang(coll, run, waited_ns);
    if (waited_ns >= coll->options.timeout_ms * TT_NS_PER_MS) {
        char late[400];
        const int first = describe_late(coll, run, late, sizeof late);
        (void)TT_FAIL(TUTTI_ERR_TIMEOUT, "%s of group %s: %s within %lld ms",
                      describe_run(run).text, coll->options.name, late,
                      (long long)coll->options.timeout_ms);
        tt_coll_fail(coll, TUTTI_ERR_TIMEOUT, first);
    }
}

void tt_coll_watch(tt_coll_t *coll, int64_t now)
{
    if (coll->head != NULL && coll->status >= 0) {
        watch_calls(coll, now);
    }
    if (coll->mail != NULL && coll->status >= 0) {
        watch_mail(coll, now);
    }
}
