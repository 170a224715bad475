/**
 * @file rnn_layers.h
 * Recurrent layers and cells with PyTorch's names and gate order.
 *
 * Example:
 *
 *     tutti_module_t *lstm;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_lstm_layer,
 *         &(tutti_rnn_options_t){.in = 5, .hidden = 8, .layers = 2, .batch_first = true}, &lstm));
 *     tutti_tensor_t *steps = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 7, 5)); // [B, T, in]
 *     tutti_tensor_t *out[3]; // the outputs [B, T, 8], the last states and cells [2, B, 8]
 *     tutti_forward_many(s, lstm, (tutti_tensor_t *[]){steps, NULL, NULL}, 3, out, 3);
 *     tutti_tensor_t *y = tutti_forward(s, lstm, steps); // the outputs alone
 *
 * Parameters begin as U(±1/√hidden). Inputs and outputs behind the first may be left out; an input
 * that is NULL counts as zeros. To train on pieces of a long text hand the last states to the next
 * piece, through tutti_detach() so that the graph ends there.
 */
#ifndef TUTTI_RNN_LAYERS_H
#define TUTTI_RNN_LAYERS_H

#include <tutti/nn.h>
#include <tutti/op_rnn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_rnn_options {
    int64_t in, hidden;
    int64_t layers;                        /**< one on another; 0: 1 */
    bool bidirectional;                    /**< each layer runs both ways; outputs side by side */
    bool batch_first;                      /**< x and outputs are [B, T, …], not [T, B, …] */
    bool no_bias;                          /**< no "bias_ih_l0" … */
    float dropout;                         /**< of the outputs of all layers but the last */
    tutti_rnn_nonlinearity_t nonlinearity; /**< of tutti_rnn_layer */
} tutti_rnn_options_t;

/** x [T, B, in], h [layers D, B, hidden] -> y [T, B, D hidden], the last h; D directions: 1 or 2.
 *  Each layer has "weight_ih_l0" [hidden, in], "weight_hh_l0" [hidden, hidden], "bias_ih_l0" and
 *  "bias_hh_l0" [hidden]; of the way back "weight_ih_l0_reverse" …. @source torch.nn.RNN */
TUTTI_API extern const tutti_module_ops_t tutti_rnn_layer;

/** x, h, c -> y, the last h, the last c, shapes as tutti_rnn_layer; the parameters' first
 *  dimension is 4 hidden, in the order i f g o. @source torch.nn.LSTM */
TUTTI_API extern const tutti_module_ops_t tutti_lstm_layer;

/** x, h -> y, the last h, shapes as tutti_rnn_layer; the parameters' first dimension is 3 hidden,
 *  in the order r z n. @source torch.nn.GRU */
TUTTI_API extern const tutti_module_ops_t tutti_gru_layer;

typedef struct tutti_rnn_cell_options {
    int64_t in, hidden;
    bool no_bias;
    tutti_rnn_nonlinearity_t nonlinearity; /**< of tutti_rnn_cell_layer */
} tutti_rnn_cell_options_t;

/** One step: x [B, in], h [B, hidden] -> h; "weight_ih" [hidden, in], "weight_hh", "bias_ih",
 *  "bias_hh". @source torch.nn.RNNCell */
TUTTI_API extern const tutti_module_ops_t tutti_rnn_cell_layer;

/** One step: x, h, c -> h, c. @source torch.nn.LSTMCell */
TUTTI_API extern const tutti_module_ops_t tutti_lstm_cell_layer;

/** One step: x, h -> h. @source torch.nn.GRUCell */
TUTTI_API extern const tutti_module_ops_t tutti_gru_cell_layer;

#ifdef __cplusplus
}
#endif

#endif
