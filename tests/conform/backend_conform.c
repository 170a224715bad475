/* The checks of backend_conform.h. Element i of rank r's contribution is a hash of both, so that
 * any part that comes from a wrong place is seen. References of reductions are the kernels'
 * canonical tree, run over all ranks' contributions in this process: equal bits are wanted. */
#include "backend_conform.h"

#include <stdio.h>
#include <string.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/objects.h>

#include "comm/backend/backend.h"
#include "core/base/alloc.h"
#include "core/kernel/tree_reduce.h"

enum { SIZE_MAX_RANKS = 64, WORKS = 8 };

typedef enum { IN_HEAP, IN_FOREIGN, IN_BOTH, MEMORIES } memory_t;

/* One case: alike on every rank. */
typedef struct {
    tutti_group_t *group;
    int rank, size;
    tutti_dtype_t dtype;
    tutti_reduction_t op;
    size_t count;
    int root;
    memory_t memory;
    tt_conform_t *out;
} at_t;

static void put_element(void *data, tutti_dtype_t dtype, size_t at, size_t i, int rank)
{
    uint32_t random = ((uint32_t)i + 1) * 2654435761u ^ (uint32_t)(rank + 1) * 2246822519u;
    random ^= random >> 15;
    random *= 2654435769u;
    random ^= random >> 13;
    const float real = (float)(int32_t)random * 0x1p-28f;
    union {
        float f;
        uint32_t bits;
    } as = {.f = real};
    const uint16_t f16 = (uint16_t)(0x3800 | (random & 0x83ff));
    switch (dtype) {
    case TUTTI_F32:
        ((float *)data)[at] = real;
        break;
    case TUTTI_F64:
        ((double *)data)[at] = (double)real;
        break;
    case TUTTI_BF16:
        ((uint16_t *)data)[at] = (uint16_t)(as.bits >> 16);
        break;
    case TUTTI_F16:
        ((uint16_t *)data)[at] = f16;
        break;
    case TUTTI_I64:
        ((int64_t *)data)[at] = (int64_t)random - (INT64_C(1) << 31);
        break;
    case TUTTI_I32:
        ((int32_t *)data)[at] = (int32_t)random;
        break;
    case TUTTI_I8:
    case TUTTI_U8:
        ((uint8_t *)data)[at] = (uint8_t)random;
        break;
    case TUTTI_BOOL:
        ((uint8_t *)data)[at] = random & 1;
        break;
    case TUTTI_DTYPE_COUNT:
        break;
    }
}

/* Elements [begin, begin + count) of a rank's contribution. */
static void fill(void *data, tutti_dtype_t dtype, size_t begin, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) {
        put_element(data, dtype, i, begin + i, rank);
    }
}

static void note(const at_t *at, const char *what, const char *how)
{
    static const char *const memories[] = {"heap", "foreign", "mixed"};
    at->out->wrong++;
    if (at->out->text[0] == 0) {
        snprintf(at->out->text, sizeof at->out->text,
                 "rank %d of %d: %s %s[%zu] %s, root %d, %s memory: %s", at->rank, at->size, what,
                 tutti_dtype_name(at->dtype), at->count, tutti_reduction_name(at->op), at->root,
                 memories[at->memory], how);
    }
}

static void expect_ok(const at_t *at, const char *what, tutti_status_t status)
{
    at->out->checks++;
    if (status != TUTTI_OK) {
        note(at, what, tutti_last_error());
    }
}

static void expect_bytes(const at_t *at, const char *what, const void *got, const void *want,
                         size_t bytes)
{
    at->out->checks++;
    for (size_t i = 0; i < bytes; i++) {
        at->out->digest =
            (at->out->digest ^ ((const unsigned char *)got)[i]) * UINT64_C(0x100000001b3);
    }
    if (bytes > 0 && memcmp(got, want, bytes) != 0) {
        size_t i = 0;
        char how[64];
        while (((const char *)got)[i] == ((const char *)want)[i]) {
            i++;
        }
        snprintf(how, sizeof how, "byte %zu of %zu", i, bytes);
        note(at, what, how);
    }
}

static void *room(size_t bytes)
{
    return tt_alloc(bytes + 1, "test");
}

