/* Bucket plans as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "parallel/ddp/bucket_plan.h"

static void expect_plan(const tt_bucket_param_t *params, int count, size_t first, size_t cap,
                        const char *expected)
{
    tt_bucket_plan_t plan;
    char text[1024] = "";
    assert_int_equal(tt_bucket_plan_init(params, count, NULL, first, cap, &plan), 0);
    tt_bucket_plan_format(&plan, text, sizeof text);
    assert_string_equal(text, expected);
    for (int i = 0; i < count; i++) {
        assert_int_equal(plan.slots[i].offset * (int64_t)tutti_dtype_bytes(params[i].dtype) % 64,
                         0);
    }
    tt_bucket_plan_fini(&plan);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void buckets_fill_from_the_last_parameter(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {64, TUTTI_F32}, {3, TUTTI_F32}, {16, TUTTI_F32}, {17, TUTTI_F32}, {1, TUTTI_F32}};
    expect_plan(params, 5, 64, 192,
                "bucket 0: f32, 64 bytes, parameters 4\n"
                "bucket 1: f32, 192 bytes, parameters 2 3\n"
                "bucket 2: f32, 320 bytes, parameters 0 1\n");
}

static void a_large_parameter_has_its_own_bucket(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {{16, TUTTI_F32}, {4096, TUTTI_F32}, {16, TUTTI_F32}};
    expect_plan(params, 3, 64, 64,
                "bucket 0: f32, 64 bytes, parameters 2\n"
                "bucket 1: f32, 16384 bytes, parameters 1\n"
                "bucket 2: f32, 64 bytes, parameters 0\n");
}

static void a_bucket_holds_one_dtype(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {{8, TUTTI_F32}, {8, TUTTI_BF16}, {8, TUTTI_BF16}};
    expect_plan(params, 3, 1 << 20, 1 << 20,
                "bucket 0: bf16, 128 bytes, parameters 1 2\n"
                "bucket 1: f32, 64 bytes, parameters 0\n");
}

/* A norm's f32 behind every bf16 matrix: one bucket of them, which is complete last. */
static void dtypes_that_take_turns_make_no_more_buckets(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {{8, TUTTI_F32},   {32, TUTTI_BF16}, {8, TUTTI_F32},
                                        {32, TUTTI_BF16}, {8, TUTTI_F32},   {32, TUTTI_BF16}};
    expect_plan(params, 6, 64, 128,
                "bucket 0: bf16, 64 bytes, parameters 5\n"
                "bucket 1: f32, 128 bytes, parameters 2 4\n"
                "bucket 2: bf16, 128 bytes, parameters 1 3\n"
                "bucket 3: f32, 64 bytes, parameters 0\n");
}

static void no_parameters_make_no_buckets(void **state)
{
    (void)state;
    expect_plan(NULL, 0, 1, 1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_fill_from_the_last_parameter),
        cmocka_unit_test(a_large_parameter_has_its_own_bucket),
        cmocka_unit_test(a_bucket_holds_one_dtype),
        cmocka_unit_test(dtypes_that_take_turns_make_no_more_buckets),
        cmocka_unit_test(no_parameters_make_no_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
