/* What layers cost, by a clock that the layers themselves move; and that measuring leaves no trace.
 */
#include <math.h>

#include <tutti/ddp.h>
#include <tutti/op.h>
#include <tutti/pipeline_measure.h>
#include <tutti/tensor_parallel.h>

#include "core/base/clock.h"
#include "parallel/pipeline/pipeline_testing.h"

/* ---- layers that cost what they say ---------------------------------------------------------- */

enum { MS = 1000000, ROWS = 4, WIDTH = TT_PIPELINE_WIDTH };

static int64_t now_ns; /* of the thread that measures */
static int64_t runs;   /* of forwards */

static int64_t read_now(void *user)
{
    (void)user;
    return now_ns;
}

/* What each run of it adds to the clock, in ms: forward, the input's gradient, the weight's. */
typedef struct {
    int forward, input, weight;
    bool gets_slower; /* by a ms each time: the first that counts is the least */
} cost_t;

static tutti_status_t infer_same(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    outputs[0] =
        (tutti_spec_t){tutti_tensor_dtype(call->inputs[0]), tutti_tensor_shape(call->inputs[0])};
    return TUTTI_OK;
}

static tutti_status_t spend_forward(tutti_op_call_t *call)
{
    const cost_t *cost = call->params;
    now_ns += (int64_t)MS * (cost->forward + (cost->gets_slower ? runs : 0));
    runs++;
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

static tutti_status_t spend_backward(tutti_op_backward_t *call)
{
    const cost_t *cost = call->params;
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            now_ns += (int64_t)MS * (i == 0 ? cost->input : cost->weight);
            call->grads[i] = tutti_ones(call->scope, call->inputs[i].dtype, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

static const tutti_op_t spend_op = {.name = "spend",
                                    .input_count = 2,
                                    .params_bytes = sizeof(cost_t),
                                    .infer = infer_same,
                                    .forward = spend_forward,
                                    .backward = spend_backward};

typedef struct {
    tutti_tensor_t *weight;
    cost_t cost;
} spender_t;

static tutti_status_t spender_init(tutti_module_t *m, const void *options)
{
    spender_t *state = tutti_module_state(m);
    state->cost = *(const cost_t *)options;
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(3), (tutti_init_t){.a = 1},
                                      &state->weight);
}

static tutti_tensor_t *spender_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const spender_t *state = tutti_module_state(m);
    return tutti_op_run(s, &spend_op, (tutti_tensor_t *[]){x, state->weight}, 2, &state->cost);
}

static const tutti_module_ops_t spender = {.name = "spender",
                                           .state_bytes = sizeof(spender_t),
                                           .init = spender_init,
                                           .forward = spender_forward};

static const cost_t costs[] = {
    {1, 50, 3, false}, {7, 2, 9, false}, {4, 8, 1, false}, {20, 30, 10, false}, {2, 2, 2, false}};
enum { LAYERS = sizeof costs / sizeof costs[0] };

/* ---- a module and its input ------------------------------------------------------------------ */

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net;
    tutti_tensor_t *x;
    tutti_measure_options_t options;
} bench_t;

static void open_bench(bench_t *b)
{
    *b = (bench_t){.options = {.inputs = &b->x, .input_count = 1, .repeats = 2}};
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 3}, &b->ctx), 0);
    assert_int_equal(tutti_scope_open(b->ctx, &b->s), 0);
    assert_int_equal(tutti_module_create(b->ctx, &tutti_sequential_layer, NULL, &b->net), 0);
    b->x = tutti_normal(b->s, TUTTI_F32, TUTTI_SHAPE(ROWS, WIDTH), 0, 1);
}

static void open_spenders(bench_t *b)
{
    open_bench(b);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(tutti_sequential_add(b->net, &spender, &costs[i], NULL), 0);
    }
    now_ns = 5 * (int64_t)TT_NS_PER_S;
    runs = 0;
    tt_clock_set_source(read_now, NULL);
}

static void close_bench(bench_t *b)
{
    tt_clock_set_source(NULL, NULL);
    assert_int_equal(tutti_scope_close(b->s), 0);
    tutti_module_release(b->net);
    tutti_context_release(b->ctx);
}

