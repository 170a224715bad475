/* The canonical tree: the same sum however its leaves are spread, in every variant and dtype. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/rng.h"
#include "core/kernel/half.h"
#include "core/kernel/reduce/tree_reduce.h"

enum { LEAVES_MAX = 40, COUNT = 2500 };

static float leaf_data[LEAVES_MAX][COUNT];
static unsigned char scratch[1 << 20];

static void fill_leaves(void)
{
    const tt_rng_t rng = tt_rng_stream(7, 0, 0, 0, 0);
    for (int k = 0; k < LEAVES_MAX; k++) {
        for (int i = 0; i < COUNT; i++) {
            leaf_data[k][i] = tt_rng_normal(rng, (uint64_t)(k * COUNT + i));
        }
    }
}

/* The definition, word for word. */
static float sum_of(int lo, int hi, int i)
{
    if (hi - lo == 1) {
        return leaf_data[lo][i];
    }
    int half = 1;
    while (half * 2 < hi - lo) {
        half *= 2;
    }
    return sum_of(lo, lo + half, i) + sum_of(lo + half, hi, i);
}

static void mid_is_the_largest_power_of_two_below(void **state)
{
    (void)state;
    assert_int_equal(tt_tree_mid(0, 2), 1);
    assert_int_equal(tt_tree_mid(0, 3), 2);
    assert_int_equal(tt_tree_mid(0, 4), 2);
    assert_int_equal(tt_tree_mid(8, 13), 12);
    assert_true(tt_tree_is_node(12, 8, 12));
    assert_true(tt_tree_is_node(5, 4, 5));
    assert_false(tt_tree_is_node(8, 2, 6));
    assert_false(tt_tree_is_node(8, 3, 3));
}

/* By the definition: down from the root. */
static bool is_on_the_way(int leaves, int lo, int hi)
{
    int node_lo = 0, node_hi = leaves;
    while (node_hi - node_lo > 1 && (node_lo != lo || node_hi != hi)) {
        const int mid = tt_tree_mid(node_lo, node_hi);
        node_lo = lo >= mid ? mid : node_lo;
        node_hi = lo >= mid ? node_hi : mid;
    }
    return lo < hi && node_lo == lo && node_hi == hi;
}

static void nodes_are_what_the_root_leads_to(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= 70; leaves++) {
        for (int lo = 0; lo <= leaves; lo++) {
            for (int hi = lo; hi <= leaves + 1; hi++) {
                assert_int_equal(tt_tree_is_node(leaves, lo, hi), is_on_the_way(leaves, lo, hi));
            }
        }
    }
}

static void pieces_tile_their_interval_with_the_largest_nodes(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= LEAVES_MAX; leaves++) {
        for (int begin = 0; begin <= leaves; begin++) {
            for (int end = begin; end <= leaves; end++) {
                tt_leaves_t pieces[TT_TREE_DEPTH_MAX];
                const int count = tt_tree_pieces(leaves, begin, end, pieces);
                int at = begin;
                for (int i = 0; i < count; i++) {
                    assert_int_equal(pieces[i].begin, at);
                    assert_true(tt_tree_is_node(leaves, at, pieces[i].end));
                    at = pieces[i].end;
                }
                assert_int_equal(at, end);
                assert_true(count <= 12);
            }
        }
    }
}

/* Sums on `ranks` ranks: each accumulates its leaves as they come, then all pieces are reduced. */
static void sum_spread_over(int leaves, int ranks, float *out)
{
    static float partial[LEAVES_MAX][COUNT];
    const tt_combine_fn_t add = tt_combine_kernels()->combine[TUTTI_F32][TUTTI_SUM];
    tt_leaves_t pieces[LEAVES_MAX];
    const void *sources[LEAVES_MAX];
    int count = 0;
    for (int rank = 0; rank < ranks; rank++) {
        tt_tree_stack_t stack = {.leaves = leaves};
        const int end = tt_tree_first_leaf(leaves, ranks, rank + 1);
        for (int leaf = tt_tree_first_leaf(leaves, ranks, rank); leaf < end; leaf++) {
            memcpy(partial[count + stack.depth], leaf_data[leaf], sizeof partial[0]);
            tt_tree_push(&stack, leaf, leaf + 1);
            while (tt_tree_can_merge(&stack)) {
                tt_tree_merge(&stack);
                float *left = partial[count + stack.depth - 1];
                add(left, left, partial[count + stack.depth], COUNT);
            }
        }
        for (int i = 0; i < stack.depth; i++) {
            pieces[count] = stack.spans[i];
            sources[count] = partial[count];
            count++;
        }
    }
    unsigned char merges[LEAVES_MAX];
    int depth;
    assert_true(tt_tree_compile(leaves, pieces, count, merges, &depth));
    assert_true(tt_tree_reduce_scratch_bytes(depth) <= sizeof scratch);
    tt_tree_reduce(&(tt_tree_reduce_t){.kernels = tt_combine_kernels(),
                                       .leaves = leaves,
                                       .source_count = count,
                                       .sources = sources,
                                       .merges = merges,
                                       .dst_count = 1,
                                       .dst = (void *[]){out},
                                       .scratch = scratch},
                   0, COUNT);
}

