/* Carrying out a plan: rounds of steps. Local and direct steps are done on the spot; sends and
 * receives move as far as their wires let them, and the round is looked at again later. */
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/alloc.h"

static tutti_status_t make_room(void **block, size_t *have, size_t want)
{
    if (*have < want) {
        void *grown = tt_alloc_raw(want, "collective scratch");
        TT_TRY_ALLOC(grown);
        tt_free(*block);
        *block = grown;
        *have = want;
    }
    return TUTTI_OK;
}

static tutti_status_t prepare(tt_coll_t *coll, const tt_run_t *run)
{
    const tt_plan_t *plan = run->plan;
    if (plan->step_count > coll->step_capacity) {
        size_t *grown = tt_realloc(coll->step_bytes, (size_t)plan->step_count * sizeof *grown,
                                   "collective steps");
        TT_TRY_ALLOC(grown);
        coll->step_bytes = grown;
        coll->step_capacity = plan->step_count;
    }
    if (plan->piece_count > coll->source_capacity) {
        const void **grown =
            tt_alloc_array((size_t)plan->piece_count, sizeof *grown, "collective sources");
        TT_TRY_ALLOC(grown);
        tt_free(coll->sources);
        coll->sources = grown;
        coll->source_capacity = plan->piece_count;
    }
    TT_TRY(make_room(&coll->scratch, &coll->scratch_bytes,
                     plan->scratch_count * tutti_dtype_bytes(run->call.dtype)));
    return make_room(&coll->tree_scratch, &coll->tree_scratch_bytes,
                     tt_tree_reduce_scratch_bytes(plan->depth));
}

/* The memory of a part of mine. */
static void *part_of(const tt_coll_t *coll, const tt_run_t *run, tt_part_t part)
{
    const size_t piece_offset = part.offset * tutti_dtype_bytes(run->call.dtype);
    if (run->call.count == 0) {
        return NULL; /* the empty messages of a barrier */
    }
    switch (part.buffer) {
    case TT_BUFFER_PIECE: {
        /* only read; the contract of wires and kernels takes const, a part does not */
        union {
            const void *given;
            void *plain;
        } piece = {run->pieces[part.index]};
        return (char *)piece.plain + piece_offset;
    }
    case TT_BUFFER_OUT:
        return (char *)run->call.out + part.offset * tutti_dtype_bytes(run->call.out_dtype);
    case TT_BUFFER_SCRATCH:
        break;
    }
    return (char *)coll->scratch + piece_offset;
}

/* The piece (or with index -1 the out) of a rank, as its flag slot shows it. NULL while the segment
 * it lies in has not come. */
static void *shown(const tt_coll_t *coll, const tt_run_t *run, int rank, int index)
{
    tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
    const size_t piece_bytes = tt_call_piece_bytes(&run->call, coll->size);
    const tt_plan_t *plan = run->plan;
    const int count = plan->pieces_of != NULL ? plan->pieces_of[rank] : 1;
    if (plan->algorithm->travels_in_flags) {
        return tt_flag_payload(slot, piece_bytes * (size_t)count) + piece_bytes * (size_t)index;
    }
    tt_place_t place;
    const unsigned char *places = tt_flag_payload(slot, (1 + (size_t)count) * sizeof place);
    memcpy(&place, places + (size_t)(1 + index) * sizeof place, sizeof place);
    const size_t out_bytes = run->call.count * tutti_dtype_bytes(run->call.out_dtype);
    return tt_mates_at(coll->mates, coll->mate_ranks[rank], place,
                       index < 0 ? out_bytes : piece_bytes);
}

static const void *piece_of(const tt_coll_t *coll, const tt_run_t *run, int rank, int index)
{
    return rank == coll->rank ? run->pieces[index] : shown(coll, run, rank, index);
}

static void reduce(tt_coll_t *coll, const tt_run_t *run, int dst_count, size_t count)
{
    const tt_call_t *call = &run->call;
    const size_t bytes = call->count * tutti_dtype_bytes(call->out_dtype);
    const tt_tree_reduce_t job = {
        .kernels = coll->kernels,
        .src_dtype = call->dtype,
        .dst_dtype = call->out_dtype,
        .reduction = call->reduction,
        .leaves = run->plan->leaves,
        .source_count = run->plan->piece_count,
        .sources = coll->sources,
        .merges = run->plan->merges,
        .dst_count = dst_count,
        .dst = coll->dst,
        .stream = dst_count > 1 && bytes * (size_t)dst_count > coll->stream_from_bytes,
        .scratch = coll->tree_scratch,
    };
    tt_tree_reduce(&job, 0, count);
}

