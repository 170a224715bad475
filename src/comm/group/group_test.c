/* Conformance of groups: every call × dtype × reduction × memory against a serial reference, with
 * threads as ranks; leaves over any number of ranks; works. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan.h"
#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/kernel/reduce/tree_reduce.h"

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect(size, 20000, body, user);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* What a case asks: the same on every rank. */
typedef struct {
    tutti_dtype_t dtype;
    tutti_reduction_t op;
    int64_t count;
    bool is_foreign;
} case_t;

/* Element i of rank's contribution, small enough that nothing overflows. */
static void put_element(void *data, tutti_dtype_t dtype, size_t i, int rank)
{
    uint32_t random = ((uint32_t)i + 1) * 2654435761u ^ (uint32_t)(rank + 1) * 2246822519u;
    random ^= random >> 15;
    random *= 2654435769u;
    const float real = (float)(int32_t)random * 0x1p-28f;
    union {
        float f;
        uint32_t bits;
    } as = {.f = real};
    switch (dtype) {
    case TUTTI_F32:
        ((float *)data)[i] = real;
        break;
    case TUTTI_F64:
        ((double *)data)[i] = (double)real;
        break;
    case TUTTI_BF16:
        ((uint16_t *)data)[i] = (uint16_t)(as.bits >> 16);
        break;
    case TUTTI_F16:
        ((uint16_t *)data)[i] = (uint16_t)(0x3800 | (random & 0x83ff));
        break;
    case TUTTI_I64:
        ((int64_t *)data)[i] = (int64_t)random - (INT64_C(1) << 31);
        break;
    case TUTTI_I32:
        ((int32_t *)data)[i] = (int32_t)random;
        break;
    case TUTTI_I8:
        ((int8_t *)data)[i] = (int8_t)random;
        break;
    case TUTTI_U8:
        ((uint8_t *)data)[i] = (uint8_t)random;
        break;
    case TUTTI_BOOL:
        ((uint8_t *)data)[i] = random & 1;
        break;
    case TUTTI_DTYPE_COUNT:
        break;
    }
}

static void fill(void *data, tutti_dtype_t dtype, size_t begin, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++) {
        put_element(data, dtype, begin + i, rank);
    }
}

/* The reduction of all ranks' elements [0, count), by the kernels' tree in one process. */
static void *reference(const case_t *c, size_t count, int size)
{
    const size_t bytes = count * tutti_dtype_bytes(c->dtype) + 1;
    void *sources[TT_TEAM_MAX], *out = tt_alloc(bytes, "test");
    tt_leaves_t spans[TT_TEAM_MAX];
    unsigned char merges[TT_TEAM_MAX];
    int depth;
    for (int rank = 0; rank < size; rank++) {
        sources[rank] = tt_alloc(bytes, "test");
        fill(sources[rank], c->dtype, 0, count, rank);
        spans[rank] = (tt_leaves_t){rank, rank + 1};
    }
    (void)tt_tree_compile(size, spans, size, merges, &depth);
    void *scratch = tt_alloc(tt_tree_reduce_scratch_bytes(depth), "test");
    tt_tree_reduce(&(tt_tree_reduce_t){.kernels = tt_combine_kernels(),
                                       .src_dtype = c->dtype,
                                       .dst_dtype = c->dtype,
                                       .reduction = c->op,
                                       .leaves = size,
                                       .source_count = size,
                                       .sources = (const void *const *)sources,
                                       .merges = merges,
                                       .dst_count = 1,
                                       .dst = &out,
                                       .scratch = scratch},
                   0, count);
    tt_free(scratch);
    for (int rank = 0; rank < size; rank++) {
        tt_free(sources[rank]);
    }
    return out;
}

