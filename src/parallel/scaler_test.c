/* The loss scaler: an overflow skips its step on every rank, clipping stands between unscaling and
 * step, the scale shrinks and grows, the state goes on, wrong order is reported. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"
#include "core/tensor/device_testing.h"

enum { STEPS = 6, BAD_STEP = 3, SHARDS = 6, BAD_SHARD = 4, IN = 10, OUT = 5, BATCH = 3 };

typedef struct {
    bool is_clipped;
    char digests[TT_TEAM_MAX][STEPS][TUTTI_DIGEST_BYTES];
    bool is_skipped[TT_TEAM_MAX][STEPS];
    double scales[TT_TEAM_MAX][STEPS];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_scaler_t *scaler;
    job_t *job;
    int rank;
} trainer_t;

static void expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

/* In step BAD_STEP the samples of one shard are so large that its gradients overflow f16. */
static tutti_status_t run_shard(trainer_t *t, int step)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    const bool is_bad = step == BAD_STEP && tutti_context_shard(t->ctx) == BAD_SHARD;
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, IN), -1, 1);
    tutti_tensor_t *y =
        tutti_forward(s, tutti_ddp_module(t->ddp), tutti_mul_scalar(s, x, is_bad ? 1e3 : 1));
    tutti_tensor_t *loss =
        tutti_mse_loss(s, y, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, OUT)), TUTTI_LOSS_MEAN);
    (void)tutti_backward(s, tutti_scaler_scale(t->scaler, s, loss));
    return tutti_scope_close(s);
}

static tutti_status_t run_step(trainer_t *t, int step)
{
    tutti_context_set_step(t->ctx, step);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        TUTTI_CHECK(run_shard(t, step));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    if (t->job->is_clipped) {
        TUTTI_CHECK(tutti_scaler_unscale(t->scaler, t->opt));
        TUTTI_CHECK(tutti_clip_grad_norm(t->opt, 0.01, 2, NULL));
    }
    TUTTI_CHECK(tutti_scaler_step(t->scaler, t->opt, &t->job->is_skipped[t->rank][step]));
    TUTTI_CHECK(tutti_scaler_update(t->scaler));
    tutti_optim_zero_grad(t->opt);
    t->job->scales[t->rank][step] = tutti_scaler_get_state(t->scaler).scale;
    return tutti_module_digest(t->model, t->job->digests[t->rank][step]);
}

static tutti_status_t make_model(trainer_t *t, tutti_group_t *world)
{
    const tutti_linear_options_t up = {.in = IN, .out = 19, .activation = TUTTI_ACTIVATION_RELU};
    const tutti_linear_options_t down = {.in = 19, .out = OUT};
    const tutti_ddp_options_t ddp = {.shards = SHARDS};
    const tutti_scaler_options_t scaler = {
        .init_scale = 1024, .growth_interval = 2, .group = world};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->model));
    TUTTI_CHECK(tutti_sequential_add(t->model, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(t->model, &tutti_linear_layer, &down, NULL));
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->model, world, &ddp, &t->ddp));
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->model, NULL, NULL));
    return tutti_scaler_create(&scaler, &t->scaler);
}

static tutti_status_t train(tutti_group_t *world, job_t *job)
{
    trainer_t t = {.job = job, .rank = tutti_group_rank(world)};
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 3}, &t.ctx));
    tutti_context_set_autocast(t.ctx, TUTTI_F16);
    tutti_status_t status = make_model(&t, world);
    for (int step = 0; step < STEPS && status >= 0; step++) {
        status = run_step(&t, step);
    }
    tutti_scaler_release(t.scaler);
    tutti_optim_release(t.opt);
    tutti_ddp_release(t.ddp);
    tutti_module_release(t.model);
    tutti_context_release(t.ctx);
    return status;
}

static void train_member(tt_member_t *member)
{
    TT_EXPECT(member, train(member->group, member->user) == TUTTI_OK);
}

/* 1024, doubled after every second step without an overflow, halved by step 3. */
static void expect_one_skip(const job_t *job, int rank)
{
    static const double scales[STEPS] = {1024, 2048, 2048, 1024, 1024, 2048};
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(job->is_skipped[rank][step], step == BAD_STEP);
        assert_true(job->scales[rank][step] == scales[step]);
        if (step == 0) {
            continue;
        }
        const bool is_same = strcmp(job->digests[rank][step], job->digests[rank][step - 1]) == 0;
        assert_int_equal(is_same, step == BAD_STEP);
    }
}

