/* Tensors, scopes and contexts: shapes, values, ownership, failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tutti/modes.h>
#include <tutti/tensor.h>

#include "core/base/alloc.h"
#include "core/tensor/scope_testing.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/device_testing.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

static void sizes_count_from_either_end(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_I32, TUTTI_SHAPE(2, 3, 4));
    char text[64];
    assert_int_equal(tutti_tensor_rank(x), 3);
    assert_int_equal(tutti_tensor_numel(x), 24);
    assert_int_equal(tutti_tensor_bytes(x), 96);
    assert_int_equal(tutti_tensor_dim(x, -1), 4);
    assert_int_equal(tutti_tensor_dim(x, 0), 2);
    assert_int_equal(tutti_tensor_dim(x, 3), 0);
    assert_int_equal(tutti_tensor_stride(x, -3), 12);
    assert_string_equal(tutti_tensor_describe(x, text, sizeof text), "i32[2, 3, 4]");
    assert_string_equal(tutti_tensor_describe(x, text, 6), "i32[2");
}

static void values_are_made_and_read_in_every_dtype(void **state)
{
    tt_fixture_t *f = *state;
    for (int dtype = 0; dtype < TUTTI_DTYPE_COUNT; dtype++) {
        tutti_tensor_t *x = tutti_full(f->s, (tutti_dtype_t)dtype, TUTTI_SHAPE(3, 2), 1);
        assert_true(tutti_tensor_at(x, 5) == 1);
        tutti_tensor_t *y = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(3, 2));
        assert_int_equal(tutti_tensor_copy(y, x), 0);
        assert_true(tutti_tensor_at(y, 0) == 1);
        assert_true(isnan(tutti_tensor_at(x, 6)) && isnan(tutti_tensor_at(x, -1)));
        assert_true(isnan(tutti_tensor_item(x)));
    }
    const tutti_tensor_t *n = tutti_arange(f->s, TUTTI_F32, 2, -0.5, 4);
    assert_true(tutti_tensor_at(n, 3) == 0.5);
}

static void strides_are_followed(void **state)
{
    tt_fixture_t *f = *state;
    const float data[] = {1, 2, 3, 4, 5, 6};
    tutti_tensor_t *x = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(2, 3), data), *t;
    assert_int_equal(
        tt_tensor_over(x->storage, TUTTI_F32, TUTTI_SHAPE(3, 2), (int64_t[]){1, 3}, 0, &t), 0);
    assert_true(tutti_tensor_is_contiguous(x) && !tutti_tensor_is_contiguous(t));
    assert_true(tutti_tensor_at(t, 1) == 4 && tutti_tensor_at(t, 4) == 3);
    tutti_tensor_t *packed = tutti_empty(f->s, TUTTI_F32, TUTTI_SHAPE(3, 2));
    assert_int_equal(tutti_tensor_copy(packed, t), 0);
    assert_true(((const float *)tt_test_host(packed))[3] == 5);
    tutti_tensor_release(t);
}

static void empty_and_full_rank_tensors_work(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *none = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2, 0, 3));
    assert_int_equal(tutti_tensor_numel(none), 0);
    assert_true(tutti_tensor_is_contiguous(none));
    assert_int_equal(tutti_tensor_fill(none, 1), 0);
    tutti_tensor_t *deep = tutti_ones(f->s, TUTTI_U8, TUTTI_SHAPE(1, 2, 1, 2, 1, 2, 1, 2));
    assert_int_equal(tutti_tensor_numel(deep), 16);
    assert_true(tutti_tensor_item(tutti_full(f->s, TUTTI_F64, TUTTI_SCALAR, 2.5)) == 2.5);
}

static void bad_shapes_say_what_is_wrong(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2, -1), &x), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "shape [2, -1]: dimension 1 is negative");
    assert_int_equal(tutti_tensor_create(TUTTI_F32, (tutti_shape_t){.rank = 9}, &x), TUTTI_ERR_ARG);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(INT64_MAX, 2), &x), TUTTI_ERR_ARG);
    x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(2));
    assert_int_equal(tutti_tensor_copy(x, tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(3))),
                     TUTTI_ERR_SHAPE);
    assert_string_equal(tutti_last_error(), "copy: cannot copy f32[3] into f32[2]");
}

static void numbers_that_are_no_dtype_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    const int wrong[] = {-1, TUTTI_DTYPE_COUNT, 1 << 30};
    for (int i = 0; i < 3; i++) {
        tutti_tensor_t *x;
        const tutti_dtype_t dtype = (tutti_dtype_t)wrong[i];
        assert_int_equal(tutti_tensor_create(dtype, TUTTI_SHAPE(2), &x), TUTTI_ERR_DTYPE);
        tt_expect_error("is no dtype");
    }
    assert_int_equal(tutti_tensor_status(tutti_ones(f->s, TUTTI_DTYPE_COUNT, TUTTI_SHAPE(2))),
                     TUTTI_ERR_DTYPE);
}

static void a_failed_scope_gives_its_null_tensor(void **state)
{
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(-1));
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_ARG);
    assert_null(tutti_tensor_data(x));
    assert_int_equal(tutti_tensor_rank(x), 0);
    assert_ptr_equal(tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2)), x); /* the first failure stays */
    assert_string_equal(tutti_scope_error(f->s), "shape [-1]: dimension 0 is negative");
    assert_int_equal(tutti_tensor_fill(x, 1), TUTTI_ERR_ARG);
}

