/* Memory of messages: what a failed send sent is not received, what cannot be received now stays,
 * and rings outlive the group for as long as the other side may look at them. */
#include <stdio.h>

#include "core/base/testing.h"

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_impl.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/wire/node_peers_impl.h"
#include "comm/wire/ring.h"
#include "core/device/device.h"

enum { LONG = 16384, TIMEOUT_MS = 20000, RINGS = 8, ROUNDS = 100 };

static tutti_tensor_t *make(tt_member_t *m, tutti_group_t *group, int64_t count, float value)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_fill(x, value) == TUTTI_OK);
    return x;
}

/* ---- a send that failed ---- */

static void change_after_failure(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, m->group, LONG, 1);
    if (m->rank == 0) {
        tutti_work_t *work;
        TT_EXPECT(m, tutti_send(m->group, x, 1, 0, &work) == TUTTI_OK);
        tutti_group_abort(m->group);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
        tutti_work_release(work);
        TT_EXPECT(m, tutti_tensor_fill(x, 2) == TUTTI_OK);
        tt_member_tell(m);
    } else {
        tt_member_await(m, 1);
        TT_EXPECT(m, tutti_recv(m->group, x, 0, 0, NULL) == TUTTI_ERR_ABORTED);
    }
    tutti_tensor_release(x);
}

static void what_a_failed_send_sent_is_not_received(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, change_after_failure, NULL);
}

/* ---- a segment for which there is no room ---- */

/* The heap of rank 0, as if it could not be mapped here. */
static tt_heap_mapping_t *starve(const tt_member_t *m)
{
    tt_node_peers_t *node_peers = tt_native_coll(m->group->state)->node_peers;
    node_peers->starved = 0;
    snprintf(node_peers->starved_text, sizeof node_peers->starved_text, "a test");
    return node_peers->node_peers[0].view.segments;
}

static void receive_without_room(tt_member_t *m, tutti_tensor_t *x)
{
    tutti_message_info_t info;
    TT_EXPECT(m, tutti_probe(m->group, 0, 0, &info) == TUTTI_OK);
    tt_heap_mapping_t *first = starve(m);
    const tt_heap_mapping_t mapping = *first;
    first->base = NULL;
    TT_EXPECT(m, tutti_recv(m->group, x, 0, 0, NULL) == TUTTI_ERR_NOMEM);
    *first = mapping;
    tt_native_coll(m->group->state)->node_peers->starved = -1;
    TT_EXPECT(m, tutti_iprobe(m->group, 0, 0, &info) == TUTTI_OK);
    TT_EXPECT(m, tutti_recv(m->group, x, 0, 0, NULL) == TUTTI_OK);
    TT_EXPECT(m, ((const float *)tutti_tensor_data(x))[LONG - 1] == 1);
}

static void receive_again(tt_member_t *m)
{
    tutti_tensor_t *x = make(m, m->group, LONG, m->rank == 0 ? 1 : 0);
    if (m->rank == 0) {
        TT_EXPECT(m, tutti_send(m->group, x, 1, 0, NULL) == TUTTI_OK);
    } else {
        receive_without_room(m, x);
    }
    tutti_tensor_release(x);
}

static void a_message_stays_if_there_is_no_room_for_it(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, receive_again, NULL);
}

/* ---- rings ---- */

static tutti_group_t *make_pair(tt_member_t *m)
{
    tutti_group_t *pair = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, (const int[]){0, 1}, 2, NULL, &pair) == TUTTI_OK);
    return pair;
}

static void exchange(tt_member_t *m, tutti_group_t *pair)
{
    tutti_tensor_t *x = make(m, pair, 1, 5);
    TT_EXPECT(m, m->rank == 0 ? tutti_send(pair, x, 1, 0, NULL) == TUTTI_OK
                              : tutti_recv(pair, x, 0, 0, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

/* Memory that looks like a ring with 64 bytes in it, wherever in it a ring begins. */
enum { LINE_WORDS = 16, LINES = sizeof(tt_ring_t) / sizeof(uint64_t) / LINE_WORDS };

static uint64_t word_of(int line)
{
    return (uint64_t)(LINES - line) * 64;
}

static uint64_t *make_ring(tt_device_t *heap)
{
    uint64_t *words = tt_device_alloc(heap, sizeof(tt_ring_t), "test");
    for (int i = 0; i < LINES; i++) {
        words[i * LINE_WORDS] = word_of(i);
    }
    return words;
}

static bool is_untouched(const uint64_t *words)
{
    int i = 0;
    while (i < LINES && words[i * LINE_WORDS] == word_of(i)) {
        i++;
    }
    return i == LINES;
}

/* Rank 0 has left a group in which rank 1 still waits for messages, and uses its memory again. */
static void use_memory_again(tt_member_t *m)
{
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    uint64_t *rings[RINGS];
    for (int i = 0; i < RINGS; i++) {
        rings[i] = make_ring(heap);
    }
    tt_member_tell(m);
    tt_member_await(m, 2);
    for (int i = 0; i < RINGS; i++) {
        TT_EXPECT(m, is_untouched(rings[i]));
        tt_device_free(heap, rings[i], sizeof(tt_ring_t));
    }
}

static void leave_a_listener(tt_member_t *m)
{
    tutti_group_t *pair = make_pair(m);
    exchange(m, pair);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK); /* the message has been read */
    if (m->rank == 0) {
        tutti_group_release(pair);
        use_memory_again(m);
        return;
    }
    tutti_tensor_t *x = make(m, pair, 1, 0);
    tt_member_await(m, 1);
    TT_EXPECT(m, tutti_recv(pair, x, 0, 0, NULL) == TUTTI_ERR_PEER);
    tt_member_tell(m);
    tutti_tensor_release(x);
    tutti_group_release(pair);
}

static void a_ring_is_kept_while_the_other_side_may_look_at_it(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, leave_a_listener, NULL);
}

static void come_and_go(tt_member_t *m)
{
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    size_t most = 0;
    for (int i = 0; i < ROUNDS; i++) {
        tutti_group_t *pair = make_pair(m);
        exchange(m, pair);
        tutti_group_release(pair);
        const size_t bytes = tt_device_stats(heap).live_bytes;
        most = bytes > most ? bytes : most;
    }
    TT_EXPECT(m, most < 16 * sizeof(tt_ring_t));
}

static void rings_of_groups_that_are_gone_come_back(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, TIMEOUT_MS, come_and_go, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_failed_send_sent_is_not_received),
        cmocka_unit_test(a_message_stays_if_there_is_no_room_for_it),
        cmocka_unit_test(a_ring_is_kept_while_the_other_side_may_look_at_it),
        cmocka_unit_test(rings_of_groups_that_are_gone_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
