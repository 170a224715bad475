/* Modules that compute in f32 under mixed precision: what they are given and give, bit by bit; the
 * same bits at every stage and on any number of ranks. */
#include "core/base/testing.h"

#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "core/tensor/tensor_impl.h"

enum { WIDTH = 8, BATCH = 4, STEPS = 3, SHARDS = 3, TIMEOUT_MS = 60000 };

static const char *const norms[] = {"norm"};

/* ---- a training ------------------------------------------------------------------------------ */

typedef struct {
    tutti_ddp_options_t options;
    bool freezes_norm;
    char digest[TUTTI_DIGEST_BYTES];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net, *norm;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} training_t;

/* linear, layer norm, linear, batch norm */
static tutti_status_t open_training(training_t *t)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 8};
    const tutti_linear_options_t linear = {
        .in = WIDTH, .out = WIDTH, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_norm_options_t layer_norm = {.width = WIDTH};
    const tutti_batch_norm_layer_options_t batch_norm = {.width = WIDTH};
    TUTTI_CHECK(tutti_context_create(&options, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->net));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_layer_norm_layer, &layer_norm, &t->norm));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL));
    TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_batch_norm_layer, &batch_norm, NULL));
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void close_training(training_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static tutti_tensor_t *input_of(tutti_scope_t *s)
{
    return tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), -1, 1);
}

static tutti_status_t run_step(training_t *t, int step)
{
    tutti_context_set_step(t->ctx, step);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
        tutti_tensor_t *y = tutti_ddp_forward(s, t->ddp, input_of(s));
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, y)));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    return tutti_optim_step(t->opt);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    training_t t = {0};
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    TT_EXPECT(m, !job->freezes_norm || tutti_module_set_requires_grad(t.norm, false) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &job->options, &t.ddp) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        TT_EXPECT(m, run_step(&t, step) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_digest(t.ddp, digest) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(job->digest, digest, sizeof digest);
    }
    close_training(&t);
}

static const char *digest_on(int ranks, job_t *job)
{
    job->options.shards = SHARDS;
    tt_team_expect_quietly(ranks, TIMEOUT_MS, train, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return job->digest;
}

static tutti_ddp_options_t in_bf16(int stage, bool has_norms)
{
    return (tutti_ddp_options_t){.stage = stage,
                                 .param_dtype = TUTTI_BF16,
                                 .f32_kinds = norms,
                                 .f32_kind_count = has_norms,
                                 .f32_output = true,
                                 .units = {.kind = stage == 3 ? "linear" : NULL}};
}

static void every_stage_has_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool reduces = i & 1, freezes = i & 2;
        job_t plain = {.options = in_bf16(0, false), .freezes_norm = freezes};
        job_t want = {.options = in_bf16(0, true), .freezes_norm = freezes};
        want.options.reduce_dtype = plain.options.reduce_dtype = reduces ? TUTTI_BF16 : TUTTI_F32;
        (void)digest_on(1, &want);
        assert_string_not_equal(want.digest, digest_on(1, &plain));
        for (int stage = 0; stage < 4; stage++) {
            job_t job = {.options = in_bf16(stage, true), .freezes_norm = freezes};
            job.options.reduce_dtype = want.options.reduce_dtype;
            assert_string_equal(digest_on(stage % 2 == 0 ? 3 : 2, &job), want.digest);
        }
        /* norms are kept on all ranks; norms are units of their own */
        job_t kept = {.options = in_bf16(3, true), .freezes_norm = freezes};
        kept.options.reduce_dtype = want.options.reduce_dtype;
        kept.options.persistence_bytes = 2 * WIDTH * sizeof(float);
        assert_string_equal(digest_on(2, &kept), want.digest);
        kept.options.persistence_bytes = 0;
        kept.options.units.kind = "norm";
        assert_string_equal(digest_on(2, &kept), want.digest);
    }
}

/* ---- what crosses a border ------------------------------------------------------------------- */

typedef struct {
    tt_member_t *m;
    tutti_dtype_t in, out;
    float before[BATCH * WIDTH], after[BATCH * WIDTH]; /* of the norm */
} seen_t;

static void keep(const tutti_tensor_t *x, float *to)
{
    for (int i = 0; i < BATCH * WIDTH; i++) {
        to[i] = (float)tutti_tensor_at(x, i);
    }
}

static tutti_status_t see_input(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    seen_t *seen = user;
    seen->in = tutti_tensor_dtype(call->inputs[0]);
    keep(call->inputs[0], seen->before);
    return TUTTI_OK;
}

static tutti_status_t see_output(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    seen_t *seen = user;
    seen->out = tutti_tensor_dtype(call->outputs[0]);
    keep(call->outputs[0], seen->after);
    return TUTTI_OK;
}

