/* How the cases of make_layer_golden.py are called: as golden_calls.h. */
#ifndef TT_GOLDEN_LAYERS_H
#define TT_GOLDEN_LAYERS_H

#include <tutti/op_volume.h>

#include "golden_windows.h"

/* ---- op_volume.h ---------------------------------------------------------------------------- */

/* Numbers of each dimension, or one for all. */
static void sizes(const golden_call_t *c, const char *name, int64_t to[3])
{
    const tutti_shape_t list = shape(c, name);
    for (int i = 0; i < 3; i++) {
        to[i] = list.rank > 0 ? list.dims[i] : integer(c, name);
    }
}

static tutti_conv_options_t volume_options(const golden_call_t *c)
{
    tutti_conv_options_t o = {.groups = integer(c, "groups"), .same = integer(c, "same") == 1};
    sizes(c, "stride", o.stride);
    sizes(c, "padding", o.padding);
    sizes(c, "dilation", o.dilation);
    sizes(c, "output_padding", o.output_padding);
    return o;
}

static tutti_tensor_t *call_conv3d(golden_call_t *c)
{
    const tutti_conv_options_t options = volume_options(c);
    return tutti_conv3d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_conv_transpose3d(golden_call_t *c)
{
    const tutti_conv_options_t options = volume_options(c);
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
};

#endif
