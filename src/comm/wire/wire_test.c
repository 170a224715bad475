/* Host-local ranks and wires: threads as ranks meet, see each other's memory, notice who leaves and
 * who dies; every wire keeps order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/wire/node_peers.h"
#include "comm/wire/quarantine.h"
#include "comm/wire/ring.h"
#include "comm/wire/shm_wire.h"
#include "core/base/alloc.h"

enum { RANKS_MAX = 5 };

/* A directory in memory that threads and forked processes share. */
typedef struct {
    _Atomic int is_there[RANKS_MAX];
    unsigned char infos[RANKS_MAX][TT_NODE_PEER_INFO_BYTES];
} table_t;

static tutti_status_t put_info(void *user, tt_info_kind_t kind, int rank, const void *info)
{
    table_t *table = user;
    (void)kind;
    memcpy(table->infos[rank], info, TT_NODE_PEER_INFO_BYTES);
    atomic_store(&table->is_there[rank], 1);
    return TUTTI_OK;
}

static tutti_status_t get_info(void *user, tt_info_kind_t kind, int rank, tt_deadline_t deadline,
                               void *info)
{
    table_t *table = user;
    (void)kind;
    while (!atomic_load(&table->is_there[rank])) {
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d has no peer info", rank);
        }
        usleep(500);
    }
    memcpy(info, table->infos[rank], TT_NODE_PEER_INFO_BYTES);
    return TUTTI_OK;
}

