/* Torture: the nth allocation fails while messages are under way, for every n. Whatever happens,
 * every wait ends, and none by its deadline: no message is lost without an error; nothing crashes
 * or leaks; and a message that was received is the one that was sent. */
#include "core/base/testing.h"

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/alloc.h"

enum { MESSAGES = 8, LONG = 3000, TIMEOUT_MS = 5000 };

typedef struct {
    size_t nth;
} torture_t;

/* Message i: long and short, with and without a recv that waits for it, in the heap and not. */
static size_t count_of(int i)
{
    return i % 2 == 0 ? LONG : 3;
}

/* A message that could not be started is not to come: the group is given up at once. */
static void start_all(tt_member_t *m, float *data, tt_message_op_t *ops, bool is_send)
{
    for (int i = 0; i < MESSAGES; i++) {
        const int k = is_send ? i : i * 3 % MESSAGES; /* in another order */
        const tt_message_t message = {is_send ? TT_MESSAGE_SEND : TT_MESSAGE_RECV,
                                      is_send || k % 3 != 0 ? 1 - m->rank : TT_ANY_RANK,
                                      k,
                                      TUTTI_F32,
                                      count_of(k),
                                      data + (size_t)k * LONG,
                                      NULL};
        tt_message_op_t *op = &ops[k];
        const tutti_status_t status =
            m->group->backend->start_message(m->group->state, &message, op);
        if (status < 0) {
            op->op.status = status;
            m->group->backend->abort(m->group->state, "");
        }
    }
}

static void end_all(tt_member_t *m, const float *data, tt_message_op_t *ops, bool is_send)
{
    const tt_backend_ops_t *backend = m->group->backend;
    for (int i = 0; i < MESSAGES; i++) {
        if (ops[i].op.status == TUTTI_PENDING) {
            (void)backend->wait(m->group->state, &ops[i].op, tt_deadline_in_ms(2 * TIMEOUT_MS));
        }
        TT_EXPECT(m, ops[i].op.status != TUTTI_PENDING);
        TT_EXPECT(m, ops[i].op.status != TUTTI_ERR_TIMEOUT);
        const float *got = data + (size_t)i * LONG;
        const bool is_good = got[0] == (float)i && got[count_of(i) - 1] == (float)i;
        TT_EXPECT(m, is_send || ops[i].op.status != TUTTI_OK || is_good);
    }
}

/* All meet, and from then on the nth allocation fails. */
static void arm(tt_member_t *m)
{
    const torture_t *torture = m->user;
    tt_member_tell(m);
    tt_member_await(m, 2);
    if (m->rank == 0) {
        tt_alloc_fail_at(torture->nth);
        tt_member_tell(m);
    }
    tt_member_await(m, 3);
}

static void fill(float *data, bool is_sent)
{
    for (int i = 0; i < MESSAGES * LONG; i++) {
        data[i] = is_sent ? (float)(i / LONG) : -1;
    }
}

/* Both send, rank 0 from its heap, before they receive. */
static void exchange(tt_member_t *m)
{
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    const size_t bytes = (size_t)MESSAGES * LONG * sizeof(float);
    tt_message_op_t sends[MESSAGES], recvs[MESSAGES];
    float *out = m->rank == 0 ? tt_device_alloc(heap, bytes, "test") : tt_alloc(bytes, "test");
    float *in = tt_alloc(bytes, "test");
    fill(out, true);
    fill(in, false);
    arm(m);
    start_all(m, out, sends, true);
    m->group->backend->progress(m->group->state);
    start_all(m, in, recvs, false);
    end_all(m, in, recvs, false);
    end_all(m, out, sends, true);
    if (m->rank == 0) {
        tt_device_free(heap, out, bytes);
    } else {
        tt_free(out);
    }
    tt_free(in);
}

/* Rank 1 receives before rank 0 sends, and has sent nothing itself. */
static void await(tt_member_t *m)
{
    tt_message_op_t ops[MESSAGES];
    float *data = tt_alloc((size_t)MESSAGES * LONG * sizeof(float), "test");
    fill(data, m->rank == 0);
    arm(m);
    if (m->rank == 0) {
        tt_member_await(m, 4);
    }
    start_all(m, data, ops, m->rank == 0);
    if (m->rank == 1) {
        tt_member_tell(m);
    }
    end_all(m, data, ops, m->rank == 0);
    tt_free(data);
}

/* Returns whether there was an nth allocation. */
static bool torture_messages(size_t nth, void (*body)(tt_member_t *m))
{
    torture_t torture = {.nth = nth};
    tt_team_expect_quietly(2, TIMEOUT_MS, body, &torture);
    const bool has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("allocation %zu failed, and leaked:\n%s", nth, report);
    }
    return has_failed;
}

static void a_failed_allocation_leaves_no_wait_without_end(void **state)
{
    (void)state;
    void (*const bodies[])(tt_member_t * m) = {exchange, await};
    for (int i = 0; i < 2; i++) {
        size_t nth = 1;
        while (torture_messages(nth, bodies[i])) {
            nth++;
        }
        assert_true(nth > 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_leaves_no_wait_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