static tutti_tensor_t *make(tt_member_t *m, const case_t *c, int64_t count)
{
    tutti_tensor_t *x = NULL;
    if (c->is_foreign) {
        TT_EXPECT(m, tutti_tensor_create(c->dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_group_tensor(m->group, c->dtype, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    }
    return x;
}

static void check_reductions(tt_member_t *m, const case_t *c)
{
    const size_t count = (size_t)c->count, element = tutti_dtype_bytes(c->dtype);
    const size_t all = count * (size_t)m->size;
    void *want = reference(c, all, m->size);
    tutti_tensor_t *x = make(m, c, c->count);
    fill(tutti_tensor_data(x), c->dtype, 0, count, m->rank);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, c->op, NULL) == TUTTI_OK);
    TT_EXPECT(m, memcmp(tutti_tensor_data(x), want, count * element) == 0);

    tutti_tensor_t *input = make(m, c, c->count * m->size);
    fill(tutti_tensor_data(input), c->dtype, 0, all, m->rank);
    TT_EXPECT(m, tutti_reduce_scatter(m->group, x, input, c->op, NULL) == TUTTI_OK);
    const char *part = (const char *)want + (size_t)m->rank * count * element;
    TT_EXPECT(m, memcmp(tutti_tensor_data(x), part, count * element) == 0);
    tutti_tensor_release(x);
    tutti_tensor_release(input);
    tt_free(want);
}

static void check_copies(tt_member_t *m, const case_t *c)
{
    const size_t count = (size_t)c->count, element = tutti_dtype_bytes(c->dtype);
    tutti_tensor_t *x = make(m, c, c->count), *all = make(m, c, c->count * m->size);
    char *want = tt_alloc(count * element + 1, "test");
    fill(tutti_tensor_data(x), c->dtype, 0, count, m->rank);
    TT_EXPECT(m, tutti_all_gather(m->group, all, x, NULL) == TUTTI_OK);
    for (int rank = 0; rank < m->size; rank++) {
        fill(want, c->dtype, 0, count, rank);
        const char *got = (const char *)tutti_tensor_data(all) + (size_t)rank * count * element;
        TT_EXPECT(m, memcmp(got, want, count * element) == 0);
    }
    for (int root = 0; root < m->size; root++) {
        fill(tutti_tensor_data(x), c->dtype, 0, count, m->rank);
        TT_EXPECT(m, tutti_broadcast(m->group, x, root, NULL) == TUTTI_OK);
        fill(want, c->dtype, 0, count, root);
        TT_EXPECT(m, memcmp(tutti_tensor_data(x), want, count * element) == 0);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(all);
    tt_free(want);
}

static const int64_t counts[] = {0, 1, 3, 250, 257, 1000, 20001};

static void every_dtype_and_reduction(tt_member_t *m)
{
    case_t c = *(const case_t *)m->user;
    for (int d = 0; d < TUTTI_DTYPE_COUNT; d++) {
        for (int op = 0; op < TUTTI_REDUCTION_COUNT; op++) {
            c.dtype = (tutti_dtype_t)d;
            c.op = (tutti_reduction_t)op;
            if (tt_combine_check("test", c.dtype, c.op) == TUTTI_OK) {
                for (int k = 0; k < (op == 0 ? 7 : 5); k++) {
                    c.count = counts[k] * tt_combine_width(c.op);
                    check_reductions(m, &c);
                }
            }
        }
        for (int k = 0; k < 7; k++) {
            c.count = counts[k];
            check_copies(m, &c);
        }
    }
}

static void calls_agree_with_a_serial_reference_in_shared_memory(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; i++) {
        run_team(sizes[i], every_dtype_and_reduction, &(case_t){0});
    }
}

static void calls_agree_with_a_serial_reference_in_foreign_memory(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        run_team(sizes[i], every_dtype_and_reduction, &(case_t){.is_foreign = true});
    }
}

