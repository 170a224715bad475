/* Mixed precision: what a module is in a step and between two, what its gradients are, and the same
 * bits on any number of ranks. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/log.h"

enum { STEPS = 3, WIDE = 6, BATCH = 4, SHARDS = 3 };

typedef struct {
    tutti_ddp_options_t options;
    bool recomputes;
    bool is_inside; /* the optimizer's step, inside backward */
    const tutti_ddp_hook_ops_t *hook;
    int micro_batches; /* 0: one */
    float weights[TT_TEAM_MAX][WIDE * WIDE];
    char digests[TT_TEAM_MAX][TUTTI_DIGEST_BYTES];
} job_t;

static tutti_status_t make_model(tutti_context_t *ctx, bool recomputes, tutti_module_t **out)
{
    const tutti_sequential_options_t all = {.recompute = recomputes};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, &all, out));
    const tutti_linear_options_t linear = {
        .in = WIDE, .out = WIDE, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_batch_norm_layer_options_t norm = {.width = WIDE};
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &linear, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_batch_norm_layer, &norm, NULL));
    return tutti_sequential_add(*out, &tutti_linear_layer, &linear, NULL);
}

static tutti_tensor_t *input(tutti_scope_t *s)
{
    return tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDE), -1, 1);
}

static tutti_tensor_t *loss_of(tutti_scope_t *s, tutti_tensor_t *y)
{
    return tutti_mean(s, tutti_square(s, y));
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const job_t *job)
{
    const int count = job->micro_batches > 0 ? job->micro_batches : 1;
    if (job->options.uneven != TUTTI_DDP_EVEN) {
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, 3 + tutti_context_shard(ctx)));
    }
    for (int i = 0; i < count; i++) {
        tutti_scope_t *s;
        tutti_ddp_no_sync(ddp, i + 1 < count);
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        (void)tutti_backward(s, loss_of(s, tutti_ddp_forward(s, ddp, input(s))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return TUTTI_OK;
}

static tutti_status_t train(tutti_ddp_t *ddp, tutti_context_t *ctx, tutti_optim_t *opt,
                            const job_t *job)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(ctx, step);
        while (tutti_ddp_next_shard(ddp, ctx)) {
            TUTTI_CHECK(run_shard(ddp, ctx, job));
        }
        TUTTI_CHECK(tutti_ddp_finish(ddp));
        if (!job->is_inside) {
            TUTTI_CHECK(tutti_clip_grad_norm(opt, 10, 2, NULL));
            TUTTI_CHECK(tutti_optim_step(opt));
        }
    }
    return TUTTI_OK;
}

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} setting_t;

/* Without a ddp yet. */
static void open_setting_of(tt_member_t *m, bool recomputes, setting_t *set)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 42};
    TT_EXPECT(m, tutti_context_create(&options, &set->ctx) == TUTTI_OK);
    TT_EXPECT(m, make_model(set->ctx, recomputes, &set->model) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(set->ctx, &tutti_adamw, NULL, &set->opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(set->opt, set->model, NULL, NULL) == TUTTI_OK);
}

