/* Conformance of the collectives in all their forms: even, uneven, lists; every root. */
#include <string.h>

#include "conform_impl.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/combine.h"
#include "core/kernel/reduce/tree_reduce.h"

/* ---- reductions ---- */

static double factor_of(int rank)
{
    return 0.75 * rank - 0.5;
}

/* What rank contributes, as the sum takes it. */
static void *contribution(const tt_conform_at_t *at, size_t count, int rank, bool scales)
{
    void *data = tt_conform_room(tt_conform_bytes_of(at, count));
    tt_conform_fill(data, at->dtype, 0, count, rank);
    if (!scales) {
        return data;
    }
    void *scaled = tt_conform_room(count * tutti_dtype_bytes(tt_combine_dtype(at->dtype)));
    tt_combine_scale(scaled, data, at->dtype, factor_of(rank), count);
    tt_free(data);
    return scaled;
}

/* The reduction of all ranks' elements [0, count), by the kernels' tree in one process. */
static void *reference(const tt_conform_at_t *at, size_t count, int ranks, bool scales)
{
    void *sources[TT_CONFORM_RANKS_MAX], *out = tt_conform_room(tt_conform_bytes_of(at, count));
    tt_leaves_t spans[TT_CONFORM_RANKS_MAX];
    unsigned char merges[TT_CONFORM_RANKS_MAX];
    int depth;
    for (int rank = 0; rank < ranks; rank++) {
        sources[rank] = contribution(at, count, rank, scales);
        spans[rank] = (tt_leaves_t){rank, rank + 1};
    }
    (void)tt_tree_compile(ranks, spans, ranks, merges, &depth);
    void *scratch = tt_conform_room(tt_tree_reduce_scratch_bytes(depth));
    const tt_tree_reduce_t job = {.kernels = tt_combine_kernels(),
                                  .src_dtype = scales ? tt_combine_dtype(at->dtype) : at->dtype,
                                  .dst_dtype = at->dtype,
                                  .reduction = scales ? TUTTI_SUM : at->op,
                                  .custom = at->custom,
                                  .leaves = ranks,
                                  .source_count = ranks,
                                  .sources = (const void *const *)sources,
                                  .merges = merges,
                                  .dst_count = 1,
                                  .dst = &out,
                                  .scratch = scratch};
    tt_tree_reduce(&job, 0, count);
    tt_free(scratch);
    for (int rank = 0; rank < ranks; rank++) {
        tt_free(sources[rank]);
    }
    return out;
}

void *tt_conform_reference(const tt_conform_at_t *at, size_t count, bool scales)
{
    return reference(at, count, at->size, scales);
}

void *tt_conform_prefix(const tt_conform_at_t *at, size_t count, int ranks)
{
    return reference(at, count, ranks, false);
}

/* Rows of rank's part when parts are uneven; some have none. */
static size_t part_of(const tt_conform_at_t *at, int rank)
{
    const size_t width = (size_t)tt_combine_width(at->op); /* pairs stay whole */
    return (at->count / width * (size_t)(rank % 3) / 2 + (size_t)(rank == 1)) * width;
}

static size_t fill_counts(const tt_conform_at_t *at, int64_t *counts, size_t *begin)
{
    size_t all = 0;
    for (int i = 0; i < at->size; i++) {
        *begin = i == at->rank ? all : *begin;
        counts[i] = (int64_t)part_of(at, i);
        all += part_of(at, i);
    }
    return all;
}

void tt_conform_check_all_reduce(const tt_conform_at_t *at)
{
    void *want = tt_conform_reference(at, at->count, false);
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, "all_reduce", tutti_all_reduce(at->group, x, at->op, NULL));
    tt_conform_bytes(at, "all_reduce", tt_conform_data(x), want,
                     tt_conform_bytes_of(at, at->count));
    tt_conform_fill(tt_conform_data(x), at->dtype, 0, at->count, at->rank);
    tt_conform_ok(at, "reduce", tutti_reduce(at->group, x, at->op, at->root, NULL));
    if (at->rank == at->root) {
        tt_conform_bytes(at, "reduce", tt_conform_data(x), want,
                         tt_conform_bytes_of(at, at->count));
    } else {
        tt_conform_elements(at, "reduce leaves the others' x", tt_conform_data(x), 0, at->count,
                            at->rank);
    }
    tutti_tensor_release(x);
    tt_free(want);
}

