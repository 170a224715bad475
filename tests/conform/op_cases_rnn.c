/* Cases of op_nn.h. Their references are golden values. */
#include <tutti/op_nn.h>

#include "op_cases.h"

static tutti_scan_t scan_of(tutti_tensor_t *const *in, bool is_reverse)
{
    return (tutti_scan_t){
        .x = in[0], .weight = in[1], .bias = in[2], .h = in[3], .is_reverse = is_reverse};
}

static void call_rnn(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, false);
    out[0] = tutti_rnn_scan(s, &scan, TUTTI_RNN_TANH);
}

static void call_rnn_relu(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, true);
    out[0] = tutti_rnn_scan(s, &scan, TUTTI_RNN_RELU);
}

static void call_lstm(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_scan_t scan = scan_of(in, false);
    scan.c = in[4];
    out[0] = tutti_lstm_scan(s, &scan, &out[1]);
}

static void call_lstm_reverse(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, true);
    out[0] = tutti_lstm_scan(s, &scan, NULL);
}

static void call_lstm_cell(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, false);
    (void)tutti_lstm_scan(s, &scan, &out[0]);
}

static void call_projected(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    tutti_scan_t scan = scan_of(in, false);
    scan.c = in[4];
    scan.projection = in[5];
    out[0] = tutti_lstm_scan(s, &scan, &out[1]);
}

static void call_gru(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, false);
    out[0] = tutti_gru_scan(s, &scan);
}

static void call_gru_reverse(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_scan_t scan = scan_of(in, true);
    out[0] = tutti_gru_scan(s, &scan);
}

#define CASE(name, about) .op = name, .what = about
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }
#define MISSING                                                                                    \
    {                                                                                              \
        .is_missing = true                                                                         \
    }

const op_case_t op_cases_rnn[] = {
    {CASE("rnn_scan", ""), .input_count = 4, .inputs = {X(3, 2, 4), X(4, 4), X(4), X(2, 4)},
     .call = call_rnn},
    {CASE("rnn_scan", "relu, the other way"), .input_count = 4,
     .inputs = {X(3, 2, 3), X(3, 3), X(3), X(2, 3)}, .call = call_rnn_relu},
    {CASE("rnn_scan", "without bias and state"), .input_count = 4,
     .inputs = {X(3, 2, 3), X(3, 3), MISSING, MISSING}, .call = call_rnn},
    {CASE("rnn_scan", "empty"), .input_count = 4, .inputs = {X(3, 0, 3), X(3, 3), X(3), X(0, 3)},
     .call = call_rnn},

    {CASE("lstm_scan", ""), .input_count = 5, .output_count = 2,
     .inputs = {X(3, 2, 12), X(12, 3), X(12), X(2, 3), X(2, 3)}, .call = call_lstm},
    {CASE("lstm_scan", "one step"), .input_count = 5, .output_count = 2,
     .inputs = {X(1, 2, 8), X(8, 2), X(8), X(2, 2), X(2, 2)}, .call = call_lstm},
    {CASE("lstm_scan", "the other way, without bias and state"), .input_count = 4,
     .inputs = {X(3, 2, 8), X(8, 2), MISSING, MISSING}, .call = call_lstm_reverse},
    {CASE("lstm_scan", "the last cell alone"), .input_count = 4,
     .inputs = {X(2, 2, 8), X(8, 2), X(8), X(2, 2)}, .call = call_lstm_cell},
    {CASE("lstm_scan", "empty"), .input_count = 5, .output_count = 2,
     .inputs = {X(3, 0, 8), X(8, 2), X(8), X(0, 2), X(0, 2)}, .call = call_lstm},
    {CASE("lstm_scan", "projected"), .input_count = 6, .output_count = 2,
     .inputs = {X(3, 2, 12), X(12, 2), X(12), X(2, 2), X(2, 3), X(2, 3)}, .call = call_projected},
    {CASE("lstm_scan", "projected, without bias and state"), .input_count = 6, .output_count = 2,
     .inputs = {X(2, 2, 12), X(12, 1), MISSING, MISSING, MISSING, X(1, 3)}, .call = call_projected},
    {CASE("lstm_scan", "projected, empty"), .input_count = 6, .output_count = 2,
     .inputs = {X(3, 0, 8), X(8, 1), X(8), X(0, 1), X(0, 2), X(1, 2)}, .call = call_projected},

    {CASE("gru_scan", ""), .input_count = 4, .inputs = {X(3, 2, 9), X(9, 3), X(9), X(2, 3)},
     .call = call_gru},
    {CASE("gru_scan", "the other way"), .input_count = 4,
     .inputs = {X(3, 2, 6), X(6, 2), X(6), X(2, 2)}, .call = call_gru_reverse},
    {CASE("gru_scan", "without bias and state"), .input_count = 4,
     .inputs = {X(2, 2, 6), X(6, 2), MISSING, MISSING}, .call = call_gru},
    {CASE("gru_scan", "empty"), .input_count = 4, .inputs = {X(3, 0, 6), X(6, 2), X(6), X(0, 2)},
     .call = call_gru},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, tutti_shape_t shape)
{
    return tutti_ones(s, TUTTI_F32, shape);
}

