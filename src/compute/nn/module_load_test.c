/* Loading a file into a module on meta: each tensor gets memory where the caller says, and the
 * file's values, one after the other. */
#include "core/base/testing.h"

#include <stdlib.h>
#include <unistd.h>

#include <tutti/tutti.h>

enum { N = 16, LINEARS = 6, MATRIX_BYTES = N * N * 4 };

typedef struct {
    char path[64];
    tutti_device_t *meta, *strict;
    tutti_context_t *host_ctx, *meta_ctx;
} fixture_t;

/* Six matrices, the first of them by two names, and a norm with buffers. */
static tutti_status_t init_chain(tutti_module_t *m, const void *options)
{
    const tutti_linear_options_t linear = {.in = N, .out = N, .no_bias = true};
    (void)options;
    for (int i = 0; i < LINEARS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        TUTTI_CHECK(tutti_module_new_child(m, name, &tutti_linear_layer, &linear, NULL));
    }
    TUTTI_CHECK(tutti_module_add_parameter(m, "tied", tutti_module_find(m, "0.weight")));
    return tutti_module_new_child(m, "norm", &tutti_batch_norm_layer,
                                  &(tutti_batch_norm_layer_options_t){.width = N}, NULL);
}

static const tutti_module_ops_t chain = {.name = "chain", .init = init_chain};

static tutti_module_t *build(tutti_context_t *ctx)
{
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(ctx, &chain, NULL, &m), TUTTI_OK);
    return m;
}

static int begin(void **state)
{
    static fixture_t f;
    f = (fixture_t){.path = "/tmp/tutti-load-XXXXXX"};
    const int descriptor = mkstemp(f.path);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(tutti_device_open("meta", NULL, &f.meta), TUTTI_OK);
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.strict), TUTTI_OK);
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 1}, &f.host_ctx),
        TUTTI_OK);
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 2, .device = f.meta},
                             &f.meta_ctx),
        TUTTI_OK);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_device_stats(f->meta).live_bytes, 0);
    tutti_context_release(f->meta_ctx);
    tutti_context_release(f->host_ctx);
    tutti_device_release(f->strict);
    tutti_device_release(f->meta);
    unlink(f->path);
    return 0;
}

/* On the host, and in the fixture's file. */
static tutti_module_t *build_saved(const fixture_t *f)
{
    tutti_module_t *m = build(f->host_ctx);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(m, "norm.running_mean"), 0.25), TUTTI_OK);
    assert_int_equal(tutti_module_save(m, f->path, NULL, 0), TUTTI_OK);
    return m;
}

static void expect_same(tutti_module_t *got, tutti_module_t *want)
{
    char a[TUTTI_DIGEST_BYTES], b[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(got, a), TUTTI_OK);
    assert_int_equal(tutti_module_digest(want, b), TUTTI_OK);
    assert_string_equal(a, b);
    assert_true(tutti_tensor_at(tutti_module_find(got, "norm.running_mean"), N - 1) == 0.25);
}

static void each_tensor_gets_memory_where_the_caller_says(void **state)
{
    const fixture_t *f = *state;
    tutti_module_t *want = build_saved(f);
    for (int i = 0; i < 6; i++) {
        tutti_device_t *device = i % 3 == 0 ? f->strict : NULL;
        tutti_module_t *m = build(f->meta_ctx);
        tutti_tensor_t *held = tutti_module_find(m, "3.weight");
        if (i == 3) {
            assert_int_equal(tutti_module_cast(want, TUTTI_BF16), TUTTI_OK);
        }
        if (i >= 3) {
            assert_int_equal(tutti_module_cast(m, TUTTI_BF16), TUTTI_OK);
        }
        assert_int_equal(i % 3 == 2 ? tutti_module_load(m, f->path)
                                    : tutti_module_load_to(m, f->path, device),
                         TUTTI_OK);
        expect_same(m, want);
        assert_ptr_equal(tutti_module_find(m, "3.weight"), held);
        assert_ptr_equal(tutti_tensor_device(held), device);
        assert_true(tutti_tensor_requires_grad(held));
        assert_ptr_equal(tutti_module_find(m, "tied"), tutti_module_find(m, "0.weight"));
        assert_int_equal(tutti_device_stats(f->meta).live_bytes, 0);
        tutti_module_release(m);
    }
    tutti_module_release(want);
}

