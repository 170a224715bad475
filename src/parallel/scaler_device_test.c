/* Clipping, the scaler, and saved optimizers over parameters of devices: the bits of the host. */
#include <tutti/modes.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tutti/devices.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

#include "core/base/clock.h"
#include "core/base/testing.h"
#include "core/exec/gate_testing.h"
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

/* ---- one device fails, or is late ------------------------------------------------------------ */

/* Gradients of ones; the last parameter is the second device's. */
static void open_over_two(model_t *m)
{
    *m = (model_t){.dtype = TUTTI_F32};
    assert_int_equal(tutti_device_open("strict:0", NULL, &m->devices[0]), 0);
    assert_int_equal(tutti_device_open("strict:1", NULL, &m->devices[COUNT - 1]), 0);
    m->devices[1] = m->devices[0];
    open_model(m);
    set_grads(m, 1);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(tutti_tensor_fill(tutti_tensor_grad(m->x[i]), 1), 0);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(tutti_device_synchronize(m->devices[i], 0), 0);
    }
}

static void close_over_two(model_t *m)
{
    close_model(m);
    tutti_device_release(m->devices[0]);
    tutti_device_release(m->devices[COUNT - 1]);
}

static double grad_of(const model_t *m, int i)
{
    return tutti_tensor_at(tutti_tensor_grad(m->x[i]), 7);
}

static void what_a_device_has_unscaled_is_not_unscaled_again(void **state)
{
    (void)state;
    model_t m;
    tutti_scaler_t *scaler;
    bool is_skipped = false;
    const tutti_scaler_options_t options = {.init_scale = 8};
    open_over_two(&m);
    const double before = tutti_tensor_at(m.x[0], 7);
    assert_int_equal(tutti_scaler_create(&options, &scaler), 0);
    tt_gate_close(tt_device_exec(m.devices[COUNT - 1]), TT_GATE_FAILS);
    tt_gate_open();
    assert_int_equal(tutti_scaler_unscale(scaler, m.opt), TUTTI_ERR_ARG);
    tt_expect_error("strict:1: gate: it fails");
    assert_int_equal(tutti_device_synchronize(m.devices[COUNT - 1], 0), TUTTI_ERR_ARG);
    assert_int_equal(tutti_scaler_unscale(scaler, m.opt), 0);
    assert_true(grad_of(&m, 0) == 0.125 && grad_of(&m, COUNT - 1) == 1);
    assert_int_equal(tutti_scaler_step(scaler, m.opt, &is_skipped), 0);
    assert_true(is_skipped && tutti_tensor_at(m.x[0], 7) == before);
    assert_int_equal(tutti_scaler_update(scaler), 0);
    assert_true(tutti_scaler_get_state(scaler).scale == 4);
    tutti_scaler_release(scaler);
    close_over_two(&m);
}

/* Its numbers cannot be made beside the gradients. */
static void what_was_not_begun_is_unscaled_later(void **state)
{
    (void)state;
    model_t m;
    tutti_scaler_t *scaler;
    const tutti_scaler_options_t options = {.init_scale = 8};
    open_over_two(&m);
    assert_int_equal(tutti_scaler_create(&options, &scaler), 0);
    for (size_t n = 2; n <= 5; n++) { /* the first one is the scaler's */
        tt_alloc_fail_at(n);
        assert_int_equal(tutti_scaler_unscale(scaler, m.opt), TUTTI_ERR_NOMEM);
        tt_alloc_fail_at(0);
        assert_true(grad_of(&m, 0) == 1 && grad_of(&m, COUNT - 1) == 1);
    }
    assert_int_equal(tutti_scaler_unscale(scaler, m.opt), 0);
    assert_true(grad_of(&m, 0) == 0.125 && grad_of(&m, COUNT - 1) == 0.125);
    tutti_scaler_release(scaler);
    close_over_two(&m);
}

typedef struct {
    tutti_optim_t *opt;
    tutti_scaler_t *scaler; /* NULL: clip */
    tutti_status_t status;
} call_t;

