/* Operations of one's own, by the public contract alone: what goes well. */
#include "compute/autograd/op_testing.h"
#include "core/tensor/device_testing.h"

/* ---- any number of outputs and of saved tensors ---------------------------------------------- */

enum { MANY = 70 };

/* y[k] = (k + 1) x */
static tutti_status_t fan_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    for (int k = 0; k < call->output_count; k++) {
        (void)tutti_op_infer_same(call, &outputs[k]);
    }
    return TUTTI_OK;
}

static tutti_status_t fan_forward(tutti_op_call_t *call)
{
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(tutti_tensor_copy(call->outputs[k],
                                 tutti_mul_scalar(call->scope, call->inputs[0], k + 1)));
        TT_TRY(tutti_op_save(call, tutti_full(call->scope, TUTTI_F32, TUTTI_SCALAR, k + 1)));
    }
    return TUTTI_OK;
}

static tutti_status_t fan_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *sum = tutti_zeros(call->scope, TUTTI_F32, call->inputs[0].shape);
    for (int k = 0; k < call->output_count; k++) {
        if (call->grad_outputs[k] != NULL) {
            sum = tutti_add(call->scope, sum,
                            tutti_mul(call->scope, call->grad_outputs[k], call->saved[k]));
        }
    }
    call->grads[0] = sum;
    return TUTTI_OK;
}

static const tutti_op_t fan = {.name = "fan",
                               .output_count = TUTTI_OP_ANY,
                               .infer = fan_infer,
                               .forward = fan_forward,
                               .backward = fan_backward};

static void an_operation_has_any_number_of_outputs_and_saved_tensors(void **state)
{
    fixture_t *f = *state;
    const int counts[] = {1, 4, 5, 8, 9, 33, MANY};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int count = counts[i];
        tutti_tensor_t *y[MANY];
        tutti_tensor_zero_grad(f->x);
        tutti_op_run_many(f->s, &fan, &f->x, 1, NULL, y, count);
        expect_values(y[count - 1], 2 * count, 3 * count);
        tutti_tensor_t *loss = tutti_sum(f->s, tutti_add(f->s, y[0], y[count - 1]));
        assert_int_equal(tutti_backward(f->s, loss), 0);
        expect_values(tutti_tensor_grad(f->x), 1 + count, 1 + count);
    }
}

static void no_memory_for_many_outputs_is_a_status(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_tensor_t *y[MANY];
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tt_alloc_fail_at(nth);
        tutti_op_run_many(s, &fan, &f->x, 1, NULL, y, 20);
        (void)tutti_backward(s, tutti_sum(s, y[19]));
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(tutti_scope_close(s), has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

/* ---- outputs of several kinds ---------------------------------------------------------------- */

static tutti_tensor_t *copy_to(tutti_op_call_t *call, int output, tutti_tensor_t *x)
{
    const tutti_status_t status = tutti_tensor_copy(call->outputs[output], x);
    return status < 0 ? tutti_scope_fail(call->scope, status) : x;
}

/* x, and a count where there is one -> (x², its index of the largest, the largest, x³) */
static tutti_status_t kinds_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same_float(call, &outputs[0]));
    outputs[1] = (tutti_spec_t){TUTTI_I64, TUTTI_SCALAR};
    outputs[2] = (tutti_spec_t){outputs[0].dtype, TUTTI_SCALAR};
    outputs[3] = outputs[0];
    return TUTTI_OK;
}

static tutti_status_t kinds_forward(tutti_op_call_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->inputs[0], *index;
    tutti_tensor_t *y = copy_to(call, 0, tutti_mul(s, x, x));
    (void)copy_to(call, 2, tutti_max_along(s, x, 0, false, &index));
    (void)copy_to(call, 1, index);
    (void)copy_to(call, 3, tutti_mul(s, y, x));
    assert_false(tutti_tensor_requires_grad(y)); /* nothing is recorded meanwhile */
    TT_TRY(tutti_op_save(call, x));
    return tutti_op_mark_constant(call, 2);
}