static void an_overflow_skips_its_step_on_any_number_of_ranks(void **state)
{
    (void)state;
    for (int clipped = 0; clipped < 2; clipped++) {
        static job_t one, more;
        one = (job_t){.is_clipped = clipped};
        tt_team_expect(1, 20000, train_member, &one);
        expect_one_skip(&one, 0);
        for (int ranks = 2; ranks <= 3; ranks++) {
            more = (job_t){.is_clipped = clipped};
            tt_team_expect(ranks, 20000, train_member, &more);
            for (int rank = 0; rank < ranks; rank++) {
                expect_one_skip(&more, rank);
                assert_memory_equal(more.digests[rank], one.digests[0], sizeof one.digests[0]);
            }
        }
    }
}

/* ---- without DDP ---------------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_tensor_t *x, *grad; /* [3] */
    tutti_optim_t *opt;
} single_t;

/* NULL: on the host. */
static void open_single_on(single_t *f, tutti_device_t *device)
{
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &f->ctx), 0);
    assert_int_equal(tt_tensor_new(device, TUTTI_F32, TUTTI_SHAPE(3), true, &f->x), 0);
    assert_int_equal(tt_tensor_new(device, TUTTI_F32, TUTTI_SHAPE(3), true, &f->grad), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f->x, true), 0);
    assert_int_equal(tutti_tensor_set_grad(f->x, f->grad), 0);
    assert_int_equal(
        tutti_optim_create(f->ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 1}, &f->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(f->opt, 0, "x", f->x), 0);
}

static void open_single(single_t *f)
{
    open_single_on(f, NULL);
}

static void close_single(single_t *f)
{
    tutti_optim_release(f->opt);
    tutti_tensor_release(f->grad);
    tutti_tensor_release(f->x);
    tutti_context_release(f->ctx);
}

/* Each rank has gradients of its own, and the last one's are NaN. */
static void step_alone(tt_member_t *member)
{
    single_t f;
    tutti_scaler_t *scaler;
    bool is_skipped = false;
    const bool *agrees = member->user;
    open_single(&f);
    const tutti_scaler_options_t options = {.group = *agrees ? member->group : NULL};
    TT_EXPECT(member, tutti_scaler_create(&options, &scaler) == TUTTI_OK);
    const bool is_last = member->rank == member->size - 1;
    TT_EXPECT(member, tutti_tensor_fill(f.grad, is_last ? (double)NAN : 1.0) == TUTTI_OK);
    TT_EXPECT(member, tutti_scaler_step(scaler, f.opt, &is_skipped) == TUTTI_OK);
    TT_EXPECT(member, tutti_scaler_update(scaler) == TUTTI_OK);
    TT_EXPECT(member, is_skipped == (*agrees || is_last));
    TT_EXPECT(member, tutti_scaler_get_state(scaler).scale == (is_skipped ? 32768 : 65536));
    TT_EXPECT(member, tutti_tensor_at(f.x, 0) == (is_skipped ? 0 : -1.0 / 65536));
    tutti_scaler_release(scaler);
    close_single(&f);
}

static void ranks_of_a_group_skip_alike(void **state)
{
    (void)state;
    for (int agrees = 0; agrees < 2; agrees++) {
        bool user = agrees;
        tt_team_expect(3, 20000, step_alone, &user);
    }
}

/* The last rank's: it is away, or its device fails. */
static void spoil(const single_t *f, tutti_device_t *device, bool fails)
{
    if (fails) {
        tt_test_fail_on(device);
    } else {
        assert_int_equal(tt_storage_evict(f->grad->storage, "it is away"), 0);
    }
}

static void mend(const single_t *f, tutti_device_t *device, bool fails)
{
    if (fails) {
        assert_int_equal(tutti_device_synchronize(device, 0), TUTTI_ERR_ARG);
    } else {
        assert_int_equal(tt_storage_refill(f->grad->storage, device), 0);
        assert_int_equal(tt_storage_publish(f->grad->storage), 0);
        assert_int_equal(tutti_tensor_fill(f->grad, 65536), 0);
    }
}