static void scan_of_no_steps(tutti_scope_t *s)
{
    (void)tutti_gru_scan(
        s, &(tutti_scan_t){.x = f32(s, TUTTI_SHAPE(0, 2, 6)), .weight = f32(s, TUTTI_SHAPE(6, 2))});
}

static void scan_of_a_wrong_weight(tutti_scope_t *s)
{
    (void)tutti_lstm_scan(
        s, &(tutti_scan_t){.x = f32(s, TUTTI_SHAPE(3, 2, 8)), .weight = f32(s, TUTTI_SHAPE(8, 4))},
        NULL);
}

static void scan_of_a_wrong_projection(tutti_scope_t *s)
{
    (void)tutti_lstm_scan(s,
                          &(tutti_scan_t){.x = f32(s, TUTTI_SHAPE(3, 2, 8)),
                                          .weight = f32(s, TUTTI_SHAPE(8, 3)),
                                          .projection = f32(s, TUTTI_SHAPE(2, 3))},
                          NULL);
}

static void scan_of_a_wrong_bias(tutti_scope_t *s)
{
    (void)tutti_rnn_scan(s,
                         &(tutti_scan_t){.x = f32(s, TUTTI_SHAPE(3, 2, 4)),
                                         .weight = f32(s, TUTTI_SHAPE(4, 4)),
                                         .bias = f32(s, TUTTI_SHAPE(3))},
                         TUTTI_RNN_TANH);
}

static void scan_of_a_wrong_state(tutti_scope_t *s)
{
    (void)tutti_gru_scan(s, &(tutti_scan_t){.x = f32(s, TUTTI_SHAPE(3, 2, 6)),
                                            .weight = f32(s, TUTTI_SHAPE(6, 2)),
                                            .h = f32(s, TUTTI_SHAPE(1, 2))});
}

const op_error_t op_errors_rnn[] = {
    {"gru_scan", scan_of_no_steps,
     "gru_scan: x must be [T, B, 3 H] with at least one step: f32[0, 2, 6], f32[6, 2], none and "
     "none"},
    {"lstm_scan", scan_of_a_wrong_weight,
     "lstm_scan: weight must be [4 H, H], its rows as long as x's last dimension: f32[3, 2, 8], "
     "f32[8, 4], none, none, none and none"},
    {"lstm_scan", scan_of_a_wrong_projection,
     "lstm_scan: a projection must be [P, H], [3, 2]: f32[3, 2, 8], f32[8, 3], none, none, none "
     "and "
     "f32[2, 3]"},
    {"rnn_scan", scan_of_a_wrong_bias,
     "rnn_scan: bias must be [1 H], [4]: f32[3, 2, 4], f32[4, 4], f32[3] and none"},
    {"gru_scan", scan_of_a_wrong_state,
     "gru_scan: a state must be [B, H], [2, 2]: f32[3, 2, 6], f32[6, 2], none and f32[1, 2]"},
};

OP_CASE_LISTS(rnn);
