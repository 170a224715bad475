/* TUTTI_MEMORY_LIMIT: sizes as they are written, and what happens above. */
#include <stdlib.h>

#include <tutti/tensor.h>

#include "core/base/config.h"
#include "core/base/memory_limit.h"
#include "core/base/testing.h"
#include "core/device/heap.h"

static void sizes_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: no size */
    } cases[] = {{"1", 1},
                 {"4096", 4096},
                 {"1K", 1024},
                 {"900M", UINT64_C(900) << 20},
                 {"4G", UINT64_C(4) << 30},
                 {"2T", UINT64_C(2) << 40},
                 {"0", 0},
                 {"", 0},
                 {"-1", 0},
                 {" 1", 0},
                 {"1 K", 0},
                 {"1k", 0},
                 {"1KB", 0},
                 {"M", 0},
                 {"1.5G", 0},
                 {"99999999999999999999", 0},
                 {"99999999T", 0},
                 {"17592186044415M", UINT64_C(17592186044415) << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0;
        assert_int_equal(tt_parse_bytes(cases[i].text, &bytes), cases[i].bytes != 0);
        assert_true(bytes == cases[i].bytes);
    }
    setenv("TUTTI_MEMORY_LIMIT", "12Q", 1);
    assert_int_equal(tt_config_check(), TUTTI_ERR_ARG);
    tt_expect_error("TUTTI_MEMORY_LIMIT=12Q: want a size above 0, such as 900M or 4G");
    setenv("TUTTI_MEMORY_LIMIT", "12M", 1);
    assert_int_equal(tt_config_check(), TUTTI_OK);
    unsetenv("TUTTI_MEMORY_LIMIT");
}

static void what_is_above_fails_and_names_the_largest(void **state)
{
    (void)state;
    tt_memory_set_limit(1 << 20, 0);
    char *most = tt_alloc(600 << 10, "the most"), *less = tt_alloc(300 << 10, "less");
    assert_non_null(most);
    assert_non_null(less);
    assert_int_equal(tt_memory_taken(), 900 << 10);
    assert_null(tt_alloc(125 << 10, "too much"));
    tt_expect_error(
        "cannot allocate 128000 bytes for too much: TUTTI_MEMORY_LIMIT is 1.0 MiB, and "
        "900.0 KiB of it are taken (shared heaps 0 B, the most 600.0 KiB, less 300.0 KiB)");
    assert_null(tt_alloc_array(SIZE_MAX / 4, 16, "overflow"));
    char *rest = tt_alloc_raw(124 << 10, "the rest"); /* to the last byte */
    assert_non_null(rest);
    assert_null(tt_alloc(1, "one more"));
    tt_free(less);
    less = tt_realloc(NULL, 1, "less");
    assert_non_null(less);
    tt_free(less);
    tt_free(rest);
    tt_alloc_fail_at(1); /* what fails for another reason is not taken */
    assert_null(tt_alloc(1, "made to fail"));
    assert_int_equal(tt_memory_taken(), 600 << 10);
    tt_free(most);
    assert_int_equal(tt_memory_taken(), 0);
    tt_memory_set_limit(0, 0);
}

static void tensors_and_heaps_count(void **state)
{
    (void)state;
    enum { MANY = 8 << 20 };
    tutti_tensor_t *x, *y;
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    tt_memory_set_limit(32 << 20, 0);
    void *shared = tt_device_alloc(heap, MANY, "shared");
    assert_non_null(shared);
    const uint64_t with_heap = tt_memory_taken();
    assert_true(with_heap >= MANY && with_heap < MANY + (2 << 20));
    assert_int_equal(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(MANY), &x), TUTTI_OK);
    assert_true(tt_memory_taken() >= with_heap + MANY);
    assert_int_equal(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(2 * MANY), &y), TUTTI_ERR_NOMEM);
    tt_expect_error("TUTTI_MEMORY_LIMIT is 32.0 MiB");
    assert_null(tt_device_alloc(heap, 2 * MANY, "more"));
    tt_expect_error("for more: TUTTI_MEMORY_LIMIT is 32.0 MiB");
    tutti_tensor_release(x);
    void *more = tt_device_alloc(heap, 2 * MANY, "more"); /* the refused one has left nothing */
    assert_non_null(more);
    tt_device_free(heap, more, 2 * MANY);
    tt_device_free(heap, shared, MANY);
    tutti_device_release(heap);
    assert_true(tt_memory_taken() < 1 << 20);
    tt_memory_set_limit(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_strictly),
        cmocka_unit_test(what_is_above_fails_and_names_the_largest),
        cmocka_unit_test(tensors_and_heaps_count),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
