/* Recurrent layers: names, pieces of a sequence, dropout between layers, cells, what is refused. */
#include "core/tensor/scope_testing.h"

#include <stdio.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "core/base/alloc.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 2, .seed = 5});
}

static tutti_module_t *create(tt_fixture_t *f, const tutti_module_ops_t *kind, const void *options)
{
    tutti_module_t *m;
    if (tutti_module_create(f->ctx, kind, options, &m) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return m;
}

static void expect_same(const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    assert_true(tutti_shape_equal(tutti_tensor_shape(a), tutti_tensor_shape(b)));
    for (int64_t i = 0; i < tutti_tensor_numel(a); i++) {
        assert_true(tutti_tensor_at(a, i) == tutti_tensor_at(b, i));
    }
}

static tutti_status_t append_name(void *user, const char *name, tutti_tensor_t *tensor)
{
    char *text = user, shape[64];
    const size_t used = strlen(text);
    snprintf(text + used, 512 - used, "%s %s\n", name,
             tutti_shape_format(tutti_tensor_shape(tensor), shape, sizeof shape));
    return TUTTI_OK;
}

/* The batch of a state is its second dimension, where that of x may be the first. */
static void a_sample_can_be_its_own_state(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 3, .hidden = 3, .layers = 2, .batch_first = true};
    tutti_module_t *m = create(f, &tutti_gru_layer, &options);
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3), 0, 1), *y[2], *same[2];
    tutti_forward_many(f->s, m, (tutti_tensor_t *[]){x, tutti_clone(f->s, x)}, 2, y, 2);
    tutti_forward_many(f->s, m, (tutti_tensor_t *[]){x, x}, 2, same, 2);
    assert_int_equal(tutti_scope_status(f->s), 0);
    expect_same(same[0], y[0]);
    expect_same(same[1], y[1]);
    tutti_module_release(m);
}

static void expect_names(tutti_module_t *m, const char *want)
{
    char names[512] = "";
    assert_int_equal(tutti_module_each_parameter(m, append_name, names), 0);
    assert_string_equal(names, want);
}

static void names_and_shapes_are_those_of_pytorch(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 5, .hidden = 2, .bidirectional = true, .layers = 2};
    tutti_module_t *m = create(f, &tutti_gru_layer, &options);
    expect_names(m, "weight_ih_l0 [6, 5]\nweight_hh_l0 [6, 2]\n"
                    "bias_ih_l0 [6]\nbias_hh_l0 [6]\n"
                    "weight_ih_l0_reverse [6, 5]\nweight_hh_l0_reverse [6, 2]\n"
                    "bias_ih_l0_reverse [6]\nbias_hh_l0_reverse [6]\n"
                    "weight_ih_l1 [6, 4]\nweight_hh_l1 [6, 2]\n"
                    "bias_ih_l1 [6]\nbias_hh_l1 [6]\n"
                    "weight_ih_l1_reverse [6, 4]\nweight_hh_l1_reverse [6, 2]\n"
                    "bias_ih_l1_reverse [6]\nbias_hh_l1_reverse [6]\n");
    for (int64_t i = 0; i < 12; i++) {
        const double w = tutti_tensor_at(tutti_module_find(m, "weight_hh_l1"), i);
        assert_true(w >= -0.70711 && w < 0.70711 && w != 0);
    }
    tutti_module_release(m);
}

static void a_projection_has_a_weight_of_its_own(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {
        .in = 5, .hidden = 4, .projection = 2, .bidirectional = true, .layers = 2, .no_bias = true};
    tutti_module_t *m = create(f, &tutti_lstm_layer, &options);
    expect_names(m, "weight_ih_l0 [16, 5]\nweight_hh_l0 [16, 2]\n"
                    "weight_hr_l0 [2, 4]\n"
                    "weight_ih_l0_reverse [16, 5]\nweight_hh_l0_reverse [16, 2]\n"
                    "weight_hr_l0_reverse [2, 4]\n"
                    "weight_ih_l1 [16, 4]\nweight_hh_l1 [16, 2]\n"
                    "weight_hr_l1 [2, 4]\n"
                    "weight_ih_l1_reverse [16, 4]\nweight_hh_l1_reverse [16, 2]\n"
                    "weight_hr_l1_reverse [2, 4]\n");
    tutti_tensor_t *in[] = {tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(3, 2, 5), 0, 1),
                            tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(4, 2, 2), 0, 1),
                            tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(4, 2, 4), 0, 1)};
    tutti_tensor_t *out[3];
    tutti_forward_many(f->s, m, in, 3, out, 3);
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_true(tutti_shape_equal(tutti_tensor_shape(out[0]), TUTTI_SHAPE(3, 2, 4)));
    assert_true(tutti_shape_equal(tutti_tensor_shape(out[1]), TUTTI_SHAPE(4, 2, 2)));
    assert_true(tutti_shape_equal(tutti_tensor_shape(out[2]), TUTTI_SHAPE(4, 2, 4)));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, out[0])), 0);
    assert_true(tutti_tensor_at(tutti_tensor_grad(tutti_module_find(m, "weight_hr_l0")), 0) != 0);
    tutti_module_release(m);
}

