/* Counted allocation, and the torture switch. */
#include "core/base/testing.h"

#include <malloc.h>
#include <pthread.h>

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    mallopt(M_PERTURB, 0x5a); /* malloc hands out memory full of something else */
    for (size_t bytes = 0; bytes < 300; bytes += 37) {
        unsigned char *block = tt_alloc(bytes, "test block");
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % TT_ALIGN, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(block[i], 0);
        }
        tt_free(block);
    }
    mallopt(M_PERTURB, 0);
}

static void what_lives_is_counted_by_name(void **state)
{
    (void)state;
    const tt_alloc_stats_t before = tt_alloc_stats();
    void *first = tt_alloc(100, "apple"), *second = tt_alloc_raw(50, "apple");
    void *third = tt_alloc(7, "pear");
    const tt_alloc_stats_t during = tt_alloc_stats();
    assert_int_equal(during.blocks, before.blocks + 3);
    assert_int_equal(during.bytes, before.bytes + 157);
    assert_int_equal(during.allocations, before.allocations + 3);
    char report[256];
    assert_int_equal(tt_alloc_report(report, sizeof report), before.blocks + 3);
    assert_non_null(strstr(report, "apple: 2 blocks, 150 bytes\n"));
    assert_non_null(strstr(report, "pear: 1 blocks, 7 bytes\n"));
    char cut[8];
    assert_int_equal(tt_alloc_report(cut, sizeof cut), before.blocks + 3);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    tt_free(first);
    tt_free(second);
    tt_free(third);
    tt_free(NULL);
    assert_int_equal(tt_alloc_stats().blocks, before.blocks);
    assert_int_equal(tt_alloc_stats().bytes, before.bytes);
}

static void the_same_name_counts_once_wherever_its_text_lies(void **state)
{
    (void)state;
    static char copy[] = "apple";
    void *first = tt_alloc(1, "apple"), *second = tt_alloc(1, copy);
    char report[256];
    tt_alloc_report(report, sizeof report);
    assert_non_null(strstr(report, "apple: 2 blocks, 2 bytes\n"));
    tt_free(first);
    tt_free(second);
}

static void resizing_keeps_content_and_zeroes_what_grows(void **state)
{
    (void)state;
    char *text = tt_realloc(NULL, 4, "text");
    memcpy(text, "abcd", 4);
    text = tt_realloc(text, 100, "text");
    assert_memory_equal(text, "abcd\0\0\0", 7);
    assert_int_equal(text[99], 0);
    text = tt_realloc(text, 2, "text");
    assert_memory_equal(text, "ab", 2);
    assert_int_equal(tt_alloc_stats().bytes, 2);
    tt_free(text);
}

static void strings_are_copied(void **state)
{
    (void)state;
    char *whole = tt_strdup("abc", "text"), *part = tt_strndup("abc", 2, "text");
    assert_string_equal(whole, "abc");
    assert_string_equal(part, "ab");
    tt_free(whole);
    tt_free(part);
}

static void too_much_is_refused_by_name(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX; /* volatile: gcc would refuse to compile it */
    assert_null(tt_alloc(huge, "elephant"));
    tt_expect_error("elephant");
    assert_null(tt_alloc_array(huge / 2, 3, "herd"));
    tt_expect_error("herd");
    void *array = tt_alloc_array(3, 5, "array");
    assert_int_equal(tt_alloc_stats().bytes, 15);
    tt_free(array);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    tt_alloc_fail_at(3);
    void *first = tt_alloc(8, "torture");
    void *second = tt_strdup("x", "torture");
    assert_false(tt_alloc_has_failed());
    assert_null(tt_alloc(8, "torture"));
    assert_true(tt_alloc_has_failed());
    tt_expect_error("cannot allocate 8 bytes for torture");
    void *fourth = tt_alloc(8, "torture");
    assert_true(first != NULL && second != NULL && fourth != NULL);
    tt_free(first);
    tt_free(second);
    tt_free(fourth);
    tt_alloc_fail_at(0);
    assert_false(tt_alloc_has_failed());
}

static void a_failed_resize_leaves_the_old_block(void **state)
{
    (void)state;
    char *text = tt_strdup("kept", "text");
    tt_alloc_fail_at(1);
    assert_null(tt_realloc(text, 1000, "text"));
    tt_alloc_fail_at(0);
    assert_string_equal(text, "kept");
    tt_free(text);
}

enum { THREADS = 4, ROUNDS = 2000 };

static void *allocate_and_free(void *user)
{
    for (int i = 0; i < ROUNDS; i++) {
        void *block = tt_alloc((size_t)i, i % 2 ? "odd" : "even");
        if (block == NULL) {
            return NULL;
        }
        tt_free(block);
    }
    return user;
}

static void counts_hold_across_threads(void **state)
{
    (void)state;
    const tt_alloc_stats_t before = tt_alloc_stats();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, threads), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, threads);
    }
    const tt_alloc_stats_t after = tt_alloc_stats();
    assert_int_equal(after.blocks, before.blocks);
    assert_int_equal(after.bytes, before.bytes);
    assert_int_equal(after.allocations, before.allocations + THREADS * ROUNDS);
}

/* Last, for the names stay in the table. */
static void more_names_than_the_table_holds_are_counted_as_other(void **state)
{
    (void)state;
    static char names[600][8];
    void *blocks[600];
    for (int i = 0; i < 600; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        blocks[i] = tt_alloc(1, names[i]);
    }
    static char report[32768];
    assert_int_equal(tt_alloc_report(report, sizeof report), 600);
    assert_non_null(strstr(report, "other: "));
    for (int i = 0; i < 600; i++) {
        tt_free(blocks[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(what_lives_is_counted_by_name),
        cmocka_unit_test(the_same_name_counts_once_wherever_its_text_lies),
        cmocka_unit_test(resizing_keeps_content_and_zeroes_what_grows),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(too_much_is_refused_by_name),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(a_failed_resize_leaves_the_old_block),
        cmocka_unit_test(counts_hold_across_threads),
        cmocka_unit_test(more_names_than_the_table_holds_are_counted_as_other),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
