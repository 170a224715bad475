/* Modules: names, order, initial values, scopes, sharing, saving and loading, what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    char folder[64], path[128];
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    snprintf(f.folder, sizeof f.folder, "/tmp/tutti-module-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/m.safetensors", f.folder);
    const tutti_context_options_t options = {.threads = 2, .seed = 5};
    assert_int_equal(tt_test_context(&options, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    (void)unlink(f->path);
    return rmdir(f->folder) == 0 && tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static void expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

static const tutti_gpt_options_t small = {
    .layers = 2, .width = 12, .heads = 3, .context = 8, .vocab = 20};

static tutti_module_t *create(fixture_t *f, const tutti_module_ops_t *ops, const void *options)
{
    tutti_module_t *m;
    if (tutti_module_create(f->ctx, ops, options, &m) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return m;
}

static tutti_status_t append_name(void *user, const char *name, tutti_tensor_t *tensor)
{
    char *text = user;
    (void)tensor;
    const size_t used = strlen(text);
    snprintf(text + used, 2048 - used, "%s ", name);
    return TUTTI_OK;
}

static void a_gpt_has_the_names_of_its_peer_in_their_order(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &small);
    char names[2048] = "";
    assert_int_equal(tutti_module_each_parameter(gpt, append_name, names), 0);
#define BLOCK(n)                                                                                   \
    "blocks." n ".ln1.weight blocks." n ".ln1.bias blocks." n ".ln2.weight blocks." n ".ln2.bias " \
    "blocks." n ".qkv.weight blocks." n ".qkv.bias blocks." n ".proj.weight blocks." n             \
    ".proj.bias blocks." n ".up.weight blocks." n ".up.bias blocks." n ".down.weight blocks." n    \
    ".down.bias "
    assert_string_equal(names, "tok.weight pos.weight " BLOCK("0")
                                   BLOCK("1") "ln.weight ln.bias head.weight ");
#undef BLOCK
    assert_int_equal(tutti_module_parameter_count(gpt), 2 + 2 * 12 + 3);
    const int64_t block = 4 * 12 + 12 * 36 + 36 + 12 * 12 + 12 + 12 * 48 + 48 + 48 * 12 + 12;
    assert_int_equal(tutti_module_numel(gpt), 20 * 12 + 8 * 12 + 2 * block + 24 + 20 * 12);
    assert_non_null(tutti_module_find(gpt, "blocks.1.proj.bias"));
    assert_null(tutti_module_find(gpt, "blocks.2.proj.bias"));
    tutti_module_release(gpt);
}

static double deviation_of(const tutti_tensor_t *x)
{
    const float *data = tt_test_host(x);
    const int64_t n = tutti_tensor_numel(x);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)data[i] * (double)data[i];
    }
    return sqrt(sum / (double)n);
}

static void initial_values_have_the_promised_spread(void **state)
{
    fixture_t *f = *state;
    const tutti_gpt_options_t options = {.layers = 8, .width = 128, .heads = 4};
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &options);
    const double deviation = 1 / sqrt(3 * 128.0);
    assert_true(fabs(deviation_of(tutti_module_find(gpt, "tok.weight")) / deviation - 1) < 0.02);
    assert_true(fabs(deviation_of(tutti_module_find(gpt, "blocks.3.qkv.weight")) / deviation - 1) <
                0.02);
    assert_true(fabs(deviation_of(tutti_module_find(gpt, "blocks.3.down.weight")) / deviation -
                     0.25) < 0.01);
    assert_true(deviation_of(tutti_module_find(gpt, "blocks.3.qkv.bias")) == 0);
    assert_true(tutti_tensor_at(tutti_module_find(gpt, "ln.weight"), 7) == 1);
    tutti_module_release(gpt);
    tutti_module_t *linear =
        create(f, &tutti_linear_layer, &(tutti_linear_options_t){.in = 100, .out = 300});
    const tutti_tensor_t *weight = tutti_module_find(linear, "weight");
    assert_true(fabs(deviation_of(weight) - 0.1 / sqrt(3)) < 0.001); /* U(±1/√100) */
    for (int64_t i = 0; i < tutti_tensor_numel(weight); i++) {
        assert_true(fabs(tutti_tensor_at(weight, i)) <= 0.1);
    }
    tutti_module_release(linear);
}

static void digest_with(uint64_t seed, int threads, char digest[TUTTI_DIGEST_BYTES])
{
    tutti_context_t *ctx;
    const tutti_context_options_t options = {.threads = threads, .seed = seed};
    assert_int_equal(tt_test_context(&options, &ctx), 0);
    tutti_module_t *gpt;
    assert_int_equal(tutti_module_create(ctx, &tutti_gpt_layer, &small, &gpt), 0);
    tutti_context_release(ctx);
    assert_int_equal(tutti_module_digest(gpt, digest), 0);
    tutti_module_release(gpt);
}

