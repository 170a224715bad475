/* Running a pipeline: against a plain loop in one process, on devices, and what becomes of a step
 * in which something fails. */
#include "parallel/pipeline/pipeline_testing.h"

#include <math.h>

/* ---- a plain loop ---------------------------------------------------------------------------- */

/* Micro-batch after micro-batch, backward behind each forward. */
static tutti_status_t step_plainly(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt,
                                   const tt_training_t *training, int step)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(ctx, &s));
    tt_make_batch(s, training, step, &x, &y);
    const int64_t rows = tt_rows(training), few = rows / training->micro_batches,
                  more = rows % training->micro_batches;
    for (int64_t b = 0, first = 0; b < training->micro_batches; b++) {
        const int64_t count = few + (b < more ? 1 : 0);
        tutti_tensor_t *output = tutti_forward(s, net, tutti_narrow(s, x, 0, first, count)),
                       *target = tutti_narrow(s, y, 0, first, count);
        tutti_tensor_t *loss =
            tt_pipeline_loss(s, &output, 1, &target, 1, (void *)(uintptr_t)training);
        const tutti_backward_options_t options = {
            .grad_output = tutti_full(s, TUTTI_F32, TUTTI_SCALAR, (double)count / (double)rows)};
        (void)tutti_backward_with(s, loss, &options);
        first += count;
    }
    const tutti_status_t status = tutti_scope_close(s);
    TT_TRY(status < 0 ? status : tutti_optim_step(opt));
    tutti_optim_zero_grad(opt);
    return TUTTI_OK;
}

static void train_plainly(const tt_training_t *training, char digest[TUTTI_DIGEST_BYTES])
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    const tutti_context_options_t options = {.threads = 1, .seed = 5};
    const tutti_adamw_options_t adamw = {.lr = 1e-2};
    assert_int_equal(tutti_context_create(&options, &ctx), 0);
    assert_int_equal(tt_make_model(ctx, training->model, &net), 0);
    assert_int_equal(tutti_optim_create(ctx, &tutti_adamw, &adamw, &opt), 0);
    assert_int_equal(tutti_optim_add_module(opt, net, NULL, NULL), 0);
    for (int i = 0; i < TT_PIPELINE_STEPS; i++) {
        assert_int_equal(step_plainly(ctx, net, opt, training, i), 0);
    }
    assert_int_equal(tutti_module_digest(net, digest), 0);
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

/* Without random numbers and ties, which a plain loop names and adds up in another way. */
static void one_rank_has_the_bits_of_a_plain_loop(void **state)
{
    (void)state;
    const char *const names[] = {"mlp", "norm"};
    for (int i = 0; i < 2; i++) {
        const tt_training_t training = {
            .model = names[i], .schedule = "zb-h1", .micro_batches = 4, .rows = 11};
        char digest[TUTTI_DIGEST_BYTES];
        tt_trained_t got;
        train_plainly(&training, digest);
        assert_int_equal(tt_train(&training, NULL, &got), 0);
        assert_string_equal(got.digest, digest);
    }
}

/* ---- ties ------------------------------------------------------------------------------------ */

enum { USES = 3, ROUNDS = 2 };

/* x -> linear -> linear -> linear, of one weight or of three that are equal. */
static tutti_module_t *make_chain(tutti_context_t *ctx, bool is_tied)
{
    tutti_module_t *all, *first = NULL;
    const tutti_linear_options_t o = {
        .in = TT_PIPELINE_WIDTH, .out = TT_PIPELINE_WIDTH, .no_bias = true};
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &all), 0);
    for (int i = 0; i < USES; i++) {
        const char name[2] = {(char)('0' + i), 0};
        tutti_module_t *next;
        if (i > 0 && is_tied) {
            assert_int_equal(tutti_module_add_child(all, name, first), 0);
            continue;
        }
        assert_int_equal(tutti_sequential_add(all, &tutti_linear_layer, &o, &next), 0);
        first = first == NULL ? next : first;
        assert_int_equal(tutti_tensor_copy(tutti_module_find(next, "weight"),
                                           tutti_module_find(first, "weight")),
                         0);
    }
    return all;
}

