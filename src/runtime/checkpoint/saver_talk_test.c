/* Talk through a store: of any length, over a store that answers late or never, without a rest. */
#include <stdlib.h>
#include <string.h>

#include "comm/group/group_impl.h"
#include "comm/store/store_ops.h"
#include "core/base/testing.h"
#include "runtime/checkpoint/saver_talk.h"

enum { CALLS_MAX = 64, PART = 4 << 20, LONG = 2 * PART + 12345, NEVER = 1000000 };

/* A store whose first calls of a kind fail. */
typedef struct {
    tutti_store_t *base;
    tt_store_op_t op; /* the kind … */
    int failing;      /* … so many of which fail … */
    tutti_status_t status;
    int leave_at; /* … and at which of which the caller wants to leave; 0: never */
    int calls;
    int left_ms[CALLS_MAX]; /* that each of them might take */
} slow_t;

static tutti_group_t group;
static tt_talk_t talk;
static slow_t *slow;

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    const slow_t *at = state;
    if (request->op == slow->op) {
        slow->left_ms[slow->calls % CALLS_MAX] = tt_deadline_left_ms(deadline);
        slow->calls++;
        if (slow->calls == slow->leave_at) {
            talk.leave_by = tt_clock_ns();
        }
        if (slow->calls <= slow->failing) {
            return TT_FAIL(slow->status, "the store is slow");
        }
    }
    return at->base->ops->perform(at->base->state, request, deadline, reply);
}

static void abort_slow(void *state)
{
    const slow_t *at = state;
    tutti_store_abort(at->base);
}

static void close_slow(void *state)
{
    const slow_t *at = state;
    tutti_store_release(at->base);
}

static const tt_store_ops_t slow_ops = {.name = "slow",
                                        .about = "for tests",
                                        .state_bytes = sizeof(slow_t),
                                        .perform = perform,
                                        .abort = abort_slow,
                                        .close = close_slow};

static int begin(void **state)
{
    (void)state;
    group.timeout_ms = 600000;
    group.size = 3;
    assert_int_equal(tt_store_create(&slow_ops, &group.store), TUTTI_OK);
    slow = group.store->state;
    assert_int_equal(tutti_store_hash_create(&slow->base), TUTTI_OK);
    talk.group = &group;
    talk.number = 5;
    talk.step = 70;
    talk.leave_by = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    tutti_store_release(group.store);
    return 0;
}

/* From now on. */
static void fail_calls(tt_store_op_t op, int count, tutti_status_t status)
{
    slow->op = op;
    slow->failing = count;
    slow->status = status;
    slow->calls = 0;
}

static tutti_bytes_t report_of(int rank)
{
    static char key[TT_TALK_KEY_BYTES];
    return tt_talk_report(&talk, rank, key);
}

static tutti_status_t hear(int rank, tutti_status_t *told, tutti_buffer_t *said)
{
    return tt_talk_hear(&talk, report_of(rank), rank, "written its files", told, said);
}

static void expect_keys(size_t want)
{
    size_t count;
    assert_int_equal(tutti_store_num_keys(slow->base, &count), TUTTI_OK);
    assert_int_equal(count, want);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void keys_say_whose_they_are(void **state)
{
    (void)state;
    char key[TT_TALK_KEY_BYTES];
    (void)tt_talk_report(&talk, 12, key);
    assert_string_equal(key, "5/report/12");
    (void)tt_talk_phase(&talk, "rename", 0, key);
    assert_string_equal(key, "5/rename");
    (void)tt_talk_phase(&talk, "rename", 2, key);
    assert_string_equal(key, "5/rename/2");
    (void)tt_talk_outcome(&talk, key);
    assert_string_equal(key, "5/outcome");
}

/* Parts are as long as they can be; nothing of them stays. */
static void what_is_told_is_heard_whatever_its_length(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, PART - 1, PART, PART + 1, LONG};
    char *words = malloc(LONG);
    assert_non_null(words);
    for (size_t i = 0; i < LONG; i++) {
        words[i] = (char)('a' + (i * 7 + i / PART) % 23);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tutti_status_t told = TUTTI_ERR_IO;
        tutti_buffer_t said;
        assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_bytes_of(words, sizes[i])), 0);
        expect_keys(sizes[i] == 0 ? 1 : (sizes[i] + PART - 1) / PART);
        assert_int_equal(hear(1, &told, &said), TUTTI_OK);
        assert_int_equal(told, TUTTI_OK);
        assert_int_equal(said.bytes, sizes[i]);
        assert_memory_equal(said.data, words, sizes[i]);
        assert_int_equal(((const char *)said.data)[sizes[i]], 0);
        tutti_buffer_release(&said);
        tt_talk_forget(&talk, report_of(1));
        expect_keys(0);
    }
    free(words);
}

static void a_failure_is_told_with_its_text_which_stays(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    const tutti_status_t own = TT_FAIL(TUTTI_ERR_DTYPE, "this one");
    assert_true(tt_talk_tell_failure(&talk, report_of(2), own));
    assert_string_equal(tutti_last_error(), "this one");
    assert_int_equal(hear(2, &told, &said), TUTTI_OK);
    assert_int_equal(told, TUTTI_ERR_DTYPE);
    assert_string_equal(said.data, "this one");
    tutti_buffer_release(&said);
    assert_true(tt_talk_tell_failure(&talk, report_of(2), TT_FAIL(TUTTI_ERR_IO, "a\n\033[m")));
    assert_int_equal(hear(2, &told, &said), TUTTI_OK);
    assert_string_equal(said.data, "a??[m"); /* it goes into a line */
    tutti_buffer_release(&said);
    fail_calls(TT_STORE_SET, NEVER, TUTTI_ERR_PEER);
    assert_false(tt_talk_tell_failure(&talk, report_of(2), TT_FAIL(TUTTI_ERR_IO, "another")));
    assert_string_equal(tutti_last_error(), "another");
}