/* The last states go to the next piece, as without a projection. */
static void a_projected_sequence_in_pieces_gives_the_same_bits(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 5, .hidden = 6, .projection = 4};
    tutti_module_t *m = create(f, &tutti_lstm_layer, &options);
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(7, 2, 5), 0, 1);
    tutti_tensor_t *in[3] = {tutti_slice(f->s, x, 0, TUTTI_RANGE(0, 4)), NULL, NULL}, *out[3];
    tutti_forward_many(f->s, m, in, 3, out, 3);
    tutti_tensor_t *rest[] = {tutti_slice(f->s, x, 0, TUTTI_RANGE(4, 7)), out[1], out[2]};
    tutti_tensor_t *whole = tutti_forward(f->s, m, x), *last[3];
    tutti_forward_many(f->s, m, rest, 3, last, 3);
    expect_same(last[0], tutti_slice(f->s, whole, 0, TUTTI_RANGE(4, 7)));
    tutti_module_release(m);
}

static void expect_no_module(tt_fixture_t *f, const tutti_module_ops_t *kind,
                             const tutti_rnn_options_t *options, const char *text)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, kind, options, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), text));
}

static void projections_that_are_none_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t wide = {.in = 5, .hidden = 4, .projection = 4};
    const tutti_rnn_options_t fits = {.in = 5, .hidden = 4, .projection = 3};
    expect_no_module(f, &tutti_lstm_layer, &wide, "lstm: a projection to 4: it must be below");
    expect_no_module(f, &tutti_gru_layer, &fits, "gru: a projection is of lstm alone");
    expect_no_module(f, &tutti_rnn_layer, &fits, "rnn: a projection is of lstm alone");
}

static void a_sequence_in_pieces_gives_the_same_bits(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 5, .hidden = 7, .layers = 2};
    tutti_module_t *m = create(f, &tutti_lstm_layer, &options);
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(6, 3, 5), 0, 1);
    tutti_tensor_t *whole[3], *first[3], *second[3];
    tutti_forward_many(f->s, m, &x, 1, whole, 3);
    tutti_tensor_t *start = tutti_narrow(f->s, x, 0, 0, 2);
    tutti_forward_many(f->s, m, &start, 1, first, 3);
    tutti_tensor_t *const rest[] = {tutti_narrow(f->s, x, 0, 2, 4), first[1], first[2]};
    tutti_forward_many(f->s, m, rest, 3, second, 3);
    assert_int_equal(tutti_scope_status(f->s), 0);
    expect_same(tutti_narrow(f->s, whole[0], 0, 0, 2), first[0]);
    expect_same(tutti_narrow(f->s, whole[0], 0, 2, 4), second[0]);
    expect_same(whole[1], second[1]);
    expect_same(whole[2], second[2]);
    expect_same(tutti_select(f->s, whole[0], 0, -1), tutti_select(f->s, whole[1], 0, -1));
    tutti_module_release(m);
}

static void without_a_graph_the_bits_are_the_same(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 5, .hidden = 7};
    const tutti_module_ops_t *const kinds[] = {&tutti_rnn_layer, &tutti_lstm_layer,
                                               &tutti_gru_layer};
    for (int i = 0; i < 3; i++) {
        tutti_module_t *m = create(f, kinds[i], &options);
        tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(6, 3, 5), 0, 1);
        tutti_tensor_t *with = tutti_forward(f->s, m, x);
        (void)tutti_context_set_grad_enabled(f->ctx, false);
        expect_same(with, tutti_forward(f->s, m, x));
        (void)tutti_context_set_grad_enabled(f->ctx, true);
        tutti_module_release(m);
    }
}

