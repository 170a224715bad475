/* Replaced memory: the owner keeps its pointers and its values, a peer keeps writing into pages
 * that nobody uses, and both meet again at the new place. */
#include "core/base/testing.h"

#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/device/heap.h"

enum { BYTES = 100000 };

/* What a peer that has got all segments sees at a place. */
static unsigned char *look(tt_device_t *heap, tt_heap_peer_t *view, const void *memory,
                           size_t bytes)
{
    for (int i = 0; i < tt_heap_segment_count(heap); i++) {
        int fd;
        size_t segment_bytes;
        tt_heap_segment(heap, i, &fd, &segment_bytes);
        if (i >= view->count || view->segments[i].base == NULL) {
            assert_int_equal(tt_heap_peer_map(view, i, dup(fd), segment_bytes), TUTTI_OK);
        }
    }
    unsigned char *seen = tt_heap_peer_at(view, tt_heap_address(heap, memory, bytes), bytes);
    assert_non_null(seen);
    return seen;
}

static tt_device_t *open_heap(void)
{
    tt_device_t *heap;
    assert_int_equal(tt_device_open(&tt_device_heap, NULL, &heap), TUTTI_OK);
    return heap;
}

static void a_peer_that_goes_on_writing_harms_nobody(void **state)
{
    (void)state;
    const size_t from = tt_heap_page_bytes() + 904; /* the first page stays */
    tt_device_t *heap = open_heap();
    tt_heap_peer_t view = {0};
    unsigned char *left = tt_device_alloc(heap, 1000, "test");
    unsigned char *block = tt_device_alloc(heap, BYTES, "test");
    unsigned char *right = tt_device_alloc(heap, 1000, "test");
    memset(left, 1, 1000);
    memset(block, 2, BYTES);
    memset(right, 3, 1000);
    unsigned char *old = look(heap, &view, block, BYTES);
    unsigned char *neighbour = look(heap, &view, right, 1000);
    assert_int_equal(tt_heap_replace(heap, block + from, BYTES - from), TUTTI_OK);
    memset(old + from, 99, BYTES - from);
    assert_int_equal(block[from], 2);
    assert_int_equal(block[BYTES - 1], 2);
    neighbour[0] = 4; /* what shares no page with it is shared as before */
    assert_int_equal(right[0], 4);
    assert_int_equal(left[999], 1);

    assert_int_equal(tt_heap_address(heap, block, BYTES), 0); /* it lies in two pieces now */
    unsigned char *fresh = look(heap, &view, block + from, BYTES - from);
    fresh[17] = 5;
    assert_int_equal(block[from + 17], 5);
    block[BYTES - 1] = 6;
    assert_int_equal(fresh[BYTES - from - 1], 6);

    tt_heap_peer_close(&view);
    tt_device_free(heap, left, 1000);
    tt_device_free(heap, block, BYTES);
    tt_device_free(heap, right, 1000);
    assert_int_equal(tt_device_stats(heap).live_bytes, 0);
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void old_addresses_and_places_are_never_handed_out_again(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap();
    unsigned char *block = tt_device_alloc(heap, BYTES, "test");
    const size_t before = tt_device_stats(heap).live_bytes;
    const tt_heap_address_t old = tt_heap_address(heap, block, BYTES);
    assert_int_equal(tt_heap_replace(heap, block, BYTES), TUTTI_OK);
    assert_int_equal(tt_heap_replace(heap, block, BYTES), TUTTI_OK); /* the new ones likewise */
    assert_true(tt_heap_address(heap, block, BYTES) != old);
    tt_device_free(heap, block, BYTES);
    for (int i = 0; i < 100; i++) {
        unsigned char *other = tt_device_alloc(heap, BYTES, "test");
        assert_true(other + BYTES <= block || other >= block + BYTES);
        assert_true(tt_heap_address(heap, other, BYTES) != old);
        memset(other, i, BYTES);
        tt_device_free(heap, other, BYTES);
    }
    assert_true(before > 0 && tt_device_stats(heap).live_bytes == 0);
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void pages_that_were_replaced_in_turn_are_never_handed_out_again(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap();
    tt_heap_peer_t view = {0};
    unsigned char *block = tt_device_alloc(heap, BYTES, "test");
    assert_int_equal(tt_heap_replace(heap, block, BYTES), TUTTI_OK);
    unsigned char *seen = look(heap, &view, block, BYTES); /* by a peer that is stopped then */
    assert_int_equal(tt_heap_replace(heap, block, BYTES), TUTTI_OK);
    tt_device_free(heap, block, BYTES);
    for (int i = 0; i < 10; i++) {
        unsigned char *other = tt_device_alloc(heap, BYTES, "test");
        memset(other, i, BYTES);
        memset(seen, 99, BYTES);
        assert_int_equal(other[0], i);
        assert_int_equal(other[BYTES - 1], i);
        tt_device_free(heap, other, BYTES);
    }
    assert_int_equal(tt_device_stats(heap).live_bytes, 0);
    tt_heap_peer_close(&view);
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_large_block_shares_no_page(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    tt_device_t *heap = open_heap();
    void *small[20], *large[20];
    for (int i = 0; i < 20; i++) {
        small[i] = tt_device_alloc(heap, 128 * (size_t)(i + 1), "test");
        large[i] = tt_device_alloc(heap, page + 1000 * (size_t)i, "test");
        assert_int_equal((uintptr_t)large[i] % page, 0);
    }
    for (int i = 0; i < 20; i++) {
        const uintptr_t begin = (uintptr_t)large[i];
        const uintptr_t end = (begin + page + 1000 * (uintptr_t)i + page - 1) / page * page;
        for (int k = 0; k < 20; k++) {
            assert_true((uintptr_t)small[k] >= end || (uintptr_t)small[k] + 128 <= begin);
        }
    }
    for (int i = 0; i < 20; i++) {
        tt_device_free(heap, small[i], 128 * (size_t)(i + 1));
        tt_device_free(heap, large[i], page + 1000 * (size_t)i);
    }
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* What begins inside and ends outside lies in two pieces. */
static void all_that_was_replaced_has_a_place_and_nothing_beyond(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    tt_device_t *heap = open_heap();
    unsigned char *block = tt_device_alloc(heap, 4 * page, "test");
    const tt_heap_address_t before = tt_heap_address(heap, block, page);
    assert_int_equal(tt_heap_replace(heap, block + page, 2 * page), TUTTI_OK);
    const tt_heap_address_t place = tt_heap_address(heap, block + page, 2 * page);
    assert_true(place != 0 && place != before + page);
    assert_true(tt_heap_address(heap, block + 3 * page - 1, 1) == place + 2 * page - 1);
    assert_true(tt_heap_address(heap, block, page) == before);
    assert_true(tt_heap_address(heap, block + 3 * page, page) == before + 3 * page);
    assert_int_equal(tt_heap_address(heap, block + page, 2 * page + 1), 0);
    assert_int_equal(tt_heap_address(heap, block + page - 1, 2), 0);
    tt_device_free(heap, block, 4 * page);
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_replacement_without_memory_changes_nothing(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap();
    unsigned char *block = tt_device_alloc(heap, BYTES, "test");
    memset(block, 7, BYTES);
    const tt_heap_address_t place = tt_heap_address(heap, block, BYTES);
    for (size_t nth = 1;; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t status = tt_heap_replace(heap, block, BYTES);
        const int has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(block[BYTES - 1], 7);
        if (!has_failed) {
            assert_true(nth > 1 && status == TUTTI_OK);
            break;
        }
        assert_int_equal(status, TUTTI_ERR_NOMEM);
        assert_true(tt_heap_address(heap, block, BYTES) == place);
    }
    tt_device_free(heap, block, BYTES);
    assert_int_equal(tt_device_stats(heap).live_bytes, 0);
    tutti_device_release(heap);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_goes_on_writing_harms_nobody),
        cmocka_unit_test(old_addresses_and_places_are_never_handed_out_again),
        cmocka_unit_test(pages_that_were_replaced_in_turn_are_never_handed_out_again),
        cmocka_unit_test(a_large_block_shares_no_page),
        cmocka_unit_test(all_that_was_replaced_has_a_place_and_nothing_beyond),
        cmocka_unit_test(a_replacement_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
