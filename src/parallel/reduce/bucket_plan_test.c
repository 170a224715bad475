/* Bucket plans as text, and the plan of a model that no memory holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/device/heap.h"
#include "parallel/reduce/bucket_plan.h"

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
    const tt_bucket_param_t params[] = {{64, TUTTI_F32, 0, 0},
                                        {3, TUTTI_F32, 0, 0},
                                        {16, TUTTI_F32, 0, 0},
                                        {17, TUTTI_F32, 0, 0},
                                        {1, TUTTI_F32, 0, 0}};
    expect_plan(params, 5, 64, 192,
                "bucket 0: f32, 64 bytes, parameters 4\n"
                "bucket 1: f32, 192 bytes, parameters 2 3\n"
                "bucket 2: f32, 320 bytes, parameters 0 1\n");
}

static void a_large_parameter_has_its_own_bucket(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {16, TUTTI_F32, 0, 0}, {4096, TUTTI_F32, 0, 0}, {16, TUTTI_F32, 0, 0}};
    expect_plan(params, 3, 64, 64,
                "bucket 0: f32, 64 bytes, parameters 2\n"
                "bucket 1: f32, 16384 bytes, parameters 1\n"
                "bucket 2: f32, 64 bytes, parameters 0\n");
}

static void a_bucket_holds_one_dtype(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {8, TUTTI_F32, 0, 0}, {8, TUTTI_BF16, 0, 0}, {8, TUTTI_BF16, 0, 0}};
    expect_plan(params, 3, 1 << 20, 1 << 20,
                "bucket 0: bf16, 128 bytes, parameters 1 2\n"
                "bucket 1: f32, 64 bytes, parameters 0\n");
}

/* A norm's f32 behind every bf16 matrix: one bucket of them, which is complete last. */
static void dtypes_that_take_turns_make_no_more_buckets(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {{8, TUTTI_F32, 0, 0}, {32, TUTTI_BF16, 0, 0},
                                        {8, TUTTI_F32, 0, 0}, {32, TUTTI_BF16, 0, 0},
                                        {8, TUTTI_F32, 0, 0}, {32, TUTTI_BF16, 0, 0}};
    expect_plan(params, 6, 64, 128,
                "bucket 0: bf16, 64 bytes, parameters 5\n"
                "bucket 1: f32, 128 bytes, parameters 2 4\n"
                "bucket 2: bf16, 128 bytes, parameters 1 3\n"
                "bucket 3: f32, 64 bytes, parameters 0\n");
}

/* The f32 bucket is begun first, and waits for the gradient that comes last. */
static void the_bucket_that_is_complete_first_comes_first(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {8, TUTTI_F32, 0, 0}, {8, TUTTI_F16, 0, 0}, {8, TUTTI_BF16, 0, 0}, {8, TUTTI_F32, 0, 0}};
    expect_plan(params, 4, 1 << 20, 1 << 20,
                "bucket 0: bf16, 64 bytes, parameters 2\n"
                "bucket 1: f16, 64 bytes, parameters 1\n"
                "bucket 2: f32, 128 bytes, parameters 0 3\n");
}

static void no_parameters_make_no_buckets(void **state)
{
    (void)state;
    expect_plan(NULL, 0, 1, 1, "");
}

/* As many buckets as parameters, in memory that holds no byte more than theirs: 16 ints are 64
 * bytes. */
static void every_parameter_may_have_a_bucket(void **state)
{
    (void)state;
    enum { COUNT = 16 };
    tt_bucket_param_t params[COUNT];
    char expected[1024];
    size_t used = 0;
    for (int i = 0; i < COUNT; i++) {
        params[i] = (tt_bucket_param_t){16, TUTTI_F32, 0, 0};
        used += (size_t)snprintf(expected + used, sizeof expected - used,
                                 "bucket %d: f32, 64 bytes, parameters %d\n", i, COUNT - 1 - i);
    }
    expect_plan(params, COUNT, 64, 64, expected);
}

static void a_bucket_holds_one_device(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {16, TUTTI_F32, 1, 0}, {16, TUTTI_F32, 0, 0}, {16, TUTTI_F32, 1, 0}, {16, TUTTI_F32, 0, 0}};
    expect_plan(params, 4, 128, 128,
                "bucket 0: f32, 128 bytes, parameters 1 3\n"
                "bucket 1: f32, 128 bytes, parameters 0 2\n");
}

