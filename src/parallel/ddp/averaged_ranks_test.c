/* Averages where weights are dealt out: each rank averages its slice, and all ranks have all of
 * them in the module, whether gradients are there or not. */
#include "core/base/testing.h"

#include <math.h>

#include <tutti/averaged.h>
#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"

enum { RANKS = 3, WIDTH = 10 };

static void fill(tt_member_t *m, tutti_module_t *net, double value)
{
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(net, "weight"), value) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(net, "bias"), value) == TUTTI_OK);
}

static void expect(tt_member_t *m, tutti_module_t *net, double value)
{
    for (int64_t i = 0; i < WIDTH * WIDTH; i++) {
        TT_EXPECT(m, tutti_tensor_at(tutti_module_find(net, "weight"), i) == value);
        TT_EXPECT(m, tutti_tensor_at(tutti_module_find(net, "bias"), i % WIDTH) == value);
    }
}

/* Weights of 1, then of 3, and no gradient: an optimizer's step would tell nobody of anything. */
static void average(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_averaged_t *average;
    const tutti_linear_options_t linear = {.in = WIDTH, .out = WIDTH};
    const tutti_ddp_options_t options = {.stage = *(const int *)m->user};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_linear_layer, &linear, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &options, &ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_create(ctx, net, NULL, &average) == TUTTI_OK);
    fill(m, net, 1);
    TT_EXPECT(m, tutti_averaged_update(average) == TUTTI_OK);
    fill(m, net, 3);
    TT_EXPECT(m, tutti_averaged_update(average) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_swap_in(average) == TUTTI_OK);
    expect(m, net, 2);
    TT_EXPECT(m, tutti_averaged_swap_out(average) == TUTTI_OK);
    expect(m, net, 3);
    tutti_averaged_release(average);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void all_ranks_have_all_averages(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 2; stage++) {
        tt_team_expect(RANKS, 60000, average, &stage);
    }
}

/* A table that forward bounds, of one rank: its long row is shorter in the average, too. */
static void bound(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_averaged_t *average;
    tutti_tensor_t *index;
    const tutti_embedding_options_t table = {
        .count = WIDTH, .width = WIDTH, .lookup = {.max_norm = 1}};
    const tutti_ddp_options_t options = {.stage = *(const int *)m->user};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_embedding_layer, &table, &net) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, &options, &ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_create(ctx, net, NULL, &average) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(tutti_module_find(net, "weight"), 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_averaged_update(average) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        const double want = i == 0 ? 1 : 1 / sqrt(WIDTH);
        tutti_tensor_t *weight = tutti_module_find(net, "weight");
        TT_EXPECT(m, tutti_averaged_swap_in(average) == TUTTI_OK);
        TT_EXPECT(m, fabs(tutti_tensor_at(weight, 0) - want) < 1e-6);
        TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1), &index) == TUTTI_OK);
        TT_EXPECT(m, tutti_forward(s, net, index) != NULL);
        tutti_tensor_release(index);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        TT_EXPECT(m, fabs(tutti_tensor_at(weight, 0) - 1 / sqrt(WIDTH)) < 1e-6);
        TT_EXPECT(m, tutti_averaged_swap_out(average) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_at(weight, 0) == 1 && tutti_tensor_at(weight, WIDTH) == 1);
    }
    tutti_averaged_release(average);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void a_bounded_table_of_one_rank_goes_out_again(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 2; stage++) {
        tt_team_expect(1, 60000, bound, &stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_all_averages),
        cmocka_unit_test(a_bounded_table_of_one_rank_goes_out_again),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
