/* Every operation on every kind of store, as listed in stores.def. A kind is opened twice (where
 * that means something), so that what one handle does must be seen through the other.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/net/job_key_test.h"
#include "comm/store/store_ops.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            fail_msg("%s: %s", #call, tutti_last_error());                                         \
        }                                                                                          \
    } while (0)

typedef struct {
    tutti_store_t *keep, *a, *b; /* keep: what a and b stand on */
    char path[64];
} pair_t;

static void open_hash(pair_t *pair)
{
    CHECK_OK(tutti_store_hash_create(&pair->a));
    pair->b = tutti_store_retain(pair->a);
}

static void open_file(pair_t *pair)
{
    snprintf(pair->path, sizeof pair->path, "/tmp/store_conform_%d", (int)getpid());
    CHECK_OK(tutti_store_file_open(pair->path, &pair->a));
    CHECK_OK(tutti_store_file_open(pair->path, &pair->b));
}

static void open_server(pair_t *pair)
{
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &pair->a));
    CHECK_OK(tutti_store_tcp_connect("127.0.0.1", tutti_store_port(pair->a), 5000, &pair->b));
}

static void open_client(pair_t *pair)
{
    CHECK_OK(tutti_store_tcp_listen("127.0.0.1", 0, &pair->keep));
    const int port = tutti_store_port(pair->keep);
    CHECK_OK(tutti_store_tcp_connect("localhost", port, 5000, &pair->a));
    CHECK_OK(tutti_store_tcp_connect("127.0.0.1", port, 5000, &pair->b));
}

static void open_prefix(pair_t *pair)
{
    CHECK_OK(tutti_store_hash_create(&pair->keep));
    CHECK_OK(tutti_store_set(pair->keep, tutti_text("outside"), tutti_text("1")));
    tutti_store_t *outer;
    CHECK_OK(tutti_store_prefix(pair->keep, tutti_text("job"), &outer));
    CHECK_OK(tutti_store_prefix(outer, tutti_text("group"), &pair->a));
    CHECK_OK(tutti_store_prefix(pair->keep, tutti_text("job/group"), &pair->b));
    tutti_store_release(outer);
}

static const struct {
    const char *name;
    void (*open)(pair_t *);
} openers[] = {{"hash", open_hash},
               {"file", open_file},
               {"tcp_server", open_server},
               {"tcp", open_client},
               {"prefix", open_prefix}};

static void release_pair(pair_t *pair)
{
    tutti_store_release(pair->a);
    tutti_store_release(pair->b);
    tutti_store_release(pair->keep);
    if (pair->path[0] != 0) {
        unlink(pair->path);
    }
}

/* Run a check on every kind in the list; each must have an opener here. */
static void for_every_kind(void (*check)(pair_t *pair))
{
    for (size_t i = 0; i < tt_store_kind_count; i++) {
        pair_t pair = {0};
        for (size_t j = 0; j < sizeof openers / sizeof openers[0]; j++) {
            if (strcmp(openers[j].name, tt_store_kinds[i]->name) == 0) {
                openers[j].open(&pair);
            }
        }
        assert_non_null(pair.a);
        assert_string_equal(tutti_store_kind(pair.a), tt_store_kinds[i]->name);
        check(&pair);
        release_pair(&pair);
        char report[400];
        if (tt_alloc_report(report, sizeof report) > 0) {
            fail_msg("%s leaks:\n%s", tt_store_kinds[i]->name, report);
        }
    }
}

static void holds_value(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t want)
{
    tutti_buffer_t value;
    CHECK_OK(tutti_store_get(store, key, 2000, &value));
    assert_int_equal(value.bytes, want.bytes);
    assert_memory_equal(value.data, want.data, want.bytes);
    assert_int_equal(((char *)value.data)[value.bytes], 0);
    tutti_buffer_release(&value);
}