static tutti_status_t kinds_backward(tutti_op_backward_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = call->saved[0],
                   *sum = tutti_zeros(s, x == NULL ? TUTTI_F32 : tutti_tensor_dtype(x),
                                      call->inputs[0].shape);
    const double powers[] = {2, 0, 0, 3};
    for (int k = 0; k < 4; k += 3) {
        if (call->grad_outputs[k] != NULL) {
            tutti_tensor_t *slope = k == 0 ? x : tutti_mul(s, x, x);
            slope = tutti_mul_scalar(s, slope, powers[k]);
            sum = tutti_add(s, sum, tutti_mul(s, slope, call->grad_outputs[k]));
        }
    }
    assert_null(call->grad_outputs[1]);
    assert_false(call->input_count > 1 && call->wanted[1]);
    call->grads[0] = sum;
    return TUTTI_OK;
}

static const tutti_op_t kinds = {.name = "kinds",
                                 .input_count = 2,
                                 .optional_inputs = 1 << 1,
                                 .output_count = 4,
                                 .infer = kinds_infer,
                                 .forward = kinds_forward,
                                 .backward = kinds_backward};

static void outputs_may_be_integers_or_constant(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y[4], *in[] = {f->x, NULL};
    tutti_op_run_many(f->s, &kinds, in, 2, NULL, y, 4);
    expect_values(y[3], 8, 27);
    assert_true(tutti_tensor_item(y[1]) == 1 && tutti_tensor_item(y[2]) == 3);
    assert_true(tutti_tensor_requires_grad(y[0]) && tutti_tensor_requires_grad(y[3]));
    assert_false(tutti_tensor_requires_grad(y[1]) || tutti_tensor_requires_grad(y[2]));
    assert_int_equal(tutti_backward(f->s, y[2]), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_close(f->s), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
    tutti_op_run_many(f->s, &kinds, in, 2, NULL, y, 4);
    tutti_tensor_t *loss = tutti_add(f->s, tutti_sum(f->s, y[3]), tutti_sum(f->s, y[2]));
    assert_int_equal(tutti_backward(f->s, loss), 0); /* that of y[0] is absent */
    expect_values(tutti_tensor_grad(f->x), 12, 27);
}

static void run_kinds(tutti_scope_t *s, tutti_tensor_t *const *inputs, tutti_tensor_t **outputs,
                      void *user)
{
    tutti_op_run_many(s, user, inputs, 2, NULL, outputs, 4);
}

static tutti_status_t wrong_backward(tutti_op_backward_t *call)
{
    TT_TRY(kinds_backward(call));
    call->grads[0] = tutti_mul_scalar(call->scope, call->grads[0], 1.001);
    return TUTTI_OK;
}

static void a_gradient_check_takes_outputs_of_all_kinds(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(2), (double[]){0.5, -1.25});
    tutti_tensor_t *in[] = {x, tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(3))};
    tutti_op_t own = kinds;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    assert_int_equal(tutti_gradient_check(f->ctx, run_kinds, &own, in, 2, 4, NULL), 0);
    own.backward = wrong_backward;
    assert_int_equal(tutti_gradient_check(f->ctx, run_kinds, &own, in, 2, 4, NULL),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("input 0");
}

/* y[k] = (k + 1) x; gradients that did not come are zeros */
static tutti_status_t zeros_backward(tutti_op_backward_t *call)
{
    assert_non_null(call->grad_outputs[0]);
    assert_true(tutti_tensor_at(call->grad_outputs[0], 1) == 0);
    return fan_backward(call);
}

static void absent_gradients_are_zeros_where_the_table_says_so(void **state)
{
    fixture_t *f = *state;
    tutti_op_t own = fan;
    own.zero_grad_outputs = true;
    own.backward = zeros_backward;
    for (int count = 2; count <= MANY; count += MANY - 2) {
        tutti_tensor_t *y[MANY];
        tutti_tensor_zero_grad(f->x);
        tutti_op_run_many(f->s, &own, &f->x, 1, NULL, y, count);
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y[count - 1])), 0);
        expect_values(tutti_tensor_grad(f->x), count, count);
    }
}

/* ---- autocast -------------------------------------------------------------------------------- */