static void open_setting(tt_member_t *m, setting_t *set)
{
    open_setting_of(m, false, set);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_optim_release(set->opt);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    setting_t set = {0};
    open_setting_of(m, job->recomputes, &set);
    tutti_ddp_options_t options = job->options;
    options.shards = SHARDS;
    options.bucket_bytes = 64;
    options.optimizer = job->is_inside ? set.opt : NULL;
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    TT_EXPECT(m, job->hook == NULL || tutti_ddp_set_hook(set.ddp, job->hook, NULL) == TUTTI_OK);
    TT_EXPECT(m, train(set.ddp, set.ctx, set.opt, job) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    const tutti_tensor_t *w = tutti_module_find(set.model, "0.weight");
    TT_EXPECT(m, tutti_tensor_dtype(w) == TUTTI_F32);
    for (int64_t i = 0; i < WIDE * WIDE; i++) {
        job->weights[m->rank][i] = (float)tutti_tensor_at(w, i);
    }
    close_setting(&set);
}

static const char *digest_on(int ranks, job_t *job)
{
    tt_team_expect_quietly(ranks, 20000, train_member, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
    }
    return job->digests[0];
}

static const tutti_ddp_options_t choices[] = {
    {.param_dtype = TUTTI_BF16},
    {.param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16},
    {.param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_F16, .buffer_dtype = TUTTI_F16},
    {.param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_BF16, .buffer_dtype = TUTTI_BF16},
    {.reduce_dtype = TUTTI_BF16},
    {.buffer_dtype = TUTTI_BF16},
};

enum { CHOICES = sizeof choices / sizeof choices[0] };

/* Of three ranks each hosts a shard, and 16 bits travel; of four one hosts none. */
static void dtypes_keep_every_bit_on_any_number_of_ranks(void **state)
{
    (void)state;
    char seen[CHOICES][TUTTI_DIGEST_BYTES];
    for (int c = 0; c < CHOICES; c++) {
        job_t one = {.options = choices[c]};
        memcpy(seen[c], digest_on(1, &one), sizeof seen[c]);
        for (int ranks = 2; ranks <= 4; ranks++) {
            job_t job = {.options = choices[c]};
            assert_string_equal(digest_on(ranks, &job), seen[c]);
        }
        for (int other = 0; other < c; other++) {
            assert_string_not_equal(seen[c], seen[other]);
        }
    }
}

/* What travels in 16 bits is added up in f32 by every algorithm. */
static void algorithms_change_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = {"pairwise", "tree", "ring", "staged", "scatter_gather"};
    job_t one = {.options = choices[1]};
    const char *wanted = digest_on(1, &one);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        job_t job = {.options = choices[1]};
        setenv("TUTTI_ALGO", names[i], 1);
        const bool is_alike = strcmp(digest_on(3, &job), wanted) == 0;
        assert_true(is_alike || strcmp(names[i], "ring") == 0);
    }
    unsetenv("TUTTI_ALGO");
}

static void so_do_weights_and_micro_batches(void **state)
{
    (void)state;
    for (int c = 0; c < CHOICES; c++) {
        job_t one = {.options = choices[c], .micro_batches = 2};
        one.options.uneven = TUTTI_DDP_WEIGHTED;
        job_t three = one;
        assert_string_equal(digest_on(3, &three), digest_on(1, &one));
    }
}

static void a_step_inside_backward_changes_no_bit(void **state)
{
    (void)state;
    for (int c = 0; c < CHOICES; c++) {
        job_t plain = {.options = choices[c]};
        const char *wanted = digest_on(1, &plain);
        for (int ranks = 1; ranks <= 4; ranks++) {
            job_t inside = {.options = choices[c], .is_inside = true};
            assert_string_equal(digest_on(ranks, &inside), wanted);
            inside.recomputes = true;
            assert_string_equal(digest_on(ranks, &inside), wanted);
        }
    }
}

static void expect_near(job_t *got, const job_t *want, double tolerance)
{
    for (int i = 0; i < WIDE * WIDE; i++) {
        const double a = (double)got->weights[0][i], b = (double)want->weights[0][i];
        if (!(fabs(a - b) <= tolerance)) {
            fail_msg("weight %d is %.9g instead of %.9g", i, a, b);
        }
    }
}

/* AdamW's steps are of 1e-3 each, whatever a gradient's size. */
static void training_is_about_that_in_f32(void **state)
{
    (void)state;
    job_t f32 = {.micro_batches = 0};
    (void)digest_on(1, &f32);
    for (int c = 0; c < CHOICES; c++) {
        job_t job = {.options = choices[c]}, hooked = job, free = job;
        (void)digest_on(2, &job);
        expect_near(&job, &f32, 2e-3);
        hooked.hook = &tutti_allreduce_hook;
        (void)digest_on(2, &hooked);
        expect_near(&hooked, &f32, 2e-3);
        free.options.exact = TUTTI_DDP_EXACT_OFF;
        (void)digest_on(2, &free);
        expect_near(&free, &job, 2e-3);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

static float rounded(float x, tutti_dtype_t dtype)
{
    tutti_tensor_t *wide, *narrow;
    float y = NAN;
    if (tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(1), &x, &wide) == TUTTI_OK &&
        tutti_tensor_create(dtype, TUTTI_SHAPE(1), &narrow) == TUTTI_OK) {
        (void)tutti_tensor_copy(narrow, wide);
        y = (float)tutti_tensor_at(narrow, 0);
        tutti_tensor_release(narrow);
        tutti_tensor_release(wide);
    }
    return y;
}

/* The gradient of w in shard `shard`, by a module that is cast. */
static void reference(tt_member_t *m, tutti_dtype_t dtype, int shard, float *grad)
{
    setting_t set = {0};
    open_setting(m, &set);
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_module_cast(set.model, dtype) == TUTTI_OK);
    tutti_context_set_shard(set.ctx, shard);
    TT_EXPECT(m, tutti_scope_open(set.ctx, &s) == TUTTI_OK);
    tutti_tensor_t *x = tutti_cast(s, input(s), dtype);
    (void)tutti_backward(s, loss_of(s, tutti_forward(s, set.model, x)));
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tutti_tensor_t *g = tutti_tensor_grad(tutti_module_find(set.model, "0.weight"));
    for (int64_t i = 0; i < WIDE * WIDE; i++) {
        grad[i] = (float)tutti_tensor_at(g, i);
    }
    close_setting(&set);
}

