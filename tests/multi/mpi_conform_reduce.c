/* Reductions of mpi_conform: every dtype, reduction, spread of leaves. */
#include "mpi_conform.h"

#include "core/kernel/reduce/tree_reduce.h"

/* A contribution: element i of leaf (or sender) v. */
static double value_of(tutti_dtype_t dtype, tutti_reduction_t op, int v, size_t i)
{
    const unsigned mix = (unsigned)(i * 7 + (size_t)v * 13 + i / 11);
    if (dtype == TUTTI_BOOL) {
        return mix % 3 != 0;
    }
    if (op == TUTTI_PRODUCT) {
        return v < 6 ? 1 + mix % 2 : 1;
    }
    return dtype == TUTTI_U8 ? mix % 5 : (double)(mix % 7) - 3;
}

static double combine(tutti_reduction_t op, double a, double b)
{
    switch (op) {
    case TUTTI_PRODUCT:
        return a * b;
    case TUTTI_MIN:
        return a < b ? a : b;
    case TUTTI_MAX:
        return a > b ? a : b;
    case TUTTI_BAND:
        return (double)((int64_t)a & (int64_t)b);
    case TUTTI_BOR:
        return (double)((int64_t)a | (int64_t)b);
    case TUTTI_BXOR:
        return (double)((int64_t)a ^ (int64_t)b);
    default:
        return a + b;
    }
}

static double reduced(tutti_dtype_t dtype, tutti_reduction_t op, int begin, int end, size_t i)
{
    double sum = value_of(dtype, op, begin, i);
    for (int v = begin + 1; v < end; v++) {
        sum = combine(op, sum, value_of(dtype, op, v, i));
    }
    return sum;
}

static double average(tutti_dtype_t dtype, double sum, int leaves)
{
    return dtype == TUTTI_F64 ? sum / leaves : (double)((float)sum / (float)leaves);
}

/* ---- reductions ---- */

typedef struct {
    tt_collective_t collective;
    tutti_dtype_t dtype;
    tutti_reduction_t op;
    size_t count;
    int leaves, root;
    const int *first;
    const size_t *counts;
    bool in_place;
} reduction_t;

/* This rank's pieces, one after the other in a buffer; returns how many. */
static int fill_pieces(const group_t *group, const reduction_t *r, size_t elements,
                       const void **pieces)
{
    const int leaves = r->leaves > 0 ? r->leaves : group->size;
    const int begin = r->first != NULL ? r->first[group->rank]
                                       : tt_tree_first_leaf(leaves, group->size, group->rank);
    const int end = r->first != NULL ? r->first[group->rank + 1]
                                     : tt_tree_first_leaf(leaves, group->size, group->rank + 1);
    tt_leaves_t spans[TT_TREE_DEPTH_MAX];
    const int count = begin < end ? tt_tree_pieces(leaves, begin, end, spans) : 0;
    for (int p = 0; p < count; p++) {
        char *piece = buffers[0] + (size_t)p * elements * bytes_of(r->dtype);
        CHECK(piece + elements * bytes_of(r->dtype) <= buffers[0] + ROOM, "room");
        for (size_t i = 0; i < elements; i++) {
            const double sum = reduced(r->dtype, r->op, spans[p].begin, spans[p].end, i);
            set(r->dtype, piece, i, sum);
        }
        pieces[p] = piece;
    }
    return count;
}

static size_t part_begin(const reduction_t *r, int rank)
{
    size_t begin = 0;
    for (int i = 0; i < rank; i++) {
        begin += r->counts != NULL ? r->counts[i] : r->count;
    }
    return begin;
}

static void try_reduction(const group_t *group, const reduction_t *r)
{
    const void *pieces[TT_TREE_DEPTH_MAX];
    const bool is_scatter = r->collective == TT_REDUCE_SCATTER;
    const size_t begin = is_scatter ? part_begin(r, group->rank) : 0;
    const size_t count = is_scatter ? part_begin(r, group->rank + 1) - begin : r->count;
    const size_t elements = is_scatter ? part_begin(r, group->size) : r->count;
    const tt_plan_request_t request = {.collective = r->collective, .size = group->size};
    const int leaves = r->leaves > 0 ? r->leaves : tt_plan_contributors(&request, group->rank);
    const bool gets = (r->collective != TT_REDUCE || group->rank == r->root) && leaves > 0;
    poison();
    const int piece_count = fill_pieces(group, r, elements, pieces);
    char *out = !gets                            ? NULL
                : r->in_place && piece_count > 0 ? buffers[0] + begin * bytes_of(r->dtype)
                                                 : buffers[1];
    perform(group, &(tt_call_t){.collective = r->collective,
                                .reduction = r->op,
                                .dtype = r->dtype,
                                .out_dtype = r->dtype,
                                .count = r->count,
                                .counts = r->counts,
                                .root = r->root,
                                .leaves = r->leaves,
                                .first = r->first,
                                .pieces = pieces,
                                .piece_count = piece_count,
                                .out = out});
    for (size_t i = 0; i < count && gets; i++) {
        const double sum = reduced(r->dtype, r->op, 0, leaves, begin + i);
        expect(tt_collective_name(r->collective), r->dtype, out, i,
               r->op == TUTTI_AVG ? average(r->dtype, sum, leaves) : sum);
    }
    if (out == buffers[1]) {
        expect_untouched(tt_collective_name(r->collective), r->dtype, out, count);
    }
}

