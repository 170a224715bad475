/* The shared heap: no ceiling but memory, pages by extents, the bound of unused pages counted by
 * the system's own numbers, and lack of memory as a status. */
#include "core/base/testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/device/heap.h"

enum { MIB = 1 << 20 };

static tt_device_t *open_heap(const tt_heap_options_t *options)
{
    tt_device_t *heap = NULL;
    assert_int_equal(tt_device_open(&tt_device_heap, options, &heap), TUTTI_OK);
    return heap;
}

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

/* ---- growing */

static void a_heap_grows_past_a_thousand_segments(void **state)
{
    (void)state;
    enum { COUNT = 1200, BYTES = 60000 };
    tt_device_t *heap =
        open_heap(&(tt_heap_options_t){.first_bytes = 64 << 10, .segment_max = 64 << 10});
    static unsigned char *blocks[COUNT];
    tt_heap_peer_t view = {0};
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = tt_device_alloc(heap, BYTES, "test");
        assert_non_null(blocks[i]);
        memcpy(blocks[i], &i, sizeof i);
    }
    assert_true(tt_heap_segment_count(heap) >= COUNT);
    for (int i = tt_heap_segment_count(heap) - 1; i >= 0; i--) {
        int fd;
        size_t bytes;
        tt_heap_segment(heap, i, &fd, &bytes);
        assert_int_equal(tt_heap_peer_map(&view, i, dup(fd), bytes), TUTTI_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        const tt_heap_address_t place = tt_heap_address(heap, blocks[i], BYTES);
        assert_ptr_equal(tt_heap_at(heap, place, BYTES), blocks[i]);
        const unsigned char *seen = tt_heap_peer_at(&view, place, BYTES);
        assert_memory_equal(seen, &i, sizeof i);
        tt_device_free(heap, blocks[i], BYTES);
    }
    tt_heap_peer_close(&view);
    tutti_device_release(heap);
}

static void segments_double_so_that_there_are_few(void **state)
{
    (void)state;
    enum { COUNT = 2000, BYTES = 64 << 10 };
    tt_device_t *heap = open_heap(&(tt_heap_options_t){.first_bytes = MIB});
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = tt_device_alloc(heap, BYTES, "test");
        assert_non_null(blocks[i]);
    }
    assert_true(tt_heap_segment_count(heap) <= 8); /* 1 + 1 + 2 + … + 64 MiB */
    assert_true(populated_bytes(heap) <= COUNT * (size_t)BYTES * 21 / 20 + MIB);
    for (int i = 0; i < COUNT; i++) {
        tt_device_free(heap, blocks[i], BYTES);
    }
    assert_true(populated_bytes(heap) <= MIB);
    tutti_device_release(heap);
}

/* ---- reserving */

static void reserved_memory_is_address_space_alone(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    const size_t bytes = (size_t)64 << 30;
    tt_device_t *heap = open_heap(NULL);
    void *memory;
    assert_int_equal(tt_heap_reserve(heap, bytes, "test", &memory), TUTTI_OK);
    assert_int_equal(populated_bytes(heap), 0);
    unsigned char *at = (unsigned char *)memory + ((size_t)37 << 30) + 100;
    assert_int_equal(tt_heap_populate(heap, at, 3 * page), TUTTI_OK);
    assert_int_equal(populated_bytes(heap), 4 * page); /* it lies in four pages */
    memset(at, 9, 3 * page);
    assert_int_equal(tt_heap_populate(heap, at + page, 5 * page), TUTTI_OK);
    assert_int_equal(at[3 * page - 1], 9);
    assert_int_equal(at[3 * page], 0);
    assert_int_equal(populated_bytes(heap), 7 * page);
    tt_heap_discard(heap, at, 3 * page); /* two pages lie inside */
    assert_int_equal(populated_bytes(heap), 5 * page);
    assert_int_equal(at[0], 9);
    assert_int_equal(tt_heap_usage(heap).populated_bytes, 0); /* reserved blocks are not counted */
    tt_device_free(heap, memory, bytes);
    assert_int_equal(populated_bytes(heap), 0);
    tutti_device_release(heap);
}