/* All are told; a second call steps, or skips where the gradients are lost. */
static void step_beside_one_that_fails(tt_member_t *member)
{
    const bool *fails = member->user, is_last = member->rank == member->size - 1;
    single_t f;
    tutti_scaler_t *scaler;
    tutti_device_t *device;
    char name[16];
    bool is_skipped;
    snprintf(name, sizeof name, "strict:%d", member->rank);
    assert_int_equal(tutti_device_open(name, NULL, &device), 0);
    open_single_on(&f, device);
    const tutti_scaler_options_t options = {.group = member->group};
    TT_EXPECT(member, tutti_scaler_create(&options, &scaler) == TUTTI_OK);
    TT_EXPECT(member, tutti_tensor_fill(f.grad, 65536) == TUTTI_OK);
    if (is_last) {
        spoil(&f, device, *fails);
    }
    const tutti_status_t status = tutti_scaler_step(scaler, f.opt, NULL);
    TT_EXPECT(member, status == (*fails ? TUTTI_ERR_ARG : TUTTI_ERR_STATE));
    TT_EXPECT(member, strstr(tutti_last_error(), *fails ? "it fails" : "it is away") != NULL);
    TT_EXPECT(member, (strstr(tutti_last_error(), "rank 2: ") == NULL) == is_last);
    if (is_last) {
        mend(&f, device, *fails);
    }
    TT_EXPECT(member, tutti_scaler_step(scaler, f.opt, &is_skipped) == TUTTI_OK);
    TT_EXPECT(member, is_skipped == *fails);
    TT_EXPECT(member, tutti_scaler_update(scaler) == TUTTI_OK);
    TT_EXPECT(member, tutti_tensor_at(f.x, 0) == (*fails ? 0 : -1));
    tutti_scaler_release(scaler);
    close_single(&f);
    tutti_device_release(device);
}

static void a_rank_that_fails_is_not_waited_for(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        bool user = fails;
        tt_team_expect(3, 20000, step_beside_one_that_fails, &user);
    }
}

static void clipping_sees_the_unscaled_gradient(void **state)
{
    (void)state;
    single_t f;
    tutti_scaler_t *scaler;
    double norm;
    open_single(&f);
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    assert_int_equal(tutti_tensor_fill(f.grad, 65536 * 2.0), 0);
    assert_int_equal(tutti_scaler_unscale(scaler, f.opt), 0);
    assert_int_equal(tutti_clip_grad_norm(f.opt, 1, 2, &norm), 0);
    assert_true(fabs(norm - 2 * sqrt(3)) < 1e-6);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, NULL), 0);
    assert_true(fabs(tutti_tensor_at(f.x, 1) + 1 / sqrt(3)) < 1e-6);
    assert_int_equal(tutti_scaler_unscale(scaler, f.opt), TUTTI_ERR_STATE);
    expect_error("unscale: the optimizer has stepped since the last update");
    assert_int_equal(tutti_scaler_step(scaler, f.opt, NULL), TUTTI_ERR_STATE);
    expect_error("step: the optimizer has stepped since the last update");
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_int_equal(tutti_scaler_update(scaler), TUTTI_ERR_STATE);
    expect_error("update: no optimizer has been unscaled or stepped");
    tutti_scaler_release(scaler);
    close_single(&f);
}

/* Gradients of 16 bits are widened first, for which there may be no memory. */
static bool step_with_a_failed_allocation(size_t nth)
{
    enum { COUNT = 3 };
    single_t f;
    tutti_scaler_t *scaler;
    tutti_tensor_t *x[COUNT], *grad;
    bool is_skipped = true;
    open_single(&f);
    assert_int_equal(tutti_tensor_fill(f.grad, 65536), 0);
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    for (int i = 0; i < COUNT; i++) {
        const char name[] = {(char)('a' + i), 0};
        assert_int_equal(tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(2), &x[i]), 0);
        assert_int_equal(tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(2), &grad), 0);
        assert_int_equal(tutti_tensor_fill(grad, 65536), 0);
        assert_int_equal(tutti_tensor_set_requires_grad(x[i], true), 0);
        assert_int_equal(tutti_tensor_set_grad(x[i], grad), 0);
        assert_int_equal(tutti_optim_add_parameter(f.opt, 0, name, x[i]), 0);
        tutti_tensor_release(grad);
    }
    tt_alloc_fail_at(nth);
    const tutti_status_t status = tutti_scaler_step(scaler, f.opt, &is_skipped);
    const bool has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (has_failed) {
        assert_int_equal(tutti_scaler_step(scaler, f.opt, &is_skipped), 0);
    }
    assert_false(is_skipped);
    assert_true(tutti_tensor_at(f.x, 0) == -1);
    for (int i = 0; i < COUNT; i++) {
        assert_true(tutti_tensor_at(x[i], 0) == -1);
        tutti_tensor_release(x[i]);
    }
    tutti_scaler_release(scaler);
    close_single(&f);
    return has_failed;
}

