/* TUTTI_ZERO is the number 0 for each floating option and argument whose plain 0 means a default:
 * it acts as a number that is next to nothing does, and otherwise than the default; or it is
 * refused, by name. zero_list_test.py compares the names here with those in the public headers. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include <tutti/data_files.h>
#include <tutti/ddp.h>
#include <tutti/modes.h>
#include <tutti/nn.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/optim.h>
#include <tutti/pictures.h>
#include <tutti/pipeline.h>

#include "compute/optim/optimizer.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"
#include "zero_functions.h"
#include "zero_losses.h"

enum { OPTIONS_BYTES = 256 };

#define NEXT_TO_NOTHING 1e-300

/* What an option belongs to; one of the pointers is set. */
typedef struct {
    const char *name;
    const tutti_optim_ops_t *optimizer;
    const tutti_module_ops_t *layer;
    const void *options; /* NULL: zeros */
    size_t bytes, offset;
    tutti_status_t (*run)(trial_t *t);
    const char *refused; /* in the text of the error; NULL: 0 is a value */
} row_t;

/* ---- optimizers and layers ------------------------------------------------------------------- */

static void options_of(const row_t *row, double value, char *options)
{
    memset(options, 0, OPTIONS_BYTES);
    if (row->options != NULL) {
        memcpy(options, row->options, row->bytes);
    }
    memcpy(options + row->offset, &value, sizeof value);
}

/* Gradients that change their sign, of two sizes: in the smaller an eps decides, in the larger what
 * an eps would hide. */
static tutti_status_t step(const row_t *row, const char *options, trial_t *t, int size)
{
    static const double factors[] = {5, -0.1, 0.3};
    tutti_optim_t *opt;
    tutti_tensor_t *x = tutti_full(t->s, TUTTI_F32, TUTTI_SHAPE(4, 6), 1e-4);
    TUTTI_CHECK(tutti_tensor_set_requires_grad(x, true));
    TUTTI_CHECK(tutti_optim_create(t->ctx, row->optimizer, options, &opt));
    tutti_status_t status = tutti_optim_add_parameter(opt, 0, "x", x);
    for (int k = 0; k < 3 && status >= 0; k++) {
        const double factor = factors[k] * (size == 0 ? 1 : 1e-13);
        tutti_tensor_t *grad = numbers(t->s, TUTTI_SHAPE(4, 6));
        status = tutti_tensor_set_grad(x, tutti_mul_scalar(t->s, grad, factor));
        status = status < 0 ? status : tutti_optim_step(opt);
    }
    keep(t, size * N, x);
    tutti_optim_release(opt);
    return status;
}

static tutti_status_t try_optimizer(const row_t *row, trial_t *t)
{
    _Alignas(16) char options[OPTIONS_BYTES];
    options_of(row, t->value, options);
    TUTTI_CHECK(step(row, options, t, 0));
    return step(row, options, t, 1);
}

static tutti_status_t keep_first(void *user, const char *name, tutti_tensor_t *x)
{
    trial_t *t = user;
    (void)name;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        t->out[N + i % N] += (double)(i % 7 + 1) * tutti_tensor_at(x, i);
    }
    return TUTTI_OK;
}

static tutti_status_t try_layer(const row_t *row, trial_t *t)
{
    _Alignas(16) char options[OPTIONS_BYTES];
    options_of(row, t->value, options);
    tutti_module_t *m;
    TUTTI_CHECK(tutti_module_create(t->ctx, row->layer, options, &m));
    tutti_status_t status = tutti_module_each_parameter(m, keep_first, t);
    if (status >= 0 && row->layer != &tutti_embedding_layer) {
        const bool has_steps = row->layer == &tutti_self_attention_layer ||
                               row->layer == &tutti_transformer_block_layer;
        const tutti_shape_t shape = has_steps ? TUTTI_SHAPE(2, 3, 4) : TUTTI_SHAPE(6, 4);
        tutti_tensor_t *x =
            row->layer == &tutti_instance_norm_layer || row->layer == &tutti_group_norm_layer
                ? numbers(t->s, TUTTI_SHAPE(2, 4, 3))
                : numbers(t->s, shape);
        keep(t, 0, tutti_forward(t->s, m, x));
        tutti_tensor_t *mean = tutti_module_find(m, "running_mean");
        if (mean != NULL) {
            keep(t, N, mean);
        }
        status = tutti_scope_status(t->s);
    }
    tutti_module_release(m);
    return status;
}

