/* Collectives by MPI's own functions: what an MPI knows of its network counts for more than bits,
 * once a group is larger than what exchanges messages well.
 *
 * A rank with several pieces adds them up first, in their order; 16-bit floats go as f32, and are
 * rounded once, by everyone; AVG divides after the sum. MPI chooses the order of its sums, so they
 * are not canonical: another number of ranks may give other bits.
 *
 * Cost: MPI's; a copy of what must be widened.
 */
#include <limits.h>
#include <string.h>

#include "comm/backend/mpi/mpi_impl.h"

static tt_mpi_dtype_t mpi_dtype(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_F64:
        return TT_MPI_F64;
    case TUTTI_I64:
        return TT_MPI_I64;
    case TUTTI_I32:
        return TT_MPI_I32;
    case TUTTI_I8:
        return TT_MPI_I8;
    case TUTTI_U8:
    case TUTTI_BOOL:
        return TT_MPI_U8;
    default: /* the 16-bit floats go as f32 */
        return TT_MPI_F32;
    }
}

static const tt_mpi_reduction_t mpi_reductions[TUTTI_REDUCTION_COUNT] = {
    [TUTTI_SUM] = TT_MPI_SUM,         [TUTTI_AVG] = TT_MPI_SUM, /* divided at the end */
    [TUTTI_PRODUCT] = TT_MPI_PRODUCT, [TUTTI_MIN] = TT_MPI_MIN, [TUTTI_MAX] = TT_MPI_MAX,
    [TUTTI_BAND] = TT_MPI_BAND,       [TUTTI_BOR] = TT_MPI_BOR, [TUTTI_BXOR] = TT_MPI_BXOR,
};

/* Those that tt_mpi_suits_own() lets through. */
static const tt_mpi_collective_t mpi_collectives[TT_COLLECTIVE_COUNT] = {
    [TT_ALL_REDUCE] = TT_MPI_ALL_REDUCE, [TT_REDUCE_SCATTER] = TT_MPI_REDUCE_SCATTER,
    [TT_REDUCE] = TT_MPI_REDUCE,         [TT_ALL_GATHER] = TT_MPI_ALL_GATHER,
    [TT_GATHER] = TT_MPI_GATHER,         [TT_SCATTER] = TT_MPI_SCATTER,
    [TT_ALL_TO_ALL] = TT_MPI_ALL_TO_ALL, [TT_BROADCAST] = TT_MPI_BROADCAST,
    [TT_BARRIER] = TT_MPI_BARRIER,
};

/* Elements of the parts of all ranks. */
static size_t all_elements(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_slice_t last = job->recv[group->size - 1];
    return last.begin + last.count;
}

static bool has_parts(tt_collective_t collective)
{
    return collective == TT_REDUCE_SCATTER || collective == TT_ALL_GATHER ||
           collective == TT_GATHER || collective == TT_SCATTER || collective == TT_ALL_TO_ALL;
}

/* The same on every rank, so it looks at nothing that may differ. */
bool tt_mpi_suits_own(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const bool is_simple =
        call->collective == TT_BROADCAST || call->collective == TT_BARRIER; /* a tree is better */
    if (group->size <= (is_simple ? 2 : group->exchange_max) ||
        (call->collective == TT_ALL_TO_ALL && call->counts != NULL) ||
        tt_collective_is_prefix(call->collective) || /* its bits would depend on the MPI */
        call->reduction == TUTTI_CUSTOM || tt_combine_width(call->reduction) > 1) {
        return false;
    }
    const size_t elements = has_parts(call->collective) ? all_elements(group, job) : call->count;
    if (!tt_collective_reduces(call->collective)) {
        return elements <= INT_MAX / tutti_dtype_bytes(call->dtype);
    }
    for (int rank = 0; rank < group->size; rank++) {
        if (job->piece_counts[rank] == 0) {
            return false; /* MPI has no "nothing" to add */
        }
    }
    return elements <= INT_MAX;
}

static void fill_counts(const tt_mpi_group_t *group, tt_mpi_job_t *job, size_t unit)
{
    for (int rank = 0; rank < group->size; rank++) {
        job->counts[rank] = (int)(job->recv[rank].count * unit);
        job->starts[rank] = (int)(job->recv[rank].begin * unit);
    }
}

/* ---- reductions ---- */

/* A piece in the dtype that is summed. */
static void load_piece(const tt_mpi_group_t *group, const tt_mpi_job_t *job, int piece, void *dst,
                       size_t elements)
{
    const tt_call_t *call = &job->run->call;
    const void *src = job->run->pieces[piece];
    if (tt_combine_dtype(call->dtype) != call->dtype) {
        group->kernels->widen(dst, src, call->dtype, elements);
    } else if (elements > 0) {
        memcpy(dst, src, elements * tutti_dtype_bytes(call->dtype));
    }
}

static void load_pieces(tt_mpi_group_t *group, tt_mpi_job_t *job, size_t elements)
{
    const tt_call_t *call = &job->run->call;
    const tutti_dtype_t dtype = tt_combine_dtype(call->dtype);
    const tutti_reduction_t base = call->reduction == TUTTI_AVG ? TUTTI_SUM : call->reduction;
    char *sum = job->scratch, *next = sum + elements * tutti_dtype_bytes(dtype);
    load_piece(group, job, 0, sum, elements);
    for (int i = 1; i < job->piece_counts[group->rank]; i++) {
        load_piece(group, job, i, next, elements);
        group->kernels->combine[dtype][base](sum, sum, next, elements);
    }
}

