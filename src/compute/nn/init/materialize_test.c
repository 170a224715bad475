/* Modules without memory: built, counted, described; materialized as if they had been built where
 * they come to lie. */
#include "core/base/testing.h"

#include <time.h>

#include <tutti/tutti.h>

enum { SEED = 9 };

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
} place_t;

static place_t begin(const char *name)
{
    place_t at = {0};
    assert_int_equal(tutti_device_open(name, NULL, &at.device), TUTTI_OK);
    const tutti_context_options_t options = {.threads = 1, .seed = SEED, .device = at.device};
    assert_int_equal(tutti_context_create(&options, &at.ctx), TUTTI_OK);
    return at;
}

static void end(place_t *at)
{
    tutti_context_release(at->ctx);
    tutti_device_release(at->device);
}

/* Every way in which a parameter or a buffer can begin. */
static tutti_status_t init_zoo(tutti_module_t *m, const void *options)
{
    const tutti_linear_options_t normal = {.in = 7, .out = 5, .std = 0.02};
    const tutti_batch_norm_layer_options_t norm = {.width = 5};
    const tutti_embedding_options_t padded = {
        .count = 6, .width = 5, .lookup = {.has_padding = true, .padding = -2}};
    static const char *const names[] = {"xavier", "trunc",    "ortho", "flat",
                                        "eye",    "constant", "wide",  "plain"};
    tutti_tensor_t *x[8];
    tutti_context_t *ctx = *(tutti_context_t *const *)options;
    TUTTI_CHECK(tutti_module_new_child(m, "uniform", &tutti_linear_layer,
                                       &(tutti_linear_options_t){.in = 7, .out = 5}, NULL));
    TUTTI_CHECK(tutti_module_new_child(m, "normal", &tutti_linear_layer, &normal, NULL));
    TUTTI_CHECK(tutti_module_new_child(m, "norm", &tutti_batch_norm_layer, &norm, NULL));
    TUTTI_CHECK(tutti_module_new_child(m, "padded", &tutti_embedding_layer, &padded, NULL));
    for (int i = 0; i < 8; i++) {
        TUTTI_CHECK(tutti_module_new_parameter(m, names[i], TUTTI_SHAPE(6, 4),
                                               (tutti_init_t){TUTTI_INIT_NORMAL, 1, 2}, &x[i]));
    }
    TUTTI_CHECK(tutti_init_xavier_uniform(ctx, x[0], 2));
    TUTTI_CHECK(tutti_init_trunc_normal(ctx, x[1], NULL));
    TUTTI_CHECK(tutti_init_orthogonal(ctx, x[2], 3));
    TUTTI_CHECK(tutti_init_uniform(ctx, x[3], -0.7, 1));
    TUTTI_CHECK(tutti_init_eye(x[4]));
    TUTTI_CHECK(tutti_init_constant(x[5], 0.1));
    TUTTI_CHECK(tutti_init_kaiming_normal(ctx, x[6], NULL));
    return tutti_module_add_parameter(m, "tied", x[7]);
}

static const tutti_module_ops_t zoo = {.name = "zoo", .init = init_zoo};

static tutti_module_t *build(tutti_context_t *ctx)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(ctx, &zoo, &ctx, &m), TUTTI_OK);
    return m;
}

static void expect_bits(tutti_module_t *got, tutti_module_t *want)
{
    static const char *const buffers[] = {"norm.running_mean", "norm.running_var",
                                          "norm.num_batches_tracked"};
    char a[TUTTI_DIGEST_BYTES], b[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(got, a), TUTTI_OK);
    assert_int_equal(tutti_module_digest(want, b), TUTTI_OK);
    assert_string_equal(a, b);
    for (int i = 0; i < 3; i++) {
        const tutti_tensor_t *x = tutti_module_find(got, buffers[i]);
        const tutti_tensor_t *y = tutti_module_find(want, buffers[i]);
        assert_int_equal(tutti_tensor_dtype(x), tutti_tensor_dtype(y));
        assert_true(tutti_tensor_at(x, 0) == tutti_tensor_at(y, 0));
    }
}

static tutti_status_t materialize_on_host(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    return tutti_tensor_materialize(user, x, NULL);
}