static tutti_tensor_t *square_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                   int output_count, tutti_tensor_t *const *targets,
                                   int target_count, void *user)
{
    (void)output_count, (void)targets, (void)target_count, (void)user;
    return tutti_mean(s, tutti_square(s, outputs[0]));
}

/* Gradients of ROUNDS batches, accumulated. grads: of each weight, [uses][round]. */
static void train_chain(tutti_context_t *ctx, tutti_scope_t *s, tutti_module_t *net, bool forgets,
                        tutti_tensor_t *grads[USES][ROUNDS])
{
    tutti_pipeline_t *pipeline;
    const tutti_pipeline_run_options_t options = {.plan = {.micro_batches = 3},
                                                  .loss = square_loss};
    assert_int_equal(tutti_pipeline_create(ctx, net, NULL, &options, &pipeline), 0);
    tutti_context_set_step(ctx, 1);
    for (int round = 0; round < ROUNDS; round++) {
        tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(7, TT_PIPELINE_WIDTH), 0, 1);
        const tutti_pipeline_batch_t batch = {.inputs = &x, .input_count = 1};
        assert_int_equal(tutti_pipeline_step(pipeline, &batch, NULL), 0);
        for (int i = 0; i < USES; i++) {
            const char *const names[] = {"0.weight", "1.weight", "2.weight"};
            grads[i][round] = tutti_clone(s, tutti_tensor_grad(tutti_module_find(net, names[i])));
        }
        if (forgets) {
            tutti_module_zero_grad(net);
        }
    }
    tutti_pipeline_release(pipeline);
}

/* Behind what was there, each use has its sum over the micro-batches, in the order of forward. */
static void uses_are_added_in_the_order_of_forward(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *tied[USES][ROUNDS], *apart[USES][ROUNDS];
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_module_t *one = make_chain(ctx, true), *three = make_chain(ctx, false);
    assert_int_equal(
        tutti_tensor_copy(tutti_module_find(one, "0.weight"), tutti_module_find(three, "0.weight")),
        0);
    train_chain(ctx, s, one, false, tied);
    train_chain(ctx, s, three, true, apart);
    tutti_tensor_t *sum = NULL;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < USES; i++) {
            sum = sum == NULL ? apart[i][round] : tutti_add(s, sum, apart[i][round]);
        }
        assert_memory_equal(tutti_tensor_data(tied[0][round]), tutti_tensor_data(sum),
                            tutti_tensor_bytes(sum));
    }
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_module_release(one);
    tutti_module_release(three);
    tutti_context_release(ctx);
}

/* ---- how deep a chain is taken apart -------------------------------------------------------- */

/* A chain in a chain, `depth` times; the innermost is two linears. */
static tutti_status_t fill_deep(tutti_module_t *all, int depth)
{
    for (int i = 0; i < depth; i++) {
        TT_TRY(tutti_sequential_add(all, &tutti_sequential_layer, NULL, &all));
    }
    TT_TRY(tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_WIDTH));
    return tt_add_linear(all, TT_PIPELINE_WIDTH, TT_PIPELINE_CLASSES);
}

static int count_parts(int depth)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    const tutti_pipeline_run_options_t options = {.loss = tt_pipeline_loss};
    assert_int_equal(tutti_context_create(NULL, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net), 0);
    assert_int_equal(fill_deep(net, depth), 0);
    assert_int_equal(tutti_pipeline_create(ctx, net, NULL, &options, &pipeline), 0);
    const int parts = tutti_pipeline_stats(pipeline).parts;
    tutti_pipeline_release(pipeline);
    tutti_module_release(net);
    tutti_context_release(ctx);
    return parts;
}

static void chains_are_taken_apart_as_deep_as_they_are(void **state)
{
    (void)state;
    assert_int_equal(count_parts(0), 2);
    assert_int_equal(count_parts(31), 2);
    assert_int_equal(count_parts(32), 1); /* what is deeper stays whole */
}

