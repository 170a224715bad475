/**
 * @file op_attention.h
 * Attention with any mask.
 *
 * Example:
 *
 *     tutti_tensor_t *q = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 4, 5, 8)); // [B, H, T, D]
 *     tutti_tensor_t *bias = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(4, 5, 5)); // of each head
 *     tutti_tensor_t *weights;
 *     tutti_tensor_t *y = tutti_masked_attention(s, q, q, q,
 *         &(tutti_masked_attention_options_t){.mask = bias}, &weights);
 *
 * tutti_attention() (op_nn.h) needs no memory for scores, but knows causal masks and padding alone.
 * What it can do is left to it here, too. The layers are in nn_transformer.h.
 */
#ifndef TUTTI_OP_ATTENTION_H
#define TUTTI_OP_ATTENTION_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_masked_attention_options {
    tutti_tensor_t *mask;        /**< broadcast to [B, H, Tq, Tk]; bool or u8: true: this key is
                                      ignored; floating: is added to the scores. May be NULL */
    tutti_tensor_t *key_padding; /**< [B, Tk] bool or u8; true: this key is ignored. May be NULL */
    bool causal;   /**< query i of Tq sees keys 0 … Tk - Tq + i: keys before the first
                        query are seen by all */
    double scale;  /**< of q·k; 0: 1/√D */
    float dropout; /**< of the weights, in [0, 1), while the context trains */
} tutti_masked_attention_options_t;

/**
 * softmax(scale · q kᵀ + mask) v.
 *
 * @param q        [B, H, Tq, D], floating
 * @param k        [B, Hkv, Tk, D], Hkv dividing H: as tutti_attention()'s
 * @param v        [B, Hkv, Tk, Dv]
 * @param options  borrowed; NULL for the defaults
 * @param weights  out: the softmax behind its dropout, [B, H, Tq, Tk]; may be NULL
 * @return         [B, H, Tq, Dv]; a query whose keys are all ignored gives zeros, one whose scores
 *                 are all -infinity by an added mask NaN. Gradients of q, k, v and an added mask
 * @thread         the scope's
 * @cost           with a mask, weights, or a causal Tq below Tk: a few Tq × Tk matrices of each
 *                 head in memory, some of them kept; else as tutti_attention()
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.scaled_dot_product_attention, whose boolean mask is the other
 *                 way round
 */
TUTTI_API tutti_tensor_t *tutti_masked_attention(tutti_scope_t *s, tutti_tensor_t *q,
                                                 tutti_tensor_t *k, tutti_tensor_t *v,
                                                 const tutti_masked_attention_options_t *options,
                                                 tutti_tensor_t **weights);

#ifdef __cplusplus
}
#endif

#endif
