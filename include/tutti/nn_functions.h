/**
 * @file nn_functions.h
 * Functions as modules: padding, shuffles, windows, distances, dropouts, bags of embeddings.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, &net));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_pad_layer,
 *         &(tutti_pad_layer_options_t){.sizes = TUTTI_PADDING(1, 1, 1, 1),
 *                                      .mode = TUTTI_PAD_REFLECT}, NULL));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_prelu_layer, NULL, NULL));
 *     TUTTI_CHECK(tutti_sequential_add(net, &tutti_pixel_unshuffle_layer,
 *         &(tutti_shuffle_options_t){.factor = 2}, NULL));
 *     tutti_tensor_t *image = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8, 3, 30, 30));
 *     tutti_tensor_t *y = tutti_forward(s, net, image); // [8, 12, 16, 16]
 *
 * Zero options mean the default that is named. More activations are kinds of
 * tutti_activation_layer (nn_layers.h).
 */
#ifndef TUTTI_NN_FUNCTIONS_H
#define TUTTI_NN_FUNCTIONS_H

#include <tutti/nn_layers.h>
#include <tutti/op_feature.h>
#include <tutti/op_fractional.h>
#include <tutti/op_pad.h>
#include <tutti/op_volume.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- activations ----------------------------------------------------------------------------- */

typedef struct tutti_prelu_options {
    int64_t count; /**< of numbers: 0: 1, for all channels; or the channels */
    double begin;  /**< their initial value; 0: 0.25 */
} tutti_prelu_options_t;

/** tutti_prelu() with "weight" [count]. @source torch.nn.PReLU */
TUTTI_API extern const tutti_module_ops_t tutti_prelu_layer;

typedef struct tutti_dim_options {
    int dim; /**< counted from the end if negative; without options: -1 */
} tutti_dim_options_t;

/** tutti_softmax(), options tutti_dim_options_t. @source torch.nn.Softmax, torch.nn.Softmax2d */
TUTTI_API extern const tutti_module_ops_t tutti_softmax_layer;

/** tutti_log_softmax(). @source torch.nn.LogSoftmax */
TUTTI_API extern const tutti_module_ops_t tutti_log_softmax_layer;

/** tutti_softmin(). @source torch.nn.Softmin */
TUTTI_API extern const tutti_module_ops_t tutti_softmin_layer;

/** tutti_glu(). @source torch.nn.GLU */
TUTTI_API extern const tutti_module_ops_t tutti_glu_layer;

/* ---- the same elements at other places ------------------------------------------------------- */

typedef struct tutti_pad_layer_options {
    tutti_padding_t sizes;
    tutti_pad_mode_t mode;
    double value; /**< of TUTTI_PAD_CONSTANT */
} tutti_pad_layer_options_t;

/** tutti_pad(). @source torch.nn.ConstantPad1d, torch.nn.ReflectionPad2d and their like */
TUTTI_API extern const tutti_module_ops_t tutti_pad_layer;

typedef struct tutti_shuffle_options {
    int64_t factor; /**< of pixels: how often planes are as wide; of channels: the groups */
} tutti_shuffle_options_t;

/** tutti_pixel_shuffle(). @source torch.nn.PixelShuffle */
TUTTI_API extern const tutti_module_ops_t tutti_pixel_shuffle_layer;

/** tutti_pixel_unshuffle(). @source torch.nn.PixelUnshuffle */
TUTTI_API extern const tutti_module_ops_t tutti_pixel_unshuffle_layer;

/** tutti_channel_shuffle(). @source torch.nn.ChannelShuffle */
TUTTI_API extern const tutti_module_ops_t tutti_channel_shuffle_layer;

/** tutti_unfold(), options tutti_unfold_options_t. @source torch.nn.Unfold */
TUTTI_API extern const tutti_module_ops_t tutti_unfold_layer;

typedef struct tutti_fold_options {
    int64_t size[2]; /**< of the planes, {height, width} */
    tutti_unfold_options_t windows;
} tutti_fold_options_t;

/** tutti_fold(). @source torch.nn.Fold */
TUTTI_API extern const tutti_module_ops_t tutti_fold_layer;

typedef struct tutti_unflatten_options {
    int dim;             /**< counted from the end if negative */
    tutti_shape_t sizes; /**< in its place; one of them may be -1 */
} tutti_unflatten_options_t;

/** One dimension as several. @source torch.nn.Unflatten */
TUTTI_API extern const tutti_module_ops_t tutti_unflatten_layer;