/* ---- recomputation, evaluation --------------------------------------------------------------- */

typedef struct {
    int forwards, recomputed;
} calls_t;

static tutti_status_t count_call(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    calls_t *calls = user;
    calls->forwards++;
    calls->recomputed += tutti_context_is_recomputing(tutti_scope_context(s));
    return TUTTI_OK;
}

static calls_t count_calls(bool recompute)
{
    tt_trainer_t t;
    double loss;
    calls_t calls = {0};
    tutti_chain_link_t link;
    const tutti_module_hooks_t hooks = {.before_forward = count_call};
    const tt_training_t training = {.model = "mlp", .micro_batches = 4, .recompute = recompute};
    assert_int_equal(tt_trainer_open(&t, &training, NULL), 0);
    assert_true(tutti_module_kind(t.net)->chain(t.net, 2, &link));
    assert_int_equal(tutti_module_add_hooks(link.module, &hooks, &calls), 0);
    assert_int_equal(tt_train_step(&t, &training, 0, &loss), 0);
    tt_trainer_close(&t);
    return calls;
}

static void parts_are_recomputed_where_that_is_asked_for(void **state)
{
    (void)state;
    const calls_t kept = count_calls(false), recomputed = count_calls(true);
    assert_int_equal(kept.forwards, 4);
    assert_int_equal(recomputed.forwards, 8);
    assert_int_equal(recomputed.recomputed, 4);
}

/* Dropout is off; nothing is recorded, and the context is as before. */
static void an_evaluation_is_a_forward_in_evaluation_mode(void **state)
{
    (void)state;
    tt_trainer_t t;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    double loss = 0;
    const tt_training_t training = {.model = "dropout", .micro_batches = 1};
    assert_int_equal(tt_trainer_open(&t, &training, NULL), 0);
    assert_int_equal(tutti_scope_open(t.ctx, &s), 0);
    tt_make_batch(s, &training, 3, &x, &y);
    const tutti_pipeline_batch_t batch = {&x, 1, &y, 1};
    assert_int_equal(tutti_pipeline_evaluate(t.pipeline, &batch, &loss), 0);
    assert_true(tutti_context_is_training(t.ctx) && tutti_context_is_grad_enabled(t.ctx));
    assert_int_equal(tutti_pipeline_stats(t.pipeline).steps, 0);
    tutti_context_set_training(t.ctx, false);
    tutti_tensor_t *output = tutti_forward(s, t.net, x);
    assert_true(loss == tutti_tensor_item(
                            tt_pipeline_loss(s, &output, 1, &y, 1, (void *)(uintptr_t)&training)));
    assert_int_equal(tutti_scope_close(s), 0);
    tt_trainer_close(&t);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void train_on_devices(tt_member_t *m)
{
    tt_trained_t *got = (tt_trained_t *)m->user + m->rank;
    const tt_training_t training = {.model = "tied",
                                    .schedule = "zb-h1",
                                    .micro_batches = 4,
                                    .on_devices = true,
                                    .clips = true};
    TT_EXPECT(m, tt_train(&training, m->group, got) == TUTTI_OK);
}

static void ranks_may_be_devices_of_a_process(void **state)
{
    (void)state;
    const tt_training_t training = {.model = "tied", .micro_batches = 4, .clips = true};
    tt_trained_t alone, got[3] = {{{0}, {0}, 0, {0}}};
    assert_int_equal(tt_train(&training, NULL, &alone), 0);
    tt_team_expect(3, 0, train_on_devices, got);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(got[i].digest, alone.digest);
    }
}

/* ---- loss scaling ---------------------------------------------------------------------------- */

