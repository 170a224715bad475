/* The calls of a group: arguments are checked here, then described to the backend. */
#include "comm/group/group_impl.h"

#include "core/kernel/combine.h"
#include "core/kernel/tree.h"

_Static_assert(TUTTI_LEAF_PIECES_MAX == (int)TT_TREE_DEPTH_MAX, "one limit");
_Static_assert(sizeof(tutti_leaf_span_t) == sizeof(tt_leaves_t), "one layout");

static tutti_status_t check_tensor(const char *call, const char *name, const tutti_tensor_t *x)
{
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is NULL", call, name);
    }
    if (tutti_tensor_status(x) < 0) {
        return tutti_tensor_status(x);
    }
    if (!tutti_tensor_is_contiguous(x)) {
        char text[128];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s %s is not contiguous; clone it", call, name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    return TUTTI_OK;
}

static size_t numel(const tutti_tensor_t *x)
{
    return (size_t)tutti_tensor_numel(x);
}

/* One tensor has `times` as many elements as the other, of the same dtype. */
static tutti_status_t check_pair(const char *call, const tutti_tensor_t *whole,
                                 const char *whole_name, const tutti_tensor_t *part,
                                 const char *part_name, int times)
{
    char a[128], b[128];
    if (tutti_tensor_dtype(whole) != tutti_tensor_dtype(part)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: %s %s and %s %s must have one dtype", call, whole_name,
                       tutti_tensor_describe(whole, a, sizeof a), part_name,
                       tutti_tensor_describe(part, b, sizeof b));
    }
    if (numel(whole) != numel(part) * (size_t)times) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: %s %s must have %d times the elements of %s %s, once for each rank",
                       call, whole_name, tutti_tensor_describe(whole, a, sizeof a), times,
                       part_name, tutti_tensor_describe(part, b, sizeof b));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_all_reduce(tutti_group_t *group, tutti_tensor_t *x, tutti_reduction_t op,
                                tutti_work_t **work)
{
    TT_TRY(check_tensor("all_reduce", "x", x));
    TT_TRY(tt_combine_check("all_reduce", tutti_tensor_dtype(x), op));
    void *data = tutti_tensor_data(x);
    tt_call_t call = {.collective = TT_ALL_REDUCE,
                      .reduction = op,
                      .dtype = tutti_tensor_dtype(x),
                      .out_dtype = tutti_tensor_dtype(x),
                      .count = numel(x),
                      .pieces = (const void *[]){data},
                      .piece_count = 1,
                      .out = data};
    return tt_group_call(group, &call, &x, 1, work);
}

tutti_status_t tutti_reduce_scatter(tutti_group_t *group, tutti_tensor_t *output,
                                    tutti_tensor_t *input, tutti_reduction_t op,
                                    tutti_work_t **work)
{
    const char *name = "reduce_scatter";
    TT_TRY(check_tensor(name, "output", output));
    TT_TRY(check_tensor(name, "input", input));
    TT_TRY(tt_combine_check(name, tutti_tensor_dtype(input), op));
    TT_TRY(check_pair(name, input, "input", output, "output", group->size));
    tt_call_t call = {.collective = TT_REDUCE_SCATTER,
                      .reduction = op,
                      .dtype = tutti_tensor_dtype(input),
                      .out_dtype = tutti_tensor_dtype(output),
                      .count = numel(output),
                      .pieces = (const void *[]){tutti_tensor_data(input)},
                      .piece_count = 1,
                      .out = tutti_tensor_data(output)};
    return tt_group_call(group, &call, (tutti_tensor_t *[]){output, input}, 2, work);
}

tutti_status_t tutti_all_gather(tutti_group_t *group, tutti_tensor_t *output, tutti_tensor_t *input,
                                tutti_work_t **work)
{
    const char *name = "all_gather";
    TT_TRY(check_tensor(name, "output", output));
    TT_TRY(check_tensor(name, "input", input));
    TT_TRY(check_pair(name, output, "output", input, "input", group->size));
    tt_call_t call = {.collective = TT_ALL_GATHER,
                      .dtype = tutti_tensor_dtype(input),
                      .out_dtype = tutti_tensor_dtype(output),
                      .count = numel(input),
                      .pieces = (const void *[]){tutti_tensor_data(input)},
                      .piece_count = 1,
                      .out = tutti_tensor_data(output)};
    return tt_group_call(group, &call, (tutti_tensor_t *[]){output, input}, 2, work);
}