static void average_member(tt_member_t *m)
{
    const tutti_ddp_options_t *choice = m->user;
    float grads[2][WIDE * WIDE];
    setting_t set = {0};
    open_setting(m, &set);
    tutti_ddp_options_t options = *choice;
    options.shards = 2;
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    job_t job = {.options = options};
    while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
        TT_EXPECT(m, run_shard(set.ddp, set.ctx, &job) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    tutti_tensor_t *got = tutti_tensor_grad(tutti_module_find(set.model, "0.weight"));
    TT_EXPECT(m, tutti_tensor_dtype(got) == TUTTI_F32);
    for (int shard = 0; shard < 2; shard++) {
        reference(m, choice->param_dtype, shard, grads[shard]);
    }
    for (int i = 0; i < WIDE * WIDE; i++) {
        const tutti_dtype_t dtype = choice->reduce_dtype;
        const float sum = rounded(grads[0][i], dtype) + rounded(grads[1][i], dtype);
        TT_EXPECT(m, (float)tutti_tensor_at(got, i) == rounded(sum / 2, dtype));
    }
    close_setting(&set);
}

static void gradients_are_rounded_where_it_is_said(void **state)
{
    (void)state;
    for (int c = 0; c < CHOICES; c++) {
        tutti_ddp_options_t choice = choices[c];
        choice.buffer_dtype = choice.param_dtype; /* as in a module that is cast */
        for (int ranks = 1; ranks <= 3; ranks++) {
            tt_team_expect_quietly(ranks, 20000, average_member, &choice);
        }
    }
}

/* ---- what a module is when ------------------------------------------------------------------- */

static bool has_dtypes(tutti_module_t *model, tutti_dtype_t parameters, tutti_dtype_t buffers)
{
    return tutti_tensor_dtype(tutti_module_find(model, "0.weight")) == parameters &&
           tutti_tensor_dtype(tutti_module_find(model, "1.bias")) == parameters &&
           tutti_tensor_dtype(tutti_module_find(model, "1.running_mean")) == buffers;
}

static void watch_member(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {
        .shards = SHARDS, .param_dtype = TUTTI_BF16, .buffer_dtype = TUTTI_BF16};
    tutti_tensor_t *frozen = tutti_module_find(set.model, "1.bias");
    TT_EXPECT(m, tutti_tensor_set_requires_grad(frozen, false) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_BF16));
    const job_t job = {.options = options};
    while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
        TT_EXPECT(m, has_dtypes(set.model, TUTTI_BF16, TUTTI_BF16));
        TT_EXPECT(m, run_shard(set.ddp, set.ctx, &job) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_BF16));
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx) == (m->rank < SHARDS));
    tutti_ddp_release(set.ddp); /* in the middle of a step */
    set.ddp = NULL;
    TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_BF16));
    TT_EXPECT(m, tutti_tensor_grad(tutti_module_find(set.model, "0.weight")) == NULL);
    close_setting(&set);
}

static void parameters_are_f32_between_steps(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        tt_team_expect_quietly(ranks, 20000, watch_member, NULL);
    }
}