/* ---- others ---------------------------------------------------------------------------------- */

static tutti_status_t layer_norm(trial_t *t)
{
    return keep_result(
        t, tutti_layer_norm(t->s, numbers(t->s, TUTTI_SHAPE(6, 4)), NULL, NULL, t->value));
}

static tutti_status_t rms_norm(trial_t *t)
{
    return keep_result(t, tutti_rms_norm(t->s, numbers(t->s, TUTTI_SHAPE(6, 4)), NULL, t->value));
}

static tutti_status_t group_norm(trial_t *t)
{
    return keep_result(
        t, tutti_group_norm(t->s, numbers(t->s, TUTTI_SHAPE(2, 4, 3)), 2, NULL, NULL, t->value));
}

static tutti_status_t batch_norm(trial_t *t, const tutti_batch_norm_options_t *given)
{
    tutti_batch_norm_options_t o = *given;
    o.running_mean = numbers(t->s, TUTTI_SHAPE(4));
    o.running_var = tutti_ones(t->s, TUTTI_F32, TUTTI_SHAPE(4));
    tutti_tensor_t *y = tutti_batch_norm(t->s, numbers(t->s, TUTTI_SHAPE(6, 4)), NULL, NULL, &o);
    keep(t, N, o.running_mean);
    return keep_result(t, y);
}

static tutti_status_t batch_norm_eps(trial_t *t)
{
    return batch_norm(t, &(tutti_batch_norm_options_t){.eps = t->value});
}

static tutti_status_t batch_norm_momentum(trial_t *t)
{
    return batch_norm(t, &(tutti_batch_norm_options_t){.momentum = t->value});
}

static tutti_status_t attention_scale(trial_t *t)
{
    tutti_tensor_t *x = tutti_mul_scalar(t->s, numbers(t->s, TUTTI_SHAPE(1, 2, 3, 4)), 1000);
    return keep_result(
        t, tutti_attention(t->s, x, x, x, &(tutti_attention_options_t){.scale = t->value}));
}

static tutti_status_t rotary_base(trial_t *t)
{
    return keep_result(t, tutti_rotary(t->s, numbers(t->s, TUTTI_SHAPE(1, 2, 3, 4)),
                                       &(tutti_rotary_options_t){.base = t->value}));
}

static tutti_status_t xavier_uniform(trial_t *t)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(4, 6));
    TUTTI_CHECK(tutti_init_xavier_uniform(t->ctx, x, t->value));
    return keep_result(t, x);
}

static tutti_status_t xavier_normal(trial_t *t)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(4, 6));
    TUTTI_CHECK(tutti_init_xavier_normal(t->ctx, x, t->value));
    return keep_result(t, x);
}

static tutti_status_t orthogonal(trial_t *t)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(4, 6));
    TUTTI_CHECK(tutti_init_orthogonal(t->ctx, x, t->value));
    return keep_result(t, x);
}

static tutti_status_t trunc_normal(trial_t *t, const tutti_trunc_normal_options_t *o)
{
    tutti_tensor_t *x = numbers(t->s, TUTTI_SHAPE(4, 6));
    TUTTI_CHECK(tutti_init_trunc_normal(t->ctx, x, o));
    return keep_result(t, x);
}

static tutti_status_t trunc_normal_deviation(trial_t *t)
{
    return trunc_normal(t, &(tutti_trunc_normal_options_t){.std = t->value});
}

/* Both bounds are left out, or one of them is 0. */
static tutti_status_t trunc_normal_low(trial_t *t)
{
    return trunc_normal(t, &(tutti_trunc_normal_options_t){.low = t->value, .high = t->value});
}

static tutti_status_t schedule(trial_t *t, const tutti_schedule_t *s)
{
    TUTTI_CHECK(tutti_schedule_check(s));
    for (int i = 0; i < N; i++) {
        t->out[i] = tutti_schedule_lr(s, i);
    }
    return TUTTI_OK;
}

static tutti_status_t schedule_gamma(trial_t *t)
{
    return schedule(t,
                    &(tutti_schedule_t){
                        .kind = TUTTI_SCHEDULE_STEP, .lr = 1, .step_size = 3, .gamma = t->value});
}

