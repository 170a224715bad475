/* Devices: what is freed is found again, slack stays bounded, a heap is the same memory for a peer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/device/cpu_device.h"
#include "core/device/heap.h"

static void expect_no_leak(void)
{
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void size_classes_waste_at_most_an_eighth(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < (SIZE_MAX >> 20); bytes += bytes / 7 + 1) {
        const size_t rounded = tt_cpu_class_bytes(bytes);
        assert_true(rounded >= bytes);
        assert_true(bytes < 512 || rounded - bytes <= bytes / 8);
    }
    assert_int_equal(tt_cpu_class_bytes(SIZE_MAX), 0);
}

static void fill(tt_device_t *device, void *memory, int value, size_t bytes)
{
    unsigned char *from = tt_alloc_raw(bytes, "test");
    memset(from, value, bytes);
    assert_int_equal(tt_device_copy_in(device, memory, from, bytes), TUTTI_OK);
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    tt_free(from);
}

static void expect_byte(tt_device_t *device, const void *memory, int value)
{
    unsigned char byte;
    assert_int_equal(tt_device_copy_out(device, &byte, memory, 1), TUTTI_OK);
    assert_int_equal(tt_device_synchronize(device, TT_NEVER), TUTTI_OK);
    assert_int_equal(byte, value);
}

static void every_device_gives_aligned_memory_that_is_all_writable(void **state)
{
    (void)state;
    for (int i = 0; tt_devices[i] != NULL; i++) {
        tt_device_t *device;
        assert_int_equal(tt_device_open(tt_devices[i], NULL, &device), TUTTI_OK);
        const size_t sizes[] = {0, 1, 64, 65, 4096, 100000, 5000000};
        void *blocks[7];
        for (int k = 0; k < 7; k++) {
            blocks[k] = tt_device_alloc(device, sizes[k], "test");
            assert_non_null(blocks[k]);
            assert_int_equal((uintptr_t)blocks[k] % TT_ALIGN, 0);
            fill(device, blocks[k], k, sizes[k]);
        }
        for (int k = 1; k < 7 && tt_device_has_values(device); k++) {
            expect_byte(device, (unsigned char *)blocks[k] + sizes[k] - 1, k);
            expect_byte(device, blocks[k], k);
        }
        assert_ptr_not_equal(blocks[0], blocks[1]); /* nothing has a place of its own, too */
        assert_null(tt_device_alloc(device, SIZE_MAX / 2, "too much"));
        for (int k = 0; k < 7; k++) {
            tt_device_free(device, blocks[k], sizes[k]);
        }
        assert_int_equal(tt_device_stats(device).live_bytes, 0);
        tutti_device_release(device);
    }
    expect_no_leak();
}

static void a_second_step_allocates_nothing(void **state)
{
    (void)state;
    tt_device_t *cpu;
    assert_int_equal(tt_device_open(&tt_device_cpu, NULL, &cpu), TUTTI_OK);
    size_t allocations = 0;
    for (int step = 0; step < 3; step++) {
        void *blocks[20];
        for (size_t k = 0; k < 20; k++) {
            blocks[k] = tt_device_alloc(cpu, 1000 * (k + 1) * (k + 1), "activation");
        }
        for (size_t k = 0; k < 20; k++) {
            tt_device_free(cpu, blocks[k], 1000 * (k + 1) * (k + 1));
        }
        if (step > 0) {
            assert_int_equal(tt_alloc_stats().allocations, allocations);
        }
        allocations = tt_alloc_stats().allocations;
    }
    tutti_device_release(cpu);
    expect_no_leak();
}

static void slack_stays_below_an_eighth_of_the_peak(void **state)
{
    (void)state;
    tt_device_t *cpu;
    assert_int_equal(tt_device_open(&tt_device_cpu, NULL, &cpu), TUTTI_OK);
    for (size_t bytes = 1 << 20; bytes < 40 << 20; bytes += 1 << 20) {
        tt_device_free(cpu, tt_device_alloc(cpu, bytes, "ever larger"), bytes);
        const tt_device_stats_t stats = tt_device_stats(cpu);
        assert_true(stats.cached_bytes + stats.live_bytes <=
                    stats.peak_bytes + stats.peak_bytes / 8 + (4 << 20));
    }
    tutti_device_release(cpu);
    expect_no_leak();
}