static bool makes_sense(tutti_dtype_t dtype, tutti_reduction_t op)
{
    return tt_combine_width(op) == 1 && tt_combine_check("conform", dtype, op) == TUTTI_OK;
}

static void try_leaves(const group_t *group, reduction_t r)
{
    int first[LEAVES_MAX + 1];
    r.leaves = 2 * group->size + 3;
    try_reduction(group, &r);
    first[0] = 0;
    for (int rank = 1; rank <= group->size; rank++) { /* the last rank has them all */
        first[rank] = rank == group->size ? r.leaves : 0;
    }
    r.first = first;
    try_reduction(group, &r);
}

static void try_counts(const group_t *group, reduction_t r)
{
    size_t counts[LEAVES_MAX];
    for (int rank = 0; rank < group->size; rank++) {
        counts[rank] = r.count * (size_t)(rank % 3) + (size_t)rank;
    }
    r.counts = counts;
    try_reduction(group, &r);
}

/* `is_short`: a fifth of them, another one for each dtype and reduction. */
void try_reductions(const group_t *group, bool is_short)
{
    static const size_t counts[] = {0, 1, 7, 130, 1000, 4099};
    static const tt_collective_t all[] = {TT_ALL_REDUCE, TT_REDUCE, TT_REDUCE_SCATTER, TT_SCAN,
                                          TT_EXSCAN};
    for (int d = 0; d < TUTTI_DTYPE_COUNT; d++) {
        for (int op = 0; op < TUTTI_REDUCTION_COUNT; op++) {
            for (size_t c = is_short ? (size_t)(d + op) % 5 : 0;
                 c < 5 * 6 && makes_sense((tutti_dtype_t)d, (tutti_reduction_t)op);
                 c += is_short ? 5 : 1) {
                reduction_t r = {.collective = all[c / 6],
                                 .dtype = (tutti_dtype_t)d,
                                 .op = (tutti_reduction_t)op,
                                 .count = counts[c % 6],
                                 .root = (int)c % group->size};
                try_reduction(group, &r);
                r.in_place = true;
                try_reduction(group, &r);
                if (!tt_collective_is_prefix(r.collective)) {
                    try_leaves(group, r);
                }
                if (r.collective == TT_REDUCE_SCATTER) {
                    try_counts(group, r);
                }
            }
        }
    }
}

/* f32 pieces that become a 16-bit float, rounded once. */
void try_widened(const group_t *group)
{
    enum { COUNT = 777 };
    poison();
    for (size_t i = 0; i < COUNT; i++) {
        set(TUTTI_F32, buffers[0], i, (double)i + group->rank * 0.25);
    }
    perform(group, &(tt_call_t){.collective = TT_ALL_REDUCE,
                                .dtype = TUTTI_F32,
                                .out_dtype = TUTTI_BF16,
                                .count = COUNT,
                                .pieces = (const void *[]){buffers[0]},
                                .piece_count = 1,
                                .out = buffers[1]});
    for (size_t i = 0; i < COUNT; i++) {
        const double n = group->size;
        expect("widened", TUTTI_BF16, buffers[1], i, (double)i * n + n * (n - 1) / 2 * 0.25);
    }
}

/* Random floats: the bits of the canonical tree over all ranks' contributions. */
void try_canonical(const group_t *group)
{
    enum { COUNT = 5001 };
    const void *sources[LEAVES_MAX];
    unsigned char merges[LEAVES_MAX];
    tt_leaves_t spans[LEAVES_MAX];
    float *mine = (float *)(void *)buffers[0], *all = (float *)(void *)buffers[1];
    for (int v = 0; v < group->size; v++) {
        for (size_t i = 0; i < COUNT; i++) {
            const float x = (float)((double)((i * 2654435761U + (size_t)v * 40503U) % 100003) /
                                    (v == 1 ? 7.0 : 70001.0));
            all[(size_t)v * COUNT + i] = x;
            mine[i] = v == group->rank ? x : mine[i];
        }
        sources[v] = all + (size_t)v * COUNT;
        spans[v] = (tt_leaves_t){v, v + 1};
    }
    int depth = 0;
    CHECK(tt_tree_compile(group->size, spans, group->size, merges, &depth), "tree");
    void *scratch = malloc(tt_tree_reduce_scratch_bytes(depth));
    const tt_tree_reduce_t job = {.kernels = tt_combine_kernels(),
                                  .leaves = group->size,
                                  .source_count = group->size,
                                  .sources = sources,
                                  .merges = merges,
                                  .dst_count = 1,
                                  .dst = (void *const[]){buffers[2]},
                                  .scratch = scratch};
    tt_tree_reduce(&job, 0, COUNT);
    free(scratch);
    perform(group, &(tt_call_t){.collective = TT_ALL_REDUCE,
                                .count = COUNT,
                                .pieces = (const void *[]){mine},
                                .piece_count = 1,
                                .out = mine});
    CHECK(memcmp(mine, buffers[2], COUNT * 4) == 0, "not the canonical sum");
}