static const tutti_schedule_t one_cycle = {
    .kind = TUTTI_SCHEDULE_ONE_CYCLE, .lr = 1, .total_steps = 10};

static tutti_status_t schedule_up_share(trial_t *t)
{
    tutti_schedule_t s = one_cycle;
    s.up_share = t->value;
    return schedule(t, &s);
}

static tutti_status_t schedule_div_factor(trial_t *t)
{
    tutti_schedule_t s = one_cycle;
    s.div_factor = t->value;
    return schedule(t, &s);
}

static tutti_status_t schedule_final_div_factor(trial_t *t)
{
    tutti_schedule_t s = one_cycle;
    s.final_div_factor = t->value;
    return schedule(t, &s);
}

static tutti_status_t scaler(const tutti_scaler_options_t *o)
{
    tutti_scaler_t *scaler;
    TUTTI_CHECK(tutti_scaler_create(o, &scaler));
    tutti_scaler_release(scaler);
    return TUTTI_OK;
}

static tutti_status_t scaler_init_scale(trial_t *t)
{
    return scaler(&(tutti_scaler_options_t){.init_scale = t->value});
}

static tutti_status_t scaler_growth_factor(trial_t *t)
{
    return scaler(&(tutti_scaler_options_t){.growth_factor = t->value});
}

static tutti_status_t scaler_backoff_factor(trial_t *t)
{
    return scaler(&(tutti_scaler_options_t){.backoff_factor = t->value});
}

static void same(tutti_scope_t *s, tutti_tensor_t *const *inputs, tutti_tensor_t **outputs,
                 void *user)
{
    (void)user;
    outputs[0] = tutti_mul(s, inputs[0], inputs[0]);
}

static tutti_status_t check_gradient(trial_t *t, const tutti_gradient_check_options_t *options)
{
    tutti_tensor_t *x = tutti_ones(t->s, TUTTI_F64, TUTTI_SHAPE(2));
    TUTTI_CHECK(tutti_tensor_set_requires_grad(x, true));
    return tutti_gradient_check(t->ctx, same, NULL, &x, 1, 1, options);
}

static tutti_status_t gradient_check_step(trial_t *t)
{
    return check_gradient(t, &(tutti_gradient_check_options_t){.step = t->value});
}

static tutti_status_t gradient_check_tolerance(trial_t *t)
{
    return check_gradient(t, &(tutti_gradient_check_options_t){.tolerance = t->value});
}

static tutti_status_t powersgd_min_compression(trial_t *t)
{
    const tutti_powersgd_options_t o = {.min_compression = t->value};
    _Alignas(16) char state[OPTIONS_BYTES] = {0};
    return tutti_powersgd_hook.init(state, &o, NULL);
}

static tutti_status_t dataset(const tutti_dataset_ops_t *kind, const void *options)
{
    tutti_dataset_t *d;
    TUTTI_CHECK(tutti_dataset_create(kind, options, &d));
    tutti_dataset_release(d);
    return TUTTI_OK;
}

static tutti_status_t mnist_deviation(trial_t *t)
{
    const tutti_mnist_options_t o = {.folder = "none", .std = t->value};
    return dataset(&tutti_mnist_dataset, &o);
}