static void a_retired_reservation_leaves_no_page(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap(NULL);
    void *memory, *block = tt_device_alloc(heap, MIB, "test");
    assert_int_equal(tt_heap_reserve(heap, 8 * MIB, "test", &memory), TUTTI_OK);
    assert_int_equal(tt_heap_populate(heap, memory, 2 * MIB), TUTTI_OK);
    assert_int_equal(populated_bytes(heap), 3 * MIB);
    tt_heap_retire(heap, memory, 8 * MIB);
    assert_int_equal(populated_bytes(heap), MIB);
    assert_int_equal(tt_heap_usage(heap).populated_bytes, MIB);
    tt_device_free(heap, block, MIB);
    tutti_device_release(heap);
}

static void a_peer_maps_a_segment_once_and_sees_later_pages(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap(NULL);
    tt_heap_peer_t view = {0};
    int fd;
    size_t bytes;
    tt_heap_segment(heap, 0, &fd, &bytes);
    assert_int_equal(tt_heap_peer_map(&view, 0, dup(fd), bytes), TUTTI_OK);
    assert_int_equal(tt_heap_peer_map(&view, 0, dup(fd), bytes), TUTTI_ERR_FORMAT);
    tt_expect_error("a peer sent segment 0 of its heap twice");
    assert_int_equal(populated_bytes(heap), 0); /* mapping makes no pages */
    unsigned char *block = tt_device_alloc(heap, 2 * MIB, "test");
    block[MIB] = 42;
    const unsigned char *seen = tt_heap_peer_at(&view, tt_heap_address(heap, block, MIB), 2 * MIB);
    assert_int_equal(seen[MIB], 42);
    assert_null(tt_heap_peer_at(&view, (tt_heap_address_t)1 << 48 | bytes, 1));
    assert_null(tt_heap_peer_at(&view, (tt_heap_address_t)1 << 48 | (bytes - 1), 2));
    assert_null(tt_heap_peer_at(&view, (tt_heap_address_t)2 << 48, 1));
    assert_null(tt_heap_peer_at(&view, (tt_heap_address_t)TT_HEAP_SEGMENTS_MAX << 48, 1));
    tt_heap_peer_close(&view);
    tt_device_free(heap, block, 2 * MIB);
    tutti_device_release(heap);
}

/* ---- pages that nobody uses */

static void freed_memory_goes_back_to_the_system(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap(NULL);
    void *kept = tt_device_alloc(heap, 40 * MIB, "test");
    void *freed = tt_device_alloc(heap, 100 * MIB, "test");
    assert_int_equal(populated_bytes(heap), 140 * MIB);
    tt_device_free(heap, freed, 100 * MIB);
    const size_t populated = populated_bytes(heap);
    assert_true(populated - 40 * MIB <= populated / 20);
    assert_true(populated > 41 * MIB); /* 5 % stay for the next one */
    tt_device_free(heap, kept, 40 * MIB);
    assert_int_equal(populated_bytes(heap), MIB);
    tutti_device_release(heap);
}

static void the_same_sizes_again_cost_no_system_call(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000, 21 << 10, 128 << 10, 256 << 10, 300000};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    tt_device_t *heap = open_heap(NULL);
    void *long_lived = tt_device_alloc(heap, 777, "test");
    size_t misses = 0, allocations = 0;
    for (int step = 0; step < 6 * COUNT; step++) {
        void *blocks[COUNT];
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = tt_device_alloc(heap, sizes[(i + step) % COUNT], "test");
        }
        for (int i = 0; i < COUNT; i++) {
            tt_device_free(heap, blocks[i], sizes[(i + step) % COUNT]);
        }
        if (step == 2 * COUNT) { /* each rotation of the sizes has been there */
            misses = tt_device_stats(heap).misses;
            allocations = tt_alloc_stats().allocations;
        }
    }
    assert_int_equal(tt_device_stats(heap).misses, misses);
    assert_int_equal(tt_alloc_stats().allocations, allocations);
    tt_device_free(heap, long_lived, 777);
    tutti_device_release(heap);
}