tutti_status_t tutti_broadcast(tutti_group_t *group, tutti_tensor_t *x, int root,
                               tutti_work_t **work)
{
    TT_TRY(check_tensor("broadcast", "x", x));
    if (root < 0 || root >= group->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "broadcast: root %d is outside group %s of %d ranks", root,
                       group->name, group->size);
    }
    void *data = tutti_tensor_data(x);
    tt_call_t call = {.collective = TT_BROADCAST,
                      .dtype = tutti_tensor_dtype(x),
                      .out_dtype = tutti_tensor_dtype(x),
                      .count = numel(x),
                      .root = root,
                      .pieces = (const void *[]){data},
                      .piece_count = 1,
                      .out = data};
    return tt_group_call(group, &call, &x, 1, work);
}

tutti_status_t tutti_barrier(tutti_group_t *group, tutti_work_t **work)
{
    tt_call_t call = {.collective = TT_BARRIER};
    return tt_group_call(group, &call, NULL, 0, work);
}

int tutti_leaf_pieces(int leaves, int begin, int end, tutti_leaf_span_t *pieces)
{
    tt_leaves_t spans[TT_TREE_DEPTH_MAX];
    const int count = tt_tree_pieces(leaves, begin, end, spans);
    for (int i = 0; pieces != NULL && i < count; i++) {
        pieces[i] = (tutti_leaf_span_t){spans[i].begin, spans[i].end};
    }
    return count;
}

/* The leaf map of all ranks is checked when the plan is made; here, that this rank's pieces are
 * those of its interval. */
static tutti_status_t check_leaves(const char *name, const tutti_group_t *group,
                                   const tutti_leaves_t *leaves)
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
                       "(tutti_leaf_pieces)",
                       name, rank, leaves->piece_count, begin, end, leaves->count, want);
    }
    return TUTTI_OK;
}

static tutti_status_t check_pieces(const char *name, const tutti_leaves_t *leaves,
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
        TT_TRY(check_tensor(name, "a piece", piece));
        if (tutti_tensor_dtype(piece) != leaves->dtype || numel(piece) != elements) {
            return TT_FAIL(TUTTI_ERR_SHAPE, "%s: piece %d is %s, want %s of %zu elements", name, i,
                           tutti_tensor_describe(piece, text, sizeof text),
                           tutti_dtype_name(leaves->dtype), elements);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t call_with_leaves(tutti_group_t *group, tt_collective_t collective,
                                       const tutti_leaves_t *leaves, tutti_tensor_t *out,
                                       tutti_reduction_t op, tutti_work_t **work)
{
    const char *name = tt_collective_name(collective);
    TT_TRY(check_tensor(name, "the result", out));
    TT_TRY(tt_combine_check(name, tutti_tensor_dtype(out), op));
    TT_TRY(check_leaves(name, group, leaves));
    const size_t count = numel(out);
    TT_TRY(check_pieces(name, leaves, out,
                        collective == TT_REDUCE_SCATTER ? count * (size_t)group->size : count));
    const void *pieces[TUTTI_LEAF_PIECES_MAX];
    tutti_tensor_t *tensors[TUTTI_LEAF_PIECES_MAX + 1] = {out};
    for (int i = 0; i < leaves->piece_count; i++) {
        pieces[i] = tutti_tensor_data(leaves->pieces[i]);
        tensors[1 + i] = leaves->pieces[i];
    }
    tt_call_t call = {.collective = collective,
                      .reduction = op,
                      .dtype = leaves->dtype,
                      .out_dtype = tutti_tensor_dtype(out),
                      .count = count,
                      .leaves = leaves->count,
                      .first = leaves->first,
                      .pieces = pieces,
                      .piece_count = leaves->piece_count,
                      .out = tutti_tensor_data(out)};
    return tt_group_call(group, &call, tensors, 1 + leaves->piece_count, work);
}

tutti_status_t tutti_all_reduce_leaves(tutti_group_t *group, const tutti_leaves_t *leaves,
                                       tutti_tensor_t *x, tutti_reduction_t op, tutti_work_t **work)
{
    return call_with_leaves(group, TT_ALL_REDUCE, leaves, x, op, work);
}

tutti_status_t tutti_reduce_scatter_leaves(tutti_group_t *group, const tutti_leaves_t *leaves,
                                           tutti_tensor_t *output, tutti_reduction_t op,
                                           tutti_work_t **work)
{
    return call_with_leaves(group, TT_REDUCE_SCATTER, leaves, output, op, work);
}
