/* Devices: by name, operations where their inputs lie, gradients that come back, and reads. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include <tutti/tutti.h>

#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
} fixture_t;

/* A context on a device of that name; NULL: on the host. */
static fixture_t begin(const char *name)
{
    fixture_t f = {0};
    if (name != NULL) {
        assert_int_equal(tutti_device_open(name, NULL, &f.device), TUTTI_OK);
    }
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.seed = 1, .device = f.device}, &f.ctx),
        TUTTI_OK);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    return f;
}

static void end(fixture_t *f)
{
    assert_int_equal(tutti_scope_close(f->s), TUTTI_OK);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
}

static void a_name_is_one_device(void **state)
{
    (void)state;
    tutti_device_t *first, *second, *other;
    assert_int_equal(tutti_device_open("strict", NULL, &first), TUTTI_OK);
    assert_int_equal(tutti_device_open("strict:0", NULL, &second), TUTTI_OK);
    assert_int_equal(tutti_device_open("strict:12", NULL, &other), TUTTI_OK);
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, other);
    assert_string_equal(tutti_device_name(first), "strict:0");
    assert_string_equal(tutti_device_name(other), "strict:12");
    assert_int_equal(
        tutti_device_open("strict:0", &(tutti_device_options_t){.launch_ns = 5}, &second),
        TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "device_open: strict:0 is open with other options");
    tutti_device_release(first);
    tutti_device_release(first);
    assert_int_equal(
        tutti_device_open("strict:0", &(tutti_device_options_t){.launch_ns = 5}, &second),
        TUTTI_OK);
    tutti_device_release(second);
    tutti_device_release(other);
}

static void a_name_that_is_none_says_what_there_is(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda:0",    "strict:",     "strict:x", "strict:-1",
                                        "strict:1x", "cpu:1",       "",         "stric",
                                        "strict1",   "strict:1000", "meta:0"};
    tutti_device_t *device = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[160];
        snprintf(want, sizeof want,
                 "device_open: there is no device \"%s\": there are cpu, strict:0, …, meta",
                 names[i]);
        assert_int_equal(tutti_device_open(names[i], NULL, &device), TUTTI_ERR_ARG);
        assert_string_equal(tutti_last_error(), want);
    }
    assert_int_equal(tutti_device_open(NULL, NULL, &device), TUTTI_ERR_ARG);
    const tutti_device_options_t negative = {.memory_bytes = -1};
    assert_int_equal(tutti_device_open("strict:0", &negative, &device), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "device_open: strict:0: an option is negative");
    assert_null(device);
}

static void meta_has_shapes_and_no_values(void **state)
{
    (void)state;
    fixture_t f = begin("meta");
    const int64_t n = INT64_C(1) << 18; /* x: 256 GiB */
    tutti_tensor_t *x = tutti_normal(f.s, TUTTI_F32, TUTTI_SHAPE(n, n), 0, 1);
    tutti_tensor_t *y = tutti_zeros(f.s, TUTTI_BF16, TUTTI_SHAPE(n, 1));
    assert_true(tutti_tensor_device_data(x) != tutti_tensor_device_data(y));
    tutti_tensor_set_requires_grad(x, true);
    tutti_tensor_t *loss =
        tutti_mean(f.s, tutti_matmul(f.s, tutti_exp(f.s, x), tutti_cast(f.s, y, TUTTI_F32)));
    assert_int_equal(tutti_backward(f.s, loss), TUTTI_OK);
    assert_true(tutti_shape_equal(tutti_tensor_shape(tutti_tensor_grad(x)), TUTTI_SHAPE(n, n)));
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_grad(x)), f.device);
    assert_true(tutti_device_stats(f.device).peak_bytes > (size_t)n * (size_t)n * 8);
    assert_int_equal(tutti_device_stats(f.device).copied_bytes, 0);
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_OK);
    assert_true(isnan(tutti_tensor_item(loss)));
    assert_string_equal(tutti_last_error(), "f32[] lies on meta: it has no values");
    assert_int_equal(tutti_tensor_status(tutti_tensor_to(f.s, y, NULL)), TUTTI_ERR_STATE);
    assert_string_equal(tutti_scope_error(f.s), "bf16[262144, 1] lies on meta: it has no values");
    assert_int_equal(tutti_scope_close(f.s), TUTTI_ERR_STATE);
    tutti_context_release(f.ctx);
    tutti_device_release(f.device);
}

