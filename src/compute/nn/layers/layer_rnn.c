/* RNN, LSTM and GRU layers: several layers one on another, in one direction or both. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include <stdio.h>

#include "compute/nn/layers/recurrent_weights.h"
#include "compute/nn/layers/unbatched.h"
#include "core/base/alloc.h"
#include "core/base/fail.h"

enum { LAYERS_MAX = 32, SUFFIX_BYTES = 32 };

typedef struct {
    tutti_rnn_options_t options;
    tt_rnn_kind_t kind;
    int64_t directions;
    tt_recurrent_weights_t *weights; /* [layers, directions] */
} rnn_t;

/* ---- making ---------------------------------------------------------------------------------- */

/* Of an LSTM alone, as in PyTorch. */
static tutti_status_t check_projection(const char *name, const tutti_rnn_options_t *o,
                                       tt_rnn_kind_t kind)
{
    if (o->projection < 0 || o->projection >= o->hidden) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a projection to %lld: it must be below hidden, %lld",
                       name, (long long)o->projection, (long long)o->hidden);
    }
    return o->projection == 0 || kind == TT_LSTM
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: a projection is of lstm alone", name);
}

static tutti_status_t check_options(const char *name, const tutti_rnn_options_t *o)
{
    if (o == NULL || o->in < 1 || o->hidden < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %lld in, %lld hidden: both must be at least 1", name,
                       o == NULL ? 0LL : (long long)o->in, o == NULL ? 0LL : (long long)o->hidden);
    }
    if (o->layers < 0 || o->layers > LAYERS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %lld layers: want 1 to %d", name, (long long)o->layers,
                       LAYERS_MAX);
    }
    if (!(o->dropout >= 0 && o->dropout <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: dropout is %g: it must be from 0 to 1", name,
                       (double)o->dropout);
    }
    return TUTTI_OK;
}

/* As the parameters of a layer in a direction are called behind "weight_ih". */
static void format_suffix(char text[SUFFIX_BYTES], int64_t layer, int64_t direction)
{
    snprintf(text, SUFFIX_BYTES, "_l%lld%s", (long long)layer, direction > 0 ? "_reverse" : "");
}

/* Of a state. */
static int64_t width_of(const tutti_rnn_options_t *o)
{
    return o->projection > 0 ? o->projection : o->hidden;
}

static tt_recurrent_sizes_t sizes_of(const rnn_t *rnn, int64_t layer)
{
    const tutti_rnn_options_t *o = &rnn->options;
    return (tt_recurrent_sizes_t){.kind = rnn->kind,
                                  .nonlinearity = o->nonlinearity,
                                  .in = layer == 0 ? o->in : rnn->directions * width_of(o),
                                  .hidden = o->hidden,
                                  .no_bias = o->no_bias,
                                  .projection = o->projection};
}

