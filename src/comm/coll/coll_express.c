/* Express: a call of a few bytes that its caller waits for, like one before it, while nothing else
 * is under way. Most small calls of most programs are such.
 *
 * What is shown to the mates, and written down in the recorder, is what it would be otherwise; the
 * mates may go the long way. What is left out is the queue with its states, the choice of a plan
 * and the search for the memory of its steps, which are one sum or a few pulls out of flag lines.
 * Mates that do not come within a few polls, and calls that differ, are not for here: the call is
 * put into the queue as one that has been shown.
 *
 * Cost: the two cache lines of any flag call; some 600 instructions, polls included, instead of
 * 1,600.
 */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/futex.h"

enum { POLLS = 128, EAGER_POLLS = 16 };

/* Adds up everyone's one piece, in order of ranks. */
static bool is_plain_sum(const tt_coll_t *coll, const tt_plan_t *plan, const tt_plan_sum_t *sum)
{
    if (sum->count != coll->size || sum->count > coll->source_capacity ||
        coll->tree_scratch_bytes < tt_tree_reduce_scratch_bytes(plan->depth_max)) {
        return false;
    }
    for (int i = 0; i < sum->count; i++) {
        const tt_part_t part = sum->sources[i].part;
        if (sum->sources[i].rank != i || part.index != 0 || part.offset != 0) {
            return false;
        }
    }
    return true;
}

/* All steps take from flag lines. */
static bool is_plain(const tt_coll_t *coll, const tt_plan_t *plan)
{
    for (int i = 0; i < plan->step_count; i++) {
        const tt_step_t *step = &plan->steps[i];
        const bool is_sum =
            step->kind == TT_STEP_REDUCE && is_plain_sum(coll, plan, &plan->sums[step->sum]);
        if (!is_sum && (step->kind != TT_STEP_PULL || step->src.index != 0)) {
            return false;
        }
    }
    return true;
}

void tt_coll_note_express(const tt_coll_t *coll, tt_memo_t *memo)
{
    const tt_call_t *call = &memo->call;
    const tt_cached_plan_t *plan = memo->plan;
    if (memo->is_express || coll->size < 2 || coll->local_count != coll->size ||
        call->piece_count > 1 || !plan->plan->algorithm->travels_in_flags ||
        !is_plain(coll, plan->plan)) {
        return;
    }
    const bool is_combined = coll->size == 2 && tt_collective_reduces(call->collective) &&
                             call->dtype == call->out_dtype &&
                             tt_combine_dtype(call->dtype) == call->dtype &&
                             call->reduction != TUTTI_AVG;
    const bool is_read = call->collective != TT_BROADCAST || coll->rank == call->root;
    memo->is_express = true;
    memo->combine = is_combined ? coll->kernels->combine[call->dtype][call->reduction] : NULL;
    memo->shown_bytes = is_read ? plan->piece_elements * tt_dtype_bytes(call->dtype) : 0;
}

/* Nothing is under way, and nothing is wrong. */
static bool is_idle(const tt_coll_t *coll)
{
    return coll->head == NULL && coll->status >= 0 && !tt_mates_is_crowded(coll->mates) &&
           (coll->shown_record | coll->put_record) == 0 &&
           (coll->mail == NULL || !tt_mail_is_busy(coll->mail));
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
    if (memo->shown_bytes > 0) {
        copy_small(tt_flag_payload(slot, memo->shown_bytes), call->pieces[0], memo->shown_bytes);
    }
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

/* So many elements into a rank's piece. */
static const void *piece_of(const tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call,
                            int rank, size_t offset)
{
    const size_t element = tt_dtype_bytes(call->dtype);
    if (rank == coll->rank) {
        return (const char *)call->pieces[0] + offset * element;
    }
    const size_t elements =
        rank == call->root ? memo->plan->root_piece_elements : memo->plan->piece_elements;
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, coll->sequence);
    return tt_flag_payload(slot, elements * element) + offset * element;
}

static void pull(const tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call,
                 const tt_step_t *step)
{
    const size_t element = tt_dtype_bytes(call->dtype);
    char *dst = (char *)call->out + step->dst.offset * element;
    const void *src = piece_of(coll, memo, call, step->peer, step->src.offset);
    if (dst != src) {
        copy_small(dst, src, step->count * element);
    }
}

static void sum_up(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call,
                   const tt_step_t *step)
{
    const tt_plan_t *plan = memo->plan->plan;
    for (int rank = 0; rank < coll->size; rank++) {
        coll->sources[rank] = piece_of(coll, memo, call, rank, step->src.offset);
    }
    if (memo->combine != NULL) {
        memo->combine(call->out, coll->sources[0], coll->sources[1], step->count);
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
                                  .merges = plan->sums[step->sum].merges,
                                  .dst_count = 1,
                                  .dst = dst,
                                  .scratch = coll->tree_scratch};
    tt_tree_reduce(&job, 0, step->count);
}

static void run_steps(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call)
{
    const tt_plan_t *plan = memo->plan->plan;
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].kind == TT_STEP_PULL) {
            pull(coll, memo, call, &plan->steps[i]);
        } else {
            sum_up(coll, memo, call, &plan->steps[i]);
        }
    }
}

/* What tt_coll_start would have made of the call. */
static tt_run_t *queue(tt_coll_t *coll, const tt_memo_t *memo, const tt_call_t *call,
                       uint64_t sequence, uint64_t record)
{
    tt_run_t *run = &coll->express;
    *run = (tt_run_t){.op = {.status = TUTTI_PENDING, .record = record},
                      .state = TT_RUN_SHOWN,
                      .sequence = sequence,
                      .fingerprint = memo->fingerprint,
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
    run_steps(coll, memo, call);
    coll->last = memo->plan->plan->algorithm;
    atomic_store_explicit(&coll->block->done, sequence, memory_order_release);
    tt_coll_wake_mates(coll);
    tt_record_progress(records, record, TT_RECORD_DONE, -1);
    return TUTTI_OK;
}
