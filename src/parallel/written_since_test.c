/* What other ranks write into a tensor is a write as any other: a backward that needs the old
 * values refuses them, and an optimizer's f32 master takes the new ones. */
#include "core/base/testing.h"

#include <math.h>

#include <tutti/collectives.h>
#include <tutti/ddp.h>
#include <tutti/messages.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>

#include "comm/group/group_team.h"

enum { N = 4, STEPS = 3 };

/* y = x² saves x, which the ranks then add up. */
static void sum_what_was_saved(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *w = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(N));
    TT_EXPECT(m, tutti_tensor_set_requires_grad(w, true) == TUTTI_OK);
    tutti_tensor_t *x = tutti_mul_scalar(s, w, 2);
    tutti_tensor_t *loss = tutti_sum(s, tutti_mul(s, x, x));
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_backward(s, loss) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "it was written since") != NULL);
    TT_EXPECT(m, tutti_tensor_grad(w) == NULL);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_ERR_STATE);
    tutti_context_release(ctx);
}

static void a_saved_activation_is_not_summed_unseen(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, sum_what_was_saved, NULL);
}

/* As tensor parallelism does: what is summed is saved afterwards. */
static void save_what_was_summed(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == TUTTI_OK);
    tutti_tensor_t *w = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(N));
    TT_EXPECT(m, tutti_tensor_set_requires_grad(w, true) == TUTTI_OK);
    tutti_tensor_t *x = tutti_mul_scalar(s, w, 2);
    TT_EXPECT(m, tutti_all_reduce(m->group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    tutti_tensor_t *loss = tutti_sum(s, tutti_mul(s, x, x));
    tutti_work_t *work = NULL; /* sending x only reads it */
    TT_EXPECT(m, tutti_send(m->group, x, 1 - m->rank, 0, &work) == TUTTI_OK);
    tutti_tensor_t *got = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(N));
    TT_EXPECT(m, tutti_recv(m->group, got, 1 - m->rank, 0, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    tutti_work_release(work);
    TT_EXPECT(m, tutti_backward(s, loss) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_at(tutti_tensor_grad(w), 0) == 16);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_context_release(ctx);
}

static void what_is_summed_and_then_saved_goes_back(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, save_what_was_summed, NULL);
}

/* ---- 16-bit parameters ----------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
} training_t;

static tutti_status_t start_training(training_t *t)
{
    const tutti_linear_options_t options = {.in = N, .out = N};
    const tutti_context_options_t context = {.threads = 1, .seed = 7};
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_linear_layer, &options, &t->net));
    TUTTI_CHECK(tutti_module_cast(t->net, TUTTI_BF16));
    const tutti_sgd_options_t plain = {.lr = 0.1}; /* no state but the masters */
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_sgd, &plain, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

/* All gradients are `value`. */
static tutti_status_t step(training_t *t, double value)
{
    tutti_tensor_t *weight = tutti_module_find(t->net, "weight"), *grad;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_BF16, tutti_tensor_shape(weight), &grad));
    TUTTI_CHECK(tutti_tensor_fill(grad, value));
    TUTTI_CHECK(tutti_tensor_set_grad(weight, grad));
    tutti_tensor_release(grad);
    return tutti_optim_step(t->opt);
}

static void end_training(training_t *t)
{
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

typedef tutti_status_t (*meet_t)(const training_t *t, tutti_group_t *group);

static tutti_status_t meet_by_broadcast(const training_t *t, tutti_group_t *group)
{
    TUTTI_CHECK(tutti_broadcast(group, tutti_module_find(t->net, "weight"), 0, NULL));
    return tutti_broadcast(group, tutti_module_find(t->net, "bias"), 0, NULL);
}

static tutti_status_t meet_in_ddp(const training_t *t, tutti_group_t *group)
{
    tutti_ddp_t *ddp;
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->net, group, NULL, &ddp));
    tutti_ddp_release(ddp);
    return TUTTI_OK;
}