static tutti_status_t init_kind(tutti_module_t *m, const tutti_rnn_options_t *options,
                                tt_rnn_kind_t kind)
{
    rnn_t *rnn = tutti_module_state(m);
    TT_TRY(check_options(tutti_module_kind(m)->name, options));
    TT_TRY(check_projection(tutti_module_kind(m)->name, options, kind));
    rnn->options = *options;
    rnn->options.layers = options->layers == 0 ? 1 : options->layers;
    rnn->kind = kind;
    rnn->directions = options->bidirectional ? 2 : 1;
    const int64_t count = rnn->options.layers * rnn->directions;
    rnn->weights = tt_alloc_array((size_t)count, sizeof *rnn->weights, "recurrent layers");
    TT_TRY_ALLOC(rnn->weights);
    for (int64_t i = 0; i < count; i++) {
        char suffix[SUFFIX_BYTES];
        const tt_recurrent_sizes_t sizes = sizes_of(rnn, i / rnn->directions);
        format_suffix(suffix, i / rnn->directions, i % rnn->directions);
        TT_TRY(tt_recurrent_weights_add(m, &sizes, suffix, &rnn->weights[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t init_rnn(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_RNN);
}

static tutti_status_t init_lstm(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_LSTM);
}

static tutti_status_t init_gru(tutti_module_t *m, const void *options)
{
    return init_kind(m, options, TT_GRU);
}

static void fini(tutti_module_t *m)
{
    const rnn_t *rnn = tutti_module_state(m);
    tt_free(rnn->weights);
}

/* ---- running --------------------------------------------------------------------------------- */

/* A forward under way. */
typedef struct {
    tutti_scope_t *s;
    const rnn_t *rnn;
    tutti_tensor_t *h, *c;                                           /* given, or NULL */
    tutti_tensor_t *last_h[2 * LAYERS_MAX], *last_c[2 * LAYERS_MAX]; /* of a direction each */
} run_t;

/* want: [layers directions, B, its width] */
static tutti_status_t check_state(const char *what, const tutti_tensor_t *state, tutti_shape_t want)
{
    char text[160];
    if (state == NULL || tutti_shape_equal(tutti_tensor_shape(state), want)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_SHAPE,
                   "the first %s must be [layers directions, B, hidden], [%lld, "
                   "%lld, %lld], not %s",
                   what, (long long)want.dims[0], (long long)want.dims[1], (long long)want.dims[2],
                   tutti_tensor_describe(state, text, sizeof text));
}

static tutti_status_t check_inputs(const run_t *run, const tutti_tensor_t *x)
{
    char text[160];
    const tutti_rnn_options_t *o = &run->rnn->options;
    const tutti_shape_t shape = tutti_tensor_shape(x);
    if (shape.rank != 3 || shape.dims[2] != o->in) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "x must be [%s, in], in being %lld, not %s",
                       o->batch_first ? "B, T" : "T, B", (long long)o->in,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    const int64_t batch = shape.dims[o->batch_first ? 0 : 1];
    const int64_t count = o->layers * run->rnn->directions;
    TT_TRY(check_state("state", run->h, TUTTI_SHAPE(count, batch, width_of(o))));
    return check_state("cell", run->c, TUTTI_SHAPE(count, batch, o->hidden));
}

/* x [T, B, ...] through one layer, in one direction; [T, B, width]. */
static tutti_tensor_t *run_direction(run_t *run, tutti_tensor_t *x, int64_t layer,
                                     int64_t direction)
{
    const int64_t i = layer * run->rnn->directions + direction;
    const tt_recurrent_sizes_t sizes = sizes_of(run->rnn, layer);
    const tutti_scan_t scan = {.x = x,
                               .h = run->h == NULL ? NULL : tutti_select(run->s, run->h, 0, i),
                               .c = run->c == NULL ? NULL : tutti_select(run->s, run->c, 0, i),
                               .is_reverse = direction > 0};
    tutti_tensor_t *y =
        tt_recurrent_run(run->s, &sizes, &run->rnn->weights[i], &scan, &run->last_c[i]);
    run->last_h[i] = tutti_select(run->s, y, 0, direction > 0 ? 0 : -1);
    return y;
}

static tutti_tensor_t *run_layers(run_t *run, tutti_tensor_t *x)
{
    const tutti_rnn_options_t *o = &run->rnn->options;
    for (int64_t layer = 0; layer < o->layers; layer++) {
        if (layer > 0 && o->dropout > 0) {
            x = tutti_dropout(run->s, x, o->dropout);
        }
        tutti_tensor_t *y = run_direction(run, x, layer, 0);
        if (o->bidirectional) {
            tutti_tensor_t *const both[] = {y, run_direction(run, x, layer, 1)};
            y = tutti_cat(run->s, both, 2, -1);
        }
        x = y;
    }
    return x;
}

static tutti_tensor_t *stack(run_t *run, tutti_tensor_t *const *states)
{
    return tutti_stack(run->s, states, (int)(run->rnn->options.layers * run->rnn->directions), 0);
}

static void run_batch(tutti_scope_t *s, const rnn_t *rnn, tutti_tensor_t *const *inputs,
                      int input_count, tutti_tensor_t **outputs, int output_count)
{
    run_t run = {.s = s,
                 .rnn = rnn,
                 .h = input_count > 1 ? inputs[1] : NULL,
                 .c = input_count > 2 ? inputs[2] : NULL};
    const bool is_batch_first = rnn->options.batch_first;
    const tutti_status_t status = check_inputs(&run, inputs[0]);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
        return;
    }
    tutti_tensor_t *x = is_batch_first ? tutti_transpose(s, inputs[0], 0, 1) : inputs[0];
    tutti_tensor_t *y = run_layers(&run, x);
    outputs[0] = is_batch_first ? tutti_transpose(s, y, 0, 1) : y;
    if (output_count > 1) {
        outputs[1] = stack(&run, run.last_h);
    }
    if (output_count > 2) {
        outputs[2] = stack(&run, run.last_c);
    }
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const rnn_t *rnn = tutti_module_state(m);
    const int most = rnn->kind == TT_LSTM ? 3 : 2;
    if (input_count < 1 || input_count > most || output_count < 1 || output_count > most) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "%s takes one to %d tensors and gives one to %d, not %d "
                                          "and %d",
                                          tutti_module_kind(m)->name, most, most, input_count,
                                          output_count));
        return;
    }
    if (inputs[0] == NULL || tutti_tensor_rank(inputs[0]) != 2) {
        run_batch(s, rnn, inputs, input_count, outputs, output_count);
        return;
    }
    const tt_batch_place_t places[] = {{2, rnn->options.batch_first ? 0 : 1}, {2, 1}, {2, 1}};
    tutti_tensor_t *batched[3];
    tt_add_batch(s, inputs, input_count, places, batched);
    run_batch(s, rnn, batched, input_count, outputs, output_count);
    tt_drop_batch(s, outputs, output_count, places);
}

const tutti_module_ops_t tutti_rnn_layer = {
    .name = "rnn",
    .about = "plain recurrent layers, tanh or ReLU",
    .state_bytes = sizeof(rnn_t),
    .init = init_rnn,
    .fini = fini,
    .forward_many = forward_many,
};

const tutti_module_ops_t tutti_lstm_layer = {
    .name = "lstm",
    .about = "recurrent layers with long short-term memory",
    .state_bytes = sizeof(rnn_t),
    .init = init_lstm,
    .fini = fini,
    .forward_many = forward_many,
};

const tutti_module_ops_t tutti_gru_layer = {
    .name = "gru",
    .about = "gated recurrent layers",
    .state_bytes = sizeof(rnn_t),
    .init = init_gru,
    .fini = fini,
    .forward_many = forward_many,
};