static tutti_tensor_t *make(const at_t *at, size_t count)
{
    tutti_tensor_t *x = NULL;
    const bool is_foreign =
        at->memory == IN_FOREIGN || (at->memory == IN_BOTH && at->rank % 2 == 1);
    const tutti_shape_t shape = TUTTI_SHAPE((int64_t)count);
    expect_ok(at, "tensor",
              is_foreign ? tutti_tensor_create(at->dtype, shape, &x)
                         : tutti_group_tensor(at->group, at->dtype, shape, &x));
    return x;
}

static tutti_tensor_t *make_filled(const at_t *at, size_t count)
{
    tutti_tensor_t *x = make(at, count);
    fill(tutti_tensor_data(x), at->dtype, 0, count, at->rank);
    return x;
}

static size_t bytes_of(const at_t *at, size_t count)
{
    return count * tutti_dtype_bytes(at->dtype);
}

/* Compare x with elements [begin, …) of a rank's contribution. */
static void expect_elements(const at_t *at, const char *what, const void *got, size_t begin,
                            size_t count, int rank)
{
    void *want = room(bytes_of(at, count));
    fill(want, at->dtype, begin, count, rank);
    expect_bytes(at, what, got, want, bytes_of(at, count));
    tt_free(want);
}

/* ---- reductions ---- */

static double factor_of(int rank)
{
    return 0.75 * rank - 0.5;
}

/* What rank contributes, as the sum takes it. */
static void *contribution(const at_t *at, size_t count, int rank, bool scales)
{
    void *data = room(bytes_of(at, count));
    fill(data, at->dtype, 0, count, rank);
    if (!scales) {
        return data;
    }
    void *scaled = room(count * tutti_dtype_bytes(tt_combine_dtype(at->dtype)));
    tt_combine_scale(scaled, data, at->dtype, factor_of(rank), count);
    tt_free(data);
    return scaled;
}

/* The reduction of all ranks' elements [0, count), by the kernels' tree in one process. */
static void *reference(const at_t *at, size_t count, bool scales)
{
    void *sources[SIZE_MAX_RANKS], *out = room(bytes_of(at, count));
    tt_leaves_t spans[SIZE_MAX_RANKS];
    unsigned char merges[SIZE_MAX_RANKS];
    int depth;
    for (int rank = 0; rank < at->size; rank++) {
        sources[rank] = contribution(at, count, rank, scales);
        spans[rank] = (tt_leaves_t){rank, rank + 1};
    }
    (void)tt_tree_compile(at->size, spans, at->size, merges, &depth);
    void *scratch = room(tt_tree_reduce_scratch_bytes(depth));
    const tt_tree_reduce_t job = {.kernels = tt_combine_kernels(),
                                  .src_dtype = scales ? tt_combine_dtype(at->dtype) : at->dtype,
                                  .dst_dtype = at->dtype,
                                  .reduction = scales ? TUTTI_SUM : at->op,
                                  .leaves = at->size,
                                  .source_count = at->size,
                                  .sources = (const void *const *)sources,
                                  .merges = merges,
                                  .dst_count = 1,
                                  .dst = &out,
                                  .scratch = scratch};
    tt_tree_reduce(&job, 0, count);
    tt_free(scratch);
    for (int rank = 0; rank < at->size; rank++) {
        tt_free(sources[rank]);
    }
    return out;
}

/* Rows of rank's part when parts are uneven; some have none. */
static size_t part_of(const at_t *at, int rank)
{
    return at->count * (size_t)(rank % 3) / 2 + (size_t)(rank == 1);
}

static size_t fill_counts(const at_t *at, int64_t *counts, size_t *begin)
{
    size_t all = 0;
    for (int i = 0; i < at->size; i++) {
        *begin = i == at->rank ? all : *begin;
        counts[i] = (int64_t)part_of(at, i);
        all += part_of(at, i);
    }
    return all;
}

static void check_all_reduce(const at_t *at)
{
    void *want = reference(at, at->count, false);
    tutti_tensor_t *x = make_filled(at, at->count);
    expect_ok(at, "all_reduce", tutti_all_reduce(at->group, x, at->op, NULL));
    expect_bytes(at, "all_reduce", tutti_tensor_data(x), want, bytes_of(at, at->count));
    fill(tutti_tensor_data(x), at->dtype, 0, at->count, at->rank);
    expect_ok(at, "reduce", tutti_reduce(at->group, x, at->op, at->root, NULL));
    if (at->rank == at->root) {
        expect_bytes(at, "reduce", tutti_tensor_data(x), want, bytes_of(at, at->count));
    } else {
        expect_elements(at, "reduce leaves the others' x", tutti_tensor_data(x), 0, at->count,
                        at->rank);
    }
    tutti_tensor_release(x);
    tt_free(want);
}

