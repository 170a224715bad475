/* Calls of what moves a window over lines and planes: convolutions and pooling; of sampling. */
#ifndef TT_GOLDEN_WINDOWS_H
#define TT_GOLDEN_WINDOWS_H

#include <tutti/op_conv.h>
#include <tutti/op_sample.h>

#include "golden_args.h"

static tutti_conv_options_t conv_options(const golden_call_t *c)
{
    tutti_conv_options_t o = {.groups = integer(c, "groups"), .same = integer(c, "same") == 1};
    sizes(c, "stride", o.stride);
    sizes(c, "padding", o.padding);
    sizes(c, "dilation", o.dilation);
    sizes(c, "output_padding", o.output_padding);
    return o;
}

static tutti_tensor_t *call_conv1d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv1d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_conv2d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv2d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_conv_transpose1d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv_transpose1d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_tensor_t *call_conv_transpose2d(golden_call_t *c)
{
    const tutti_conv_options_t options = conv_options(c);
    return tutti_conv_transpose2d(c->s, c->in[0], c->in[1], c->in[2], &options);
}

static tutti_pool_options_t pool_options(const golden_call_t *c)
{
    tutti_pool_options_t o = {.ceil_mode = truth(c, "ceil_mode")};
    const tutti_shape_t kernel = shape(c, "kernel_size"), stride = shape(c, "stride"),
                        padding = shape(c, "padding"), dilation = shape(c, "dilation");
    for (int i = 0; i < 3; i++) {
        o.kernel[i] = kernel.dims[i];
        o.stride[i] = stride.dims[i];
        o.padding[i] = padding.dims[i];
        o.dilation[i] = dilation.dims[i];
    }
    return o;
}

static tutti_tensor_t *call_max_pool1d(golden_call_t *c)
{
    const tutti_pool_options_t options = pool_options(c);
    c->out[0] = tutti_max_pool1d(c->s, c->in[0], &options, &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_max_pool2d(golden_call_t *c)
{
    const tutti_pool_options_t options = pool_options(c);
    c->out[0] = tutti_max_pool2d(c->s, c->in[0], &options, &c->out[1]);
    return NULL;
}

static tutti_avg_pool_options_t avg_pool_options(const golden_call_t *c)
{
    tutti_avg_pool_options_t o = {.ceil_mode = truth(c, "ceil_mode"),
                                  .excludes_padding = !truth(c, "count_include_pad"),
                                  .divisor = integer(c, "divisor_override")};
    const tutti_shape_t kernel = shape(c, "kernel_size"), stride = shape(c, "stride"),
                        padding = shape(c, "padding");
    for (int i = 0; i < 3; i++) {
        o.kernel[i] = kernel.dims[i];
        o.stride[i] = stride.dims[i];
        o.padding[i] = padding.dims[i];
    }
    return o;
}

static tutti_tensor_t *call_avg_pool1d(golden_call_t *c)
{
    const tutti_avg_pool_options_t options = avg_pool_options(c);
    return tutti_avg_pool1d(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_avg_pool2d(golden_call_t *c)
{
    const tutti_avg_pool_options_t options = avg_pool_options(c);
    return tutti_avg_pool2d(c->s, c->in[0], &options);
}

static tutti_tensor_t *call_adaptive_max_pool1d(golden_call_t *c)
{
    c->out[0] = tutti_adaptive_max_pool1d(c->s, c->in[0], shape(c, "size").dims[0], &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_adaptive_max_pool2d(golden_call_t *c)
{
    const tutti_shape_t size = shape(c, "size");
    c->out[0] = tutti_adaptive_max_pool2d(c->s, c->in[0], size.dims[0], size.dims[1], &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_adaptive_avg_pool1d(golden_call_t *c)
{
    return tutti_adaptive_avg_pool1d(c->s, c->in[0], shape(c, "size").dims[0]);
}

static tutti_tensor_t *call_adaptive_avg_pool2d(golden_call_t *c)
{
    const tutti_shape_t size = shape(c, "size");
    return tutti_adaptive_avg_pool2d(c->s, c->in[0], size.dims[0], size.dims[1]);
}

static tutti_interpolate_mode_t interpolate_mode(const char *name)
{
    return strcmp(name, "nearest") == 0         ? TUTTI_INTERPOLATE_NEAREST
           : strcmp(name, "nearest-exact") == 0 ? TUTTI_INTERPOLATE_NEAREST_EXACT
           : strcmp(name, "bicubic") == 0       ? TUTTI_INTERPOLATE_CUBIC
           : strcmp(name, "area") == 0          ? TUTTI_INTERPOLATE_AREA
           : strcmp(name, "lanczos") == 0       ? TUTTI_INTERPOLATE_LANCZOS
                                                : TUTTI_INTERPOLATE_LINEAR;
}

static tutti_tensor_t *call_interpolate(golden_call_t *c)
{
    const json_t *scale = json_object_get(c->args, "scale");
    const tutti_shape_t size = shape(c, "size");
    tutti_interpolate_options_t o = {.mode = interpolate_mode(text(c, "mode")),
                                     .align_corners = truth(c, "align_corners"),
                                     .antialias = truth(c, "antialias")};
    for (int i = 0; i < 3; i++) {
        o.size[i] = size.dims[i];
        o.scale[i] = json_number_value(json_array_get(scale, (size_t)i));
    }
    return tutti_interpolate(c->s, c->in[0], &o);
}

static tutti_tensor_t *call_grid_sample(golden_call_t *c)
{
    const char *mode = text(c, "mode"), *padding = text(c, "padding");
    const tutti_grid_sample_options_t o = {
        .mode = strcmp(mode, "nearest") == 0   ? TUTTI_GRID_NEAREST
                : strcmp(mode, "bicubic") == 0 ? TUTTI_GRID_BICUBIC
                                               : TUTTI_GRID_BILINEAR,
        .padding = strcmp(padding, "border") == 0       ? TUTTI_GRID_BORDER
                   : strcmp(padding, "reflection") == 0 ? TUTTI_GRID_REFLECTION
                                                        : TUTTI_GRID_ZEROS,
        .align_corners = truth(c, "align_corners")};
    return tutti_grid_sample(c->s, c->in[0], c->in[1], &o);
}

static tutti_tensor_t *call_affine_grid(golden_call_t *c)
{
    return tutti_affine_grid(c->s, c->in[0], shape(c, "size"), truth(c, "align_corners"));
}

#endif
