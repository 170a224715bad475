/* Reductions of leaves: more contributions than ranks, spread in any way. */
#include "comm/group/group_impl.h"

#include "core/kernel/elementwise/combine.h"
#include "core/kernel/reduce/tree.h"

_Static_assert(TUTTI_CONTRIBUTION_PIECES_MAX == (int)TT_TREE_DEPTH_MAX, "one limit");
_Static_assert(sizeof(tutti_contribution_span_t) == sizeof(tt_leaves_t), "one layout");

static size_t numel(const tutti_tensor_t *x)
{
    return (size_t)tutti_tensor_numel(x);
}

int tutti_contribution_pieces(int leaves, int begin, int end, tutti_contribution_span_t *pieces)
{
    tt_leaves_t spans[TT_TREE_DEPTH_MAX];
    const int count = tt_tree_pieces(leaves, begin, end, spans);
    for (int i = 0; pieces != NULL && i < count; i++) {
        pieces[i] = (tutti_contribution_span_t){spans[i].begin, spans[i].end};
    }
    return count;
}

/* The leaf map of all ranks is checked when the plan is made; here, that this rank's pieces are
 * those of its interval. */
tutti_status_t tt_group_check_leaves(const char *name, const tutti_group_t *group,
                                     const tutti_contributions_t *leaves)
{
    if (leaves->count < 1 || leaves->count > TT_TREE_LEAVES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %d leaves; want 1 to %d", name, leaves->count,
                       TT_TREE_LEAVES_MAX);
    }
    const int rank = group->rank, size = group->size;
    const int begin =
        leaves->first != NULL ? leaves->first[rank] : tt_tree_first_leaf(leaves->count, size, rank);
    const int end = leaves->first != NULL ? leaves->first[rank + 1]
                                          : tt_tree_first_leaf(leaves->count, size, rank + 1);
    if (begin < 0 || begin > end || end > leaves->count) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d hosts leaves [%d, %d) of %d", name, rank, begin,
                       end, leaves->count);
    }
    const int want = tt_tree_pieces(leaves->count, begin, end, NULL);
    if (leaves->piece_count != want) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: rank %d passed %d pieces; leaves [%d, %d) of %d have %d "
                       "(tutti_contribution_pieces)",
                       name, rank, leaves->piece_count, begin, end, leaves->count, want);
    }
    return TUTTI_OK;
}

/* ---- this rank's part ------------------------------------------------------------------------ */

/* Elements: of what a rank passes, of that before this rank's part, and of a part. */
typedef struct {
    size_t all, before, count;
    const size_t *counts; /* [size] of each part; NULL: even */
} parts_t;

static tutti_status_t measure_uneven(tutti_group_t *group, const tt_request_t *request,
                                     parts_t *parts)
{
    const char *name = tt_collective_name(request->collective);
    const tutti_tensor_t *out = request->output;
    const int64_t *rows = request->input_counts;
    size_t *counts = request->counts;
    TT_WANT(name, rows);
    if (tutti_tensor_rank(out) == 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: the result is a scalar, which has no rows", name);
    }
    TT_TRY(tt_group_take_counts(group, &counts));
    tutti_shape_t row = tutti_tensor_shape(out);
    row.dims[0] = 1;
    for (int i = 0; i < group->size; i++) {
        if (rows[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: counts[%d] is %lld", name, i, (long long)rows[i]);
        }
        counts[i] = (size_t)rows[i] * (size_t)tutti_shape_numel(row);
        parts->before += i < group->rank ? counts[i] : 0;
        parts->all += counts[i];
    }
    if (tutti_tensor_dim(out, 0) != rows[group->rank]) {
        char text[128];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: the result %s must have %lld rows, as the counts say of this rank",
                       name, tutti_tensor_describe(out, text, sizeof text),
                       (long long)rows[group->rank]);
    }
    parts->counts = counts;
    parts->count = parts->all / (size_t)group->size; /* what stands for the call: the same on all */
    return TUTTI_OK;
}