static tutti_layers_t measure(bench_t *b)
{
    tutti_layers_t layers = {0};
    const tutti_status_t status = tutti_measure_layers(b->ctx, b->net, NULL, &b->options, &layers);
    if (status < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return layers;
}

static void expect_ms(double seconds, double ms)
{
    if (!(fabs(seconds * 1e3 - ms) < 1e-6)) {
        fail_msg("%.9g ms instead of %g", seconds * 1e3, ms);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

static void each_layer_costs_what_it_spends(void **state)
{
    (void)state;
    bench_t b;
    open_spenders(&b);
    tutti_layers_t layers = measure(&b);
    assert_int_equal(layers.count, LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        const int input = i == 0 ? 0 : costs[i].input; /* nobody wants the batch's gradient */
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        assert_string_equal(layers.layers[i].name, name);
        expect_ms(layers.costs[i].forward, costs[i].forward);
        expect_ms(layers.costs[i].input, input);
        expect_ms(layers.costs[i].weight, costs[i].weight);
        expect_ms(layers.costs[i].backward, input + costs[i].weight);
        expect_ms(layers.layers[i].seconds, costs[i].forward + input + costs[i].weight);
    }
    assert_int_equal(runs, LAYERS * 2 * 3); /* one more than repeats; for B, and for I and W */
    tutti_layers_release(&layers);
    assert_null(layers.layers);
    close_bench(&b);
}

/* The first run is slower in real life, and here the fastest. */
static void the_first_run_does_not_count_and_the_least_does(void **state)
{
    (void)state;
    bench_t b;
    open_spenders(&b);
    const cost_t slower = {10, 1, 1, true};
    assert_int_equal(tutti_sequential_add(b.net, &spender, &slower, NULL), 0);
    tutti_layers_t layers = measure(&b);
    expect_ms(layers.costs[LAYERS].forward, 10 + 2 * (LAYERS + 1) + LAYERS);
    tutti_layers_release(&layers);
    close_bench(&b);
}

static tutti_tensor_t *slow_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                                 tutti_tensor_t *const *targets, int target_count, void *user)
{
    (void)output_count, (void)user;
    now_ns += 100 * (int64_t)MS;
    return target_count == 1 ? tutti_mse_loss(s, outputs[0], targets[0], TUTTI_LOSS_MEAN) : NULL;
}

static void a_loss_is_the_last_layers(void **state)
{
    (void)state;
    bench_t b;
    open_spenders(&b);
    b.options.loss = slow_loss;
    b.options.targets = &b.x;
    b.options.target_count = 1;
    tutti_layers_t layers = measure(&b);
    expect_ms(layers.costs[0].forward, costs[0].forward);
    expect_ms(layers.costs[LAYERS - 1].forward, costs[LAYERS - 1].forward + 100);
    assert_true(layers.layers[LAYERS - 1].output_bytes == 4); /* the loss */
    tutti_layers_release(&layers);
    close_bench(&b);
}

/* Nothing but their order is known of real ones. */
static void a_wide_layer_costs_more_than_a_narrow_one(void **state)
{
    (void)state;
    bench_t b;
    open_bench(&b);
    const int64_t widths[] = {WIDTH, 4, 512, 512, 4};
    b.options.repeats = 8; /* one of which nobody disturbs */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tt_add_linear(b.net, widths[i], widths[i + 1]), 0);
    }
    tutti_layers_t layers = measure(&b);
    for (int i = 0; i < 4; i++) {
        assert_true(i == 2 || layers.layers[i].seconds < layers.layers[2].seconds);
        assert_true(layers.layers[i].seconds > 0);
        assert_true(layers.layers[i].output_bytes == (double)(ROWS * widths[i + 1]) * 4);
        assert_true(layers.layers[i].weight_bytes == (double)((widths[i] + 1) * widths[i + 1]) * 4);
        assert_true(layers.costs[i].activation >= layers.layers[i].output_bytes);
    }
    assert_true(layers.costs[2].activation > layers.costs[0].activation);
    tutti_layers_release(&layers);
    close_bench(&b);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void stages_cost_the_sum_of_their_layers(void **state)
{
    (void)state;
    bench_t b;
    tutti_pipeline_partition_t cut;
    tutti_pipeline_costs_t stages[2];
    open_spenders(&b);
    tutti_layers_t layers = measure(&b);
    const tutti_pipeline_partition_options_t two = {.ranks = 2};
    assert_int_equal(tutti_pipeline_partition(layers.layers, layers.count, &two, &cut), 0);
    assert_int_equal(cut.stages[1].first, 3); /* 35 and 66 ms; 4 and 97, or 95 and 6 are worse */
    assert_int_equal(tutti_layers_stage_costs(&layers, &cut, stages), 0);
    expect_ms(stages[0].forward, 1 + 7 + 4);
    expect_ms(stages[0].input, 0); /* nobody waits for it: W has it all */
    expect_ms(stages[0].weight, 3 + 11 + 9);
    expect_ms(stages[0].backward, 3 + 11 + 9);
    expect_ms(stages[1].forward, 22);
    expect_ms(stages[1].input, 32);
    expect_ms(stages[1].weight, 12);
    cut.stages[1].layers++;
    assert_int_equal(tutti_layers_stage_costs(&layers, &cut, stages), TUTTI_ERR_ARG);
    tt_expect_error("stage 1 has 3 layers from 3 on, of 5");
    tutti_pipeline_partition_release(&cut);
    tutti_layers_release(&layers);
    close_bench(&b);
}

/* ---- nothing changes ------------------------------------------------------------------------- */

typedef struct {
    char digest[TUTTI_DIGEST_BYTES];
    double numbers[3];
} traces_t;

/* A step of the module with dropout and batch norm; then what there is to see. */
static traces_t see(bench_t *b)
{
    traces_t t;
    const tutti_tensor_t *weight = tutti_module_find(b->net, "0.weight");
    t.numbers[0] = tutti_tensor_at(tutti_tensor_grad((tutti_tensor_t *)(uintptr_t)weight), 5);
    t.numbers[1] = tutti_tensor_at(tutti_module_find(b->net, "1.running_mean"), 2);
    t.numbers[2] = tutti_tensor_at(tutti_uniform(b->s, TUTTI_F32, TUTTI_SHAPE(1), 0, 1), 0);
    assert_int_equal(tutti_module_digest(b->net, t.digest), 0);
    return t;
}

static traces_t train_a_step(bool is_measured)
{
    bench_t b;
    open_bench(&b);
    assert_int_equal(tt_fill_stack(b.net, "norm"), 0);
    const tutti_dropout_options_t drop = {.p = 0.5F};
    assert_int_equal(tutti_sequential_add(b.net, &tutti_dropout_layer, &drop, NULL), 0);
    (void)tutti_backward(b.s, tutti_mean(b.s, tutti_forward(b.s, b.net, b.x)));
    tutti_context_set_training(b.ctx, false);
    (void)tutti_context_set_grad_enabled(b.ctx, false);
    if (is_measured) {
        tutti_layers_t layers = measure(&b);
        tutti_layers_release(&layers);
    }
    assert_false(tutti_context_is_training(b.ctx));
    assert_false(tutti_context_set_grad_enabled(b.ctx, true));
    const traces_t traces = see(&b);
    close_bench(&b);
    return traces;
}

static void measuring_leaves_no_trace(void **state)
{
    (void)state;
    const traces_t with = train_a_step(true), without = train_a_step(false);
    assert_string_equal(with.digest, without.digest);
    assert_memory_equal(with.numbers, without.numbers, sizeof with.numbers);
    assert_true(without.numbers[0] != 0 && without.numbers[1] != 0);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

enum { RANKS = 3 };

typedef struct {
    double numbers[RANKS][LAYERS][9];
    bool fails;
} tables_t;

static void measure_together(tt_member_t *m)
{
    tables_t *tables = m->user;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_scope_t *s;
    tutti_layers_t layers;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net) == 0);
    for (int i = 0; i < LAYERS; i++) {
        TT_EXPECT(m, tt_add_linear(net, WIDTH, WIDTH) == 0);
    }
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(ROWS, tables->fails ? 1 : WIDTH));
    const tutti_measure_options_t here = {.inputs = &x, .input_count = 1, .repeats = 1}, none = {0};
    const tutti_status_t status =
        tutti_measure_layers(ctx, net, m->group, m->rank == 0 ? &here : &none, &layers);
    TT_EXPECT(m, status == (tables->fails ? TUTTI_ERR_SHAPE : TUTTI_OK));
    TT_EXPECT(m, !tables->fails || strstr(tutti_last_error(), "linear") != NULL);
    for (int i = 0; status == TUTTI_OK && i < LAYERS; i++) {
        const tutti_pipeline_layer_t *l = &layers.layers[i];
        const tutti_pipeline_costs_t *c = &layers.costs[i];
        const double row[] = {l->seconds, l->output_bytes, l->weight_bytes, c->forward, c->input,
                              c->weight,  c->backward,     c->activation,   c->pending};
        memcpy(tables->numbers[m->rank][i], row, sizeof row);
    }
    if (status == TUTTI_OK) {
        tutti_layers_release(&layers);
    }
    (void)tutti_scope_close(s);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void rank_0_measures_and_all_know(void **state)
{
    (void)state;
    tables_t tables = {.fails = false};
    tt_team_expect(RANKS, 0, measure_together, &tables);
    for (int i = 0; i < LAYERS; i++) {
        assert_true(tables.numbers[0][i][0] > 0);
        assert_true(tables.numbers[0][i][6] > 0 && (i == 0 || tables.numbers[0][i][8] > 0));
    }
    for (int rank = 1; rank < RANKS; rank++) {
        assert_memory_equal(tables.numbers[rank], tables.numbers[0], sizeof tables.numbers[0]);
    }
}