static void cells_are_layers_of_one_step(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t layer = {.in = 4, .hidden = 3};
    const tutti_rnn_cell_options_t cell = {.in = 4, .hidden = 3};
    tutti_module_t *a = create(f, &tutti_lstm_layer, &layer);
    tutti_module_t *b = create(f, &tutti_lstm_cell_layer, &cell);
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_l0", names[i]);
        assert_int_equal(
            tutti_tensor_copy(tutti_module_find(b, names[i]), tutti_module_find(a, name)), 0);
    }
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(5, 2, 4), 0, 1), *out[3];
    tutti_forward_many(f->s, a, &x, 1, out, 3);
    tutti_tensor_t *in[3] = {NULL, NULL, NULL};
    for (int t = 0; t < 5; t++) {
        in[0] = tutti_select(f->s, x, 0, t);
        tutti_forward_many(f->s, b, in, 3, &in[1], 2);
        expect_same(in[1], tutti_select(f->s, out[0], 0, t));
    }
    expect_same(in[2], tutti_select(f->s, out[2], 0, 0));
    assert_int_equal(tutti_scope_status(f->s), 0);
    tutti_module_release(a);
    tutti_module_release(b);
}

static void dropout_is_between_layers_and_only_in_training(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_rnn_options_t options = {.in = 4, .hidden = 3, .layers = 2, .dropout = 1};
    tutti_module_t *m = create(f, &tutti_rnn_layer, &options);
    tutti_tensor_t *x = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1, 4), 0, 1);
    tutti_tensor_t *other = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1, 4), 0, 1);
    expect_same(tutti_forward(f->s, m, x),
                tutti_forward(f->s, m, other)); /* nothing gets through */
    tutti_context_set_training(f->ctx, false);
    tutti_tensor_t *a = tutti_forward(f->s, m, x), *b = tutti_forward(f->s, m, other);
    tutti_context_set_training(f->ctx, true);
    assert_true(tutti_tensor_at(a, 0) != tutti_tensor_at(b, 0));
    tutti_module_release(m);
}

static void expect_failure(tt_fixture_t *f, tutti_module_t *m, tutti_tensor_t *const *in, int count,
                           const char *text)
{
    tutti_scope_t *s;
    tutti_tensor_t *out[2];
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_forward_many(s, m, in, count, out, 1);
    assert_true(tutti_scope_close(s) < 0);
    if (strstr(tutti_last_error(), text) == NULL) {
        fail_msg("\"%s\" is not in: %s", text, tutti_last_error());
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    tt_fixture_t *f = *state;
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gru_layer, NULL, &m), TUTTI_ERR_ARG);
    const tutti_rnn_options_t many = {.in = 1, .hidden = 1, .layers = 33};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gru_layer, &many, &m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "gru: 33 layers: want 1 to 32"));
    for (int i = 0; i < 2; i++) {
        const tutti_rnn_options_t wrong = {.in = 1, .hidden = 1, .dropout = i == 0 ? -0.5F : 1.5F};
        assert_int_equal(tutti_module_create(f->ctx, &tutti_gru_layer, &wrong, &m), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "dropout"));
    }
    m = create(f, &tutti_gru_layer,
               &(tutti_rnn_options_t){.in = 4, .hidden = 3, .batch_first = true});
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 5, 3));
    expect_failure(f, m, &x, 1, "x must be [B, T, in], in being 4, not f32[2, 5, 3] (in gru)");
    tutti_tensor_t *in[] = {tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 5, 4)),
                            tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1, 5, 3)), NULL};
    expect_failure(f, m, in, 2,
                   "the first state must be [layers directions, B, hidden], [1, 2, 3], not f32[1, "
                   "5, 3]");
    expect_failure(f, m, in, 3, "gru takes one to 2 tensors and gives one to 2, not 3 and 1");
    tutti_module_release(m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(names_and_shapes_are_those_of_pytorch),
        TEST(a_sample_can_be_its_own_state),
        TEST(a_sequence_in_pieces_gives_the_same_bits),
        TEST(without_a_graph_the_bits_are_the_same),
        TEST(cells_are_layers_of_one_step),
        TEST(dropout_is_between_layers_and_only_in_training),
        TEST(what_does_not_fit_is_refused),
        TEST(a_projection_has_a_weight_of_its_own),
        TEST(a_projected_sequence_in_pieces_gives_the_same_bits),
        TEST(projections_that_are_none_are_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