/* The weights of rank 0 and of rank 1 differ by no more than `most`. */
static void expect_close(tt_member_t *m, tutti_tensor_t *weight, double most)
{
    tutti_tensor_t *all;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(2, N, N), &all) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_gather(m->group, all, weight, NULL) == TUTTI_OK);
    for (int64_t i = 0; i < N * N; i++) {
        const double own = tutti_tensor_at(all, i), others = tutti_tensor_at(all, N * N + i);
        TT_EXPECT(m, fabs(own - others) <= most);
    }
    tutti_tensor_release(all);
}

/* Steps that lead the ranks apart by 0.6; then all get the weights of rank 0, and go on. */
static void train_apart_and_meet(tt_member_t *m)
{
    const meet_t meet = *(const meet_t *)m->user;
    training_t t = {0};
    TT_EXPECT(m, start_training(&t) == TUTTI_OK);
    for (int i = 0; i < STEPS; i++) {
        TT_EXPECT(m, step(&t, m->rank == 0 ? 1 : -1) == TUTTI_OK);
    }
    TT_EXPECT(m, meet(&t, m->group) == TUTTI_OK);
    tutti_tensor_t *weight = tutti_module_find(t.net, "weight");
    expect_close(m, weight, 0);
    TT_EXPECT(m, step(&t, 1) == TUTTI_OK);
    expect_close(m, weight, 0.01); /* what rank 0's master has beyond 16 bits stays its own */
    end_training(&t);
}

static void a_master_takes_what_is_broadcast(void **state)
{
    (void)state;
    meet_t meets[] = {meet_by_broadcast, meet_in_ddp};
    for (int i = 0; i < 2; i++) {
        tt_team_expect(2, 20000, train_apart_and_meet, &meets[i]);
    }
}

/* ---- parameters that are 16-bit copies in a step -------------------------------------------- */

static tutti_status_t run_mixed(tutti_ddp_t *ddp, tutti_context_t *ctx)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, N));
    tutti_tensor_t *y = tutti_ddp_forward(s, ddp, x);
    (void)tutti_backward(s, tutti_sum(s, y));
    return tutti_scope_close(s);
}

/* Between two steps, which counts, and in one. */
static void write_a_copy(tt_member_t *m)
{
    training_t t = {0};
    tutti_ddp_t *ddp = NULL;
    const tutti_ddp_options_t options = {.param_dtype = TUTTI_BF16};
    TT_EXPECT(m, start_training(&t) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_cast(t.net, TUTTI_F32) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &ddp) == TUTTI_OK);
    tutti_tensor_t *weight = tutti_module_find(t.net, "weight");
    for (int step = 0; step < 2; step++) {
        TT_EXPECT(m, tutti_tensor_fill(weight, 0.5 + step) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_next_shard(ddp, t.ctx));
        TT_EXPECT(m, tutti_tensor_at(weight, 0) == 0.5 + step);
        TT_EXPECT(m, run_mixed(ddp, t.ctx) == TUTTI_OK);
        TT_EXPECT(m, step == 0 || tutti_tensor_fill(weight, 3) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_finish(ddp) == (step == 0 ? TUTTI_OK : TUTTI_ERR_STATE));
    }
    TT_EXPECT(m, strstr(tutti_last_error(), "weight was written in a step, in which it is a copy "
                                            "in bf16") != NULL);
    TT_EXPECT(m, tutti_tensor_dtype(weight) == TUTTI_F32 && tutti_tensor_at(weight, 0) == 1.5);
    tutti_ddp_release(ddp);
    end_training(&t);
}

/* Its values would be lost, or stay behind in the copy. */
static void who_writes_a_copy_is_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, write_a_copy, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_activation_is_not_summed_unseen),
        cmocka_unit_test(what_is_summed_and_then_saved_goes_back),
        cmocka_unit_test(a_master_takes_what_is_broadcast),
        cmocka_unit_test(who_writes_a_copy_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
