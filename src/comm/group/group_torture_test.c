/* Torture: the nth allocation fails while groups form and give tensors, for every n. Some rank says
 * NOMEM, the others fail in time, nothing crashes, hangs or leaks; and groups form afterwards. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tutti/collectives.h>

#include "core/base/alloc.h"
#include "core/base/testing.h"

enum { RANKS_MAX = 2, TIMEOUT_MS = 100, PATIENCE_MS = 20000 };

typedef struct {
    pthread_t thread;
    tutti_store_t *store;
    int rank, size, timeout_ms;
    tutti_status_t status;
    char text[256];
} rank_t;

static tutti_status_t use(tutti_group_t *group)
{
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(5, 7), &x));
    const tutti_status_t status = tutti_all_reduce(group, x, TUTTI_SUM, NULL);
    tutti_tensor_release(x);
    return status;
}

static void *live(void *user)
{
    rank_t *rank = user;
    const tutti_init_options_t options = {.store = rank->store,
                                          .rank = rank->rank,
                                          .world_size = rank->size,
                                          .timeout_ms = rank->timeout_ms};
    tutti_group_t *group = NULL;
    rank->status = tutti_init(rank->store == NULL ? NULL : &options, &group);
    if (rank->status >= 0) {
        rank->status = use(group);
    }
    snprintf(rank->text, sizeof rank->text, "%s", rank->status < 0 ? tutti_last_error() : "");
    tutti_group_release(group);
    return NULL;
}

/* A whole life of a team; its store is made before the failure is armed. */
static void run_team(rank_t *ranks, int size, int timeout_ms, size_t nth)
{
    tutti_store_t *store;
    assert_int_equal(tutti_store_hash_create(&store), TUTTI_OK);
    tt_alloc_fail_at(nth);
    for (int i = 0; i < size; i++) {
        ranks[i] = (rank_t){.store = store, .rank = i, .size = size, .timeout_ms = timeout_ms};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, live, &ranks[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(ranks[i].thread, NULL);
    }
    tutti_store_release(store);
}

static void expect_no_leak(size_t nth)
{
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("allocation %zu failed, and leaked:\n%s", nth, report);
    }
}

/* Every failure has a text. Returns how many ranks say NOMEM: a rank that gave up tells the others
 * why. */
static int count_nomem(const rank_t *ranks, int size, size_t nth)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        count += ranks[i].status == TUTTI_ERR_NOMEM;
        if (ranks[i].status < 0 && ranks[i].text[0] == 0) {
            fail_msg("allocation %zu: rank %d failed without a text", nth, i);
        }
    }
    return count;
}

/* Returns whether there was an nth allocation. */
static int torture(int size, size_t nth, int timeout_ms)
{
    rank_t ranks[RANKS_MAX];
    run_team(ranks, size, timeout_ms, nth);
    const int has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    expect_no_leak(nth);
    if (has_failed && count_nomem(ranks, size, nth) == 0) {
        if (timeout_ms < PATIENCE_MS) { /* a slow machine: perhaps the time was up before */
            return torture(size, nth, PATIENCE_MS);
        }
        fail_msg("allocation %zu failed, but no rank says NOMEM; rank 0: %s", nth, ranks[0].text);
    }
    return has_failed;
}

static void a_failed_allocation_ends_every_ranks_init(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        size_t nth = 1;
        while (torture(size, nth, TIMEOUT_MS)) {
            nth++;
        }
        assert_true(nth > 10);
        rank_t ranks[RANKS_MAX];
        run_team(ranks, size, PATIENCE_MS, 0);
        for (int i = 0; i < size; i++) {
            assert_string_equal(ranks[i].text, "");
        }
    }
}

static void a_failed_allocation_ends_a_world_of_one(void **state)
{
    (void)state;
    for (size_t nth = 1;; nth++) {
        rank_t rank = {.size = 1};
        tt_alloc_fail_at(nth);
        live(&rank);
        const int has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        expect_no_leak(nth);
        assert_int_equal(rank.status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (!has_failed) {
            assert_true(nth > 5);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_ends_a_world_of_one),
        cmocka_unit_test(a_failed_allocation_ends_every_ranks_init),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