static void run_tree(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    for (int i = 0; i < run->plan->piece_count; i++) {
        coll->sources[i] = part_of(coll, run, run->plan->sources[i]);
    }
    coll->dst[0] = part_of(coll, run, step->dst);
    reduce(coll, run, 1, step->count);
}

/* False while a segment of somebody's heap is on its way. */
static bool run_direct(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const size_t src_offset = step->src.offset * tutti_dtype_bytes(run->call.dtype);
    const size_t dst_offset = step->dst.offset * tutti_dtype_bytes(run->call.out_dtype);
    for (int i = 0; i < run->plan->piece_count; i++) {
        const tt_piece_ref_t piece = run->plan->pieces[i];
        const char *base = piece_of(coll, run, piece.rank, piece.index);
        if (base == NULL) {
            return false;
        }
        coll->sources[i] = base + src_offset;
    }
    int dst_count = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        if (rank != coll->rank && !step->to_all) {
            continue;
        }
        char *out = rank == coll->rank ? run->call.out : shown(coll, run, rank, -1);
        if (out == NULL) {
            return false;
        }
        coll->dst[dst_count++] = out + dst_offset;
    }
    reduce(coll, run, dst_count, step->count);
    return true;
}

static bool run_pull(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const char *base = piece_of(coll, run, step->peer, 0);
    if (base == NULL) {
        return false;
    }
    const size_t element = tutti_dtype_bytes(run->call.dtype);
    void *dst = part_of(coll, run, step->dst);
    const char *src = base + step->src.offset * element;
    if (dst != src) {
        memcpy(dst, src, step->count * element);
    }
    return true;
}

static void run_copy(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    void *dst = part_of(coll, run, step->dst);
    const void *src = part_of(coll, run, step->src);
    if (dst != src) {
        memmove(dst, src, step->count * tutti_dtype_bytes(run->call.dtype));
    }
}

static size_t part_bytes(const tt_run_t *run, tt_part_t part, size_t count)
{
    return count *
           tutti_dtype_bytes(part.buffer == TT_BUFFER_OUT ? run->call.out_dtype : run->call.dtype);
}

/* OK when the step is done. A local step counts one byte when it is. */
static tutti_status_t run_step(tt_coll_t *coll, tt_run_t *run, int index)
{
    const tt_step_t *step = &run->plan->steps[index];
    switch (step->kind) {
    case TT_STEP_SEND:
        return tt_coll_send(coll, run, index, part_of(coll, run, step->src),
                            part_bytes(run, step->src, step->count));
    case TT_STEP_RECV:
        return tt_coll_recv(coll, run, index, part_of(coll, run, step->dst),
                            part_bytes(run, step->dst, step->count));
    case TT_STEP_COPY:
        run_copy(coll, run, step);
        return TUTTI_OK;
    case TT_STEP_TREE:
        run_tree(coll, run, step);
        return TUTTI_OK;
    case TT_STEP_PULL:
        return run_pull(coll, run, step) ? TUTTI_OK : TUTTI_PENDING;
    case TT_STEP_DIRECT:
        return run_direct(coll, run, step) ? TUTTI_OK : TUTTI_PENDING;
    }
    return TUTTI_OK;
}

enum { STEP_DONE = -1 };

/* All steps of the round once; OK when all are done. */
static tutti_status_t run_round(tt_coll_t *coll, tt_run_t *run)
{
    tutti_status_t result = TUTTI_OK;
    for (int i = 0; i < run->plan->step_count; i++) {
        if (run->plan->steps[i].round != run->round || coll->step_bytes[i] == (size_t)STEP_DONE) {
            continue;
        }
        const tutti_status_t status = run_step(coll, run, i);
        if (status < 0) {
            return status;
        }
        if (status == TUTTI_OK) {
            coll->step_bytes[i] = (size_t)STEP_DONE;
        } else {
            result = TUTTI_PENDING;
        }
    }
    return result;
}

tutti_status_t tt_coll_run_steps(tt_coll_t *coll, tt_run_t *run)
{
    if (run->round < 0) {
        TT_TRY(prepare(coll, run));
        if (run->plan->step_count > 0) {
            memset(coll->step_bytes, 0, (size_t)run->plan->step_count * sizeof(size_t));
        }
        run->round = 0;
    }
    while (run->round < run->plan->rounds) {
        for (int i = 0; i < coll->size && !run->plan->algorithm->needs_shared_memory; i++) {
            coll->links[i].is_blocked_in = coll->links[i].is_blocked_out = false;
        }
        const tutti_status_t status = run_round(coll, run);
        if (status != TUTTI_OK) {
            return status;
        }
        run->round++;
    }
    return TUTTI_OK;
}
