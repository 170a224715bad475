/* Cases of norms over channels (op_nn.h). Their references are golden values. */
#include <tutti/modes.h>
#include <tutti/op_nn.h>

#include "op_cases.h"

static tutti_batch_norm_options_t running(tutti_scope_t *s, const tutti_tensor_t *x)
{
    const tutti_shape_t shape = TUTTI_SHAPE(tutti_tensor_shape(x).dims[1]);
    return (tutti_batch_norm_options_t){.running_mean = tutti_full(s, TUTTI_F32, shape, 0.25),
                                        .running_var =
                                            tutti_full(s, tutti_tensor_dtype(x), shape, 2),
                                        .momentum = 0.5};
}

static void call_batch_norm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_batch_norm_options_t options = running(s, in[0]);
    out[0] = tutti_batch_norm(s, in[0], in[1], in[2], &options);
    out[1] = options.running_mean;
    out[2] = options.running_var;
}

static void call_batch_norm_plain(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_batch_norm(s, in[0], in[1], in[2], NULL);
}

static void call_batch_norm_residual(tutti_scope_t *s, tutti_tensor_t *const *in,
                                     tutti_tensor_t **out)
{
    const tutti_batch_norm_options_t options = {.residual = in[3]};
    out[0] = tutti_batch_norm(s, in[0], in[1], in[2], &options);
}

static void call_batch_norm_relu(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_batch_norm_options_t options = {.residual = in[3], .relu = true};
    out[0] = tutti_batch_norm(s, in[0], in[1], in[2], &options);
}

static void call_batch_norm_evaluation(tutti_scope_t *s, tutti_tensor_t *const *in,
                                       tutti_tensor_t **out)
{
    const tutti_batch_norm_options_t options = running(s, in[0]);
    tutti_context_set_training(tutti_scope_context(s), false);
    out[0] = tutti_batch_norm(s, in[0], in[1], in[2], &options);
    tutti_context_set_training(tutti_scope_context(s), true);
}

static void call_group_norm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_group_norm(s, in[0], 2, in[1], in[2], 0);
}

#define CASE(name, about) .op = name, .what = about
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }
#define MISSING                                                                                    \
    {                                                                                              \
        .is_missing = true                                                                         \
    }

const op_case_t op_cases_channel[] = {
    {CASE("batch_norm", "planes"), .input_count = 3, .inputs = {X(2, 2, 3, 6), X(2), X(2)},
     .output_count = 3, .call = call_batch_norm},
    {CASE("batch_norm", "columns"), .input_count = 3, .inputs = {X(5, 3), X(3), X(3)},
     .output_count = 3, .call = call_batch_norm},
    {CASE("batch_norm", "plain"), .input_count = 3, .inputs = {X(3, 2, 4), MISSING, MISSING},
     .call = call_batch_norm_plain},
    {CASE("batch_norm", "evaluation"), .input_count = 3, .inputs = {X(2, 2, 3), X(2), X(2)},
     .call = call_batch_norm_evaluation},
    {CASE("batch_norm", "residual"), .input_count = 4,
     .inputs = {X(2, 2, 3, 6), X(2), X(2), X(2, 2, 3, 6)}, .call = call_batch_norm_residual},
    {CASE("batch_norm", "residual and relu"), .input_count = 4,
     .inputs = {X(2, 2, 3, 6), X(2), X(2), X(2, 2, 3, 6)}, .call = call_batch_norm_relu},
    {CASE("batch_norm", "columns with relu"), .input_count = 4,
     .inputs = {X(5, 3), X(3), X(3), MISSING}, .call = call_batch_norm_relu},
    {CASE("batch_norm", "empty, with relu"), .input_count = 4,
     .inputs = {X(0, 2, 3), X(2), X(2), X(0, 2, 3)}, .call = call_batch_norm_relu},
    {CASE("batch_norm", "empty"), .input_count = 3, .inputs = {X(0, 2, 3), X(2), X(2)},
     .output_count = 3, .call = call_batch_norm},
    {CASE("batch_norm", "no channels"), .input_count = 3, .inputs = {X(3, 0), X(0), X(0)},
     .call = call_batch_norm_evaluation},
    {CASE("group_norm", ""), .input_count = 3, .inputs = {X(2, 4, 3), X(4), X(4)},
     .call = call_group_norm},
    {CASE("group_norm", "without weight and bias"), .input_count = 3,
     .inputs = {X(2, 4, 2, 2), MISSING, MISSING}, .call = call_group_norm},
    {CASE("group_norm", "empty"), .input_count = 3, .inputs = {X(0, 4, 3), X(4), X(4)},
     .call = call_group_norm},
    {CASE("group_norm", "no positions"), .input_count = 3, .inputs = {X(2, 4, 0), X(4), X(4)},
     .call = call_group_norm},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, tutti_shape_t shape)
{
    return tutti_ones(s, TUTTI_F32, shape);
}

