/**
 * @file op_nn.h
 * What networks are made of besides linear layers and convolutions: embedding, dropout, attention,
 * rotary positions; softmax, norms, recurrent layers.
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

typedef struct tutti_embedding_lookup_options {
    bool has_padding; /**< the row of the index `padding` gets no gradient */
    int64_t padding;  /**< in [-V, V), counted from the end if negative */
    double max_norm;  /**< rows that are taken are made as short as this in the table; 0: no bound
                       */
    double norm_p;    /**< of which norm, above 0, or INFINITY; 0: 2 */
    bool scale_by_frequency; /**< a row's gradient is the mean over the places where its index
                                  stands, not the sum */
} tutti_embedding_lookup_options_t;

/**
 * The same with options. With max_norm it writes the weight, in training or not: a row whose norm
 * is above it is multiplied by max_norm / (norm + 1e-7) before it is taken. So a graph that saved
 * the weight for its backward before fails there with STATE: compute with a tutti_clone(). Under
 * tutti_recompute() the first forward alone writes.
 *
 * @param options  borrowed; NULL: none
 * @return         [..., C]; dweight as tutti_embedding's, 0 in the row of padding
 * @thread         the scope's
 * @cost           with max_norm the rows are read and written once more; the others cost a pass
 *                 over dy in backward, scale_by_frequency V counts as well
 * @errors         as tutti_embedding, and ARG (padding, max_norm, norm_p)
 * @source         torch.nn.functional.embedding
 */
TUTTI_API tutti_tensor_t *tutti_embedding_with(tutti_scope_t *s, tutti_tensor_t *indices,
                                               tutti_tensor_t *weight,
                                               const tutti_embedding_lookup_options_t *options);

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
    int64_t first_head;          /**< where the heads are some of a model's, the first of them, */
    int64_t all_heads; /**< and how many that has: they are dropped out as there. 0: all */
    int64_t kv_heads;  /**< of tutti_attention_qkv(): heads of k and v; divides H. 0: H */
} tutti_attention_options_t;

/**
 * softmax(scale · q kᵀ) v, in blocks: no Tq × Tk matrix is ever in memory.
 *
 * @param q        [B, H, Tq, D], floating; any strides, read in place if the last one is 1
 * @param k        [B, Hkv, Tk, D], of q's dtype. Hkv divides H: query head h has the keys of head
 *                 h / (H / Hkv), so that H / Hkv neighbours share them
 * @param v        k's shape and dtype
 * @param options  NULL for the defaults
 * @return         [B, H, Tq, D], lying in memory as [B, Tq, H, D], so that merging the heads by
 *                 transpose and reshape copies nothing. A query that sees no key, or whose scores
 *                 are all -infinity, gives zeros, as in PyTorch's fused kernels (the softmax alone:
 *                 NaN). With P the softmax: dv = Pᵀ dy, dS = P (dy vᵀ - rowsum(dy y)),
 *                 dq = scale dS k, dk = scale dSᵀ q; dk and dv are sums over the heads that
 *                 share them, in f32 and in their order
 * @thread         the scope's
 * @cost           4 B H Tq Tk D flops, half of it if causal; backward keeps q k v y and two
 *                 numbers per query.
 *                 Shared keys are not repeated; backward goes over the threads by them
 * @errors         SHAPE, DTYPE, ARG
 * @source         torch.nn.functional.scaled_dot_product_attention, its enable_gqa too; Dao et al.,
 *                 "FlashAttention" (2022); Ainslie et al., "GQA" (2023)
 */
TUTTI_API tutti_tensor_t *tutti_attention(tutti_scope_t *s, tutti_tensor_t *q, tutti_tensor_t *k,
                                          tutti_tensor_t *v,
                                          const tutti_attention_options_t *options);

/**
 * Self-attention on the output of one linear layer that makes q, k and v: no copy is made, and the
 * three gradients land in one tensor.
 *
 * @param qkv      [B, T, (H + 2 kv_heads) D]: q, k and v behind each other, q of H heads, k and v
 *                 of kv_heads each
 * @param heads    H
 * @param options  NULL for the defaults
 * @return         [B, T, H D], ready for the output projection
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

/* ---- softmax --------------------------------------------------------------------------------- */

/**
 * exp(x) / Σ exp(x) along a dimension.
 *
 * @param x    [any shape], floating; 16-bit inputs are computed in f32 and rounded once
 * @param dim  negative counts from the end
 * @return     x's shape and dtype (f32 of a 16-bit x under autocast); dx = (dy - Σ dy y) y
 * @thread     the scope's
 * @cost       one pass in cache per row; backward keeps y
 * @errors     ARG (dim), DTYPE
 * @source     torch.softmax
 */
