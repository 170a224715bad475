/* Waiting for any and for all of several works: of several groups, of prepared calls, bundles, with
 * NULLs among them; and what goes wrong. */
#include "core/base/testing.h"

#include <string.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/prepared.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

enum { WORKS = 6, TIMEOUT_MS = 20000 };

static tutti_tensor_t *make(tt_member_t *m, float value)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(2000), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, value) == TUTTI_OK);
    return x;
}

static float first_of(const tutti_tensor_t *x)
{
    return *(const float *)tutti_tensor_data(x);
}

/* Works of two groups, of a prepared call and of a batch, and no work at 5. */
typedef struct {
    tutti_group_t *pair;
    tutti_tensor_t *x[WORKS];
    tutti_work_t *works[WORKS];
    tutti_prepared_t *prepared;
} calls_t;

static void start_all(tt_member_t *m, calls_t *calls)
{
    for (int i = 0; i < WORKS; i++) {
        calls->x[i] = make(m, (float)(m->rank + 1));
    }
    tutti_tensor_t **x = calls->x;
    const int peer = 1 - m->rank;
    const tutti_transfer_t transfers[] = {{TUTTI_SEND, x[3], peer, 4}, {TUTTI_RECV, x[4], peer, 4}};
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &calls->pair) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x[0], TUTTI_SUM, &calls->prepared) == TUTTI_OK);
    TT_EXPECT(m, tutti_prepared_start(calls->prepared, &calls->works[0]) == TUTTI_OK);
    TT_EXPECT(m, tutti_all_reduce(calls->pair, x[1], TUTTI_SUM, &calls->works[1]) == TUTTI_OK);
    TT_EXPECT(m, (m->rank == 0 ? tutti_send(m->group, x[2], 1, 3, &calls->works[2])
                               : tutti_recv(m->group, x[2], 0, 3, &calls->works[2])) == TUTTI_OK);
    TT_EXPECT(m, tutti_batch_send_recv(calls->pair, transfers, 2, &calls->works[4]) == TUTTI_OK);
}

static void end_all(tt_member_t *m, calls_t *calls)
{
    TT_EXPECT(m, first_of(calls->x[0]) == 3 && first_of(calls->x[1]) == 3);
    TT_EXPECT(m, first_of(calls->x[2]) == 1);
    TT_EXPECT(m, first_of(calls->x[4]) == (float)(2 - m->rank));
    for (int i = 0; i < WORKS; i++) {
        tutti_work_release(calls->works[i]);
        tutti_tensor_release(calls->x[i]);
    }
    tutti_prepared_release(calls->prepared);
    tutti_group_release(calls->pair);
}

static void take_in_any_order(tt_member_t *m)
{
    calls_t calls = {0};
    int index, count = 0;
    start_all(m, &calls);
    while (tutti_work_wait_any(calls.works, WORKS, &index) == TUTTI_OK) {
        TT_EXPECT(m, index >= 0 && tutti_work_is_done(calls.works[index]));
        tutti_work_release(calls.works[index]);
        calls.works[index] = NULL;
        count++;
    }
    TT_EXPECT(m, count == 4 && index == -1);
    end_all(m, &calls);
}

static void wait_any_gives_each_work_once(void **state)
{
    (void)state;
    tt_team_expect(2, TIMEOUT_MS, take_in_any_order, NULL);
}

/* The ranks wait for their groups in different order. */
static void take_all(tt_member_t *m)
{
    calls_t calls = {0};
    start_all(m, &calls);
    if (m->rank == 1) {
        tutti_work_t *const first = calls.works[0];
        calls.works[0] = calls.works[4];
        calls.works[4] = first;
    }
    TT_EXPECT(m, tutti_work_wait_all(calls.works, WORKS) == TUTTI_OK);
    for (int i = 0; i < WORKS; i++) {
        TT_EXPECT(m, tutti_work_is_done(calls.works[i]));
    }
    end_all(m, &calls);
}

static void wait_all_ends_when_all_are_done(void **state)
{
    (void)state;
    tt_team_expect(2, TIMEOUT_MS, take_all, NULL);
}

static void wait_for_what_fails(tt_member_t *m)
{
    tutti_group_t *pair;
    tutti_tensor_t *x = make(m, 0), *y = make(m, 1);
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &pair) == TUTTI_OK);
    if (m->rank == 0) {
        tutti_work_t *works[3] = {NULL};
        int index = -2;
        TT_EXPECT(m, tutti_recv(m->group, x, 1, 1, &works[0]) == TUTTI_OK);
        TT_EXPECT(m, tutti_recv(pair, y, 1, 2, &works[2]) == TUTTI_OK);
        tt_member_tell(m);
        TT_EXPECT(m, tutti_work_wait_any(works, 3, &index) == TUTTI_ERR_PEER && index == 2);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1 has left the group"));
        tt_member_tell(m);
        TT_EXPECT(m, tutti_work_wait_all(works, 3) == TUTTI_ERR_PEER);
        TT_EXPECT(m, tutti_work_wait_all(works, 1) == TUTTI_OK && first_of(x) == 1);
        tutti_work_release(works[0]);
        tutti_work_release(works[2]);
        tutti_group_release(pair);
    } else {
        tt_member_await(m, 1);
        tutti_group_release(pair);
        tt_member_await(m, 2);
        TT_EXPECT(m, tutti_send(m->group, y, 0, 1, NULL) == TUTTI_OK);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(y);
}

