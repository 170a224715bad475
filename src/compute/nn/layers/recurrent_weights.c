/* One recurrent layer in one direction. The products of all inputs are one linear operation. */
#include "compute/nn/layers/recurrent_weights.h"

#include <math.h>
#include <stdio.h>

#include <tutti/op_math.h>

#include "core/base/fail.h"

enum { NAME_BYTES = 48 };

static const int gates_of[] = {[TT_RNN] = 1, [TT_LSTM] = 4, [TT_GRU] = 3};

static tutti_status_t add(tutti_module_t *m, const char *name, const char *suffix,
                          tutti_shape_t shape, double bound, tutti_tensor_t **out)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    return tutti_module_new_parameter(m, full, shape,
                                      (tutti_init_t){TUTTI_INIT_UNIFORM, -bound, bound}, out);
}

tutti_status_t tt_recurrent_weights_add(tutti_module_t *m, const tt_recurrent_sizes_t *sizes,
                                        const char *suffix, tt_recurrent_weights_t *out)
{
    const int64_t rows = gates_of[sizes->kind] * sizes->hidden;
    const double bound = 1 / sqrt((double)sizes->hidden);
    TT_TRY(add(m, "weight_ih", suffix, TUTTI_SHAPE(rows, sizes->in), bound, &out->weight_ih));
    const int64_t width = tt_recurrent_width(sizes);
    TT_TRY(add(m, "weight_hh", suffix, TUTTI_SHAPE(rows, width), bound, &out->weight_hh));
    if (!sizes->no_bias) {
        TT_TRY(add(m, "bias_ih", suffix, TUTTI_SHAPE(rows), bound, &out->bias_ih));
        TT_TRY(add(m, "bias_hh", suffix, TUTTI_SHAPE(rows), bound, &out->bias_hh));
    }
    return sizes->projection == 0 ? TUTTI_OK
                                  : add(m, "weight_hr", suffix, TUTTI_SHAPE(width, sizes->hidden),
                                        bound, &out->weight_hr);
}

tutti_tensor_t *tt_recurrent_run(tutti_scope_t *s, const tt_recurrent_sizes_t *sizes,
                                 const tt_recurrent_weights_t *weights, const tutti_scan_t *scan,
                                 tutti_tensor_t **c)
{
    tutti_scan_t full = *scan;
    full.x = tutti_linear(s, scan->x, weights->weight_ih, weights->bias_ih);
    full.weight = weights->weight_hh;
    full.bias = weights->bias_hh;
    full.projection = weights->weight_hr;
    switch (sizes->kind) {
    case TT_LSTM:
        return tutti_lstm_scan(s, &full, c);
    case TT_GRU:
        return tutti_gru_scan(s, &full);
    case TT_RNN:
        break;
    }
    return tutti_rnn_scan(s, &full, sizes->nonlinearity);
}
