/* Streams: order, copies of arguments, events, the first failure, costs, waiting across streams. */
#include "core/base/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/exec/stream.h"

enum { WORKS_MAX = 20000 };

static int order[WORKS_MAX];
static int count;

static tt_stream_t *open_stream(void)
{
    tt_stream_t *stream;
    assert_int_equal(tt_stream_create(&(tt_stream_options_t){.name = "test:0"}, &stream), TUTTI_OK);
    count = 0;
    return stream;
}

static tutti_status_t note(void *arguments)
{
    order[count++] = *(const int *)arguments;
    return TUTTI_OK;
}

static tutti_status_t fail_by_index(void *arguments)
{
    return TT_FAIL(TUTTI_ERR_ARG, "index %d is outside", *(const int *)arguments);
}

static tutti_status_t wait_for_gate(void *arguments)
{
    atomic_bool *const *gate = arguments;
    while (!atomic_load(*gate)) {
        usleep(100);
    }
    return TUTTI_OK;
}

static tutti_status_t push(tt_stream_t *stream, tutti_status_t (*run)(void *),
                           const void *arguments, size_t bytes)
{
    return tt_stream_push(stream, &(tt_work_t){"note", run, arguments, bytes, 0, false});
}

static void push_note(tt_stream_t *stream, int value)
{
    assert_int_equal(push(stream, note, &value, sizeof value), TUTTI_OK);
}

static tutti_status_t synchronize(tt_stream_t *stream)
{
    return tt_event_wait(tt_stream_event(stream), TT_NEVER);
}

static void work_is_done_in_order_with_copies_of_its_arguments(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    for (int i = 0; i < WORKS_MAX; i++) {
        push_note(stream, i); /* more than the ring holds */
    }
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_int_equal(count, WORKS_MAX);
    for (int i = 0; i < WORKS_MAX; i++) {
        assert_int_equal(order[i], i);
    }
    assert_int_equal(tt_stream_stats(stream).done, WORKS_MAX);
    tt_stream_release(stream);
}

typedef struct {
    int value;
    unsigned char rest[TT_WORK_BYTES_MAX - sizeof(int)];
} large_t;

static tutti_status_t note_large(void *arguments)
{
    const large_t *large = arguments;
    for (size_t i = 0; i < sizeof large->rest; i++) {
        if (large->rest[i] != (unsigned char)large->value) {
            return TT_FAIL(TUTTI_ERR_STATE, "byte %zu of work %d", i, large->value);
        }
    }
    return note(arguments);
}

static tutti_status_t sleep_a_little(void *arguments)
{
    (void)arguments;
    usleep(1000);
    return TUTTI_OK;
}

/* Sizes that do not divide the ring, so that records skip its end; and who pushes is ahead by all
 * that the ring holds, where the first records are read slowly. */
static void records_of_all_sizes_go_around_the_ring(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(push(stream, sleep_a_little, NULL, 0), TUTTI_OK);
    }
    for (int i = 0; i < 3000; i++) {
        large_t large = {.value = i};
        memset(large.rest, i, sizeof large.rest);
        if (i % 3 == 0) {
            push_note(stream, i);
        } else {
            assert_int_equal(push(stream, note_large, &large, sizeof large), TUTTI_OK);
        }
    }
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_int_equal(count, 3000);
    assert_int_equal(order[2999], 2999);
    tt_stream_release(stream);
}

static void an_event_stands_for_what_was_pushed_before_it(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    atomic_bool gate = false, *at = &gate;
    push_note(stream, 1);
    const tt_event_t first = tt_stream_event(stream);
    assert_int_equal(push(stream, wait_for_gate, &at, sizeof at), TUTTI_OK);
    const tt_event_t second = tt_stream_event(stream);
    assert_int_equal(tt_event_wait(first, TT_NEVER), TUTTI_OK);
    assert_true(tt_event_is_done(first));
    assert_false(tt_event_is_done(second));
    assert_int_equal(tt_event_wait(second, tt_deadline_in_ms(20)), TUTTI_ERR_TIMEOUT);
    assert_string_equal(tutti_last_error(), "test:0: 1 of 2 pieces of work are not done");
    atomic_store(&gate, true);
    assert_int_equal(tt_event_wait(second, TT_NEVER), TUTTI_OK);
    tt_stream_release(stream);
}

static void *open_later(void *gate)
{
    usleep(100000);
    atomic_store((atomic_bool *)gate, true);
    return NULL;
}

static void nothing(void *object)
{
    (void)object;
}