static void each_algorithm(tt_member_t *m)
{
    case_t c = {.op = TUTTI_SUM};
    for (int k = 0; k < 7; k++) {
        for (int foreign = 0; foreign < 2; foreign++) {
            c.count = counts[k];
            c.is_foreign = foreign && m->rank == 1; /* memory of two kinds in one call */
            check_reductions(m, &c);
            check_copies(m, &c);
        }
    }
}

static void forced_algorithms_and_mixed_memory_agree_too(void **state)
{
    (void)state;
    for (int a = 0; tt_algorithms[a] != NULL; a++) {
        if (!tt_algorithms[a]->is_canonical) {
            continue; /* other bits: tests/conform runs it on integers */
        }
        setenv("TUTTI_ALGO", tt_algorithms[a]->name, 1);
        run_team(3, each_algorithm, NULL);
    }
    unsetenv("TUTTI_ALGO");
}

static void sum_and_count(tt_member_t *m)
{
    const bool is_ring = strcmp(getenv("TUTTI_ALGO"), "ring") == 0;
    static const struct {
        tutti_dtype_t dtype;
        tutti_reduction_t op;
        int64_t counted;
    } calls[] = {{TUTTI_F32, TUTTI_MAX, 0},
                 {TUTTI_I64, TUTTI_SUM, 0},
                 {TUTTI_F32, TUTTI_SUM, 1},
                 {TUTTI_BF16, TUTTI_AVG, 1}};
    int64_t want = 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        tutti_tensor_t *x = NULL;
        TT_EXPECT(m, tutti_group_tensor(m->group, calls[i].dtype, TUTTI_SHAPE(1000), &x) == 0);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, calls[i].op, NULL) == TUTTI_OK);
        want += is_ring ? calls[i].counted : 0;
        TT_EXPECT(m, tutti_group_uncanonical_sums(m->group) == want);
        tutti_tensor_release(x);
    }
}

static void sums_that_are_not_canonical_are_counted(void **state)
{
    (void)state;
    setenv("TUTTI_ALGO", "ring", 1);
    run_team(3, sum_and_count, NULL);
    setenv("TUTTI_ALGO", "pairwise", 1);
    run_team(3, sum_and_count, NULL);
    unsetenv("TUTTI_ALGO");
}

/* ---- leaves -------------------------------------------------------------------------------- */

enum { LEAVES = 12, LEAF_COUNT = 3000 };

typedef struct {
    tutti_dtype_t piece_dtype, dtype;
    const int *first;
    bool is_foreign;
    unsigned char results[TT_TEAM_MAX][LEAF_COUNT * 8]; /* of each rank */
} leaf_case_t;

static tutti_tensor_t *sum_of_leaves(tt_member_t *m, const leaf_case_t *c,
                                     tutti_contribution_span_t span)
{
    case_t shared = {.dtype = c->piece_dtype, .is_foreign = c->is_foreign};
    if (span.end - span.begin == 1) {
        tutti_tensor_t *leaf = make(m, &shared, LEAF_COUNT);
        fill(tutti_tensor_data(leaf), c->piece_dtype, 0, LEAF_COUNT, span.begin);
        return leaf;
    }
    const int mid = tt_tree_mid(span.begin, span.end);
    tutti_tensor_t *a = sum_of_leaves(m, c, (tutti_contribution_span_t){span.begin, mid});
    tutti_tensor_t *b = sum_of_leaves(m, c, (tutti_contribution_span_t){mid, span.end});
    tt_combine_kernels()->combine[c->piece_dtype][TUTTI_SUM](
        tutti_tensor_data(a), tutti_tensor_data(a), tutti_tensor_data(b), LEAF_COUNT);
    tutti_tensor_release(b);
    return a;
}

