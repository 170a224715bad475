/* Averages of weights at every stage of sharding, on several numbers of ranks: a training has the
 * bits that it has without them, whether they were in the module between its steps or not, and the
 * averages have the same bits on every layout; in f32, 16 bits, and f32 computed in 16 bits. */
#include "core/base/testing.h"

#include <tutti/averaged.h>

#include "parallel/ddp/ddp_stages_testing.h"

enum { SHARDS = 4, STEPS = 3, BATCH = 2 };

typedef enum { F32, BF16, MIXED, DTYPES } dtype_t;

typedef struct {
    int stage;
    dtype_t dtype;
    bool swaps;
    char own[TUTTI_DIGEST_BYTES], averages[TUTTI_DIGEST_BYTES]; /* rank 0's, as all have it */
} row_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_averaged_t *average;
} training_t;

static tutti_status_t open_training(training_t *t, tutti_group_t *group, const row_t *row)
{
    const bool recomputes = false;
    const tutti_adamw_options_t adamw = {.lr = 0.01};
    const tutti_dtype_t low = row->dtype == MIXED ? TUTTI_BF16 : TUTTI_F32;
    const tutti_ddp_options_t options = {
        .shards = SHARDS, .stage = row->stage, .param_dtype = low, .reduce_dtype = low};
    TUTTI_CHECK(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 11}, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tt_stages_layer, &recomputes, &t->net));
    TUTTI_CHECK(tutti_module_cast(t->net, row->dtype == BF16 ? TUTTI_BF16 : TUTTI_F32));
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->net, group, &options, &t->ddp));
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, &adamw, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    return tutti_averaged_create(t->ctx, t->net, &(tutti_averaged_options_t){.decay = 0.5},
                                 &t->average);
}

static tutti_status_t run_shard(const training_t *t, const row_t *row, bool trains)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    const tutti_dtype_t dtype = row->dtype == F32 ? TUTTI_F32 : TUTTI_BF16;
    tutti_tensor_t *x = tutti_normal(s, dtype, TUTTI_SHAPE(BATCH, TT_STAGES_IN), 0, 1);
    tutti_tensor_t *y = tutti_forward(s, t->net, x);
    const tutti_status_t status =
        trains ? tutti_backward(s, tutti_mean(s, tutti_square(s, y))) : tutti_tensor_status(y);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* They are evaluated meanwhile. */
static tutti_status_t swap(const training_t *t, const row_t *row)
{
    TUTTI_CHECK(tutti_averaged_swap_in(t->average));
    tutti_context_set_training(t->ctx, false);
    const bool had_graphs = tutti_context_set_grad_enabled(t->ctx, false);
    const tutti_status_t status = row->dtype == MIXED ? TUTTI_OK : run_shard(t, row, false);
    (void)tutti_context_set_grad_enabled(t->ctx, had_graphs);
    tutti_context_set_training(t->ctx, true);
    const tutti_status_t out = tutti_averaged_swap_out(t->average);
    return status < 0 ? status : out;
}

static tutti_status_t train(const training_t *t, const row_t *row)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(t->ctx, step);
        while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
            TUTTI_CHECK(run_shard(t, row, true));
        }
        TUTTI_CHECK(tutti_ddp_finish(t->ddp));
        TUTTI_CHECK(tutti_optim_step(t->opt));
        tutti_optim_zero_grad(t->opt);
        TUTTI_CHECK(tutti_averaged_update(t->average));
        if (row->swaps) {
            TUTTI_CHECK(swap(t, row));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t digest(const training_t *t, char *own, char *averages)
{
    TUTTI_CHECK(tutti_ddp_digest(t->ddp, own));
    TUTTI_CHECK(tutti_averaged_swap_in(t->average));
    TUTTI_CHECK(tutti_ddp_digest(t->ddp, averages));
    return tutti_averaged_swap_out(t->average);
}

static void run(tt_member_t *m)
{
    row_t *row = m->user;
    training_t t = {0};
    char own[TUTTI_DIGEST_BYTES] = "", averages[TUTTI_DIGEST_BYTES] = "";
    TT_EXPECT(m, open_training(&t, m->group, row) == TUTTI_OK);
    TT_EXPECT(m, m->failure[0] != 0 || train(&t, row) == TUTTI_OK);
    TT_EXPECT(m, m->failure[0] != 0 || digest(&t, own, averages) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(row->own, own, sizeof own);
        memcpy(row->averages, averages, sizeof averages);
    }
    tutti_averaged_release(t.average);
    tutti_optim_release(t.opt);
    tutti_ddp_release(t.ddp);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
}

static void swapping_changes_no_bit_at_any_stage(void **state)
{
    (void)state;
    for (dtype_t dtype = F32; dtype < DTYPES; dtype++) {
        row_t first = {.dtype = dtype};
        tt_team_expect(1, 60000, run, &first);
        assert_string_not_equal(first.own, first.averages);
        for (int i = 0; i < 16; i++) {
            row_t row = {.dtype = dtype, .stage = i % 4, .swaps = i < 8};
            const int ranks = i / 4 % 2 + 1;
            tt_team_expect(ranks, 60000, run, &row);
            if (strcmp(row.own, first.own) != 0 || strcmp(row.averages, first.averages) != 0) {
                fail_msg("dtype %d, stage %d, %d ranks%s: other bits: %s %s, not %s %s", (int)dtype,
                         row.stage, ranks, row.swaps ? ", swaps" : "", row.own, row.averages,
                         first.own, first.averages);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(swapping_changes_no_bit_at_any_stage)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
