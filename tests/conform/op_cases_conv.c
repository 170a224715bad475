/* Cases of convolutions (op_conv.h). Their references are golden values. */
#include <tutti/op_conv.h>
#include <tutti/op_volume.h>

#include "op_cases.h"

static const tutti_conv_options_t dense = {.padding = {1, 2}};
static const tutti_conv_options_t sparse = {
    .stride = {2, 1}, .padding = {1, 1}, .output_padding = {1, 0}, .dilation = {1, 2}, .groups = 2};

static void call_conv1d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv1d(s, in[0], in[1], in[2], NULL);
}

static void call_conv1d_sparse(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv1d(s, in[0], in[1], in[2], &sparse);
}

static void call_conv2d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv2d(s, in[0], in[1], in[2], &dense);
}

static void call_conv2d_same(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv2d(s, in[0], in[1], in[2],
                          &(tutti_conv_options_t){.same = true, .dilation = {1, 3}});
}

static void call_conv2d_sparse(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv2d(s, in[0], in[1], in[2], &sparse);
}

static void call_conv_transpose1d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv_transpose1d(s, in[0], in[1], in[2], &sparse);
}

static void call_conv_transpose2d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv_transpose2d(s, in[0], in[1], in[2], &sparse);
}

static const tutti_conv_options_t deep = {.stride = {2, 1, 1}, .padding = {2, 1, 0}};
static const tutti_conv_options_t deep_sparse = {.stride = {1, 2, 1},
                                                 .padding = {1, 1, 0},
                                                 .output_padding = {1, 1, 0},
                                                 .dilation = {2, 1, 1},
                                                 .groups = 2};

static void call_conv3d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv3d(s, in[0], in[1], in[2], &deep);
}

static void call_conv3d_sparse(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv3d(s, in[0], in[1], in[2], &deep_sparse);
}

static void call_conv3d_same(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv3d(s, in[0], in[1], in[2], &(tutti_conv_options_t){.same = true});
}

static void call_conv_transpose3d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_conv_transpose3d(s, in[0], in[1], in[2], &deep);
}

static void call_conv_transpose3d_bare(tutti_scope_t *s, tutti_tensor_t *const *in,
                                       tutti_tensor_t **out)
{
    out[0] = tutti_conv_transpose3d(s, in[0], in[1], in[2],
                                    &(tutti_conv_options_t){.stride = {3, 1, 1}});
}

