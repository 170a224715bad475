/* What becomes of the others when one rank of tensor parallelism fails, or lacks memory. */
#include "parallel/tensor/parallel_trial_testing.h"

#include <pthread.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/context.h>
#include <tutti/diagnose.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor_parallel.h>

#include "compute/nn/module_impl.h"
#include "core/tensor/tensor_impl.h"

/* ---- a rank that fails ----------------------------------------------------------------------- */

static tutti_status_t fail_here(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call, (void)user;
    return TT_FAIL(TUTTI_ERR_IO, "it fails here");
}

/* Rank 1 fails in a hook of "down", forward or backward; rank 0 hears of it. */
static void fail_inside(tt_member_t *m)
{
    const bool in_backward = *(const bool *)m->user;
    const tutti_module_hooks_t hooks = in_backward
                                           ? (tutti_module_hooks_t){.before_backward = fail_here}
                                           : (tutti_module_hooks_t){.before_forward = fail_here};
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_transformer_block_layer, &tt_trial_block) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    tutti_module_t *down = NULL;
    for (size_t i = 0; i < p.net->child_count; i++) { /* the mlp is the last one, "down" in it */
        down = p.net->children[i].module;
    }
    down = down->children[1].module;
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_module_add_hooks(down, &hooks, m) == TUTTI_OK);
    }
    tutti_tensor_t *loss = tutti_sum(p.s, tutti_forward(p.s, p.net, x));
    const tutti_status_t status =
        in_backward ? tutti_backward(p.s, loss) : tutti_tensor_status(loss);
    TT_EXPECT(m, status == (m->rank == 1 ? TUTTI_ERR_IO : TUTTI_ERR_ABORTED));
    TT_EXPECT(m, tt_trial_close(&p) == status);
}

static void nobody_waits_for_a_rank_that_failed(void **state)
{
    (void)state;
    bool in_backward = false;
    tt_team_expect_quietly(2, 100000, fail_inside, &in_backward);
    in_backward = true;
    tt_team_expect_quietly(2, 100000, fail_inside, &in_backward);
}

static void fail_leaf(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf, (void)user;
    (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_IO, "it fails here"));
}

/* Rank 1 fails when it takes the gradients of the weights, in a turn of their own. */
static void fail_in_second_turn(tt_member_t *m)
{
    tt_trial_t p = {0};
    tutti_backward_run_t *run;
    TT_EXPECT(m, tt_trial_open(&p, &tutti_transformer_block_layer, &tt_trial_block) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH)), *grad;
    TT_EXPECT(m, tutti_tensor_set_requires_grad(x, true) == TUTTI_OK);
    for (int i = 0; i < 2; i++) { /* the first run is given up, and ends nothing */
        const tutti_root_t root = {.tensor = tutti_sum(p.s, tutti_forward(p.s, p.net, x))};
        TT_EXPECT(m, tutti_backward_inputs(p.s, &root, 1, NULL, &x, 1, &grad, &run) == TUTTI_OK);
        if (i == 0) {
            tutti_backward_release(run);
        }
    }
    tutti_tensor_t *weight = tutti_module_find(p.net, "ln1.weight");
    TT_EXPECT(m, weight != NULL);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_tensor_on_accumulate(weight, fail_leaf, m) == TUTTI_OK);
    }
    tutti_status_t status = tutti_backward_weights(run);
    if (m->rank == 0 && status >= 0) { /* perhaps it needed nothing of rank 1 */
        status = tutti_barrier(m->group, NULL);
    }
    TT_EXPECT(m, status == (m->rank == 1 ? TUTTI_ERR_IO : TUTTI_ERR_ABORTED));
    tutti_tensor_remove_hooks(weight, m);
    (void)tt_trial_close(&p);
}

static void nobody_waits_for_a_second_turn_that_failed(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 100000, fail_in_second_turn, NULL);
}

/* Rank 1 has nothing to give to the module: what made its input has failed. It stays until rank 0
 * has heard of it. */
