/* Express: an all_reduce or broadcast of a few bytes that its caller waits for, like one before it,
 * while nothing else is under way. Most small calls of most programs are such.
 *
 * What is shown to the mates, and written down in the recorder, is what it would be otherwise; the
 * mates may go the long way. What is left out is the queue with its states, the choice of a plan
 * and the interpretation of its one step. Mates that do not come within a few polls, and calls that
 * differ, are not for here: the call is put into the queue as one that has been shown.
 *
 * Cost: the two cache lines of any flag call; some 600 instructions, polls included, instead of
 * 1,600.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/futex.h"

enum { POLLS = 128, EAGER_POLLS = 16 };

/* Adds up everyone's one piece, in order of ranks, all at once. */
static bool is_plain_sum(const tt_coll_t *coll, const tt_plan_t *plan)
{
    if (plan->step_count != 1 || plan->steps[0].kind != TT_STEP_REDUCE ||
        plan->sums[plan->steps[0].sum].count != coll->size) {
        return false;
    }
    const tt_plan_sum_t *sum = &plan->sums[plan->steps[0].sum];
    for (int i = 0; i < sum->count; i++) {
        const tt_part_t part = sum->sources[i].part;
        if (sum->sources[i].rank != i || part.index != 0 || part.offset != 0) {
            return false;
        }
    }
    return true;
}

static bool may_be_express(const tt_coll_t *coll, const tt_memo_t *memo)
{
    const tt_plan_t *plan = memo->plan->plan;
    if (coll->size < 2 || coll->local_count != coll->size || memo->call.piece_count != 1 ||
        !plan->algorithm->travels_in_flags) {
        return false;
    }
    return memo->call.collective == TT_BROADCAST ||
           (memo->call.collective == TT_ALL_REDUCE && is_plain_sum(coll, plan) &&
            plan->source_count_max <= coll->source_capacity &&
            coll->tree_scratch_bytes >= tt_tree_reduce_scratch_bytes(plan->depth_max));
}

void tt_coll_note_express(const tt_coll_t *coll, tt_memo_t *memo)
{
    if (memo->is_express || !may_be_express(coll, memo)) {
        return;
    }
    const tt_call_t *call = &memo->call;
    const bool is_plain = call->dtype == call->out_dtype &&
                          tt_combine_dtype(call->dtype) == call->dtype &&
                          call->reduction != TUTTI_AVG;
    memo->is_express = true;
    memo->combine = coll->size == 2 && is_plain && call->collective == TT_ALL_REDUCE
                        ? coll->kernels->combine[call->dtype][call->reduction]
                        : NULL;
}

/* Nothing is under way, and nothing is wrong. */
static bool is_idle(const tt_coll_t *coll)
{
    return coll->head == NULL && coll->status >= 0 && !tt_mates_is_crowded(coll->mates) &&
           (coll->shown_record | coll->put_record) == 0 &&
           (coll->mail == NULL || !tt_mail_is_busy(coll->mail));
}

static size_t bytes_of(const tt_call_t *call)
{
    return call->count * tt_dtype_bytes(call->dtype);
}

/* memcpy of a length that is not known is a call. */
static void copy_small(void *dst, const void *src, size_t bytes)
{
    if (bytes == 4) {
        memcpy(dst, src, 4);
    } else if (bytes == 8) {
        memcpy(dst, src, 8);
    } else {
        memcpy(dst, src, bytes);
    }
}

static void show(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call, uint64_t sequence)
{
    tt_flag_slot_t *slot = tt_coll_slot(coll, coll->rank, sequence);
    uint64_t *shown = &coll->shown_here[sequence % TT_FLAG_SLOTS];
    if (*shown != memo->fingerprint) { /* else the sign is there already */
        *shown = memo->fingerprint;
        slot->sign = memo->sign;
    }
    slot->fingerprint = memo->fingerprint;
    slot->flags = 0;
    const size_t bytes = bytes_of(call);
    copy_small(tt_flag_payload(slot, bytes), call->pieces[0], bytes);
    atomic_store_explicit(&slot->sequence, sequence, memory_order_release);
    tt_coll_wake_mates(coll);
    tt_cpu_prefetch_to_write(tt_coll_slot(coll, coll->rank, sequence + 1));
}