static void check_reduce_scatter(const at_t *at)
{
    const size_t all = at->count * (size_t)at->size;
    char *want = reference(at, all, false);
    const char *part = want + bytes_of(at, at->count) * (size_t)at->rank;
    tutti_tensor_t *x = make(at, at->count), *input = make_filled(at, all);
    expect_ok(at, "reduce_scatter", tutti_reduce_scatter(at->group, x, input, at->op, NULL));
    expect_bytes(at, "reduce_scatter", tutti_tensor_data(x), part, bytes_of(at, at->count));
    expect_elements(at, "reduce_scatter leaves its input", tutti_tensor_data(input), 0, all,
                    at->rank);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

static void split_list(const at_t *at, const int64_t *counts, tutti_tensor_t **list, int rank)
{
    size_t begin = 0;
    for (int i = 0; i < at->size; i++) {
        list[i] = make(at, (size_t)counts[i]);
        fill(tutti_tensor_data(list[i]), at->dtype, begin, (size_t)counts[i], rank);
        begin += (size_t)counts[i];
    }
}

static void release_list(const at_t *at, tutti_tensor_t **list)
{
    for (int i = 0; i < at->size; i++) {
        tutti_tensor_release(list[i]);
    }
}

static void check_reduce_scatter_uneven(const at_t *at)
{
    int64_t counts[SIZE_MAX_RANKS];
    tutti_tensor_t *list[SIZE_MAX_RANKS];
    size_t begin = 0;
    const size_t all = fill_counts(at, counts, &begin), mine = (size_t)counts[at->rank];
    char *want = reference(at, all, false);
    tutti_tensor_t *x = make(at, mine), *input = make_filled(at, all);
    expect_ok(at, "reduce_scatter_uneven",
              tutti_reduce_scatter_uneven(at->group, x, input, counts, at->op, NULL));
    expect_bytes(at, "reduce_scatter_uneven", tutti_tensor_data(x), want + bytes_of(at, begin),
                 bytes_of(at, mine));
    split_list(at, counts, list, at->rank);
    (void)memset(tutti_tensor_data(x), 0, bytes_of(at, mine));
    expect_ok(at, "reduce_scatter_list",
              tutti_reduce_scatter_list(at->group, x, list, at->op, NULL));
    expect_bytes(at, "reduce_scatter_list", tutti_tensor_data(x), want + bytes_of(at, begin),
                 bytes_of(at, mine));
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

static void check_premul(const at_t *at)
{
    const double factor = factor_of(at->rank);
    const tutti_reduce_options_t options = {.factor = &factor, .root = at->root};
    const size_t all = at->count * (size_t)at->size, bytes = bytes_of(at, at->count);
    char *want = reference(at, all, true);
    tutti_tensor_t *x = make_filled(at, at->count), *input = make_filled(at, all);
    expect_ok(at, "premul all_reduce",
              tutti_all_reduce_with(at->group, x, TUTTI_PREMUL_SUM, &options, NULL));
    expect_bytes(at, "premul all_reduce", tutti_tensor_data(x), want, bytes);
    fill(tutti_tensor_data(x), at->dtype, 0, at->count, at->rank);
    expect_ok(at, "premul reduce",
              tutti_reduce_with(at->group, x, TUTTI_PREMUL_SUM, &options, NULL));
    if (at->rank == at->root) {
        expect_bytes(at, "premul reduce", tutti_tensor_data(x), want, bytes);
    }
    expect_ok(at, "premul reduce_scatter",
              tutti_reduce_scatter_with(at->group, x, input, TUTTI_PREMUL_SUM, &options, NULL));
    expect_bytes(at, "premul reduce_scatter", tutti_tensor_data(x), want + bytes * (size_t)at->rank,
                 bytes);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

/* ---- copies ---- */

static void check_broadcast(const at_t *at)
{
    tutti_tensor_t *x = make_filled(at, at->count);
    expect_ok(at, "broadcast", tutti_broadcast(at->group, x, at->root, NULL));
    expect_elements(at, "broadcast", tutti_tensor_data(x), 0, at->count, at->root);
    tutti_tensor_release(x);
}

/* Parts of all ranks, one after the other: rank r's first elements. */
static void expect_parts(const at_t *at, const char *what, const char *got, const int64_t *counts)
{
    for (int rank = 0; rank < at->size; rank++) {
        const size_t count = counts != NULL ? (size_t)counts[rank] : at->count;
        expect_elements(at, what, got, 0, count, rank);
        got += bytes_of(at, count);
    }
}

static void expect_list(const at_t *at, const char *what, tutti_tensor_t *const *list)
{
    for (int rank = 0; rank < at->size; rank++) {
        expect_elements(at, what, tutti_tensor_data(list[rank]), 0,
                        (size_t)tutti_tensor_numel(list[rank]), rank);
    }
}

static void make_list(const at_t *at, tutti_tensor_t **list, const int64_t *counts)
{
    for (int i = 0; i < at->size; i++) {
        list[i] = make(at, counts != NULL ? (size_t)counts[i] : at->count);
    }
}

static void check_all_gather(const at_t *at)
{
    tutti_tensor_t *list[SIZE_MAX_RANKS];
    tutti_tensor_t *x = make_filled(at, at->count), *all = make(at, at->count * (size_t)at->size);
    expect_ok(at, "all_gather", tutti_all_gather(at->group, all, x, NULL));
    expect_parts(at, "all_gather", tutti_tensor_data(all), NULL);
    make_list(at, list, NULL);
    expect_ok(at, "all_gather_list", tutti_all_gather_list(at->group, list, x, NULL));
    expect_list(at, "all_gather_list", list);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(all);
}

static void check_all_gather_uneven(const at_t *at)
{
    int64_t counts[SIZE_MAX_RANKS];
    tutti_tensor_t *list[SIZE_MAX_RANKS];
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin);
    tutti_tensor_t *x = make_filled(at, (size_t)counts[at->rank]), *all = make(at, total);
    expect_ok(at, "all_gather_uneven", tutti_all_gather_uneven(at->group, all, x, counts, NULL));
    expect_parts(at, "all_gather_uneven", tutti_tensor_data(all), counts);
    make_list(at, list, counts);
    expect_ok(at, "all_gather_list, uneven", tutti_all_gather_list(at->group, list, x, NULL));
    expect_list(at, "all_gather_list, uneven", list);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(all);
}

static void check_gather(const at_t *at)
{
    const bool is_root = at->rank == at->root;
    int64_t counts[SIZE_MAX_RANKS];
    tutti_tensor_t *list[SIZE_MAX_RANKS] = {NULL};
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin);
    tutti_tensor_t *x = make_filled(at, at->count), *y = make_filled(at, (size_t)counts[at->rank]);
    tutti_tensor_t *all = is_root ? make(at, at->count * (size_t)at->size) : NULL;
    tutti_tensor_t *uneven = is_root ? make(at, total) : NULL;
    expect_ok(at, "gather", tutti_gather(at->group, all, x, at->root, NULL));
    expect_ok(at, "gather_uneven",
              tutti_gather_uneven(at->group, uneven, y, counts, at->root, NULL));
    if (is_root) {
        make_list(at, list, NULL);
    }
    expect_ok(at, "gather_list",
              tutti_gather_list(at->group, is_root ? list : NULL, x, at->root, NULL));
    if (is_root) {
        expect_parts(at, "gather", tutti_tensor_data(all), NULL);
        expect_parts(at, "gather_uneven", tutti_tensor_data(uneven), counts);
        expect_list(at, "gather_list", list);
    }
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_tensor_release(all);
    tutti_tensor_release(uneven);
}

static void check_scatter(const at_t *at)
{
    const bool is_root = at->rank == at->root;
    int64_t counts[SIZE_MAX_RANKS], even[SIZE_MAX_RANKS];
    tutti_tensor_t *list[SIZE_MAX_RANKS] = {NULL};
    size_t begin = 0;
    const size_t total = fill_counts(at, counts, &begin), mine = (size_t)counts[at->rank];
    for (int i = 0; i < at->size; i++) {
        even[i] = (int64_t)at->count;
    }
    tutti_tensor_t *x = make(at, at->count), *y = make(at, mine);
    tutti_tensor_t *all = is_root ? make_filled(at, at->count * (size_t)at->size) : NULL;
    tutti_tensor_t *uneven = is_root ? make_filled(at, total) : NULL;
    expect_ok(at, "scatter", tutti_scatter(at->group, x, all, at->root, NULL));
    expect_elements(at, "scatter", tutti_tensor_data(x), at->count * (size_t)at->rank, at->count,
                    at->root);
    expect_ok(at, "scatter_uneven",
              tutti_scatter_uneven(at->group, y, uneven, counts, at->root, NULL));
    expect_elements(at, "scatter_uneven", tutti_tensor_data(y), begin, mine, at->root);
    if (is_root) {
        split_list(at, even, list, at->rank);
    }
    (void)memset(tutti_tensor_data(x), 0, bytes_of(at, at->count));
    expect_ok(at, "scatter_list",
              tutti_scatter_list(at->group, x, is_root ? list : NULL, at->root, NULL));
    expect_elements(at, "scatter_list", tutti_tensor_data(x), at->count * (size_t)at->rank,
                    at->count, at->root);
    release_list(at, list);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_tensor_release(all);
    tutti_tensor_release(uneven);
}

/* Rows that rank `from` gives to rank `to`. */
static size_t given(const at_t *at, int from, int to)
{
    return (at->count * (size_t)(1 + (from + 2 * to) % 3) + (size_t)from) / 2;
}

static size_t given_before(const at_t *at, int from, int to)
{
    size_t begin = 0;
    for (int i = 0; i < to; i++) {
        begin += given(at, from, i);
    }
    return begin;
}

static void check_all_to_all(const at_t *at)
{
    const size_t all = at->count * (size_t)at->size;
    tutti_tensor_t *x = make_filled(at, all), *y = make(at, all);
    expect_ok(at, "all_to_all", tutti_all_to_all(at->group, y, x, NULL));
    const char *got = tutti_tensor_data(y);
    for (int rank = 0; rank < at->size; rank++) {
        expect_elements(at, "all_to_all", got + bytes_of(at, at->count) * (size_t)rank,
                        at->count * (size_t)at->rank, at->count, rank);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void check_all_to_all_uneven(const at_t *at)
{
    int64_t in[SIZE_MAX_RANKS], out[SIZE_MAX_RANKS];
    tutti_tensor_t *from[SIZE_MAX_RANKS], *to[SIZE_MAX_RANKS];
    size_t in_total = 0, out_total = 0;
    for (int i = 0; i < at->size; i++) {
        in[i] = (int64_t)given(at, at->rank, i);
        out[i] = (int64_t)given(at, i, at->rank);
        in_total += (size_t)in[i];
        out_total += (size_t)out[i];
    }
    tutti_tensor_t *x = make_filled(at, in_total), *y = make(at, out_total);
    expect_ok(at, "all_to_all_uneven", tutti_all_to_all_uneven(at->group, y, out, x, in, NULL));
    split_list(at, in, from, at->rank);
    make_list(at, to, out);
    expect_ok(at, "all_to_all_list", tutti_all_to_all_list(at->group, to, from, NULL));
    const char *got = tutti_tensor_data(y);
    for (int rank = 0; rank < at->size; rank++) {
        const size_t begin = given_before(at, rank, at->rank), count = (size_t)out[rank];
        expect_elements(at, "all_to_all_uneven", got, begin, count, rank);
        expect_elements(at, "all_to_all_list", tutti_tensor_data(to[rank]), begin, count, rank);
        got += bytes_of(at, count);
    }
    release_list(at, from);
    release_list(at, to);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

/* ---- several at once ---- */

static void check_in_flight(const at_t *at)
{
    tutti_tensor_t *x[WORKS];
    tutti_work_t *works[WORKS] = {NULL};
    void *want = reference(at, at->count, false);
    for (int i = 0; i < WORKS; i++) {
        x[i] = make_filled(at, at->count);
        expect_ok(at, "in flight",
                  i % 2 == 0 ? tutti_all_reduce(at->group, x[i], at->op, &works[i])
                             : tutti_broadcast(at->group, x[i], i % at->size, &works[i]));
    }
    for (int i = WORKS - 1; i >= 0; i--) {
        expect_ok(at, "in flight", tutti_work_wait(works[i], 0));
        if (i % 2 == 0) {
            expect_bytes(at, "in flight", tutti_tensor_data(x[i]), want, bytes_of(at, at->count));
        } else {
            expect_elements(at, "in flight", tutti_tensor_data(x[i]), 0, at->count, i % at->size);
        }
        tutti_work_release(works[i]);
        tutti_tensor_release(x[i]);
    }
    tt_free(want);
}

static void check_coalesced(const at_t *at)
{
    tutti_tensor_t *x[WORKS];
    tutti_work_t *work = NULL;
    void *want = reference(at, at->count, false);
    expect_ok(at, "coalesce", tutti_coalesce_begin(at->group));
    for (int i = 0; i < WORKS; i++) {
        x[i] = make_filled(at, at->count);
        expect_ok(at, "coalesced",
                  i == 5 ? tutti_broadcast(at->group, x[i], 0, NULL)
                         : tutti_all_reduce(at->group, x[i], at->op, NULL));
    }
    expect_ok(at, "coalesce", tutti_coalesce_end(at->group, &work));
    expect_ok(at, "coalesced", tutti_work_wait(work, 0));
    tutti_work_release(work);
    for (int i = 0; i < WORKS; i++) {
        if (i == 5) {
            expect_elements(at, "coalesced", tutti_tensor_data(x[i]), 0, at->count, 0);
        } else {
            expect_bytes(at, "coalesced", tutti_tensor_data(x[i]), want, bytes_of(at, at->count));
        }
        tutti_tensor_release(x[i]);
    }
    tt_free(want);
}

/* ---- messages ---- */

static void check_ring(const at_t *at)
{
    const int next = (at->rank + 1) % at->size, last = (at->rank + at->size - 1) % at->size;
    tutti_tensor_t *mine = make_filled(at, at->count), *theirs = make(at, at->count);
    expect_ok(at, "batch_send_recv",
              tutti_batch_send_recv(at->group,
                                    (const tutti_transfer_t[]){{TUTTI_SEND, mine, next, 3},
                                                               {TUTTI_RECV, theirs, last, 3}},
                                    2, NULL));
    expect_elements(at, "batch_send_recv", tutti_tensor_data(theirs), 0, at->count, last);
    tutti_tensor_release(mine);
    tutti_tensor_release(theirs);
}

/* Rank 0 hears from all, in any order; each has a tag of its own, and sends two. */
static void check_any_source(const at_t *at)
{
    tutti_tensor_t *x = make_filled(at, at->count);
    int heard[SIZE_MAX_RANKS] = {0};
    tutti_work_t *work;
    for (int i = 0; at->rank == 0 && i < 2 * (at->size - 1); i++) {
        expect_ok(at, "recv", tutti_recv(at->group, x, TUTTI_ANY_RANK, TUTTI_ANY_TAG, &work));
        expect_ok(at, "recv", tutti_work_wait(work, 0));
        const int source = tutti_work_source(work);
        at->out->checks++;
        if (source < 1 || source >= at->size || tutti_work_tag(work) != source ||
            heard[source] == 2) {
            note(at, "recv of any source", "source or tag");
        } else {
            const size_t begin = heard[source]++ == 0 ? 0 : 7; /* the first sent comes first */
            expect_elements(at, "recv of any source", tutti_tensor_data(x), begin, at->count,
                            source);
        }
        tutti_work_release(work);
    }
    for (int i = 0; at->rank != 0 && i < 2; i++) {
        fill(tutti_tensor_data(x), at->dtype, i == 0 ? 0 : 7, at->count, at->rank);
        expect_ok(at, "send", tutti_send(at->group, x, 0, at->rank, NULL));
    }
    tutti_tensor_release(x);
}

/* Received in another order than sent, chosen by tag, with a collective in between. */
static void check_tags(const at_t *at)
{
    if (at->rank < 2) {
        tutti_tensor_t *x[3];
        tutti_work_t *works[3];
        for (int i = 0; i < 3; i++) {
            const int k = at->rank == 0 ? i : 2 - i;
            x[k] = make(at, at->count);
            fill(tutti_tensor_data(x[k]), at->dtype, (size_t)k, at->count, at->rank);
            expect_ok(at, "tags",
                      at->rank == 0 ? tutti_send(at->group, x[k], 1, 10 + k, &works[k])
                                    : tutti_recv(at->group, x[k], 0, 10 + k, &works[k]));
        }
        expect_ok(at, "barrier", tutti_barrier(at->group, NULL));
        for (int i = 0; i < 3; i++) {
            expect_ok(at, "tags", tutti_work_wait(works[i], 0));
            tutti_work_release(works[i]);
            expect_elements(at, "tags", tutti_tensor_data(x[i]), (size_t)i, at->count, 0);
            tutti_tensor_release(x[i]);
        }
    } else {
        expect_ok(at, "barrier", tutti_barrier(at->group, NULL));
    }
}

static void check_messages(const at_t *at)
{
    if (at->size == 1 || at->out->no_messages) {
        return;
    }
    check_ring(at);
    const uint64_t digest = at->out->digest;
    check_any_source(at);
    at->out->digest = digest; /* what came first is not told */
    check_tags(at);
}

/* ---- bytes ---- */

static size_t length_of(const at_t *at, int rank)
{
    return rank % 2 == 0 ? at->count : (size_t)rank * 3;
}

static void expect_buffer(const at_t *at, const char *what, tutti_buffer_t *got, size_t begin,
                          int rank)
{
    at->out->checks++;
    if (got->bytes != length_of(at, rank)) {
        note(at, what, "length");
    } else {
        expect_elements(at, what, got->data, begin, got->bytes, rank);
    }
    tutti_buffer_release(got);
}

static void check_objects(const at_t *at)
{
    tutti_buffer_t got = {0}, all[SIZE_MAX_RANKS] = {{0}};
    const size_t mine = length_of(at, at->rank);
    void *data = room(mine);
    fill(data, at->dtype, 0, mine, at->rank);
    const tutti_bytes_t bytes = {data, mine};
    expect_ok(at, "broadcast_bytes", tutti_broadcast_bytes(at->group, bytes, at->root, &got));
    expect_buffer(at, "broadcast_bytes", &got, 0, at->root);
    expect_ok(at, "all_gather_bytes", tutti_all_gather_bytes(at->group, bytes, all));
    for (int i = 0; i < at->size; i++) {
        expect_buffer(at, "all_gather_bytes", &all[i], 0, i);
    }
    const bool is_root = at->rank == at->root;
    expect_ok(at, "gather_bytes",
              tutti_gather_bytes(at->group, bytes, at->root, is_root ? all : NULL));
    for (int i = 0; is_root && i < at->size; i++) {
        expect_buffer(at, "gather_bytes", &all[i], 0, i);
    }
    tutti_bytes_t parts[SIZE_MAX_RANKS];
    for (int i = 0; i < at->size; i++) {
        const size_t length = length_of(at, i) < mine ? length_of(at, i) : mine;
        parts[i] = (tutti_bytes_t){data, length};
    }
    expect_ok(at, "scatter_bytes",
              tutti_scatter_bytes(at->group, is_root ? parts : NULL, at->root, &got));
    expect_elements(at, "scatter_bytes", got.data, 0, got.bytes, at->root);
    tutti_buffer_release(&got);
    if (at->size > 1 && !at->out->no_messages && at->rank == 1) {
        expect_ok(at, "send_bytes", tutti_send_bytes(at->group, bytes, 0, 4));
    } else if (at->size > 1 && !at->out->no_messages && at->rank == 0) {
        int source = -1;
        expect_ok(at, "recv_bytes", tutti_recv_bytes(at->group, TUTTI_ANY_RANK, 4, &source, &got));
        expect_buffer(at, "recv_bytes", &got, 0, source == 1 ? 1 : 0);
    }
    tt_free(data);
}

/* ---- all of it ---- */

static const size_t counts[] = {0, 1, 257, 20001, 100003};

static void reduce_all(at_t *at, int count_count)
{
    for (int op = 0; op < TUTTI_REDUCTION_COUNT; op++) {
        at->op = (tutti_reduction_t)op;
        const bool is_premul = at->op == TUTTI_PREMUL_SUM;
        if (is_premul ? !tutti_dtype_is_float(at->dtype)
                      : tt_combine_check("test", at->dtype, at->op) < 0) {
            continue;
        }
        for (int k = 0; k < (op == 0 ? count_count : 3); k++) {
            at->count = counts[k];
            at->root = (k + op) % at->size;
            if (is_premul) {
                check_premul(at);
            } else {
                check_all_reduce(at);
                check_reduce_scatter(at);
                check_reduce_scatter_uneven(at);
            }
        }
    }
}

static void copy_all(at_t *at, int count_count, bool is_full)
{
    at->op = TUTTI_SUM;
    for (int k = 0; k < count_count; k++) {
        at->count = counts[k];
        for (int root = 0; root < (is_full ? at->size : 1); root++) {
            at->root = is_full ? root : k % at->size;
            check_broadcast(at);
            check_gather(at);
            check_scatter(at);
        }
        check_all_gather(at);
        check_all_gather_uneven(at);
        check_all_to_all(at);
        check_all_to_all_uneven(at);
        check_messages(at);
    }
}

static void mix_all(at_t *at, int count_count)
{
    at->dtype = TUTTI_F32;
    at->op = TUTTI_SUM;
    for (int k = 0; k < count_count; k++) {
        at->count = counts[k];
        check_in_flight(at);
        check_coalesced(at);
    }
    at->dtype = TUTTI_U8;
    for (int k = 0; k < count_count; k++) {
        at->count = counts[k];
        at->root = k % at->size;
        check_objects(at);
    }
}

static void probe_messages(at_t *at)
{
    char nothing = 0;
    if (at->size > 1) {
        const int to = at->rank % 2 == 0 ? at->rank + 1 : at->rank - 1;
        const tutti_bytes_t bytes = {&nothing, 1};
        tutti_buffer_t got = {0};
        tutti_status_t status = TUTTI_OK;
        if (to < at->size) {
            status = at->rank % 2 == 0 ? tutti_send_bytes(at->group, bytes, to, 0)
                                       : tutti_recv_bytes(at->group, to, 0, NULL, &got);
        }
        at->out->no_messages = status == TUTTI_ERR_UNSUPPORTED;
        tutti_buffer_release(&got);
    }
}

void tt_conform_run(tutti_group_t *group, bool is_full, tt_conform_t *out)
{
    *out = (tt_conform_t){.digest = UINT64_C(0xcbf29ce484222325)};
    at_t at = {.group = group,
               .rank = tutti_group_rank(group),
               .size = tutti_group_size(group),
               .out = out};
    probe_messages(&at);
    for (int memory = 0; memory < MEMORIES; memory++) {
        at.memory = (memory_t)memory;
        for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
            const int most = dtype == TUTTI_F32 ? (is_full ? 5 : 4) : 3;
            at.dtype = (tutti_dtype_t)dtype;
            if (is_full || memory == IN_HEAP || dtype == TUTTI_F32 || dtype == TUTTI_BF16) {
                reduce_all(&at, most);
                copy_all(&at, most, is_full);
            }
        }
        mix_all(&at, is_full ? 5 : 4);
    }
}

int tt_conform_main(bool is_full)
{
    tutti_group_t *world;
    tt_conform_t mine;
    if (tutti_init(NULL, &world) < 0) {
        fprintf(stderr, "conform: %s\n", tutti_last_error());
        return 1;
    }
    tt_conform_run(world, is_full, &mine);
    tutti_buffer_t all[SIZE_MAX_RANKS] = {{0}};
    long wrong = mine.wrong, checks = 0;
    uint64_t digest = 0;
    if (tutti_all_gather_bytes(world, tutti_bytes_of(&mine, sizeof mine), all) < 0) {
        fprintf(stderr, "conform: %s\n", tutti_last_error());
        wrong++;
    }
    for (int i = 0; i < tutti_group_size(world) && all[i].bytes == sizeof mine; i++) {
        const tt_conform_t *one = all[i].data;
        wrong += i == tutti_group_rank(world) ? 0 : one->wrong;
        checks += one->checks;
        digest = digest * UINT64_C(0x100000001b3) ^ one->digest;
        if (one->wrong > 0 && tutti_group_rank(world) == 0) {
            fprintf(stderr, "conform: %s\n", one->text);
        }
        tutti_buffer_release(&all[i]);
    }
    if (tutti_group_rank(world) == 0) {
        printf("conform: %d ranks, %ld checks, %ld wrong, digest %016llx%s\n",
               tutti_group_size(world), checks, wrong, (unsigned long long)digest,
               mine.no_messages ? ", no messages" : "");
    }
    tutti_group_release(world);
    return wrong == 0 ? 0 : 1;
}
