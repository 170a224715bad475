/* Activations, convolutions, attention, norms, bags, and weights that are bounded. */
#include "op_speed/op_case.h"

/* ---- activations: the sizes ------------------------------------------------------------------ */

static void make_flat(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, c->count), -4, 4);
}

static void make_prelu(op_case_t *c)
{
    make_flat(c);
    op_input(c, TUTTI_SHAPE(c->n[1]), 0, 0.5);
}

static tutti_tensor_t *leaky_relu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_leaky_relu(s, c->in[0], 0.01);
}

static tutti_tensor_t *elu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_elu(s, c->in[0], 1);
}

static tutti_tensor_t *selu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_selu(s, c->in[0]);
}

static tutti_tensor_t *celu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_celu(s, c->in[0], 1);
}

static tutti_tensor_t *softplus(tutti_scope_t *s, op_case_t *c)
{
    return tutti_softplus(s, c->in[0], 1, 20);
}

static tutti_tensor_t *mish(tutti_scope_t *s, op_case_t *c)
{
    return tutti_mish(s, c->in[0]);
}

static tutti_tensor_t *hardswish(tutti_scope_t *s, op_case_t *c)
{
    return tutti_hardswish(s, c->in[0]);
}

static tutti_tensor_t *prelu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_prelu(s, c->in[0], c->in[1]);
}

static tutti_tensor_t *glu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_glu(s, c->in[0], 1);
}

static tutti_tensor_t *logsigmoid(tutti_scope_t *s, op_case_t *c)
{
    return tutti_logsigmoid(s, c->in[0]);
}

/* ---- convolutions, with bias ----------------------------------------------------------------- */

/** x, a kernel [first, second, side …] and a bias of so many channels. */
static void make_conv(op_case_t *c, int spatial, const int64_t kernel[3], int64_t channels)
{
    tutti_shape_t shape = {.rank = 2 + spatial, .dims = {kernel[0], kernel[1]}};
    for (int i = 0; i < spatial; i++) {
        shape.dims[2 + i] = kernel[2];
    }
    op_input(c, op_sizes(c, 0, 2 + spatial), -1, 1);
    op_input(c, shape, -0.1, 0.1);
    op_input(c, TUTTI_SHAPE(channels), -1, 1);
}

/** As many zeros as keep the size at a stride of 1, of an odd window. */
static int64_t around(int64_t window, int64_t dilation)
{
    return dilation * (window - 1) / 2;
}

static void make_conv1d(op_case_t *c)
{
    make_conv(c, 1, (int64_t[]){c->n[3], c->n[1] / c->n[7], c->n[4]}, c->n[3]);
}

static tutti_tensor_t *conv1d(tutti_scope_t *s, op_case_t *c)
{
    const tutti_conv_options_t options = {.stride = {c->n[5]},
                                          .padding = {around(c->n[4], c->n[6])},
                                          .dilation = {c->n[6]},
                                          .groups = c->n[7]};
    return tutti_conv1d(s, c->in[0], c->in[1], c->in[2], &options);
}

static void make_conv3d(op_case_t *c)
{
    make_conv(c, 3, (int64_t[]){c->n[5], c->n[1], c->n[6]}, c->n[5]);
}

static tutti_tensor_t *conv3d(tutti_scope_t *s, op_case_t *c)
{
    const int64_t stride = c->n[7], padding = around(c->n[6], 1);
    const tutti_conv_options_t options = {.stride = {stride, stride, stride},
                                          .padding = {padding, padding, padding}};
    return tutti_conv3d(s, c->in[0], c->in[1], c->in[2], &options);
}

static void make_transposed(op_case_t *c)
{
    make_conv(c, 2, (int64_t[]){c->n[1], c->n[4], c->n[5]}, c->n[4]);
}

static tutti_tensor_t *conv_transpose2d(tutti_scope_t *s, op_case_t *c)
{
    const tutti_conv_options_t options = {.stride = {c->n[6], c->n[6]},
                                          .padding = {c->n[7], c->n[7]}};
    return tutti_conv_transpose2d(s, c->in[0], c->in[1], c->in[2], &options);
}

static void make_grouped(op_case_t *c)
{
    make_conv(c, 2, (int64_t[]){c->n[4], c->n[1] / c->n[7], c->n[5]}, c->n[4]);
}

static tutti_tensor_t *conv_grouped(tutti_scope_t *s, op_case_t *c)
{
    const int64_t padding = around(c->n[5], 1);
    const tutti_conv_options_t options = {
        .stride = {c->n[6], c->n[6]}, .padding = {padding, padding}, .groups = c->n[7]};
    return tutti_conv2d(s, c->in[0], c->in[1], c->in[2], &options);
}

static void make_dilated(op_case_t *c)
{
    make_conv(c, 2, (int64_t[]){c->n[4], c->n[1], c->n[5]}, c->n[4]);
}

static tutti_tensor_t *conv_dilated(tutti_scope_t *s, op_case_t *c)
{
    const int64_t dilation = c->n[6], padding = around(c->n[5], dilation);
    const tutti_conv_options_t options = {.padding = {padding, padding},
                                          .dilation = {dilation, dilation}};
    return tutti_conv2d(s, c->in[0], c->in[1], c->in[2], &options);
}

/* ---- attention: sequences, steps … ----------------------------------------------------------- */

static void make_attention(op_case_t *c)
{
    const tutti_multihead_attention_options_t options = {
        .width = c->n[2], .heads = c->n[3], .batch_first = true};
    op_input(c, op_sizes(c, 0, 3), -1, 1);
    op_module(c, &tutti_multihead_attention_layer, &options);
}