/* The first scale is too large for f32: that step is skipped. */
static tutti_status_t train_scaled(tutti_group_t *group, tt_trained_t *out, double *scale)
{
    tt_training_t training = {.model = "tied", .micro_batches = 4, .clips = true};
    const tutti_scaler_options_t options = {
        .group = group, .init_scale = 0x1p126, .backoff_factor = 0x1p-20};
    TT_TRY(tutti_scaler_create(&options, &training.scaler));
    const tutti_status_t status = tt_train(&training, group, out);
    *scale = tutti_scaler_get_state(training.scaler).scale;
    tutti_scaler_release(training.scaler);
    return status;
}

typedef struct {
    tt_trained_t alone;
    double scale;
} scaled_t;

static void train_scaled_member(tt_member_t *m)
{
    tt_trained_t got = {0};
    double scale = 0;
    const scaled_t *want = m->user;
    TT_EXPECT(m, train_scaled(m->group, &got, &scale) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, want->alone.digest) == 0);
    TT_EXPECT(m, scale == want->scale);
}

static void stages_skip_a_step_together(void **state)
{
    (void)state;
    scaled_t want;
    assert_int_equal(train_scaled(NULL, &want.alone, &want.scale), 0);
    assert_true(want.scale == 0x1p106); /* one step was skipped */
    tt_team_expect(3, 0, train_scaled_member, &want);
}

/* ---- memory of a gradient ------------------------------------------------------------------- */

typedef struct {
    tutti_tensor_t *grad;
    bool is_alone;
} kept_grad_t;

static tutti_status_t look_at_holders(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    (void)call;
    kept_grad_t *kept = user;
    kept->is_alone = tt_ref_is_unique(&kept->grad->storage->ref);
    return TUTTI_OK;
}

static tutti_status_t run_step(tt_trainer_t *t, const tt_training_t *training, int step)
{
    double loss;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    TT_TRY(tutti_scope_open(t->ctx, &s));
    tt_make_batch(s, training, step, &x, &y);
    TT_TRY(tutti_pipeline_step(t->pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, &loss));
    return tutti_scope_close(s);
}

/* Rank 0 has the first parameter. */
static void step_behind_a_gradient(tt_member_t *m)
{
    tt_trainer_t t;
    tutti_chain_link_t link;
    kept_grad_t kept = {0};
    const tutti_module_hooks_t hooks = {.before_forward = look_at_holders};
    const tt_training_t training = {.model = "mlp", .micro_batches = 2};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, run_step(&t, &training, 0) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK);
    if (m->rank == 0) {
        kept.grad = tutti_tensor_retain(tutti_tensor_grad(tutti_module_find(t.net, "0.weight")));
        TT_EXPECT(m, tutti_module_kind(t.net)->chain(t.net, 0, &link));
        TT_EXPECT(m, tutti_module_add_hooks(link.module, &hooks, &kept) == TUTTI_OK);
    }
    tutti_optim_zero_grad(t.opt);
    TT_EXPECT(m, run_step(&t, &training, 1) == TUTTI_OK);
    TT_EXPECT(m, kept.is_alone == (m->rank == 0)); /* this test has it */
    tutti_tensor_release(kept.grad);
    tt_trainer_close(&t);
}

static void a_gradient_that_was_dropped_is_not_kept_for_the_next_step(void **state)
{
    (void)state;
    tt_team_expect(2, 0, step_behind_a_gradient, NULL);
}

/* ---- a schedule of one's own ----------------------------------------------------------------- */

static void train_own(tt_member_t *m)
{
    const tt_training_t *training = m->user;
    tt_training_t alone = *training;
    alone.own = NULL;
    tt_trained_t got = {0}, want = {0};
    TT_EXPECT(m, tt_train(training, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, tt_train(&alone, NULL, &want) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, want.digest) == 0);
}

static void refuse_own(tt_member_t *m)
{
    tt_trainer_t t;
    TT_EXPECT(m, tt_trainer_open(&t, m->user, m->group) == TUTTI_ERR_ARG);
    TT_EXPECT(m, strstr(tutti_last_error(), "nobody reduces the tied weight 0.weight: stage 0 has "
                                            "a part of it, and the schedule's row of rank 0 no "
                                            "0REDUCE_GRAD") != NULL);
    tt_trainer_close(&t);
}