static tutti_status_t watch_forward(tutti_op_call_t *call)
{
    assert_int_equal(tutti_context_autocast(tutti_scope_context(call->scope)), TUTTI_F32);
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

static void autocast_follows_the_table(void **state)
{
    fixture_t *f = *state;
    const tutti_dtype_t want[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F32};
    (void)tutti_context_set_autocast(f->ctx, TUTTI_BF16);
    for (int rule = TUTTI_OP_AUTOCAST_KEEP; rule <= TUTTI_OP_AUTOCAST_F32; rule++) {
        const tutti_op_t own = {.name = "watch",
                                .autocast = (tutti_op_autocast_t)rule,
                                .infer = tutti_op_infer_same,
                                .forward = watch_forward};
        tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2));
        assert_int_equal(tutti_tensor_dtype(tutti_op_run(f->s, &own, &x, 1, NULL)), want[rule]);
        x = tutti_ones(f->s, TUTTI_BF16, TUTTI_SHAPE(2));
        assert_int_equal(tutti_tensor_dtype(tutti_op_run(f->s, &own, &x, 1, NULL)),
                         rule == TUTTI_OP_AUTOCAST_F32 ? TUTTI_F32 : TUTTI_BF16);
    }
    (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
}

static void autocast_to_what_it_does_not_know_is_refused(void **state)
{
    fixture_t *f = *state;
    static const struct {
        tutti_dtype_t dtype;
        const char *text;
    } cases[] = {{TUTTI_I32, "autocast is set to i32: tutti_context_set_autocast() wants f32"},
                 {TUTTI_F64, "autocast is set to f64"},
                 {(tutti_dtype_t)99, "autocast is set to what is no dtype"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_context_set_autocast(f->ctx, cases[i].dtype), TUTTI_F32);
        tutti_tensor_t *y = tutti_add(s, f->x, f->x);
        (void)tutti_context_set_autocast(f->ctx, TUTTI_F32);
        assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_DTYPE);
        tt_expect_error(cases[i].text);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_DTYPE);
    }
}

/* ---- parameters, random numbers, and everything that runs a graph ---------------------------- */

typedef struct {
    _Atomic int references, backwards; /* replicas run in threads */
    double factor;
} shared_t;

static shared_t *shared_of(const void *params)
{
    return *(shared_t *const *)params;
}

static void retain_shared(const void *params)
{
    shared_of(params)->references++;
}

static void release_shared(const void *params)
{
    shared_of(params)->references--;
}

/* y = x w noise factor */
static tutti_status_t noise_forward(tutti_op_call_t *call)
{
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *noise = tutti_uniform(s, TUTTI_F32, tutti_tensor_shape(call->inputs[0]), 1, 2);
    noise = tutti_mul_scalar(s, noise, shared_of(call->params)->factor);
    (void)copy_to(call, 0, tutti_mul(s, tutti_mul(s, call->inputs[0], call->inputs[1]), noise));
    TT_TRY(tutti_op_save(call, noise));
    TT_TRY(tutti_op_save(call, call->inputs[0]));
    return tutti_op_save(call, call->inputs[1]);
}

static tutti_status_t noise_backward(tutti_op_backward_t *call)
{
    shared_of(call->params)->backwards++;
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            tutti_tensor_t *slope = tutti_mul(call->scope, call->saved[2 - i], call->saved[0]);
            slope = tutti_mul(call->scope, slope, call->grad_outputs[0]);
            call->grads[i] = tutti_sum_to(call->scope, slope, call->inputs[i].shape);
        }
    }
    return TUTTI_OK;
}

static const tutti_op_t noise = {.name = "noise",
                                 .input_count = 2,
                                 .params_bytes = sizeof(shared_t *),
                                 .retain_params = retain_shared,
                                 .release_params = release_shared,
                                 .infer = tutti_op_infer_broadcast,
                                 .forward = noise_forward,
                                 .backward = noise_backward};

typedef struct {
    shared_t *shared;
    tutti_tensor_t *w;
} layer_t;

static tutti_tensor_t *layer_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const layer_t *layer = tutti_module_state(m);
    tutti_tensor_t *in[] = {x, layer->w};
    return tutti_op_run(s, &noise, in, 2, &layer->shared);
}