static void any_spread_of_the_leaves_gives_the_same_bits(void **state)
{
    (void)state;
    static float out[COUNT];
    fill_leaves();
    for (int leaves = 1; leaves <= 17; leaves++) {
        for (int ranks = 1; ranks <= 7; ranks++) {
            sum_spread_over(leaves, ranks, out);
            for (int i = 0; i < COUNT; i += 83) {
                const float want = sum_of(0, leaves, i);
                assert_memory_equal(&out[i], &want, sizeof want);
            }
        }
    }
}

static void every_leaf_is_in_the_share_of_its_owner_alone(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 7, 16, 1000};
    for (int leaves = 1; leaves <= 20; leaves++) {
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            int next = 0;
            for (int rank = 0; rank < sizes[k]; rank++) {
                const tt_leaves_t share = tt_tree_share(leaves, sizes[k], rank);
                assert_int_equal(share.begin, next);
                for (; next < share.end; next++) {
                    assert_int_equal(tt_tree_owner(leaves, sizes[k], next), rank);
                }
            }
            assert_int_equal(next, leaves);
        }
    }
    const int most = TT_TREE_LEAVES_MAX;
    assert_int_equal(tt_tree_owner(most, 1 << 20, most - 1), (1 << 20) - 1);
    assert_int_equal(tt_tree_owner(1, 1 << 20, 0), (1 << 20) - 1);
}

/* In turn, where there are more leaves than ranks. */
static void every_leaf_has_one_host(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= 20; leaves++) {
        for (int size = 1; size <= 9; size++) {
            int hosted = 0;
            for (int rank = 0; rank < size; rank++) {
                const tt_hosted_t at = tt_tree_hosted(leaves, size, rank, true);
                const int next = size > 1 && leaves > size ? size : 1;
                assert_int_equal(at.stride, next);
                for (int i = 0; i < at.count; i++) {
                    assert_int_equal(tt_tree_host(leaves, size, at.first + i * at.stride, true),
                                     rank);
                }
                assert_true(leaves <= size || at.first == rank);
                hosted += at.count;
            }
            assert_int_equal(hosted, leaves);
        }
    }
}

static void what_does_not_tile_the_tree_is_refused(void **state)
{
    (void)state;
    unsigned char merges[4];
    int depth;
    assert_false(tt_tree_compile(4, (tt_leaves_t[]){{0, 1}, {2, 4}}, 2, merges, &depth));
    assert_false(tt_tree_compile(4, (tt_leaves_t[]){{0, 1}, {1, 3}, {3, 4}}, 3, merges, &depth));
    assert_false(tt_tree_compile(4, NULL, 0, merges, &depth));
}

static void halves_are_rounded_once(void **state)
{
    (void)state;
    uint16_t a[3], b[3], c[3], out[3];
    for (int i = 0; i < 3; i++) {
        a[i] = tt_bf16_from_f32(1.0f);
        b[i] = tt_bf16_from_f32(0x1p-8f);
        c[i] = tt_bf16_from_f32(0x1p-8f);
    }
    unsigned char merges[3];
    int depth;
    assert_true(tt_tree_compile(3, (tt_leaves_t[]){{0, 1}, {1, 2}, {2, 3}}, 3, merges, &depth));
    tt_tree_reduce(&(tt_tree_reduce_t){.kernels = tt_combine_kernels(),
                                       .src_dtype = TUTTI_BF16,
                                       .dst_dtype = TUTTI_BF16,
                                       .leaves = 3,
                                       .source_count = 3,
                                       .sources = (const void *[]){a, b, c},
                                       .merges = merges,
                                       .dst_count = 1,
                                       .dst = (void *[]){out},
                                       .scratch = scratch},
                   0, 3);
    /* rounding after each addition would lose both small terms */
    assert_int_equal(out[2], tt_bf16_from_f32(1.0f + 0x1p-7f));
}

static void a_copy_around_the_cache_is_a_copy(void **state)
{
    (void)state;
    _Alignas(64) static float copy[COUNT];
    fill_leaves();
    for (size_t shift = 0; shift < 3; shift++) {
        memset(copy, 0, sizeof copy);
        tt_combine_kernels()->copy_stream((char *)copy + shift, (char *)leaf_data + 2 * shift,
                                          sizeof copy - 10);
        assert_memory_equal((char *)copy + shift, (char *)leaf_data + 2 * shift, sizeof copy - 10);
        assert_int_equal(((char *)copy)[sizeof copy - 10 + shift], 0);
    }
}