static void the_seed_alone_decides_the_initial_values(void **state)
{
    (void)state;
    char a[TUTTI_DIGEST_BYTES], b[TUTTI_DIGEST_BYTES], c[TUTTI_DIGEST_BYTES];
    digest_with(1, 1, a);
    digest_with(1, 3, b);
    digest_with(2, 1, c);
    assert_int_equal(strlen(a), 32);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
}

static void layers_of_one_context_begin_differently(void **state)
{
    fixture_t *f = *state;
    const tutti_linear_options_t options = {.in = 4, .out = 4};
    tutti_module_t *a = create(f, &tutti_linear_layer, &options);
    tutti_module_t *b = create(f, &tutti_linear_layer, &options);
    assert_memory_not_equal(tt_test_host(tutti_module_find(a, "weight")),
                            tt_test_host(tutti_module_find(b, "weight")), 64);
    tutti_module_release(a);
    tutti_module_release(b);
}

/* ---- a module of one's own ------------------------------------------------------------------- */

typedef struct {
    tutti_tensor_t *scale;
    tutti_module_t *inner;
} own_t;

static tutti_status_t own_init(tutti_module_t *m, const void *options)
{
    own_t *own = tutti_module_state(m);
    TUTTI_CHECK(tutti_module_new_parameter(m, "scale", TUTTI_SHAPE(3),
                                           (tutti_init_t){TUTTI_INIT_CONSTANT, 2, 0}, &own->scale));
    const tutti_linear_options_t linear = {.in = 3, .out = *(const int64_t *)options};
    return tutti_module_new_child(m, "inner", &tutti_linear_layer, &linear, &own->inner);
}

static void own_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                        int input_count, tutti_tensor_t **outputs, int output_count)
{
    const own_t *own = tutti_module_state(m);
    assert_int_equal(input_count, 2);
    assert_int_equal(output_count, 2);
    outputs[0] = tutti_mul(s, tutti_add(s, inputs[0], inputs[1]), own->scale);
    outputs[1] = tutti_forward(s, own->inner, outputs[0]);
}

static const tutti_module_ops_t own_ops = {
    .name = "own", .state_bytes = sizeof(own_t), .init = own_init, .forward_many = own_forward};

static void a_module_of_ones_own_takes_two_and_gives_two(void **state)
{
    fixture_t *f = *state;
    const int64_t out = 5;
    tutti_module_t *m = create(f, &own_ops, &out);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    tutti_tensor_t *inputs[] = {x, x}, *outputs[2];
    tutti_forward_many(f->s, m, inputs, 2, outputs, 2);
    assert_true(tutti_tensor_at(outputs[0], 0) == 4);
    assert_true(tutti_shape_equal(tutti_tensor_shape(outputs[1]), TUTTI_SHAPE(2, 5)));
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, outputs[0])), 0);
    assert_true(tutti_tensor_at(tutti_tensor_grad(tutti_module_find(m, "scale")), 1) == 4);
    assert_null(tutti_tensor_grad(tutti_module_find(m, "inner.weight")));
    tutti_module_release(m);
}

static void failing_children_leave_nothing_behind(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    const int64_t out = 0;
    assert_int_equal(tutti_module_create(f->ctx, &own_ops, &out, &m), TUTTI_ERR_ARG);
    expect_error("linear: 3 in, 0 out");
}

static void names_are_checked(void **state)
{
    fixture_t *f = *state;
    const int64_t out = 5;
    tutti_module_t *m = create(f, &own_ops, &out);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1));
    assert_int_equal(tutti_module_add_parameter(m, "a.b", x), TUTTI_ERR_ARG);
    expect_error("\"a.b\" must not contain a dot");
    assert_int_equal(tutti_module_add_buffer(m, "scale", x), TUTTI_ERR_ARG);
    expect_error("\"scale\" is taken");
    assert_int_equal(tutti_module_add_buffer(m, "shift", x), TUTTI_OK);
    assert_int_equal(tutti_module_add_parameter(m, "shift", x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_module_add_buffer(m, "", x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_module_add_child(m, "self", m), TUTTI_ERR_ARG);
    expect_error("would contain it");
    tutti_module_release(m);
}

static void a_failure_inside_says_where(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &small);
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *tokens = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(1, 9));
    tutti_tensor_t *y = tutti_forward(s, gpt, tokens);
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_SHAPE);
    y = tutti_forward(s, gpt, y); /* safe to pass on */
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
    expect_error("sequences of 9 tokens, but its context is 8");
    expect_error("longer context (in gpt_embedding in gpt)");
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tokens = tutti_full(s, TUTTI_I64, TUTTI_SHAPE(1, 4), 20);
    (void)tutti_forward(s, gpt, tokens);
    const tutti_status_t at_once = tutti_scope_close(s); /* a device tells it later */
    assert_int_equal(at_once < 0 ? at_once : tt_test_wait(f->ctx), TUTTI_ERR_ARG);
    expect_error(tt_test_device() == NULL ? "(in embedding in gpt_embedding in gpt)"
                                          : "embedding: ");
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *two[] = {tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(1, 4)), NULL}, *outputs[2];
    tutti_forward_many(s, gpt, two, 1, outputs, 2);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    expect_error("gpt takes one tensor and gives one, not 1 and 2");
    tutti_module_release(gpt);
}

