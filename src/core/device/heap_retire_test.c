/* Retired memory: its pages go back to the system, and its addresses are never handed out again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include "core/base/alloc.h"
#include "core/device/heap.h"

/* What the system holds for all segments. */
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

static tt_device_t *open_heap(void)
{
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    return heap;
}

static void the_pages_of_a_retired_block_go_back(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap();
    unsigned char *block = tt_device_alloc(heap, 8 << 20, "test");
    memset(block, 1, 8 << 20);
    const size_t before = populated_bytes(heap);
    tt_heap_retire(heap, block, 8 << 20);
    assert_true(populated_bytes(heap) <= before - (8 << 20) + 2 * tt_heap_page_bytes());
    block[12345] = 7; /* a late peer: no harm */
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_retired_address_never_comes_back(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap();
    unsigned char *left = tt_device_alloc(heap, 1000, "test");
    unsigned char *block = tt_device_alloc(heap, 100000, "test");
    unsigned char *right = tt_device_alloc(heap, 1000, "test");
    tt_heap_retire(heap, block, 100000);
    tt_device_free(heap, left, 1000);
    tt_device_free(heap, right, 1000);
    unsigned char *others[400];
    for (int i = 0; i < 400; i++) {
        const size_t bytes = i % 2 == 0 ? 128 : 60000;
        others[i] = tt_device_alloc(heap, bytes, "test");
        assert_non_null(others[i]);
        memset(others[i], i, bytes);
        assert_true(others[i] + bytes <= block || others[i] >= block + 100000);
    }
    for (int i = 0; i < 400; i++) {
        tt_device_free(heap, others[i], i % 2 == 0 ? 128 : 60000);
    }
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pages_of_a_retired_block_go_back),
        cmocka_unit_test(a_retired_address_never_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