static void reductions_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tt_combine_check("x", TUTTI_F32, TUTTI_BXOR), TUTTI_ERR_DTYPE);
    assert_int_equal(tt_combine_check("x", TUTTI_I32, TUTTI_AVG), TUTTI_ERR_DTYPE);
    assert_int_equal(tt_combine_check("x", TUTTI_BOOL, TUTTI_SUM), TUTTI_ERR_DTYPE);
    assert_non_null(strstr(tutti_last_error(), "use max"));
    assert_int_equal(tt_combine_check("x", TUTTI_F16, TUTTI_AVG), TUTTI_OK);
    assert_int_equal(tt_combine_check("x", (tutti_dtype_t)99, TUTTI_SUM), TUTTI_ERR_ARG);
}

/* The kernel of pairs, both ways round. */
static void expect_pair(tutti_reduction_t op, const double *a, const double *b, const double *want)
{
    const tt_combine_kernels_t *kernels = tt_combine_kernels();
    for (int turned = 0; turned < 2; turned++) {
        double out[2];
        kernels->combine[TUTTI_F64][op](out, turned ? b : a, turned ? a : b, 2);
        assert_memory_equal(out, want, sizeof out);
        const float x[2] = {(float)a[0], (float)a[1]}, y[2] = {(float)b[0], (float)b[1]};
        const float expected[2] = {(float)want[0], (float)want[1]};
        float narrow[2];
        kernels->combine[TUTTI_F32][op](narrow, turned ? y : x, turned ? x : y, 2);
        assert_memory_equal(narrow, expected, sizeof narrow);
        if (!isnan(a[0]) && !isnan(b[0])) {
            const int64_t i[2] = {(int64_t)a[0], (int64_t)a[1]},
                          j[2] = {(int64_t)b[0], (int64_t)b[1]};
            const int64_t whole[2] = {(int64_t)want[0], (int64_t)want[1]};
            int64_t got[2];
            kernels->combine[TUTTI_I64][op](got, turned ? j : i, turned ? i : j, 2);
            assert_memory_equal(got, whole, sizeof got);
        }
    }
}

static void pairs_take_the_extreme_and_of_equals_the_lower_index(void **state)
{
    (void)state;
    const double low[] = {-3, 7}, high[] = {5, 2}, same[] = {5, 9}, zero[] = {0.0, 1};
    const double negative[] = {-0.0, 0}, nan[] = {NAN, 4}, other[] = {NAN, 3};
    expect_pair(TUTTI_MINLOC, low, high, low);
    expect_pair(TUTTI_MAXLOC, low, high, high);
    expect_pair(TUTTI_MINLOC, same, high, high);
    expect_pair(TUTTI_MAXLOC, same, high, high);
    expect_pair(TUTTI_MINLOC, nan, low, nan);
    expect_pair(TUTTI_MAXLOC, nan, high, nan);
    expect_pair(TUTTI_MINLOC, nan, other, other);
    expect_pair(TUTTI_MAXLOC, nan, other, other);
    const double *zeros[] = {zero, negative};
    for (int op = TUTTI_MINLOC; op <= TUTTI_MAXLOC; op++) {
        double out[2];
        for (int first = 0; first < 2; first++) { /* equal: the index decides, the sign stays */
            tt_combine_kernels()->combine[TUTTI_F64][op](out, zeros[first], zeros[1 - first], 2);
            assert_memory_equal(out, negative, sizeof out);
        }
    }
    assert_int_equal(tt_combine_check("x", TUTTI_BF16, TUTTI_MINLOC), TUTTI_OK);
    assert_int_equal(tt_combine_check("x", TUTTI_U8, TUTTI_MAXLOC), TUTTI_ERR_DTYPE);
    assert_int_equal(tt_combine_check_part("x", TUTTI_F32, TUTTI_MAXLOC, 3), TUTTI_ERR_SHAPE);
}

static void min_and_max_carry_nan(void **state)
{
    (void)state;
    const float a[2] = {NAN, 1.0f}, b[2] = {1.0f, NAN};
    float out[2];
    const tutti_reduction_t both[] = {TUTTI_MIN, TUTTI_MAX};
    for (int k = 0; k < 2; k++) {
        tt_combine_kernels()->combine[TUTTI_F32][both[k]](out, a, b, 2);
        assert_true(isnan(out[0]) && isnan(out[1]));
    }
    assert_int_equal(tt_alloc_stats().blocks, 0); /* nothing here allocates */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mid_is_the_largest_power_of_two_below),
        cmocka_unit_test(nodes_are_what_the_root_leads_to),
        cmocka_unit_test(pieces_tile_their_interval_with_the_largest_nodes),
        cmocka_unit_test(any_spread_of_the_leaves_gives_the_same_bits),
        cmocka_unit_test(every_leaf_is_in_the_share_of_its_owner_alone),
        cmocka_unit_test(every_leaf_has_one_host),
        cmocka_unit_test(what_does_not_tile_the_tree_is_refused),
        cmocka_unit_test(halves_are_rounded_once),
        cmocka_unit_test(a_copy_around_the_cache_is_a_copy),
        cmocka_unit_test(reductions_that_make_no_sense_are_refused),
        cmocka_unit_test(min_and_max_carry_nan),
        cmocka_unit_test(pairs_take_the_extreme_and_of_equals_the_lower_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