static void a_step_that_failed_may_be_repeated(void **state)
{
    (void)state;
    size_t nth = 1;
    while (step_with_a_failed_allocation(nth)) {
        nth++;
    }
    assert_true(nth > 4);
}

/* The ranks cannot agree: nobody steps, and what was unscaled is not unscaled again. */
static void step_in_an_aborted_group(tt_member_t *member)
{
    single_t f;
    tutti_scaler_t *scaler;
    open_single(&f);
    const tutti_scaler_options_t options = {.group = member->group};
    TT_EXPECT(member, tutti_scaler_create(&options, &scaler) == TUTTI_OK);
    TT_EXPECT(member, tutti_tensor_fill(f.grad, 65536) == TUTTI_OK);
    tutti_group_abort(member->group);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(member, tutti_scaler_step(scaler, f.opt, NULL) == TUTTI_ERR_ABORTED);
        TT_EXPECT(member, tutti_scaler_unscale(scaler, f.opt) == TUTTI_ERR_ABORTED);
        TT_EXPECT(member, tutti_tensor_at(f.grad, 0) == 1 && tutti_tensor_at(f.x, 0) == 0);
    }
    tutti_scaler_release(scaler);
    close_single(&f);
}

static void a_step_without_agreement_changes_nothing(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, step_in_an_aborted_group, NULL);
}

static void a_disabled_scaler_does_nothing(void **state)
{
    (void)state;
    single_t f;
    tutti_scaler_t *scaler;
    bool is_skipped = true;
    open_single(&f);
    assert_int_equal(tutti_scaler_create(&(tutti_scaler_options_t){.disabled = true}, &scaler), 0);
    assert_int_equal(tutti_tensor_fill(f.grad, 2), 0);
    assert_int_equal(tutti_scaler_unscale(scaler, f.opt), 0);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, &is_skipped), 0);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_true(!is_skipped && tutti_tensor_at(f.x, 0) == -2);
    assert_true(tutti_scaler_get_state(scaler).scale == 1);
    tutti_scaler_release(scaler);
    close_single(&f);
}

/* Two optimizers, two gradients: both are unscaled and stepped, and one update is for both. */
static void a_scaler_serves_several_optimizers(void **state)
{
    (void)state;
    single_t one, other;
    tutti_scaler_t *scaler;
    bool is_skipped;
    open_single(&one);
    open_single(&other);
    const tutti_scaler_options_t options = {.init_scale = 64, .growth_interval = 1};
    assert_int_equal(tutti_scaler_create(&options, &scaler), 0);
    assert_int_equal(tutti_tensor_fill(one.grad, 64), 0);
    assert_int_equal(tutti_tensor_fill(other.grad, (double)INFINITY), 0);
    assert_int_equal(tutti_scaler_unscale(scaler, one.opt), 0);
    assert_int_equal(tutti_scaler_unscale(scaler, other.opt), 0);
    assert_int_equal(tutti_scaler_unscale(scaler, one.opt), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scaler_step(scaler, one.opt, &is_skipped), 0);
    assert_false(is_skipped);
    assert_true(tutti_tensor_at(one.x, 0) == -1);
    assert_int_equal(tutti_scaler_step(scaler, other.opt, &is_skipped), 0);
    assert_true(is_skipped);
    assert_true(tutti_tensor_at(other.x, 0) == 0);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_true(tutti_scaler_get_state(scaler).scale == 32);
    assert_int_equal(tutti_scaler_update(scaler), TUTTI_ERR_STATE);
    tutti_scaler_release(scaler);
    close_single(&other);
    close_single(&one);
}