static void small_blocks_are_populated_many_at_once(void **state)
{
    (void)state;
    enum { COUNT = 300, BYTES = 3000 };
    tt_device_t *heap = open_heap(NULL);
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = tt_device_alloc(heap, BYTES, "test");
        assert_non_null(blocks[i]);
    }
    assert_true(tt_device_stats(heap).misses <= 5); /* 900 KB, 256 KiB each time */
    for (int i = 0; i < COUNT; i++) {
        tt_device_free(heap, blocks[i], BYTES);
    }
    tutti_device_release(heap);
}

static void blocks_of_a_page_or_more_share_none(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    tt_device_t *heap = open_heap(NULL);
    unsigned char *small = tt_device_alloc(heap, 100, "test");
    unsigned char *exact = tt_device_alloc(heap, page, "test");
    unsigned char *large = tt_device_alloc(heap, 100001, "test");
    unsigned char *other = tt_device_alloc(heap, 100, "test");
    assert_int_equal((uintptr_t)exact % page, 0);
    assert_int_equal((uintptr_t)large % page, 0);
    const size_t end = (100001 + page - 1) / page * page;
    assert_true(other < large || other >= large + end);
    const size_t before = populated_bytes(heap);
    tt_heap_retire(heap, large, 100001); /* so that retiring one punches all of it */
    assert_int_equal(populated_bytes(heap), before - end);
    tt_device_free(heap, small, 100);
    tt_device_free(heap, exact, page);
    tt_device_free(heap, other, 100);
    tutti_device_release(heap);
}

static void retired_blocks_that_share_pages_leave_nothing_behind(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    enum { COUNT = 3000, BYTES = 3000 };
    tt_device_t *heap = open_heap(NULL);
    void *neighbours[8] = {0};
    for (int i = 0; i < COUNT; i++) {
        unsigned char *block = tt_device_alloc(heap, BYTES, "test");
        assert_non_null(block);
        tt_device_free(heap, neighbours[i % 8], 300);
        neighbours[i % 8] = tt_device_alloc(heap, 300, "test");
        tt_heap_retire(heap, block, BYTES);
    }
    assert_true(populated_bytes(heap) <= MIB + 16 * page);
    assert_int_equal(populated_bytes(heap), tt_heap_usage(heap).populated_bytes);
    for (int i = 0; i < 8; i++) {
        tt_device_free(heap, neighbours[i], 300);
    }
    assert_true(tt_alloc_stats().blocks < 100); /* nor in the books */
    tutti_device_release(heap);
}

/* ---- against a model */

typedef struct {
    unsigned char *memory;
    size_t bytes;
    unsigned char mark;
} block_t;

typedef struct {
    unsigned char *memory;
    size_t bytes;
} gone_t;

enum { SLOTS = 60, GONE_MAX = 2000 };

