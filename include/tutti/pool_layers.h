/**
 * @file pool_layers.h
 * Pooling, upsampling and reshaping layers, without parameters.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_max_pool2d_layer,
 *         &(tutti_pool_options_t){.kernel = {2, 2}}, NULL));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_flatten_layer, NULL, NULL));
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 32, 32));
 *     tutti_tensor_t *y = tutti_forward(s, net, image); // [8, 768]
 *
 * Options that are wrong for every x are refused when the module is made.
 */
#ifndef TUTTI_POOL_LAYERS_H
#define TUTTI_POOL_LAYERS_H

#include <tutti/nn.h>
#include <tutti/op_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** tutti_max_pool1d(), options tutti_pool_options_t; a second output are the indices.
 *  @source torch.nn.MaxPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_max_pool1d_layer;

/** tutti_max_pool2d(). @source torch.nn.MaxPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_max_pool2d_layer;

/** tutti_avg_pool1d(), options tutti_avg_pool_options_t. @source torch.nn.AvgPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_avg_pool1d_layer;

/** tutti_avg_pool2d(). @source torch.nn.AvgPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_avg_pool2d_layer;

typedef struct tutti_adaptive_pool_options {
    int64_t size[2]; /**< of y, {height, width}; over lines the first alone; 0: that of x */
} tutti_adaptive_pool_options_t;

/** tutti_adaptive_max_pool1d(); a second output are the indices.
 *  @source torch.nn.AdaptiveMaxPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_max_pool1d_layer;

/** tutti_adaptive_max_pool2d(). @source torch.nn.AdaptiveMaxPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_max_pool2d_layer;

/** tutti_adaptive_avg_pool1d(). @source torch.nn.AdaptiveAvgPool1d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_avg_pool1d_layer;

/** tutti_adaptive_avg_pool2d(); {1, 1}: the mean of each channel.
 *  @source torch.nn.AdaptiveAvgPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_avg_pool2d_layer;

/** tutti_interpolate(), options tutti_interpolate_options_t. @source torch.nn.Upsample */
TUTTI_API extern const tutti_module_ops_t tutti_upsample_layer;

typedef struct tutti_flatten_options {
    int first, last; /**< dimensions, counted from the end if negative; both 0: 1 and -1 */
} tutti_flatten_options_t;

/** Dimensions first to last as one: [N, ...] -> [N, elements of a sample] without options.
 *  @source torch.nn.Flatten */
TUTTI_API extern const tutti_module_ops_t tutti_flatten_layer;

#ifdef __cplusplus
}
#endif

#endif