/* What is refused is not done; what was taken is. What the work uses stays until it is done. */
static void a_full_stream_has_a_deadline(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    atomic_bool gate = false, *at = &gate;
    pthread_t thread;
    int taken = 0;
    assert_int_equal(push(stream, wait_for_gate, &at, sizeof at), TUTTI_OK);
    assert_int_equal(setenv("TUTTI_TIMEOUT_MS", "20", 1), 0);
    while (taken < WORKS_MAX && push(stream, note, &taken, sizeof taken) >= 0) {
        taken++;
    }
    assert_in_range(taken, 1000, WORKS_MAX - 1);
    tt_expect_error("test:0: note: no room behind ");
    assert_int_equal(pthread_create(&thread, NULL, open_later, &gate), 0);
    assert_int_equal(tt_stream_push_release(stream, nothing, NULL), TUTTI_OK);
    assert_true(atomic_load(&gate));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(unsetenv("TUTTI_TIMEOUT_MS"), 0);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_int_equal(count, taken);
    tt_stream_release(stream);
}

static void the_first_failure_is_told_and_what_is_behind_it_is_skipped(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    const int outside[] = {7, 8};
    push_note(stream, 1);
    assert_int_equal(
        tt_stream_push(stream, &(tt_work_t){"gather", fail_by_index, &outside[0], 4, 0, false}), 0);
    push_note(stream, 2);
    assert_int_equal(
        tt_stream_push(stream, &(tt_work_t){"gather", fail_by_index, &outside[1], 4, 0, false}), 0);
    assert_int_equal(synchronize(stream), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "test:0: gather: index 7 is outside");
    assert_int_equal(count, 1);
    assert_int_equal(tt_stream_stats(stream).skipped, 2);
    assert_int_equal(tt_stream_stats(stream).done, 2);
    push_note(stream, 3);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_int_equal(count, 2);
    assert_int_equal(order[1], 3);
    tt_stream_release(stream);
}

/* Who looks is told, and nothing ends; who looks later is told what was lost, and no more. */
static void who_looks_at_what_is_lost_is_told_each_time(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    const int outside = 7;
    push_note(stream, 1);
    const tt_event_t first = tt_stream_event(stream);
    assert_int_equal(push(stream, fail_by_index, &outside, sizeof outside), TUTTI_OK);
    const tt_event_t second = tt_stream_event(stream);
    push_note(stream, 2);
    const tt_event_t third = tt_stream_event(stream);
    assert_int_equal(tt_event_pass(third, TT_NEVER), TUTTI_OK);
    for (int turn = 0; turn < 4; turn++) {
        assert_int_equal(tt_stream_check((tt_event_t){.stream = stream}, first), TUTTI_OK);
        assert_int_equal(tt_stream_check(first, second), TUTTI_ERR_ARG);
        assert_int_equal(tt_stream_check((tt_event_t){.stream = stream}, second), TUTTI_ERR_ARG);
        assert_int_equal(tt_stream_check(second, third), TUTTI_ERR_ARG);
        assert_string_equal(tutti_last_error(), "test:0: note: index 7 is outside");
        const tt_event_t before = tt_stream_event(stream);
        push_note(stream, 3);
        const tt_event_t after = tt_stream_event(stream);
        assert_int_equal(tt_event_pass(after, TT_NEVER), TUTTI_OK);
        assert_int_equal(count, turn < 1 ? 1 : turn + 1); /* skipped until it is told */
        assert_int_equal(tt_stream_check(before, after), turn < 1 ? TUTTI_ERR_ARG : TUTTI_OK);
        assert_int_equal(synchronize(stream), turn < 1 ? TUTTI_ERR_ARG : TUTTI_OK);
    }
    tt_stream_release(stream);
}

/* Also of the one before the last; what nobody knows any more is taken for lost. */
static void earlier_failures_are_known_for_a_while(void **state)
{
    (void)state;
    enum { FAILURES = 6 };
    tt_stream_t *stream = open_stream();
    tt_event_t before[FAILURES], after[FAILURES], good[FAILURES];
    for (int i = 0; i < FAILURES; i++) {
        before[i] = tt_stream_event(stream);
        assert_int_equal(push(stream, fail_by_index, &i, sizeof i), TUTTI_OK);
        after[i] = tt_stream_event(stream);
        assert_int_equal(synchronize(stream), TUTTI_ERR_ARG);
        push_note(stream, i);
        good[i] = tt_stream_event(stream);
        assert_int_equal(synchronize(stream), TUTTI_OK);
    }
    for (int i = 0; i < FAILURES; i++) {
        char want[64];
        snprintf(want, sizeof want, "test:0: note: index %d is outside", i < 2 ? 2 : i);
        assert_int_equal(tt_stream_check(before[i], after[i]), TUTTI_ERR_ARG);
        assert_string_equal(tutti_last_error(), want);
        assert_int_equal(tt_stream_check(after[i], good[i]), i < 2 ? TUTTI_ERR_ARG : TUTTI_OK);
    }
    tt_stream_release(stream);
}

