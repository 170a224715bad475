/**
 * @file op_rnn.h
 * Recurrent layers over time: all steps of one layer in one direction. The layers with their
 * parameters are in rnn_layers.h.
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
#ifndef TUTTI_OP_RNN_H
#define TUTTI_OP_RNN_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a scan goes over; G gates: 1 (RNN), 4 (LSTM: i f g o), 3 (GRU: r z n). */
typedef struct tutti_scan {
    tutti_tensor_t *x;      /**< [T, B, G H], the products of the inputs, T at least 1 */
    tutti_tensor_t *weight; /**< W_hh [G H, H] */
    tutti_tensor_t *bias;   /**< b_hh [G H], or NULL: zeros */
    tutti_tensor_t *h;      /**< [B, H] the first state, or NULL: zeros */
    tutti_tensor_t *c;      /**< [B, H] the first cell of an LSTM, or NULL: zeros */
    bool is_reverse;        /**< from the last step to the first */
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
 * step by step.
 *
 * @param scan    borrowed
 * @param last_c  out, [B, H], the cell after the last step; may be NULL
 * @return        [T, B, H], the states after each step; gradients as tutti_rnn_scan's, through the
 *                gates: dc = dc' + dh σ(o) (1 - tanh²(c')), and σ(f) dc to the cell before
 * @thread        the scope's
 * @cost          T products [B, H] × [H, 4 H]; keeps gates, cells and states
 * @errors        SHAPE, DTYPE
 * @source        torch.nn.LSTM; Hochreiter and Schmidhuber (1997), Gers et al. (2000)
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
