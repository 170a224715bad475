/* What can go wrong while a group waits: ranks in another call, dead, gone or late. Each is an
 * error of its own that names rank and call; the group keeps the first one and tells the others
 * through its failure word, so that all blame the same rank. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/coll/coll_late.h"
#include "core/base/log.h"

enum { VALUES_BYTES = 160, TEXT_BYTES = 320, RECORD_LOOKS = 1000 };

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
                 sign->reduction < TUTTI_REDUCTION_COUNT
                     ? tutti_reduction_name((tutti_reduction_t)sign->reduction)
                     : "?");
    } else if (sign->root != other->root) {
        snprintf(extra, sizeof extra, " with root %d", sign->root);
    } else if (sign->tag != other->tag) {
        snprintf(extra, sizeof extra, " with tag %llu", (unsigned long long)sign->tag);
    } else if (sign->leaves != other->leaves || sign->layout != other->layout) {
        snprintf(extra, sizeof extra, " of %u leaves (layout %08x)", sign->leaves,
                 (unsigned)sign->layout);
    } else if (sign->out_dtype != other->out_dtype) {
        snprintf(extra, sizeof extra, " into %s", tt_dtype_text(sign->out_dtype));
    } else if (sign->epoch != other->epoch || sign->group != other->group) {
        snprintf(extra, sizeof extra, " in epoch %u of group %08x", sign->epoch,
                 (unsigned)sign->group);
    }
    snprintf(out.text, sizeof out.text, "%s[%llu]%s", tt_dtype_text(sign->dtype),
             (unsigned long long)sign->count, extra);
    return out;
}

/* The record of a mate's call. It is shown before it is written down, so it may be on its way. */
static bool find_record(const tt_coll_t *coll, int rank, uint64_t sequence, tt_record_t *record)
{
    for (int i = 0; i < RECORD_LOOKS; i++) {
        if (tt_records_find(&coll->blocks[rank]->records, sequence, record)) {
            return true;
        }
        sched_yield();
    }
    return false;
}

/* Where a rank made a call; "" for what this rank cannot see. */
static tt_call_text_t site_of(const tt_coll_t *coll, const tt_party_t *party, uint64_t sequence)
{
    tt_call_text_t out = {""};
    tt_record_t record;
    if (party->site != NULL) {
        snprintf(out.text, sizeof out.text, "%.*s", TT_SITE_BYTES - 1, party->site);
    } else if (coll->blocks[party->rank] != NULL &&
               find_record(coll, party->rank, sequence, &record)) {
        const int64_t pid = tt_mates_pid(coll->mates, coll->mate_ranks[party->rank]);
        tt_sites_t *sites = tt_sites_open(pid);
        snprintf(out.text, sizeof out.text, "%s", tt_sites_name(sites, record.site).text);
        if (sites != NULL) {
            tt_sites_close(sites);
        }
    }
    return out;
}

/* " (rank 1 at train.c:80, rank 0 at train.c:88)", with those that are known. */
static text_t describe_sites(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                             const tt_party_t *b)
{
    text_t out = {""};
    const tt_party_t *parties[] = {a, b};
    int length = 0;
    for (int i = 0; i < 2; i++) {
        const tt_call_text_t site = site_of(coll, parties[i], sequence);
        if (site.text[0] != 0) {
            length +=
                snprintf(out.text + length, sizeof out.text - (size_t)length, "%srank %d at %.96s",
                         length > 0 ? ", " : " (", parties[i]->rank, site.text);
        }
    }
    if (length > 0) {
        snprintf(out.text + length, sizeof out.text - (size_t)length, ")");
    }
    return out;
}

tutti_status_t tt_sign_mismatch(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                const tt_party_t *b)
{
    const char *name = tt_collective_text(a->sign->collective);
    const text_t sites = describe_sites(coll, sequence, a, b);
    if (a->sign->collective != b->sign->collective) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "call #%llu of group %s: rank %d called %s %s, rank %d called %s %s%s",
                       (unsigned long long)sequence, coll->options.name, a->rank, name,
                       describe_values(a->sign, a->sign).text, b->rank,
                       tt_collective_text(b->sign->collective),
                       describe_values(b->sign, b->sign).text, sites.text);
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "%s #%llu: rank %d passed %s, rank %d passed %s%s", name,
                   (unsigned long long)sequence, a->rank, describe_values(a->sign, b->sign).text,
                   b->rank, describe_values(b->sign, a->sign).text, sites.text);
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
            return tt_sign_mismatch(coll, run->sequence, &(tt_party_t){rank, &slot->sign, NULL},
                                    &(tt_party_t){first, &one->sign, NULL});
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
    atomic_store(&coll->block->failure, failure); /* F1 of flags.h */
    tt_coll_wake_mates(coll);
    if (coll->host_count > 1) {
        tt_coll_say_goaway(coll, failure);
    }
    tt_coll_dump_failure(coll);
}

