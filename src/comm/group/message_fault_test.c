/* Messages of a group that is given up, left or shrunk by others while somebody waits for one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <tutti/tutti.h>
#include <string.h>
#include <unistd.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/p2p/p2p_match.h"
#include "comm/wire/ring.h"
#include "core/base/testing.h"

/* Nothing here may end by its deadline. */
enum { DEADLINE_MS = 10000 };

typedef enum { RECV, PROBE, IPROBE } wait_kind_t;

typedef struct {
    wait_kind_t kind;
    int from, who_aborts;
} abort_case_t;

static tutti_tensor_t *make(tt_member_t *m, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static tutti_status_t poll_iprobe(tt_member_t *m, int from)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(DEADLINE_MS);
    tutti_message_info_t info;
    tutti_status_t status = TUTTI_PENDING;
    while (status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
        status = tutti_iprobe(m->group, from, 0, &info);
    }
    return status;
}

static tutti_status_t wait_for_message(tt_member_t *m, wait_kind_t kind, int from)
{
    if (kind == IPROBE) {
        return poll_iprobe(m, from);
    }
    tutti_message_info_t info;
    tutti_tensor_t *x = make(m, 4);
    const tutti_status_t status = kind == PROBE ? tutti_probe(m->group, from, 0, &info)
                                                : tutti_recv(m->group, x, from, 0, NULL);
    tutti_tensor_release(x);
    return status;
}

/* Rank 0 waits before the abort comes; the others answer no more than a rank does that computes
 * and looks at its group now and then. */
static void wait_while_one_aborts(tt_member_t *m)
{
    const abort_case_t *test = m->user;
    tutti_group_t *const world =
        m->group; /* no rank has connected to another for a group of its own */
    TT_EXPECT(m, tutti_group_new(world, (const int[]){0, 1, 2}, 3, NULL, &m->group) == TUTTI_OK);
    if (m->rank == 0) {
        TT_EXPECT(m, wait_for_message(m, test->kind, test->from) == TUTTI_ERR_ABORTED);
        tt_member_tell(m);
    }
    for (int i = 0; i < 100 && m->rank > 0; i++) {
        tutti_group_progress(m->group);
        usleep(1000);
    }
    if (m->rank == test->who_aborts) {
        tutti_group_abort(m->group);
    }
    for (int i = 0; i < 100 && m->rank > 0; i++) { /* who aborts looks at its groups now and then */
        tutti_group_progress(world);
        usleep(1000);
    }
    tt_member_await(m, 1);
    tutti_group_release(m->group);
    m->group = world;
}

static void expect_aborted(wait_kind_t kind)
{
    const abort_case_t tests[] = {
        {kind, TUTTI_ANY_RANK, 1}, {kind, 1, 1}, {kind, 1, 2}, {kind, 2, 1}};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        abort_case_t test = tests[i];
        const int64_t start_ns = tt_clock_ns();
        tt_team_expect_quietly(3, DEADLINE_MS, wait_while_one_aborts, &test);
        assert_true(tt_clock_ns() - start_ns < DEADLINE_MS / 2 * TT_NS_PER_MS);
    }
}

static void an_abort_ends_a_recv(void **state)
{
    (void)state;
    expect_aborted(RECV);
}

static void an_abort_ends_a_probe(void **state)
{
    (void)state;
    expect_aborted(PROBE);
}

static void an_abort_ends_a_loop_of_iprobes(void **state)
{
    (void)state;
    expect_aborted(IPROBE);
}

/* Rank 2 leaves, rank 1 finds out and shrinks the group; ranks 0 and 3 wait for anybody, and each
 * is there for the other to send. */
static void shrink_beside_a_recv(tt_member_t *m)
{
    if (m->rank == 2) {
        for (int i = 0; i < 50; i++) {
            tutti_group_progress(m->group);
            usleep(1000);
        }
        return;
    }
    tutti_tensor_t *x = make(m, 4);
    tutti_group_t *next = NULL;
    const tutti_status_t status =
        tutti_recv(m->group, x, m->rank == 1 ? 2 : TUTTI_ANY_RANK, 0, NULL);
    TT_EXPECT(m, status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED);
    TT_EXPECT(m, tutti_group_shrink(m->group, NULL, &next) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_size(next) == 3);
    tutti_group_release(next);
    tutti_tensor_release(x);
}

static void a_rank_that_waits_for_anybody_is_not_shut_out(void **state)
{
    (void)state;
    tt_team_expect_quietly(4, 30000, shrink_beside_a_recv, NULL);
}