/* How long a try may take doubles up to 8 s; no try is longer than that. */
static void expect_longer_tries(int count)
{
    int most_ms = 250;
    assert_int_equal(slow->calls, count);
    for (int i = 0; i < count; i++) {
        assert_true(slow->left_ms[i] <= most_ms);
        most_ms = most_ms < 8000 ? 2 * most_ms : 8000;
    }
    assert_true(slow->left_ms[count - 1] > 4000); /* 8 s, and something between */
}

static void a_store_that_is_late_is_asked_again(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    fail_calls(TT_STORE_SET, 7, TUTTI_ERR_TIMEOUT);
    assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_text("words")), TUTTI_OK);
    expect_longer_tries(8);
    fail_calls(TT_STORE_GET, 7, TUTTI_ERR_TIMEOUT);
    assert_int_equal(hear(1, &told, &said), TUTTI_OK);
    expect_longer_tries(8);
    assert_string_equal(said.data, "words");
    tutti_buffer_release(&said);
    fail_calls(TT_STORE_DELETE, 0, TUTTI_OK);
    tt_talk_forget(&talk, report_of(1));
    assert_int_equal(slow->calls, 2); /* of a part that is not there, too */
    assert_true(slow->left_ms[0] <= 250);
}

static void who_is_to_leave_tries_once_more_for_a_moment(void **state)
{
    (void)state;
    fail_calls(TT_STORE_SET, NEVER, TUTTI_ERR_TIMEOUT);
    slow->leave_at = 3;
    assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_text("words")), TUTTI_ERR_TIMEOUT);
    assert_int_equal(slow->calls, 4);
    assert_true(slow->left_ms[3] <= 1);
}

static void the_groups_timeout_ends_it_too(void **state)
{
    (void)state;
    group.timeout_ms = 1;
    fail_calls(TT_STORE_SET, NEVER, TUTTI_ERR_TIMEOUT);
    assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_text("words")), TUTTI_ERR_TIMEOUT);
    tt_expect_error("the store is slow");
}

static void what_is_no_matter_of_time_ends_it_at_once(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    fail_calls(TT_STORE_SET, NEVER, TUTTI_ERR_PEER);
    assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_text("words")), TUTTI_ERR_PEER);
    assert_int_equal(slow->calls, 1);
    fail_calls(TT_STORE_WAIT, NEVER, TUTTI_ERR_PEER);
    assert_int_equal(hear(1, &told, &said), TUTTI_ERR_PEER);
    assert_int_equal(slow->calls, 1);
}

/* Rank 0 is given the time of all others, and its own. */
static void who_does_not_tell_is_named(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    fail_calls(TT_STORE_WAIT, NEVER, TUTTI_ERR_TIMEOUT);
    slow->leave_at = 4;
    assert_int_equal(hear(2, &told, &said), TUTTI_ERR_TIMEOUT);
    tt_expect_error("checkpoint of step 70: rank 2 has not written its files in time");
    assert_int_equal(slow->calls, 5);
    for (int i = 0; i < 5; i++) {
        assert_true(slow->left_ms[i] <= (i < 4 ? 200 : 1));
    }
}

/* What is there is heard, also by who is to leave. */
static void what_is_there_is_heard_however_late(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    assert_int_equal(tt_talk_tell(&talk, report_of(1), tutti_text("words")), TUTTI_OK);
    talk.leave_by = 1;
    assert_int_equal(hear(1, &told, &said), TUTTI_OK);
    assert_string_equal(said.data, "words");
    tutti_buffer_release(&said);
}

static void what_is_no_talk_is_refused(void **state)
{
    (void)state;
    tutti_status_t told;
    tutti_buffer_t said;
    assert_int_equal(tutti_store_set(group.store, report_of(2), tutti_text("hm")), TUTTI_OK);
    assert_int_equal(hear(2, &told, &said), TUTTI_ERR_FORMAT);
    tt_expect_error("rank 2 told nothing");
    assert_int_equal(tutti_store_set(group.store, report_of(2), tutti_text("0 1\nwords")), 0);
    talk.leave_by = 1; /* nobody tells the part */
    assert_int_equal(hear(2, &told, &said), TUTTI_ERR_TIMEOUT);
}

/* A failure goes out behind it. */
static void what_cannot_be_forgotten_leaves_the_last_error(void **state)
{
    (void)state;
    fail_calls(TT_STORE_DELETE, NEVER, TUTTI_ERR_IO);
    assert_int_equal(TT_FAIL(TUTTI_ERR_IO, "rank 1: the disk is full"), TUTTI_ERR_IO);
    tt_talk_forget(&talk, report_of(1));
    assert_string_equal(tutti_last_error(), "rank 1: the disk is full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_say_whose_they_are, begin, end),
        cmocka_unit_test_setup_teardown(what_is_told_is_heard_whatever_its_length, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_is_told_with_its_text_which_stays, begin, end),
        cmocka_unit_test_setup_teardown(a_store_that_is_late_is_asked_again, begin, end),
        cmocka_unit_test_setup_teardown(who_is_to_leave_tries_once_more_for_a_moment, begin, end),
        cmocka_unit_test_setup_teardown(the_groups_timeout_ends_it_too, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_matter_of_time_ends_it_at_once, begin, end),
        cmocka_unit_test_setup_teardown(who_does_not_tell_is_named, begin, end),
        cmocka_unit_test_setup_teardown(what_is_there_is_heard_however_late, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_talk_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_forgotten_leaves_the_last_error, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
