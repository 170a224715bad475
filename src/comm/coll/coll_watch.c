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
    } else if (sign->leaves != other->leaves || sign->leaf_map != other->leaf_map) {
        snprintf(extra, sizeof extra, " of %u leaves (map %08x)", sign->leaves,
                 (unsigned)sign->leaf_map);
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

/* All have come. The lowest rank that differs from rank 0 is named, so that all say the same. */
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run)
{
    const tt_flag_slot_t *zero = tt_coll_slot(coll, 0, run->sequence);
    for (int rank = 1; rank < coll->size; rank++) {
        const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
        if (slot->fingerprint != zero->fingerprint) {
            return tt_sign_mismatch(coll, run->sequence, rank, &slot->sign, 0, &zero->sign);
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
    atomic_store_explicit(&coll->block->failure, tt_failure_pack(status, blamed_rank),
                          memory_order_release);
    tt_coll_wake_all(coll);
}

/* "all_reduce #5 f32[1024]" */
static text_t describe_run(const tt_run_t *run)
{
    text_t out;
    snprintf(out.text, sizeof out.text, "%s #%llu %s", tt_collective_name(run->call.collective),
             (unsigned long long)run->sequence, describe_values(&run->sign, &run->sign).text);
    return out;
}

static bool has_come(const tt_coll_t *coll, const tt_run_t *run, int rank)
{
    const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == run->sequence;
}

static bool has_finished(const tt_coll_t *coll, const tt_run_t *run, int rank)
{
    return atomic_load_explicit(&coll->blocks[rank]->done, memory_order_acquire) >= run->sequence;
}

/* The last call that a rank has shown. */
static text_t describe_last_call(const tt_coll_t *coll, int rank)
{
    text_t out = {"has made no call yet"};
    uint64_t newest = 0;
    for (int i = 0; i < TT_FLAG_SLOTS; i++) {
        const tt_flag_slot_t *slot = &coll->blocks[rank]->slots[i];
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

static bool have_all_come(const tt_coll_t *coll, const tt_run_t *run)
{
    for (int rank = 0; rank < coll->size; rank++) {
        if (!has_come(coll, run, rank)) {
            return false;
        }
    }
    return true;
}

/* "rank 1 has not come (its last call is barrier #4), rank 3 has not come (…)"; when all have come,
 * those that have not finished. Returns the first. */
static int describe_late(const tt_coll_t *coll, const tt_run_t *run, char *text, size_t bytes)
{
    const bool all_came = have_all_come(coll, run);
    int first = -1;
    size_t length = 0;
    text[0] = 0;
    for (int rank = 0; rank < coll->size && length + 1 < bytes; rank++) {
        if (rank == coll->rank ||
            (all_came ? has_finished(coll, run, rank) : has_come(coll, run, rank))) {
            continue;
        }
        first = first < 0 ? rank : first;
        const char *comma = length > 0 ? ", " : "";
        const int n =
            all_came
                ? snprintf(text + length, bytes - length, "%srank %d has not finished", comma, rank)
                : snprintf(text + length, bytes - length, "%srank %d has not come (%s)", comma,
                           rank, describe_last_call(coll, rank).text);
        length += n > 0 ? (size_t)n : 0;
    }
    return first;
}

static void fail_dead(tt_coll_t *coll, const tt_run_t *run, int rank, bool has_left)
{
    if (has_left) {
        (void)TT_FAIL(TUTTI_ERR_PEER, "%s of group %s: rank %d has left the group",
                      describe_run(run).text, coll->options.name, rank);
    } else {
        (void)TT_FAIL(TUTTI_ERR_PEER, "%s of group %s: rank %d (process %lld) died",
                      describe_run(run).text, coll->options.name, rank,
                      (long long)tt_mates_pid(coll->mates, coll->mate_ranks[rank]));
    }
    tt_coll_fail(coll, TUTTI_ERR_PEER, rank);
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
            fail_dead(coll, run, blamed, false);
            return;
        }
        (void)TT_FAIL(status, "%s of group %s: rank %d lost a peer", call.text, coll->options.name,
                      rank);
        break;
    case TUTTI_ERR_TIMEOUT:
        (void)TT_FAIL(status, "%s of group %s: rank %d gave up waiting for rank %d", call.text,
                      coll->options.name, rank, blamed);
        break;
    default: /* the one that began, not the one that followed */
        (void)TT_FAIL(status, "%s of group %s: rank %d gave the group up (%s)", call.text,
                      coll->options.name, blamed >= 0 ? blamed : rank, tutti_status_text(status));
    }
    tt_coll_fail(coll, status, blamed);
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
        const uint64_t failure =
            atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
        const tt_mate_state_t state = tt_mates_state(coll->mates, coll->mate_ranks[rank]);
        const bool has_left = failure != 0 && tt_failure_status(failure) == TUTTI_END;
        if (failure != 0 && !has_left) {
            follower = rank;
            cause = failure;
        } else if ((state != TT_MATE_HERE || has_left) && !has_finished(coll, run, rank)) {
            fail_dead(coll, run, rank, has_left || state == TT_MATE_LEFT);
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

void tt_coll_watch(tt_coll_t *coll, int64_t now)
{
    tt_run_t *run = coll->head;
    if (run == NULL || coll->status < 0 || look_for_the_gone(coll, run)) {
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