static tutti_tensor_t *give_nothing(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    (void)s, (void)m, (void)x;
    return NULL;
}

static void a_forward_that_gives_nothing_is_an_error(void **state)
{
    fixture_t *f = *state;
    static const tutti_module_ops_t ops = {.name = "nothing", .forward = give_nothing};
    tutti_module_t *m = create(f, &ops, NULL);
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1));
        tutti_tensor_t *y = i == 0 ? tutti_forward(s, m, x) : tutti_recompute(s, m, x);
        assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
        expect_error("nothing: its forward gave nothing as output 0 (in nothing)");
    }
    tutti_module_release(m);
}

static void give_first(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                       int input_count, tutti_tensor_t **outputs, int output_count)
{
    (void)m, (void)input_count, (void)output_count;
    outputs[0] = tutti_exp(s, inputs[0]);
}

static void an_output_that_is_left_out_is_an_error(void **state)
{
    fixture_t *f = *state;
    static const tutti_module_ops_t ops = {.name = "half", .forward_many = give_first};
    tutti_module_t *m = create(f, &ops, NULL);
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1)), *y[2];
    tutti_forward_many(s, m, &x, 1, y, 2);
    assert_int_equal(tutti_tensor_status(y[1]), TUTTI_ERR_ARG);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    expect_error("half: its forward gave nothing as output 1 (in half)");
    tutti_module_release(m);
}

static void self_attention_names_what_it_was_given(void **state)
{
    fixture_t *f = *state;
    const tutti_self_attention_options_t options = {.width = 8, .heads = 2};
    tutti_module_t *m = create(f, &tutti_self_attention_layer, &options);
    const tutti_shape_t wrong[] = {TUTTI_SHAPE(5, 8), TUTTI_SHAPE(2, 5, 6)};
    static const char *const text[] = {"f32[5, 8] (in self_attention)",
                                       "f32[2, 5, 6] (in self_attention)"};
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        (void)tutti_forward(s, m, tutti_ones(s, TUTTI_F32, wrong[i]));
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
        expect_error("x must be [B, T, width], width being 8, not ");
        expect_error(text[i]);
    }
    tutti_module_release(m);
}

static void options_that_do_not_fit_say_what_to_change(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    const tutti_gpt_options_t heads = {.width = 101, .heads = 6};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gpt_layer, &heads, &m), TUTTI_ERR_ARG);
    expect_error("6 heads do not divide a width of 101: choose a width that is a multiple of 6, "
                 "such as 102");
    const tutti_self_attention_options_t many = {.width = 10, .heads = 4};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_self_attention_layer, &many, &m),
                     TUTTI_ERR_ARG);
    expect_error("choose a width that is a multiple of 4, such as 8, or other heads");
    const tutti_self_attention_options_t narrow = {.width = 3, .heads = 4};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_self_attention_layer, &narrow, &m),
                     TUTTI_ERR_ARG);
    expect_error("choose a width that is a multiple of 4, such as 4, or other heads");
    const tutti_gpt_options_t negative = {.layers = -1};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gpt_layer, &negative, &m), TUTTI_ERR_ARG);
    expect_error("layers is -1");
    const tutti_dropout_options_t p = {.p = 2};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_dropout_layer, &p, &m), TUTTI_ERR_ARG);
    const tutti_mlp_options_t mlp = {.width = 4, .dropout = -0.5f};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_mlp_layer, &mlp, &m), TUTTI_ERR_ARG);
    expect_error("mlp: dropout is -0.5: it must be from 0 to 1");
    const tutti_norm_options_t norm = {0};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_rms_norm_layer, &norm, &m), TUTTI_ERR_ARG);
    const tutti_activation_options_t activation = {.kind = (tutti_activation_t)99};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_activation_layer, &activation, &m),
                     TUTTI_ERR_ARG);
    expect_error("no activation 99");
}