/* Whether the mates have come, with the same call. */
static bool expect_mates(const tt_coll_t *coll, uint64_t sequence, uint64_t fingerprint)
{
    int polls = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, sequence);
        while (atomic_load_explicit(&slot->sequence, memory_order_acquire) != sequence) {
            if (++polls > POLLS) {
                return false;
            }
            if (polls > EAGER_POLLS) {
                tt_cpu_pause();
            }
        }
        if (slot->fingerprint != fingerprint) {
            return false;
        }
    }
    return true;
}

static void sum_up(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call, uint64_t sequence)
{
    const tt_plan_t *plan = memo->plan->plan;
    const size_t bytes = bytes_of(call);
    for (int rank = 0; rank < coll->size; rank++) {
        coll->sources[rank] = tt_flag_payload(tt_coll_slot(coll, rank, sequence), bytes);
    }
    coll->sources[coll->rank] = call->pieces[0];
    if (memo->combine != NULL) {
        memo->combine(call->out, coll->sources[0], coll->sources[1], call->count);
        return;
    }
    void *const dst[1] = {call->out};
    const tt_tree_reduce_t job = {.kernels = coll->kernels,
                                  .src_dtype = call->dtype,
                                  .dst_dtype = call->out_dtype,
                                  .reduction = call->reduction,
                                  .leaves = plan->leaves,
                                  .source_count = coll->size,
                                  .sources = coll->sources,
                                  .merges = plan->sums[plan->steps[0].sum].merges,
                                  .dst_count = 1,
                                  .dst = dst,
                                  .scratch = coll->tree_scratch};
    tt_tree_reduce(&job, 0, call->count);
}

static void take_root(const tt_coll_t *coll, const tt_call_t *call, uint64_t sequence)
{
    if (coll->rank != call->root) {
        const size_t bytes = bytes_of(call);
        tt_flag_slot_t *slot = tt_coll_slot(coll, call->root, sequence);
        copy_small(call->out, tt_flag_payload(slot, bytes), bytes);
    } else if (call->out != call->pieces[0]) {
        memcpy(call->out, call->pieces[0], bytes_of(call));
    }
}

/* What tt_coll_start would have made of the call. */
static tt_run_t *queue(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call,
                       uint64_t sequence, uint64_t record)
{
    tt_run_t *run = &coll->express;
    *run = (tt_run_t){.status = TUTTI_PENDING,
                      .state = TT_RUN_SHOWN,
                      .sequence = sequence,
                      .fingerprint = memo->fingerprint,
                      .record = record,
                      .call = memo->call,
                      .sign = memo->sign,
                      .plan = memo->plan,
                      .round = -1};
    tt_coll_take_memory(run, call);
    tt_coll_enqueue(coll, run, true);
    return run;
}

tutti_status_t tt_coll_call(tt_coll_t *coll, const tt_call_t *call, tt_run_t **run)
{
    const tt_memo_t *memo = tt_coll_memo(coll, call);
    if (!memo->is_express || !is_idle(coll) || !tt_call_is_alike(&memo->call, call) ||
        !tt_coll_may_show(coll, coll->sequence + 1)) {
        return TUTTI_END;
    }
    const uint64_t sequence = ++coll->sequence;
    show(coll, memo, call, sequence);
    tt_records_t *records = &coll->block->records;
    const uint64_t record =
        tt_record_start(records, sequence, call->count, call->tag, call->site,
                        tt_record_what(TT_RECORD_CALL, (int)call->collective, (int)call->dtype,
                                       (int)call->reduction, call->root));
    tt_record_progress(records, record, TT_RECORD_SHOWN, -1);
    if (!expect_mates(coll, sequence, memo->fingerprint)) {
        *run = queue(coll, memo, call, sequence, record);
        return TUTTI_PENDING;
    }
    if (call->collective == TT_BROADCAST) {
        take_root(coll, call, sequence);
    } else {
        sum_up(coll, memo, call, sequence);
    }
    coll->last = memo->plan->plan->algorithm;
    atomic_store_explicit(&coll->block->done, sequence, memory_order_release);
    tt_coll_wake_mates(coll);
    tt_record_progress(records, record, TT_RECORD_DONE, -1);
    return TUTTI_OK;
}
