/* Models that are cut: a gpt, parts that sleep, layers of unequal cost. */
#include "pipeline_bench.h"

#include <stdio.h>
#include <time.h>

enum { VOCAB = 256, CONTEXT = 256, HEAD = 64, NARROW = 64, SAMPLES = 256 };

/* ---- a gpt ----------------------------------------------------------------------------------- */

tutti_tensor_t *class_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                           tutti_tensor_t *const *targets, int target_count, void *user)
{
    (void)output_count, (void)target_count, (void)user;
    return tutti_cross_entropy(s, outputs[0], targets[0]);
}

tutti_status_t make_gpt(bench_t *b, tutti_scope_t *s, trial_t *t)
{
    const tutti_gpt_options_t options = {.layers = b->blocks,
                                         .width = b->width,
                                         .heads = b->width / HEAD,
                                         .context = CONTEXT,
                                         .vocab = VOCAB};
    t->x = tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(b->batch, CONTEXT), 0, VOCAB);
    t->y = tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(b->batch, CONTEXT), 0, VOCAB);
    return tutti_module_create(b->ctx, &tutti_gpt_layer, &options, &t->net);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

tutti_tensor_t *mean_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                          tutti_tensor_t *const *targets, int target_count, void *user)
{
    (void)output_count, (void)targets, (void)target_count, (void)user;
    return tutti_mean(s, outputs[0]);
}

/* Until a point of time, so that what is late does not add up. */
static void sleep_s(double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t ns = end.tv_nsec + (int64_t)(seconds * 1e9);
    end.tv_sec += ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) {
    }
}

static tutti_status_t sleeper_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    outputs[0] =
        (tutti_spec_t){tutti_tensor_dtype(call->inputs[0]), tutti_tensor_shape(call->inputs[0])};
    return TUTTI_OK;
}

static tutti_status_t sleeper_forward_op(tutti_op_call_t *call)
{
    sleep_s(*(const double *)call->params);
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

/* As long for the input's gradient as for the weight's. */
static tutti_status_t sleeper_backward(tutti_op_backward_t *call)
{
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            sleep_s(*(const double *)call->params);
            call->grads[i] = tutti_ones(call->scope, call->inputs[i].dtype, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

static const tutti_op_t sleeper_op = {.name = "sleeper",
                                      .input_count = 2,
                                      .params_bytes = sizeof(double),
                                      .infer = sleeper_infer,
                                      .forward = sleeper_forward_op,
                                      .backward = sleeper_backward};

typedef struct {
    tutti_tensor_t *weight;
    double seconds;
} sleeper_t;

static tutti_status_t sleeper_init(tutti_module_t *m, const void *options)
{
    sleeper_t *state = tutti_module_state(m);
    state->seconds = *(const double *)options;
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(1), (tutti_init_t){.a = 1},
                                      &state->weight);
}

static tutti_tensor_t *sleeper_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const sleeper_t *state = tutti_module_state(m);
    return tutti_op_run(s, &sleeper_op, (tutti_tensor_t *[]){x, state->weight}, 2, &state->seconds);
}

static const tutti_module_ops_t sleeper_layer = {.name = "sleeper",
                                                 .state_bytes = sizeof(sleeper_t),
                                                 .init = sleeper_init,
                                                 .forward = sleeper_forward};

static tutti_status_t make_chain(bench_t *b, trial_t *t)
{
    return tutti_module_create(b->ctx, &tutti_sequential_layer, NULL, &t->net);
}

/* One for each stage. Nobody wants the gradient of the batch, so stage 0 has W alone. */
tutti_status_t make_sleepers(bench_t *b, tutti_scope_t *s, trial_t *t)
{
    const double seconds = b->sleep_ms * 1e-3;
    t->x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(b->micro_batches, 1));
    t->y = t->x;
    TUTTI_CHECK(make_chain(b, t));
    for (int i = 0; i < t->stages; i++) {
        TUTTI_CHECK(tutti_sequential_add(t->net, &sleeper_layer, &seconds, NULL));
        const double input = i == 0 ? 0 : seconds;
        t->costs[i] = (tutti_pipeline_costs_t){
            .forward = seconds, .input = input, .weight = seconds, .backward = input + seconds};
    }
    return TUTTI_OK;
}

/* ---- unequal layers -------------------------------------------------------------------------- */

tutti_status_t make_uneven(bench_t *b, tutti_scope_t *s, trial_t *t)
{
    static const int64_t widths[] = {NARROW, 512, 1024, 256, 256, 768, NARROW, 1536, NARROW, VOCAB};
    t->x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(b->micro_batches * SAMPLES, NARROW), 0, 1);
    t->y = tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(b->micro_batches * SAMPLES), 0, VOCAB);
    TUTTI_CHECK(make_chain(b, t));
    for (size_t i = 0; i + 1 < sizeof widths / sizeof widths[0]; i++) {
        const tutti_linear_options_t linear = {.in = widths[i], .out = widths[i + 1]};
        TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &linear, NULL));
    }
    return TUTTI_OK;
}