static void a_module_gets_the_bits_of_the_whole_construction(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "strict:0"};
    for (int i = 0; i < 4; i++) {
        place_t meta = begin("meta"), other = begin(names[i % 2]);
        tutti_module_t *m = build(meta.ctx), *want = build(other.ctx);
        tutti_tensor_t *held = tutti_module_find(m, "normal.weight");
        char text[TUTTI_DIGEST_BYTES];
        assert_int_equal(tutti_module_digest(m, text), TUTTI_ERR_STATE);
        if (i >= 2) {
            assert_int_equal(tutti_module_cast(m, TUTTI_BF16), TUTTI_OK);
            assert_int_equal(tutti_module_cast(want, TUTTI_BF16), TUTTI_OK);
        }
        assert_int_equal(i % 2 == 0 ? tutti_module_each_tensor(m, materialize_on_host, meta.ctx)
                                    : tutti_module_materialize(m, other.device),
                         TUTTI_OK);
        expect_bits(m, want);
        assert_ptr_equal(tutti_module_find(m, "normal.weight"), held);
        assert_true(tutti_tensor_requires_grad(held));
        assert_ptr_equal(tutti_tensor_device(held), tutti_context_device(other.ctx));
        assert_int_equal(tutti_device_stats(meta.device).live_bytes, 0);
        tutti_module_release(m);
        tutti_module_release(want);
        end(&other);
        end(&meta);
    }
}

/* One that is materialized computes as the other does, by a context of its device. */
static void a_materialized_module_computes(void **state)
{
    (void)state;
    place_t meta = begin("meta"), host = begin("cpu");
    const tutti_gpt_options_t options = {
        .vocab = 11, .context = 8, .width = 8, .heads = 2, .layers = 2};
    tutti_module_t *m, *want;
    double losses[2];
    assert_int_equal(tutti_module_create(meta.ctx, &tutti_gpt_layer, &options, &m), TUTTI_OK);
    assert_int_equal(tutti_module_create(host.ctx, &tutti_gpt_layer, &options, &want), TUTTI_OK);
    assert_int_equal(tutti_module_materialize(m, NULL), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(host.ctx, &s), TUTTI_OK);
        tutti_tensor_t *ids = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(2, 8));
        tutti_tensor_t *y = tutti_mean(s, tutti_forward(s, i == 0 ? m : want, ids));
        assert_int_equal(tutti_backward(s, y), TUTTI_OK);
        losses[i] = tutti_tensor_item(y);
        assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    }
    assert_true(losses[0] == losses[1]);
    tutti_module_release(m);
    tutti_module_release(want);
    end(&host);
    end(&meta);
}

/* 96 blocks of 12 width² and more. */
static const tutti_gpt_options_t huge = {
    .vocab = 50257, .context = 2048, .width = 9312, .heads = 96, .layers = 96};

static void a_hundred_billion_parameters_cost_no_memory(void **state)
{
    (void)state;
    place_t meta = begin("meta"), host = begin("cpu");
    const tutti_gpt_options_t small = {
        .vocab = 5, .context = 2, .width = 96, .heads = 96, .layers = 96};
    tutti_module_t *m, *tiny;
    const size_t before = tt_alloc_stats().bytes, count = tt_alloc_stats().allocations;
    assert_int_equal(tutti_module_create(meta.ctx, &tutti_gpt_layer, &small, &tiny), TUTTI_OK);
    const size_t of_tiny = tt_alloc_stats().allocations - count;
    tutti_module_release(tiny);
    const clock_t start = clock();
    assert_int_equal(tutti_module_create(meta.ctx, &tutti_gpt_layer, &huge, &m), TUTTI_OK);
    assert_int_equal(tt_alloc_stats().allocations - count, 2 * of_tiny); /* sizes cost nothing */
    assert_true(tt_alloc_stats().bytes - before < 4 << 20);
    assert_true(tutti_module_numel(m) > INT64_C(100000000000));
    assert_int_equal(tutti_device_stats(meta.device).live_bytes, 4 * tutti_module_numel(m));
    char text[256];
    assert_true(tutti_module_describe(m, text, sizeof text) > sizeof text);
    assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
    tutti_tensor_t *x = tutti_module_find(m, "blocks.95.ln2.weight");
    assert_non_null(x);
    assert_int_equal(tutti_tensor_materialize(host.ctx, x, NULL), TUTTI_OK);
    assert_true(tutti_tensor_at(x, 9311) == 1);
    tutti_module_release(m);
    end(&host);
    end(&meta);
}

/* Of a chain of n × n matrices no more is in memory than those that are kept, and what makes one.
 */