static tutti_status_t layer_init(tutti_module_t *m, const void *options)
{
    layer_t *layer = tutti_module_state(m);
    layer->shared = *(shared_t *const *)options;
    return tutti_module_new_parameter(m, "w", TUTTI_SHAPE(2),
                                      (tutti_init_t){TUTTI_INIT_CONSTANT, 1, 0}, &layer->w);
}

static const tutti_module_ops_t layer_ops = {.name = "noise_layer",
                                             .state_bytes = sizeof(layer_t),
                                             .init = layer_init,
                                             .forward = layer_forward};

/* Gradient of w in a forward that is done so. */
typedef tutti_tensor_t *(*forward_t)(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x);

static void learn(fixture_t *f, tutti_module_t *m, forward_t forward, double *grads)
{
    layer_t *layer = tutti_module_state(m);
    tutti_scope_t *s;
    tutti_context_set_step(f->ctx, 7);
    tutti_tensor_zero_grad(layer->w);
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_backward(s, tutti_sum(s, forward(s, m, f->x))), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    for (int i = 0; i < 2; i++) {
        grads[i] = tutti_tensor_at(tutti_tensor_grad(layer->w), i);
    }
    assert_int_equal(layer->shared->references, 0);
}

static tutti_tensor_t *plainly(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_forward(s, m, x);
}

static tutti_status_t pack(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed)
{
    (void)s;
    ++*(int *)user;
    *packed = tutti_tensor_retain(x);
    return TUTTI_OK;
}

static tutti_tensor_t *unpack(tutti_scope_t *s, void *packed, void *user)
{
    (void)user;
    return tutti_add_scalar(s, packed, 0);
}

static void drop(void *packed, void *user)
{
    (void)user;
    tutti_tensor_release(packed);
}

static tutti_tensor_t *hooked(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    static int packs;
    const tutti_saved_hooks_t hooks = {pack, unpack, drop, &packs};
    tutti_context_t *ctx = tutti_scope_context(s);
    assert_int_equal(tutti_saved_hooks_push(ctx, &hooks), 0);
    tutti_tensor_t *y = tutti_forward(s, m, x);
    assert_int_equal(tutti_saved_hooks_pop(ctx), 0);
    assert_int_equal(packs, 1); /* the noise; leaves stay */
    return y;
}

static void recomputation_and_hooks_change_no_bit(void **state)
{
    fixture_t *f = *state;
    shared_t shared = {.factor = 0.75}, *options = &shared;
    tutti_module_t *m;
    double plain[2], again[2], packed[2];
    assert_int_equal(tutti_module_create(f->ctx, &layer_ops, &options, &m), 0);
    learn(f, m, plainly, plain);
    learn(f, m, tutti_recompute, again);
    learn(f, m, hooked, packed);
    assert_memory_equal(plain, again, sizeof plain);
    assert_memory_equal(plain, packed, sizeof plain);
    assert_true(plain[0] > 2 * 0.75 && plain[0] < 4 * 0.75);
    tutti_module_release(m);
}

static void the_graph_holds_what_parameters_point_to(void **state)
{
    fixture_t *f = *state;
    shared_t shared = {.factor = 1}, *params = &shared;
    tutti_tensor_t *in[] = {f->x, f->x};
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *y = tutti_op_run(s, &noise, in, 2, &params);
    assert_int_equal(shared.references, 1);
    const tutti_backward_options_t keep = {.retain_graph = true};
    assert_int_equal(tutti_backward_with(s, tutti_sum(s, y), &keep), 0);
    assert_int_equal(shared.references, 1);
    assert_int_equal(tutti_backward(s, tutti_sum(s, y)), 0);
    assert_int_equal(shared.references, 0);
    (void)tutti_op_run(s, &noise, in, 2, &params); /* a graph that is never run */
    assert_int_equal(tutti_scope_close(s), 0);
    assert_int_equal(shared.references, 0);
    assert_int_equal(shared.backwards, 2);
}

