/* Sums over shards, in chunks of rows: the same bits on any number of ranks, in any number of
 * chunks, whole or in parts of the sequence. */
#include "parallel/tensor/leaf_sum.h"

#include "comm/group/group_team.h"
#include "core/kernel/matmul/matmul.h"
#include "core/tensor/device_testing.h"

enum { SHARDS = 4, WIDTH = 6, INNER = 3, ROWS_MAX = 64, RANKS_MAX = 4 };

/* What is summed: for each leaf a product x[leaf] · w[leaf], x of shape [batch, length, INNER]. */
typedef struct {
    int64_t batch, length;
    int ranks, chunks;
    bool is_packed, fails;
    tutti_dtype_t out;
    float found[RANKS_MAX][ROWS_MAX * WIDTH]; /* of each rank: all rows, where it has them */
    int made[RANKS_MAX];                      /* calls of make */
} case_t;

/* Numbers of which sums are rounded, each its own. */
static float number(int leaf, int64_t i)
{
    return 1.0F / (float)(1 + (leaf * 977 + i * 131) % 1009) - 0.3F * (float)(leaf % 2);
}

typedef struct {
    const case_t *c;
    tutti_scope_t *s;
    const tt_tp_t *tp;
    int made;
} maker_t;

static tutti_status_t multiply_leaf(void *user, int leaf, const tt_tp_rows_t *rows,
                                    tutti_tensor_t *into)
{
    maker_t *m = user;
    float x[ROWS_MAX * INNER], w[INNER * WIDTH];
    const int64_t count = m->c->batch * m->c->length;
    for (int64_t i = 0; i < count * INNER; i++) {
        x[i] = number(leaf, i);
    }
    for (int64_t i = 0; i < INNER * WIDTH; i++) {
        w[i] = number(leaf + SHARDS, i);
    }
    m->made++;
    if (m->c->fails && rows->chunk == 1) {
        return TT_FAIL(TUTTI_ERR_IO, "no leaf %d", leaf);
    }
    const tt_matmul_t product = {.batch = 1,
                                 .m = count,
                                 .n = WIDTH,
                                 .k = INNER,
                                 .dtype = TUTTI_F32,
                                 .out_dtype = TUTTI_F32,
                                 .a = {.data = x, .ld = INNER},
                                 .b = {.data = w, .ld = WIDTH},
                                 .c = tt_tensor_data(into)};
    return tt_tp_multiply(tt_scope_exec(m->s), m->tp, rows, &product);
}

/* Rows of this rank into their places of the whole. */
static void write_found(tt_member_t *m, const tutti_tensor_t *out, tt_span_t own)
{
    case_t *c = m->user;
    for (int64_t b = 0; b < c->batch; b++) {
        for (int64_t i = 0; i < own.count * WIDTH; i++) {
            c->found[m->rank][(b * c->length + own.begin) * WIDTH + i] =
                (float)tutti_tensor_at(out, b * own.count * WIDTH + i);
        }
    }
}

static void sum_leaves(tt_member_t *m)
{
    case_t *c = m->user;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    const tt_tp_t tp = {m->group, SHARDS};
    const tt_cut_t cut = {c->length, SHARDS, m->size};
    const tt_span_t own = c->is_packed ? tt_cut_rank(&cut, m->rank) : (tt_span_t){0, c->length};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == 0);
    tutti_tensor_t *out = tutti_empty(s, c->out, TUTTI_SHAPE(c->batch, own.count, WIDTH));
    maker_t maker = {c, s, &tp, 0};
    tt_leaf_sum_t sum = {.tp = &tp,
                         .s = s,
                         .dtype = TUTTI_F32,
                         .rows = {.whole = TUTTI_SHAPE(c->batch, c->length, WIDTH),
                                  .is_packed = c->is_packed,
                                  .chunks = c->chunks},
                         .make = multiply_leaf,
                         .user = &maker};
    const tutti_status_t status = tt_leaf_sum(&sum, out);
    TT_EXPECT(m, status == (c->fails ? TUTTI_ERR_IO : TUTTI_OK));
    if (status >= 0) {
        write_found(m, out, own);
    }
    c->made[m->rank] = maker.made;
    TT_EXPECT(m, tutti_scope_close(s) == 0);
    tutti_context_release(ctx);
}