static void the_peak_is_that_of_one_parameter(void **state)
{
    (void)state;
    enum { N = 64, BYTES = N * N * 4, COUNT = 6 };
    place_t meta = begin("meta"), strict = begin("strict:0");
    tutti_module_t *m[COUNT];
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(tutti_module_create(
                             meta.ctx, &tutti_linear_layer,
                             &(tutti_linear_options_t){.in = N, .out = N, .no_bias = true}, &m[i]),
                         TUTTI_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        tutti_tensor_t *x = tutti_module_find(m[i], "weight");
        assert_int_equal(tutti_tensor_materialize(meta.ctx, x, strict.device), TUTTI_OK);
        assert_int_equal(tutti_device_stats(strict.device).peak_bytes, BYTES);
        assert_int_equal(tutti_device_stats(meta.device).live_bytes, BYTES * (COUNT - 1 - i));
        tutti_module_release(m[i]);
    }
    end(&strict);
    end(&meta);
}

static void a_description_has_a_line_for_each_module(void **state)
{
    (void)state;
    place_t meta = begin("meta");
    tutti_module_t *m = build(meta.ctx);
    char text[1024], half[64];
    const size_t bytes = tutti_module_describe(m, text, sizeof text);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(
        text, "zoo                                                   312 parameters               "
              "1296 bytes\n"
              "  uniform: linear                                      40 parameters                "
              "160 bytes\n"
              "  normal: linear                                       40 parameters                "
              "160 bytes\n"
              "  norm: batch_norm                                     10 parameters                "
              " 88 bytes\n"
              "  padded: embedding                                    30 parameters                "
              "120 bytes\n");
    assert_int_equal(tutti_module_describe(m, half, sizeof half), bytes);
    assert_memory_equal(half, text, sizeof half - 1);
    assert_int_equal(half[sizeof half - 1], 0);
    assert_int_equal(tutti_module_describe(m, NULL, 0), bytes);
    tutti_module_release(m);
    end(&meta);
}

static void what_is_not_known_is_refused(void **state)
{
    (void)state;
    place_t meta = begin("meta");
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(meta.ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
    tutti_tensor_t *row = tutti_slice(s, x, 0, (tutti_range_t){.start = 1, .stop = 2, .step = 1});
    assert_int_equal(tutti_tensor_materialize(meta.ctx, row, NULL), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "materialize: the tensor, f32[1, 3], is a part of another tensor");
    assert_int_equal(tutti_tensor_materialize(meta.ctx, x, meta.device), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "materialize: meta has no memory for the tensor");
    assert_int_equal(tutti_tensor_materialize(meta.ctx, tutti_exp(s, x), NULL), TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "materialize: the values of the tensor, f32[2, 3], are "
                                            "not known: it was not made by an initializer");
    assert_int_equal(tutti_tensor_fill(row, 2), TUTTI_OK);
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(meta.ctx, &tutti_batch_norm_layer,
                                         &(tutti_batch_norm_layer_options_t){.width = 3}, &m),
                     TUTTI_OK);
    assert_int_equal(tutti_module_add_buffer(m, "mask", x), TUTTI_OK);
    assert_int_equal(tutti_module_materialize(m, NULL), TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "materialize: the values of mask, f32[2, 3], are not "
                                            "known: it was written after its initializer");
    assert_int_equal(tutti_tensor_fill(x, 2), TUTTI_OK);
    assert_int_equal(tutti_module_materialize(m, NULL), TUTTI_OK);
    assert_true(tutti_tensor_at(x, 5) == 2 && tutti_tensor_at(row, 2) == 2);
    tutti_module_release(m);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    end(&meta);
}

static void without_memory_a_tensor_stays_on_meta(void **state)
{
    (void)state;
    place_t meta = begin("meta");
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_module_t *m = build(meta.ctx);
        assert_int_equal(tutti_module_cast(m, TUTTI_BF16), TUTTI_OK);
        tutti_tensor_t *x = tutti_module_find(m, "ortho");
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tutti_tensor_materialize(meta.ctx, x, NULL);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tutti_tensor_device(x) != NULL, has_failed);
        tutti_module_release(m);
    }
    end(&meta);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_gets_the_bits_of_the_whole_construction),
        cmocka_unit_test(a_materialized_module_computes),
        cmocka_unit_test(a_hundred_billion_parameters_cost_no_memory),
        cmocka_unit_test(the_peak_is_that_of_one_parameter),
        cmocka_unit_test(a_description_has_a_line_for_each_module),
        cmocka_unit_test(what_is_not_known_is_refused),
        cmocka_unit_test(without_memory_a_tensor_stays_on_meta),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
