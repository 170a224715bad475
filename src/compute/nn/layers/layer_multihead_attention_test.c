/* Attention layers where PyTorch's values do not reach: caches give what the whole gives, masks
 * that hide all, gradients of gradients, dropout, and what is refused. */
#include <math.h>
#include <string.h>

#include <tutti/modes.h>
#include <tutti/nn_transformer.h>
#include <tutti/op_attention.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_testing.h"

static tutti_tensor_t *leaf(tutti_scope_t *s, tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F64, shape, 0, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

/* A causal layer on one step after the other, each with the cache of those before. */
static void expect_cached(fixture_t *f, int64_t heads, int64_t kv_heads)
{
    enum { STEPS = 5 };
    tutti_scope_t *s = f->s;
    tutti_module_t *m;
    const tutti_multihead_attention_options_t o = {
        .width = 8, .heads = heads, .kv_heads = kv_heads, .batch_first = true, .causal = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &o, &m), 0);
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, STEPS, 8), 0, 1);
    tutti_tensor_t *whole = tutti_forward(s, m, x), *in[7] = {NULL}, *out[4];
    static const int64_t lengths[] = {2, 1, 2};
    for (int64_t i = 0, t = 0; t < STEPS; t += lengths[i++]) {
        in[0] = tutti_narrow(s, x, 1, t, lengths[i]);
        tutti_forward_many(s, m, in, 7, out, 4);
        assert_int_equal(tutti_scope_status(s), 0);
        assert_int_equal(tutti_tensor_dim(out[2], 1), kv_heads == 0 ? heads : kv_heads);
        assert_int_equal(tutti_tensor_dim(out[2], 2), t + lengths[i]);
        tutti_tensor_t *want = tutti_contiguous(s, tutti_narrow(s, whole, 1, t, lengths[i]));
        for (int64_t k = 0; k < tutti_tensor_numel(want); k++) {
            assert_true(fabs(tutti_tensor_at(out[0], k) - tutti_tensor_at(want, k)) < 1e-5);
        }
        in[5] = out[2];
        in[6] = out[3];
    }
    tutti_module_release(m);
}

static void caches_give_what_the_whole_gives(void **state)
{
    expect_cached(*state, 2, 0);
    expect_cached(*state, 4, 2);
    expect_cached(*state, 4, 1);
}

/* The learned key, and that of zeros, are none of a cache, and see every query. */
static void more_keys_stand_behind_a_cache(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    tutti_tensor_t *in[7] = {NULL}, *out[4];
    const tutti_multihead_attention_options_t o = {
        .width = 4, .heads = 2, .batch_first = true, .bias_kv = true, .zero_attention = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &o, &m), 0);
    in[0] = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(1, 3, 4), 0, 1);
    in[4] = tutti_ones(f->s, TUTTI_BOOL, TUTTI_SHAPE(1, 3)); /* of those given none counts */
    tutti_forward_many(f->s, m, in, 7, out, 4);
    assert_int_equal(tutti_scope_status(f->s), 0);
    assert_int_equal(tutti_tensor_dim(out[1], 3), 5);
    assert_int_equal(tutti_tensor_dim(out[2], 2), 3);
    for (int64_t i = 0; i < tutti_tensor_numel(out[1]); i++) {
        assert_true((tutti_tensor_at(out[1], i) > 0) == (i % 5 >= 3));
    }
    in[0] = tutti_narrow(f->s, in[0], 1, 0, 1);
    in[4] = NULL;
    in[5] = out[2];
    in[6] = out[3];
    tutti_forward_many(f->s, m, in, 7, out, 4);
    assert_int_equal(tutti_tensor_dim(out[1], 3), 6);
    assert_int_equal(tutti_tensor_dim(out[2], 2), 4);
    tutti_module_release(m);
}