static void check_set_and_get(pair_t *pair)
{
    const tutti_bytes_t key = tutti_bytes_of("k\0\xff", 3), empty = tutti_bytes_of("", 0);
    CHECK_OK(tutti_store_set(pair->a, key, tutti_bytes_of("v\0w", 3)));
    holds_value(pair->b, key, tutti_bytes_of("v\0w", 3));
    CHECK_OK(tutti_store_set(pair->b, key, tutti_text("other")));
    holds_value(pair->a, key, tutti_text("other"));
    CHECK_OK(tutti_store_set(pair->a, key, empty));
    holds_value(pair->b, key, empty);
    CHECK_OK(tutti_store_set(pair->a, empty, tutti_text("under the empty key")));
    holds_value(pair->b, empty, tutti_text("under the empty key"));
}

static void values_are_seen_by_all(void **state)
{
    (void)state;
    for_every_kind(check_set_and_get);
}

static void check_add(pair_t *pair)
{
    const tutti_bytes_t key = tutti_text("count");
    int64_t now = -1;
    CHECK_OK(tutti_store_add(pair->a, key, 0, &now));
    assert_int_equal(now, 0);
    CHECK_OK(tutti_store_add(pair->b, key, 5, &now));
    assert_int_equal(now, 5);
    CHECK_OK(tutti_store_add(pair->a, key, -7, NULL));
    holds_value(pair->b, key, tutti_text("-2"));
    CHECK_OK(tutti_store_set(pair->a, key, tutti_text("9223372036854775807")));
    assert_int_equal(tutti_store_add(pair->b, key, 1, &now), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "count"));
    CHECK_OK(tutti_store_set(pair->a, key, tutti_text("12 apples")));
    assert_int_equal(tutti_store_add(pair->b, key, 1, &now), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "not a number"));
    CHECK_OK(tutti_store_set(pair->a, key, tutti_bytes_of("1\0002", 3)));
    assert_int_equal(tutti_store_add(pair->b, key, 1, &now), TUTTI_ERR_ARG);
    holds_value(pair->a, key, tutti_bytes_of("1\0002", 3));
}

static void numbers_add_up(void **state)
{
    (void)state;
    for_every_kind(check_add);
}

static void expect_compare_set(tutti_store_t *store, const char *expected, const char *desired,
                               const char *want)
{
    tutti_buffer_t now;
    CHECK_OK(tutti_store_compare_set(store, tutti_text("c"), tutti_text(expected),
                                     tutti_text(desired), &now));
    assert_string_equal(now.data, want);
    tutti_buffer_release(&now);
}

static void check_compare_set(pair_t *pair)
{
    bool exists = true;
    const tutti_bytes_t key = tutti_text("c");
    expect_compare_set(pair->a, "old", "new", "old"); /* does not exist: nothing is stored */
    CHECK_OK(tutti_store_check(pair->b, &key, 1, &exists));
    assert_false(exists);
    expect_compare_set(pair->a, "", "first", "first");
    expect_compare_set(pair->b, "", "second", "first");
    expect_compare_set(pair->b, "first", "second", "second");
    holds_value(pair->a, key, tutti_text("second"));
}

static void values_are_exchanged_when_they_are_as_expected(void **state)
{
    (void)state;
    for_every_kind(check_compare_set);
}

static void check_append_and_delete(pair_t *pair)
{
    const tutti_bytes_t key = tutti_text("log");
    CHECK_OK(tutti_store_append(pair->a, key, tutti_text("ab")));
    CHECK_OK(tutti_store_append(pair->b, key, tutti_text("")));
    CHECK_OK(tutti_store_append(pair->b, key, tutti_text("c")));
    holds_value(pair->a, key, tutti_text("abc"));
    bool existed = false;
    CHECK_OK(tutti_store_delete(pair->b, key, &existed));
    assert_true(existed);
    CHECK_OK(tutti_store_delete(pair->a, key, &existed));
    assert_false(existed);
    CHECK_OK(tutti_store_delete(pair->a, key, NULL));
}

