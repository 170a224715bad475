/* Messages between ranks that are threads: short and long, in the heap and not, tags, any source,
 * several under way beside collectives; and what goes wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
#include "comm/p2p/p2p_match.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/wire/ring.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"

static tutti_status_t start(tt_member_t *m, bool is_send, int peer, int tag, float *data,
                            size_t count, tt_message_op_t *run)
{
    const tt_message_t message = {
        is_send ? TT_MESSAGE_SEND : TT_MESSAGE_RECV, peer, tag, TUTTI_F32, count, data, NULL};
    return m->group->backend->start_message(m->group->state, &message, run);
}

static tutti_status_t end_of(tt_member_t *m, tt_message_op_t *run)
{
    return m->group->backend->wait(m->group->state, &run->op, TT_NEVER);
}

static tutti_status_t send_now(tt_member_t *m, int peer, int tag, float *data, size_t count)
{
    tt_message_op_t run;
    TT_TRY(start(m, true, peer, tag, data, count, &run));
    return end_of(m, &run);
}

static tutti_status_t recv_now(tt_member_t *m, int peer, int tag, float *data, size_t count)
{
    tt_message_op_t run;
    TT_TRY(start(m, false, peer, tag, data, count, &run));
    return end_of(m, &run);
}

static void fill(float *data, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)(seed * 1000 + (int)(i % 997));
    }
}

static bool holds(const float *data, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != (float)(seed * 1000 + (int)(i % 997))) {
            return false;
        }
    }
    return true;
}

/* Around a ring: everyone sends on and receives from behind, of each length, from heap and stack.
 */
static void pass_around(tt_member_t *m)
{
    static const size_t counts[] = {0, 1, 1024, 1025, 300000};
    const int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    for (int i = 0; i < 10; i++) {
        const size_t count = counts[i / 2], bytes = 2 * count * 4 + 4;
        const bool is_foreign = i % 2 != 0;
        float *data = is_foreign ? tt_alloc(bytes, "test") : tt_device_alloc(heap, bytes, "test");
        tt_message_op_t sent, got;
        fill(data, count, m->rank + i);
        TT_EXPECT(m, start(m, false, before, i, data + count, count, &got) == TUTTI_OK);
        TT_EXPECT(m, start(m, true, next, i, data, count, &sent) == TUTTI_OK);
        TT_EXPECT(m, end_of(m, &got) == TUTTI_OK && end_of(m, &sent) == TUTTI_OK);
        TT_EXPECT(m, got.source == before && got.tag == i);
        TT_EXPECT(m, holds(data + count, count, before + i));
        if (is_foreign) {
            tt_free(data);
        } else {
            tt_device_free(heap, data, bytes);
        }
    }
}

static void messages_of_every_length_go_around(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        assert_string_equal(tt_team_run(size, 20000, pass_around, NULL).text, "");
    }
}

static void swap_tags(tt_member_t *m)
{
    float a = 1, b = 2, c = 3, got[3] = {0};
    if (m->rank == 0) {
        TT_EXPECT(m, send_now(m, 1, 7, &a, 1) == TUTTI_OK);
        TT_EXPECT(m, send_now(m, 1, 9, &b, 1) == TUTTI_OK);
        TT_EXPECT(m, send_now(m, 1, 7, &c, 1) == TUTTI_OK);
    } else {
        TT_EXPECT(m, recv_now(m, 0, 9, &got[1], 1) == TUTTI_OK);
        TT_EXPECT(m, recv_now(m, 0, TT_ANY_TAG, &got[0], 1) == TUTTI_OK);
        TT_EXPECT(m, recv_now(m, 0, 7, &got[2], 1) == TUTTI_OK);
        TT_EXPECT(m, got[0] == 1 && got[1] == 2 && got[2] == 3);
    }
}

static void tags_choose_and_equal_tags_keep_their_order(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, swap_tags, NULL).text, "");
}

enum { COUNT = 5000 };