/* Views and gradients: the former follow, the latter are gone. */
static void what_looks_into_a_tensor_sees_its_values(void **state)
{
    const fixture_t *f = *state;
    tutti_scope_t *s;
    tutti_module_t *want = build_saved(f), *m = build(f->meta_ctx);
    tutti_tensor_t *x = tutti_module_find(m, "2.weight");
    assert_int_equal(tutti_scope_open(f->meta_ctx, &s), TUTTI_OK);
    tutti_tensor_t *row =
        tutti_slice(s, tutti_detach(s, x), 0, (tutti_range_t){.start = 5, .stop = 6, .step = 1});
    assert_int_equal(tutti_tensor_set_grad(x, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(N, N))),
                     TUTTI_OK);
    assert_int_equal(tutti_module_load(m, f->path), TUTTI_OK);
    assert_null(tutti_tensor_grad(x));
    assert_true(tutti_tensor_at(row, 3) ==
                tutti_tensor_at(tutti_module_find(want, "2.weight"), 5 * N + 3));
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(m);
    tutti_module_release(want);
}

/* Each time that memory fails one tensor more than before, or as many, has left meta; nothing stays
 * of the one that was being read. */
static void no_more_than_one_tensor_is_under_way(void **state)
{
    const fixture_t *f = *state;
    tutti_module_t *want = build_saved(f);
    bool has_failed = true;
    size_t steps = 0, left_before = 0, kept = 0;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_module_t *m = build(f->meta_ctx);
        left_before = nth == 1 ? tutti_device_stats(f->meta).live_bytes : left_before;
        const size_t host = tt_alloc_stats().bytes;
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tutti_module_load_to(m, f->path, f->strict);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        const size_t left = tutti_device_stats(f->meta).live_bytes;
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_true(left <= left_before && left_before - left <= MATRIX_BYTES);
        steps += left < left_before;
        left_before = left;
        assert_true(tt_alloc_stats().bytes < host + MATRIX_BYTES);
        assert_int_equal(tutti_module_load_to(m, f->path, f->strict), TUTTI_OK); /* it goes on */
        expect_same(m, want);
        kept = tutti_device_stats(f->strict).live_bytes;
        tutti_module_release(m);
    }
    assert_int_equal(left_before, 0);
    assert_int_equal(steps, LINEARS + 5); /* a norm has five tensors */
    assert_int_equal(tutti_device_stats(f->strict).peak_bytes, kept);
    tutti_module_release(want);
}

static void what_cannot_have_memory_is_named_and_nothing_changes(void **state)
{
    const fixture_t *f = *state;
    tutti_module_t *want = build_saved(f), *m = build(f->meta_ctx);
    const size_t live = tutti_device_stats(f->meta).live_bytes;
    assert_int_equal(tutti_module_load_to(m, f->path, f->meta), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "module_load: meta has no memory for tied");
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->meta_ctx, &s), TUTTI_OK);
    tutti_tensor_t *part = tutti_slice(s, tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(N + 1, N)), 0,
                                       (tutti_range_t){.start = 1, .stop = N + 1, .step = 1});
    tutti_tensor_t *full = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(N, N));
    assert_int_equal(tutti_module_add_buffer(want, "z", tutti_module_find(want, "1.weight")), 0);
    assert_int_equal(tutti_module_save(want, f->path, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_module_add_buffer(m, "z", part), TUTTI_OK);
    assert_int_equal(tutti_module_load(m, f->path), TUTTI_ERR_ARG);
    tt_expect_error("module_load: z, f32[16, 16], lies on meta and is a part of another tensor");
    assert_int_equal(tutti_device_stats(f->meta).live_bytes,
                     live + (N + 1) * N * 4 + (size_t)tutti_tensor_bytes(full));

    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), TUTTI_OK);
    assert_int_equal(tutti_safetensors_read(file, "z", full), TUTTI_ERR_STATE);
    tt_expect_error("tensor \"z\" cannot be read into meta, which has no memory: "
                    "tutti_module_load() gives a module's tensors some");
    tutti_tensor_t *shape_alone = tutti_safetensors_load(s, file, "z");
    assert_int_equal(tutti_tensor_status(shape_alone), TUTTI_OK);
    assert_ptr_equal(tutti_tensor_device(shape_alone), f->meta);
    tutti_safetensors_close(file);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_module_release(m);
    tutti_module_release(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_tensor_gets_memory_where_the_caller_says, begin, end),
        cmocka_unit_test_setup_teardown(what_looks_into_a_tensor_sees_its_values, begin, end),
        cmocka_unit_test_setup_teardown(no_more_than_one_tensor_is_under_way, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_have_memory_is_named_and_nothing_changes, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