static void values_grow_and_go(void **state)
{
    (void)state;
    for_every_kind(check_append_and_delete);
}

static void check_batches(pair_t *pair)
{
    const tutti_bytes_t keys[] = {tutti_text("x"), tutti_text("y"), tutti_text("x")};
    const tutti_bytes_t values[] = {tutti_text("1"), tutti_text("22"), tutti_text("333")};
    size_t count = 99;
    CHECK_OK(tutti_store_num_keys(pair->a, &count));
    assert_int_equal(count, 0);
    CHECK_OK(tutti_store_multi_set(pair->a, keys, values, 3)); /* the last one wins */
    CHECK_OK(tutti_store_num_keys(pair->b, &count));
    assert_int_equal(count, 2);
    tutti_buffer_t got[2];
    CHECK_OK(tutti_store_multi_get(pair->b, keys, 2, 2000, got));
    assert_string_equal(got[0].data, "333");
    assert_string_equal(got[1].data, "22");
    tutti_buffer_release(&got[0]);
    tutti_buffer_release(&got[1]);
    bool exist = false;
    CHECK_OK(tutti_store_check(pair->b, keys, 3, &exist));
    assert_true(exist);
}

static void batches_are_stored_whole(void **state)
{
    (void)state;
    for_every_kind(check_batches);
}

static void check_timeout(pair_t *pair)
{
    const tutti_bytes_t keys[] = {tutti_text("present"), tutti_text("nowhere"),
                                  tutti_text("lost\n")};
    CHECK_OK(tutti_store_set(pair->a, keys[0], tutti_text("1")));
    const int64_t start = tt_clock_ns();
    assert_int_equal(tutti_store_wait(pair->b, keys, 3, 50), TUTTI_ERR_TIMEOUT);
    const int64_t ms = (tt_clock_ns() - start) / TT_NS_PER_MS;
    assert_in_range(ms, 49, 1500);
    const char *text = tutti_last_error();
    assert_null(strstr(text, "present"));
    assert_non_null(strstr(text, "nowhere\""));
    assert_non_null(strstr(text, "x0a\""));
    assert_non_null(strstr(text, "2 of 3"));
    tutti_buffer_t value = {.bytes = 77};
    CHECK_OK(tutti_store_set_timeout(pair->a, 20));
    assert_int_equal(tutti_store_get(pair->a, keys[1], 0, &value), TUTTI_ERR_TIMEOUT);
    assert_int_equal(value.bytes, 77);
    assert_int_equal(tutti_store_get(pair->a, keys[1], -1, &value), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_set_timeout(pair->a, 0), TUTTI_ERR_ARG);
    holds_value(pair->b, keys[0], tutti_text("1")); /* and the store still works */
}

static void a_timeout_names_the_missing_keys(void **state)
{
    (void)state;
    for_every_kind(check_timeout);
}

static void check_limits(pair_t *pair)
{
    static char big[TUTTI_STORE_VALUE_BYTES_MAX + 1];
    memset(big, 'x', sizeof big);
    const tutti_bytes_t key = tutti_text("k"), value = tutti_text("v");
    const size_t key_max = TUTTI_STORE_KEY_BYTES_MAX;
    assert_int_equal(tutti_store_set(pair->a, tutti_bytes_of(big, key_max + 1), value),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_set(pair->a, key, tutti_bytes_of(big, sizeof big)), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_wait(pair->a, &key, 0, 10), TUTTI_ERR_ARG);
    CHECK_OK(tutti_store_set(pair->a, key, tutti_bytes_of(big, sizeof big - 1)));
    holds_value(pair->b, key, tutti_bytes_of(big, sizeof big - 1));
    assert_int_equal(tutti_store_append(pair->b, key, value), TUTTI_ERR_ARG);
    const tutti_bytes_t keys[] = {key, key, key, key, key};
    tutti_buffer_t got[5];
    assert_int_equal(tutti_store_multi_get(pair->b, keys, 5, 1000, got), TUTTI_ERR_ARG);
    holds_value(pair->a, key, tutti_bytes_of(big, sizeof big - 1));
    CHECK_OK(tutti_store_set(pair->a, key, tutti_bytes_of(big, sizeof big - 2)));
    CHECK_OK(tutti_store_append(pair->b, key, tutti_text("x"))); /* as long as it may become */
    holds_value(pair->a, key, tutti_bytes_of(big, sizeof big - 1));
    assert_int_equal(tutti_store_append(pair->b, key, value), TUTTI_ERR_ARG);
}

