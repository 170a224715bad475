/* The bits of optimizers: digests of parameters and moments after three steps, for every kind with
 * its options, recorded once; the same for every number of threads and instruction set, on a
 * device, and with the state on a disk. */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/offload.h>
#include <tutti/optim.h>

#include "core/base/draw_testing.h"
#include "core/base/fnv.h"
#include "core/base/place_testing.h"
#include "core/base/testing.h"
#include "core/kernel/isa.h"
#include "core/tensor/tensor_impl.h"

enum { STEPS = 3, SHAPES = 4 };

typedef struct {
    const tutti_optim_ops_t *kind;
    const void *options;
    uint64_t digest;
} row_t;

#define ROW(kind, digest, ...)                                                                     \
    {                                                                                              \
        &tutti_##kind, &(const tutti_##kind##_options_t){__VA_ARGS__}, digest                      \
    }

static const row_t rows[] = {
    ROW(sgd, UINT64_C(0x9a366466af934cf3), .lr = 0.1),
    ROW(sgd, UINT64_C(0xd34259daece2af28), .lr = 0.1, .weight_decay = 0.01, .maximize = true),
    ROW(sgd, UINT64_C(0xdfe7ca603a2d5083), .lr = 0.1, .momentum = 0.9, .dampening = 0.3),
    ROW(sgd, UINT64_C(0xe569d1f38002cf22), .lr = 0.1, .momentum = 0.9, .nesterov = true,
        .weight_decay = 0.1),
    ROW(adam, UINT64_C(0x24e555487feafa19), .lr = 1e-2),
    ROW(adam, UINT64_C(0x32745bc5b623a5d8), .beta1 = TUTTI_ZERO, .weight_decay = 0.1,
        .amsgrad = true, .maximize = true),
    ROW(adamw, UINT64_C(0x8f833701b73141ba), .lr = 1e-2),
    ROW(adamw, UINT64_C(0x02520918f5f3c412), .no_weight_decay = true, .amsgrad = true),
    ROW(rmsprop, UINT64_C(0x7884402507880b98), .lr = 1e-2),
    ROW(rmsprop, UINT64_C(0xec67b49c39fcfd81), .momentum = 0.5, .weight_decay = 0.1,
        .maximize = true),
    ROW(rmsprop, UINT64_C(0x8a296f1653422b48), .momentum = 0.5, .centered = true),
    ROW(rmsprop, UINT64_C(0x78ff91b4f62c2a37), .alpha = 0.5, .centered = true),
    ROW(adagrad, UINT64_C(0x994b259688613b9f), .lr = 1e-2),
    ROW(adagrad, UINT64_C(0xa39450d3a8d6accb), .initial_accumulator = 0.1, .lr_decay = 0.2,
        .weight_decay = 0.1, .maximize = true),
    ROW(lion, UINT64_C(0xb58aae7e40e22b00), .lr = 1e-3),
    ROW(lion, UINT64_C(0xaf5920ba22bbf825), .lr = 1e-3, .weight_decay = 0.1, .maximize = true),
    ROW(lamb, UINT64_C(0x0c6c42937c30629f), .lr = 1e-2),
    ROW(lamb, UINT64_C(0xda02edba707d929c), .lr = 1e-2, .weight_decay = 0.1, .maximize = true),
    ROW(adafactor, UINT64_C(0x90cb97ac635d574c), .lr = 0.5),
    ROW(adafactor, UINT64_C(0x8df8e0beff18ab55), .lr = 1e-2, .no_relative_step = true, .beta1 = 0.9,
        .weight_decay = 0.1, .maximize = true),
    ROW(adafactor, UINT64_C(0x86cc65e5a4ddaa6a), .clip = 0.1, .warmup_init = true,
        .no_scale_parameter = true),
};

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers in [-2^-scale, 2^-scale), with zeros of both signs among them. */
static void randomize(tutti_tensor_t *x, uint32_t *state, int scale)
{
    float *data = tutti_tensor_data(x);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        const int32_t bits = (int32_t)next(state) - (1 << 23);
        data[i] = (float)bits / (float)(1 << 23) / (float)(1 << scale);
        data[i] = i % 97 == 0 ? (i % 2 == 0 ? 0.0f : -0.0f) : data[i];
    }
}

static tutti_tensor_t *make(tutti_shape_t shape, uint32_t *state, int scale)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, shape, &x), 0);
    randomize(x, state, scale);
    return x;
}