static uint64_t seed_of_test(void)
{
    const char *text = getenv("TUTTI_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static uint64_t draw(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *random >> 33;
}

static size_t draw_bytes(uint64_t *random)
{
    const size_t largest = (size_t)1 << (6 + draw(random) % 16);
    return draw(random) % 8 == 0 ? largest : draw(random) % largest;
}

static bool overlap(const unsigned char *a, size_t a_bytes, const unsigned char *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void fill(block_t *block, uint64_t *random, const gone_t *gone, int gone_count)
{
    block->mark = (unsigned char)draw(random);
    memset(block->memory, block->mark, block->bytes);
    for (int i = 0; i < gone_count; i++) {
        assert_false(overlap(block->memory, block->bytes, gone[i].memory, gone[i].bytes));
    }
}

static void expect_intact(const block_t *block)
{
    for (size_t i = 0; i < block->bytes; i++) {
        assert_int_equal(block->memory[i], block->mark);
    }
}

static void expect_bound(tt_device_t *heap)
{
    const tt_heap_usage_t usage = tt_heap_usage(heap);
    assert_int_equal(usage.populated_bytes, populated_bytes(heap));
    assert_true(usage.idle_bytes * 20 <= usage.populated_bytes);
}

static void random_blocks_keep_their_bytes_and_the_bound(void **state)
{
    (void)state;
    static block_t blocks[SLOTS];
    static gone_t gone[GONE_MAX];
    int gone_count = 0;
    uint64_t random = seed_of_test();
    tt_device_t *heap = open_heap(&(tt_heap_options_t){.first_bytes = MIB, .idle_min = 1});
    for (int step = 0; step < 6000; step++) {
        block_t *block = &blocks[draw(&random) % SLOTS];
        if (block->memory == NULL) {
            block->bytes = draw_bytes(&random);
            block->memory = tt_device_alloc(heap, block->bytes, "test");
            assert_non_null(block->memory);
            fill(block, &random, gone, gone_count);
        } else {
            expect_intact(block);
            const bool retires = draw(&random) % 8 == 0 && gone_count < GONE_MAX;
            if (retires) {
                gone[gone_count++] = (gone_t){block->memory, block->bytes};
                tt_heap_retire(heap, block->memory, block->bytes);
            } else {
                tt_device_free(heap, block->memory, block->bytes);
            }
            block->memory = NULL;
        }
        expect_bound(heap);
    }
    for (int i = 0; i < SLOTS; i++) {
        tt_device_free(heap, blocks[i].memory, blocks[i].bytes);
        blocks[i].memory = NULL;
    }
    assert_int_equal(populated_bytes(heap), 0);
    tutti_device_release(heap);
}

/* ---- threads */

enum { THREADS = 4, ROUNDS = 400 };

/* Returns what went wrong, as a text; NULL: nothing. */
static void *allocate(void *argument)
{
    tt_device_t *heap = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    unsigned char *blocks[8] = {0};
    size_t bytes[8] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        const int k = i % 8;
        if (blocks[k] != NULL && (blocks[k][0] != k || blocks[k][bytes[k] - 1] != k)) {
            return (void *)(uintptr_t) "another thread has written to my block";
        }
        if (blocks[k] != NULL && i % 11 == 0) {
            tt_heap_retire(heap, blocks[k], bytes[k]);
        } else {
            tt_device_free(heap, blocks[k], bytes[k]);
        }
        bytes[k] = 1 + draw_bytes(&random);
        blocks[k] = tt_device_alloc(heap, bytes[k], "test");
        if (blocks[k] == NULL) {
            return (void *)(uintptr_t) "no memory";
        }
        blocks[k][0] = blocks[k][bytes[k] - 1] = (unsigned char)k;
        if (tt_heap_at(heap, tt_heap_address(heap, blocks[k], bytes[k]), bytes[k]) != blocks[k]) {
            return (void *)(uintptr_t) "a place leads elsewhere";
        }
    }
    for (int k = 0; k < 8; k++) {
        tt_device_free(heap, blocks[k], bytes[k]);
    }
    return NULL;
}

typedef struct {
    pthread_mutex_t lock;
    int times[64];
} told_t;

static void on_segment(void *user, int segment, int fd, size_t bytes)
{
    told_t *told = user;
    (void)fd, (void)bytes;
    pthread_mutex_lock(&told->lock);
    told->times[segment]++;
    pthread_mutex_unlock(&told->lock);
}

static void threads_allocate_at_once(void **state)
{
    (void)state;
    told_t told = {.lock = PTHREAD_MUTEX_INITIALIZER};
    tt_device_t *heap = open_heap(&(tt_heap_options_t){
        .first_bytes = 64 << 10, .idle_min = 64 << 10, .on_segment = on_segment, .user = &told});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate, heap), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *problem;
        assert_int_equal(pthread_join(threads[i], &problem), 0);
        if (problem != NULL) {
            fail_msg("%s", (const char *)problem);
        }
    }
    for (int i = 1; i < tt_heap_segment_count(heap); i++) {
        assert_int_equal(told.times[i], 1);
    }
    assert_int_equal(populated_bytes(heap), tt_heap_usage(heap).populated_bytes);
    assert_true(populated_bytes(heap) <= 64 << 10);
    tutti_device_release(heap);
}

/* ---- lack of memory */