static void copies_to_meta_do_nothing(void **state)
{
    (void)state;
    static const float values[] = {1, 2};
    fixture_t f = begin("meta"), g = begin("strict:0");
    tutti_tensor_t *x = tutti_from_data(f.s, TUTTI_F32, TUTTI_SHAPE(2), values);
    tutti_tensor_t *y = tutti_from_data(g.s, TUTTI_F32, TUTTI_SHAPE(2), values);
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_to(g.s, y, f.device)), f.device);
    assert_int_equal(tutti_tensor_copy(x, y), TUTTI_OK);
    assert_int_equal(tutti_tensor_copy(y, x), TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "f32[2] lies on meta: it has no values");
    assert_true(tutti_tensor_at(y, 1) == 2);
    end(&g);
    end(&f);
}

static double value_of(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *y = tutti_mul(s, tutti_exp(s, x), x);
    assert_int_equal(tutti_backward(s, y), TUTTI_OK);
    return tutti_tensor_item(y);
}

static void operations_run_where_their_inputs_lie(void **state)
{
    (void)state;
    static const float values[] = {0.5F};
    fixture_t host = begin(NULL), f = begin("strict:0");
    tutti_tensor_t *x = tutti_from_data(host.s, TUTTI_F32, TUTTI_SHAPE(1), values);
    tutti_tensor_t *y = tutti_from_data(f.s, TUTTI_F32, TUTTI_SHAPE(1), values);
    assert_ptr_equal(tutti_tensor_device(y), f.device);
    assert_null(tutti_tensor_device(x));
    tutti_tensor_set_requires_grad(x, true);
    tutti_tensor_set_requires_grad(y, true);
    assert_true(value_of(host.s, x) == value_of(f.s, y));
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_grad(y)), f.device);
    assert_true(tutti_tensor_item(tutti_tensor_grad(x)) == tutti_tensor_item(tutti_tensor_grad(y)));
    assert_true(tutti_device_stats(f.device).launches > 3);
    end(&f);
    end(&host);
}

static void the_host_reads_copies_alone(void **state)
{
    (void)state;
    fixture_t f = begin("strict:0");
    tutti_tensor_t *x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(3), 2.5);
    assert_null(tutti_tensor_data(x));
    assert_string_equal(tutti_last_error(),
                        "tensor_data: the tensor lies on strict:0, which the host does not read: "
                        "tutti_tensor_to(s, x, NULL) copies it");
    assert_non_null(tutti_tensor_device_data(x));
    const float *read = tutti_tensor_data(tutti_tensor_to(f.s, x, NULL));
    assert_true(read[0] == 2.5F && read[2] == 2.5F);
    assert_true(tutti_tensor_at(x, 1) == 2.5);
    end(&f);
}

static void without_memory_of_the_host_there_is_no_copy_there(void **state)
{
    (void)state;
    fixture_t f = begin("strict:0");
    tutti_tensor_t *x = tutti_arange(f.s, TUTTI_F32, 3, 1, 6), *host = NULL;
    x = tutti_transpose(f.s, tutti_reshape(f.s, x, TUTTI_SHAPE(2, 3)), 0, 1);
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tt_tensor_on_host(x, &host);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_true((host == NULL) == has_failed);
    }
    assert_true(tutti_tensor_at(host, 1) == 6);
    tutti_tensor_release(host);
    end(&f);
}

static void a_copy_goes_between_devices_in_any_layout(void **state)
{
    (void)state;
    static const float values[] = {0, 1, 2, 3, 4, 5};
    fixture_t f = begin("strict:0"), g = begin("strict:1"), host = begin(NULL);
    tutti_scope_t *const scopes[] = {f.s, g.s, host.s};
    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            tutti_tensor_t *x = tutti_transpose(
                scopes[from], tutti_from_data(scopes[from], TUTTI_F32, TUTTI_SHAPE(2, 3), values),
                0, 1);
            tutti_tensor_t *y = tutti_zeros(scopes[to], TUTTI_F64, TUTTI_SHAPE(2, 3));
            assert_int_equal(tutti_tensor_copy(tutti_transpose(scopes[to], y, 0, 1), x), TUTTI_OK);
            for (int i = 0; i < 6; i++) {
                assert_true(tutti_tensor_at(y, i) == i);
            }
        }
    }
    end(&host);
    end(&g);
    end(&f);
}