TUTTI_API tutti_tensor_t *tutti_softmax(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/**
 * x - log Σ exp(x) along a dimension.
 *
 * @param x    [any shape], floating
 * @param dim  negative counts from the end
 * @return     x's shape and dtype (f32 of a 16-bit x under autocast); dx = dy - exp(y) Σ dy
 * @thread     the scope's
 * @cost       one pass in cache per row; backward keeps y
 * @errors     ARG (dim), DTYPE
 * @source     torch.log_softmax
 */
TUTTI_API tutti_tensor_t *tutti_log_softmax(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/* ---- norms ----------------------------------------------------------------------------------- */

/* Normalisation of rows, of channels over a batch, of groups of channels.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 16, 8));
 *     tutti_tensor_t *gain = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(8));
 *     tutti_tensor_t *y = tutti_layer_norm(s, x, gain, NULL, 0); // rows of 8
 *
 * Statistics are f32 (f64 for f64), whatever x is. Under autocast the result has the autocast
 * dtype, since what follows a norm is nearly always a matrix product, which would round it anyway;
 * PyTorch returns f32 and rounds in the product, at the price of one more pass.
 */

/**
 * (x - mean) / √(variance + eps) · weight + bias over the last dimensions of x.
 *
 * @param x       [..., n]; the row is the last dimension, or the last k if weight has k
 * @param weight  [n], or NULL: ones
 * @param bias    [n], or NULL: zeros
 * @param eps     0: 1e-5
 * @return        x's shape; with x̂ the normalised row and g = dy · weight:
 *                dx = (g - mean(g) - x̂ mean(g x̂)) / σ, dweight = Σ dy x̂, dbias = Σ dy over rows
 * @thread        the scope's
 * @cost          one pass in cache per row; backward keeps x, mean and 1/σ
 * @errors        SHAPE, DTYPE, ARG (eps)
 * @source        torch.nn.functional.layer_norm; Ba et al., "Layer Normalization" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_layer_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           double eps);

/**
 * x / √(mean(x²) + eps) · weight over the last dimensions of x.
 *
 * @param x       [..., n]; the row is the last dimension, or the last k if weight has k
 * @param weight  [n], or NULL: ones
 * @param eps     0: 1.1920929e-7, as in PyTorch
 * @return        x's shape; with r = 1/√(mean(x²) + eps) and g = dy · weight:
 *                dx = r (g - x r² mean(g x)), dweight = Σ dy x r over rows
 * @thread        the scope's
 * @cost          one pass in cache per row; backward keeps x and r
 * @errors        SHAPE, DTYPE, ARG (eps)
 * @source        torch.nn.functional.rms_norm; Zhang and Sennrich, "Root Mean Square Layer
 *                Normalization" (2019)
 */
TUTTI_API tutti_tensor_t *tutti_rms_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                         tutti_tensor_t *weight, double eps);

typedef struct tutti_row_norm_options {
    double eps;   /**< as the argument of tutti_layer_norm() and tutti_rms_norm() */
    int row_dims; /**< how many of x's last dimensions make a row; 0: as many as weight or bias has,
                       or one */
} tutti_row_norm_options_t;

/** tutti_layer_norm() with options: rows of several dimensions also without weight and bias.
 *  @param options borrowed; NULL: none @thread the scope's @cost as tutti_layer_norm
 *  @errors SHAPE (x has fewer dimensions, or weight has others), DTYPE, ARG (eps)
 *  @source torch.nn.functional.layer_norm */
TUTTI_API tutti_tensor_t *tutti_layer_norm_with(tutti_scope_t *s, tutti_tensor_t *x,
                                                tutti_tensor_t *weight, tutti_tensor_t *bias,
                                                const tutti_row_norm_options_t *options);

/** tutti_rms_norm() with options. @param options borrowed; NULL: none @thread the scope's
 *  @cost as tutti_rms_norm @errors as tutti_layer_norm_with()
 *  @source torch.nn.functional.rms_norm */
TUTTI_API tutti_tensor_t *tutti_rms_norm_with(tutti_scope_t *s, tutti_tensor_t *x,
                                              tutti_tensor_t *weight,
                                              const tutti_row_norm_options_t *options);

typedef struct tutti_batch_norm_options {
    tutti_tensor_t *running_mean; /**< [C], a floating dtype; written while the context trains */
    tutti_tensor_t *running_var;  /**< [C]; both NULL: the batch's statistics, always */
    double momentum;              /**< weight of the newest batch in them; 0: 0.1 */
    double eps;                   /**< 0: 1e-5 */
    tutti_tensor_t *residual;     /**< x's shape and dtype: is added to the result; or NULL */
    bool relu;                    /**< negative results, after that, are 0 */
} tutti_batch_norm_options_t;

/**
 * (x - mean) / √(variance + eps) · weight + bias for each channel of x [N, C, ...].
 *
 * What follows in a residual network can be done in the same pass: relu(y + residual) has the bits
 * of tutti_relu(s, tutti_add(s, y, residual)), and so have the gradients.
 *
 * While the context trains, mean and variance are those of the batch, over all dimensions but the
 * second, and the running ones move towards them: running = (1 - momentum) running + momentum now,
 * the variance taken with count - 1. In evaluation the running ones are used instead.
 *
 * @param x       [N, C, ...], two dimensions or more
 * @param weight  [C], or NULL: ones
 * @param bias    [C], or NULL: zeros
 * @param options NULL: the batch's statistics, eps 1e-5
 * @return        x's shape and dtype; with x̂ the normalised x and g = dy · weight:
 *                dx = (g - mean(g) - x̂ mean(g x̂)) / σ, in evaluation g / σ;
 *                dweight = Σ dy x̂, dbias = Σ dy, dresidual = dy; with relu dy is 0 where the
 *                result is, and passes where that is NaN
 * @thread        the scope's
 * @cost          x is read three times, from the cache where a channel fits it; backward keeps x,
 *                with relu the result, too
 * @errors        SHAPE (also one value per channel while training), DTYPE, ARG (eps, momentum)
 * @source        torch.nn.functional.batch_norm; Ioffe and Szegedy, "Batch Normalization" (2015);
 *                with residual and relu CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
 */
TUTTI_API tutti_tensor_t *tutti_batch_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           const tutti_batch_norm_options_t *options);