static void run_own(const char *text, void (*body)(tt_member_t *))
{
    tutti_pipeline_schedule_t own;
    assert_int_equal(tutti_pipeline_read(text, strlen(text), 0, &own), 0);
    tt_training_t training = {.model = "tied", .micro_batches = 2, .own = &own};
    tt_team_expect(2, 0, body, &training);
    tutti_pipeline_schedule_release(&own);
}

static void a_schedule_of_ones_own_runs(void **state)
{
    (void)state;
    run_own("0F0,0F1,0B0,0I1,0W1\n1F0,1I0,1F1,1B1,1W0\n", train_own); /* not canonical there */
}

/* Letters are taken by name, in whatever order the rows receive them. */
static void receives_may_be_in_another_order_than_their_uses(void **state)
{
    (void)state;
    run_own("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0RECV_B0,0B0,0B1\n"
            "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
            train_own);
}

static void a_tied_weight_that_nobody_reduces_is_refused(void **state)
{
    (void)state;
    run_own("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,1REDUCE_GRAD1\n", refuse_own);
}

/* ---- a failure in a step --------------------------------------------------------------------- */

enum { NO_INPUTS, FEW_ROWS, OTHER_TARGETS, OTHER_SHAPE, BAD_LOSS, LOST_LOSS, FAILURES };

typedef struct {
    int failure, rank;        /* where it happens */
    const char *says, *place; /* there */
} failure_t;

static const failure_t failures[FAILURES] = {
    [NO_INPUTS] = {NO_INPUTS, 0, "this rank has the first stage, and gets no inputs", "rank 0, "},
    [FEW_ROWS] = {FEW_ROWS, 0, "input 0 has 3 rows, which are no 4 micro-batches", "rank 0, "},
    [OTHER_TARGETS] = {OTHER_TARGETS, 2, "target 0 has 10 rows, and the inputs have 9",
                       "rank 2, step 2, F of stage 2, micro-batch 0: "},
    [OTHER_SHAPE] = {OTHER_SHAPE, 1, "gives f32 [3, 3] as output 0, and gave f32 [3, 8] for inputs",
                     "rank 1, step 2, F of stage 1, micro-batch 0: "},
    [BAD_LOSS] = {BAD_LOSS, 2, "the loss is f32[3, 5]: it must be one floating number",
                  "rank 2, step 2, F of stage 2, micro-batch 0: "},
    [LOST_LOSS] = {LOST_LOSS, 2, "the loss depends on no parameter that learns",
                   "rank 2, step 2, F of stage 2, micro-batch 0: "},
};

/* What a rank does wrong in step 2. */
typedef struct {
    const failure_t *failure;
    bool is_due;
} fault_t;

static tutti_tensor_t *faulty_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                   int output_count, tutti_tensor_t *const *targets,
                                   int target_count, void *user)
{
    const fault_t *fault = user;
    const tt_training_t training = {.model = "mlp"};
    if (fault->is_due && fault->failure->failure == BAD_LOSS) {
        return outputs[0];
    }
    tutti_tensor_t *loss = tt_pipeline_loss(s, outputs, output_count, targets, target_count,
                                            (void *)(uintptr_t)&training);
    return fault->is_due && fault->failure->failure == LOST_LOSS ? tutti_detach(s, loss) : loss;
}

static tutti_status_t narrow_outputs(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    const fault_t *fault = user;
    if (fault->is_due && fault->failure->failure == OTHER_SHAPE) {
        call->outputs[0] = tutti_narrow(s, call->outputs[0], 1, 0, 3);
    }
    return TUTTI_OK;
}