/* Values that may each be stored, but not all in one call. */
static void check_limit_of_a_call(pair_t *pair)
{
    static char big[TUTTI_STORE_VALUE_BYTES_MAX];
    tutti_bytes_t keys[4], values[4];
    for (int i = 0; i < 4; i++) {
        keys[i] = tutti_bytes_of(&"abcd"[i], 1);
        values[i] = tutti_bytes_of(big, sizeof big);
    }
    assert_int_equal(tutti_store_multi_set(pair->a, keys, values, 4), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "67108868 bytes"));
    size_t count = 99;
    CHECK_OK(tutti_store_num_keys(pair->b, &count));
    assert_int_equal(count, 0);
}

static void limits_of_a_call_are_kept(void **state)
{
    (void)state;
    for_every_kind(check_limit_of_a_call);
}

static void limits_are_kept_and_reached(void **state)
{
    (void)state;
    for_every_kind(check_limits);
}

static void *set_later(void *store)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    if (tutti_store_set(store, tutti_text("first"), tutti_text("1")) < 0 ||
        tutti_store_set(store, tutti_text("second"), tutti_text("2")) < 0) {
        return store;
    }
    return NULL;
}

static void check_wait(pair_t *pair)
{
    pthread_t thread;
    void *failed;
    const tutti_bytes_t keys[] = {tutti_text("second"), tutti_text("first")};
    assert_int_equal(pthread_create(&thread, NULL, set_later, pair->a), 0);
    CHECK_OK(tutti_store_wait(pair->a, keys, 2, 5000)); /* the very store that the other uses */
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(pthread_create(&thread, NULL, set_later, pair->b), 0);
    CHECK_OK(tutti_store_delete(pair->a, keys[0], NULL));
    holds_value(pair->a, keys[0], tutti_text("2"));
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static void a_wait_ends_when_the_keys_come(void **state)
{
    (void)state;
    for_every_kind(check_wait);
}

static void expect_list(tutti_store_t *store, tutti_bytes_t start, const char *want)
{
    char text[200] = "";
    tutti_buffer_t list;
    tutti_bytes_t key;
    size_t at = 0, used = 0;
    CHECK_OK(tutti_store_list(store, start, &list));
    while (tutti_store_list_next(&list, &at, &key)) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s ", (int)key.bytes,
                                 (const char *)key.data);
    }
    assert_int_equal(at, list.bytes);
    assert_string_equal(text, want);
    tutti_buffer_release(&list);
}

static void check_list(pair_t *pair)
{
    expect_list(pair->a, tutti_text(""), "");
    const char *const names[] = {"b/2", "a", "b/10", "b", "c"};
    for (int i = 0; i < 5; i++) {
        CHECK_OK(tutti_store_set(i % 2 ? pair->a : pair->b, tutti_text(names[i]), tutti_text("")));
    }
    assert_int_equal(tutti_store_wait(pair->a, &(tutti_bytes_t){"b/3", 3}, 1, 1),
                     TUTTI_ERR_TIMEOUT); /* who is only waited for is not there */
    expect_list(pair->b, tutti_text(""), "a b b/10 b/2 c ");
    expect_list(pair->a, tutti_text("b/"), "b/10 b/2 ");
    expect_list(pair->a, tutti_text("b/100"), "");
    CHECK_OK(tutti_store_delete(pair->b, tutti_text("b/2"), NULL));
    expect_list(pair->a, tutti_text("b"), "b b/10 ");
}