static void a_failure_of_rank_0_is_everybodys(void **state)
{
    (void)state;
    tables_t tables = {.fails = true};
    tt_team_expect(RANKS, 0, measure_together, &tables);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuse(bench_t *b, tutti_status_t want, const char *text)
{
    tutti_layers_t layers;
    assert_int_equal(tutti_measure_layers(b->ctx, b->net, NULL, &b->options, &layers), want);
    tt_expect_error(text);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    bench_t b;
    tutti_device_t *meta;
    open_bench(&b);
    assert_int_equal(tt_add_linear(b.net, WIDTH, WIDTH), 0);
    b.options.repeats = -1;
    refuse(&b, TUTTI_ERR_ARG, "repeats is -1");
    b.options.repeats = 1;
    b.options.input_count = 0;
    refuse(&b, TUTTI_ERR_ARG, "0 inputs; want 1 to 16");
    b.options.input_count = 1;
    assert_int_equal(tutti_device_open("meta", NULL, &meta), 0);
    assert_int_equal(tutti_module_to(b.net, meta), 0);
    refuse(&b, TUTTI_ERR_UNSUPPORTED, "0.weight lies on meta");
    tutti_device_release(meta);
    close_bench(&b);
}

static void measure_what_is_dealt_out(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net;
    tutti_pipeline_t *pipeline;
    tutti_layers_t layers;
    const tt_training_t training = {.model = "mlp", .micro_batches = 1};
    const tutti_pipeline_run_options_t run = tt_run_options(&training);
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tt_make_model(ctx, training.model, &net) == 0);
    TT_EXPECT(m, tutti_pipeline_create(ctx, net, m->group, &run, &pipeline) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(ROWS, WIDTH));
    const tutti_measure_options_t options = {.inputs = &x, .input_count = 1};
    TT_EXPECT(m, tutti_measure_layers(ctx, net, m->group, &options, &layers) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "0.weight is dealt out") != NULL);
    TT_EXPECT(m, tutti_scope_close(s) == 0);
    tutti_pipeline_release(pipeline);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