static void reduce_leaves(tt_member_t *m)
{
    leaf_case_t *c = m->user;
    const int begin = c->first ? c->first[m->rank] : tt_tree_first_leaf(LEAVES, m->size, m->rank);
    const int end =
        c->first ? c->first[m->rank + 1] : tt_tree_first_leaf(LEAVES, m->size, m->rank + 1);
    tutti_contribution_span_t spans[TUTTI_CONTRIBUTION_PIECES_MAX];
    tutti_tensor_t *pieces[TUTTI_CONTRIBUTION_PIECES_MAX];
    const int count = tutti_contribution_pieces(LEAVES, begin, end, spans);
    for (int i = 0; i < count; i++) {
        pieces[i] = sum_of_leaves(m, c, spans[i]);
    }
    case_t shared = {.dtype = c->dtype, .is_foreign = c->is_foreign};
    tutti_tensor_t *x = make(m, &shared, LEAF_COUNT);
    const tutti_contributions_t leaves = {.count = LEAVES,
                                          .first = c->first,
                                          .pieces = pieces,
                                          .piece_count = count,
                                          .dtype = c->piece_dtype};
    TT_EXPECT(m, tutti_all_reduce_contributions(m->group, &leaves, x, TUTTI_AVG, NULL) == TUTTI_OK);
    memcpy(c->results[m->rank], tutti_tensor_data(x), tutti_tensor_bytes(x));
    tutti_tensor_release(x);
    for (int i = 0; i < count; i++) {
        tutti_tensor_release(pieces[i]);
    }
}

static void expect_like(const unsigned char *alone, leaf_case_t *c, int size)
{
    run_team(size, reduce_leaves, c);
    for (int rank = 0; rank < size; rank++) {
        assert_memory_equal(alone, c->results[rank], sizeof c->results[rank]);
    }
}

static void twelve_leaves_over_1_to_5_ranks_give_the_same_bits(void **state)
{
    (void)state;
    static leaf_case_t cases[] = {
        {.piece_dtype = TUTTI_F32, .dtype = TUTTI_F32},
        {.piece_dtype = TUTTI_F32, .dtype = TUTTI_BF16},
        {.piece_dtype = TUTTI_F64, .dtype = TUTTI_F64},
    };
    static const int uneven[] = {0, 7, 7, 8, 12}; /* one rank without leaves */
    static unsigned char alone[LEAF_COUNT * 8];
    for (int i = 0; i < 3; i++) {
        run_team(1, reduce_leaves, &cases[i]);
        memcpy(alone, cases[i].results[0], sizeof alone);
        for (int size = 1; size <= 5; size++) {
            for (int foreign = 0; foreign < 2; foreign++) {
                cases[i].is_foreign = foreign;
                expect_like(alone, &cases[i], size);
            }
        }
        cases[i].first = uneven;
        expect_like(alone, &cases[i], 4);
    }
}

/* ---- works --------------------------------------------------------------------------------- */

enum { MANY = 20 };

static void start_many(tt_member_t *m)
{
    tutti_tensor_t *x[MANY];
    tutti_work_t *works[MANY];
    for (int i = 0; i < MANY; i++) {
        TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(10 * i * i + 1), &x[i]) ==
                         TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(x[i], m->rank + i) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, x[i], TUTTI_SUM, &works[i]) == TUTTI_OK);
        if (i % 3 == 0) { /* forgotten: the call goes on and keeps its tensor */
            tutti_work_release(works[i]);
            works[i] = NULL;
        }
    }
    for (int i = MANY - 1; i >= 0; i--) {
        if (works[i] != NULL) {
            TT_EXPECT(m, tutti_work_wait(works[i], 0) == TUTTI_OK);
            TT_EXPECT(m, tutti_work_test(works[i]) == TUTTI_OK);
            tutti_work_release(works[i]);
        }
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        const double want = m->size * i + m->size * (m->size - 1) / 2.0;
        TT_EXPECT(m, tutti_tensor_at(x[i], 10 * i * i) == want);
        tutti_tensor_release(x[i]);
    }
}

static void many_calls_are_under_way_at_once(void **state)
{
    (void)state;
    run_team(1, start_many, NULL);
    run_team(2, start_many, NULL);
    run_team(4, start_many, NULL);
}