/* ---- what training sees ---------------------------------------------------------------------- */

static double loss_of(fixture_t *f, tutti_module_t *gpt, bool backward)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    int64_t tokens[16];
    for (int i = 0; i < 16; i++) {
        tokens[i] = i * 7 % 20;
    }
    tutti_tensor_t *x = tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2, 8), tokens);
    tutti_tensor_t *loss = tutti_cross_entropy(s, tutti_forward(s, gpt, x), x);
    const double value = tutti_tensor_item(loss);
    if (backward) {
        assert_int_equal(tutti_backward(s, loss), 0);
    }
    if (tutti_scope_close(s) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return value;
}

static void a_gpt_begins_at_the_loss_of_chance(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &small);
    assert_true(fabs(loss_of(f, gpt, true) - log(20)) < 0.7);
    assert_true(deviation_of(tutti_tensor_grad(tutti_module_find(gpt, "blocks.0.up.bias"))) > 0);
    assert_true(deviation_of(tutti_tensor_grad(tutti_module_find(gpt, "pos.weight"))) > 0);
    tutti_module_release(gpt);
}

static void dropout_is_on_only_while_the_context_trains(void **state)
{
    fixture_t *f = *state;
    tutti_gpt_options_t options = small;
    options.dropout = 0.5f;
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &options);
    tutti_context_set_training(f->ctx, false);
    const double quiet = loss_of(f, gpt, false);
    assert_true(loss_of(f, gpt, false) == quiet);
    tutti_context_set_training(f->ctx, true);
    tutti_context_set_step(f->ctx, 1);
    const double first = loss_of(f, gpt, false);
    tutti_context_set_step(f->ctx, 1);
    assert_true(loss_of(f, gpt, false) == first);
    assert_true(first != quiet);
    tutti_context_set_step(f->ctx, 2);
    assert_true(loss_of(f, gpt, false) != first);
    tutti_module_release(gpt);
}

static void what_a_module_does_not_return_dies_with_its_graph(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &small);
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_I64, TUTTI_SHAPE(2, 8));
    (void)tutti_forward(f->s, gpt, x); /* fills the cache of freed memory */
    size_t before = tt_alloc_stats().blocks;
    (void)tutti_forward(f->s, gpt, x);
    const size_t of_forward = tt_alloc_stats().blocks - before;
    before = tt_alloc_stats().blocks;
    (void)tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 8, 20));
    assert_true(of_forward <= tt_alloc_stats().blocks - before);
    (void)tutti_context_set_grad_enabled(f->ctx, true);
    tutti_module_release(gpt);
}

static void frozen_parameters_get_no_gradient(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *gpt = create(f, &tutti_gpt_layer, &small);
    assert_int_equal(tutti_module_set_requires_grad(gpt, false), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(tutti_module_find(gpt, "head.weight"), true),
                     0);
    (void)loss_of(f, gpt, true);
    assert_null(tutti_tensor_grad(tutti_module_find(gpt, "tok.weight")));
    assert_non_null(tutti_tensor_grad(tutti_module_find(gpt, "head.weight")));
    tutti_module_zero_grad(gpt);
    assert_null(tutti_tensor_grad(tutti_module_find(gpt, "head.weight")));
    tutti_module_release(gpt);
}

static void a_shared_parameter_is_visited_once_and_saved_twice(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *all = create(f, &tutti_sequential_layer, NULL);
    tutti_module_t *linear;
    const tutti_linear_options_t options = {.in = 4, .out = 4, .no_bias = true};
    assert_int_equal(tutti_sequential_add(all, &tutti_linear_layer, &options, &linear), 0);
    assert_int_equal(tutti_module_add_child(all, "again", linear), 0);
    assert_int_equal(
        tutti_module_add_buffer(all, "mean", tutti_ones(f->s, TUTTI_F64, TUTTI_SHAPE(2))), 0);
    char names[2048] = "";
    assert_int_equal(tutti_module_each_parameter(all, append_name, names), 0);
    assert_string_equal(names, "0.weight ");
    names[0] = 0;
    assert_int_equal(tutti_module_each_tensor(all, append_name, names), 0);
    assert_string_equal(names, "mean 0.weight again.weight ");
    assert_int_equal(tutti_module_numel(all), 16);
    tutti_module_release(all);
}

/* ---- keeping --------------------------------------------------------------------------------- */