/* "all_reduce #5 f32[1024] of group dp (train.c:88)" */
static text_t describe_run(const tt_coll_t *coll, const tt_run_t *run)
{
    text_t out;
    const tt_sign_t sign = tt_run_sign(run);
    const bool is_barrier = run->call.collective == TT_BARRIER;
    snprintf(out.text, sizeof out.text, "%s #%llu%s%.60s of group %.60s%.100s",
             tt_collective_name(run->call.collective), (unsigned long long)run->sequence,
             is_barrier ? "" : " ", is_barrier ? "" : describe_values(&sign, &sign).text,
             coll->options.name, tt_site_in_brackets(run->call.site).text);
    return out;
}

static bool is_mate(const tt_coll_t *coll, int rank)
{
    return coll->mate_ranks[rank] >= 0;
}

/* Of a rank elsewhere nobody can tell whether it died or went without a word; how its wire knows
 * that it is gone, if it does. */
static const char *ask_wire(const tt_coll_t *coll, int rank)
{
    const tt_wire_t *wire = &coll->links[rank].endpoint.wire;
    return wire->ops != NULL && wire->ops->probe(wire->state) < 0 ? tutti_last_error()
                                                                  : "its connections are closed";
}

static void fail_gone(tt_coll_t *coll, const tt_run_t *run, int rank, bool has_left)
{
    char how[80] = "has left the group";
    if (!has_left && !is_mate(coll, rank)) {
        snprintf(how, sizeof how, "is gone: %.60s", ask_wire(coll, rank));
    } else if (!has_left) {
        snprintf(how, sizeof how, "(process %lld) died",
                 (long long)tt_mates_pid(coll->mates, coll->mate_ranks[rank]));
    }
    (void)TT_FAIL(TUTTI_ERR_PEER, "%s: rank %d %s", describe_run(coll, run).text, rank, how);
    coll->has_blamed_left = has_left;
    tt_coll_fail(coll, TUTTI_ERR_PEER, rank);
}

/* Ranks that never exchange a frame find out only at the deadline that they are in different calls.
 */
static bool fail_mismatched(tt_coll_t *coll, const tt_run_t *run, const tt_late_t *late)
{
    if (late->mismatched < 0) {
        return false;
    }
    const tt_sign_t sign = tt_run_sign(run);
    (void)tt_sign_mismatch(
        coll, run->sequence,
        &(tt_party_t){late->mismatched, &late->mismatch.sign, late->mismatch.site},
        &(tt_party_t){coll->rank, &sign, NULL});
    tt_coll_fail(coll, TUTTI_ERR_MISMATCH, late->mismatched);
    return true;
}

/* Another rank's deadline has passed. If it waited for this one, which itself waits for others,
 * those are late. */
static void follow_late(tt_coll_t *coll, const tt_run_t *run, int rank, int blamed)
{
    tt_late_t late;
    tt_coll_find_late(coll, run, &late);
    if (fail_mismatched(coll, run, &late)) {
        return;
    }
    const bool is_known = late.first >= 0;
    (void)TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s%srank %d gave up waiting for rank %d",
                  describe_run(coll, run).text, is_known ? late.text : "", is_known ? "; " : "",
                  rank, blamed);
    tt_coll_fail(coll, TUTTI_ERR_TIMEOUT, is_known ? late.first : blamed);
}

