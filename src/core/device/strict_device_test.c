/* The strict device: memory that the host may not touch, launches that know their pointers, later
 * failures, limits, costs, and several of them. */
#include "core/base/testing.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/device/strict_device.h"
#include "core/kernel/matmul/matmul.h"

enum { COUNT = 1000 };

typedef struct {
    float *out;
    const float *x;
    const float *bias; /* may be NULL */
    size_t count;
    float factor;
} scale_t;

/* As a kernel does it: scratch memory of the threads, a failure that the values decide. */
static tutti_status_t run_scale(tt_threads_t *threads, const void *arguments)
{
    const scale_t *scale = arguments;
    float *scratch = tt_threads_borrow(threads, scale->count * sizeof *scratch);
    TT_TRY_ALLOC(scratch);
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < scale->count; i++) {
        scratch[i] = scale->x[i] * scale->factor + (scale->bias != NULL ? scale->bias[i] : 0);
        if (scale->x[i] < 0) {
            status = TT_FAIL(TUTTI_ERR_ARG, "x[%zu] is %g", i, (double)scale->x[i]);
        }
    }
    if (status >= 0) {
        memcpy(scale->out, scratch, scale->count * sizeof *scratch);
    }
    tt_threads_give_back(threads, scratch);
    return status;
}

static const tt_pointer_t scale_pointers[] = {TT_POINTER(scale_t, out), TT_POINTER(scale_t, x),
                                              TT_POINTER(scale_t, bias), TT_NO_POINTER};
static const tt_kernel_t scale_kernel = TT_KERNEL("scale", scale_t, run_scale, scale_pointers);

static tt_device_t *open_strict(int index)
{
    tt_device_t *device;
    assert_int_equal(
        tt_device_open(&tt_device_strict,
                       &(tt_strict_options_t){.index = index, .memory_bytes = 16 << 20}, &device),
        TUTTI_OK);
    return device;
}

static float *alloc_floats(tt_device_t *device, size_t count)
{
    float *memory = tt_device_alloc(device, count * sizeof *memory, "floats");
    assert_non_null(memory);
    return memory;
}

static float *ramp_on(tt_device_t *device, float first)
{
    static float ramp[COUNT];
    float *x = alloc_floats(device, COUNT);
    for (int i = 0; i < COUNT; i++) {
        ramp[i] = first + (float)i;
    }
    assert_int_equal(tt_device_copy_in(device, x, ramp, sizeof ramp), TUTTI_OK);
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    return x;
}

static tutti_status_t scale_by(tt_device_t *device, float *out, const float *x, float factor)
{
    return tt_launch(tt_device_exec(device), &scale_kernel,
                     &(scale_t){.out = out, .x = x, .count = COUNT, .factor = factor});
}

static void expect_values(tt_device_t *device, const float *x, float first, float step)
{
    float values[COUNT];
    assert_int_equal(tt_device_copy_out(device, values, x, sizeof values), TUTTI_OK);
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    for (int i = 0; i < COUNT; i++) {
        assert_true(values[i] == first + step * (float)i);
    }
}

static void free_floats(tt_device_t *device, float *memory)
{
    tt_device_free(device, memory, COUNT * sizeof *memory);
}

static void kernels_run_in_order_on_copies_of_their_arguments(void **state)
{
    (void)state;
    tt_device_t *device = open_strict(0);
    float *x = ramp_on(device, 0), *y = alloc_floats(device, COUNT);
    scale_t job = {.out = y, .x = x, .bias = x, .count = COUNT, .factor = 2};
    assert_int_equal(tt_launch(tt_device_exec(device), &scale_kernel, &job), TUTTI_OK);
    memset(&job, 0, sizeof job);
    assert_int_equal(scale_by(device, y, y, 2), TUTTI_OK);
    expect_values(device, y, 0, 6);
    assert_int_equal(tt_device_stats(device).launches, 2);
    assert_int_equal(tt_device_stats(device).copied_bytes, 2 * COUNT * sizeof *x);
    free_floats(device, x);
    free_floats(device, y);
    tutti_device_release(device);
}

