/* Sums over shards: the canonical tree, streamed, and one call for what is left of it; of many rows
 * chunk by chunk.
 *
 *     make    chunk 0 │ chunk 1 │ chunk 2 │
 *     call            │ chunk 0 ┼ chunk 1 ┼ chunk 2     as the products' pieces leave time
 *
 * The first piece is made in the result's own memory where that is of the same elements, so that a
 * rank with one leaf needs none besides. While calls travel, the context's idle functions move them
 * forward. On meta nothing is sent. Cost: a buffer for each piece, and one more where there are
 * several leaves. */
#include "parallel/tensor/leaf_sum.h"

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"

/* A chunk under way: how large it is, and where the result of this rank goes. */
typedef struct {
    tt_leaf_sum_t *sum;
    tt_leaf_chunk_t *chunk;
    const tt_tp_rows_t *rows; /* NULL: there are none */
    int64_t numel;
    tutti_tensor_t *out; /* as a row */
    int64_t *parts;      /* [ranks], of packed rows */
} job_t;

/* ---- pieces ---------------------------------------------------------------------------------- */

static tutti_status_t new_piece(const job_t *job, tutti_tensor_t **out)
{
    tt_leaf_sum_t *sum = job->sum;
    if (sum->spare != NULL) {
        *out = sum->spare;
        sum->spare = NULL;
        return TUTTI_OK;
    }
    return tt_tensor_new(sum->s->ctx->place.device, sum->dtype, TUTTI_SHAPE(job->numel), false,
                         out);
}

static bool is_made_in_out(const job_t *job)
{
    return job->out->dtype == job->sum->dtype && job->out->numel == job->numel;
}

static tutti_status_t first_piece(const job_t *job, tutti_tensor_t **piece)
{
    if (!is_made_in_out(job)) {
        return new_piece(job, piece);
    }
    *piece = tutti_tensor_retain(job->out);
    return TUTTI_OK;
}

static tutti_status_t merge_top(const job_t *job)
{
    tt_leaf_chunk_t *chunk = job->chunk;
    tutti_tensor_t *low = chunk->pieces[chunk->piece_count - 2],
                   *high = chunk->pieces[chunk->piece_count - 1];
    const tt_strided_t a = tt_tensor_strided(low), b = tt_tensor_strided(high);
    tt_tensors_release(&job->sum->spare, 1);
    job->sum->spare = high;
    chunk->pieces[--chunk->piece_count] = NULL;
    return tt_map_binary(tt_scope_exec(job->sum->s), TT_BINARY_ADD, (tt_map_params_t){0}, &a, &a,
                         &b);
}

static tutti_status_t add_leaf(const job_t *job, tt_tree_stack_t *stack, int leaf)
{
    const tt_leaf_sum_t *sum = job->sum;
    tutti_tensor_t **piece = &job->chunk->pieces[job->chunk->piece_count];
    TT_TRY(job->chunk->piece_count == 0 ? first_piece(job, piece) : new_piece(job, piece));
    job->chunk->piece_count++;
    TT_TRY(sum->make(sum->user, leaf, job->rows, *piece));
    tt_tree_push(stack, leaf, leaf + 1);
    while (tt_tree_can_merge(stack)) {
        tt_tree_merge(stack);
        TT_TRY(merge_top(job));
    }
    return TUTTI_OK;
}