static void more_than_the_machine_has_is_a_status(void **state)
{
    (void)state;
    const size_t page = tt_heap_page_bytes();
    const size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page * 2;
    tt_device_t *heap = open_heap(NULL);
    assert_null(tt_device_alloc(heap, bytes, "a tensor"));
    char asked[64];
    snprintf(asked, sizeof asked, "cannot get %zu bytes of shared memory for a tensor", bytes);
    tt_expect_error(asked);
    tt_expect_error(" are available (");
    assert_int_equal(populated_bytes(heap), 0);
    assert_int_equal(tt_heap_segment_count(heap), 1);
    void *reserved;
    assert_int_equal(tt_heap_reserve(heap, bytes, "test", &reserved), TUTTI_OK);
    assert_int_equal(tt_heap_populate(heap, reserved, bytes), TUTTI_ERR_NOMEM);
    assert_int_equal(tt_heap_populate(heap, reserved, MIB), TUTTI_OK);
    tt_device_free(heap, reserved, bytes);
    void *block = tt_device_alloc(heap, MIB, "test");
    assert_non_null(block);
    tt_device_free(heap, block, MIB);
    tutti_device_release(heap);
}

static void more_address_space_than_there_is_is_a_status(void **state)
{
    (void)state;
    tt_device_t *heap = open_heap(NULL);
    void *reserved;
    assert_int_equal(tt_heap_reserve(heap, (size_t)1 << 47, "test", &reserved), TUTTI_ERR_NOMEM);
    assert_int_equal(tt_heap_reserve(heap, SIZE_MAX, "test", &reserved), TUTTI_ERR_NOMEM);
    assert_null(tt_device_alloc(heap, SIZE_MAX - 1, "test"));
    tutti_device_release(heap);
}

/* A limit on the size of files is one on segments: smaller ones do, and no signal comes. */
static void a_limit_of_file_size_makes_smaller_segments(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 2 * MIB, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    tt_device_t *heap = open_heap(NULL);
    void *blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = tt_device_alloc(heap, 2 * MIB, "test");
        assert_non_null(blocks[i]);
    }
    assert_null(tt_device_alloc(heap, 3 * MIB, "test"));
    tt_expect_error("cannot get 3145728 bytes of shared memory");
    for (int i = 0; i < 4; i++) {
        tt_device_free(heap, blocks[i], 2 * MIB);
    }
    tutti_device_release(heap);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* What was freed is handed out again as it is, and goes when nobody keeps it. */
static void what_is_kept_stays_populated(void **state)
{
    (void)state;
    enum { BLOCK = 8 * MIB };
    tt_device_t *heap = open_heap(&(tt_heap_options_t){.first_bytes = MIB, .idle_min = 1});
    tt_device_keep(heap, BLOCK);
    void *block = tt_device_alloc(heap, BLOCK, "test");
    assert_non_null(block);
    tt_device_free(heap, block, BLOCK);
    assert_in_range(tt_heap_usage(heap).idle_bytes, BLOCK, BLOCK + MIB);
    const size_t misses = tt_device_stats(heap).misses;
    block = tt_device_alloc(heap, BLOCK, "test");
    assert_int_equal(tt_device_stats(heap).misses, misses);
    tt_device_free(heap, block, BLOCK);
    tt_device_keep(heap, -(int64_t)BLOCK);
    assert_in_range(tt_heap_usage(heap).idle_bytes, 0, MIB / 10);
    tutti_device_release(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heap_grows_past_a_thousand_segments),
        cmocka_unit_test(segments_double_so_that_there_are_few),
        cmocka_unit_test(reserved_memory_is_address_space_alone),
        cmocka_unit_test(a_retired_reservation_leaves_no_page),
        cmocka_unit_test(a_peer_maps_a_segment_once_and_sees_later_pages),
        cmocka_unit_test(freed_memory_goes_back_to_the_system),
        cmocka_unit_test(the_same_sizes_again_cost_no_system_call),
        cmocka_unit_test(small_blocks_are_populated_many_at_once),
        cmocka_unit_test(blocks_of_a_page_or_more_share_none),
        cmocka_unit_test(retired_blocks_that_share_pages_leave_nothing_behind),
        cmocka_unit_test(random_blocks_keep_their_bytes_and_the_bound),
        cmocka_unit_test(threads_allocate_at_once),
        cmocka_unit_test(more_than_the_machine_has_is_a_status),
        cmocka_unit_test(more_address_space_than_there_is_is_a_status),
        cmocka_unit_test(a_limit_of_file_size_makes_smaller_segments),
        cmocka_unit_test(what_is_kept_stays_populated),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