static tutti_transformer_options_t block_options(const op_case_t *c)
{
    return (tutti_transformer_options_t){
        .width = c->n[3], .heads = c->n[4], .hidden = c->n[5], .batch_first = true};
}

static void make_encoder_block(op_case_t *c)
{
    const tutti_transformer_options_t options = block_options(c);
    op_input(c, TUTTI_SHAPE(c->n[0], c->n[1], c->n[3]), -1, 1);
    op_module(c, &tutti_encoder_block_layer, &options);
}

static void make_decoder_block(op_case_t *c)
{
    const tutti_transformer_options_t options = block_options(c);
    op_input(c, TUTTI_SHAPE(c->n[0], c->n[1], c->n[3]), -1, 1);
    op_input(c, TUTTI_SHAPE(c->n[0], c->n[2], c->n[3]), -1, 1);
    op_module(c, &tutti_decoder_block_layer, &options);
}

static tutti_tensor_t *module_forward(tutti_scope_t *s, op_case_t *c)
{
    tutti_tensor_t *y = NULL;
    tutti_forward_many(s, c->module, c->in, c->inputs, &y, 1);
    return y;
}

/* ---- norms ----------------------------------------------------------------------------------- */

static void make_rms_norm(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_input(c, op_sizes(c, 1, 1), -1, 1);
}

static tutti_tensor_t *rms_norm(tutti_scope_t *s, op_case_t *c)
{
    return tutti_rms_norm(s, c->in[0], c->in[1], 1e-6);
}

static void make_group_norm(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 4), -2, 2);
    op_input(c, op_sizes(c, 1, 1), -1, 1);
    op_input(c, op_sizes(c, 1, 1), -1, 1);
}

static tutti_tensor_t *group_norm(tutti_scope_t *s, op_case_t *c)
{
    return tutti_group_norm(s, c->in[0], c->n[4], c->in[1], c->in[2], 1e-5);
}

static void make_instance_norm(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 4), -2, 2);
}

static tutti_tensor_t *instance_norm(tutti_scope_t *s, op_case_t *c)
{
    return tutti_group_norm(s, c->in[0], c->n[1], NULL, NULL, 1e-5);
}

/* ---- bags and bounded weights ---------------------------------------------------------------- */

static void make_bags(op_case_t *c)
{
    op_indices(c, op_sizes(c, 0, 2), c->n[2]);
    op_input(c, op_sizes(c, 2, 2), -1, 1);
}

static tutti_tensor_t *embedding_bag(tutti_scope_t *s, op_case_t *c)
{
    const tutti_bag_mode_t modes[] = {TUTTI_BAG_MEAN, TUTTI_BAG_SUM, TUTTI_BAG_MAX};
    const tutti_embedding_bag_options_t options = {.mode = modes[c->n[4]]};
    return tutti_embedding_bag(s, c->in[0], c->in[1], &options);
}

static tutti_shape_t lengths_of(const op_case_t *c)
{
    tutti_shape_t shape = op_sizes(c, 0, c->count);
    for (int i = 1; i < shape.rank; i++) {
        shape.dims[i] = 1;
    }
    return shape;
}

static void make_weight_norm(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, c->count), -1, 1);
    op_input(c, lengths_of(c), 0.5, 1);
}

static tutti_tensor_t *weight_norm(tutti_scope_t *s, op_case_t *c)
{
    return tutti_weight_norm(s, c->in[0], c->in[1], 0);
}

static void make_spectral_norm(op_case_t *c)
{
    const tutti_shape_t shape = op_sizes(c, 0, c->count);
    op_input(c, shape, -1, 1);
    op_constant(c, TUTTI_SHAPE(c->n[0]), -1, 1);
    op_constant(c, TUTTI_SHAPE(tutti_shape_numel(shape) / c->n[0]), -1, 1);
}

static tutti_tensor_t *spectral_norm(tutti_scope_t *s, op_case_t *c)
{
    const tutti_spectral_norm_options_t options = {.u = c->in[1], .v = c->in[2], .eps = 1e-12};
    return tutti_spectral_norm(s, c->in[0], &options);
}

const op_t op_layers[] = {
    {"leaky_relu", make_flat, leaky_relu},
    {"elu", make_flat, elu},
    {"selu", make_flat, selu},
    {"celu", make_flat, celu},
    {"softplus", make_flat, softplus},
    {"mish", make_flat, mish},
    {"hardswish", make_flat, hardswish},
    {"prelu", make_prelu, prelu},
    {"glu", make_flat, glu},
    {"logsigmoid", make_flat, logsigmoid},
    {"conv1d", make_conv1d, conv1d},
    {"conv3d", make_conv3d, conv3d},
    {"conv_transpose2d", make_transposed, conv_transpose2d},
    {"conv_grouped", make_grouped, conv_grouped},
    {"conv_dilated", make_dilated, conv_dilated},
    {"multihead_attention", make_attention, module_forward},
    {"encoder_block", make_encoder_block, module_forward},
    {"decoder_block", make_decoder_block, module_forward},
    {"rms_norm", make_rms_norm, rms_norm},
    {"group_norm", make_group_norm, group_norm},
    {"instance_norm", make_instance_norm, instance_norm},
    {"embedding_bag", make_bags, embedding_bag},
    {"weight_norm", make_weight_norm, weight_norm},
    {"spectral_norm", make_spectral_norm, spectral_norm},
    {NULL, NULL, NULL},
};