/* More shapes than there is room for prepared calls, all under way at once, then one by one. */
static void start_many_shapes(tt_member_t *m)
{
    enum { SHAPES = 160 };
    const bool is_foreign = *(const bool *)m->user;
    tutti_tensor_t *x[SHAPES];
    tutti_work_t *works[SHAPES] = {NULL};
    for (int i = 0; i < SHAPES; i++) {
        const int64_t count = 2000 + 37 * i;
        TT_EXPECT(m, (is_foreign ? tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(count), &x[i])
                                 : tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(count),
                                                      &x[i])) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_fill(x[i], m->rank + i) == TUTTI_OK);
    }
    for (int i = 0; i < SHAPES; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x[i], TUTTI_SUM, &works[i]) == TUTTI_OK);
    }
    for (int i = 0; i < SHAPES; i++) {
        TT_EXPECT(m, works[i] != NULL && tutti_work_wait(works[i], 0) == TUTTI_OK);
        tutti_work_release(works[i]);
        const double want = m->size * (m->size - 1) / 2 + i * m->size;
        TT_EXPECT(m, tutti_tensor_at(x[i], 0) == want);
        TT_EXPECT(m, tutti_tensor_at(x[i], 1999 + 37 * i) == want);
    }
    for (int i = 0; i < 3 * SHAPES; i++) {
        tutti_tensor_t *at = x[i % SHAPES];
        TT_EXPECT(m, tutti_tensor_fill(at, i) == TUTTI_OK);
        TT_EXPECT(m, tutti_all_reduce(m->group, at, TUTTI_SUM, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_at(at, 1999) == (double)i * m->size);
    }
    for (int i = 0; i < SHAPES; i++) {
        tutti_tensor_release(x[i]);
    }
}

static void any_number_of_shapes_is_under_way_at_once(void **state)
{
    (void)state;
    for (int is_foreign = 0; is_foreign < 2; is_foreign++) {
        bool user = is_foreign != 0;
        run_team(3, start_many_shapes, &user);
    }
}

static void overlap(tt_member_t *m)
{
    tutti_tensor_t *x;
    tutti_work_t *works[6];
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(5000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, 1) == TUTTI_OK);
    for (int i = 0; i < 6; i++) {
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &works[i]) == TUTTI_OK);
    }
    double want = 1;
    for (int i = 0; i < 6; i++) {
        TT_EXPECT(m, tutti_work_wait(works[i], 0) == TUTTI_OK);
        tutti_work_release(works[i]);
        want *= m->size;
    }
    TT_EXPECT(m, tutti_tensor_at(x, 0) == want && tutti_tensor_at(x, 4999) == want);
    tutti_tensor_release(x);
}

static void calls_on_one_tensor_are_done_in_order(void **state)
{
    (void)state;
    run_team(3, overlap, NULL);
}

/* What the steady state costs: nothing. */
static void repeat(tt_member_t *m)
{
    enum { SMALL_TENSORS = 20 };
    tutti_tensor_t *x, *small[SMALL_TENSORS];
    for (int k = 0; k < SMALL_TENSORS; k++) {
        TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(k + 1), &small[k]) ==
                         TUTTI_OK);
    }
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(3000), &x) == TUTTI_OK);
    size_t allocations = 0;
    for (int i = 0; i < 60; i++) {
        /* The count is the process's: it is read while every rank stands between two barriers,
         * which are warm by then, as the other calls are. */
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        if (i == 20) {
            allocations = tt_alloc_stats().allocations;
        }
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
        tutti_work_t *work;
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, &work) == TUTTI_OK);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
        TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_AVG, NULL) == TUTTI_OK);
        for (int k = 0; k < SMALL_TENSORS; k++) { /* plans of their own, which must all stay */
            TT_EXPECT(m, tutti_all_reduce(m->group, small[k], TUTTI_MAX, NULL) == TUTTI_OK);
        }
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    TT_EXPECT(m, tt_alloc_stats().allocations == allocations);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
    for (int k = 0; k < SMALL_TENSORS; k++) {
        tutti_tensor_release(small[k]);
    }
}