/* Its ddp goes on as if nobody had asked. */
static void measure_then_average(tt_member_t *m)
{
    tutti_scope_t *s;
    tutti_ddp_t *ddp;
    bench_t b;
    tutti_layers_t layers;
    open_bench(&b);
    TT_EXPECT(m, tt_add_linear(b.net, WIDTH, WIDTH) == 0);
    TT_EXPECT(m, tutti_ddp_create(b.ctx, b.net, m->group, NULL, &ddp) == 0);
    TT_EXPECT(m, tutti_measure_layers(b.ctx, b.net, NULL, &b.options, &layers) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "0.weight's gradients are heard of") != NULL);
    while (tutti_ddp_next_shard(ddp, b.ctx)) {
        TT_EXPECT(m, tutti_scope_open(b.ctx, &s) == 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(ROWS, WIDTH));
        (void)tutti_backward(s, tutti_mean(s, tutti_forward(s, b.net, x)));
        TT_EXPECT(m, tutti_scope_close(s) == 0);
    }
    TT_EXPECT(m, tutti_ddp_finish(ddp) == 0);
    tutti_ddp_release(ddp);
    close_bench(&b);
}

static void what_is_dealt_out_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 0, measure_what_is_dealt_out, NULL);
    tt_team_expect(1, 0, measure_then_average, NULL);
}

/* DDP would take what is measured for a training's gradients, and give its group up. */
static void measure_what_is_averaged(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    tutti_layers_t layers;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tt_make_model(ctx, "mlp", &net) == 0);
    TT_EXPECT(m, tutti_ddp_create(ctx, net, m->group, NULL, &ddp) == 0);
    TT_EXPECT(m, tutti_scope_open(ctx, &s) == 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(ROWS, WIDTH));
    const tutti_measure_options_t options = {.inputs = &x, .input_count = 1};
    TT_EXPECT(m, tutti_measure_layers(ctx, net, m->group, &options, &layers) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "0.weight's gradients are heard of") != NULL);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == 0); /* the training goes on */
    TT_EXPECT(m, tutti_scope_close(s) == 0);
    tutti_ddp_release(ddp);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void what_is_averaged_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 0, measure_what_is_averaged, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_costs_what_it_spends),
        cmocka_unit_test(the_first_run_does_not_count_and_the_least_does),
        cmocka_unit_test(a_loss_is_the_last_layers),
        cmocka_unit_test(a_wide_layer_costs_more_than_a_narrow_one),
        cmocka_unit_test(stages_cost_the_sum_of_their_layers),
        cmocka_unit_test(measuring_leaves_no_trace),
        cmocka_unit_test(rank_0_measures_and_all_know),
        cmocka_unit_test(a_failure_of_rank_0_is_everybodys),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
        cmocka_unit_test(what_is_dealt_out_is_refused),
        cmocka_unit_test(what_is_averaged_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