static table_t *shared_table(void)
{
    void *table =
        mmap(NULL, sizeof(table_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(table != MAP_FAILED);
    return table;
}

typedef struct thread_rank {
    pthread_t thread;
    table_t *table;
    void (*body)(struct thread_rank *self);
    tt_node_peers_t *node_peers;
    int rank, size;
    int failures;
} thread_rank_t;

#define EXPECT(self, condition) ((self)->failures += !(condition))

static tutti_status_t join(table_t *table, int rank, int size, int timeout_ms,
                           tt_node_peers_t **out)
{
    const tt_directory_t directory = {.put = put_info, .get = get_info, .user = table};
    return tt_node_peers_join(rank, size, &directory, tt_deadline_in_ms(timeout_ms), out);
}

static void *join_and_run(void *user)
{
    thread_rank_t *self = user;
    if (join(self->table, self->rank, self->size, 10000, &self->node_peers) < 0) {
        self->failures++;
        return NULL;
    }
    self->body(self);
    tt_node_peers_release(self->node_peers);
    return NULL;
}

static void run_ranks(int size, void (*body)(thread_rank_t *self))
{
    thread_rank_t ranks[RANKS_MAX];
    table_t *table = shared_table();
    for (int i = 0; i < size; i++) {
        ranks[i] = (thread_rank_t){.table = table, .body = body, .rank = i, .size = size};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, join_and_run, &ranks[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(ranks[i].thread, NULL);
        assert_int_equal(ranks[i].failures, 0);
    }
    munmap(table, sizeof *table);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("leaked:\n%s", report);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_status_t send_one(tt_wire_t *wire, const void *data, size_t bytes, size_t *done)
{
    return wire->ops->send(wire->state, &(tt_span_t){data, bytes}, 1, done);
}

static void exchange(thread_rank_t *self)
{
    tt_node_peers_t *node_peers = self->node_peers;
    void *block = tt_device_alloc(tt_node_peers_heap(node_peers), RANKS_MAX * 8, "outboxes");
    memset(block, 0, RANKS_MAX * 8);
    _Atomic tt_heap_address_t *boxes = block;
    /* every rank allocates in the same way, so that the outboxes lie at the same place in every
     * heap */
    const tt_heap_address_t place =
        tt_heap_address(tt_node_peers_heap(node_peers), block, RANKS_MAX * 8);
    tt_wire_t wires[RANKS_MAX] = {{0}};
    for (int i = 0; i < self->size; i++) {
        _Atomic tt_heap_address_t *theirs = tt_node_peers_at(node_peers, i, place, RANKS_MAX * 8);
        const tt_shm_pair_t pair = {
            .node_peers = node_peers, .peer = i, .outbox = &boxes[i], .inbox = &theirs[self->rank]};
        EXPECT(self, i == self->rank || tt_wire_open_shm(&pair, &wires[i]) == TUTTI_OK);
    }
    enum { WORDS = 60000 };
    static _Thread_local uint32_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i * 7 + (uint32_t)self->rank;
    }
    size_t sent[RANKS_MAX] = {0}, got[RANKS_MAX] = {0};
    tt_idle_t idle = {0};
    for (int open = 2 * (self->size - 1); open > 0;) {
        for (int i = 0; i < self->size; i++) {
            size_t done = 0;
            if (i != self->rank && sent[i] < sizeof words) {
                EXPECT(self, send_one(&wires[i], (char *)words + sent[i], sizeof words - sent[i],
                                      &done) == TUTTI_OK);
                sent[i] += done;
                open -= sent[i] == sizeof words;
            }
            uint32_t word;
            while (i != self->rank && got[i] < sizeof words) {
                EXPECT(self, wires[i].ops->recv(wires[i].state, &word, 4, &done) == TUTTI_OK);
                if (done != 4) {
                    break;
                }
                EXPECT(self, word == got[i] / 4 * 7 + (uint32_t)i);
                got[i] += 4;
                open -= got[i] == sizeof words;
            }
        }
        tt_node_peers_idle(node_peers, &idle, tt_deadline_in_ms(100));
    }
    tt_node_peers_idle_end(node_peers, &idle);
    for (int i = 0; i < self->size; i++) {
        tt_wire_close(&wires[i]);
    }
    tt_device_free(tt_node_peers_heap(node_peers), block, RANKS_MAX * 8);
}

static void wires_of_shared_memory_keep_order(void **state)
{
    (void)state;
    run_ranks(1, exchange);
    run_ranks(2, exchange);
    run_ranks(5, exchange);
}

/* Rank 0 grows its heap after the meeting; the others find the new segment at first sight. */
static void grow(thread_rank_t *self)
{
    tt_node_peers_t *node_peers = self->node_peers;
    if (self->rank == 0) {
        char *large = tt_device_alloc(tt_node_peers_heap(node_peers), 5 << 20, "large");
        memcpy(large + (4 << 20), "here", 5);
        const tt_heap_address_t place =
            tt_heap_address(tt_node_peers_heap(node_peers), large, 5 << 20);
        memcpy(self->table->infos[3], &place, sizeof place);
        atomic_store(&self->table->is_there[3], 1);
        while (atomic_load(&self->table->is_there[4]) != 2) {
            usleep(100);
        }
        tt_device_free(tt_node_peers_heap(node_peers), large, 5 << 20);
    } else {
        while (!atomic_load(&self->table->is_there[3])) {
            usleep(100);
        }
        tt_heap_address_t place;
        memcpy(&place, self->table->infos[3], sizeof place);
        tt_node_peers_check(node_peers);
        const char *large = tt_node_peers_at(node_peers, 0, place, 5 << 20);
        EXPECT(self, large != NULL && strcmp(large + (4 << 20), "here") == 0);
        atomic_fetch_add(&self->table->is_there[4], 1);
    }
}

static void a_new_segment_reaches_the_node_peers(void **state)
{
    (void)state;
    run_ranks(3, grow);
}

static void leave(thread_rank_t *self)
{
    tt_node_peers_t *node_peers = self->node_peers;
    const tt_deadline_t deadline = tt_deadline_in_ms(10000);
    while (self->rank == 0 && tt_node_peers_state(node_peers, 1) == TT_NODE_PEER_HERE &&
           !tt_deadline_is_past(deadline)) {
        usleep(1000);
        tt_node_peers_check(node_peers);
    }
    EXPECT(self, self->rank != 0 || tt_node_peers_state(node_peers, 1) == TT_NODE_PEER_LEFT);
}

static void who_leaves_says_goodbye(void **state)
{
    (void)state;
    run_ranks(2, leave);
}

static void who_is_killed_is_noticed_soon(void **state)
{
    (void)state;
    table_t *table = shared_table();
    const pid_t child = fork();
    if (child == 0) {
        tt_node_peers_t *node_peers;
        (void)join(table, 1, 2, 10000, &node_peers);
        pause();
        _exit(0);
    }
    tt_node_peers_t *node_peers;
    assert_int_equal(join(table, 0, 2, 10000, &node_peers), TUTTI_OK);
    assert_int_equal(tt_node_peers_pid(node_peers, 1), child);
    tt_node_peers_check(node_peers);
    assert_int_equal(tt_node_peers_state(node_peers, 1), TT_NODE_PEER_HERE);
    kill(child, SIGKILL);
    const tt_deadline_t deadline = tt_deadline_in_ms(1000); /* 10 ms at rest */
    tt_idle_t idle = {0};
    while (tt_node_peers_state(node_peers, 1) == TT_NODE_PEER_HERE &&
           !tt_deadline_is_past(deadline)) {
        tt_node_peers_idle(node_peers, &idle, TT_NEVER);
    }
    tt_node_peers_idle_end(node_peers, &idle);
    assert_int_equal(tt_node_peers_state(node_peers, 1), TT_NODE_PEER_DEAD);
    tt_node_peers_release(node_peers);
    waitpid(child, NULL, 0);
    munmap(table, sizeof *table);
}

static void who_does_not_come_is_named(void **state)
{
    (void)state;
    table_t *table = shared_table();
    tt_node_peers_t *node_peers;
    assert_int_equal(join(table, 0, 3, 50, &node_peers), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(tutti_last_error(), "ranks 1, 2"));
    munmap(table, sizeof *table);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Rank 0 goes while rank 1 has not read what it leaves: more than a heap keeps of free memory. */
static void leave_memory(thread_rank_t *self)
{
    enum { LEFT_BYTES = 4 << 20, AT = 3 << 20 };
    tt_node_peers_t *node_peers = self->node_peers;
    if (self->rank == 0) {
        static const _Atomic uint64_t not_quiet;
        tt_quarantine_t *quarantine;
        char *left = tt_device_alloc(tt_node_peers_heap(node_peers), LEFT_BYTES, "left");
        memcpy(left + AT, "here", 5);
        const tt_heap_address_t place =
            tt_heap_address(tt_node_peers_heap(node_peers), left, LEFT_BYTES);
        memcpy(self->table->infos[3], &place, sizeof place);
        EXPECT(self, tt_quarantine_open(node_peers, 1, 1, &quarantine) == TUTTI_OK);
        tt_quarantine_watch(quarantine, 1, &not_quiet);
        tt_quarantine_add(quarantine, left, LEFT_BYTES);
        tt_quarantine_close(quarantine);
        tt_node_peers_release(node_peers);
        self->node_peers = NULL;
        atomic_store(&self->table->is_there[3], 1);
        return;
    }
    while (!atomic_load(&self->table->is_there[3])) {
        usleep(100);
    }
    tt_heap_address_t place;
    memcpy(&place, self->table->infos[3], sizeof place);
    tt_node_peers_check(node_peers);
    const char *left = tt_node_peers_at(node_peers, 0, place, LEFT_BYTES);
    EXPECT(self, left != NULL && strcmp(left + AT, "here") == 0);
}

static void what_a_rank_leaves_stays_readable(void **state)
{
    (void)state;
    run_ranks(2, leave_memory);
}

static void fill_and_empty(thread_rank_t *self)
{
    tt_device_t *heap = tt_node_peers_heap(self->node_peers);
    void *block = tt_device_alloc(heap, sizeof(tt_heap_address_t), "outbox");
    _Atomic tt_heap_address_t *box = block;
    tt_quarantine_t *quarantine;
    tt_wire_t wire = {0};
    *box = 0;
    EXPECT(self, tt_quarantine_open(self->node_peers, 0, 1, &quarantine) == TUTTI_OK);
    const tt_shm_pair_t pair = {.node_peers = self->node_peers,
                                .peer = self->rank,
                                .outbox = box,
                                .inbox = box,
                                .quarantine = quarantine};
    EXPECT(self, tt_wire_open_shm(&pair, &wire) == TUTTI_OK);
    static unsigned char in[TT_RING_BYTES + 5], out[TT_RING_BYTES + 5];
    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (unsigned char)(i * 31);
    }
    for (int round = 0; round < 3; round++) {
        size_t done;
        EXPECT(self, send_one(&wire, in, sizeof in, &done) == TUTTI_OK);
        EXPECT(self, done == TT_RING_BYTES);
        EXPECT(self, wire.ops->recv(wire.state, out, 1000, &done) == TUTTI_OK);
        EXPECT(self, done == 1000);
        EXPECT(self, wire.ops->recv(wire.state, out + 1000, sizeof out, &done) == TUTTI_OK);
        EXPECT(self, done == TT_RING_BYTES - 1000);
        EXPECT(self, memcmp(in, out, TT_RING_BYTES) == 0);
        EXPECT(self, send_one(&wire, in, 77, &done) == TUTTI_OK);
        EXPECT(self, wire.ops->recv(wire.state, out, 100, &done) == TUTTI_OK);
        EXPECT(self, done == 77);
    }
    tt_wire_close(&wire);
    tt_quarantine_close(quarantine);
    tt_device_free(heap, block, sizeof *box);
}

static void a_wire_to_oneself_fills_and_empties(void **state)
{
    (void)state;
    run_ranks(1, fill_and_empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wires_of_shared_memory_keep_order),
        cmocka_unit_test(a_new_segment_reaches_the_node_peers),
        cmocka_unit_test(who_leaves_says_goodbye),
        cmocka_unit_test(who_is_killed_is_noticed_soon),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(what_a_rank_leaves_stays_readable),
        cmocka_unit_test(a_wire_to_oneself_fills_and_empties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