/* All but rank 0 leave. */
static void be_the_last(tt_member_t *m)
{
    const abort_case_t *test = m->user;
    if (m->rank == 0) {
        TT_EXPECT(m, wait_for_message(m, test->kind, TUTTI_ANY_RANK) == TUTTI_ERR_PEER);
        TT_EXPECT(m, strstr(tutti_last_error(), "all other ranks have died or left the group"));
        return;
    }
    for (int i = 0; i < 50; i++) {
        tutti_group_progress(m->group);
        usleep(1000);
    }
}

static void nobody_is_left_to_send(void **state)
{
    (void)state;
    for (int kind = RECV; kind <= IPROBE; kind++) {
        abort_case_t test = {(wait_kind_t)kind, TUTTI_ANY_RANK, 0};
        tt_team_expect_quietly(3, DEADLINE_MS, be_the_last, &test);
    }
}

/* An early recv, and a look, are no errors of a rank that is alone; waiting is. */
static void be_alone(tt_member_t *m)
{
    tutti_message_info_t info;
    tutti_work_t *work;
    tutti_tensor_t *x = make(m, 4);
    TT_EXPECT(m, tutti_recv(m->group, x, TUTTI_ANY_RANK, 0, &work) == TUTTI_OK);
    for (int i = 0; i < 20; i++) {
        TT_EXPECT(m, tutti_iprobe(m->group, TUTTI_ANY_RANK, 0, &info) == TUTTI_PENDING);
        usleep(1000);
    }
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_PEER);
    TT_EXPECT(m, strstr(tutti_last_error(), "the group has no other rank"));
    tutti_work_release(work);
    tutti_tensor_release(x);
}

static void a_rank_that_is_alone_waits_for_nobody(void **state)
{
    (void)state;
    tt_team_expect_quietly(1, DEADLINE_MS, be_alone, NULL);
}

/* So many short messages that a ring has no room for one more header. */
enum { FULL_ELEMENTS = 1024, LAST_ELEMENTS = 512, LARGE_ELEMENTS = 100000 };

static void fill_ring(tt_member_t *m)
{
    const int count = TT_RING_BYTES / (FULL_ELEMENTS * 4 + (int)sizeof(tt_p2p_header_t));
    tutti_tensor_t *full = make(m, FULL_ELEMENTS), *last = make(m, LAST_ELEMENTS);
    for (int i = 0; i < count; i++) {
        TT_EXPECT(m, tutti_send(m->group, full, 1, 1, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_send(m->group, last, 1, 1, NULL) == TUTTI_OK);
    tutti_tensor_release(full);
    tutti_tensor_release(last);
}

static void open_wires(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, 1);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, (i == m->rank ? tutti_send(m->group, x, 1 - m->rank, 7, NULL)
                                   : tutti_recv(m->group, x, 1 - m->rank, 7, NULL)) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

/* Rank 0's answer to a long message finds the ring to rank 1 full, and its recv has ended. Rank 0
 * goes on in another group. */
static void answer_into_a_full_ring(tt_member_t *m)
{
    tutti_group_t *second = NULL;
    tutti_work_t *work = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &second) == TUTTI_OK);
    tutti_tensor_t *large = make(m, LARGE_ELEMENTS);
    open_wires(m);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_send(m->group, large, 0, 2, &work) == TUTTI_OK);
        tt_member_tell(m);
        tt_member_await(m, 2);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
    } else {
        tt_member_await(m, 1);
        fill_ring(m);
        TT_EXPECT(m, tutti_recv(m->group, large, 1, 2, NULL) == TUTTI_OK);
        tt_member_tell(m);
    }
    TT_EXPECT(m, tutti_barrier(second, NULL) == TUTTI_OK);
    tutti_tensor_release(large);
    tutti_group_release(second);
}

/* The same, but rank 0 leaves the group as soon as it has received, while rank 1 reads nothing. */
static void answer_and_leave(tt_member_t *m)
{
    enum { REST_US = 50000 };
    tutti_group_t *const world = m->group;
    tutti_work_t *work = NULL;
    TT_EXPECT(m, tutti_group_new(world, (const int[]){0, 1}, 2, NULL, &m->group) == TUTTI_OK);
    tutti_tensor_t *large = make(m, LARGE_ELEMENTS);
    open_wires(m);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_send(m->group, large, 0, 2, &work) == TUTTI_OK);
        tt_member_tell(m);
        tt_member_await(m, 2);
        usleep(REST_US);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
        tutti_work_release(work);
    } else {
        tt_member_await(m, 1);
        fill_ring(m);
        TT_EXPECT(m, tutti_recv(m->group, large, 1, 2, NULL) == TUTTI_OK);
        tt_member_tell(m);
    }
    tutti_group_release(m->group);
    m->group = world;
    TT_EXPECT(m, tutti_barrier(world, NULL) == TUTTI_OK);
    tutti_tensor_release(large);
}