static void a_wait_that_takes_nothing_has_a_deadline(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    atomic_bool gate = false, *at = &gate;
    const int outside = 7;
    assert_int_equal(push(stream, wait_for_gate, &at, sizeof at), TUTTI_OK);
    assert_int_equal(push(stream, fail_by_index, &outside, sizeof outside), TUTTI_OK);
    const tt_event_t event = tt_stream_event(stream);
    assert_int_equal(tt_event_pass(event, tt_deadline_in_ms(20)), TUTTI_ERR_TIMEOUT);
    assert_string_equal(tutti_last_error(), "test:0: 2 of 2 pieces of work are not done");
    atomic_store(&gate, true);
    assert_int_equal(tt_event_pass(event, TT_NEVER), TUTTI_OK);
    assert_int_equal(synchronize(stream), TUTTI_ERR_ARG);
    tt_stream_release(stream);
}

/* The failure is told to who waits for earlier work; its own results stay lost. */
static void what_was_pushed_before_a_failure_was_told_is_skipped(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    atomic_bool gate = false, *at = &gate;
    const int outside = 7;
    push_note(stream, 1);
    const tt_event_t first = tt_stream_event(stream);
    assert_int_equal(tt_event_wait(first, TT_NEVER), TUTTI_OK);
    assert_int_equal(tt_stream_push(stream, &(tt_work_t){"gather", fail_by_index, &outside, 4,
                                                         30 * TT_NS_PER_MS, false}),
                     TUTTI_OK);
    push_note(stream, 2);
    tutti_status_t status = TUTTI_OK;
    while (status >= 0) {
        status = tt_event_wait(first, TT_NEVER);
    }
    assert_int_equal(status, TUTTI_ERR_ARG);
    assert_int_equal(push(stream, wait_for_gate, &at, sizeof at), TUTTI_OK);
    atomic_store(&gate, true);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_int_equal(count, 1);
    assert_int_equal(tt_stream_stats(stream).skipped, 1);
    tt_stream_release(stream);
}

static void a_stream_waits_for_another_ones_event(void **state)
{
    (void)state;
    tt_stream_t *first = open_stream(), *second = open_stream();
    atomic_bool gate = false, *at = &gate;
    assert_int_equal(push(first, wait_for_gate, &at, sizeof at), TUTTI_OK);
    push_note(first, 1);
    assert_int_equal(tt_stream_wait_event(second, tt_stream_event(first)), TUTTI_OK);
    push_note(second, 2);
    assert_int_equal(tt_event_wait(tt_stream_event(second), tt_deadline_in_ms(20)),
                     TUTTI_ERR_TIMEOUT);
    atomic_store(&gate, true);
    assert_int_equal(synchronize(second), TUTTI_OK);
    assert_int_equal(count, 2);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 2);
    tt_stream_release(first);
    tt_stream_release(second);
}

static void a_failure_reaches_the_streams_that_wait_for_it(void **state)
{
    (void)state;
    tt_stream_t *first = open_stream(), *second = open_stream();
    const int outside = 7;
    assert_int_equal(
        tt_stream_push(first, &(tt_work_t){"gather", fail_by_index, &outside, 4, 0, false}), 0);
    assert_int_equal(tt_stream_wait_event(second, tt_stream_event(first)), TUTTI_OK);
    push_note(second, 2);
    assert_int_equal(synchronize(second), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "test:0: wait: test:0: gather: index 7 is outside");
    assert_int_equal(synchronize(first), TUTTI_ERR_ARG);
    assert_int_equal(count, 0);
    tt_stream_release(first);
    tt_stream_release(second);
}