static void keys_are_listed_in_order(void **state)
{
    (void)state;
    for_every_kind(check_list);
}

static void *change_later(void *store)
{
    const char *const texts[] = {"old", "old", "new"}; /* the same again is no change */
    for (int i = 0; i < 3; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (tutti_store_set(store, tutti_text("w"), tutti_text(texts[i])) < 0) {
            return store;
        }
    }
    return NULL;
}

static void expect_watch(tutti_store_t *store, const char *known, const char *want)
{
    tutti_buffer_t value;
    CHECK_OK(tutti_store_watch(store, tutti_text("w"), tutti_text(known), 5000, &value));
    assert_string_equal(value.data, want);
    tutti_buffer_release(&value);
}

static void check_watch(pair_t *pair)
{
    tutti_buffer_t value = {.bytes = 7};
    pthread_t thread;
    void *failed;
    assert_int_equal(tutti_store_watch(pair->a, tutti_text("w"), tutti_text(""), 10, &value),
                     TUTTI_ERR_TIMEOUT);
    assert_int_equal(value.bytes, 7);
    assert_int_equal(pthread_create(&thread, NULL, change_later, pair->b), 0);
    expect_watch(pair->a, "", "old"); /* until there is one */
    expect_watch(pair->a, "old", "new");
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    expect_watch(pair->b, "old", "new"); /* at once */
    assert_int_equal(tutti_store_watch(pair->a, tutti_text("w"), tutti_text("new"), 10, &value),
                     TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error(), "still holds"));
}

static void *grow_later(void *store)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (tutti_store_delete(store, tutti_text("w"), NULL) < 0) {
        return store;
    }
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    return tutti_store_append(store, tutti_text("w"), tutti_text("new")) < 0 ||
                   tutti_store_append(store, tutti_text("w"), tutti_text("er")) < 0
               ? store
               : NULL;
}

/* The key goes, comes back with what it held, and grows. */
static void check_watch_of_growth(pair_t *pair)
{
    pthread_t thread;
    void *failed;
    CHECK_OK(tutti_store_set(pair->a, tutti_text("w"), tutti_text("new")));
    assert_int_equal(pthread_create(&thread, NULL, grow_later, pair->b), 0);
    expect_watch(pair->a, "new", "newer");
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
}

static void a_watch_ends_when_the_value_is_another(void **state)
{
    (void)state;
    for_every_kind(check_watch);
    for_every_kind(check_watch_of_growth);
}

enum { ROUNDS = 200 };

static void *add_and_append(void *store)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (tutti_store_add(store, tutti_text("sum"), 1, NULL) < 0 ||
            tutti_store_append(store, tutti_text("text"), tutti_text("ab")) < 0) {
            return store;
        }
    }
    return NULL;
}

static void check_threads(pair_t *pair)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        tutti_store_t *store = i % 2 == 0 ? pair->a : pair->b;
        assert_int_equal(pthread_create(&threads[i], NULL, add_and_append, store), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    int64_t sum = 0;
    CHECK_OK(tutti_store_add(pair->a, tutti_text("sum"), 0, &sum));
    assert_int_equal(sum, 4 * ROUNDS);
    tutti_buffer_t text;
    CHECK_OK(tutti_store_get(pair->b, tutti_text("text"), 100, &text));
    assert_int_equal(text.bytes, 2 * 4 * ROUNDS);
    for (size_t i = 0; i < text.bytes; i += 2) {
        assert_memory_equal((char *)text.data + i, "ab", 2);
    }
    tutti_buffer_release(&text);
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    for_every_kind(check_threads);
}

static void *abort_later(void *store)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    tutti_store_abort(store);
    return NULL;
}