static void pass_a_failure(tt_member_t *m)
{
    tt_trial_t p = {0};
    TT_EXPECT(m, tt_trial_open(&p, &tutti_transformer_block_layer, &tt_trial_block) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    if (m->rank == 1) {
        x = tutti_reshape(p.s, x, TUTTI_SHAPE(BATCH, LENGTH));
    }
    const tutti_status_t status = tutti_tensor_status(tutti_forward(p.s, p.net, x));
    TT_EXPECT(m, status == (m->rank == 1 ? TUTTI_ERR_SHAPE : TUTTI_ERR_ABORTED));
    (void)pthread_barrier_wait(m->user);
    TT_EXPECT(m, tt_trial_close(&p) == status);
}

static void nobody_waits_for_a_rank_without_an_input(void **state)
{
    (void)state;
    pthread_barrier_t both;
    assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
    tt_team_expect_quietly(2, 5000, pass_a_failure, &both);
    pthread_barrier_destroy(&both);
}

/* Rank 1 cannot look at the whole: it has no gradient, or no memory. Rank 0, which comes later so
 * that it takes no memory meanwhile, hears of it. */
typedef enum { WHOLE_GRAD, WHOLE, DIGEST, LOOKS } look_t;

typedef struct {
    look_t what;
    pthread_barrier_t both;
} looks_t;

static tutti_status_t look(const tt_trial_t *p, look_t what)
{
    char text[TUTTI_DIGEST_BYTES];
    tutti_tensor_t *weight = tutti_module_find(p->net, "up.weight");
    return what == DIGEST  ? tutti_parallel_digest(p->net, text)
           : what == WHOLE ? tutti_tensor_status(tutti_parallel_whole(p->s, weight))
                           : tutti_tensor_status(tutti_parallel_whole_grad(p->s, weight));
}

static tutti_status_t look_without(const tt_trial_t *p, look_t what)
{
    if (what == WHOLE_GRAD) {
        (void)tutti_tensor_set_grad(tutti_module_find(p->net, "up.weight"), NULL);
    }
    tt_alloc_fail_at(what == WHOLE_GRAD ? 0 : 1);
    const tutti_status_t status = look(p, what);
    tt_alloc_fail_at(0);
    return status;
}

static void look_in_vain(tt_member_t *m)
{
    looks_t *looks = m->user;
    tt_trial_t p = {0};
    tutti_status_t status = TUTTI_OK;
    TT_EXPECT(m, tt_trial_open(&p, &tutti_mlp_layer, &tt_trial_mlp) == TUTTI_OK);
    TT_EXPECT(m, tutti_parallelize(p.net, m->group, NULL) == TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    TT_EXPECT(m, tutti_backward(p.s, tutti_sum(p.s, tutti_forward(p.s, p.net, x))) == TUTTI_OK);
    (void)pthread_barrier_wait(&looks->both);
    if (m->rank == 1) {
        status = look_without(&p, looks->what);
        TT_EXPECT(m, status == (looks->what == WHOLE_GRAD ? TUTTI_ERR_STATE : TUTTI_ERR_NOMEM));
    }
    (void)pthread_barrier_wait(&looks->both);
    if (m->rank == 0) {
        TT_EXPECT(m, look(&p, looks->what) == TUTTI_ERR_ABORTED);
    }
    (void)tt_trial_close(&p);
}

static void nobody_waits_for_a_rank_that_cannot_look(void **state)
{
    (void)state;
    for (int what = WHOLE_GRAD; what < LOOKS; what++) {
        looks_t looks = {.what = (look_t)what};
        assert_int_equal(pthread_barrier_init(&looks.both, NULL, 2), 0);
        tt_team_expect_quietly(2, 100000, look_in_vain, &looks);
        pthread_barrier_destroy(&looks.both);
    }
}

/* Every allocation of a step on one rank, and of cutting the module, fails once. */
static void fail_allocations_of(tt_member_t *m, const tutti_module_ops_t *kind, const void *with)
{
    bool has_failed = true;
    for (size_t n = 1; has_failed && m->failure[0] == 0; n++) {
        const tutti_parallel_options_t options = {.shards = 3, .sequence = n % 2 == 0};
        tt_trial_t p = {0};
        TT_EXPECT(m, tt_trial_open(&p, kind, with) == TUTTI_OK);
        tutti_tensor_t *x = tutti_ones(p.s, TUTTI_F32, TUTTI_SHAPE(BATCH, 6, WIDTH));
        (void)tutti_tensor_set_requires_grad(x, true);
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_parallelize(p.net, m->group, &options);
        if (status >= 0) {
            status = tutti_backward(p.s, tutti_sum(p.s, tutti_forward(p.s, p.net, x)));
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        /* memory that is kept for later is given back first: the second try may go well */
        TT_EXPECT(m, status == TUTTI_OK || (has_failed && status == TUTTI_ERR_NOMEM));
        (void)tt_trial_close(&p);
    }
}

static void fail_allocations(tt_member_t *m)
{
    fail_allocations_of(m, &tutti_mlp_layer, &tt_trial_mlp);
    fail_allocations_of(m, &tutti_transformer_block_layer, &tt_trial_block);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    tt_team_expect(1, 20000, fail_allocations, NULL);
}

/* ---- memory that is missing on one rank ----------------------------------------------------- */

typedef enum { CUT, SCALE, LACKS } lack_t;

typedef struct {
    lack_t what;
    size_t nth;
    pthread_barrier_t both;
    tutti_status_t statuses[2];
} torture_t;

typedef struct {
    tt_trial_t place;
    tutti_optim_t *opt;
    tutti_scaler_t *scaler;
} trainer_t;

static tutti_status_t open_trainer(trainer_t *t, tt_member_t *m, lack_t what)
{
    tt_trial_t *p = &t->place;
    const tutti_scaler_options_t options = {.group = m->group};
    TUTTI_CHECK(tt_trial_open(p, &tutti_mlp_layer, &tt_trial_mlp));
    TUTTI_CHECK(tutti_scaler_create(&options, &t->scaler));
    TUTTI_CHECK(tutti_optim_create(p->ctx, &tutti_sgd, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, p->net, NULL, NULL));
    if (what == CUT) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_parallelize(p->net, m->group, NULL));
    tutti_tensor_t *x = tutti_ones(p->s, TUTTI_F32, TUTTI_SHAPE(BATCH, LENGTH, WIDTH));
    return tutti_backward(p->s, tutti_sum(p->s, tutti_forward(p->s, p->net, x)));
}

static tutti_status_t act(trainer_t *t, tt_member_t *m, lack_t what)
{
    if (what == CUT) {
        return tutti_parallelize(t->place.net, m->group, NULL);
    }
    TUTTI_CHECK(tutti_clip_grad_norm(t->opt, 1, 2, NULL));
    return tutti_scaler_unscale(t->scaler, t->opt);
}

static void act_without_memory(tt_member_t *m)
{
    trainer_t t = {0};
    torture_t *torture = m->user;
    TT_EXPECT(m, open_trainer(&t, m, torture->what) == TUTTI_OK);
    (void)pthread_barrier_wait(&torture->both);
    if (m->rank == 0) {
        tt_alloc_fail_at(torture->nth);
    }
    (void)pthread_barrier_wait(&torture->both);
    const tutti_status_t status = act(&t, m, torture->what);
    torture->statuses[m->rank] = status;
    TT_EXPECT(m, status < 0 || tutti_barrier(m->group, NULL) == TUTTI_OK); /* as it was */
    (void)pthread_barrier_wait(&torture->both); /* nobody leaves the group before */
    tutti_optim_release(t.opt);
    tutti_scaler_release(t.scaler);
    TT_EXPECT(m, tt_trial_close(&t.place) == TUTTI_OK);
}

/* All ranks say so, none takes it for a difference between ranks. */
static void lack_each_allocation(lack_t what)
{
    bool has_failed = true;
    torture_t torture = {.what = what};
    assert_int_equal(pthread_barrier_init(&torture.both, NULL, 2), 0);
    while (has_failed) {
        torture.nth++;
        tt_team_expect_quietly(2, 20000, act_without_memory, &torture);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        const tutti_status_t *got = torture.statuses;
        const bool one_lacks = got[0] == TUTTI_ERR_NOMEM || got[1] == TUTTI_ERR_NOMEM;
        if ((got[0] < 0 || got[1] < 0) && (got[0] >= 0 || got[1] >= 0 || !one_lacks)) {
            fail_msg("%d, allocation %zu: %d and %d", (int)what, torture.nth, (int)got[0],
                     (int)got[1]);
        }
    }
    assert_true(torture.nth > 20);
    pthread_barrier_destroy(&torture.both);
}

static void memory_that_one_rank_lacks_is_told_on_all(void **state)
{
    (void)state;
    for (int what = CUT; what < LACKS; what++) {
        lack_each_allocation((lack_t)what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_a_rank_that_failed),
        cmocka_unit_test(nobody_waits_for_a_second_turn_that_failed),
        cmocka_unit_test(nobody_waits_for_a_rank_without_an_input),
        cmocka_unit_test(nobody_waits_for_a_rank_that_cannot_look),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
        cmocka_unit_test(memory_that_one_rank_lacks_is_told_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