static void a_failure_in_any_group_is_found(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, wait_for_what_fails, NULL);
}

/* Rank 0 waits for several calls as one work; rank 1 makes each of them well before the deadline of
 * a single one. */
enum { PARTS = 10, PAUSE_US = 100000, SHORT_MS = 2 * PAUSE_US / 1000 };

static void wait_for_a_batch(tt_member_t *m)
{
    tutti_tensor_t *x[PARTS];
    tutti_transfer_t transfers[PARTS];
    for (int i = 0; i < PARTS; i++) {
        x[i] = make(m, 0);
        transfers[i] = (tutti_transfer_t){TUTTI_RECV, x[i], 1, i};
        if (m->rank == 1) {
            usleep(PAUSE_US);
            (void)tutti_send(m->group, x[i], 0, i, NULL);
        }
    }
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_batch_send_recv(m->group, transfers, PARTS, NULL) == TUTTI_ERR_TIMEOUT);
    }
    for (int i = 0; i < PARTS; i++) {
        tutti_tensor_release(x[i]);
    }
}

static void wait_for_prepared_calls(tt_member_t *m)
{
    tutti_tensor_t *x[PARTS];
    tutti_prepared_t *sums[PARTS];
    for (int i = 0; i < PARTS; i++) {
        x[i] = make(m, 0);
        TT_EXPECT(m, tutti_prepare_all_reduce(m->group, x[i], TUTTI_SUM, &sums[i]) == TUTTI_OK);
        if (m->rank == 1) {
            usleep(PAUSE_US);
            (void)tutti_prepared_start(sums[i], NULL);
        }
    }
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_prepared_start_all(sums, PARTS, NULL) == TUTTI_ERR_TIMEOUT);
    }
    for (int i = 0; i < PARTS; i++) {
        tutti_prepared_release(sums[i]);
        tutti_tensor_release(x[i]);
    }
}

static void the_calls_of_one_work_have_one_deadline(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, SHORT_MS, wait_for_a_batch, NULL);
    tt_team_expect_quietly(2, SHORT_MS, wait_for_prepared_calls, NULL);
}

static void nothing_to_wait_for(void **state)
{
    (void)state;
    tutti_work_t *none[2] = {NULL, NULL};
    int index = 5;
    assert_int_equal(tutti_work_wait_any(none, 2, &index), TUTTI_END);
    assert_int_equal(index, -1);
    assert_int_equal(tutti_work_wait_any(NULL, 0, &index), TUTTI_END);
    assert_int_equal(tutti_work_wait_all(none, 2), TUTTI_OK);
    assert_int_equal(tutti_work_wait_all(NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_work_wait_all(NULL, 1), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "work_wait_all: works is NULL"));
    assert_int_equal(tutti_work_wait_any(none, -1, &index), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "work_wait_any: -1 works"));
    assert_int_equal(tutti_work_wait_any(none, 2, NULL), TUTTI_ERR_ARG);
}

static void probe_in_vain(tt_member_t *m)
{
    tutti_message_info_t info;
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_iprobe(m->group, 1, 7, &info) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_iprobe(m->group, TUTTI_ANY_RANK, 7, &info) == TUTTI_PENDING);
        TT_EXPECT(m, tutti_probe(m->group, 0, 7, &info) == TUTTI_ERR_ARG);
        TT_EXPECT(m, tutti_probe(m->group, 1, -3, &info) == TUTTI_ERR_ARG);
        TT_EXPECT(m, tutti_probe(m->group, 1, 7, &info) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strstr(tutti_last_error(), "probe from rank 1 (tag 7) of group world"));
        TT_EXPECT(m, strstr(tutti_last_error(), "nothing was sent within 100 ms"));
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
    }
}

static void a_probe_has_a_deadline(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 100, probe_in_vain, NULL);
}

static void look_for_one_that_left(tt_member_t *m)
{
    tutti_message_info_t info;
    tutti_status_t status = TUTTI_PENDING;
    const tt_deadline_t deadline = tt_deadline_in_ms(TIMEOUT_MS);
    while (m->rank == 0 && status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
        status = tutti_iprobe(m->group, 1, TUTTI_ANY_TAG, &info);
    }
    TT_EXPECT(m, m->rank == 1 || status == TUTTI_ERR_PEER);
}

static void an_iprobe_finds_that_the_rank_has_left(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, look_for_one_that_left, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_any_gives_each_work_once),
        cmocka_unit_test(wait_all_ends_when_all_are_done),
        cmocka_unit_test(a_failure_in_any_group_is_found),
        cmocka_unit_test(the_calls_of_one_work_have_one_deadline),
        cmocka_unit_test(nothing_to_wait_for),
        cmocka_unit_test(a_probe_has_a_deadline),
        cmocka_unit_test(an_iprobe_finds_that_the_rank_has_left),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