/* What somebody writes between steps counts in the next one. */
static void write_member(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {.param_dtype = TUTTI_BF16};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    tutti_tensor_t *w = tutti_module_find(set.model, "0.weight");
    const job_t job = {.options = options};
    for (int step = 0; step < 3; step++) {
        TT_EXPECT(m, tutti_tensor_fill(w, 0.5 + step) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
        TT_EXPECT(m, tutti_tensor_at(w, 7) == 0.5 + step);
        TT_EXPECT(m, run_shard(set.ddp, set.ctx, &job) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
    }
    close_setting(&set);
}

static void copies_follow_their_parameters(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, write_member, NULL);
}

/* The nth allocation fails while the module is wrapped, or in the first step: it is f32 again, and
 * the optimizer its owner's. */
static void fail_member(tt_member_t *m)
{
    const size_t *nth = m->user;
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {.shards = SHARDS,
                                         .param_dtype = TUTTI_BF16,
                                         .reduce_dtype = TUTTI_F16,
                                         .optimizer = set.opt};
    const job_t job = {.options = options};
    tt_alloc_fail_at(*nth);
    tutti_status_t status = tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp);
    while (status >= 0 && tutti_ddp_next_shard(set.ddp, set.ctx)) {
        status = run_shard(set.ddp, set.ctx, &job);
    }
    status = status < 0 ? status : tutti_ddp_finish(set.ddp);
    tt_alloc_fail_at(0);
    TT_EXPECT(m, status == TUTTI_OK || status == TUTTI_ERR_NOMEM);
    tutti_ddp_release(set.ddp);
    set.ddp = NULL;
    TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_F32));
    TT_EXPECT(m, tutti_optim_step(set.opt) == TUTTI_OK);
    close_setting(&set);
}

static void without_memory_nothing_stays_lowered(void **state)
{
    (void)state;
    for (size_t nth = 1; nth < 700; nth += nth < 150 ? 1 : 7) {
        tt_team_expect_quietly(1, 20000, fail_member, &nth);
    }
}

/* The nth allocation fails in the second step, in which buckets are filled again. */
static void fail_again_member(tt_member_t *m)
{
    const size_t *nth = m->user;
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {
        .shards = SHARDS, .param_dtype = TUTTI_BF16, .first_bucket_bytes = 64, .bucket_bytes = 128};
    const job_t job = {.options = options};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_set_hook(set.ddp, &tutti_bf16_hook, NULL) == TUTTI_OK);
    tutti_status_t status = TUTTI_OK;
    for (int step = 0; step < 2; step++) {
        tt_alloc_fail_at(step == 0 ? 0 : *nth);
        while (status >= 0 && tutti_ddp_next_shard(set.ddp, set.ctx)) {
            status = run_shard(set.ddp, set.ctx, &job);
        }
        status = status < 0 ? status : tutti_ddp_finish(set.ddp);
        tt_alloc_fail_at(0);
        TT_EXPECT(m, status == TUTTI_OK || (step == 1 && status == TUTTI_ERR_NOMEM));
    }
    TT_EXPECT(m, status < 0 || tutti_ddp_stats(set.ddp).is_rebuilt);
    (void)tutti_ddp_finish(set.ddp); /* whoever fails in a shard ends the step, too */
    TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_F32));
    close_setting(&set);
}

static void without_memory_buckets_are_filled_again_or_not_there(void **state)
{
    (void)state;
    for (size_t nth = 1; nth < 300; nth += nth < 100 ? 1 : 7) {
        tt_team_expect_quietly(1, 20000, fail_again_member, &nth);
    }
}

/* A step that fails: whoever keeps what there is of the model keeps f32. */
static void abandon_member(tt_member_t *m)
{
    const bool *is_in_forward = m->user;
    setting_t set = {0};
    tutti_scope_t *s;
    open_setting(m, &set);
    const tutti_ddp_options_t options = {.param_dtype = TUTTI_BF16};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.ctx));
    TT_EXPECT(m, tutti_scope_open(set.ctx, &s) == TUTTI_OK);
    if (*is_in_forward) { /* and no backward follows */
        (void)tutti_ddp_forward(s, set.ddp, input(s));
    } else {
        TT_EXPECT(m, tutti_tensor_set_grad(tutti_module_find(set.model, "0.weight"), NULL) >= 0);
        (void)tutti_backward(s, loss_of(s, tutti_ddp_forward(s, set.ddp, input(s))));
    }
    (void)tutti_scope_close(s);
    for (int again = 0; again < 2; again++) {
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_ERR_STATE);
        TT_EXPECT(m, has_dtypes(set.model, TUTTI_F32, TUTTI_F32));
    }
    close_setting(&set);
}

