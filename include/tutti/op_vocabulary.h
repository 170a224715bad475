/**
 * @file op_vocabulary.h
 * Losses of large vocabularies.
 *
 * Example:
 *
 *     tutti_tensor_t *hidden = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(8, 128, 64));
 *     tutti_tensor_t *head = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(32000, 64));
 *     tutti_tensor_t *targets = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(8, 128));
 *     tutti_tensor_t *loss = tutti_linear_cross_entropy(s, hidden, head, targets, NULL);
 *
 * The logits of a language model are its largest tensor: of 8192 tokens and 50257 classes 1.6 GB in
 * f32, and as much again for their gradient. Here they exist for a chunk of rows at a time.
 */
#ifndef TUTTI_OP_VOCABULARY_H
#define TUTTI_OP_VOCABULARY_H

#include <tutti/op_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_linear_cross_entropy_options {
    tutti_tensor_t *bias; /**< [..., V], the weight's sizes without the last; or NULL */
    tutti_cross_entropy_options_t loss; /**< its weight gets no gradient */
    int64_t chunk; /**< rows of x whose logits are in memory at a time, rounded up to a multiple of
                        256; 0: as many as take about what x takes. It changes no bit */
} tutti_linear_cross_entropy_options_t;

/**
 * Cross entropy of the logits x Wᵀ + b, which are never whole in memory.
 *
 * @param x        [..., in], floating
 * @param weight   [V, in], or [d1, ..., dK, V, in] for K more dimensions of losses at each row
 *                 (classes last, where PyTorch has [V, d1, ..., dK, in]), floating
 * @param targets  [..., d1, ..., dK], i64 (or i32, u8) in [0, V), or ignored; or [..., V] behind
 *                 those, floating: probabilities, with a gradient of their own
 * @param options  NULL for the defaults
 * @return         a scalar, or without reduction the shape of targets that are classes; f64 or
 *                 f32. With dz the gradient of the logits: dx = dz W, dW = dzᵀ x, db = Σ dz
 * @thread         the scope's
 * @cost           three products of rows × in × V: gradients of a mean or a sum are made by the
 *                 forward, which keeps them in f32 (f64 for f64); without reduction five, since
 *                 backward computes logits again. Memory: a chunk's logits, in f32 for 16-bit
 *                 inputs. The same bits for any number of threads, and for any chunk: dW and db
 *                 are sums over blocks of 256 rows, in order. In second order logits are whole
 * @errors         SHAPE, DTYPE, NOMEM; ARG (a target outside: its row, its value and V; a
 *                 smoothing outside [0, 1]; a negative chunk; ignore_index of probabilities)
 * @source         torch.nn.functional.linear_cross_entropy
 */
TUTTI_API tutti_tensor_t *
tutti_linear_cross_entropy(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                           tutti_tensor_t *targets,
                           const tutti_linear_cross_entropy_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