/* Divide and round what MPI left at `result`. */
static tutti_status_t finish_reduction(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const tutti_dtype_t dtype = tt_combine_dtype(call->dtype);
    const size_t count =
        call->collective == TT_REDUCE_SCATTER ? job->recv[group->rank].count : call->count;
    const int leaves = call->leaves > 0 ? call->leaves : group->size;
    if (call->collective == TT_REDUCE && group->rank != call->root) {
        return TUTTI_OK;
    }
    void *result = job->result;
    if (call->reduction == TUTTI_AVG) {
        tt_combine_divide(group->kernels, result, dtype, leaves, count);
    }
    if (dtype != call->out_dtype) {
        group->kernels->narrow(call->out, result, call->out_dtype, count);
    } else if (result != call->out && count > 0) {
        memcpy(call->out, result, count * tutti_dtype_bytes(dtype));
    }
    return TUTTI_OK;
}

/* The result lies in out where that is possible, else behind the sum of my pieces. A piece goes as
 * it is where it may, else through scratch: MPI wants no buffer twice, and MPI_IN_PLACE on all
 * ranks or none, which is not known here. */
static tutti_status_t begin_reduction(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const tutti_dtype_t dtype = tt_combine_dtype(call->dtype);
    const bool is_scatter = call->collective == TT_REDUCE_SCATTER;
    const size_t elements = is_scatter ? all_elements(group, job) : call->count;
    const size_t bytes = elements * tutti_dtype_bytes(dtype);
    const bool gets_out = call->collective != TT_REDUCE || group->rank == call->root;
    const bool in_out = gets_out && dtype == call->out_dtype && !is_scatter;
    const bool is_plain = dtype == call->dtype && job->piece_counts[group->rank] == 1 &&
                          job->run->pieces[0] != call->out;
    TT_TRY(tt_mpi_want_scratch(job, 2 * bytes));
    if (!is_plain) {
        load_pieces(group, job, elements);
    }
    job->result = in_out ? call->out : (char *)job->scratch + bytes;
    fill_counts(group, job, 1);
    const tt_mpi_call_t own = {
        .collective = mpi_collectives[call->collective],
        .dtype = mpi_dtype(dtype),
        .reduction = mpi_reductions[call->reduction],
        .send = is_plain ? job->run->pieces[0] : job->scratch,
        .recv = job->result,
        .count = (int)call->count,
        .root = call->root,
        .counts = job->counts,
        .starts = job->starts,
    };
    job->advance = finish_reduction;
    TT_TRY(tt_mpi_post_own(group, job, &own));
    return TUTTI_PENDING;
}

/* ---- moving data, as bytes ---- */

/* Whether my part of the root's buffer is the other buffer. */
static bool is_in_place(const tt_mpi_group_t *group, const tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const size_t begin = job->recv[group->rank].begin * tutti_dtype_bytes(call->dtype);
    const uintptr_t piece = (uintptr_t)job->run->pieces[0], out = (uintptr_t)call->out;
    if (group->rank != call->root) {
        return false;
    }
    return call->collective == TT_GATHER    ? piece == out + begin
           : call->collective == TT_SCATTER ? out == piece + begin
                                            : false;
}

/* What goes out: the piece, or a copy where MPI would see one buffer twice. */
static tutti_status_t choose_source(tt_mpi_group_t *group, tt_mpi_job_t *job, size_t bytes,
                                    const void **out)
{
    const tt_call_t *call = &job->run->call;
    *out = job->run->pieces[0];
    if (call->collective == TT_ALL_GATHER || call->collective == TT_ALL_TO_ALL) {
        const size_t unit = tutti_dtype_bytes(call->dtype);
        const uintptr_t piece = (uintptr_t)*out, whole = (uintptr_t)call->out;
        if (piece >= whole && piece < whole + all_elements(group, job) * unit) {
            TT_TRY(tt_mpi_want_scratch(job, bytes));
            memcpy(job->scratch, *out, bytes);
            *out = job->scratch;
        }
    }
    return TUTTI_OK;
}

static tutti_status_t begin_move(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    const tt_call_t *call = &job->run->call;
    const size_t unit = tutti_dtype_bytes(call->dtype);
    const size_t mine = has_parts(call->collective) ? job->recv[group->rank].count : call->count;
    const bool is_whole = call->collective == TT_ALL_TO_ALL;
    const void *source;
    TT_TRY(choose_source(group, job, unit * (is_whole ? all_elements(group, job) : mine), &source));
    if (call->collective == TT_BROADCAST && group->rank == call->root && call->out != source &&
        call->count > 0) {
        memmove(call->out, source, call->count * unit);
    }
    fill_counts(group, job, unit);
    const tt_mpi_call_t own = {
        .collective = mpi_collectives[call->collective],
        .dtype = TT_MPI_U8,
        .send = source,
        .recv = call->out,
        .in_place = is_in_place(group, job),
        .count = (int)(mine * unit),
        .root = call->root,
        .counts = job->counts,
        .starts = job->starts,
    };
    job->advance = NULL;
    TT_TRY(tt_mpi_post_own(group, job, &own));
    return TUTTI_PENDING;
}

tutti_status_t tt_mpi_own(tt_mpi_group_t *group, tt_mpi_job_t *job)
{
    return tt_collective_reduces(job->run->call.collective) ? begin_reduction(group, job)
                                                            : begin_move(group, job);
}