static void plans_are_equal_if_all_slots_are(void **state)
{
    (void)state;
    const tt_bucket_param_t params[] = {
        {8, TUTTI_F32, 0, 0}, {8, TUTTI_F32, 0, 0}, {8, TUTTI_F32, 0, 0}};
    tt_bucket_plan_t a, b;
    assert_int_equal(tt_bucket_plan_init(params, 3, NULL, 64, 128, &a), TUTTI_OK);
    assert_int_equal(tt_bucket_plan_init(params, 3, (int[]){2, 1, 0}, 64, 128, &b), TUTTI_OK);
    assert_true(tt_bucket_plan_equal(&a, &b));
    for (int i = 0; i < 3; i++) {
        b.slots[i].bucket++;
        assert_false(tt_bucket_plan_equal(&a, &b));
        b.slots[i].bucket--;
        b.slots[i].offset++;
        assert_false(tt_bucket_plan_equal(&a, &b));
        b.slots[i].offset--;
    }
    b.bucket_count--;
    assert_false(tt_bucket_plan_equal(&a, &b));
    b.bucket_count++;
    b.param_count--;
    assert_false(tt_bucket_plan_equal(&a, &b));
    tt_bucket_plan_fini(&a);
    tt_bucket_plan_fini(&b);
}

/* ---- a model that is larger than this machine's memory */

enum { LAYERS = 102, WIDTH = 2560, PARAMS_PER_LAYER = 8, MIB = 1 << 20 };

/* A transformer's layers: 8.02 G parameters. Returns how many bytes they have. */
static size_t make_model(tt_bucket_param_t *params)
{
    static const int64_t widths[PARAMS_PER_LAYER][2] = {{3, WIDTH}, {3, 1}, {1, WIDTH}, {1, 1},
                                                        {4, WIDTH}, {4, 1}, {4, WIDTH}, {1, 1}};
    size_t elements = 0;
    for (int i = 0; i < LAYERS * PARAMS_PER_LAYER; i++) {
        const int64_t *width = widths[i % PARAMS_PER_LAYER];
        params[i] = (tt_bucket_param_t){width[0] * WIDTH * width[1], TUTTI_F32, 0, 0};
        elements += (size_t)params[i].numel;
    }
    assert_true(elements > 8000000000U);
    return elements * sizeof(float);
}

static size_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    (void)fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t populated_bytes(tt_device_t *heap)
{
    size_t sum = 0;
    for (int i = 0; i < tt_heap_segment_count(heap); i++) {
        int fd;
        size_t bytes;
        struct stat info;
        tt_heap_segment(heap, i, &fd, &bytes);
        assert_int_equal(fstat(fd, &info), 0);
        sum += (size_t)info.st_blocks * 512;
    }
    return sum;
}

static void a_model_of_8_g_parameters_is_laid_out_without_memory(void **state)
{
    (void)state;
    static tt_bucket_param_t params[LAYERS * PARAMS_PER_LAYER];
    static unsigned char *memory[LAYERS * PARAMS_PER_LAYER];
    const size_t bytes = make_model(params), before = resident_bytes();
    tt_bucket_plan_t plan;
    assert_int_equal(
        tt_bucket_plan_init(params, LAYERS * PARAMS_PER_LAYER, NULL, MIB, (size_t)25 * MIB, &plan),
        TUTTI_OK);
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    size_t laid_out = 0;
    for (int b = 0; b < plan.bucket_count; b++) {
        const size_t bucket_bytes = (size_t)plan.buckets[b].numel * sizeof(float);
        void *reserved;
        assert_int_equal(tt_heap_reserve(heap, bucket_bytes, "gradients", &reserved), TUTTI_OK);
        memory[b] = reserved;
        assert_true(tt_heap_address(heap, reserved, bucket_bytes) != 0);
        laid_out += bucket_bytes;
    }
    assert_true(laid_out >= bytes);
    assert_int_equal(populated_bytes(heap), 0);
    assert_true(resident_bytes() - before < 64 * MIB);

    /* a rank populates what it works on: here the gradient of one parameter */
    const tt_bucket_slot_t slot = plan.slots[77];
    float *grad = (float *)(void *)memory[slot.bucket] + slot.offset;
    const size_t grad_bytes = (size_t)params[77].numel * sizeof(float);
    assert_int_equal(tt_heap_populate(heap, grad, grad_bytes), TUTTI_OK);
    grad[0] = grad[params[77].numel - 1] = 1;
    assert_true(populated_bytes(heap) < grad_bytes + 2 * (size_t)sysconf(_SC_PAGESIZE));
    for (int b = 0; b < plan.bucket_count; b++) {
        tt_device_free(heap, memory[b], (size_t)plan.buckets[b].numel * sizeof(float));
    }
    assert_int_equal(populated_bytes(heap), 0);
    tutti_device_release(heap);
    tt_bucket_plan_fini(&plan);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_fill_from_the_last_parameter),
        cmocka_unit_test(a_large_parameter_has_its_own_bucket),
        cmocka_unit_test(a_bucket_holds_one_dtype),
        cmocka_unit_test(dtypes_that_take_turns_make_no_more_buckets),
        cmocka_unit_test(the_bucket_that_is_complete_first_comes_first),
        cmocka_unit_test(no_parameters_make_no_buckets),
        cmocka_unit_test(every_parameter_may_have_a_bucket),
        cmocka_unit_test(a_bucket_holds_one_device),
        cmocka_unit_test(plans_are_equal_if_all_slots_are),
        cmocka_unit_test(a_model_of_8_g_parameters_is_laid_out_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