/**
 * (x - mean) / √(variance + eps) · weight + bias, where mean and variance are those of a sample's
 * group of neighbouring channels. One channel a group: instance norm.
 *
 * @param x       [N, C, ...], two dimensions or more
 * @param groups  divides C
 * @param weight  [C], or NULL: ones
 * @param bias    [C], or NULL: zeros
 * @param eps     0: 1e-5
 * @return        x's shape and dtype; gradients as tutti_layer_norm, the group being the row
 * @thread        the scope's
 * @cost          one pass in cache per group; backward keeps x, mean and 1/σ
 * @errors        SHAPE, DTYPE, ARG (eps, groups)
 * @source        torch.nn.functional.group_norm; Wu and He, "Group Normalization" (2018)
 */
TUTTI_API tutti_tensor_t *tutti_group_norm(tutti_scope_t *s, tutti_tensor_t *x, int64_t groups,
                                           tutti_tensor_t *weight, tutti_tensor_t *bias,
                                           double eps);

/**
 * (x - mean) / √(variance + eps) · weight + bias, where mean and variance are those of a channel of
 * a sample.
 *
 * With running statistics they move while the context trains, as of tutti_batch_norm(), towards the
 * means over samples of the samples' means and variances, these taken with count - 1. In evaluation
 * they are used instead of the sample's, and it is tutti_batch_norm().
 *
 * @param x        [N, C, ...], two dimensions or more
 * @param weight   [C], or NULL: ones
 * @param bias     [C], or NULL: zeros
 * @param options  borrowed; NULL: no running statistics, eps 1e-5
 * @return         x's shape and dtype; gradients as tutti_group_norm
 * @thread         the scope's
 * @cost           as tutti_group_norm; two more passes where running statistics move
 * @errors         SHAPE (also one value per channel where they move), DTYPE, ARG (eps, momentum)
 * @source         torch.nn.functional.instance_norm; Ulyanov et al., "Instance Normalization: The
 *                 Missing Ingredient for Fast Stylization" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_instance_norm(tutti_scope_t *s, tutti_tensor_t *x,
                                              tutti_tensor_t *weight, tutti_tensor_t *bias,
                                              const tutti_batch_norm_options_t *options);

/* ---- recurrent layers ------------------------------------------------------------------------ */