static void collect(tt_member_t *m)
{
    float *data = tt_alloc(COUNT * 4, "test");
    if (m->rank > 0) {
        for (int i = 0; i < 20; i++) {
            const size_t count = i % 2 == 0 ? 3 : COUNT;
            fill(data, count, m->rank);
            TT_EXPECT(m, send_now(m, 0, (int)count, data, count) == TUTTI_OK);
        }
    }
    int from[8] = {0};
    for (int i = 0; m->rank == 0 && i < 20 * (m->size - 1); i++) {
        const size_t count = i % 2 == 0 ? 3 : COUNT;
        tt_message_op_t run;
        TT_EXPECT(m, start(m, false, TT_ANY_RANK, (int)count, data, count, &run) == TUTTI_OK);
        TT_EXPECT(m, end_of(m, &run) == TUTTI_OK);
        TT_EXPECT(m, holds(data, count, run.source));
        from[run.source]++;
    }
    for (int i = 1; m->rank == 0 && i < m->size; i++) {
        TT_EXPECT(m, from[i] == 20);
    }
    tt_free(data);
}

static void any_source_is_told(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(4, 20000, collect, NULL).text, "");
}

/* A send that is not received yet does not hold up a collective, nor one another. */
static void mix(tt_member_t *m)
{
    enum { BIG = 200000, MESSAGES = 6 };
    float *data = tt_alloc(MESSAGES * BIG * 4, "test");
    tt_message_op_t runs[MESSAGES];
    for (int i = 0; i < MESSAGES && m->rank == 0; i++) {
        fill(data + i * BIG, BIG, i);
        TT_EXPECT(m, start(m, true, 1, i, data + i * BIG, BIG, &runs[i]) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    for (int i = MESSAGES - 1; i >= 0 && m->rank == 1; i--) {
        TT_EXPECT(m, start(m, false, 0, i, data + i * BIG, BIG, &runs[i]) == TUTTI_OK);
    }
    for (int i = 0; i < MESSAGES; i++) {
        TT_EXPECT(m, end_of(m, &runs[i]) == TUTTI_OK);
        TT_EXPECT(m, holds(data + i * BIG, BIG, i));
    }
    tt_free(data);
}

static void messages_and_collectives_do_not_wait_for_each_other(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, mix, NULL).text, "");
}

static void disagree(tt_member_t *m)
{
    float data[4] = {0};
    if (m->rank == 0) {
        (void)send_now(m, 1, 0, data, 3);
        TT_EXPECT(m, tutti_barrier(m->group, NULL) < 0);
    } else {
        TT_EXPECT(m, recv_now(m, 0, 0, data, 4) == TUTTI_ERR_MISMATCH);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 0 sent f32[3], rank 1 receives f32[4]"));
    }
}

static void other_counts_are_a_mismatch(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 5000, disagree, NULL).text, "");
}

static void wait_in_vain(tt_member_t *m)
{
    float data[4] = {0};
    if (m->rank == 0) {
        TT_EXPECT(m, recv_now(m, 1, 3, data, 4) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, strstr(tutti_last_error(),
                            "recv of f32[4] from rank 1 (tag 3) of group world: nothing was sent "
                            "within 100 ms; rank 1 is in no call that waits"));
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1); /* there, but silent */
        TT_EXPECT(m, tutti_barrier(m->group, NULL) < 0);
    }
}

static void a_recv_has_a_deadline(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 100, wait_in_vain, NULL).text, "");
}

/* Rank 0 posts a recv, then waits for other things for longer than its deadline allows. */
static void post_early(tt_member_t *m)
{
    float early = 0, value = 4;
    tt_message_op_t op;
    if (m->rank == 0) {
        TT_EXPECT(m, start(m, false, TT_ANY_RANK, 3, &early, 1, &op) == TUTTI_OK);
    }
    for (int i = 0; i < 10; i++) {
        if (m->rank == 1) {
            usleep(60000); /* rank 0 waits, and looks at what is late */
        }
        TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    }
    if (m->rank == 1) {
        TT_EXPECT(m, send_now(m, 0, 3, &value, 1) == TUTTI_OK);
    } else {
        TT_EXPECT(m, end_of(m, &op) == TUTTI_OK && early == 4);
    }
}

static void a_recv_posted_early_has_no_deadline_until_somebody_waits(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 300, post_early, NULL).text, "");
}

static void wait_late(tt_member_t *m)
{
    float early = 0;
    tt_message_op_t op;
    if (m->rank == 0) {
        TT_EXPECT(m, start(m, false, 1, 3, &early, 1, &op) == TUTTI_OK);
        usleep(150000);
        const int64_t begin = tt_clock_ns();
        TT_EXPECT(m, end_of(m, &op) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, tt_clock_ns() - begin >= m->timeout_ms * TT_NS_PER_MS);
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
    }
}