/* The module whose heads share keys, and one whose have copies of them: weights and masks too. */
static void shared_keys_are_repeated_ones(void **state)
{
    enum { WIDTH = 8, HEADS = 4, D = WIDTH / HEADS };
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_module_t *shared, *all;
    tutti_multihead_attention_options_t o = {.width = WIDTH,
                                             .heads = HEADS,
                                             .kv_heads = 2,
                                             .key_width = 3,
                                             .value_width = 5,
                                             .batch_first = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &o, &shared), 0);
    o.kv_heads = 0;
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &o, &all), 0);
    static const char *const same[] = {"q_proj_weight", "out_proj.weight"};
    static const char *const repeated[] = {"k_proj_weight", "v_proj_weight"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            tutti_tensor_copy(tutti_module_find(all, same[i]), tutti_module_find(shared, same[i])),
            0);
        tutti_tensor_t *x = tutti_module_find(shared, repeated[i]), *rows[HEADS];
        for (int h = 0; h < HEADS; h++) {
            rows[h] = tutti_narrow(s, x, 0, h / 2 * D, D);
        }
        assert_int_equal(
            tutti_tensor_copy(tutti_module_find(all, repeated[i]), tutti_cat(s, rows, HEADS, 0)),
            0);
    }
    tutti_tensor_t *in[] = {tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, 3, WIDTH), 0, 1),
                            tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, 4, 3), 0, 1),
                            tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2, 4, 5), 0, 1),
                            tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(2 * HEADS, 3, 4), 0, 1)};
    tutti_tensor_t *x[2], *y[2];
    tutti_forward_many(s, shared, in, 4, x, 2);
    tutti_forward_many(s, all, in, 4, y, 2);
    assert_int_equal(tutti_scope_status(s), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_tensor_numel(x[i]), tutti_tensor_numel(y[i]));
        for (int64_t k = 0; k < tutti_tensor_numel(x[i]); k++) {
            assert_true(fabs(tutti_tensor_at(x[i], k) - tutti_tensor_at(y[i], k)) < 1e-6);
        }
    }
    tutti_module_release(shared);
    tutti_module_release(all);
}

static void a_query_without_keys_gives_zeros_and_no_gradient(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *q = leaf(s, TUTTI_SHAPE(1, 2, 3, 4)), *k = leaf(s, TUTTI_SHAPE(1, 2, 5, 4));
    tutti_tensor_t *mask = tutti_ones(s, TUTTI_BOOL, TUTTI_SHAPE(3, 5)), *grad;
    mask = tutti_tril(s, mask, -1); /* the first query sees all, the last a part */
    tutti_tensor_t *all = tutti_ones(s, TUTTI_BOOL, TUTTI_SHAPE(1, 5));
    mask = tutti_cat(s, (tutti_tensor_t *[]){all, tutti_narrow(s, mask, 0, 1, 2)}, 2, 0);
    const tutti_masked_attention_options_t o = {.mask = mask};
    tutti_tensor_t *y = tutti_masked_attention(s, q, k, k, &o, NULL);
    assert_int_equal(tutti_grad(s, tutti_sum(s, y), NULL, &q, 1, &grad), 0);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(tutti_tensor_at(y, i) == 0 && tutti_tensor_at(grad, i) == 0);
        assert_true(isfinite(tutti_tensor_at(y, 4 + i)) && tutti_tensor_at(y, 4 + i) != 0);
    }
}

static void call_masked(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out,
                        void *user)
{
    (void)user;
    const tutti_masked_attention_options_t o = {.mask = in[3], .causal = true};
    out[0] = tutti_masked_attention(s, in[0], in[1], in[2], &o, &out[1]);
}

static void gradients_have_gradients(void **state)
{
    fixture_t *f = *state;
    const tutti_gradient_check_options_t options = {.order = 2};
    for (int64_t heads = 2; heads <= 4; heads += 2) { /* with keys of their own, and shared ones */
        tutti_tensor_t *in[] = {leaf(f->s, TUTTI_SHAPE(1, heads, 2, 2)),
                                leaf(f->s, TUTTI_SHAPE(1, 2, 3, 2)),
                                leaf(f->s, TUTTI_SHAPE(1, 2, 3, 2)), leaf(f->s, TUTTI_SHAPE(2, 3))};
        if (tutti_gradient_check(f->ctx, call_masked, NULL, in, 4, 2, &options) < 0) {
            fail_msg("%s", tutti_last_error());
        }
    }
}