/* Recurrent layers over time: all steps of one layer in one direction. The layers with their
 * parameters are in nn_layers.h.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(7, 2, 5)); // [T, B, in]
 *     tutti_tensor_t *w_ih = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(12, 5));
 *     tutti_tensor_t *w_hh = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(12, 3));
 *     tutti_tensor_t *products = tutti_linear(s, x, w_ih, NULL); // of all steps at once
 *     tutti_tensor_t *y = tutti_lstm_scan(
 *         s, &(tutti_scan_t){.x = products, .weight = w_hh}, NULL); // [T, B, 3]
 *
 * The products of the inputs, x W_ihᵀ + b_ih, do not depend on the states, so they are one product
 * beforehand; a scan makes what is left of the steps. Its result and the states have the dtype of
 * the product (that of autocast, if it is on); sums over gates and cells are f32 (f64 for f64).
 */

/** What a scan goes over; G gates: 1 (RNN), 4 (LSTM: i f g o), 3 (GRU: r z n). */
typedef struct tutti_scan {
    tutti_tensor_t *x;          /**< [T, B, G H], the products of the inputs, T at least 1 */
    tutti_tensor_t *weight;     /**< W_hh [G H, H] */
    tutti_tensor_t *bias;       /**< b_hh [G H], or NULL: zeros */
    tutti_tensor_t *h;          /**< [B, H] the first state, or NULL: zeros */
    tutti_tensor_t *c;          /**< [B, H] the first cell of an LSTM, or NULL: zeros */
    bool is_reverse;            /**< from the last step to the first */
    tutti_tensor_t *projection; /**< W_hr [P, H] of an LSTM, or NULL */
} tutti_scan_t;

/** What an RNN makes of its sum. */
typedef enum tutti_rnn_nonlinearity {
    TUTTI_RNN_TANH,
    TUTTI_RNN_RELU,
} tutti_rnn_nonlinearity_t;

/**
 * h' = f(x + h W_hhᵀ + b_hh), step by step.
 *
 * @param scan  borrowed; c is not used
 * @return      [T, B, H], the states after each step; with a the sum and da' the next step's:
 *              da = f'(a) (dy + da' W_hh), dW_hh = Σ daᵀ h, db_hh = Σ da, dx = da
 * @thread      the scope's
 * @cost        T products [B, H] × [H, H]; keeps the states
 * @errors      SHAPE, DTYPE
 * @source      torch.nn.RNN; Elman, "Finding Structure in Time" (1990)
 */
TUTTI_API tutti_tensor_t *tutti_rnn_scan(tutti_scope_t *s, const tutti_scan_t *scan,
                                         tutti_rnn_nonlinearity_t nonlinearity);

/**
 * With i f g o the parts of x + h W_hhᵀ + b_hh: c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'),
 * step by step. With a projection the state is h' W_hrᵀ instead: the weight is [4 H, P], h [B, P].
 *
 * @param scan    borrowed
 * @param last_c  out, [B, H], the cell after the last step; may be NULL
 * @return        [T, B, H], or [T, B, P], the states after each step; gradients as
 *                tutti_rnn_scan's, through the gates: dc = dc' + dh σ(o) (1 - tanh²(c')), and
 *                σ(f) dc to the cell before; with a projection dh = dstate W_hr,
 *                dW_hr = Σ dstateᵀ h'
 * @thread        the scope's
 * @cost          T products [B, H] × [H, 4 H]; keeps gates, cells and states
 * @errors        SHAPE, DTYPE
 * @source        torch.nn.LSTM; Hochreiter and Schmidhuber (1997), Gers et al. (2000); Sak et al.,
 *                "Long Short-Term Memory Based Recurrent Neural Network Architectures" (2014) for
 *                the projection
 */
TUTTI_API tutti_tensor_t *tutti_lstm_scan(tutti_scope_t *s, const tutti_scan_t *scan,
                                          tutti_tensor_t **last_c);

/**
 * With p = h W_hhᵀ + b_hh: r = σ(x_r + p_r), z = σ(x_z + p_z), n = tanh(x_n + r p_n),
 * h' = (1 - z) n + z h, step by step.
 *
 * @param scan  borrowed; c is not used
 * @return      [T, B, H], the states after each step; gradients as tutti_rnn_scan's, through the
 *              gates: dn = dh (1 - z) (1 - n²), dz = dh (h - n) z (1 - z), dr = dn p_n r (1 - r)
 * @thread      the scope's
 * @cost        T products [B, H] × [H, 3 H]; keeps gates and states
 * @errors      SHAPE, DTYPE
 * @source      torch.nn.GRU; Cho et al. (2014)
 */
TUTTI_API tutti_tensor_t *tutti_gru_scan(tutti_scope_t *s, const tutti_scan_t *scan);

#ifdef __cplusplus
}
#endif

#endif