static void a_saved_gpt_comes_back_to_the_bit(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *a = create(f, &tutti_gpt_layer, &small);
    tutti_module_t *b = create(f, &tutti_gpt_layer, &small);
    char before[TUTTI_DIGEST_BYTES], after[TUTTI_DIGEST_BYTES];
    const tutti_named_text_t metadata = {"step", "3"};
    assert_int_equal(tutti_module_digest(a, before), 0);
    assert_int_equal(tutti_module_digest(b, after), 0);
    assert_string_not_equal(before, after);
    assert_int_equal(tutti_module_save(a, f->path, &metadata, 1), 0);
    assert_int_equal(tutti_module_load(b, f->path), 0);
    assert_int_equal(tutti_module_digest(b, after), 0);
    assert_string_equal(before, after);
    tutti_module_release(a);
    tutti_module_release(b);
}

static void a_file_of_another_model_is_refused_whole(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *a = create(f, &tutti_gpt_layer, &small);
    tutti_gpt_options_t options = small;
    options.layers = 1;
    options.vocab = 21;
    tutti_module_t *b = create(f, &tutti_gpt_layer, &options);
    assert_int_equal(tutti_module_save(a, f->path, NULL, 0), 0);
    char before[TUTTI_DIGEST_BYTES], after[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(b, before), 0);
    assert_int_equal(tutti_module_load(b, f->path), TUTTI_ERR_MISMATCH);
    expect_error("2 of another shape (tok.weight is [20, 12] in the file and [21, 12] here, ");
    expect_error("12 unexpected (blocks.1.ln1.weight, ");
    expect_error("make it with the sizes it was saved with");
    assert_int_equal(tutti_module_digest(b, after), 0);
    assert_string_equal(before, after);
    assert_int_equal(tutti_module_save(b, f->path, NULL, 0), 0);
    assert_int_equal(tutti_module_load(a, f->path), TUTTI_ERR_MISMATCH);
    expect_error("12 missing (blocks.1.ln1.weight, blocks.1.ln1.bias, blocks.1.ln2.weight, …)");
    tutti_module_release(a);
    tutti_module_release(b);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    const size_t before = tt_alloc_stats().blocks;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_module_t *gpt = NULL;
        char digest[TUTTI_DIGEST_BYTES];
        const tutti_gpt_options_t tiny = {
            .layers = 1, .width = 2, .heads = 1, .context = 2, .vocab = 2};
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_module_create(f->ctx, &tutti_gpt_layer, &tiny, &gpt);
        if (status >= 0) {
            status = tutti_module_digest(gpt, digest);
        }
        if (status >= 0) {
            status = tutti_module_save(gpt, f->path, NULL, 0);
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_module_release(gpt);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, before);
    }
}

static tutti_status_t expect_f32(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    (void)name;
    assert_true(tutti_tensor_dtype(x) == TUTTI_F32 || tutti_tensor_dtype(x) == TUTTI_I64);
    return TUTTI_OK;
}

static void a_cast_that_fails_changes_nothing(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_module_t *norm;
        const tutti_batch_norm_layer_options_t options = {.width = 2};
        assert_int_equal(tutti_module_create(f->ctx, &tutti_batch_norm_layer, &options, &norm), 0);
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_module_cast(norm, TUTTI_BF16);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (has_failed) {
            assert_int_equal(tutti_module_each_tensor(norm, expect_f32, NULL), 0);
        }
        tutti_module_release(norm);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_gpt_has_the_names_of_its_peer_in_their_order),
        TEST(initial_values_have_the_promised_spread),
        TEST(the_seed_alone_decides_the_initial_values),
        TEST(layers_of_one_context_begin_differently),
        TEST(a_module_of_ones_own_takes_two_and_gives_two),
        TEST(failing_children_leave_nothing_behind),
        TEST(names_are_checked),
        TEST(a_failure_inside_says_where),
        TEST(a_forward_that_gives_nothing_is_an_error),
        TEST(an_output_that_is_left_out_is_an_error),
        TEST(self_attention_names_what_it_was_given),
        TEST(options_that_do_not_fit_say_what_to_change),
        TEST(a_gpt_begins_at_the_loss_of_chance),
        TEST(dropout_is_on_only_while_the_context_trains),
        TEST(what_a_module_does_not_return_dies_with_its_graph),
        TEST(frozen_parameters_get_no_gradient),
        TEST(a_shared_parameter_is_visited_once_and_saved_twice),
        TEST(a_saved_gpt_comes_back_to_the_bit),
        TEST(a_file_of_another_model_is_refused_whole),
        TEST(no_allocation_that_fails_is_lost),
        TEST(a_cast_that_fails_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