static void an_inner_scope_hands_over_what_is_kept_and_how_it_failed(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *inner;
    assert_int_equal(tutti_scope_open_inside(f->s, &inner), 0);
    tutti_tensor_t *kept = tutti_scope_keep(inner, tutti_ones(inner, TUTTI_F32, TUTTI_SHAPE(2)));
    (void)tutti_ones(inner, TUTTI_F32, TUTTI_SHAPE(1000));
    assert_int_equal(tutti_scope_close(inner), 0);
    assert_true(tutti_tensor_at(kept, 1) == 1);
    assert_int_equal(tutti_scope_open_inside(f->s, &inner), 0);
    (void)tutti_zeros(inner, TUTTI_F32, TUTTI_SHAPE(-2));
    assert_int_equal(tutti_scope_close(inner), TUTTI_ERR_ARG);
    assert_int_equal(tutti_scope_status(f->s), TUTTI_ERR_ARG);
    assert_string_equal(tutti_scope_error(f->s), "shape [-2]: dimension 0 is negative");
}

static void scopes_closed_in_the_wrong_order_are_told(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *outer, *middle, *inner;
    assert_int_equal(tutti_scope_open(f->ctx, &outer), 0);
    assert_int_equal(tutti_scope_open_inside(outer, &middle), 0);
    assert_int_equal(tutti_scope_open_inside(middle, &inner), 0);
    assert_int_equal(tutti_scope_close(middle), TUTTI_ERR_STATE);
    tt_expect_error("before 1 that were opened inside it");
    assert_int_equal(tutti_scope_close(outer), TUTTI_ERR_STATE);
    tutti_tensor_t *x = tutti_scope_keep(inner, tutti_ones(inner, TUTTI_F32, TUTTI_SCALAR));
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_close(inner), TUTTI_ERR_STATE);
    tt_expect_error("the outer scope is closed");
}

static void what_cannot_be_kept_is_a_failure(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *top, *outer, *inner;
    assert_int_equal(tutti_scope_open(f->ctx, &top), 0);
    tutti_tensor_t *x = tutti_scope_keep(top, tutti_ones(top, TUTTI_F32, TUTTI_SCALAR));
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_STATE);
    tt_expect_error("not inside another");
    assert_int_equal(tutti_scope_open(f->ctx, &outer), 0);
    assert_int_equal(tutti_scope_open_inside(outer, &inner), 0);
    x = tutti_scope_keep(inner, x); /* of another scope, which failed */
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_close(inner), 0);
    assert_int_equal(tutti_scope_close(outer), TUTTI_ERR_STATE);
    assert_int_equal(tutti_scope_close(top), TUTTI_ERR_STATE);
}

static void a_retained_tensor_outlives_its_scope(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_tensor_retain(tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(5)));
    assert_int_equal(tutti_scope_close(s), 0);
    assert_true(tutti_tensor_at(x, 4) == 1);
    tutti_tensor_release(x);
    tutti_tensor_release(NULL);
}

