/* Clipping, the scaler, and saved optimizers over parameters of devices: the bits of the host. */
#include <tutti/modes.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/devices.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"

enum { COUNT = 3, N = 20011 };

static const char *const names[COUNT] = {"a", "b", "c"};

typedef struct {
    tutti_context_t *ctx;
    tutti_device_t *devices[COUNT]; /* NULL: the host */
    tutti_dtype_t dtype;
    tutti_optim_t *opt;
    tutti_tensor_t *x[COUNT];
} model_t;

/* Of N values that differ by i, on the i-th device. */
static tutti_tensor_t *make(const model_t *m, int i, double first)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(m->ctx, &s), 0);
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, first, 0.0001 * (i + 1), N);
    x = tutti_tensor_retain(tutti_tensor_to(s, tutti_cast(s, x, m->dtype), m->devices[i]));
    assert_int_equal(tutti_scope_close(s), 0);
    return x;
}

static void open_model(model_t *m)
{
    const tutti_adam_options_t options = {.lr = 0.01};
    assert_int_equal(tutti_context_create(NULL, &m->ctx), 0);
    assert_int_equal(tutti_optim_create(m->ctx, &tutti_adam, &options, &m->opt), 0);
    for (int i = 0; i < COUNT; i++) {
        m->x[i] = make(m, i, -0.5);
        assert_int_equal(tutti_tensor_set_requires_grad(m->x[i], true), 0);
        assert_int_equal(tutti_optim_add_parameter(m->opt, 0, names[i], m->x[i]), 0);
    }
}

static void close_model(model_t *m)
{
    tutti_optim_release(m->opt); /* steps may be queued */
    for (int i = 0; i < COUNT; i++) {
        tutti_tensor_release(m->x[i]);
    }
    tutti_context_release(m->ctx);
}

static void set_grads(model_t *m, double first)
{
    for (int i = 0; i < COUNT; i++) {
        tutti_tensor_t *grad = make(m, i, first);
        assert_int_equal(tutti_tensor_set_grad(m->x[i], grad), 0);
        tutti_tensor_release(grad);
    }
}

typedef struct {
    double norm, largest;
    tutti_scaler_state_t state;
    bool is_skipped[3];
    uint16_t bits[COUNT][2 * N]; /* of the parameters: N in 16 bits, or in 32 */
} result_t;

static void clip(model_t *m, result_t *r)
{
    set_grads(m, -1);
    assert_int_equal(tutti_clip_grad_norm(m->opt, 3, 2, &r->norm), 0);
    assert_int_equal(tutti_clip_grad_norm(m->opt, 0.01, INFINITY, &r->largest), 0);
    assert_int_equal(tutti_clip_grad_value(m->opt, 0.005), 0);
    assert_int_equal(tutti_optim_step(m->opt), 0);
    set_grads(m, 0.25);
    assert_int_equal(tutti_clip_grad_norm(m->opt, 3, 2, NULL), 0);
    assert_int_equal(tutti_optim_step(m->opt), 0);
}

/* A step, and those that an infinity in the first gradient, or in the last one, skips. */
static void scale(model_t *m, result_t *r)
{
    tutti_scaler_t *scaler;
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    for (int step = 0; step < 3; step++) {
        set_grads(m, 100);
        if (step > 0) {
            tutti_tensor_t *x = m->x[step == 1 ? 0 : COUNT - 1];
            assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(x), INFINITY), 0);
        }
        assert_int_equal(tutti_scaler_step(scaler, m->opt, &r->is_skipped[step]), 0);
        assert_int_equal(tutti_scaler_update(scaler), 0);
    }
    r->state = tutti_scaler_get_state(scaler);
    tutti_scaler_release(scaler);
}

/* Steps that differ unless the moments and masters come back. */
static void save_and_load(model_t *m)
{
    static const char path[] = "scaler_device_test.safetensors";
    assert_int_equal(tutti_optim_save(m->opt, path), 0);
    set_grads(m, 2);
    assert_int_equal(tutti_optim_step(m->opt), 0);
    assert_int_equal(tutti_optim_load(m->opt, path), 0);
    set_grads(m, -2);
    assert_int_equal(tutti_optim_step(m->opt), 0);
    assert_int_equal(remove(path), 0);
}

static void run(model_t m, result_t *r)
{
    memset(r, 0, sizeof *r);
    open_model(&m);
    clip(&m, r);
    scale(&m, r);
    save_and_load(&m);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(tt_tensor_read(m.x[i], r->bits[i]), 0);
    }
    set_grads(&m, 1);
    assert_int_equal(tutti_optim_step(m.opt), 0);
    close_model(&m);
}

static void expect_the_bits_of_the_host(tutti_dtype_t dtype)
{
    static result_t host, other;
    tutti_device_t *a, *b;
    assert_int_equal(tutti_device_open("strict:0", NULL, &a), 0);
    assert_int_equal(tutti_device_open("strict:1", NULL, &b), 0);
    run((model_t){.dtype = dtype}, &host);
    assert_true(host.norm > 3 && host.largest > 0.01 && host.state.skipped == 2);
    assert_true(!host.is_skipped[0] && host.is_skipped[1] && host.is_skipped[2]);
    tutti_device_t *const places[][COUNT] = {{a, a, a}, {a, NULL, b}, {NULL, a, NULL}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        run((model_t){.dtype = dtype, .devices = {places[i][0], places[i][1], places[i][2]}},
            &other);
        assert_true(other.norm == host.norm && other.largest == host.largest);
        assert_true(other.state.scale == host.state.scale && other.state.skipped == 2);
        assert_true(!other.is_skipped[0] && other.is_skipped[1] && other.is_skipped[2]);
        assert_memory_equal(other.bits, host.bits, sizeof host.bits);
    }
    tutti_device_release(b);
    tutti_device_release(a);
}

static void parameters_of_devices_have_the_bits_of_the_host(void **state)
{
    (void)state;
    expect_the_bits_of_the_host(TUTTI_F32);
}

static void masters_of_devices_have_the_bits_of_the_host(void **state)
{
    (void)state;
    expect_the_bits_of_the_host(TUTTI_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_of_devices_have_the_bits_of_the_host),
        cmocka_unit_test(masters_of_devices_have_the_bits_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