static tutti_status_t measure_parts(tutti_group_t *group, const tt_request_t *request,
                                    parts_t *parts)
{
    const size_t count = numel(request->output);
    *parts = (parts_t){.all = count, .count = count};
    if (request->is_uneven) {
        parts->all = 0;
        return measure_uneven(group, request, parts);
    }
    if (request->collective == TT_REDUCE_SCATTER) {
        parts->all = count * (size_t)group->size;
        parts->before = count * (size_t)group->rank;
    }
    return TUTTI_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static tutti_status_t check_pieces(const char *name, const tutti_contributions_t *leaves,
                                   const tutti_tensor_t *out, size_t elements)
{
    const bool is_widened =
        leaves->dtype == TUTTI_F32 && tt_combine_dtype(tutti_tensor_dtype(out)) == TUTTI_F32;
    if (leaves->dtype != tutti_tensor_dtype(out) && !is_widened) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: pieces of %s cannot become %s", name,
                       tutti_dtype_name(leaves->dtype), tutti_dtype_name(tutti_tensor_dtype(out)));
    }
    for (int i = 0; i < leaves->piece_count; i++) {
        const tutti_tensor_t *piece = leaves->pieces[i];
        char text[128];
        TT_TRY(tt_group_check_tensor(name, "a piece", piece));
        if (tutti_tensor_dtype(piece) != leaves->dtype || numel(piece) != elements) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "%s: piece %d is %s, want %s of %zu elements", name, i,
                           tutti_tensor_describe(piece, text, sizeof text),
                           tutti_dtype_name(leaves->dtype), elements);
        }
    }
    return TUTTI_OK;
}

/* Pieces are read while the result is written: only an element that is read by nobody but its own
 * sum may be written over. Pieces may share memory with each other. */
static tutti_status_t check_overlap(const tutti_group_t *group, const tt_request_t *request,
                                    const parts_t *parts)
{
    const tutti_contributions_t *leaves = request->leaves;
    const tutti_tensor_t *out = request->output;
    const bool is_scatter = request->collective == TT_REDUCE_SCATTER;
    const size_t own = parts->before * tutti_dtype_bytes(leaves->dtype);
    for (int i = 0; i < leaves->piece_count; i++) {
        const tutti_tensor_t *piece = leaves->pieces[i];
        const bool is_own =
            (const char *)tutti_tensor_data(piece) + own == (const char *)tutti_tensor_data(out) &&
            leaves->dtype == tutti_tensor_dtype(out);
        if (!is_own && tt_tensors_overlap(piece, out)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: the result of rank %d overlaps pieces[%d]; it may be %s, of the "
                           "same dtype, or apart from it",
                           tt_collective_name(request->collective), group->rank, i,
                           is_scatter ? "this rank's part of the piece" : "the whole piece");
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_group_describe_leaves(tutti_group_t *group, const tt_request_t *request,
                                        tt_described_t *out)
{
    const tt_collective_t collective = request->collective;
    const char *name = tt_collective_name(collective);
    const tutti_contributions_t *leaves = request->leaves;
    tutti_tensor_t *x = request->output;
    TT_WANT(name, group);
    TT_WANT(name, leaves);
    TT_TRY(tt_group_check_tensor(name, "the result", x));
    TT_TRY(tt_group_check_leaves(name, group, leaves));
    parts_t parts;
    TT_TRY(measure_parts(group, request, &parts));
    TT_TRY(check_pieces(name, leaves, x, parts.all));
    TT_TRY(check_overlap(group, request, &parts));
    out->tensors[0] = x;
    for (int i = 0; i < leaves->piece_count; i++) {
        out->pieces[i] = tutti_tensor_data(leaves->pieces[i]);
        out->tensors[1 + i] = leaves->pieces[i];
    }
    out->start = (tt_start_t){
        .tensors = out->tensors, .tensor_count = 1 + leaves->piece_count, .writes_first = true};
    out->start.call = (tt_call_t){.collective = collective,
                                  .reduction = request->op,
                                  .dtype = leaves->dtype,
                                  .out_dtype = tutti_tensor_dtype(x),
                                  .count = parts.count,
                                  .counts = parts.counts,
                                  .leaves = leaves->count,
                                  .first = leaves->first,
                                  .pieces = out->pieces,
                                  .piece_count = leaves->piece_count,
                                  .out = tutti_tensor_data(x),
                                  .site = request->site};
    return tt_combine_check_part(name, tutti_tensor_dtype(x), request->op, numel(x));
}

tutti_status_t tt_group_reduce_leaves(tutti_group_t *group, const tt_request_t *request,
                                      tutti_work_t **work)
{
    tt_described_t described;
    TT_TRY(tt_group_describe_leaves(group, request, &described));
    return tt_group_start(group, &described.start, work);
}