static void a_saved_state_goes_on(void **state)
{
    (void)state;
    single_t f;
    tutti_scaler_t *scaler, *other;
    char path[] = "/tmp/tutti-scaler-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && close(file) == 0);
    open_single(&f);
    const tutti_scaler_options_t options = {.init_scale = 64, .growth_interval = 2};
    assert_int_equal(tutti_scaler_create(&options, &scaler), 0);
    assert_int_equal(tutti_scaler_create(&options, &other), 0);
    assert_int_equal(tutti_tensor_fill(f.grad, (double)INFINITY), 0);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, NULL), 0);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_int_equal(tutti_tensor_fill(f.grad, 1), 0);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, NULL), 0);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_int_equal(tutti_scaler_save(scaler, path), 0);
    assert_int_equal(tutti_scaler_load(other, path), 0);
    tutti_scaler_state_t kept = tutti_scaler_get_state(other);
    assert_true(kept.scale == 32 && kept.growth_tracker == 1 && kept.skipped == 1);
    assert_int_equal(tutti_scaler_step(other, f.opt, NULL), 0);
    assert_int_equal(tutti_scaler_load(other, path), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scaler_update(other), 0);
    assert_true(tutti_scaler_get_state(other).scale == 64);
    kept.scale = -1;
    assert_int_equal(tutti_scaler_set_state(other, kept), TUTTI_ERR_ARG);
    expect_error("the state's scale is -1");
    for (int i = 0; i < 2; i++) {
        const tutti_scaler_state_t wrong = {1, i == 0 ? -1 : 0, i == 0 ? 0 : -1};
        assert_int_equal(tutti_scaler_set_state(other, wrong), TUTTI_ERR_ARG);
    }
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tutti_scaler_load(other, path);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
    assert_int_equal(tutti_optim_save(f.opt, path), 0);
    assert_int_equal(tutti_scaler_load(other, path), TUTTI_ERR_MISMATCH);
    expect_error("has no \"scale\": it is no scaler's");
    tutti_scaler_release(other);
    tutti_scaler_release(scaler);
    close_single(&f);
    assert_int_equal(unlink(path), 0);
}

static void the_scale_stays_finite(void **state)
{
    (void)state;
    single_t f;
    tutti_scaler_t *scaler;
    open_single(&f);
    const tutti_scaler_options_t options = {.init_scale = 0x1p127, .growth_interval = 1};
    assert_int_equal(tutti_scaler_create(&options, &scaler), 0);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, NULL), 0);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_true(tutti_scaler_get_state(scaler).scale == 0x1p127);
    tutti_scaler_release(scaler);
    close_single(&f);
}

/* A scale whose reciprocal is infinite would make NaN of a gradient that is 0, behind the look for
 * overflows. */
static void the_scale_stays_above_zero(void **state)
{
    (void)state;
    single_t f;
    tutti_scaler_t *scaler;
    bool is_skipped;
    open_single(&f);
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(tutti_tensor_fill(f.grad, INFINITY), 0);
        assert_int_equal(tutti_scaler_step(scaler, f.opt, &is_skipped), 0);
        assert_true(is_skipped);
        assert_int_equal(tutti_scaler_update(scaler), 0);
    }
    assert_true(tutti_scaler_get_state(scaler).scale == 0x1p-126);
    const double before = tutti_tensor_at(f.x, 0);
    assert_int_equal(tutti_tensor_fill(f.grad, 0), 0);
    assert_int_equal(tutti_scaler_step(scaler, f.opt, &is_skipped), 0);
    assert_false(is_skipped);
    assert_true(tutti_tensor_at(f.x, 0) == before);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_int_equal(tutti_scaler_set_state(scaler, (tutti_scaler_state_t){.scale = 1e-40}),
                     TUTTI_ERR_ARG);
    tutti_scaler_release(scaler);
    close_single(&f);
}

static void bad_options_are_named(void **state)
{
    (void)state;
    static const struct {
        tutti_scaler_options_t options;
        const char *error;
    } cases[] = {
        {{.init_scale = -1}, "init_scale is -1: it must be above 1e-37"},
        {{.growth_factor = 1}, "growth_factor is 1: it must be above 1"},
        {{.backoff_factor = 1}, "backoff_factor is 1"},
        {{.growth_interval = -3}, "growth_interval is -3: it must be at least 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tutti_scaler_t *scaler;
        assert_int_equal(tutti_scaler_create(&cases[i].options, &scaler), TUTTI_ERR_ARG);
        expect_error(cases[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_skips_its_step_on_any_number_of_ranks),
        cmocka_unit_test(ranks_of_a_group_skip_alike),
        cmocka_unit_test(a_rank_that_fails_is_not_waited_for),
        cmocka_unit_test(clipping_sees_the_unscaled_gradient),
        cmocka_unit_test(a_step_that_failed_may_be_repeated),
        cmocka_unit_test(a_step_without_agreement_changes_nothing),
        cmocka_unit_test(a_disabled_scaler_does_nothing),
        cmocka_unit_test(a_scaler_serves_several_optimizers),
        cmocka_unit_test(a_saved_state_goes_on),
        cmocka_unit_test(the_scale_stays_finite),
        cmocka_unit_test(the_scale_stays_above_zero),
        cmocka_unit_test(bad_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