static void call_conv_transpose3d_sparse(tutti_scope_t *s, tutti_tensor_t *const *in,
                                         tutti_tensor_t **out)
{
    out[0] = tutti_conv_transpose3d(s, in[0], in[1], in[2], &deep_sparse);
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

const op_case_t op_cases_conv[] = {
    {CASE("conv1d", ""), .input_count = 3, .inputs = {X(2, 3, 7), X(4, 3, 3), X(4)},
     .call = call_conv1d},
    {CASE("conv1d", "groups, one line"), .input_count = 3, .inputs = {X(4, 9), X(4, 2, 3), MISSING},
     .call = call_conv1d_sparse},
    {CASE("conv1d", "empty"), .input_count = 3, .inputs = {X(0, 3, 7), X(4, 3, 3), X(4)},
     .call = call_conv1d},
    {CASE("conv2d", "padding"), .input_count = 3, .inputs = {X(2, 3, 4, 3), X(4, 3, 3, 2), X(4)},
     .call = call_conv2d},
    {CASE("conv2d", "stride, dilation, groups"), .input_count = 3,
     .inputs = {X(2, 4, 5, 6), X(2, 2, 3, 2), X(2)}, .call = call_conv2d_sparse},
    {CASE("conv2d", "same, odd and even kernels"), .input_count = 3,
     .inputs = {X(2, 3, 4, 5), X(2, 3, 3, 2), X(2)}, .call = call_conv2d_same},
    {CASE("conv2d", "one image"), .input_count = 3, .inputs = {X(2, 3, 4), X(3, 2, 3, 3), MISSING},
     .call = call_conv2d},
    {CASE("conv2d", "empty"), .input_count = 3, .inputs = {X(0, 3, 4, 3), X(4, 3, 3, 2), X(4)},
     .call = call_conv2d},
    {CASE("conv_transpose1d", ""), .input_count = 3, .inputs = {X(2, 4, 5), X(4, 2, 3), X(4)},
     .call = call_conv_transpose1d},
    {CASE("conv_transpose1d", "empty"), .input_count = 3, .inputs = {X(0, 4, 5), X(4, 2, 3), X(4)},
     .call = call_conv_transpose1d},
    {CASE("conv_transpose2d", ""), .input_count = 3, .inputs = {X(2, 4, 3, 4), X(4, 1, 3, 2), X(2)},
     .call = call_conv_transpose2d},
    {CASE("conv_transpose2d", "empty"), .input_count = 3,
     .inputs = {X(0, 4, 3, 4), X(4, 1, 3, 2), MISSING}, .call = call_conv_transpose2d},
    {CASE("conv3d", "stride and padding of depth"), .input_count = 3,
     .inputs = {X(2, 2, 4, 3, 3), X(3, 2, 3, 2, 2), X(3)}, .call = call_conv3d},
    {CASE("conv3d", "dilation, groups, one volume"), .input_count = 3,
     .inputs = {X(4, 4, 3, 3), X(2, 2, 2, 3, 2), MISSING}, .call = call_conv3d_sparse},
    {CASE("conv3d", "same, odd and even kernels"), .input_count = 3,
     .inputs = {X(1, 2, 4, 3, 3), X(2, 2, 2, 3, 2), X(2)}, .call = call_conv3d_same},
    {CASE("conv3d", "empty"), .input_count = 3,
     .inputs = {X(0, 2, 4, 3, 3), X(3, 2, 3, 2, 2), X(3)}, .call = call_conv3d},
    {CASE("conv_transpose3d", "planes that nothing reaches"), .input_count = 3,
     .inputs = {X(2, 2, 3, 2, 3), X(2, 3, 1, 3, 2), X(3)}, .call = call_conv_transpose3d_bare},
    {CASE("conv_transpose3d", ""), .input_count = 3,
     .inputs = {X(2, 2, 4, 3, 3), X(2, 3, 3, 2, 2), X(3)}, .call = call_conv_transpose3d},
    {CASE("conv_transpose3d", "dilation, groups"), .input_count = 3,
     .inputs = {X(1, 4, 3, 2, 3), X(4, 1, 2, 3, 2), MISSING}, .call = call_conv_transpose3d_sparse},
    {CASE("conv_transpose3d", "empty"), .input_count = 3,
     .inputs = {X(0, 2, 4, 3, 3), X(2, 3, 3, 2, 2), X(3)}, .call = call_conv_transpose3d},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, tutti_shape_t shape)
{
    return tutti_ones(s, TUTTI_F32, shape);
}

static void conv2d_of_a_line(tutti_scope_t *s)
{
    (void)tutti_conv2d(s, f32(s, TUTTI_SHAPE(3, 5)), f32(s, TUTTI_SHAPE(1, 3, 3, 3)), NULL, NULL);
}

static void conv2d_of_other_channels(tutti_scope_t *s)
{
    (void)tutti_conv2d(s, f32(s, TUTTI_SHAPE(2, 4, 5, 5)), f32(s, TUTTI_SHAPE(1, 3, 3, 3)), NULL,
                       NULL);
}

static void conv3d_of_a_plane(tutti_scope_t *s)
{
    (void)tutti_conv3d(s, f32(s, TUTTI_SHAPE(3, 5, 5)), f32(s, TUTTI_SHAPE(1, 3, 3, 3, 3)), NULL,
                       NULL);
}

static void conv3d_with_too_deep_a_kernel(tutti_scope_t *s)
{
    (void)tutti_conv3d(s, f32(s, TUTTI_SHAPE(3, 2, 5, 5)), f32(s, TUTTI_SHAPE(1, 3, 3, 3, 3)), NULL,
                       NULL);
}

static void conv1d_with_too_large_a_kernel(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(2, 3, 5)), NULL, NULL);
}

static void conv1d_with_a_negative_stride(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(2, 3, 3)), NULL,
                       &(tutti_conv_options_t){.stride = {-1}});
}

static void conv1d_with_indivisible_groups(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 4, 4)), f32(s, TUTTI_SHAPE(3, 2, 3)), NULL,
                       &(tutti_conv_options_t){.groups = 2});
}

static void conv1d_with_a_dilation_beyond_all_numbers(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(2, 3, 3)), NULL,
                       &(tutti_conv_options_t){.dilation = {INT64_MAX}});
}

static void conv1d_with_a_stride_beyond_all_numbers(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(2, 3, 3)), NULL,
                       &(tutti_conv_options_t){.stride = {INT64_MAX}});
}

static void conv1d_with_groups_beyond_all_numbers(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(1, 4, 4)), f32(s, TUTTI_SHAPE(3, 2, 3)), NULL,
                       &(tutti_conv_options_t){.groups = INT64_MAX});
}

static void conv_transpose1d_with_a_stride_beyond_all_numbers(tutti_scope_t *s)
{
    (void)tutti_conv_transpose1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(3, 2, 3)),
                                 NULL, &(tutti_conv_options_t){.stride = {INT64_MAX}});
}

static void conv2d_with_another_bias(tutti_scope_t *s)
{
    (void)tutti_conv2d(s, f32(s, TUTTI_SHAPE(2, 3, 5, 5)), f32(s, TUTTI_SHAPE(4, 3, 3, 3)),
                       f32(s, TUTTI_SHAPE(3)), NULL);
}