static tutti_status_t text_to(trial_t *t)
{
    const tutti_text_options_t o = {.path = "none", .length = 4, .to = t->value};
    return dataset(&tutti_text_dataset, &o);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define LAYER(type, field, ops, base)                                                              \
    {                                                                                              \
        .name = #type "." #field, .layer = ops, .options = &(base), .bytes = sizeof(type),         \
        .offset = offsetof(type, field)                                                            \
    }

#define RUN(what, fn)                                                                              \
    {                                                                                              \
        .name = what, .run = fn                                                                    \
    }
#define REFUSED(what, fn, text)                                                                    \
    {                                                                                              \
        .name = what, .run = fn, .refused = text                                                   \
    }

static const tutti_linear_options_t linear = {.in = 4, .out = 6};
static const tutti_embedding_options_t embedding = {.count = 4, .width = 6};
static const tutti_norm_options_t norm = {.width = 4};
static const tutti_batch_norm_layer_options_t batch = {.width = 4};
static const tutti_group_norm_options_t group = {.width = 4, .groups = 2};
static const tutti_instance_norm_options_t instance = {.width = 4, .running = true};
static const tutti_self_attention_options_t self = {.width = 4, .heads = 2};
static const tutti_mlp_options_t mlp = {.width = 4};
static const tutti_transformer_block_options_t block = {.width = 4, .heads = 2};
static const tutti_adafactor_options_t plain_step = {.no_relative_step = true, .lr = 1e-3};

static tutti_status_t pipeline(trial_t *t, const char *name, const tutti_pipeline_costs_t *costs)
{
    const tutti_pipeline_options_t options = {.schedule = name, .ranks = 2, .micro_batches = 4};
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_simulation_t simulation;
    TT_TRY(tutti_pipeline_plan(&options, &schedule));
    const tutti_status_t status = tutti_pipeline_simulate(&schedule, costs, 1, &simulation);
    tutti_pipeline_schedule_release(&schedule);
    TT_TRY(status);
    t->out[0] = simulation.time;
    t->out[1] = simulation.loads[1].activations_max;
    tutti_pipeline_simulation_release(&simulation);
    return TUTTI_OK;
}

static tutti_status_t pipeline_backward(trial_t *t)
{
    return pipeline(t, "1f1b",
                    &(tutti_pipeline_costs_t){.forward = 1, .input = 1, .backward = t->value});
}

static tutti_status_t pipeline_activation(trial_t *t)
{
    return pipeline(t, "1f1b", &(tutti_pipeline_costs_t){.activation = t->value});
}

static tutti_status_t pipeline_pending(trial_t *t)
{
    return pipeline(t, "zb-h1", &(tutti_pipeline_costs_t){.pending = t->value});
}

static const row_t rows[] = {
    LAYER(tutti_linear_options_t, std, &tutti_linear_layer, linear),
    LAYER(tutti_embedding_options_t, std, &tutti_embedding_layer, embedding),
    LAYER(tutti_norm_options_t, eps, &tutti_layer_norm_layer, norm),
    LAYER(tutti_batch_norm_layer_options_t, eps, &tutti_batch_norm_layer, batch),
    LAYER(tutti_batch_norm_layer_options_t, momentum, &tutti_batch_norm_layer, batch),
    LAYER(tutti_group_norm_options_t, eps, &tutti_group_norm_layer, group),
    LAYER(tutti_instance_norm_options_t, eps, &tutti_instance_norm_layer, instance),
    LAYER(tutti_instance_norm_options_t, momentum, &tutti_instance_norm_layer, instance),
    LAYER(tutti_self_attention_options_t, std, &tutti_self_attention_layer, self),
    LAYER(tutti_self_attention_options_t, result_std, &tutti_self_attention_layer, self),
    LAYER(tutti_mlp_options_t, std, &tutti_mlp_layer, mlp),
    LAYER(tutti_mlp_options_t, result_std, &tutti_mlp_layer, mlp),
    LAYER(tutti_transformer_block_options_t, eps, &tutti_transformer_block_layer, block),
    LAYER(tutti_transformer_block_options_t, std, &tutti_transformer_block_layer, block),
    LAYER(tutti_transformer_block_options_t, result_std, &tutti_transformer_block_layer, block),
    LAYER(tutti_activation_options_t, slope, &tutti_activation_layer, leaky),
    LAYER(tutti_activation_options_t, alpha, &tutti_activation_layer, elu),
    LAYER(tutti_activation_options_t, bound, &tutti_activation_layer, softplus),
    LAYER(tutti_activation_options_t, lambda, &tutti_activation_layer, hardshrink),
    LAYER(tutti_activation_options_t, lower, &tutti_activation_layer, rrelu),
    LAYER(tutti_activation_options_t, upper, &tutti_activation_layer, rising),
    LAYER(tutti_prelu_options_t, begin, &tutti_prelu_layer, prelu),
    REFUSED("tutti_activation_options_t.beta", softplus_beta, "beta"),
    RUN("tutti_cosine_similarity_options_t.eps", cosine_eps),
    RUN("tutti_pairwise_distance_options_t.eps", distance_eps),
    REFUSED("tutti_pairwise_distance_options_t.p", distance_norm, "p must be above 0"),
    RUN("tutti_embedding_lookup_options_t.max_norm", embedding_max_norm),
    REFUSED("tutti_embedding_lookup_options_t.norm_p", embedding_norm_p, "norm_p must be above 0"),
    RUN("tutti_transformer_options_t.eps", transformer_eps),
    RUN("tutti_masked_attention_options_t.scale", masked_scale),
    RUN("tutti_local_response_options_t.alpha", local_response_alpha),
    RUN("tutti_local_response_options_t.beta", local_response_beta),
    RUN("tutti_local_response_options_t.k", local_response_k),
    RUN("tutti_layer_norm(eps)", layer_norm),
    RUN("tutti_rms_norm(eps)", rms_norm),
    RUN("tutti_group_norm(eps)", group_norm),
    RUN("tutti_batch_norm_options_t.eps", batch_norm_eps),
    RUN("tutti_batch_norm_options_t.momentum", batch_norm_momentum),
    RUN("tutti_attention_options_t.scale", attention_scale),
    RUN("tutti_triplet_margin_options_t.margin", triplet_margin),
    RUN("tutti_triplet_margin_options_t.eps", triplet_eps),
    RUN("tutti_triplet_distance_options_t.margin", distance_margin),
    RUN("tutti_multi_margin_options_t.margin", multi_margin),
    RUN("tutti_poisson_nll_options_t.eps", poisson),
    RUN("tutti_gaussian_nll_options_t.eps", gaussian),
    RUN("tutti_focal_options_t.alpha", focal_alpha),
    RUN("tutti_focal_options_t.gamma", focal_gamma),
    REFUSED("tutti_triplet_margin_options_t.p", triplet_norm, "p must be above 0"),
    REFUSED("tutti_adaptive_log_softmax_options_t.div_value", adaptive_div_value, "div_value"),
    RUN("tutti_init_xavier_uniform(gain)", xavier_uniform),
    RUN("tutti_init_xavier_normal(gain)", xavier_normal),
    RUN("tutti_init_orthogonal(gain)", orthogonal),
    RUN("tutti_schedule_t.gamma", schedule_gamma),
    RUN("tutti_averaged_options_t.decay", averaged_decay),
    RUN("tutti_pipeline_costs_t.backward", pipeline_backward),
    RUN("tutti_pipeline_costs_t.activation", pipeline_activation),
    RUN("tutti_pipeline_costs_t.pending", pipeline_pending),
    REFUSED("tutti_schedule_t.up_share", schedule_up_share, "up_share is "),
    REFUSED("tutti_schedule_t.div_factor", schedule_div_factor, "div_factor "),
    REFUSED("tutti_schedule_t.final_div_factor", schedule_final_div_factor, "final_div_factor "),
    REFUSED("tutti_rotary_options_t.base", rotary_base, "base must be positive"),
    REFUSED("tutti_trunc_normal_options_t.std", trunc_normal_deviation, "deviation "),
    REFUSED("tutti_trunc_normal_options_t.low", trunc_normal_low, "nothing lies between "),
    REFUSED("tutti_trunc_normal_options_t.high", trunc_normal_low, "nothing lies between "),
    REFUSED("tutti_scaler_options_t.init_scale", scaler_init_scale, "init_scale is "),
    REFUSED("tutti_scaler_options_t.growth_factor", scaler_growth_factor, "growth_factor is "),
    REFUSED("tutti_scaler_options_t.backoff_factor", scaler_backoff_factor, "backoff_factor is "),
    REFUSED("tutti_powersgd_options_t.min_compression", powersgd_min_compression,
            "min_compression "),
    REFUSED("tutti_gradient_check_options_t.step", gradient_check_step, "step is 0"),
    REFUSED("tutti_gradient_check_options_t.tolerance", gradient_check_tolerance, "tolerance is 0"),
    REFUSED("tutti_mnist_options_t.std", mnist_deviation, "std "),
    REFUSED("tutti_text_options_t.to", text_to, "to "),
};

static tutti_status_t try_value(const row_t *row, double value, trial_t *t)
{
    *t = (trial_t){.value = value};
    const tutti_context_options_t options = {.threads = 1, .seed = 7};
    assert_int_equal(tt_test_context(&options, &t->ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(t->ctx, &t->s), TUTTI_OK);
    const tutti_status_t status = row->optimizer != NULL ? try_optimizer(row, t)
                                  : row->layer != NULL   ? try_layer(row, t)
                                                         : row->run(t);
    (void)tutti_scope_close(t->s);
    tutti_context_release(t->ctx);
    return status;
}

static bool is_same(const trial_t *a, const trial_t *b)
{
    for (int i = 0; i < 2 * N; i++) {
        const bool is_near = fabs(a->out[i] - b->out[i]) <= NEXT_TO_NOTHING;
        if (!is_near && !(isnan(a->out[i]) && isnan(b->out[i]))) {
            return false;
        }
    }
    return true;
}

static void expect_zero(const row_t *row)
{
    trial_t zero, little, left_out;
    if (try_value(row, TUTTI_ZERO, &zero) < 0 || try_value(row, NEXT_TO_NOTHING, &little) < 0 ||
        try_value(row, 0, &left_out) < 0) {
        fail_msg("%s: %s", row->name, tutti_last_error());
    }
    if (!is_same(&zero, &little)) {
        fail_msg("%s: TUTTI_ZERO is not 0", row->name);
    }
    if (is_same(&zero, &left_out)) {
        fail_msg("%s: TUTTI_ZERO is the default", row->name);
    }
}

static void try_row(const row_t *row)
{
    trial_t t;
    if (row->refused == NULL) {
        expect_zero(row);
    } else if (try_value(row, TUTTI_ZERO, &t) != TUTTI_ERR_ARG) {
        fail_msg("%s takes TUTTI_ZERO", row->name);
    } else {
        tt_expect_error(row->refused);
    }
}

static void zero_is_next_to_nothing_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        try_row(&rows[i]);
    }
}