static void a_block_outlives_the_last_handle_of_its_device(void **state)
{
    (void)state;
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    unsigned char *block = tt_device_alloc(heap, 100, "test");
    tutti_device_release(heap);
    block[99] = 1;
    tt_device_free(heap, block, 100);
    expect_no_leak();
}

static void a_peer_sees_the_same_memory(void **state)
{
    (void)state;
    tt_device_t *heap;
    assert_int_equal(
        tt_device_open(&tt_device_heap, &(tt_heap_options_t){.first_bytes = 1 << 20}, &heap),
        TUTTI_OK);
    unsigned char *small = tt_device_alloc(heap, 100, "test");
    unsigned char *large = tt_device_alloc(heap, 3 << 20, "test");
    assert_int_equal(tt_heap_segment_count(heap), 2);
    tt_heap_peer_t view = {0};
    for (int i = 0; i < 2; i++) {
        int fd;
        size_t bytes;
        tt_heap_segment(heap, i, &fd, &bytes);
        assert_int_equal(tt_heap_peer_map(&view, i, dup(fd), bytes), TUTTI_OK);
    }
    const tt_heap_address_t place = tt_heap_address(heap, large, 3 << 20);
    unsigned char *seen = tt_heap_peer_at(&view, place, 3 << 20);
    assert_non_null(seen);
    large[12345] = 77;
    assert_int_equal(seen[12345], 77);
    seen[0] = 5;
    assert_int_equal(large[0], 5);
    assert_null(tt_heap_peer_at(&view, place, 1 << 30));
    assert_null(tt_heap_peer_at(&view, 0, 1));
    assert_int_equal(tt_heap_address(heap, &view, 1), 0);
    tt_heap_peer_close(&view);
    tt_device_free(heap, small, 100);
    tt_device_free(heap, large, 3 << 20);
    tutti_device_release(heap);
    expect_no_leak();
}

static void freed_spans_join_and_are_used_again(void **state)
{
    (void)state;
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    void *blocks[8];
    for (int round = 0; round < 10; round++) {
        for (int k = 0; k < 8; k++) {
            blocks[k] = tt_device_alloc(heap, 128 << 10, "test");
        }
        for (int k = 0; k < 8; k++) {
            tt_device_free(heap, blocks[(k * 3) % 8], 128 << 10);
        }
        void *all = tt_device_alloc(heap, 1 << 20, "test");
        tt_device_free(heap, all, 1 << 20);
    }
    assert_int_equal(tt_heap_segment_count(heap), 1);
    tutti_device_release(heap);
    expect_no_leak();
}

static void a_descriptor_that_could_shrink_is_refused(void **state)
{
    (void)state;
    tt_heap_peer_t view = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(tt_heap_peer_map(&view, 0, ends[0], 4096), TUTTI_ERR_AUTH);
    close(ends[1]);
    assert_int_equal(tt_heap_peer_map(&view, TT_HEAP_SEGMENTS_MAX, dup(0), 4096), TUTTI_ERR_FORMAT);
}

static void a_failed_allocation_leaves_a_heap_usable(void **state)
{
    (void)state;
    for (size_t nth = 1;; nth++) {
        tt_alloc_fail_at(nth);
        tt_device_t *heap = NULL;
        if (tt_device_open(&tt_device_heap, NULL, &heap) == TUTTI_OK) {
            void *block = tt_device_alloc(heap, 3 << 20, "test");
            tt_device_free(heap, block, 3 << 20);
            tutti_device_release(heap);
        }
        const int has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        expect_no_leak();
        if (!has_failed) {
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_classes_waste_at_most_an_eighth),
        cmocka_unit_test(every_device_gives_aligned_memory_that_is_all_writable),
        cmocka_unit_test(a_second_step_allocates_nothing),
        cmocka_unit_test(slack_stays_below_an_eighth_of_the_peak),
        cmocka_unit_test(a_block_outlives_the_last_handle_of_its_device),
        cmocka_unit_test(a_peer_sees_the_same_memory),
        cmocka_unit_test(freed_spans_join_and_are_used_again),
        cmocka_unit_test(a_descriptor_that_could_shrink_is_refused),
        cmocka_unit_test(a_failed_allocation_leaves_a_heap_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