static void its_deadline_counts_from_the_wait(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 100, wait_late, NULL).text, "");
}

static void be_left(tt_member_t *m)
{
    float data[4] = {0};
    if (m->rank == 0) {
        TT_EXPECT(m, recv_now(m, 1, 3, data, 4) == TUTTI_ERR_PEER);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1 has left the group") ||
                         strstr(tutti_last_error(), "rank 1 is gone"));
    }
}

static void a_rank_that_leaves_ends_the_recv(void **state)
{
    (void)state;
    assert_string_equal(tt_team_run(2, 20000, be_left, NULL).text, "");
}

/* Rank 0 says something that its messages never say, in the middle of one or not. */
typedef struct {
    bool announces; /* a message of COUNT elements first, which rank 1 receives */
    tt_p2p_header_t header;
} nonsense_t;

static void say(tt_member_t *m, const tt_wire_t *wire, const tt_p2p_header_t *header)
{
    const tt_coll_t *coll = tt_native_coll(m->group->state);
    tt_p2p_header_t whole = *header;
    whole.magic += TT_P2P_MAGIC;
    whole.group = coll->options.group;
    whole.epoch = coll->options.epoch;
    size_t done = 0;
    const tt_span_t span = {&whole, sizeof whole};
    TT_EXPECT(m, wire->ops->send(wire->state, &span, 1, &done) == TUTTI_OK);
    TT_EXPECT(m, done == sizeof whole);
}

static void talk_nonsense(tt_member_t *m)
{
    const nonsense_t *nonsense = m->user;
    static float data[COUNT];
    if (m->rank == 1) {
        const tutti_status_t status = recv_now(m, 0, 3, data, COUNT);
        TT_EXPECT(m, status == TUTTI_ERR_FORMAT);
        TT_EXPECT(m,
                  strstr(tutti_last_error(), nonsense->header.address != 0
                                                 ? "rank 0 shows an address that is wrong"
                                                 : "rank 0 of group world sent bytes that are no "
                                                   "message of ours"));
        tt_member_tell(m);
        return;
    }
    const tt_p2p_header_t rts = {
        .kind = TT_P2P_RTS, .dtype = TUTTI_F32, .tag = 3, .id = 7, .bytes = COUNT * 4};
    tt_wire_t wire;
    TT_EXPECT(m, tt_coll_open_wire(tt_native_coll(m->group->state), 1, TT_LANE_P2P, &wire) ==
                     TUTTI_OK);
    if (nonsense->announces) {
        say(m, &wire, &rts);
        tt_p2p_header_t cts;
        for (size_t got = 0, done = 0; got < sizeof cts; got += done) {
            TT_EXPECT(m, wire.ops->recv(wire.state, (char *)&cts + got, sizeof cts - got, &done) ==
                             TUTTI_OK);
        }
        TT_EXPECT(m, cts.kind == TT_P2P_CTS && cts.id == 7);
    }
    say(m, &wire, &nonsense->header);
    tt_member_await(m, 1);
    tt_wire_close(&wire);
}