static void conv_transpose1d_with_too_much_output_padding(tutti_scope_t *s)
{
    (void)tutti_conv_transpose1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), f32(s, TUTTI_SHAPE(3, 2, 3)),
                                 NULL, &(tutti_conv_options_t){.output_padding = {1}});
}

static void conv2d_of_the_same_size_with_a_stride(tutti_scope_t *s)
{
    (void)tutti_conv2d(s, f32(s, TUTTI_SHAPE(3, 5, 5)), f32(s, TUTTI_SHAPE(1, 3, 3, 3)), NULL,
                       &(tutti_conv_options_t){.same = true, .stride = {1, 2}});
}

static void conv1d_of_the_same_size_with_padding(tutti_scope_t *s)
{
    (void)tutti_conv1d(s, f32(s, TUTTI_SHAPE(3, 5)), f32(s, TUTTI_SHAPE(1, 3, 3)), NULL,
                       &(tutti_conv_options_t){.same = true, .padding = {1}});
}

static void conv_transpose1d_of_the_same_size(tutti_scope_t *s)
{
    (void)tutti_conv_transpose1d(s, f32(s, TUTTI_SHAPE(3, 5)), f32(s, TUTTI_SHAPE(3, 1, 3)), NULL,
                                 &(tutti_conv_options_t){.same = true});
}

const op_error_t op_errors_conv[] = {
    {"conv3d", conv3d_of_a_plane,
     "conv3d: x must be [N, C, D, H, W] or [C, D, H, W]: f32[3, 5, 5], f32[1, 3, 3, 3, 3] and "
     "none"},
    {"conv3d", conv3d_with_too_deep_a_kernel,
     "conv3d: the kernel does not fit: size 2, kernel 3, padding 0: f32[3, 2, 5, 5], f32[1, 3, 3, "
     "3, 3] and none"},
    {"conv2d", conv2d_of_the_same_size_with_a_stride,
     "conv2d: same padding is for a stride of 1 and no other padding, not for 2 and 0: f32[3, 5, "
     "5], f32[1, 3, 3, 3] and none"},
    {"conv1d", conv1d_of_the_same_size_with_padding,
     "conv1d: same padding is for a stride of 1 and no other padding, not for 1 and 1: f32[3, 5], "
     "f32[1, 3, 3] and none"},
    {"conv_transpose1d", conv_transpose1d_of_the_same_size,
     "conv_transpose1d: there is no same padding of transposed ones: f32[3, 5], f32[3, 1, 3] and "
     "none"},
    {"conv2d", conv2d_of_a_line,
     "conv2d: x must be [N, C, H, W] or [C, H, W]: f32[3, 5], f32[1, 3, 3, 3] and none"},
    {"conv2d", conv2d_of_other_channels,
     "conv2d: x has 4 channels, weight is for 3: f32[2, 4, 5, 5], f32[1, 3, 3, 3] and none"},
    {"conv1d", conv1d_with_too_large_a_kernel,
     "conv1d: the kernel does not fit: size 4, kernel 5, padding 0: f32[1, 3, 4], f32[2, 3, 5] and "
     "none"},
    {"conv1d", conv1d_with_a_negative_stride,
     "conv1d: stride -1, dilation 1 and groups 1 must be positive, padding 0 not negative: f32[1, "
     "3, 4], f32[2, 3, 3] and none"},
    {"conv1d", conv1d_with_indivisible_groups,
     "conv1d: 2 groups do not divide the 3 of weight: f32[1, 4, 4], f32[3, 2, 3] and none"},
    {"conv1d", conv1d_with_a_dilation_beyond_all_numbers,
     "conv1d: stride 1, dilation 9223372036854775807 or padding 0 is too large: f32[1, 3, 4], "
     "f32[2, 3, 3] and none"},
    {"conv1d", conv1d_with_a_stride_beyond_all_numbers,
     "conv1d: stride 9223372036854775807, dilation 1 or padding 0 is too large: f32[1, 3, 4], "
     "f32[2, 3, 3] and none"},
    {"conv1d", conv1d_with_groups_beyond_all_numbers,
     "conv1d: 9223372036854775807 groups do not divide the 3 of weight: f32[1, 4, 4], f32[3, 2, 3] "
     "and none"},
    {"conv_transpose1d", conv_transpose1d_with_a_stride_beyond_all_numbers,
     "conv_transpose1d: stride 9223372036854775807, dilation 1 or padding 0 is too large: f32[1, "
     "3, "
     "4], f32[3, 2, 3] and none"},
    {"conv2d", conv2d_with_another_bias,
     "conv2d: bias must be [4], one number for each channel: f32[2, 3, 5, 5], f32[4, 3, 3, 3] and "
     "f32[3]"},
    {"conv_transpose1d", conv_transpose1d_with_too_much_output_padding,
     "conv_transpose1d: output_padding 1 must be below the stride 1 or the dilation 1: f32[1, 3, "
     "4], f32[3, 2, 3] and none"},
};

OP_CASE_LISTS(conv);