static void expect_prefix(const tt_conform_at_t *at, const char *what, const tutti_tensor_t *x,
                          int ranks)
{
    if (ranks == 0) {
        tt_conform_elements(at, what, tt_conform_data(x), 0, at->count, at->rank);
        return;
    }
    void *want = tt_conform_prefix(at, at->count, ranks);
    tt_conform_bytes(at, what, tt_conform_data(x), want, tt_conform_bytes_of(at, at->count));
    tt_free(want);
}

void tt_conform_check_scan(const tt_conform_at_t *at)
{
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, "scan", tutti_scan(at->group, x, at->op, NULL));
    expect_prefix(at, "scan", x, at->rank + 1);
    tt_conform_fill(tt_conform_data(x), at->dtype, 0, at->count, at->rank);
    tt_conform_ok(at, "exscan", tutti_exscan(at->group, x, at->op, NULL));
    expect_prefix(at, "exscan", x, at->rank);
    tutti_tensor_release(x);
}

void tt_conform_check_reduce_scatter(const tt_conform_at_t *at)
{
    const size_t all = at->count * (size_t)at->size;
    char *want = tt_conform_reference(at, all, false);
    const char *part = want + tt_conform_bytes_of(at, at->count) * (size_t)at->rank;
    tutti_tensor_t *x = tt_conform_make(at, at->count), *input = tt_conform_make_filled(at, all);
    tt_conform_ok(at, "reduce_scatter", tutti_reduce_scatter(at->group, x, input, at->op, NULL));
    tt_conform_bytes(at, "reduce_scatter", tt_conform_data(x), part,
                     tt_conform_bytes_of(at, at->count));
    tt_conform_elements(at, "reduce_scatter leaves its input", tt_conform_data(input), 0, all,
                        at->rank);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

static void split_list(const tt_conform_at_t *at, const int64_t *counts, tutti_tensor_t **list,
                       int rank)
{
    size_t begin = 0;
    for (int i = 0; i < at->size; i++) {
        list[i] = tt_conform_make(at, (size_t)counts[i]);
        tt_conform_fill(tt_conform_data(list[i]), at->dtype, begin, (size_t)counts[i], rank);
        begin += (size_t)counts[i];
    }
}

static void release_list(const tt_conform_at_t *at, tutti_tensor_t **list)
{
    for (int i = 0; i < at->size; i++) {
        tutti_tensor_release(list[i]);
    }
}

void tt_conform_check_reduce_scatter_uneven(const tt_conform_at_t *at)
{
    int64_t counts[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *list[TT_CONFORM_RANKS_MAX];
    size_t begin = 0;
    const size_t all = fill_counts(at, counts, &begin), mine = (size_t)counts[at->rank];
    char *want = tt_conform_reference(at, all, false);
    tutti_tensor_t *x = tt_conform_make(at, mine), *input = tt_conform_make_filled(at, all);
    tt_conform_ok(at, "reduce_scatter_uneven",
                  tutti_reduce_scatter_uneven(at->group, x, input, counts, at->op, NULL));
    tt_conform_bytes(at, "reduce_scatter_uneven", tt_conform_data(x),
                     want + tt_conform_bytes_of(at, begin), tt_conform_bytes_of(at, mine));
    split_list(at, counts, list, at->rank);
    (void)memset(tt_conform_data(x), 0, tt_conform_bytes_of(at, mine));
    tt_conform_ok(at, "reduce_scatter_list",
                  tutti_reduce_scatter_list(at->group, x, list, at->op, NULL));
    tt_conform_bytes(at, "reduce_scatter_list", tt_conform_data(x),
                     want + tt_conform_bytes_of(at, begin), tt_conform_bytes_of(at, mine));
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

void tt_conform_check_premul(const tt_conform_at_t *at)
{
    const double factor = factor_of(at->rank);
    const tutti_reduce_options_t options = {.factor = &factor, .root = at->root};
    const size_t all = at->count * (size_t)at->size, bytes = tt_conform_bytes_of(at, at->count);
    char *want = tt_conform_reference(at, all, true);
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count),
                   *input = tt_conform_make_filled(at, all);
    tt_conform_ok(at, "premul all_reduce",
                  tutti_all_reduce_with(at->group, x, TUTTI_PREMUL_SUM, &options, NULL));
    tt_conform_bytes(at, "premul all_reduce", tt_conform_data(x), want, bytes);
    tt_conform_fill(tt_conform_data(x), at->dtype, 0, at->count, at->rank);
    tt_conform_ok(at, "premul reduce",
                  tutti_reduce_with(at->group, x, TUTTI_PREMUL_SUM, &options, NULL));
    if (at->rank == at->root) {
        tt_conform_bytes(at, "premul reduce", tt_conform_data(x), want, bytes);
    }
    tt_conform_ok(at, "premul reduce_scatter",
                  tutti_reduce_scatter_with(at->group, x, input, TUTTI_PREMUL_SUM, &options, NULL));
    tt_conform_bytes(at, "premul reduce_scatter", tt_conform_data(x),
                     want + bytes * (size_t)at->rank, bytes);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

/* ---- copies ---- */

void tt_conform_check_broadcast(const tt_conform_at_t *at)
{
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count);
    tt_conform_ok(at, "broadcast", tutti_broadcast(at->group, x, at->root, NULL));
    tt_conform_elements(at, "broadcast", tt_conform_data(x), 0, at->count, at->root);
    tutti_tensor_release(x);
}

/* Parts of all ranks, one after the other: rank r's first elements. */
static void expect_parts(const tt_conform_at_t *at, const char *what, const char *got,
                         const int64_t *counts)
{
    for (int rank = 0; rank < at->size; rank++) {
        const size_t count = counts != NULL ? (size_t)counts[rank] : at->count;
        tt_conform_elements(at, what, got, 0, count, rank);
        got += tt_conform_bytes_of(at, count);
    }
}

static void expect_list(const tt_conform_at_t *at, const char *what, tutti_tensor_t *const *list)
{
    for (int rank = 0; rank < at->size; rank++) {
        tt_conform_elements(at, what, tt_conform_data(list[rank]), 0,
                            (size_t)tutti_tensor_numel(list[rank]), rank);
    }
}

static void make_list(const tt_conform_at_t *at, tutti_tensor_t **list, const int64_t *counts)
{
    for (int i = 0; i < at->size; i++) {
        list[i] = tt_conform_make(at, counts != NULL ? (size_t)counts[i] : at->count);
    }
}

void tt_conform_check_all_gather(const tt_conform_at_t *at)
{
    tutti_tensor_t *list[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count),
                   *all = tt_conform_make(at, at->count * (size_t)at->size);
    tt_conform_ok(at, "all_gather", tutti_all_gather(at->group, all, x, NULL));
    expect_parts(at, "all_gather", tt_conform_data(all), NULL);
    make_list(at, list, NULL);
    tt_conform_ok(at, "all_gather_list", tutti_all_gather_list(at->group, list, x, NULL));
    expect_list(at, "all_gather_list", list);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(all);
}

void tt_conform_check_all_gather_uneven(const tt_conform_at_t *at)
{
    int64_t counts[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *list[TT_CONFORM_RANKS_MAX];
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin);
    tutti_tensor_t *x = tt_conform_make_filled(at, (size_t)counts[at->rank]),
                   *all = tt_conform_make(at, total);
    tt_conform_ok(at, "all_gather_uneven",
                  tutti_all_gather_uneven(at->group, all, x, counts, NULL));
    expect_parts(at, "all_gather_uneven", tt_conform_data(all), counts);
    make_list(at, list, counts);
    tt_conform_ok(at, "all_gather_list, uneven", tutti_all_gather_list(at->group, list, x, NULL));
    expect_list(at, "all_gather_list, uneven", list);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(all);
}

void tt_conform_check_gather(const tt_conform_at_t *at)
{
    const bool is_root = at->rank == at->root;
    int64_t counts[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *list[TT_CONFORM_RANKS_MAX] = {NULL};
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin);
    tutti_tensor_t *x = tt_conform_make_filled(at, at->count),
                   *y = tt_conform_make_filled(at, (size_t)counts[at->rank]);
    tutti_tensor_t *all = is_root ? tt_conform_make(at, at->count * (size_t)at->size) : NULL;
    tutti_tensor_t *uneven = is_root ? tt_conform_make(at, total) : NULL;
    tt_conform_ok(at, "gather", tutti_gather(at->group, all, x, at->root, NULL));
    tt_conform_ok(at, "gather_uneven",
                  tutti_gather_uneven(at->group, uneven, y, counts, at->root, NULL));
    if (is_root) {
        make_list(at, list, NULL);
    }
    tt_conform_ok(at, "gather_list",
                  tutti_gather_list(at->group, is_root ? list : NULL, x, at->root, NULL));
    if (is_root) {
        expect_parts(at, "gather", tt_conform_data(all), NULL);
        expect_parts(at, "gather_uneven", tt_conform_data(uneven), counts);
        expect_list(at, "gather_list", list);
    }
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_tensor_release(all);
    tutti_tensor_release(uneven);
}

void tt_conform_check_scatter(const tt_conform_at_t *at)
{
    const bool is_root = at->rank == at->root;
    int64_t counts[TT_CONFORM_RANKS_MAX], even[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *list[TT_CONFORM_RANKS_MAX] = {NULL};
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin), mine = (size_t)counts[at->rank];
    for (int i = 0; i < at->size; i++) {
        even[i] = (int64_t)at->count;
    }
    tutti_tensor_t *x = tt_conform_make(at, at->count), *y = tt_conform_make(at, mine);
    tutti_tensor_t *all = is_root ? tt_conform_make_filled(at, at->count * (size_t)at->size) : NULL;
    tutti_tensor_t *uneven = is_root ? tt_conform_make_filled(at, total) : NULL;
    tt_conform_ok(at, "scatter", tutti_scatter(at->group, x, all, at->root, NULL));
    tt_conform_elements(at, "scatter", tt_conform_data(x), at->count * (size_t)at->rank, at->count,
                        at->root);
    tt_conform_ok(at, "scatter_uneven",
                  tutti_scatter_uneven(at->group, y, uneven, counts, at->root, NULL));
    tt_conform_elements(at, "scatter_uneven", tt_conform_data(y), begin, mine, at->root);
    if (is_root) {
        split_list(at, even, list, at->rank);
    }
    (void)memset(tt_conform_data(x), 0, tt_conform_bytes_of(at, at->count));
    tt_conform_ok(at, "scatter_list",
                  tutti_scatter_list(at->group, x, is_root ? list : NULL, at->root, NULL));
    tt_conform_elements(at, "scatter_list", tt_conform_data(x), at->count * (size_t)at->rank,
                        at->count, at->root);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_tensor_release(all);
    tutti_tensor_release(uneven);
}

/* Rows that rank `from` gives to rank `to`. */
static size_t given(const tt_conform_at_t *at, int from, int to)
{
    return (at->count * (size_t)(1 + (from + 2 * to) % 3) + (size_t)from) / 2;
}

static size_t given_before(const tt_conform_at_t *at, int from, int to)
{
    size_t begin = 0;
    for (int i = 0; i < to; i++) {
        begin += given(at, from, i);
    }
    return begin;
}

void tt_conform_check_all_to_all(const tt_conform_at_t *at)
{
    const size_t all = at->count * (size_t)at->size;
    tutti_tensor_t *x = tt_conform_make_filled(at, all), *y = tt_conform_make(at, all);
    tt_conform_ok(at, "all_to_all", tutti_all_to_all(at->group, y, x, NULL));
    const char *got = tt_conform_data(y);
    for (int rank = 0; rank < at->size; rank++) {
        tt_conform_elements(at, "all_to_all",
                            got + tt_conform_bytes_of(at, at->count) * (size_t)rank,
                            at->count * (size_t)at->rank, at->count, rank);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

void tt_conform_check_all_to_all_uneven(const tt_conform_at_t *at)
{
    int64_t in[TT_CONFORM_RANKS_MAX], out[TT_CONFORM_RANKS_MAX];
    tutti_tensor_t *from[TT_CONFORM_RANKS_MAX], *to[TT_CONFORM_RANKS_MAX];
    size_t in_total = 0, out_total = 0;
    for (int i = 0; i < at->size; i++) {
        in[i] = (int64_t)given(at, at->rank, i);
        out[i] = (int64_t)given(at, i, at->rank);
        in_total += (size_t)in[i];
        out_total += (size_t)out[i];
    }
    tutti_tensor_t *x = tt_conform_make_filled(at, in_total), *y = tt_conform_make(at, out_total);
    tt_conform_ok(at, "all_to_all_uneven", tutti_all_to_all_uneven(at->group, y, out, x, in, NULL));
    split_list(at, in, from, at->rank);
    make_list(at, to, out);
    tt_conform_ok(at, "all_to_all_list", tutti_all_to_all_list(at->group, to, from, NULL));
    const char *got = tt_conform_data(y);
    for (int rank = 0; rank < at->size; rank++) {
        const size_t begin = given_before(at, rank, at->rank), count = (size_t)out[rank];
        tt_conform_elements(at, "all_to_all_uneven", got, begin, count, rank);
        tt_conform_elements(at, "all_to_all_list", tt_conform_data(to[rank]), begin, count, rank);
        got += tt_conform_bytes_of(at, count);
    }
    release_list(at, from);
    release_list(at, to);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}