static void a_step_that_fails_ends_in_f32_too(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool is_in_forward = i == 1;
        tt_team_expect_quietly(1, 20000, abandon_member, &is_in_forward);
    }
}

static bool says(const char *part)
{
    return strstr(tutti_last_error(), part) != NULL;
}

static void expect_refusals(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    tutti_ddp_options_t options = {.param_dtype = TUTTI_F64};
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("options.param_dtype is f64: it must be f32, bf16 or f16"));
    options = (tutti_ddp_options_t){.reduce_dtype = TUTTI_I32};
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("options.reduce_dtype is i32"));
    TT_EXPECT(m, tutti_module_cast(set.model, TUTTI_BF16) == TUTTI_OK);
    options = (tutti_ddp_options_t){.param_dtype = TUTTI_BF16};
    TT_EXPECT(m,
              tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(m, says("parameter 0.weight is bf16: options.param_dtype"));
    close_setting(&set);
}

static void what_is_no_dtype_for_it_is_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, 20000, expect_refusals, NULL);
}

static void expect_mismatch(tt_member_t *m)
{
    setting_t set = {0};
    open_setting(m, &set);
    const tutti_ddp_options_t options = {.reduce_dtype = m->rank == 1 ? TUTTI_F16 : TUTTI_F32};
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) ==
                     TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, m->rank == 0 || says("\"dtypes: parameters f32, reduced in f16, buffers f32\""));
    close_setting(&set);
}

static void ranks_that_differ_are_told(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, expect_mismatch, NULL);
}

/* ---- parameters of 16 bits ------------------------------------------------------------------- */

static void cast_member(tt_member_t *m)
{
    job_t *job = m->user;
    setting_t set = {0};
    open_setting(m, &set);
    tutti_ddp_options_t options = job->options;
    options.shards = SHARDS;
    TT_EXPECT(m, tutti_module_cast(set.model, TUTTI_BF16) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(set.ctx, set.model, m->group, &options, &set.ddp) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        tutti_context_set_step(set.ctx, step);
        while (tutti_ddp_next_shard(set.ddp, set.ctx)) {
            tutti_scope_t *s;
            TT_EXPECT(m, tutti_scope_open(set.ctx, &s) == TUTTI_OK);
            tutti_tensor_t *x = tutti_cast(s, input(s), TUTTI_BF16);
            (void)tutti_backward(s, loss_of(s, tutti_ddp_forward(s, set.ddp, x)));
            TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(set.ddp) == TUTTI_OK);
        TT_EXPECT(m, tutti_optim_step(set.opt) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_module_digest(set.model, job->digests[m->rank]) == TUTTI_OK);
    close_setting(&set);
}

static void parameters_of_16_bits_keep_every_bit_too(void **state)
{
    (void)state;
    job_t one = {.micro_batches = 0};
    tt_team_expect_quietly(1, 20000, cast_member, &one);
    for (int ranks = 2; ranks <= 4; ranks++) {
        job_t job = {.options.bucket_bytes = 64};
        tt_team_expect_quietly(ranks, 20000, cast_member, &job);
        for (int rank = 0; rank < ranks; rank++) {
            assert_string_equal(job.digests[rank], one.digests[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_keep_every_bit_on_any_number_of_ranks),
        cmocka_unit_test(algorithms_change_no_bit),
        cmocka_unit_test(so_do_weights_and_micro_batches),
        cmocka_unit_test(a_step_inside_backward_changes_no_bit),
        cmocka_unit_test(training_is_about_that_in_f32),
        cmocka_unit_test(gradients_are_rounded_where_it_is_said),
        cmocka_unit_test(parameters_are_f32_between_steps),
        cmocka_unit_test(copies_follow_their_parameters),
        cmocka_unit_test(without_memory_nothing_stays_lowered),
        cmocka_unit_test(without_memory_buckets_are_filled_again_or_not_there),
        cmocka_unit_test(a_step_that_fails_ends_in_f32_too),
        cmocka_unit_test(what_is_no_dtype_for_it_is_refused),
        cmocka_unit_test(ranks_that_differ_are_told),
        cmocka_unit_test(parameters_of_16_bits_keep_every_bit_too),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
