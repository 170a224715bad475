/* How the cases of make_layer_golden.py are called: as golden_calls.h. */
#ifndef TT_GOLDEN_LAYERS_H
#define TT_GOLDEN_LAYERS_H

#include <math.h>

#include <tutti/modes.h>
#include <tutti/op_attention.h>
#include <tutti/op_feature.h>
#include <tutti/op_volume.h>

#include <tutti/op_shape.h>

#include "golden_windows.h"

/* ---- op_volume.h ---------------------------------------------------------------------------- */

static tutti_tensor_t *call_conv3d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv3d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_conv_transpose3d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv_transpose3d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_max_pool3d(golden_call_t *c)
{
    const tutti_pool_options_t options = pool_options(c);
    c->out[0] = tutti_max_pool3d(c->s, c->in[0], &options, &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_avg_pool3d(golden_call_t *c)
{
    const tutti_avg_pool_options_t options = avg_pool_options(c);
    return tutti_avg_pool3d(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_adaptive_max_pool3d(golden_call_t *c)
{
    c->out[0] = tutti_adaptive_max_pool3d(c->s, c->in[0], shape(c, "size").dims, &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_adaptive_avg_pool3d(golden_call_t *c)
{
    return tutti_adaptive_avg_pool3d(c->s, c->in[0], shape(c, "size").dims);
}

static tutti_lp_pool_options_t lp_pool_options(const golden_call_t *c)
{
    const tutti_shape_t kernel = shape(c, "kernel_size"), stride = shape(c, "stride");
    tutti_lp_pool_options_t o = {.p = number(c, "p"), .ceil_mode = truth(c, "ceil_mode")};
    for (int i = 0; i < 3; i++) {
        o.kernel[i] = kernel.dims[i];
        o.stride[i] = stride.dims[i];
    }
    return o;
}

static tutti_tensor_t *call_lp_pool1d(golden_call_t *c)
{
    const tutti_lp_pool_options_t options = lp_pool_options(c);
    return tutti_lp_pool1d(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_lp_pool2d(golden_call_t *c)
{
    const tutti_lp_pool_options_t options = lp_pool_options(c);
    return tutti_lp_pool2d(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_lp_pool3d(golden_call_t *c)
{
    const tutti_lp_pool_options_t options = lp_pool_options(c);
    return tutti_lp_pool3d(c->s, c->in[0], &options);
}

static tutti_max_unpool_options_t unpool_options(const golden_call_t *c)
{
    tutti_max_unpool_options_t o = {.kernel = {0}};
    memcpy(o.kernel, shape(c, "kernel_size").dims, sizeof o.kernel);
    memcpy(o.stride, shape(c, "stride").dims, sizeof o.stride);
    memcpy(o.padding, shape(c, "padding").dims, sizeof o.padding);
    memcpy(o.size, shape(c, "size").dims, sizeof o.size);
    return o;
}

static tutti_tensor_t *call_max_unpool1d(golden_call_t *c)
{
    const tutti_max_unpool_options_t options = unpool_options(c);
    return tutti_max_unpool1d(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_max_unpool2d(golden_call_t *c)
{
    const tutti_max_unpool_options_t options = unpool_options(c);
    return tutti_max_unpool2d(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_max_unpool3d(golden_call_t *c)
{
    const tutti_max_unpool_options_t options = unpool_options(c);
    return tutti_max_unpool3d(c->s, c->in[0], c->in[1], &options);
}

/* ---- op_feature.h --------------------------------------------------------------------------- */

static tutti_tensor_t *call_pixel_shuffle(golden_call_t *c)
{
    return tutti_pixel_shuffle(c->s, c->in[0], integer(c, "factor"));
}

static tutti_tensor_t *call_pixel_unshuffle(golden_call_t *c)
{
    return tutti_pixel_unshuffle(c->s, c->in[0], integer(c, "factor"));
}

static tutti_tensor_t *call_channel_shuffle(golden_call_t *c)
{
    return tutti_channel_shuffle(c->s, c->in[0], integer(c, "factor"));
}

/* 1e9 stands for infinity. */
static tutti_tensor_t *call_normalize(golden_call_t *c)
{
    const double p = number(c, "p");
    return tutti_normalize(c->s, c->in[0], p < 1e9 ? p : (double)INFINITY, (int)integer(c, "dim"),
                           1e-12);
}

static tutti_tensor_t *call_local_response_norm(golden_call_t *c)
{
    const tutti_local_response_options_t options = {.size = integer(c, "size"),
                                                    .alpha = number(c, "alpha"),
                                                    .beta = number(c, "beta"),
                                                    .k = number(c, "k")};
    return tutti_local_response_norm(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_bilinear(golden_call_t *c)
{
    return tutti_bilinear(c->s, c->in[0], c->in[1], c->in[2], c->in[3]);
}

static tutti_tensor_t *call_embedding_bag(golden_call_t *c)
{
    const char *mode = text(c, "mode");
    const tutti_embedding_bag_options_t options = {
        .mode = strcmp(mode, "sum") == 0   ? TUTTI_BAG_SUM
                : strcmp(mode, "max") == 0 ? TUTTI_BAG_MAX
                                           : TUTTI_BAG_MEAN,
        .offsets = c->in[2],
        .weights = c->in[3],
        .has_last_offset = truth(c, "last"),
        .has_padding = is_given(c, "padding"),
        .padding = integer(c, "padding"),
        .max_norm = number(c, "max_norm"),
        .norm_p = number(c, "norm_p"),
        .scale_by_frequency = truth(c, "scale_by_frequency")};
    return tutti_embedding_bag(c->s, c->in[0], c->in[1], &options);
}

static tutti_tensor_t *call_weight_norm(golden_call_t *c)
{
    return tutti_weight_norm(c->s, c->in[0], c->in[1], (int)integer(c, "dim"));
}

static tutti_tensor_t *call_spectral_norm(golden_call_t *c)
{
    const tutti_spectral_norm_options_t options = {
        .u = c->in[1], .v = c->in[2], .iterations = (int)integer(c, "iterations"), .eps = 1e-12};
    tutti_context_set_training(tutti_scope_context(c->s), truth(c, "training"));
    c->out[1] = c->in[1];
    c->out[2] = c->in[2];
    return tutti_spectral_norm(c->s, c->in[0], &options);
}

/* ---- op_attention.h ------------------------------------------------------------------------- */

static tutti_tensor_t *call_masked_attention(golden_call_t *c)
{
    const tutti_masked_attention_options_t options = {
        .mask = c->in[3], .causal = truth(c, "causal"), .scale = number(c, "scale")};
    return tutti_masked_attention(c->s, c->in[0], c->in[1], c->in[2], &options, NULL);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const golden_entry_t golden_layers[] = {
    {"conv3d", .other = call_conv3d},
    {"conv_transpose3d", .other = call_conv_transpose3d},
    {"max_pool3d", .other = call_max_pool3d},
    {"avg_pool3d", .other = call_avg_pool3d},
    {"adaptive_max_pool3d", .other = call_adaptive_max_pool3d},
    {"adaptive_avg_pool3d", .other = call_adaptive_avg_pool3d},
    {"lp_pool1d", .other = call_lp_pool1d},
    {"lp_pool2d", .other = call_lp_pool2d},
    {"lp_pool3d", .other = call_lp_pool3d},
    {"max_unpool1d", .other = call_max_unpool1d},
    {"max_unpool2d", .other = call_max_unpool2d},
    {"max_unpool3d", .other = call_max_unpool3d},
    {"pixel_shuffle", .other = call_pixel_shuffle},
    {"pixel_unshuffle", .other = call_pixel_unshuffle},
    {"channel_shuffle", .other = call_channel_shuffle},
    {"normalize", .other = call_normalize},
    {"local_response_norm", .other = call_local_response_norm},
    {"bilinear", .other = call_bilinear},
    {"embedding_bag", .other = call_embedding_bag},
    {"weight_norm", .other = call_weight_norm},
    {"spectral_norm", .other = call_spectral_norm},
    {"masked_attention", .other = call_masked_attention},
};

#endif