/* Told or not, and not for what is before or long behind the failure. */
static void only_what_a_failure_spoiled_spoils_other_streams(void **state)
{
    (void)state;
    tt_stream_t *first = open_stream(), *second = open_stream();
    const int outside = 7;
    push_note(first, 1);
    const tt_event_t good = tt_stream_event(first);
    assert_int_equal(
        tt_stream_push(first, &(tt_work_t){"gather", fail_by_index, &outside, 4, 0, false}), 0);
    const tt_event_t bad = tt_stream_event(first);
    assert_int_equal(synchronize(first), TUTTI_ERR_ARG);
    const tt_event_t over = tt_stream_event(first);
    assert_int_equal(tt_stream_wait_event(second, over), TUTTI_OK);
    assert_int_equal(synchronize(second), TUTTI_OK);
    assert_int_equal(tt_stream_check(over, over), TUTTI_OK);
    push_note(first, 2);
    const tt_event_t later = tt_stream_event(first);
    assert_int_equal(tt_stream_wait_event(second, good), TUTTI_OK);
    assert_int_equal(tt_stream_wait_event(second, later), TUTTI_OK);
    assert_int_equal(synchronize(second), TUTTI_OK);
    assert_int_equal(tt_stream_wait_event(second, bad), TUTTI_OK);
    assert_int_equal(synchronize(second), TUTTI_ERR_ARG);
    tt_stream_release(first);
    tt_stream_release(second);
}

/* Whose failure is known, though it has gone. */
static void a_stream_may_go_before_those_that_wait_for_it(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        atomic_bool gate = false, *at = &gate;
        const int index = 7;
        tt_stream_t *first = open_stream(), *second = open_stream();
        assert_int_equal(push(second, wait_for_gate, &at, sizeof at), TUTTI_OK);
        assert_int_equal(push(first, fails ? fail_by_index : note, &index, sizeof index), TUTTI_OK);
        assert_int_equal(tt_stream_wait_event(second, tt_stream_event(first)), TUTTI_OK);
        tt_stream_release(first);
        atomic_store(&gate, true);
        assert_int_equal(synchronize(second), fails ? TUTTI_ERR_ARG : TUTTI_OK);
        tt_stream_release(second);
    }
}

/* Its work reads what the second one's device would use again behind the wait. */
static void a_wait_is_not_skipped_behind_a_failure(void **state)
{
    (void)state;
    atomic_bool gate = false, *at = &gate;
    const int index = 7;
    tt_stream_t *first = open_stream(), *second = open_stream();
    assert_int_equal(push(first, wait_for_gate, &at, sizeof at), TUTTI_OK);
    assert_int_equal(push(second, fail_by_index, &index, sizeof index), TUTTI_OK);
    assert_int_equal(tt_stream_wait_event(second, tt_stream_event(first)), TUTTI_OK);
    usleep(20000);
    assert_false(tt_event_is_done(tt_stream_event(second)));
    atomic_store(&gate, true);
    assert_int_equal(synchronize(second), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "index 7 is outside"));
    tt_stream_release(second);
    tt_stream_release(first);
}

static void count_line(tt_log_level_t level, const char *line, void *user)
{
    assert_int_equal(level, TT_LOG_ERROR);
    assert_non_null(strstr(line, "test:0: note: index 7 is outside, and nobody waited for it"));
    ++*(int *)user;
}

static void a_failure_that_nobody_was_told_of_is_logged(void **state)
{
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        const int outside = 7;
        int lines = 0;
        tt_stream_t *stream = open_stream();
        tt_log_set_sink(count_line, &lines);
        assert_int_equal(push(stream, fail_by_index, &outside, sizeof outside), TUTTI_OK);
        const tt_event_t event = tt_stream_event(stream);
        assert_int_equal(tt_event_pass(event, TT_NEVER), TUTTI_OK);
        if (looks) {
            assert_int_equal(tt_stream_check((tt_event_t){.stream = stream}, event), TUTTI_ERR_ARG);
        }
        tt_stream_release(stream);
        tt_log_set_sink(NULL, NULL);
        assert_int_equal(lines, !looks);
    }
}

static void work_takes_as_long_as_it_is_said_to_cost(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    const int value = 1;
    const int64_t begin = tt_clock_ns();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(
            tt_stream_push(stream, &(tt_work_t){"note", note, &value, 4, 2 * TT_NS_PER_MS, false}),
            TUTTI_OK);
    }
    assert_int_equal(synchronize(stream), TUTTI_OK);
    assert_true(tt_clock_ns() - begin >= 10 * TT_NS_PER_MS);
    tt_stream_release(stream);
}

enum { MOMENTS = 3 };

typedef struct {
    tt_stream_moment_t moments[2 * MOMENTS];
    int count; /* may be larger */
} moments_t;

static void keep_moment(void *user, const tt_stream_moment_t *moment)
{
    moments_t *kept = user;
    if (kept->count++ < 2 * MOMENTS) {
        kept->moments[kept->count - 1] = *moment;
    }
}