/* Those with a default in the table of any optimizer. */
static void so_it_is_of_optimizers(void **state)
{
    (void)state;
    int tried = 0;
    for (size_t k = 0; k < tt_optimizer_count; k++) {
        const tutti_optim_ops_t *kind = tt_optimizers[k];
        for (const tutti_optim_option_t *o = kind->options; o->name != NULL; o++) {
            char name[64];
            snprintf(name, sizeof name, "%s: %s is ", kind->name, o->name);
            const row_t row = {.name = name,
                               .optimizer = kind,
                               .offset = o->offset,
                               .refused = o->min <= 0 && o->below > 0 ? NULL : name};
            if (o->fallback != 0) {
                try_row(&row);
                tried++;
            }
        }
    }
    assert_true(tried > 20);
}

/* adafactor's lr is the step itself without the relative one, and must be given then. */
static void a_rate_of_zero_is_given(void **state)
{
    (void)state;
    trial_t t;
    row_t row = {.name = "adafactor",
                 .optimizer = &tutti_adafactor,
                 .options = &plain_step,
                 .bytes = sizeof plain_step,
                 .offset = offsetof(tutti_adafactor_options_t, lr)};
    assert_int_equal(try_value(&row, 0, &t), TUTTI_ERR_ARG);
    assert_int_equal(try_value(&row, TUTTI_ZERO, &t), TUTTI_OK);
    assert_true(t.out[0] == (double)1e-4F);
}

static void rates_have_no_ratio_to_zero(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    int second;
    const tutti_sgd_options_t still = {.lr = TUTTI_ZERO}, moving = {.lr = 0.1};
    assert_int_equal(tt_test_context(NULL, &ctx), TUTTI_OK);
    assert_int_equal(tutti_optim_create(ctx, &tutti_sgd, &still, &opt), TUTTI_OK);
    assert_int_equal(tutti_optim_add_group(opt, &still, &second), TUTTI_OK);
    assert_int_equal(tutti_optim_add_group(opt, &moving, &second), TUTTI_ERR_ARG);
    tt_expect_error("sgd: group 2 has lr 0.1, group 0 has 0");
    tutti_optim_set_lr(opt, 0.5);
    assert_true(tutti_optim_lr(opt, 1) == 0.5);
    tutti_optim_release(opt);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_is_next_to_nothing_or_refused),
        cmocka_unit_test(so_it_is_of_optimizers),
        cmocka_unit_test(a_rate_of_zero_is_given),
        cmocka_unit_test(rates_have_no_ratio_to_zero),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