/* What one rank finds in one chunk. */
static void expect_same(const case_t *c)
{
    case_t one = *c;
    const size_t bytes = (size_t)(c->batch * c->length * WIDTH) * sizeof(float);
    one.ranks = one.chunks = 1;
    tt_team_expect(1, 0, sum_leaves, &one);
    for (int rank = 0; rank < c->ranks; rank++) {
        const tt_cut_t cut = {c->length, SHARDS, c->ranks};
        const tt_leaves_t leaves = tt_tree_share(SHARDS, c->ranks, rank);
        const tt_span_t own = tt_cut_rank(&cut, rank);
        assert_int_equal(c->made[rank], c->chunks * (leaves.end - leaves.begin));
        if (!c->is_packed) {
            assert_memory_equal(c->found[rank], one.found[0], bytes);
            continue;
        }
        for (int64_t b = 0; b < c->batch; b++) {
            const int64_t at = (b * c->length + own.begin) * WIDTH;
            assert_memory_equal(&c->found[rank][at], &one.found[0][at],
                                (size_t)(own.count * WIDTH) * sizeof(float));
        }
    }
}

/* Of one sample, chunks are of positions; lengths that T does not divide are cut unevenly. Of one
 * position, or three, some chunks and some ranks have no rows. */
static void chunks_change_no_bit(void **state)
{
    (void)state;
    static case_t c;
    const int64_t batches[] = {1, 4, 5}, lengths[] = {8, 11, 1, 3};
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2 * 3 * 4 * 2 * 3 * TT_TP_CHUNKS_MAX; i++) {
        c = (case_t){.is_packed = i % 2 == 1,
                     .batch = batches[i / 2 % 3],
                     .length = lengths[i / 6 % 4],
                     .out = dtypes[i / 24 % 2],
                     .ranks = 2 + i / 48 % 3,
                     .chunks = 1 + i / 144};
        tt_team_expect(c.ranks, 0, sum_leaves, &c);
        expect_same(&c);
    }
}

/* A chunk is under way then. */
static void a_failure_behind_the_first_chunk_is_everybodys_end(void **state)
{
    (void)state;
    static case_t c;
    c = (case_t){.batch = 4, .length = 8, .ranks = 2, .chunks = 3, .fails = true};
    tt_team_expect_quietly(2, 0, sum_leaves, &c);
    assert_int_equal(c.made[0], 3); /* of two leaves each */
}

/* Rank 0 sums 4 samples in two chunks, rank 1 two samples in one: the first calls are of one size.
 */
static void sum_another_whole(tt_member_t *m)
{
    const int64_t batch = m->rank == 0 ? 4 : 2;
    const case_t c = {.batch = batch, .length = 8};
    const tt_tp_rows_t rows = {.whole = TUTTI_SHAPE(batch, 8, WIDTH),
                               .chunks = m->rank == 0 ? 2 : 1};
    const tt_tp_t tp = {m->group, SHARDS};
    tutti_context_t *ctx;
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == 0);
    maker_t maker = {&c, s, &tp, 0};
    tt_leaf_sum_t sum = {
        .tp = &tp, .s = s, .dtype = TUTTI_F32, .rows = rows, .make = multiply_leaf, .user = &maker};
    tutti_tensor_t *out = tutti_empty(s, TUTTI_F32, rows.whole);
    TT_EXPECT(m, tt_leaf_sum(&sum, out) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, tutti_scope_close(s) == 0);
    tutti_context_release(ctx);
}

static void chunks_of_different_wholes_do_not_meet(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 0, sum_another_whole, NULL);
}

static void chunks_are_of_large_sums_alone(tt_member_t *m)
{
    const tt_tp_t tp = {m->group, SHARDS};
    const struct {
        tutti_shape_t whole;
        int want;
    } cases[] = {{TUTTI_SHAPE(4, 256, 64), 1},  {TUTTI_SHAPE(4, 256, 384), 4},
                 {TUTTI_SHAPE(2, 512, 384), 2}, {TUTTI_SHAPE(1, 1024, 384), 4},
                 {TUTTI_SHAPE(512, 300), 2},    {TUTTI_SHAPE(9, 256, 384), 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tt_tp_rows_t rows = {.whole = cases[i].whole};
        TT_EXPECT(m, tt_tp_chunk_count(&tp, &rows) == (m->size == 1 ? 1 : cases[i].want));
    }
}

static void small_sums_and_those_of_one_rank_are_one_chunk(void **state)
{
    (void)state;
    tt_team_expect(1, 0, chunks_are_of_large_sums_alone, NULL);
    tt_team_expect(2, 0, chunks_are_of_large_sums_alone, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(a_failure_behind_the_first_chunk_is_everybodys_end),
        cmocka_unit_test(chunks_of_different_wholes_do_not_meet),
        cmocka_unit_test(small_sums_and_those_of_one_rank_are_one_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
