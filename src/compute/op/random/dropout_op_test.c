/* dropout's mask: a function of the stream's name and the element's index, and of nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"

enum { N = 10000 };

typedef struct {
    uint64_t seed;
    int64_t step, shard;
    int threads;
    tutti_random_name_t name;
    bool strided;
} draw_t;

/* Dropout of N ones, forward and backward. */
static void draw(const draw_t *d, float *y, float *dx)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    const tutti_context_options_t options = {.threads = d->threads, .seed = d->seed};
    assert_int_equal(tt_test_context(&options, &ctx), TUTTI_OK);
    tutti_context_set_step(ctx, d->step);
    tutti_context_set_shard(ctx, d->shard);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(100, N / 100));
    x = d->strided ? tutti_transpose(s, x, 0, 1) : x;
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), TUTTI_OK);
    tutti_tensor_t *out = tutti_dropout_named(s, x, 0.25F, d->name);
    const tutti_backward_options_t backward = {
        .grad_output = tutti_ones(s, TUTTI_F32, tutti_tensor_shape(out))};
    assert_int_equal(tutti_backward_with(s, out, &backward), TUTTI_OK);
    memcpy(y, tt_test_host(out), N * sizeof *y);
    memcpy(dx, tt_test_host(tutti_contiguous(s, tutti_tensor_grad(x))), N * sizeof *dx);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_context_release(ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static float first[N], other[N], grad[N];

static void a_quarter_is_zeroed_and_the_rest_is_scaled(void **state)
{
    (void)state;
    int zeros = 0;
    draw(&(draw_t){.threads = 1}, first, grad);
    for (int i = 0; i < N; i++) {
        zeros += first[i] == 0;
        assert_true(first[i] == 0 || first[i] == 1 / 0.75F);
    }
    assert_in_range(zeros, N / 4 - 200, N / 4 + 200);
}

static void backward_draws_the_same_mask(void **state)
{
    (void)state;
    draw(&(draw_t){.threads = 1}, first, grad);
    assert_memory_equal(first, grad, sizeof first);
}

static void threads_and_strides_change_no_bit(void **state)
{
    (void)state;
    draw(&(draw_t){.threads = 1}, first, grad);
    draw(&(draw_t){.threads = 3}, other, grad);
    assert_memory_equal(first, other, sizeof first);
    draw(&(draw_t){.threads = 2, .strided = true}, other, grad);
    assert_memory_equal(first, other, sizeof first);
    assert_memory_equal(first, grad, sizeof first);
}

static void every_part_of_the_name_matters(void **state)
{
    (void)state;
    const draw_t others[] = {
        {.threads = 1, .seed = 1},
        {.threads = 1, .step = 1},
        {.threads = 1, .shard = 1},
        {.threads = 1, .name = {.module = 1}},
        {.threads = 1, .name = {.module = 1, .call = 1}},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        for (size_t k = 0; k <= i; k++) {
            draw(k == i ? &(draw_t){.threads = 1} : &others[k], first, grad);
            draw(&others[i], other, grad);
            assert_memory_not_equal(first, other, sizeof first);
        }
    }
}

static void evaluation_keeps_everything(void **state)
{
    (void)state;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    tutti_context_set_training(ctx, false);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(5));
    assert_ptr_equal(tutti_dropout(s, x, 0.5F), x);
    tutti_context_set_training(ctx, true);
    assert_ptr_equal(tutti_dropout(s, x, 0), x);
    assert_true(tutti_tensor_at(tutti_dropout(s, x, 1), 0) == 0);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_context_release(ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quarter_is_zeroed_and_the_rest_is_scaled),
        cmocka_unit_test(backward_draws_the_same_mask),
        cmocka_unit_test(threads_and_strides_change_no_bit),
        cmocka_unit_test(every_part_of_the_name_matters),
        cmocka_unit_test(evaluation_keeps_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