static void a_gradient_goes_back_from_device_to_device(void **state)
{
    (void)state;
    fixture_t f = begin("strict:0"), g = begin("strict:1");
    tutti_tensor_t *x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(1), 3);
    tutti_tensor_set_requires_grad(x, true);
    tutti_tensor_t *y = tutti_mul(f.s, x, x);
    tutti_tensor_t *z =
        tutti_exp(f.s, tutti_mul_scalar(f.s, tutti_tensor_to(f.s, y, g.device), 0.125));
    assert_ptr_equal(tutti_tensor_device(z), g.device);
    assert_int_equal(tutti_backward(f.s, z), TUTTI_OK);
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_grad(x)), f.device);
    assert_true(fabs(tutti_tensor_item(tutti_tensor_grad(x)) - exp(9 * 0.125) * 0.125 * 6) < 1e-5);
    end(&g);
    end(&f);
}

static void what_data_decide_is_told_by_the_next_wait(void **state)
{
    (void)state;
    fixture_t f = begin("strict:0");
    tutti_tensor_t *table = tutti_zeros(f.s, TUTTI_F32, TUTTI_SHAPE(5, 2));
    tutti_tensor_t *at =
        tutti_from_data(f.s, TUTTI_I64, TUTTI_SHAPE(1, 3), (const int64_t[]){0, 4, 9});
    tutti_tensor_t *y = tutti_exp(f.s, tutti_embedding(f.s, at, table));
    assert_int_equal(tutti_scope_status(f.s), TUTTI_OK);
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "strict:0: embedding: index 9 at [0, 2] is outside a vocabulary of 5");
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_OK);
    (void)tutti_gather_along(f.s, table, 0, tutti_full(f.s, TUTTI_I64, TUTTI_SHAPE(1, 2), 7));
    assert_true(isnan(tutti_tensor_at(y, 0)));
    assert_string_equal(tutti_last_error(),
                        "strict:0: gather: index 7 at element 0 is outside [0, 5)");
    end(&f);
}

static void a_wait_without_a_limit_of_its_own_takes_the_environments(void **state)
{
    (void)state;
    const tutti_device_options_t options = {.launch_ns = INT64_C(300000000)};
    fixture_t f = {0};
    assert_int_equal(tutti_device_open("strict:0", &options, &f.device), TUTTI_OK);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = f.device}, &f.ctx),
                     TUTTI_OK);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    assert_int_equal(tutti_tensor_status(tutti_ones(f.s, TUTTI_F32, TUTTI_SHAPE(2))), TUTTI_OK);
    setenv("TUTTI_TIMEOUT_MS", "0", 1);
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_ERR_ARG);
    setenv("TUTTI_TIMEOUT_MS", "20", 1);
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_ERR_TIMEOUT);
    unsetenv("TUTTI_TIMEOUT_MS");
    assert_int_equal(tutti_device_synchronize(f.device, 0), TUTTI_OK);
    end(&f);
}

static void lack_of_memory_says_who_asked_and_what_is_free(void **state)
{
    (void)state;
    fixture_t f = {0};
    const tutti_device_options_t options = {.memory_bytes = 1 << 20};
    assert_int_equal(tutti_device_open("strict:0", &options, &f.device), TUTTI_OK);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = f.device}, &f.ctx),
                     TUTTI_OK);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(f.s, TUTTI_F32, TUTTI_SHAPE(160, 1024));
    assert_int_equal(tutti_tensor_status(x), TUTTI_OK);
    assert_int_equal(tutti_tensor_status(tutti_exp(f.s, x)), TUTTI_ERR_NOMEM);
    assert_string_equal(tutti_last_error(),
                        "exp: output 0: strict:0: 655360 bytes for tensor data: 393216 of 1048576 "
                        "are free: f32[160, 1024]");
    assert_int_equal(tutti_scope_close(f.s), TUTTI_ERR_NOMEM);
    tutti_context_release(f.ctx);
    tutti_device_release(f.device);
}

/* ---- functions of several operations --------------------------------------------------------- */

/* Of a table or input [8, 4], and of indices [8] in [0, 8). */
typedef tutti_tensor_t *(*composed_fn_t)(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i);

static tutti_tensor_t *look_up(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    const tutti_embedding_lookup_options_t o = {
        .has_padding = true, .padding = 3, .max_norm = 0.5, .scale_by_frequency = true};
    return tutti_embedding_with(s, i, x, &o);
}

static tutti_tensor_t *fill_bags(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    tutti_tensor_t *offsets = tutti_masked_fill(s, i, tutti_ge_scalar(s, i, 0), 0);
    return tutti_embedding_bag(s, i, x, &(tutti_embedding_bag_options_t){.offsets = offsets});
}

static tutti_tensor_t *drop_lines(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    (void)i;
    return tutti_dropout1d(s, x, 0.5F);
}

static tutti_tensor_t *drop_to_limit(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    (void)i;
    return tutti_alpha_dropout(s, x, 0.5F);
}

