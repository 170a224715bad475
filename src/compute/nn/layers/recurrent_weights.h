/* What recurrent layers and cells share: the parameters of one layer in one direction, and running
 * it over steps. */
#ifndef TT_RECURRENT_WEIGHTS_H
#define TT_RECURRENT_WEIGHTS_H

#include <tutti/nn_layers.h>

typedef enum { TT_RNN, TT_LSTM, TT_GRU } tt_rnn_kind_t;

typedef struct {
    tutti_tensor_t *weight_ih, *weight_hh, *bias_ih, *bias_hh; /* biases may be NULL */
    tutti_tensor_t *weight_hr;                                 /* NULL: no projection */
} tt_recurrent_weights_t;

typedef struct {
    tt_rnn_kind_t kind;
    tutti_rnn_nonlinearity_t nonlinearity;
    int64_t in, hidden;
    bool no_bias;
    int64_t projection; /* of an LSTM; 0: none */
} tt_recurrent_sizes_t;

/* Of a state. */
static inline int64_t tt_recurrent_width(const tt_recurrent_sizes_t *sizes)
{
    return sizes->projection > 0 ? sizes->projection : sizes->hidden;
}

/* Register the parameters, "weight_ih" and so on with a suffix. */
tutti_status_t tt_recurrent_weights_add(tutti_module_t *m, const tt_recurrent_sizes_t *sizes,
                                        const char *suffix, tt_recurrent_weights_t *out);

/* x [T, B, in] and states [B, width], NULL or not; gives y [T, B, width], and the last cell of an
 * LSTM in *c. */
tutti_tensor_t *tt_recurrent_run(tutti_scope_t *s, const tt_recurrent_sizes_t *sizes,
                                 const tt_recurrent_weights_t *weights, const tutti_scan_t *scan,
                                 tutti_tensor_t **c);

#endif