static void expect_moment(const moments_t *kept, int piece, const char *name, uint64_t index)
{
    const tt_stream_moment_t *before = &kept->moments[2 * piece];
    const tt_stream_moment_t *behind = before + 1;
    assert_string_equal(before->name, name);
    assert_string_equal(behind->name, name);
    assert_int_equal(before->index, index);
    assert_int_equal(behind->index, index);
    assert_int_equal(before->end_ns, 0);
    assert_true(0 < behind->pushed_ns && behind->pushed_ns <= behind->begin_ns);
    assert_true(behind->begin_ns <= behind->end_ns);
}

static void who_watches_sees_when_each_piece_was_pushed_and_done(void **state)
{
    (void)state;
    moments_t kept = {.count = 0};
    const tt_stream_watch_t watch = {keep_moment, keep_moment, &kept};
    tt_stream_t *other = open_stream(), *stream = open_stream();
    int value = 5;
    push_note(stream, 0);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    tt_stream_set_watch(stream, &watch);
    push_note(other, 1);
    const tt_event_t event = tt_stream_event(other);
    assert_int_equal(tt_stream_wait_event(stream, event), TUTTI_OK);
    assert_int_equal(
        tt_stream_push(stream, &(tt_work_t){"slow", note, &value, 4, 2 * TT_NS_PER_MS, false}),
        TUTTI_OK);
    push_note(stream, 2);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    tt_stream_set_watch(stream, NULL);
    push_note(stream, 3);
    assert_int_equal(synchronize(stream), TUTTI_OK);

    assert_int_equal(kept.count, 2 * MOMENTS);
    expect_moment(&kept, 0, "wait", 1);
    expect_moment(&kept, 1, "slow", 2);
    expect_moment(&kept, 2, "note", 3);
    assert_ptr_equal(kept.moments[1].awaited.stream, other);
    assert_int_equal(kept.moments[1].awaited.count, event.count);
    assert_null(kept.moments[3].awaited.stream);
    assert_true(kept.moments[3].end_ns - kept.moments[3].begin_ns >= 2 * TT_NS_PER_MS);
    assert_true(kept.moments[3].end_ns <= kept.moments[5].begin_ns);
    tt_stream_release(stream);
    tt_stream_release(other);
}

static void a_forked_child_is_told_that_it_has_no_stream(void **state)
{
    (void)state;
    tt_stream_t *stream = open_stream();
    push_note(stream, 1);
    assert_int_equal(synchronize(stream), TUTTI_OK);
    const pid_t child = fork();
    if (child == 0) {
        const int value = 2;
        const bool is_told = push(stream, note, &value, sizeof value) == TUTTI_ERR_STATE &&
                             synchronize(stream) == TUTTI_ERR_STATE;
        tt_stream_release(stream);
        _exit(is_told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tt_stream_release(stream);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    for (size_t nth = 1; nth <= 2; nth++) {
        tt_stream_t *stream;
        tt_alloc_fail_at(nth);
        assert_int_equal(tt_stream_create(&(tt_stream_options_t){.name = "test:0"}, &stream),
                         TUTTI_ERR_NOMEM);
    }
    tt_alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_done_in_order_with_copies_of_its_arguments),
        cmocka_unit_test(records_of_all_sizes_go_around_the_ring),
        cmocka_unit_test(an_event_stands_for_what_was_pushed_before_it),
        cmocka_unit_test(a_full_stream_has_a_deadline),
        cmocka_unit_test(the_first_failure_is_told_and_what_is_behind_it_is_skipped),
        cmocka_unit_test(who_looks_at_what_is_lost_is_told_each_time),
        cmocka_unit_test(earlier_failures_are_known_for_a_while),
        cmocka_unit_test(a_wait_that_takes_nothing_has_a_deadline),
        cmocka_unit_test(what_was_pushed_before_a_failure_was_told_is_skipped),
        cmocka_unit_test(only_what_a_failure_spoiled_spoils_other_streams),
        cmocka_unit_test(a_stream_waits_for_another_ones_event),
        cmocka_unit_test(a_failure_reaches_the_streams_that_wait_for_it),
        cmocka_unit_test(a_stream_may_go_before_those_that_wait_for_it),
        cmocka_unit_test(a_wait_is_not_skipped_behind_a_failure),
        cmocka_unit_test(a_failure_that_nobody_was_told_of_is_logged),
        cmocka_unit_test(work_takes_as_long_as_it_is_said_to_cost),
        cmocka_unit_test(who_watches_sees_when_each_piece_was_pushed_and_done),
        cmocka_unit_test(a_forked_child_is_told_that_it_has_no_stream),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