static void expect_dtypes(tt_member_t *m, const training_t *t, tutti_dtype_t low)
{
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t->net, "0.weight")) == low);
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t->net, "1.weight")) == TUTTI_F32);
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t->net, "3.bias")) == TUTTI_F32);
    TT_EXPECT(m, tutti_tensor_dtype(tutti_module_find(t->net, "3.running_mean")) == TUTTI_F32);
}

/* A norm in f32 of what came in 16 bits, rounded to 16 bits. */
static void expect_norm(tt_member_t *m, tutti_scope_t *s, const seen_t *seen)
{
    float wanted[BATCH * WIDTH], low[BATCH * WIDTH];
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH));
    TT_EXPECT(m, tutti_tensor_copy_from(x, seen->before) == TUTTI_OK);
    keep(tutti_cast(s, x, TUTTI_BF16), low);
    TT_EXPECT(m, memcmp(low, seen->before, sizeof low) == 0);
    tutti_tensor_t *weight = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(WIDTH));
    tutti_tensor_t *bias = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(WIDTH));
    tutti_tensor_t *y = tutti_layer_norm(s, x, weight, bias, 0);
    keep(tutti_cast(s, y, TUTTI_BF16), wanted);
    TT_EXPECT(m, memcmp(wanted, seen->after, sizeof wanted) == 0);
}

static void look(tt_member_t *m)
{
    const int *stage = m->user;
    static const tutti_module_hooks_t early = {.after_forward = see_output},
                                      late = {.before_forward = see_input};
    training_t t = {0};
    seen_t seen = {.m = m};
    tutti_ddp_options_t options = in_bf16(*stage, true);
    options.buffer_dtype = TUTTI_BF16;
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_add_hooks(t.norm, &early, &seen) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_add_hooks(t.norm, &late, &seen) == TUTTI_OK);
    expect_dtypes(m, &t, TUTTI_F32);
    while (tutti_ddp_next_shard(t.ddp, t.ctx)) {
        tutti_scope_t *s;
        TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
        expect_dtypes(m, &t, TUTTI_BF16);
        tutti_tensor_t *y = tutti_ddp_forward(s, t.ddp, input_of(s));
        TT_EXPECT(m, tutti_tensor_dtype(y) == TUTTI_F32);
        TT_EXPECT(m, seen.in == TUTTI_F32 && seen.out == TUTTI_BF16);
        expect_norm(m, s, &seen);
        TT_EXPECT(m, tutti_backward(s, tutti_mean(s, tutti_square(s, y))) == TUTTI_OK);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_OK);
    expect_dtypes(m, &t, TUTTI_F32);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    /* between steps all computes in f32 */
    tutti_scope_t *s;
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_dtype(tutti_forward(s, t.net, input_of(s))) == TUTTI_F32);
    TT_EXPECT(m, seen.in == TUTTI_F32 && seen.out == TUTTI_F32);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_reshard(t.ddp, NULL) == TUTTI_OK);
    close_training(&t);
}

static void a_norm_is_computed_in_f32_of_what_comes_in_16_bits(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        tt_team_expect_quietly(2, TIMEOUT_MS, look, &stage);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* At stage 0 what stays f32 has no copy. */
static void count_memory(tt_member_t *m)
{
    training_t t = {0};
    const tutti_ddp_options_t options = in_bf16(0, true);
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    const size_t linears = (size_t)2 * (WIDTH * WIDTH + WIDTH), normed = (size_t)4 * WIDTH;
    TT_EXPECT(m, tutti_ddp_memory(t.ddp, NULL).parameter_bytes == linears * 6 + normed * 4);
    close_training(&t);
}

static void what_stays_f32_has_no_copy(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, TIMEOUT_MS, count_memory, NULL);
}

/* What travels in 16 bits is there beside the f32 gradients, at every stage. */
static void count_gradients(tt_member_t *m)
{
    for (int stage = 0; stage <= 3; stage++) {
        size_t bytes[2];
        for (int is_low = 0; is_low < 2; is_low++) {
            training_t t = {0};
            const tutti_ddp_options_t options = {.stage = stage,
                                                 .reduce_dtype = is_low ? TUTTI_BF16 : TUTTI_F32};
            TT_EXPECT(m, open_training(&t) == TUTTI_OK);
            TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
            bytes[is_low] = tutti_ddp_memory(t.ddp, NULL).gradient_bytes;
            close_training(&t);
        }
        TT_EXPECT(m, bytes[0] > 0 && 2 * bytes[1] == 3 * bytes[0]);
    }
}

static void gradients_that_travel_in_16_bits_are_counted(void **state)
{
    (void)state;
    tt_team_expect(2, TIMEOUT_MS, count_gradients, NULL);
}