static void weights_may_wait_for_a_second_turn(void **state)
{
    fixture_t *f = *state;
    shared_t shared = {.factor = 1}, *params = &shared;
    tutti_tensor_t *w, *dx;
    tutti_backward_run_t *run;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2), &w), 0);
    assert_int_equal(tutti_tensor_fill(w, 1), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(w, true), 0);
    tutti_tensor_t *h = tutti_mul_scalar(f->s, f->x, 2);
    tutti_tensor_t *y = tutti_op_run(f->s, &noise, (tutti_tensor_t *[]){h, w}, 2, &params);
    const tutti_root_t root = {.tensor = tutti_sum(f->s, y)};
    assert_int_equal(tutti_backward_inputs(f->s, &root, 1, NULL, &h, 1, &dx, &run), 0);
    assert_null(tutti_tensor_grad(w));
    assert_int_equal(shared.backwards, 1);
    assert_int_equal(tutti_backward_weights(run), 0);
    assert_int_equal(shared.backwards, 2);
    assert_true(tutti_tensor_at(tutti_tensor_grad(w), 0) == tutti_tensor_at(dx, 0) * 4);
    tutti_tensor_release(w);
}

static tutti_status_t build_layer(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    return tutti_module_create(ctx, &layer_ops, user, out);
}

static void replicas_run_it_in_threads(void **state)
{
    fixture_t *f = *state;
    shared_t shared = {.factor = 1}, *options = &shared;
    tutti_module_t *m, *model;
    tt_test_host_only(); /* data_parallel_device_test's */
    assert_int_equal(tutti_module_create(f->ctx, &layer_ops, &options, &m), 0);
    const tutti_data_parallel_options_t dp = {
        .replicas = 2, .threads = 1, .build = build_layer, .user = &options};
    assert_int_equal(tutti_data_parallel_create(m, &dp, &model), 0);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(4, 2));
    tutti_tensor_t *y = tutti_forward(f->s, model, x);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    const layer_t *layer = tutti_module_state(m);
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += tutti_tensor_at(y, 2 * i);
    }
    assert_float_equal(tutti_tensor_at(tutti_tensor_grad(layer->w), 0), sum, 1e-5);
    assert_int_equal(shared.references, 0);
    tutti_module_release(model);
    tutti_module_release(m);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { PIECES = 64 };

typedef struct {
    tutti_context_t *ctx;
    double sums[PIECES];
} pieces_t;

static void add_piece(void *arg, size_t index)
{
    pieces_t *pieces = arg;
    pieces->sums[index] += 1.0 / (double)(index + 1);
}

static void nest_piece(void *arg, size_t index)
{
    if (index % 8 == 0) {
        pieces_t *pieces = arg;
        pieces_t own = {0};
        (void)tutti_parallel_for(pieces->ctx, PIECES, add_piece, &own);
        pieces->sums[index] = own.sums[index];
    }
}

static void a_loop_runs_on_all_threads_and_nests(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        tutti_context_t *ctx;
        assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = threads}, &ctx), 0);
        for (int k = 0; k < 50; k++) {
            pieces_t pieces = {.ctx = ctx}, nested = {.ctx = ctx};
            assert_int_equal(tutti_parallel_for(ctx, PIECES, add_piece, &pieces), 0);
            assert_int_equal(tutti_parallel_for(ctx, PIECES, nest_piece, &nested), 0);
            for (int i = 0; i < PIECES; i++) {
                assert_true(pieces.sums[i] == 1.0 / (i + 1));
                assert_true(nested.sums[i] == (i % 8 == 0 ? 1.0 / (i + 1) : 0));
            }
        }
        assert_int_equal(tutti_parallel_for(ctx, 1, NULL, NULL), TUTTI_ERR_ARG);
        tt_expect_error("parallel_for: piece is NULL");
        tutti_context_release(ctx);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_operation_has_any_number_of_outputs_and_saved_tensors),
        T(no_memory_for_many_outputs_is_a_status),
        T(outputs_may_be_integers_or_constant),
        T(a_gradient_check_takes_outputs_of_all_kinds),
        T(absent_gradients_are_zeros_where_the_table_says_so),
        T(autocast_follows_the_table),
        T(autocast_to_what_it_does_not_know_is_refused),
        T(recomputation_and_hooks_change_no_bit),
        T(the_graph_holds_what_parameters_point_to),
        T(weights_may_wait_for_a_second_turn),
        T(replicas_run_it_in_threads),
        T(a_loop_runs_on_all_threads_and_nests),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
