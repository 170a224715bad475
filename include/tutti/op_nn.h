/**
 * @file op_nn.h
 * What transformers are made of besides linear layers and norms: embedding, dropout, attention,
 * rotary positions.
 *
 * Example:
 *
 *     tutti_tensor_t *ids = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(4, 16));
 *     tutti_tensor_t *table = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(256, 24));
 *     tutti_tensor_t *qkv = tutti_embedding(s, ids, table);                    // [4, 16, 24]
 *     tutti_tensor_t *y = tutti_attention_qkv(s, qkv, 2,
 *         &(tutti_attention_options_t){.causal = true});                       // [4, 16, 8]
 *
 * What is random is a function of (seed, step, shard, module, call) and the element's index: the
 * layout of the job, threads and strides change no bit, and backward draws it again instead of
 * keeping a mask.
 */
#ifndef TUTTI_OP_NN_H
#define TUTTI_OP_NN_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Rows of a table.
 *
 * @param indices  [...], i64 (or i32, u8), in [0, V)
 * @param weight   [V, C], floating
 * @return         [..., C]; dweight[v] = Σ dy over the places where v stands, in their order
 * @thread         the scope's
 * @cost           one read per row; the gradient is dense, [V, C]
 * @errors         SHAPE, DTYPE, ARG (an index outside: its place, its value and V)
 * @source         torch.nn.functional.embedding
 */
TUTTI_API tutti_tensor_t *tutti_embedding(tutti_scope_t *s, tutti_tensor_t *indices,
                                          tutti_tensor_t *weight);

/** Names a random stream beyond seed, step and shard, which come from the context. */
typedef struct tutti_random_name {
    uint64_t module; /**< who draws; 0: the context counts its random calls by itself, which suits
                          programs in which every rank runs the whole model */
    uint64_t call;   /**< how often it has drawn in this step and shard; not used if module is 0 */
} tutti_random_name_t;

/**
 * Zero each element with probability p and divide the others by 1 - p, while the context trains;
 * x itself otherwise, or if p is 0.
 *
 * @param x     [any shape], floating
 * @param p     in [0, 1]
 * @return      x's shape and dtype; dx = dy with the same zeros and factor
 * @thread      the scope's
 * @cost        one pass; backward keeps nothing
 * @errors      ARG (p), DTYPE
 * @source      torch.nn.functional.dropout; Srivastava et al., "Dropout" (2014)
 */
TUTTI_API tutti_tensor_t *tutti_dropout(tutti_scope_t *s, tutti_tensor_t *x, float p);

/** The same, drawing from a named stream. @thread the scope's @cost as tutti_dropout
 *  @errors ARG (p), DTYPE */
TUTTI_API tutti_tensor_t *tutti_dropout_named(tutti_scope_t *s, tutti_tensor_t *x, float p,
                                              tutti_random_name_t name);

typedef struct tutti_attention_options {
    bool causal;                 /**< query i sees keys 0 … i only */
    double scale;                /**< of q·k; 0: 1/√D */
    tutti_tensor_t *key_padding; /**< [B, Tk] bool or u8; true: this key is ignored. May be NULL */
    float dropout;               /**< of the weights, in [0, 1), while the context trains */
    tutti_random_name_t name;    /**< of the dropout's stream */
} tutti_attention_options_t;

/**
 * softmax(scale · q kᵀ) v, in blocks: no Tq × Tk matrix is ever in memory.
 *
 * @param q        [B, H, Tq, D], floating; any strides, read in place if the last one is 1
 * @param k        [B, H, Tk, D], of q's dtype
 * @param v        [B, H, Tk, D], of q's dtype
 * @param options  NULL for the defaults
 * @return         [B, H, Tq, D], lying in memory as [B, Tq, H, D], so that merging the heads by
 *                 transpose and reshape copies nothing. A query that sees no key gives zeros
 *                 (PyTorch: NaN). With P the softmax: dv = Pᵀ dy, dS = P (dy vᵀ - rowsum(dy y)),
 *                 dq = scale dS k, dk = scale dSᵀ q
 * @thread         the scope's
 * @cost           4 B H Tq Tk D flops, half of it if causal; backward keeps q k v y and two
 *                 numbers per query
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.scaled_dot_product_attention; Dao et al., "FlashAttention"
 *                 (2022)
 */
TUTTI_API tutti_tensor_t *tutti_attention(tutti_scope_t *s, tutti_tensor_t *q, tutti_tensor_t *k,
                                          tutti_tensor_t *v,
                                          const tutti_attention_options_t *options);

/**
 * Self-attention on the output of one linear layer that makes q, k and v: no copy is made, and the
 * three gradients land in one tensor.
 *
 * @param qkv      [B, T, 3 C]: q, k and v behind each other, each of them [H, D]
 * @param heads    H; divides C
 * @param options  NULL for the defaults
 * @return         [B, T, C], ready for the output projection
 * @thread         the scope's
 * @cost           as tutti_attention
 * @errors         SHAPE, DTYPE, ARG (heads)
 * @source         as tutti_attention
 */
TUTTI_API tutti_tensor_t *tutti_attention_qkv(tutti_scope_t *s, tutti_tensor_t *qkv, int64_t heads,
                                              const tutti_attention_options_t *options);

typedef struct tutti_rotary_options {
    double base;         /**< 0: 10000 */
    int64_t start;       /**< position of the first row */
    bool is_interleaved; /**< pairs are (0,1) (2,3) …; else (0,D/2) (1,D/2+1) … */
} tutti_rotary_options_t;

/**
 * Rotate pairs (a, b) of each row at position t by the angle θ = t · base^(-2i/D), i the pair's
 * index: (a cos θ - b sin θ, a sin θ + b cos θ).
 *
 * @param x        [..., T, D], floating; D is even. Heads come before T: [B, H, T, D]
 * @param options  NULL for the defaults
 * @return         x's shape and dtype; dx is dy rotated by -θ
 * @thread         the scope's
 * @cost           one pass; backward keeps nothing
 * @errors         SHAPE, DTYPE, ARG
 * @source         Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021)
 */
TUTTI_API tutti_tensor_t *tutti_rotary(tutti_scope_t *s, tutti_tensor_t *x,
                                       const tutti_rotary_options_t *options);

#ifdef __cplusplus
}
#endif

#endif