/* ---- bad input ------------------------------------------------------------------------------- */

static void expect_refused(tt_member_t *m, training_t *t, const char *kind, tutti_status_t status,
                           const char *text)
{
    const tutti_ddp_options_t options = {
        .param_dtype = TUTTI_BF16, .f32_kinds = &kind, .f32_kind_count = 1};
    TT_EXPECT(m, tutti_ddp_create(t->ctx, t->net, m->group, &options, &t->ddp) == status);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
}

static void misuse(tt_member_t *m)
{
    training_t t = {0};
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    expect_refused(m, &t, "attention", TUTTI_ERR_ARG, "options.f32_kinds: no module of kind att");
    expect_refused(m, &t, NULL, TUTTI_ERR_ARG, "options.f32_kinds: kind 0 is NULL");
    expect_refused(m, &t, m->rank == 1 ? "layer_norm" : "norm", TUTTI_ERR_MISMATCH,
                   "rank 1 has \"computed in f32: layer_norm\" where rank 0 has \"computed in f32: "
                   "norm\"");
    const tutti_ddp_options_t output = {.f32_output = m->rank == 1};
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &output, &t.ddp) == TUTTI_ERR_MISMATCH);
    tutti_module_t *outer = tutti_module_retain(t.net);
    TT_EXPECT(m, tutti_module_add_parameter(outer, "tied", tutti_module_find(outer, "1.bias")) ==
                     TUTTI_OK);
    expect_refused(m, &t, "norm", TUTTI_ERR_ARG, "another one that computes in bf16");
    tutti_module_release(outer);
    close_training(&t);
}

static void kinds_of_nothing_and_ranks_that_differ_are_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, misuse, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- a root of a kind ------------------------------------------------------------------------ */

static void compute_in_a_root_of_a_kind(tt_member_t *m)
{
    static const char *const root[] = {"sequential"};
    const bool *wants_f32 = m->user;
    const tutti_ddp_options_t options = {.param_dtype = TUTTI_BF16,
                                         .f32_kinds = root,
                                         .f32_kind_count = 1,
                                         .f32_output = *wants_f32};
    training_t t = {0};
    tutti_scope_t *s;
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
    const tutti_tensor_t *y = tutti_ddp_forward(s, t.ddp, input_of(s));
    TT_EXPECT(m, tutti_tensor_dtype(y) == (*wants_f32 ? TUTTI_F32 : TUTTI_BF16));
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    close_training(&t);
}

static void the_output_of_a_root_in_f32_may_stay_f32(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tt_team_expect_quietly(1, TIMEOUT_MS, compute_in_a_root_of_a_kind, &(bool){i == 1});
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- small ones ------------------------------------------------------------------------------ */

static tutti_status_t evaluate(training_t *t)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    (void)tutti_ddp_forward(s, t->ddp, input_of(s));
    return tutti_scope_close(s);
}

static void finish_with_small_ones(tt_member_t *m)
{
    training_t t = {0};
    TT_EXPECT(m, open_training(&t) == TUTTI_OK);
    tutti_ddp_options_t options = in_bf16(3, true);
    options.persistence_bytes = 2 * WIDTH * sizeof(float);
    options.optimizer = t.opt;
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, m->group, &options, &t.ddp) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        while (tutti_ddp_next_shard(t.ddp, t.ctx)) {
            tutti_scope_t *s;
            TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
            tutti_tensor_t *y = tutti_ddp_forward(s, t.ddp, input_of(s));
            (void)tutti_backward(s, tutti_mean(s, tutti_square(s, y)));
            TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
        }
        TT_EXPECT(m, tutti_ddp_finish(t.ddp) == TUTTI_OK);
        TT_EXPECT(m, tutti_module_find(t.net, "0.bias")->storage->away == NULL);
        TT_EXPECT(m, evaluate(&t) == TUTTI_OK);
    }
    close_training(&t);
}

/* Also where tutti_ddp_finish() steps them: no module brings them for its forward. */
static void small_parameters_are_there_between_steps(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        tt_team_expect_quietly(ranks, TIMEOUT_MS, finish_with_small_ones, NULL);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_has_the_same_bits),
        cmocka_unit_test(a_norm_is_computed_in_f32_of_what_comes_in_16_bits),
        cmocka_unit_test(what_stays_f32_has_no_copy),
        cmocka_unit_test(gradients_that_travel_in_16_bits_are_counted),
        cmocka_unit_test(kinds_of_nothing_and_ranks_that_differ_are_refused),
        cmocka_unit_test(the_output_of_a_root_in_f32_may_stay_f32),
        cmocka_unit_test(small_parameters_are_there_between_steps),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