static tutti_status_t add_digest(void *user, const char *name, tutti_tensor_t *x)
{
    uint64_t *digest = user;
    const size_t bytes = (size_t)tutti_tensor_numel(x) * tutti_dtype_bytes(tutti_tensor_dtype(x));
    uint32_t *data = malloc(bytes);
    assert_int_equal(tt_tensor_read(x, data), 0);
    *digest = tt_fnv(*digest, name, strlen(name));
    for (size_t i = 0; i < bytes / sizeof(uint32_t); i++) {
        *digest = (*digest ^ data[i]) * UINT64_C(0x100000001b3);
    }
    free(data);
    return TUTTI_OK;
}

/* A copy on the device (NULL: x itself). */
static tutti_tensor_t *place(tutti_context_t *ctx, tutti_device_t *device, tutti_tensor_t *x)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *placed =
        tutti_tensor_retain(device == NULL ? x : tutti_tensor_to(s, x, device));
    assert_int_equal(tutti_scope_close(s), 0);
    return placed;
}

/* Shapes of more than 256 × 16384 elements where norms are made, of one piece, of some, and of
 * three dimensions. */
static uint64_t digest_of(tutti_context_t *ctx, tutti_device_t *device, const char *folder,
                          const row_t *row)
{
    const tutti_shape_t shapes[SHAPES] = {TUTTI_SHAPE(4300037), TUTTI_SHAPE(13),
                                          TUTTI_SHAPE(307, 521), TUTTI_SHAPE(3, 170, 99)};
    uint64_t digest = 0;
    const bool has_norms = row->kind == &tutti_lamb || row->kind == &tutti_adafactor;
    for (int k = has_norms ? 0 : 1; k < SHAPES; k++) {
        uint32_t state = 7u + (uint32_t)k;
        tutti_optim_t *opt;
        tutti_tensor_t *made = make(shapes[k], &state, 0), *x = place(ctx, device, made);
        tutti_tensor_t *g = make(shapes[k], &state, 4);
        assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
        assert_int_equal(tutti_optim_create(ctx, row->kind, row->options, &opt), 0);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, "x", x), 0);
        assert_int_equal(folder == NULL ? 0 : tutti_optim_offload(opt, folder), 0);
        for (int step = 0; step < STEPS; step++) {
            tutti_tensor_t *placed = place(ctx, device, g);
            assert_int_equal(tutti_tensor_set_grad(x, placed), 0);
            assert_int_equal(tutti_optim_step(opt), 0);
            tutti_tensor_release(placed);
            randomize(g, &state, 4);
        }
        assert_int_equal(add_digest(&digest, "", x), 0);
        assert_int_equal(tutti_optim_each_state(opt, add_digest, &digest), 0);
        tutti_optim_release(opt);
        tutti_tensor_release(x);
        tutti_tensor_release(made);
        tutti_tensor_release(g);
    }
    return digest;
}

static void expect_digests(int threads, const char *isa, tutti_device_t *device, const char *folder)
{
    static uint64_t number;
    tutti_context_t *ctx;
    setenv("TUTTI_ISA", isa, 1);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = threads}, &ctx), 0);
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!tt_test_takes(number++)) {
            continue;
        }
        const uint64_t digest = digest_of(ctx, device, folder, &rows[i]);
        if (digest != rows[i].digest) {
            print_error("row %zu, %d threads, %s: 0x%016llx\n", i, threads, isa,
                        (unsigned long long)digest);
            wrong++;
        }
    }
    tutti_context_release(ctx);
    unsetenv("TUTTI_ISA");
    assert_int_equal(wrong, 0);
}

static void steps_have_the_bits_that_were_recorded(void **state)
{
    (void)state;
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    expect_digests(1, tt_isa_variant_name((tt_variant_t)best), NULL, NULL);
    for (int isa = 0; isa < best; isa++) {
        expect_digests(2 + isa, tt_isa_variant_name((tt_variant_t)isa), NULL, NULL);
    }
}

static void a_device_has_the_same_bits(void **state)
{
    (void)state;
    tutti_device_t *device;
    assert_int_equal(tutti_device_open("strict:0", NULL, &device), 0);
    expect_digests(2, tt_isa_variant_name(tt_isa()), device, NULL);
    tutti_device_release(device);
}

static void a_disk_has_the_same_bits(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    expect_digests(2, tt_isa_variant_name(tt_isa()), NULL, folder);
    assert_int_equal(rmdir(folder), 0); /* nothing is left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_the_bits_that_were_recorded),
        cmocka_unit_test(a_device_has_the_same_bits),
        cmocka_unit_test(a_disk_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