static void the_steady_state_allocates_nothing(void **state)
{
    (void)state;
    run_team(2, repeat, NULL);
}

/* ---- arguments ------------------------------------------------------------------------------ */

static void misuse(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_group_empty(m->group, s, TUTTI_F32, TUTTI_SHAPE(4, 6));
    tutti_tensor_t *small = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(5));
    tutti_tensor_t *whole = tutti_zeros(s, TUTTI_I32, TUTTI_SHAPE(5));
    TT_EXPECT(m, tutti_all_reduce(m->group, NULL, TUTTI_SUM, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_all_reduce(m->group, whole, TUTTI_AVG, NULL) == TUTTI_ERR_DTYPE);
    TT_EXPECT(m, tutti_broadcast(m->group, x, 2, NULL) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "root 2 is outside group world of 2") != NULL);
    TT_EXPECT(m, tutti_all_gather(m->group, x, small, NULL) == TUTTI_ERR_SHAPE);
    TT_EXPECT(m, strstr(tutti_last_error(), "f32[4, 6]") != NULL);
    TT_EXPECT(m, tutti_reduce_scatter(m->group, whole, small, TUTTI_SUM, NULL) < 0);
    const tutti_contributions_t leaves = {.count = 4, .pieces = &x, .piece_count = 2};
    TT_EXPECT(m, tutti_all_reduce_contributions(m->group, &leaves, x, TUTTI_SUM, NULL) ==
                     TUTTI_ERR_ARG);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_context_release(ctx);
}

static void bad_arguments_are_refused_and_harm_nothing(void **state)
{
    (void)state;
    run_team(2, misuse, NULL);
}

static void a_program_without_a_launcher_is_a_world_of_one(void **state)
{
    (void)state;
    tutti_group_t *world;
    assert_int_equal(tutti_init(NULL, &world), TUTTI_OK);
    assert_int_equal(tutti_group_size(world), 1);
    assert_string_equal(tutti_group_name(world), "world");
    assert_null(tutti_group_store(world));
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3), &x), TUTTI_OK);
    assert_int_equal(tutti_tensor_fill(x, 2), TUTTI_OK);
    assert_int_equal(tutti_all_reduce(world, x, TUTTI_AVG, NULL), TUTTI_OK);
    assert_true(tutti_tensor_at(x, 1) == 2);
    tutti_tensor_release(x);
    tutti_group_release(world);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_half_set_environment_is_refused(void **state)
{
    (void)state;
    tutti_group_t *world;
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "0", 1);
    assert_int_equal(tutti_init(NULL, &world), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "MASTER_ADDR"));
    setenv("RANK", "2", 1);
    assert_int_equal(tutti_init(NULL, &world), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "RANK=2"));
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_without_a_launcher_is_a_world_of_one),
        cmocka_unit_test(a_half_set_environment_is_refused),
        cmocka_unit_test(calls_agree_with_a_serial_reference_in_shared_memory),
        cmocka_unit_test(calls_agree_with_a_serial_reference_in_foreign_memory),
        cmocka_unit_test(forced_algorithms_and_mixed_memory_agree_too),
        cmocka_unit_test(sums_that_are_not_canonical_are_counted),
        cmocka_unit_test(twelve_leaves_over_1_to_5_ranks_give_the_same_bits),
        cmocka_unit_test(many_calls_are_under_way_at_once),
        cmocka_unit_test(any_number_of_shapes_is_under_way_at_once),
        cmocka_unit_test(calls_on_one_tensor_are_done_in_order),
        cmocka_unit_test(the_steady_state_allocates_nothing),
        cmocka_unit_test(bad_arguments_are_refused_and_harm_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
