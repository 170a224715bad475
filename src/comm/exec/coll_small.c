/* The executor of small calls: all pieces lie in the flag lines of one host's ranks, one
 * of each rank at most and all as large (but the root's), and one round of sums or gets takes from
 * there. Most small calls of most programs are such.
 *
 * A call that finds its local ranks there, or sees them come within a few polls, is carried out on
 * the spot, without a place in the queue (tt_coll_start); otherwise it is queued, posted as it is,
 * and the same executor runs when they have come.
 */
#include "comm/exec/coll_exec.h"

/* Adds up the one piece of each of the first ranks, in order; most often of all. */
static bool is_plain_sum(const tt_plan_t *plan, const tt_plan_sum_t *sum)
{
    if (sum->count != plan->size && !tt_collective_is_prefix(plan->collective)) {
        return false; /* a rank without leaves shows no piece */
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
static bool is_plain(const tt_plan_t *plan)
{
    for (int i = 0; i < plan->step_count; i++) {
        const tt_step_t *step = &plan->steps[i];
        const bool is_sum =
            step->kind == TT_STEP_REDUCE && is_plain_sum(plan, &plan->sums[step->sum]);
        if (!is_sum && (step->kind != TT_STEP_GET || step->src.index != 0)) {
            return false;
        }
    }
    return true;
}

/* So many elements into a rank's piece. */
static inline const void *piece_of(const tt_coll_t *coll, const tt_post_t *post, int rank,
                                   size_t offset)
{
    const tt_prepared_t *prepared = post->prepared;
    const size_t element = tt_dtype_bytes(prepared->call.dtype);
    if (rank == coll->rank) {
        return (const char *)post->call->pieces[0] + offset * element;
    }
    const size_t elements = rank == prepared->call.root ? prepared->plan.root_piece_elements
                                                        : prepared->plan.piece_elements;
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, post->sequence);
    return tt_flag_payload(slot, elements * element) + offset * element;
}

static void get(const tt_coll_t *coll, const tt_post_t *post, const tt_step_t *step)
{
    const size_t element = tt_dtype_bytes(post->prepared->call.dtype);
    char *dst = (char *)post->call->out + step->dst.offset * element;
    const void *src = piece_of(coll, post, step->peer, step->src.offset);
    if (dst != src && step->count > 0) {
        tt_copy_small(dst, src, step->count * element);
    }
}

static void add_tree(tt_coll_t *coll, const tt_post_t *post, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &post->prepared->plan.plan->sums[step->sum];
    const tt_call_t *call = &post->prepared->call;
    void *const dst[1] = {post->call->out};
    const void **sources = coll->steps.sources.data;
    for (int rank = 0; rank < sum->count; rank++) {
        sources[rank] = piece_of(coll, post, rank, step->src.offset);
    }
    const tt_tree_reduce_t job = {.kernels = coll->kernels,
                                  .src_dtype = call->dtype,
                                  .dst_dtype = call->out_dtype,
                                  .reduction = call->reduction,
                                  .custom = post->call->custom,
                                  .leaves = sum->leaves,
                                  .source_count = sum->count,
                                  .sources = sources,
                                  .merges = sum->merges,
                                  .dst_count = 1,
                                  .dst = dst,
                                  .scratch = coll->steps.tree_scratch.data};
    tt_tree_reduce(&job, 0, step->count);
}

/* The sum of two pieces, without a tree. */
static inline void add_pair(tt_coll_t *coll, const tt_post_t *post)
{
    const tt_prepared_t *prepared = post->prepared;
    const tt_flag_slot_t *slot = tt_coll_slot(coll, 1 - coll->rank, post->sequence);
    const char *mine = (const char *)post->call->pieces[0] + prepared->mine_at;
    const char *theirs = (const char *)slot + prepared->theirs_at;
    const bool is_first = coll->rank == 0;
    prepared->combine(post->call->out, is_first ? mine : theirs, is_first ? theirs : mine,
                      prepared->plan.plan->steps[0].count);
}

static bool is_own(const tt_coll_t *coll, const tt_step_t *step)
{
    return step->kind == TT_STEP_GET && step->peer == coll->rank;
}

/* What a rank takes from itself does not wait. */
static void run_own_steps(const tt_coll_t *coll, const tt_post_t *post)
{
    const tt_plan_t *plan = post->prepared->plan.plan;
    for (int i = 0; i < plan->step_count; i++) {
        if (is_own(coll, &plan->steps[i])) {
            get(coll, post, &plan->steps[i]);
        }
    }
}

static void run_steps(tt_coll_t *coll, const tt_post_t *post)
{
    const tt_plan_t *plan = post->prepared->plan.plan;
    for (int i = 0; i < plan->step_count; i++) {
        const tt_step_t *step = &plan->steps[i];
        if (step->kind != TT_STEP_GET) {
            add_tree(coll, post, step);
        } else if (!is_own(coll, step)) {
            get(coll, post, step);
        }
    }
}

static inline void run_small(tt_coll_t *coll, const tt_post_t *post)
{
    if (post->prepared->combine != NULL) {
        add_pair(coll, post);
    } else {
        run_steps(coll, post);
    }
}

/* The executor, for a call that was queued. */
static tutti_status_t run_queued(tt_coll_t *coll, tt_run_t *run)
{
    const tt_post_t post = tt_run_post(run);
    run_own_steps(coll, &post);
    run_small(coll, &post);
    return TUTTI_OK;
}

static inline void show(tt_coll_t *coll, const tt_post_t *post)
{
    tt_flag_slot_t *slot = tt_coll_write_descriptor(coll, post);
    const size_t bytes = post->prepared->posted_bytes;
    if (bytes > 0) {
        tt_copy_small(tt_flag_payload(slot, bytes), post->call->pieces[0], bytes);
    }
    tt_coll_publish(coll, slot, post->sequence);
}

/* The next call is often as large as this one or, where a barrier is between them, as the one
 * before: its lines, which the others have read, come back to this core while this call is
 * computed. The first one does already (tt_coll_publish). */
static inline void fetch_next_lines(tt_coll_t *coll, const tt_post_t *post)
{
    enum { LINE_BYTES = 64 };
    const size_t now = post->prepared->posted_bytes, before = coll->flags.bytes_before;
    const size_t bytes = now > before ? now : before;
    tt_flag_slot_t *next = &coll->block->slots[(post->sequence + 1) % TT_FLAG_SLOTS];
    coll->flags.bytes_before = now;
    if (bytes > TT_FLAG_HEAD_BYTES) {
        for (size_t i = 0; i < bytes; i += LINE_BYTES) {
            tt_cpu_prefetch_to_write(next->extra + i);
        }
    }
}

static bool await(const tt_coll_t *coll, const tt_post_t *post)
{
    return post->call->is_awaited && !tt_node_peers_is_oversubscribed(coll->node_peers) &&
           tt_coll_expect(coll, post->sequence, post->fingerprint, TT_EXPECT_POLLS);
}

bool tt_coll_start_small(tt_coll_t *coll, const tt_post_t *post, uint64_t *record)
{
    show(coll, post);
    *record = tt_coll_write_down(coll, post->call, post->prepared, true);
    if (post->prepared->combine == NULL) {
        run_own_steps(coll, post);
    }
    if (!tt_coll_expect(coll, post->sequence, post->fingerprint, 0) && !await(coll, post)) {
        return false;
    }
    fetch_next_lines(coll, post);
    run_small(coll, post);
    coll->queue.last = post->prepared->plan.plan->algorithm;
    tt_coll_post_done(coll, post->sequence);
    tt_record_progress(&coll->block->records, *record, TT_RECORD_DONE, -1);
    return true;
}

static void note_combine(const tt_coll_t *coll, tt_prepared_t *prepared, size_t begin)
{
    tt_flag_slot_t *const slot = coll->block->slots; /* any */
    const tt_call_t *call = &prepared->call;
    const size_t bytes = prepared->plan.piece_elements * tt_dtype_bytes(call->dtype);
    prepared->combine = coll->kernels->combine[call->dtype][call->reduction];
    prepared->mine_at = begin;
    prepared->theirs_at = (size_t)(tt_flag_payload(slot, bytes) - (unsigned char *)slot) + begin;
}

void tt_coll_note_small(const tt_coll_t *coll, tt_prepared_t *prepared)
{
    const tt_call_t *call = &prepared->call;
    const tt_plan_t *plan = prepared->plan.plan;
    const tt_algorithm_t *algorithm = plan->algorithm;
    prepared->is_small = coll->local_count == coll->size && call->piece_count <= 1 &&
                         call->counts == NULL && call->recv_counts == NULL &&
                         algorithm->travels_in_flags && algorithm->is_canonical && is_plain(plan);
    if (!prepared->is_small) {
        return;
    }
    prepared->plan.execute = run_queued;
    if (coll->size == 2 && plan->step_count == 1 && plan->steps[0].kind == TT_STEP_REDUCE &&
        plan->sums[plan->steps[0].sum].count == 2 && call->dtype == call->out_dtype &&
        tt_combine_dtype(call->dtype) == call->dtype && call->reduction != TUTTI_AVG) {
        note_combine(coll, prepared, plan->steps[0].src.offset * tt_dtype_bytes(call->dtype));
    }
}