static void weights_are_dropped_while_training(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *q = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 2, 10, 4)), *w;
    const tutti_masked_attention_options_t o = {.dropout = 0.5F};
    int zeros = 0;
    (void)tutti_masked_attention(s, q, q, q, &o, &w);
    for (int64_t i = 0; i < tutti_tensor_numel(w); i++) {
        const double x = tutti_tensor_at(w, i);
        assert_true(x == 0 || fabs(x - 0.2) < 1e-6);
        zeros += x == 0;
    }
    assert_in_range(zeros, 120, 280);
    tutti_context_set_training(f->ctx, false);
    (void)tutti_masked_attention(s, q, q, q, &o, &w);
    tutti_context_set_training(f->ctx, true);
    assert_true(fabs(tutti_tensor_at(w, 7) - 0.1) < 1e-6);
}

/* A floating mask of zeros takes the other way; 1/√3 is no number of f32. */
static void both_ways_agree_in_f64(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s = f->s;
    tutti_tensor_t *q = tutti_normal(s, TUTTI_F64, TUTTI_SHAPE(2, 2, 4, 3), 0, 1);
    tutti_tensor_t *k = tutti_normal(s, TUTTI_F64, TUTTI_SHAPE(2, 2, 4, 3), 0, 1);
    const tutti_masked_attention_options_t masked = {
        .mask = tutti_zeros(s, TUTTI_F64, TUTTI_SHAPE(4, 4)), .causal = true};
    const tutti_masked_attention_options_t plain = {.causal = true};
    tutti_tensor_t *a = tutti_masked_attention(s, q, k, k, &masked, NULL);
    tutti_tensor_t *b = tutti_masked_attention(s, q, k, k, &plain, NULL);
    b = tutti_contiguous(s, b);
    for (int64_t i = 0; i < tutti_tensor_numel(a); i++) {
        assert_true(fabs(tutti_tensor_at(a, i) - tutti_tensor_at(b, i)) < 1e-14);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_failure(fixture_t *f,
                           tutti_tensor_t *(*call)(tutti_scope_t *s, tutti_module_t *m,
                                                   tutti_tensor_t *q),
                           tutti_status_t status, const char *text)
{
    tutti_scope_t *s;
    tutti_module_t *m;
    const tutti_multihead_attention_options_t o = {.width = 8, .heads = 2, .batch_first = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &o, &m), 0);
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    (void)call(s, m, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 2, 3, 4)));
    if (strstr(tutti_scope_error(s), text) == NULL) {
        fail_msg("%s: %s", text, tutti_scope_error(s));
    }
    assert_int_equal(tutti_scope_close(s), status);
    tutti_module_release(m);
}

static tutti_tensor_t *attend(tutti_scope_t *s, tutti_tensor_t *q, tutti_tensor_t *mask,
                              tutti_tensor_t *key_padding)
{
    const tutti_masked_attention_options_t o = {.mask = mask, .key_padding = key_padding};
    return tutti_masked_attention(s, q, q, q, &o, NULL);
}

static tutti_tensor_t *mask_of_other_keys(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)m;
    return attend(s, q, tutti_ones(s, TUTTI_BOOL, TUTTI_SHAPE(3, 4)), NULL);
}

static tutti_tensor_t *mask_of_numbers(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)m;
    return attend(s, q, tutti_ones(s, TUTTI_I64, TUTTI_SHAPE(3, 3)), NULL);
}

static tutti_tensor_t *padding_of_numbers(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)m;
    return attend(s, q, NULL, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 3)));
}

static tutti_tensor_t *padding_of_other_keys(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)m;
    return attend(s, q, NULL, tutti_ones(s, TUTTI_BOOL, TUTTI_SHAPE(1, 4)));
}