static void an_answer_that_found_a_full_ring_is_sent_later(void **state)
{
    (void)state;
    tt_needs_shared_memory("a message is got where it lies, and answered, on one host alone");
    tt_team_expect_quietly(2, DEADLINE_MS / 2, answer_into_a_full_ring, NULL);
    tt_team_expect_quietly(2, DEADLINE_MS / 2, answer_and_leave, NULL);
}

/* As many messages as a rank keeps stand before the answer to a long one. */
static void answer_behind_many(tt_member_t *m)
{
    tutti_tensor_t *small = make(m, 1), *large = make(m, LARGE_ELEMENTS);
    for (int i = 0; i < TT_P2P_ARRIVED_MAX && m->rank == 1; i++) {
        TT_EXPECT(m, tutti_send(m->group, small, 0, 1, NULL) == TUTTI_OK);
    }
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_recv(m->group, large, 0, 2, NULL) == TUTTI_OK);
    } else {
        TT_EXPECT(m, tutti_send(m->group, large, 1, 2, NULL) == TUTTI_OK);
    }
    for (int i = 0; i < TT_P2P_ARRIVED_MAX && m->rank == 0; i++) {
        TT_EXPECT(m, tutti_recv(m->group, small, 1, 1, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_tensor_release(small);
    tutti_tensor_release(large);
}

static void an_answer_is_read_behind_many_messages(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, DEADLINE_MS, answer_behind_many, NULL);
}

/* Rank 0 never receives what rank 1 sends, which is one more than it keeps; rank 2's message, which
 * it waits for, comes all the same. */
static void send_too_many(tt_member_t *m)
{
    tutti_tensor_t *small = make(m, 1);
    if (m->rank == 1) {
        for (int i = 0; i <= TT_P2P_ARRIVED_MAX; i++) {
            TT_EXPECT(m, tutti_send(m->group, small, 0, 1, NULL) == TUTTI_OK);
        }
        tt_member_tell(m);
        tt_member_await(m, 2);
    } else if (m->rank == 2) {
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_send(m->group, small, 0, 2, NULL) == TUTTI_OK);
        tt_member_await(m, 2);
    } else {
        TT_EXPECT(m, tutti_recv(m->group, small, TUTTI_ANY_RANK, 2, NULL) == TUTTI_OK);
        TT_EXPECT(m, tutti_recv(m->group, small, 1, 3, NULL) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 0 keeps 16384 messages that it has not "
                                                "received, and takes no more"));
        tt_member_tell(m);
    }
    tutti_tensor_release(small);
}

static void one_message_too_many_waits_and_is_named(void **state)
{
    (void)state;
    tt_team_expect_quietly(3, 2000, send_too_many, NULL);
}

/* Each look fails at another allocation: messages, wire, the message that has arrived. */
static void look_without_memory(tt_member_t *m)
{
    static const size_t fail_at[] = {1, 2, 3, 1, 2, 1};
    tutti_message_info_t info;
    tutti_tensor_t *x = make(m, 1);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_send(m->group, x, 0, 3, NULL) == TUTTI_OK);
        tt_member_tell(m);
        tt_member_await(m, 2);
    } else {
        tt_member_await(m, 1);
        for (size_t i = 0; i < sizeof fail_at / sizeof *fail_at; i++) {
            tt_alloc_fail_at(fail_at[i]);
            const tutti_status_t status = tutti_iprobe(m->group, 1, 3, &info);
            const bool has_failed = tt_alloc_has_failed() != 0;
            tt_alloc_fail_at(0);
            TT_EXPECT(m, !has_failed || status == TUTTI_ERR_NOMEM);
        }
        tt_member_tell(m);
        TT_EXPECT(m, tutti_iprobe(m->group, 1, 3, &info) == TUTTI_OK && info.count == 1);
        TT_EXPECT(m, tutti_recv(m->group, x, 1, 3, NULL) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

static void an_iprobe_without_memory_spares_the_group(void **state)
{
    (void)state;
    tt_needs_shared_memory("a message comes at the first look on one host alone");
    tt_team_expect_quietly(2, DEADLINE_MS, look_without_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_ends_a_recv),
        cmocka_unit_test(an_abort_ends_a_probe),
        cmocka_unit_test(an_abort_ends_a_loop_of_iprobes),
        cmocka_unit_test(a_rank_that_waits_for_anybody_is_not_shut_out),
        cmocka_unit_test(nobody_is_left_to_send),
        cmocka_unit_test(a_rank_that_is_alone_waits_for_nobody),
        cmocka_unit_test(an_answer_that_found_a_full_ring_is_sent_later),
        cmocka_unit_test(an_answer_is_read_behind_many_messages),
        cmocka_unit_test(one_message_too_many_waits_and_is_named),
        cmocka_unit_test(an_iprobe_without_memory_spares_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