/* Another rank has given up, and says why. */
static void fail_like(tt_coll_t *coll, const tt_run_t *run, int rank, uint64_t failure)
{
    const tutti_status_t status = tt_failure_status(failure);
    const int blamed = tt_failure_rank(failure);
    const text_t call = describe_run(coll, run);
    switch (status) {
    case TUTTI_ERR_PEER:
        if (blamed >= 0 && blamed < coll->size && blamed != coll->rank) {
            fail_gone(coll, run, blamed, tt_failure_has_left(failure));
            return;
        }
        (void)TT_FAIL(status, "%s: rank %d lost a peer", call.text, rank);
        break;
    case TUTTI_ERR_TIMEOUT:
        follow_late(coll, run, rank, blamed);
        return;
    default: /* the one that began, not the one that followed */
        (void)TT_FAIL(status, "%s: rank %d gave the group up (%s)", call.text,
                      blamed >= 0 ? blamed : rank, tutti_status_text(status));
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
    const tt_wire_t *wire = &coll->links[rank].endpoint.wire;
    if (wire->ops == NULL) {
        return 0;
    }
    const uint64_t heard = wire->ops->heard(wire->state);
    if (has_left(heard) && !wire->ops->has_ended(wire->state)) {
        return 0; /* what it sent before is taken first */
    }
    if (heard == 0 && tt_coll_awaits(coll, run, rank)) {
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
        const bool is_needed = is_mate(coll, rank) ? !tt_coll_has_finished(coll, run, rank)
                                                   : tt_coll_awaits(coll, run, rank);
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

tutti_status_t tt_coll_follow(tt_coll_t *coll, const tt_run_t *run)
{
    return look_for_the_gone(coll, run) ? coll->status : TUTTI_PENDING;
}

static void report_hang(tt_coll_t *coll, tt_run_t *run, int64_t waited_ns)
{
    if (run->op.is_reported || waited_ns < tt_coll_report_ms(coll) * TT_NS_PER_MS) {
        return;
    }
    tt_late_t late;
    run->op.is_reported = true;
    tt_coll_find_late(coll, run, &late);
    tt_log(TT_LOG_WARN, "rank %d has been waiting for %.1f s in %s: %s", coll->rank,
           (double)waited_ns / (double)TT_NS_PER_S, describe_run(coll, run).text, late.text);
}

static void fail_late(tt_coll_t *coll, const tt_run_t *run)
{
    tt_late_t late;
    tt_coll_find_late(coll, run, &late);
    if (!fail_mismatched(coll, run, &late)) {
        (void)TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s; gave up after %lld ms",
                      describe_run(coll, run).text, late.text, (long long)coll->options.timeout_ms);
        tt_coll_fail(coll, TUTTI_ERR_TIMEOUT, late.first);
    }
}

/* Memory that a mate has shown cannot be mapped. */
static bool fail_starved(tt_coll_t *coll, const tt_run_t *run)
{
    const tutti_status_t status = tt_mates_status(coll->mates);
    if (status < 0) {
        (void)TT_FAIL(status, "%s: %s", describe_run(coll, run).text, tutti_last_error());
        tt_coll_fail(coll, status, coll->rank);
    }
    return status < 0;
}

static void watch_calls(tt_coll_t *coll, int64_t now)
{
    tt_run_t *run = coll->head;
    if (look_for_the_gone(coll, run) || fail_starved(coll, run)) {
        return;
    }
    if (run->op.waited_since_ns == 0) {
        run->op.waited_since_ns = now;
    }
    const int64_t waited_ns = now - run->op.waited_since_ns;
    report_hang(coll, run, waited_ns);
    if (waited_ns >= coll->options.timeout_ms * TT_NS_PER_MS) {
        fail_late(coll, run);
    }
}

void tt_coll_watch(tt_coll_t *coll, int64_t now)
{
    if (coll->head != NULL && coll->status >= 0) {
        watch_calls(coll, now);
    }
}

/* ---- while no call waits ------------------------------------------------------------------- */

/* What a rank has said about the group, as far as it has been heard. */
static uint64_t last_word(const tt_coll_t *coll, int rank)
{
    if (is_mate(coll, rank)) {
        const tt_flag_block_t *block = coll->blocks[rank];
        return block != NULL ? atomic_load_explicit(&block->failure, memory_order_acquire) : 0;
    }
    const tt_wire_t *wire = &coll->links[rank].endpoint.wire;
    return wire->ops != NULL ? wire->ops->heard(wire->state) : 0;
}

bool tt_coll_is_gone(tt_coll_t *coll, int rank)
{
    if (rank == coll->rank) {
        return false;
    }
    if (is_mate(coll, rank)) {
        tt_mates_check(coll->mates);
        return tt_mates_state(coll->mates, coll->mate_ranks[rank]) != TT_MATE_HERE ||
               has_left(last_word(coll, rank));
    }
    if (tt_coll_open_link(coll, rank) < 0) {
        return false;
    }
    const tt_wire_t *wire = &coll->links[rank].endpoint.wire;
    return wire->ops->probe(wire->state) < 0 || has_left(last_word(coll, rank));
}

void tt_coll_listen(tt_coll_t *coll)
{
    for (int rank = 0; rank < coll->size && coll->status >= 0; rank++) {
        const uint64_t failure = rank != coll->rank ? last_word(coll, rank) : 0;
        if (failure != 0 && !has_left(failure)) {
            const tutti_status_t status = tt_failure_status(failure);
            (void)TT_FAIL(status, "group %s: rank %d gave it up (%s)", coll->options.name, rank,
                          tutti_status_text(status));
            tt_coll_fail(coll, status, tt_failure_rank(failure));
        }
    }
}