/* A kernel reads a block that has been freed and handed out again: it is launched first. */
static void a_freed_block_may_be_used_again_at_once(void **state)
{
    (void)state;
    tt_device_t *device;
    const tt_strict_options_t slow = {.memory_bytes = 1 << 20, .launch_ns = 2 * TT_NS_PER_MS};
    assert_int_equal(tt_device_open(&tt_device_strict, &slow, &device), TUTTI_OK);
    float *x = ramp_on(device, 1), *y = alloc_floats(device, COUNT);
    assert_int_equal(scale_by(device, y, x, 3), TUTTI_OK);
    free_floats(device, x);
    float *z = alloc_floats(device, COUNT);
    assert_ptr_equal(z, x);
    assert_int_equal(scale_by(device, z, y, 0), TUTTI_OK);
    expect_values(device, y, 3, 3);
    expect_values(device, z, 0, 0);
    free_floats(device, y);
    free_floats(device, z);
    tutti_device_release(device);
}

static void pointers_of_others_are_refused_by_name(void **state)
{
    (void)state;
    tt_device_t *first = open_strict(0), *second = open_strict(1);
    float *x = ramp_on(first, 0), *y = alloc_floats(second, COUNT);
    float host[COUNT] = {0};
    assert_int_equal(scale_by(first, x, host, 1), TUTTI_ERR_ARG);
    tt_expect_error("scale: x, 0x");
    tt_expect_error("is not memory of strict:0");
    assert_int_equal(scale_by(second, y, x, 1), TUTTI_ERR_ARG);
    tt_expect_error("is not memory of strict:1");
    assert_int_equal(scale_by(first, y, x, 1), TUTTI_ERR_ARG);
    tt_expect_error("scale: out, 0x");
    assert_int_equal(tt_device_copy_in(first, y, host, sizeof host), TUTTI_ERR_ARG);
    tt_expect_error("copy_in: 4000 bytes at 0x");
    assert_int_equal(tt_device_copy_out(first, host, host, sizeof host), TUTTI_ERR_ARG);
    assert_int_equal(tt_device_copy_out(first, host, x, (16 << 20) + 1), TUTTI_ERR_ARG);
    assert_int_equal(tt_device_stats(first).launches + tt_device_stats(second).launches, 0);
    free_floats(first, x);
    free_floats(second, y);
    tutti_device_release(first);
    tutti_device_release(second);
}

static void the_host_crashes_where_it_touches_the_memory(void **state)
{
    (void)state;
    tt_device_t *device = open_strict(0);
    float *x = ramp_on(device, 0);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* without a sanitizer's report */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        volatile float seen = x[0];
        _exit(seen == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    free_floats(device, x);
    tutti_device_release(device);
}

static void what_dtypes_decide_fails_at_launch_and_what_values_decide_later(void **state)
{
    (void)state;
    tt_device_t *device = open_strict(0);
    float *x = ramp_on(device, -1), *y = ramp_on(device, 5);
    const tt_matmul_t whole = {.dtype = TUTTI_I32, .out_dtype = TUTTI_I32};
    assert_int_equal(tt_matmul(tt_device_exec(device), &whole), TUTTI_ERR_DTYPE);
    assert_int_equal(scale_by(device, y, x, 2), TUTTI_OK);
    assert_int_equal(scale_by(device, y, y, 2), TUTTI_OK);
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "strict:0: scale: x[0] is -1");
    expect_values(device, y, 5, 1);
    free_floats(device, x);
    free_floats(device, y);
    tutti_device_release(device);
}

static void memory_ends_with_what_was_asked_and_what_is_free(void **state)
{
    (void)state;
    tt_device_t *device = open_strict(3);
    void *half = tt_device_alloc(device, 8 << 20, "weights");
    assert_non_null(half);
    assert_null(tt_device_alloc(device, (8 << 20) + 4096, "activations"));
    assert_string_equal(tutti_last_error(), "strict:3: 8392704 bytes for activations: 8388608 of "
                                            "16777216 are free");
    void *rest = tt_device_alloc(device, 8 << 20, "activations");
    assert_non_null(rest);
    assert_int_equal(tt_device_stats(device).peak_bytes, 16 << 20);
    tt_device_free(device, half, 8 << 20);
    tt_device_free(device, rest, 8 << 20);
    tutti_device_release(device);
}