/* ---- dropouts and norms ---------------------------------------------------------------------- */

/** tutti_dropout1d(), options tutti_dropout_options_t. @source torch.nn.Dropout1d */
TUTTI_API extern const tutti_module_ops_t tutti_dropout1d_layer;

/** tutti_dropout2d(). @source torch.nn.Dropout2d */
TUTTI_API extern const tutti_module_ops_t tutti_dropout2d_layer;

/** tutti_dropout3d(). @source torch.nn.Dropout3d */
TUTTI_API extern const tutti_module_ops_t tutti_dropout3d_layer;

/** tutti_alpha_dropout(). @source torch.nn.AlphaDropout */
TUTTI_API extern const tutti_module_ops_t tutti_alpha_dropout_layer;

/** tutti_feature_alpha_dropout(). @source torch.nn.FeatureAlphaDropout */
TUTTI_API extern const tutti_module_ops_t tutti_feature_alpha_dropout_layer;

/** tutti_local_response_norm(), options tutti_local_response_options_t.
 *  @source torch.nn.LocalResponseNorm */
TUTTI_API extern const tutti_module_ops_t tutti_local_response_norm_layer;

/* ---- two inputs ------------------------------------------------------------------------------ */

typedef struct tutti_cosine_similarity_options {
    int dim;    /**< counted from the end if negative; without options: 1 */
    double eps; /**< least length; 0: 1e-8 */
} tutti_cosine_similarity_options_t;

/** tutti_cosine_similarity(): two inputs of tutti_forward_many(). @source
 *  torch.nn.CosineSimilarity */
TUTTI_API extern const tutti_module_ops_t tutti_cosine_similarity_layer;

typedef struct tutti_pairwise_distance_options {
    double p;      /**< of the norm; 0: 2 */
    double eps;    /**< added to differences; 0: 1e-6 */
    bool keep_dim; /**< the last dimension stays, as 1 */
} tutti_pairwise_distance_options_t;

/** tutti_pairwise_distance(): two inputs. @source torch.nn.PairwiseDistance */
TUTTI_API extern const tutti_module_ops_t tutti_pairwise_distance_layer;

/** tutti_max_unpool1d(): two inputs, maxima and indices; options tutti_max_unpool_options_t
 *  (op_volume.h). @source torch.nn.MaxUnpool1d */
TUTTI_API extern const tutti_module_ops_t tutti_max_unpool1d_layer;

/** tutti_max_unpool2d(). @source torch.nn.MaxUnpool2d */
TUTTI_API extern const tutti_module_ops_t tutti_max_unpool2d_layer;

/** tutti_max_unpool3d(). @source torch.nn.MaxUnpool3d */
TUTTI_API extern const tutti_module_ops_t tutti_max_unpool3d_layer;

/** tutti_fractional_max_pool2d(), options tutti_fractional_pool_options_t: x and, as a second
 * input, samples; one output, or the indices as a second. @source torch.nn.FractionalMaxPool2d */
TUTTI_API extern const tutti_module_ops_t tutti_fractional_max_pool2d_layer;

/** tutti_fractional_max_pool3d(). @source torch.nn.FractionalMaxPool3d */
TUTTI_API extern const tutti_module_ops_t tutti_fractional_max_pool3d_layer;

typedef struct tutti_bilinear_options {
    int64_t in, second_in, out;
    bool no_bias;
} tutti_bilinear_options_t;

/** tutti_bilinear(): two inputs [..., in] and [..., second_in] -> [..., out]; "weight" [out, in,
 *  second_in], "bias" [out]; both begin as U(±1/√in). @source torch.nn.Bilinear */
TUTTI_API extern const tutti_module_ops_t tutti_bilinear_layer;

typedef struct tutti_embedding_bag_layer_options {
    int64_t count, width;
    tutti_bag_mode_t mode;
    bool has_last_offset, has_padding;
    int64_t padding; /**< these as in tutti_embedding_bag_options_t */
    double max_norm, norm_p;
    bool scale_by_frequency; /**< and these */
} tutti_embedding_bag_layer_options_t;

/** tutti_embedding_bag() of "weight" [count, width], which begins as N(0, 1), a row of padding as
 *  zeros; max_norm as of tutti_embedding_layer.
 *  Inputs: indices; offsets, or NULL; weights, or NULL. Those behind the first may be left
 *  out. @source torch.nn.EmbeddingBag */
TUTTI_API extern const tutti_module_ops_t tutti_embedding_bag_layer;

#ifdef __cplusplus
}
#endif

#endif