static void a_copy_within_one_memory_is_as_from_another(void **state)
{
    enum { N = 40 };
    tt_fixture_t *f = *state;
    tutti_tensor_t *x = tutti_empty(f->s, TUTTI_F32, TUTTI_SHAPE(N, N)), *transposed;
    float values[N * N];
    for (int i = 0; i < N * N; i++) {
        values[i] = (float)i;
    }
    assert_int_equal(tutti_tensor_copy_from(x, values), 0);
    assert_int_equal(
        tt_tensor_over(x->storage, TUTTI_F32, x->shape, (int64_t[]){1, N}, 0, &transposed), 0);
    assert_int_equal(tutti_tensor_copy(transposed, x), 0);
    for (int i = 0; i < N * N; i++) {
        assert_true(tutti_tensor_at(transposed, i) == i);
    }
    tutti_tensor_release(transposed);
}

static void a_retained_failure_outlives_its_scope(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *s;
    const size_t blocks = tt_alloc_stats().blocks;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_tensor_retain(tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(-1)));
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    assert_true(tt_alloc_stats().blocks > blocks);
    assert_int_equal(tutti_tensor_status(x), TUTTI_ERR_ARG);
    (void)TT_FAIL(TUTTI_ERR_IO, "something else");
    assert_int_equal(tutti_tensor_copy_from(x, &(float){1}), TUTTI_ERR_ARG);
    tt_expect_error("the result of a failed operation: shape [-1]: dimension 0 is negative");
    tutti_tensor_release(x);
    assert_int_equal(tt_alloc_stats().blocks, blocks);
}

static void wrapped_memory_is_the_callers(void **state)
{
    (void)state;
    float data[4] = {1, 2, 3, 4};
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(4), data, &x), 0);
    assert_int_equal(tutti_tensor_fill(x, 7), 0);
    tutti_tensor_release(x);
    assert_true(data[3] == 7);
    assert_int_equal(tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE(2), (char *)data + 2, &x),
                     TUTTI_ERR_ARG);
    tt_expect_error("elements of f32 must begin at a multiple of 4 bytes");
}

static void contexts_carry_what_would_be_global(void **state)
{
    tt_fixture_t *f = *state;
    tutti_context_set_step(f->ctx, 12);
    tutti_context_set_shard(f->ctx, 3);
    assert_int_equal(tutti_context_step(f->ctx), 12);
    assert_int_equal(tutti_context_shard(f->ctx), 3);
    assert_true(tutti_context_is_training(f->ctx) && tutti_context_is_grad_enabled(f->ctx));
    assert_int_equal(tutti_context_set_autocast(f->ctx, TUTTI_BF16), TUTTI_F32);
    assert_int_equal(tutti_context_autocast(f->ctx), TUTTI_BF16);
    assert_int_equal(tutti_context_threads(f->ctx), 1);
    tutti_context_t *other;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1000}, &other),
                     TUTTI_ERR_ARG);
}

/* For every n: the nth allocation fails, and what follows is a status, never a crash or a leak. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    tt_test_host_only();
    for (size_t nth = 1;; nth++) {
        tutti_context_t *ctx = NULL;
        tutti_scope_t *s = NULL;
        tt_alloc_fail_at(nth);
        tutti_status_t status = tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx);
        if (status >= 0 && (status = tutti_scope_open(ctx, &s)) >= 0) {
            for (int i = 0; i < 20; i++) {
                (void)tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(i + 1));
            }
            status = tutti_scope_close(s);
        }
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_context_release(ctx);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (!has_failed) {
            assert_true(nth > 20);
            return;
        }
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        T(sizes_count_from_either_end),
        T(values_are_made_and_read_in_every_dtype),
        T(strides_are_followed),
        T(empty_and_full_rank_tensors_work),
        T(bad_shapes_say_what_is_wrong),
        T(numbers_that_are_no_dtype_are_refused),
        T(a_failed_scope_gives_its_null_tensor),
        T(an_inner_scope_hands_over_what_is_kept_and_how_it_failed),
        T(scopes_closed_in_the_wrong_order_are_told),
        T(what_cannot_be_kept_is_a_failure),
        T(a_retained_tensor_outlives_its_scope),
        T(a_copy_within_one_memory_is_as_from_another),
        T(a_retained_failure_outlives_its_scope),
        T(wrapped_memory_is_the_callers),
        T(contexts_carry_what_would_be_global),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