static void nonsense_ends_the_recv(void **state)
{
    (void)state;
    tt_needs_shared_memory("a second wire of one lane is known of shared memory alone");
    const nonsense_t all[] = {
        {true, {.kind = TT_P2P_DATA, .id = 7, .bytes = COUNT * 4 - 4}}, /* of another size */
        {true, {.kind = TT_P2P_DATA, .id = 8, .bytes = COUNT * 4}},     /* of another message */
        {false, {.kind = TT_P2P_DATA, .id = 7}},                        /* that nobody cleared */
        {false, {.kind = TT_P2P_CTS, .id = 1}},
        {false, {.kind = TT_P2P_FIN, .id = 1}},
        {false, {.kind = 0}},
        {true, {.kind = TT_P2P_FIN + 1, .id = 7}},
        {false, {.magic = 1, .kind = TT_P2P_RTS}},
        {false, {.kind = TT_P2P_RTS, .dtype = TUTTI_DTYPE_COUNT}},
        {false, /* it leaves its heap */
         {.kind = TT_P2P_RTS,
          .dtype = TUTTI_F32,
          .tag = 3,
          .bytes = COUNT * 4,
          .address = ((tt_heap_address_t)2 << 48) - 64}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        nonsense_t nonsense = all[i];
        assert_string_equal(tt_team_run(2, 5000, talk_nonsense, &nonsense).text, "");
    }
}

/* Rank 0 fills the ring to rank 1 with short messages, until one is half in it, and then does
 * nothing until rank 1 waits for that one. */
enum { SHORT = TT_P2P_EAGER_BYTES / 4, RING_MESSAGES = 64 };

typedef struct {
    _Atomic int step;
    size_t count; /* that rank 1 wants of the message which is half there */
} halfway_t;

static void wait_for_step(halfway_t *halfway, int step)
{
    for (int i = 0; i < 20000 && atomic_load(&halfway->step) < step; i++) {
        usleep(1000);
    }
}

static void send_until_half(tt_member_t *m, halfway_t *halfway, float *data)
{
    tt_message_op_t runs[RING_MESSAGES];
    for (int i = 0; i < RING_MESSAGES; i++) {
        TT_EXPECT(m, start(m, true, 1, i, data, SHORT, &runs[i]) == TUTTI_OK);
    }
    m->group->backend->progress(m->group->state);
    atomic_store(&halfway->step, 1);
    wait_for_step(halfway, 2);
    for (int i = 0; i < RING_MESSAGES; i++) {
        const tutti_status_t status = end_of(m, &runs[i]);
        TT_EXPECT(m, status == TUTTI_OK || halfway->count != SHORT);
    }
}

static void meet_halfway(tt_member_t *m)
{
    halfway_t *halfway = m->user;
    const int half = TT_RING_BYTES / (TT_P2P_EAGER_BYTES + (int)sizeof(tt_p2p_header_t));
    float *data = tt_alloc(TT_P2P_EAGER_BYTES, "test");
    tt_message_op_t run;
    if (m->rank == 0) {
        fill(data, SHORT, 1);
        send_until_half(m, halfway, data);
    } else {
        wait_for_step(halfway, 1);
        TT_EXPECT(m, recv_now(m, 0, 0, data, SHORT) == TUTTI_OK);
        m->group->backend->progress(m->group->state);
        TT_EXPECT(m, start(m, false, 0, half, data, halfway->count, &run) == TUTTI_OK);
        TT_EXPECT(m, run.op.status == TUTTI_PENDING);
        atomic_store(&halfway->step, 2);
        const tutti_status_t status =
            m->group->backend->wait(m->group->state, &run.op, tt_deadline_in_ms(5000));
        TT_EXPECT(m, status == (halfway->count == SHORT ? TUTTI_OK : TUTTI_ERR_MISMATCH));
        TT_EXPECT(m, status < 0 || holds(data, SHORT, 1));
        for (int i = 1; i < RING_MESSAGES && status == TUTTI_OK; i++) {
            TT_EXPECT(m, i == half || recv_now(m, 0, i, data, SHORT) == TUTTI_OK);
        }
    }
    tt_free(data);
}

static void a_recv_may_come_when_half_the_message_is_there(void **state)
{
    (void)state;
    tt_needs_shared_memory("how much is there is known of the ring alone");
    const size_t counts[] = {SHORT, SHORT - 1};
    for (int i = 0; i < 2; i++) {
        halfway_t halfway = {.count = counts[i]};
        assert_string_equal(tt_team_run(2, 20000, meet_halfway, &halfway).text, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_every_length_go_around),
        cmocka_unit_test(tags_choose_and_equal_tags_keep_their_order),
        cmocka_unit_test(any_source_is_told),
        cmocka_unit_test(messages_and_collectives_do_not_wait_for_each_other),
        cmocka_unit_test(other_counts_are_a_mismatch),
        cmocka_unit_test(a_recv_has_a_deadline),
        cmocka_unit_test(a_recv_posted_early_has_no_deadline_until_somebody_waits),
        cmocka_unit_test(its_deadline_counts_from_the_wait),
        cmocka_unit_test(a_rank_that_leaves_ends_the_recv),
        cmocka_unit_test(nonsense_ends_the_recv),
        cmocka_unit_test(a_recv_may_come_when_half_the_message_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