static void check_abort(pair_t *pair)
{
    pthread_t thread;
    tutti_buffer_t value;
    const int64_t start = tt_clock_ns();
    assert_int_equal(pthread_create(&thread, NULL, abort_later, pair->a), 0);
    assert_int_equal(tutti_store_get(pair->a, tutti_text("never"), 20000, &value),
                     TUTTI_ERR_ABORTED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(tt_clock_ns() - start < 5 * TT_NS_PER_S);
    assert_int_equal(tutti_store_get(pair->a, tutti_text("never"), 20000, &value),
                     TUTTI_ERR_ABORTED);
}

static void abort_ends_a_wait(void **state)
{
    (void)state;
    for_every_kind(check_abort);
}

/* Fail the nth allocation of a few calls, for every n: each call fails cleanly or is done. */
static void check_torture(pair_t *pair)
{
    if (strncmp(tutti_store_kind(pair->a), "tcp", 3) == 0) {
        return; /* the server's thread allocates too: see store_stranger_test.c */
    }
    const tutti_bytes_t keys[] = {tutti_text("p"), tutti_text("q")};
    const tutti_bytes_t values[] = {tutti_text("1"), tutti_text("2")};
    int has_failed = 1;
    for (size_t n = 1; has_failed; n++) {
        tutti_buffer_t got[2] = {{0}, {0}};
        tt_alloc_fail_at(n);
        const tutti_status_t set = tutti_store_multi_set(pair->a, keys, values, 2);
        const tutti_status_t get = tutti_store_multi_get(pair->a, keys, 2, 1, got);
        const tutti_status_t add = tutti_store_add(pair->a, keys[0], 0, NULL);
        const tutti_status_t wait = tutti_store_wait(pair->a, &values[0], 1, 1);
        tutti_buffer_t list = {0}, watched = {0};
        const tutti_status_t listed = tutti_store_list(pair->a, tutti_text(""), &list);
        const tutti_status_t watch = tutti_store_watch(pair->a, keys[0], values[0], 1, &watched);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_true(set == TUTTI_OK || set == TUTTI_ERR_NOMEM);
        assert_true(get == TUTTI_OK || get == TUTTI_ERR_NOMEM || get == TUTTI_ERR_TIMEOUT);
        assert_true(add == TUTTI_OK || add == TUTTI_ERR_NOMEM);
        assert_true(wait == TUTTI_ERR_TIMEOUT || wait == TUTTI_ERR_NOMEM);
        assert_true(listed == TUTTI_OK || listed == TUTTI_ERR_NOMEM);
        assert_true(watch == TUTTI_ERR_TIMEOUT || watch == TUTTI_ERR_NOMEM ||
                    (watch == TUTTI_OK && set < 0)); /* then add made it 0 */
        tutti_buffer_release(&watched);
        tutti_buffer_release(&list);
        tutti_buffer_release(&got[0]);
        tutti_buffer_release(&got[1]);
        CHECK_OK(tutti_store_delete(pair->a, keys[0], NULL));
        CHECK_OK(tutti_store_delete(pair->a, keys[1], NULL));
    }
}

static void lack_of_memory_is_a_status(void **state)
{
    (void)state;
    for_every_kind(check_torture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_seen_by_all),
        cmocka_unit_test(numbers_add_up),
        cmocka_unit_test(values_are_exchanged_when_they_are_as_expected),
        cmocka_unit_test(values_grow_and_go),
        cmocka_unit_test(batches_are_stored_whole),
        cmocka_unit_test(a_timeout_names_the_missing_keys),
        cmocka_unit_test(limits_are_kept_and_reached),
        cmocka_unit_test(limits_of_a_call_are_kept),
        cmocka_unit_test(a_wait_ends_when_the_keys_come),
        cmocka_unit_test(keys_are_listed_in_order),
        cmocka_unit_test(a_watch_ends_when_the_value_is_another),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(abort_ends_a_wait),
        cmocka_unit_test(lack_of_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, tt_take_key, NULL);
}