static tutti_tensor_t *keys_of_other_heads(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)m;
    return tutti_masked_attention(s, q, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 3, 3, 4)), q, NULL,
                                  NULL);
}

static tutti_tensor_t *steps_of_other_width(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    (void)q;
    return tutti_forward(s, m, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3, 7)));
}

static tutti_tensor_t *half_a_cache(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 3, 8)), *y;
    tutti_forward_many(s, m, (tutti_tensor_t *[]){x, NULL, NULL, NULL, NULL, q}, 6, &y, 1);
    return y;
}

static tutti_tensor_t *no_queries(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *q)
{
    tutti_tensor_t *y;
    (void)q;
    tutti_forward_many(s, m, (tutti_tensor_t *[]){NULL}, 1, &y, 1);
    return y;
}

/* Without its memory a decoder would attend to its own input once more. */
static void decoder_wants_its_memory(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    tutti_module_t *m;
    tutti_tensor_t *y;
    const tutti_transformer_options_t o = {.width = 8, .heads = 2, .hidden = 8, .layers = 1};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_decoder_layer, &o, &m), 0);
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 1, 8));
    tutti_forward_many(s, m, (tutti_tensor_t *[]){x, NULL}, 2, &y, 1);
    assert_non_null(strstr(tutti_scope_error(s), "decoder_block: the memory is NULL"));
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tutti_module_release(m);
}

static void what_is_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    expect_failure(f, mask_of_other_keys, TUTTI_ERR_SHAPE,
                   "the mask must be broadcast to [1, 2, 3, 3]: bool[3, 4]");
    expect_failure(f, mask_of_numbers, TUTTI_ERR_DTYPE,
                   "the mask must be bool, u8 or floating, not i64[3, 3]");
    expect_failure(f, padding_of_numbers, TUTTI_ERR_DTYPE,
                   "key_padding must be bool or u8, not f32[1, 3]");
    expect_failure(f, padding_of_other_keys, TUTTI_ERR_SHAPE,
                   "key_padding must be [1, 3]: bool[1, 4]");
    expect_failure(f, keys_of_other_heads, TUTTI_ERR_SHAPE,
                   "q must be [B, H, Tq, D], k and v [B, H, Tk, D]");
    expect_failure(f, steps_of_other_width, TUTTI_ERR_SHAPE,
                   "multihead_attention: input 0 must be [B, T, 8]");
    expect_failure(f, no_queries, TUTTI_ERR_ARG, "multihead_attention: the queries are NULL");
    expect_failure(f, half_a_cache, TUTTI_ERR_ARG, "a cache must have both keys and values");
    const tutti_multihead_attention_options_t odd = {.width = 8, .heads = 3};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &odd, &m),
                     TUTTI_ERR_ARG);
    const tutti_multihead_attention_options_t late = {
        .width = 8, .heads = 2, .causal = true, .zero_attention = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &late, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "multihead_attention: causal counts places from"));
    const tutti_multihead_attention_options_t apart = {.width = 8, .heads = 4, .kv_heads = 3};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_multihead_attention_layer, &apart, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(),
                           "multihead_attention: 3 heads of keys and values do not divide 4 "
                           "heads: choose a divisor of them"));
    const tutti_transformer_options_t wild = {.width = 8, .heads = 2, .dropout = 1};
    const tutti_transformer_options_t deep = {.width = 8, .heads = 2, .layers = (int64_t)1 << 32};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_encoder_layer, &deep, &m), TUTTI_ERR_ARG);
    assert_int_equal(tutti_module_create(f->ctx, &tutti_transformer_layer, &wild, &m),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "transformer: dropout is 1: it must be in [0, 1)"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(caches_give_what_the_whole_gives),
        TEST(more_keys_stand_behind_a_cache),
        TEST(shared_keys_are_repeated_ones),
        TEST(a_query_without_keys_gives_zeros_and_no_gradient),
        TEST(gradients_have_gradients),
        TEST(weights_are_dropped_while_training),
        TEST(both_ways_agree_in_f64),
        TEST(decoder_wants_its_memory),
        TEST(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
