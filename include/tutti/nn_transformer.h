/**
 * @file nn_transformer.h
 * Multi-head attention with masks and caches; encoders and decoders of transformers, with PyTorch's
 * names.
 *
 * Example:
 *
 *     tutti_module_t *encoder;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_encoder_layer,
 *         &(tutti_transformer_options_t){.width = 16, .heads = 4, .hidden = 32, .layers = 2,
 *                                        .batch_first = true}, &encoder));
 *     tutti_tensor_t *steps = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 5, 16)); // [B, T, width]
 *     tutti_tensor_t *late = tutti_zeros(s, TUTTI_BOOL, TUTTI_SHAPE(2, 5));    // true: padding
 *     tutti_tensor_t *y;
 *     tutti_forward_many(s, encoder, (tutti_tensor_t *[]){steps, NULL, late}, 3, &y, 1);
 *
 * Inputs and outputs behind the first may be left out, or be NULL. Masks are those of
 * tutti_masked_attention() (op_attention.h): of flags, true means that a key is ignored; floating
 * ones are added to the scores. A mask is [Tq, Tk] or [B heads, Tq, Tk], padding [B, Tk]. Without a
 * batch inputs and outputs lack that dimension: x is [T, width], padding [Tk].
 */
#ifndef TUTTI_NN_TRANSFORMER_H
#define TUTTI_NN_TRANSFORMER_H

#include <tutti/nn_layers.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_multihead_attention_options {
    int64_t width, heads;           /**< heads divide the width */
    int64_t kv_heads;               /**< of keys and values, each for heads / kv_heads of the
                                         queries'; they divide the heads. 0: heads */
    int64_t key_width, value_width; /**< of the second and third input; 0: width */
    float dropout;                  /**< of the weights, in [0, 1) */
    bool no_bias;
    bool batch_first;    /**< inputs and result are [B, T, …], not [T, B, …] */
    bool causal;         /**< a query sees keys up to its own place, counted from the last */
    bool bias_kv;        /**< a key and a value that are learned stand behind the others */
    bool zero_attention; /**< a key and a value of zeros stand behind all; neither goes with causal,
                              and no mask or padding hides them */
} tutti_multihead_attention_options_t;

/**
 * Inputs: queries, keys, values; a mask; padding; keys and values of a cache [B, kv_heads, T, width
 * / heads], which come before those given. One input is all three. Outputs: the result; the weights
 * [B, heads, Tq, Tk]; all keys and values, which are the next call's cache.
 *
 * "in_proj_weight" [width + 2 kv, width], kv being kv_heads width / heads; of other widths
 * "q_proj_weight" [width, width], "k_proj_weight" [kv, key_width], "v_proj_weight"; "in_proj_bias"
 * [width + 2 kv]; with bias_kv "bias_k" and "bias_v" [1, 1, kv]; "out_proj" is linear. They begin
 * as PyTorch's: Xavier's uniform, biases 0.
 * @source torch.nn.MultiheadAttention; Vaswani et al. 2017; Ainslie et al. 2023 for kv_heads
 */
TUTTI_API extern const tutti_module_ops_t tutti_multihead_attention_layer;

typedef struct tutti_transformer_options {
    int64_t width, heads;          /**< heads divide the width */
    int64_t kv_heads;              /**< of every attention's keys and values; 0: heads */
    int64_t hidden;                /**< of the two linear layers; 0: 2048 */
    int64_t layers;                /**< of a stack; 0: 6 */
    int64_t decoder_layers;        /**< of a transformer's decoder; 0: as layers */
    tutti_activation_t activation; /**< of the hidden values; TUTTI_ACTIVATION_DEFAULT: ReLU */
    float dropout;                 /**< of weights, hidden values and branches; PyTorch's is 0.1 */
    double eps;                    /**< of the norms; 0: 1e-5 */
    bool norm_first;               /**< norms are in front of the branches, not behind the sums */
    bool batch_first;              /**< inputs and result are [B, T, width], not [T, B, width] */
    bool no_bias;                  /**< of linear layers and norms */
    bool causal;                   /**< self-attention sees what is before; of a transformer the
                                        decoder's */
    bool final_norm;               /**< a stack ends with a norm, "norm"; a transformer's do */
} tutti_transformer_options_t;

/** Self-attention and two linear layers, each added to its input: x, mask, padding -> x's shape.
 *  "self_attn" "linear1" "linear2" "norm1" "norm2". @source torch.nn.TransformerEncoderLayer */
TUTTI_API extern const tutti_module_ops_t tutti_encoder_block_layer;

/** The same with attention to a memory in between: x, memory, mask, mask of the memory, padding,
 *  padding of the memory -> x's shape. "self_attn" "multihead_attn" "linear1" "linear2" "norm1"
 *  "norm2" "norm3". @source torch.nn.TransformerDecoderLayer */
TUTTI_API extern const tutti_module_ops_t tutti_decoder_block_layer;

/** Encoder blocks one behind the other, "layers.0" …; inputs as theirs.
 *  @source torch.nn.TransformerEncoder */
TUTTI_API extern const tutti_module_ops_t tutti_encoder_layer;

/** Decoder blocks one behind the other, "layers.0" …; inputs as theirs.
 *  @source torch.nn.TransformerDecoder */
TUTTI_API extern const tutti_module_ops_t tutti_decoder_layer;

/** An "encoder" of the first input, and a "decoder" of the second with the encoder's result as its
 *  memory. Inputs: both; masks of the first, of the second, of the memory; padding of these three.
 *  Matrices begin as Xavier's uniform. @source torch.nn.Transformer */
TUTTI_API extern const tutti_module_ops_t tutti_transformer_layer;

#ifdef __cplusplus
}
#endif

#endif