static tutti_tensor_t *bend(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    (void)i;
    return tutti_rrelu(s, tutti_neg(s, x), 0.1, 0.4);
}

static tutti_tensor_t *choose(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    (void)i;
    return tutti_gumbel_softmax(s, x, 1, true, -1);
}

/* The loss of an adaptive softmax, and what it predicts, as one sum. */
static tutti_tensor_t *rate(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *i)
{
    const tutti_adaptive_log_softmax_options_t o = {
        .in = 4, .classes = 8, .cutoffs = {2, 5}, .div_value = 2};
    tutti_context_t *ctx = tutti_scope_context(s);
    tutti_module_t *m;
    tutti_tensor_t *out[2];
    assert_int_equal(tutti_module_create(ctx, &tutti_adaptive_log_softmax_layer, &o, &m), 0);
    assert_int_equal(tutti_module_to(m, tutti_tensor_device(x)), 0);
    tutti_forward_many(s, m, (tutti_tensor_t *[]){x, i}, 2, out, 2);
    tutti_tensor_t *best = tutti_cast(s, tutti_adaptive_predict(s, m, x), TUTTI_F32);
    tutti_module_release(m);
    return tutti_add(s, out[0], best);
}

/* The result and its gradient, of a context on a device and inputs on another (NULL: the host). */
static void run_composed(composed_fn_t call, const char *home, const char *inputs, float seen[64])
{
    fixture_t f = begin(home);
    tutti_device_t *device = NULL;
    float values[32];
    for (int i = 0; i < 32; i++) {
        values[i] = (float)((i * 7 + 3) % 32) / 16;
    }
    if (inputs != NULL) {
        assert_int_equal(tutti_device_open(inputs, NULL, &device), TUTTI_OK);
    }
    tutti_tensor_t *x = tutti_from_data(f.s, TUTTI_F32, TUTTI_SHAPE(8, 4), values), *grad;
    tutti_tensor_t *at =
        tutti_from_data(f.s, TUTTI_I64, TUTTI_SHAPE(8), (int64_t[]){3, 1, 3, 7, 0, 1, 5, 1});
    x = tutti_clone(f.s, tutti_tensor_to(f.s, x, device));
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *y = call(f.s, x, tutti_tensor_to(f.s, at, device));
    if (tutti_scope_status(f.s) < 0) {
        fail_msg("%s", tutti_scope_error(f.s));
    }
    assert_ptr_equal(tutti_tensor_device(y), device);
    tutti_tensor_t *other = tutti_ones(f.s, TUTTI_F32, TUTTI_SHAPE(1));
    assert_ptr_equal(tutti_tensor_device(other), f.device); /* the context is where it was */
    assert_int_equal(tutti_grad(f.s, tutti_sum(f.s, y), NULL, &x, 1, &grad), TUTTI_OK);
    for (int i = 0; i < 32; i++) {
        seen[i] = i < tutti_tensor_numel(y) ? (float)tutti_tensor_at(y, i) : 0;
        seen[32 + i] = (float)tutti_tensor_at(grad, i);
    }
    end(&f);
    tutti_device_release(device);
}

/* What they make beside their inputs lies there, too; and the bits are the host's. */
static void functions_run_where_their_inputs_lie(void **state)
{
    (void)state;
    static const composed_fn_t calls[] = {look_up, fill_bags, drop_lines, drop_to_limit,
                                          bend,    choose,    rate};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        float want[64], got[64];
        run_composed(calls[i], NULL, NULL, want);
        run_composed(calls[i], NULL, "strict:0", got);
        assert_memory_equal(got, want, sizeof want);
        run_composed(calls[i], "strict:0", NULL, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_one_device),
        cmocka_unit_test(a_name_that_is_none_says_what_there_is),
        cmocka_unit_test(meta_has_shapes_and_no_values),
        cmocka_unit_test(copies_to_meta_do_nothing),
        cmocka_unit_test(operations_run_where_their_inputs_lie),
        cmocka_unit_test(the_host_reads_copies_alone),
        cmocka_unit_test(without_memory_of_the_host_there_is_no_copy_there),
        cmocka_unit_test(a_copy_goes_between_devices_in_any_layout),
        cmocka_unit_test(what_data_decide_is_told_by_the_next_wait),
        cmocka_unit_test(a_gradient_goes_back_from_device_to_device),
        cmocka_unit_test(a_wait_without_a_limit_of_its_own_takes_the_environments),
        cmocka_unit_test(lack_of_memory_says_who_asked_and_what_is_free),
        cmocka_unit_test(functions_run_where_their_inputs_lie),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