/* Such as the part of a cat's result where an input without elements goes. */
static void what_is_empty_may_begin_where_the_memory_ends(void **state)
{
    (void)state;
    enum { ALL = 16 << 20 };
    tt_device_t *device = open_strict(0);
    char *memory = tt_device_alloc(device, ALL, "all");
    assert_non_null(memory);
    scale_t none = {.out = (float *)(void *)(memory + ALL), .x = (float *)(void *)memory};
    assert_int_equal(tt_launch(tt_device_exec(device), &scale_kernel, &none), TUTTI_OK);
    none.x = (float *)(void *)(memory + ALL + sizeof(float));
    assert_int_equal(tt_launch(tt_device_exec(device), &scale_kernel, &none), TUTTI_ERR_ARG);
    tt_expect_error("scale: x, 0x");
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    tt_device_free(device, memory, ALL);
    tutti_device_release(device);
}

static void memory_in_pieces_is_told(void **state)
{
    (void)state;
    enum { PART = 4 << 20 };
    tt_device_t *device = open_strict(0);
    void *parts[4];
    for (int i = 0; i < 3; i++) { /* the last has never been used */
        parts[i] = tt_device_alloc(device, PART, "part");
        assert_non_null(parts[i]);
    }
    tt_device_free(device, parts[1], PART);
    assert_null(tt_device_alloc(device, 2 * PART, "two parts"));
    assert_string_equal(tutti_last_error(), "strict:0: 8388608 bytes for two parts: 8388608 of "
                                            "16777216 are free, but in pieces");
    for (int i = 1; i < 4; i += 2) { /* what is free is found after that */
        parts[i] = tt_device_alloc(device, PART, "part");
        assert_non_null(parts[i]);
    }
    for (int i = 0; i < 4; i++) {
        tt_device_free(device, parts[i], PART);
    }
    tt_device_free(device, tt_device_alloc(device, 4 * PART, "joined"), 4 * PART);
    tutti_device_release(device);
}

/* The default is 64 GiB of addresses: the system is asked for what is used. */
static void memory_is_taken_as_it_is_used(void **state)
{
    (void)state;
    tt_device_t *device;
    assert_int_equal(tt_device_open(&tt_device_strict, NULL, &device), TUTTI_OK);
    float *x = ramp_on(device, 0);
    assert_true(tt_device_stats(device).cached_bytes <= 2 << 20);
    free_floats(device, x);
    tutti_device_release(device);
}

static void costs_are_kept(void **state)
{
    (void)state;
    tt_device_t *device;
    const tt_strict_options_t slow = {
        .memory_bytes = 1 << 20, .launch_ns = 3 * TT_NS_PER_MS, .copy_bytes_s = 1000000};
    assert_int_equal(tt_device_open(&tt_device_strict, &slow, &device), TUTTI_OK);
    const int64_t begin = tt_clock_ns();
    float *x = ramp_on(device, 0); /* 4,000 bytes: 4 ms */
    const int64_t copied = tt_clock_ns();
    assert_true(copied - begin >= 4 * TT_NS_PER_MS);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(scale_by(device, x, x, 1), TUTTI_OK);
    }
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    assert_true(tt_clock_ns() - copied >= 12 * TT_NS_PER_MS);
    free_floats(device, x);
    tutti_device_release(device);
}

static void every_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    for (size_t nth = 1;; nth++) {
        tt_device_t *device = NULL;
        const tt_strict_options_t options = {.memory_bytes = 1 << 20};
        tt_alloc_fail_at(nth);
        if (tt_device_open(&tt_device_strict, &options, &device) == TUTTI_OK) {
            tt_device_free(device, tt_device_alloc(device, 100, "test"), 100);
            tutti_device_release(device);
        }
        const int has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tt_nothing_is_left(NULL);
        if (!has_failed) {
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_run_in_order_on_copies_of_their_arguments),
        cmocka_unit_test(a_freed_block_may_be_used_again_at_once),
        cmocka_unit_test(pointers_of_others_are_refused_by_name),
        cmocka_unit_test(the_host_crashes_where_it_touches_the_memory),
        cmocka_unit_test(what_dtypes_decide_fails_at_launch_and_what_values_decide_later),
        cmocka_unit_test(memory_ends_with_what_was_asked_and_what_is_free),
        cmocka_unit_test(what_is_empty_may_begin_where_the_memory_ends),
        cmocka_unit_test(memory_in_pieces_is_told),
        cmocka_unit_test(memory_is_taken_as_it_is_used),
        cmocka_unit_test(costs_are_kept),
        cmocka_unit_test(every_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