static void batch_norm_of_one_value(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(1, 3)), NULL, NULL, NULL);
}

static void batch_norm_of_a_vector(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(3)), NULL, NULL, NULL);
}

static void batch_norm_of_other_channels(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(4, 3)), f32(s, TUTTI_SHAPE(4)), NULL, NULL);
}

static void batch_norm_of_half_the_statistics(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(4, 3)), NULL, NULL,
                           &(tutti_batch_norm_options_t){.running_mean = f32(s, TUTTI_SHAPE(3))});
}

static void batch_norm_of_too_much_momentum(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(4, 3)), NULL, NULL,
                           &(tutti_batch_norm_options_t){.momentum = 2});
}

static void batch_norm_with_a_residual_of_one_sample(tutti_scope_t *s)
{
    (void)tutti_batch_norm(s, f32(s, TUTTI_SHAPE(4, 3)), NULL, NULL,
                           &(tutti_batch_norm_options_t){.residual = f32(s, TUTTI_SHAPE(1, 3))});
}

static void batch_norm_with_a_wide_residual(tutti_scope_t *s)
{
    (void)tutti_batch_norm(
        s, f32(s, TUTTI_SHAPE(4, 3)), NULL, NULL,
        &(tutti_batch_norm_options_t){.residual = tutti_ones(s, TUTTI_F64, TUTTI_SHAPE(4, 3))});
}

static void group_norm_of_indivisible_channels(tutti_scope_t *s)
{
    (void)tutti_group_norm(s, f32(s, TUTTI_SHAPE(4, 3)), 2, NULL, NULL, 0);
}

const op_error_t op_errors_channel[] = {
    {"batch_norm", batch_norm_of_one_value,
     "batch_norm: one value has no variance: a channel needs more than one value while training: "
     "f32[1, 3], none, none, none, none and none"},
    {"batch_norm", batch_norm_of_a_vector,
     "batch_norm: x must be [N, C, ...]: f32[3], none, none, none, none and none"},
    {"batch_norm", batch_norm_of_other_channels,
     "batch_norm: weight, bias and running statistics must be [C], one number for each of the 3 "
     "channels of x [N, C, ...]: f32[4, 3], f32[4], none, none, none and none"},
    {"batch_norm", batch_norm_of_half_the_statistics,
     "batch_norm: give both running_mean and running_var or neither: f32[4, 3], none, none, "
     "f32[3], none and none"},
    {"batch_norm", batch_norm_of_too_much_momentum,
     "batch_norm: momentum must be from 0 to 1, not 2: f32[4, 3], none, none, none, none and none"},
    {"batch_norm", batch_norm_with_a_residual_of_one_sample,
     "batch_norm: the residual must be of the shape of x: f32[4, 3], none, none, none, none and "
     "f32[1, 3]"},
    {"batch_norm", batch_norm_with_a_wide_residual,
     "batch_norm: the residual must be of the dtype of x: f32[4, 3], none, none, none, none and "
     "f64[4, 3]"},
    {"group_norm", group_norm_of_indivisible_channels,
     "group_norm: 2 groups do not divide 3 channels: f32[4, 3], none and none"},
};

OP_CASE_LISTS(channel);