static void *make_call(void *user)
{
    call_t *call = user;
    call->status = call->scaler != NULL ? tutti_scaler_unscale(call->scaler, call->opt)
                                        : tutti_clip_grad_norm(call->opt, INFINITY, 2, NULL);
    return NULL;
}

/* The gate opens when all gradients' kernels have been launched: there is no wait between them. */
static void call_behind_a_gate(model_t *m, tutti_scaler_t *scaler)
{
    pthread_t thread;
    call_t call = {.opt = m->opt, .scaler = scaler};
    tt_gate_close(tt_device_exec(m->devices[0]), TT_GATE_PASSES);
    const uint64_t first = tutti_device_stats(m->devices[0]).launches;
    const uint64_t second = tutti_device_stats(m->devices[COUNT - 1]).launches;
    const tt_deadline_t deadline = tt_deadline_in_ms(10000);
    assert_int_equal(pthread_create(&thread, NULL, make_call, &call), 0);
    bool are_launched = false; /* zeros on each device, and a kernel for each gradient */
    while (!are_launched && !tt_deadline_is_past(deadline)) {
        usleep(100);
        are_launched = tutti_device_stats(m->devices[0]).launches >= first + 3 &&
                       tutti_device_stats(m->devices[COUNT - 1]).launches >= second + 2;
    }
    tt_gate_open();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(call.status, 0);
    assert_true(are_launched);
}

static void devices_are_waited_for_when_all_has_been_launched(void **state)
{
    (void)state;
    model_t m;
    tutti_scaler_t *scaler;
    open_over_two(&m);
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    call_behind_a_gate(&m, NULL);
    call_behind_a_gate(&m, scaler);
    tutti_scaler_release(scaler);
    close_over_two(&m);
}

/* ---- no memory of the host ------------------------------------------------------------------- */

/* Of one allocation that fails; TUTTI_OK: there were fewer. */
static tutti_status_t clip_without_memory(tutti_device_t *const *devices, int call, size_t nth)
{
    model_t m = {.dtype = TUTTI_BF16, .devices = {devices[0], devices[1], devices[2]}};
    double norm;
    tutti_scaler_t *scaler;
    open_model(&m);
    set_grads(&m, -1);
    assert_int_equal(tutti_scaler_create(NULL, &scaler), 0);
    tt_alloc_fail_at(nth);
    const tutti_status_t status = call == 0   ? tutti_clip_grad_norm(m.opt, 3, 2, &norm)
                                  : call == 1 ? tutti_clip_grad_value(m.opt, 0.005)
                                              : tutti_scaler_unscale(scaler, m.opt);
    const bool has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    tutti_scaler_release(scaler);
    close_model(&m);
    return status;
}

/* The copies in f32 of narrow gradients take memory, and so do the numbers that devices write. */
static void gradients_for_want_of_memory_are_not_passed_over(void **state)
{
    (void)state;
    tutti_device_t *a, *b;
    assert_int_equal(tutti_device_open("strict:0", NULL, &a), 0);
    assert_int_equal(tutti_device_open("strict:1", NULL, &b), 0);
    tutti_device_t *const places[][COUNT] = {{NULL, NULL, NULL}, {a, a, a}, {a, NULL, b}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (int call = 0; call < 3; call++) {
            size_t nth = 1;
            while (clip_without_memory(places[i], call, nth) < 0) {
                nth++;
            }
            assert_true(nth > COUNT);
        }
    }
    tutti_device_release(b);
    tutti_device_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_of_devices_have_the_bits_of_the_host),
        cmocka_unit_test(masters_of_devices_have_the_bits_of_the_host),
        cmocka_unit_test(what_a_device_has_unscaled_is_not_unscaled_again),
        cmocka_unit_test(what_was_not_begun_is_unscaled_later),
        cmocka_unit_test(devices_are_waited_for_when_all_has_been_launched),
        cmocka_unit_test(gradients_for_want_of_memory_are_not_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