static tutti_status_t step_with(tutti_context_t *ctx, tutti_pipeline_t *pipeline, int step,
                                const fault_t *fault, tutti_status_t *closed)
{
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    const tt_training_t training = {.model = "mlp", .micro_batches = 4};
    const int failure = fault->is_due ? fault->failure->failure : FAILURES;
    TT_TRY(tutti_scope_open(ctx, &s));
    tt_make_batch(s, &training, step, &x, &y);
    tutti_pipeline_batch_t batch = {&x, failure == NO_INPUTS ? 0 : 1, &y, 1};
    if (failure == FEW_ROWS) {
        x = tutti_narrow(s, x, 0, 0, 3);
    } else if (failure == OTHER_TARGETS) {
        y = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(10));
    }
    double loss;
    const tutti_status_t status = tutti_pipeline_step(pipeline, &batch, &loss);
    *closed = tutti_scope_close(s);
    return status;
}

static void expect_failure(tt_member_t *m, tutti_status_t status, const failure_t *failure)
{
    char here[40];
    snprintf(here, sizeof here, "pipeline: rank %d, step 2", m->rank);
    if (m->rank == failure->rank) {
        TT_EXPECT(m, status < 0 && status != TUTTI_ERR_ABORTED && status != TUTTI_ERR_PEER);
        TT_EXPECT(m, strstr(tutti_last_error(), failure->says) != NULL);
        TT_EXPECT(m, strstr(tutti_last_error(), failure->place) != NULL);
    } else {
        TT_EXPECT(m, status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER);
        TT_EXPECT(m, strstr(tutti_last_error(), here) != NULL);
        TT_EXPECT(m, strstr(tutti_last_error(), " of stage ") != NULL);
        TT_EXPECT(m, strstr(tutti_last_error(), "micro-batch ") != NULL);
    }
}

static void fail_in_step_two(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_chain_link_t link;
    fault_t fault = {.failure = m->user};
    const tutti_pipeline_run_options_t options = {
        .plan = {.micro_batches = 4}, .loss = faulty_loss, .loss_user = &fault};
    const tutti_module_hooks_t hooks = {.after_forward = narrow_outputs};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tt_make_model(ctx, "mlp", &net) == 0);
    TT_EXPECT(m, tutti_module_kind(net)->chain(net, 5, &link)); /* the last part of stage 1 */
    TT_EXPECT(m, tutti_module_add_hooks(link.module, &hooks, &fault) == 0);
    TT_EXPECT(m, tutti_pipeline_create(ctx, net, m->group, &options, &pipeline) == 0);
    tutti_status_t status = TUTTI_OK, closed;
    for (int step = 0; step < 3 && status >= 0; step++) {
        fault.is_due = step == 2 && m->rank == fault.failure->rank;
        status = step_with(ctx, pipeline, step, &fault, &closed);
    }
    expect_failure(m, status, fault.failure);
    TT_EXPECT(m, closed == TUTTI_OK); /* the caller's scope is not harmed */
    fault.is_due = false;
    TT_EXPECT(m, step_with(ctx, pipeline, 3, &fault, &closed) == status); /* it stays so */
    tutti_pipeline_release(pipeline);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* the caller's group is as it was */
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void a_failure_in_a_step_ends_it_everywhere(void **state)
{
    (void)state;
    for (int i = 0; i < FAILURES; i++) {
        tt_team_expect(3, 0, fail_in_step_two, (void *)(uintptr_t)&failures[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_the_bits_of_a_plain_loop),
        cmocka_unit_test(uses_are_added_in_the_order_of_forward),
        cmocka_unit_test(parts_are_recomputed_where_that_is_asked_for),
        cmocka_unit_test(an_evaluation_is_a_forward_in_evaluation_mode),
        cmocka_unit_test(ranks_may_be_devices_of_a_process),
        cmocka_unit_test(stages_skip_a_step_together),
        cmocka_unit_test(a_gradient_that_was_dropped_is_not_kept_for_the_next_step),
        cmocka_unit_test(a_schedule_of_ones_own_runs),
        cmocka_unit_test(receives_may_be_in_another_order_than_their_uses),
        cmocka_unit_test(chains_are_taken_apart_as_deep_as_they_are),
        cmocka_unit_test(a_tied_weight_that_nobody_reduces_is_refused),
        cmocka_unit_test(a_failure_in_a_step_ends_it_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