static tutti_status_t make_pieces(const job_t *job, tt_leaves_t leaves)
{
    tt_tree_stack_t stack = {.leaves = job->sum->tp->shards};
    for (int leaf = leaves.begin; leaf < leaves.end; leaf++) {
        TT_TRY(add_leaf(job, &stack, leaf));
    }
    tt_tensors_release(&job->sum->spare, 1);
    return TUTTI_OK;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

/* There is one piece, the sum itself. */
static tutti_status_t take_sum(const job_t *job)
{
    const tutti_tensor_t *piece = job->chunk->pieces[0];
    if (is_made_in_out(job)) {
        return TUTTI_OK;
    }
    const tt_strided_t to = tt_tensor_strided(job->out), from = tt_tensor_strided(piece);
    return tt_map_unary(tt_scope_exec(job->sum->s), TT_UNARY_COPY, (tt_map_params_t){0}, &to,
                        &from);
}

/* Chunks of different wholes may be of one size: the tag tells them apart. */
static tutti_status_t call_group(const job_t *job)
{
    tt_leaf_chunk_t *chunk = job->chunk;
    tutti_group_t *group = job->sum->tp->group;
    const tutti_contributions_t leaves = {.count = job->sum->tp->shards,
                                          .pieces = chunk->pieces,
                                          .piece_count = chunk->piece_count,
                                          .dtype = job->sum->dtype};
    const uint64_t tag = tutti_group_tag(group);
    if (job->rows->chunks > 1) {
        tutti_group_set_tag(group, tag ^ (uint64_t)tutti_shape_numel(job->rows->whole));
    }
    const tutti_status_t status =
        job->parts == NULL
            ? tutti_all_reduce_contributions(group, &leaves, job->out, TUTTI_SUM, &chunk->work)
            : tutti_reduce_scatter_contributions_uneven(group, &leaves, job->out, job->parts,
                                                        TUTTI_SUM, &chunk->work);
    tutti_group_set_tag(group, tag);
    return status;
}

static tutti_status_t perform(const job_t *job, tt_leaves_t leaves)
{
    const tt_leaf_sum_t *sum = job->sum;
    TT_TRY(make_pieces(job, leaves));
    if (leaves.end - leaves.begin == sum->tp->shards) {
        return take_sum(job);
    }
    return tt_device_has_values(sum->s->ctx->place.device) ? call_group(job) : TUTTI_OK;
}

static tutti_status_t see_as_row(const tutti_tensor_t *out, int64_t begin, int64_t count,
                                 tutti_tensor_t **row)
{
    return tt_tensor_over(out->storage, out->dtype, TUTTI_SHAPE(count), NULL, out->offset + begin,
                          row);
}

static tutti_status_t take_chunk(tt_leaf_sum_t *sum, const tutti_tensor_t *out, tt_leaves_t leaves,
                                 tt_leaf_chunk_t *chunk)
{
    const bool has_rows = sum->rows.whole.rank > 0;
    job_t job = {.sum = sum, .chunk = chunk, .rows = &sum->rows, .numel = sum->numel};
    int64_t begin = 0, count = out->numel;
    tutti_status_t status = TUTTI_OK;
    if (sum->rows.is_packed && has_rows) {
        job.parts = tt_alloc_array((size_t)tutti_group_size(sum->tp->group), sizeof *job.parts,
                                   "parts of a chunk");
        TT_TRY_ALLOC(job.parts);
    }
    if (has_rows) {
        job.numel = tt_tp_chunk_numel(sum->tp, &sum->rows, job.parts);
        begin = tt_tp_chunk_offset(sum->tp, &sum->rows);
        count = job.parts == NULL ? job.numel : job.parts[tutti_group_rank(sum->tp->group)];
    }
    status = see_as_row(out, begin, count, &job.out);
    if (status >= 0) {
        status = perform(&job, leaves);
    }
    tutti_tensor_release(job.out);
    tt_free(job.parts);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void progress(void *user)
{
    tutti_group_progress(user);
}

static void move_calls(tt_leaf_sum_t *sum)
{
    if (sum->s->ctx->place.accelerator == NULL && !sum->is_idle_added) {
        sum->idle = (tutti_idle_t){.call = progress, .move = progress, .user = sum->tp->group};
        tutti_context_add_idle(sum->s->ctx, &sum->idle);
        sum->is_idle_added = true;
    }
}

static int count_chunks(const tt_leaf_sum_t *sum)
{
    return sum->rows.whole.rank == 0 ? 1
           : sum->rows.chunks > 0    ? sum->rows.chunks
                                     : tt_tp_chunk_count(sum->tp, &sum->rows);
}

static tutti_status_t start(tt_leaf_sum_t *sum, const tutti_tensor_t *out)
{
    sum->rows.chunks = count_chunks(sum);
    for (int i = 0; i < sum->rows.chunks; i++) {
        sum->rows.chunk = i;
        TT_TRY(take_chunk(sum, out, tt_tp_leaves(sum->tp), &sum->chunks[i]));
        if (sum->chunks[i].work != NULL) {
            move_calls(sum);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_leaf_sum_start(tt_leaf_sum_t *sum, tutti_tensor_t *out)
{
    const tutti_status_t status = start(sum, out);
    return status < 0 ? tt_group_give_up(sum->tp->group, status) : TUTTI_OK;
}

/* The first failure is told, and every work is waited for: its memory is in use until then. */
static tutti_status_t wait_for(tt_leaf_chunk_t *chunk)
{
    tutti_status_t status = TUTTI_OK;
    if (chunk->work != NULL) {
        status = tutti_work_wait(chunk->work, 0);
        tutti_work_release(chunk->work);
        chunk->work = NULL;
    }
    tt_tensors_release(chunk->pieces, (size_t)chunk->piece_count);
    chunk->piece_count = 0;
    return status;
}

tutti_status_t tt_leaf_sum_wait(tt_leaf_sum_t *sum)
{
    tutti_status_t status = TUTTI_OK;
    if (sum->is_idle_added) {
        tutti_context_remove_idle(sum->s->ctx, &sum->idle);
        sum->is_idle_added = false;
    }
    for (int i = 0; i < TT_TP_CHUNKS_MAX; i++) {
        const tutti_status_t waited = wait_for(&sum->chunks[i]);
        status = status < 0 ? status : waited;
    }
    tt_tensors_release(&sum->spare, 1);
    return status;
}

tutti_status_t tt_leaf_sum(tt_leaf_sum_t *sum, tutti_tensor_t *out)
{
    const tutti_status_t status = tt_leaf_sum_start(sum, out);
    const tutti_status_t waited = tt_leaf_sum_wait(sum);
    return status < 0 ? status : waited;
}

tutti_status_t tt_leaf_sum_here(tt_leaf_sum_t *sum, tutti_tensor_t *out)
{
    const tutti_status_t status =
        take_chunk(sum, out, (tt_leaves_t){0, sum->tp->shards}, &sum->chunks[0]);
    (void)tt_leaf_sum_wait(sum);
    return status;
}
