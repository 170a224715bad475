/* RNN, LSTM and GRU cells: a scan of one step. */
#include <tutti/nn_layers.h>
#include <tutti/op_shape.h>

#include "compute/nn/layers/recurrent_weights.h"
#include "compute/nn/layers/unbatched.h"
#include "core/base/fail.h"

typedef struct {
    tt_recurrent_sizes_t sizes;
    tt_recurrent_weights_t weights;
} cell_t;

static tutti_status_t init_kind(tutti_module_t *m, const tutti_rnn_cell_options_t *o,
                                tt_rnn_kind_t kind)
{
    cell_t *cell = tutti_module_state(m);
    if (o == NULL || o->in < 1 || o->hidden < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %lld in, %lld hidden: both must be at least 1",
                       tutti_module_kind(m)->name, o == NULL ? 0LL : (long long)o->in,
                       o == NULL ? 0LL : (long long)o->hidden);
    }
    cell->sizes = (tt_recurrent_sizes_t){.kind = kind,
                                         .nonlinearity = o->nonlinearity,
                                         .in = o->in,
                                         .hidden = o->hidden,
                                         .no_bias = o->no_bias};
    return tt_recurrent_weights_add(m, &cell->sizes, "", &cell->weights);
}

static tutti_status_t init_rnn_cell(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_RNN);
}

static tutti_status_t init_lstm_cell(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_LSTM);
}

static tutti_status_t init_gru_cell(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_GRU);
}

static tutti_status_t check_input(const cell_t *cell, const tutti_tensor_t *x)
{
    char text[160];
    const tutti_shape_t shape = tutti_tensor_shape(x);
    return shape.rank == 2 && shape.dims[1] == cell->sizes.in
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "x must be [B, in], in being %lld, not %s",
                         (long long)cell->sizes.in, tutti_tensor_describe(x, text, sizeof text));
}

static void run_batch(tutti_scope_t *s, const cell_t *cell, tutti_tensor_t *const *inputs,
                      int input_count, tutti_tensor_t **outputs, int output_count)
{
    const tutti_status_t status = check_input(cell, inputs[0]);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
        return;
    }
    tutti_tensor_t *c = NULL;
    const tutti_scan_t scan = {.x = tutti_unsqueeze(s, inputs[0], 0),
                               .h = input_count > 1 ? inputs[1] : NULL,
                               .c = input_count > 2 ? inputs[2] : NULL};
    tutti_tensor_t *y = tt_recurrent_run(s, &cell->sizes, &cell->weights, &scan, &c);
    outputs[0] = tutti_squeeze(s, y, 0);
    if (output_count > 1) {
        outputs[1] = c;
    }
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const cell_t *cell = tutti_module_state(m);
    const int states = cell->sizes.kind == TT_LSTM ? 2 : 1;
    if (input_count < 1 || input_count > 1 + states || output_count < 1 || output_count > states) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "%s takes one to %d tensors and gives one to %d, not %d "
                                          "and %d",
                                          tutti_module_kind(m)->name, 1 + states, states,
                                          input_count, output_count));
        return;
    }
    if (inputs[0] == NULL || tutti_tensor_rank(inputs[0]) != 1) {
        run_batch(s, cell, inputs, input_count, outputs, output_count);
        return;
    }
    static const tt_batch_place_t places[] = {{1, 0}, {1, 0}, {1, 0}};
    tutti_tensor_t *batched[3];
    tt_add_batch(s, inputs, input_count, places, batched);
    run_batch(s, cell, batched, input_count, outputs, output_count);
    tt_drop_batch(s, outputs, output_count, places);
}

const tutti_module_ops_t tutti_rnn_cell_layer = {
    .name = "rnn_cell",
    .about = "one step of a plain recurrent layer",
    .state_bytes = sizeof(cell_t),
    .init = init_rnn_cell,
    .forward_many = forward_many,
};

const tutti_module_ops_t tutti_lstm_cell_layer = {
    .name = "lstm_cell",
    .about = "one step of long short-term memory",
    .state_bytes = sizeof(cell_t),
    .init = init_lstm_cell,
    .forward_many = forward_many,
};

const tutti_module_ops_t tutti_gru_cell_layer = {
    .name = "gru_cell",
    .about = "one step of a gated recurrent layer",
    .state_bytes = sizeof(cell_t),
    .init = init_gru_cell,
    .forward_many = forward_many,
};
