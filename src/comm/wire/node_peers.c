/* Host-local ranks after they have met: places, states, and how a rank waits.
 *
 * Waiting: spin SPIN_NS with pauses (not when oversubscribed), give the core away for YIELD_NS,
 * then set the doorbell, look once more, and sleep on it. Who publishes looks at the doorbell of
 * each reader and wakes it. The publisher does not fence between its flag and the doorbell: the
 * sleeper looks at the flags for ARM_NS after setting the doorbell, longer than a store stays in a
 * store buffer; should a wake-up be missed all the same, the sleep ends after SLEEP_NS. That keeps
 * the fast path free of fences.
 */
#include "comm/wire/node_peers.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>

#include "comm/net/socket.h"
#include "comm/wire/node_peers_impl.h"
#include "core/base/alloc.h"
#include "core/base/futex.h"

enum {
    SPIN_NS = 20000,
    YIELD_NS = 40000,
    ARM_NS = 2000,
    SLEEP_NS = 10000000,
    CHECK_NS = 5000000,
    POLLS_PER_CLOCK = 32
};

tt_node_peers_t *tt_node_peers_retain(tt_node_peers_t *node_peers)
{
    tt_ref_retain(&node_peers->ref);
    return node_peers;
}

/* Others may still ring its doorbell. */
static void free_block(tt_node_peers_t *node_peers)
{
    if (node_peers->block != NULL && node_peers->size > 1) {
        tt_heap_abandon(node_peers->heap);
    } else {
        tt_device_free(node_peers->heap, node_peers->block, sizeof *node_peers->block);
    }
}

void tt_node_peers_release(tt_node_peers_t *node_peers)
{
    if (node_peers == NULL || !tt_ref_release(&node_peers->ref)) {
        return;
    }
    if (node_peers->heap != NULL) {
        tt_heap_set_on_segment(node_peers->heap, NULL, NULL);
    }
    for (int i = 0; i < node_peers->size && node_peers->node_peers != NULL; i++) {
        tt_node_peers_say_goodbye(node_peers, i);
        tt_heap_peer_close(&node_peers->node_peers[i].view);
    }
    if (node_peers->heap != NULL) {
        tt_quarantine_end(node_peers);
        free_block(node_peers);
        tutti_device_release(node_peers->heap);
    }
    pthread_mutex_destroy(&node_peers->telling);
    tt_free(node_peers->polls);
    tt_free(node_peers->node_peers);
    tt_free(node_peers);
}

int tt_node_peers_size(const tt_node_peers_t *node_peers)
{
    return node_peers->size;
}

tt_device_t *tt_node_peers_heap(tt_node_peers_t *node_peers)
{
    return node_peers->heap;
}

void *tt_node_peers_at(const tt_node_peers_t *node_peers, int rank, tt_heap_address_t place,
                       size_t bytes)
{
    if (rank == node_peers->rank) {
        return tt_heap_at(node_peers->heap, place, bytes);
    }
    return tt_heap_peer_at(&node_peers->node_peers[rank].view, place, bytes);
}

/* Its segment may still be on its way. */
static bool may_come(const tt_node_peers_t *node_peers, int rank, tt_heap_address_t place)
{
    const int segment = tt_heap_address_segment(place);
    const tt_heap_peer_t *view = &node_peers->node_peers[rank].view;
    return rank != node_peers->rank && segment >= 0 && segment < TT_HEAP_SEGMENTS_MAX &&
           (segment >= view->count || view->segments[segment].base == NULL);
}

tutti_status_t tt_node_peers_find(tt_node_peers_t *node_peers, int rank, tt_heap_span_t span,
                                  void **out)
{
    void *at = tt_node_peers_at(node_peers, rank, span.place, span.bytes);
    if (at == NULL && may_come(node_peers, rank, span.place)) {
        tt_node_peers_check(node_peers);
        at = tt_node_peers_at(node_peers, rank, span.place, span.bytes);
    }
    *out = at;
    if (at != NULL && ((uintptr_t)at & (span.alignment - 1)) == 0) {
        return TUTTI_OK;
    }
    if (at == NULL && may_come(node_peers, rank, span.place)) {
        TT_TRY(tt_node_peers_status(node_peers));
        return TUTTI_PENDING;
    }
    return TT_FAIL(TUTTI_ERR_FORMAT,
                   "rank %d shows an address that is wrong: segment %d, offset %zu of its shared "
                   "heap, where %zu bytes aligned to %zu are due",
                   tt_node_peers_name(node_peers, rank), tt_heap_address_segment(span.place),
                   tt_heap_address_offset(span.place), span.bytes, span.alignment);
}

bool tt_node_peers_is_oversubscribed(const tt_node_peers_t *node_peers)
{
    return node_peers->is_oversubscribed;
}

tt_node_peer_state_t tt_node_peers_state(const tt_node_peers_t *node_peers, int rank)
{
    return node_peers->node_peers[rank].state;
}

bool tt_node_peers_is_gone(const tt_node_peers_t *node_peers, int rank)
{
    return tt_node_peer_is_gone(&node_peers->node_peers[rank]);
}

const char *tt_node_peers_how(const tt_node_peers_t *node_peers, int rank)
{
    return tt_node_peers_is_gone(node_peers, rank) ? "died"
           : node_peers->node_peers[rank].is_refused
               ? "is cut off: what it sent through its socket is no message of ours"
               : "is cut off: its socket was closed, but it runs on";
}

int64_t tt_node_peers_pid(const tt_node_peers_t *node_peers, int rank)
{
    return rank == node_peers->rank ? node_peers->block->pid
                                    : node_peers->node_peers[rank].block->pid;
}

int tt_node_peers_polls(const tt_node_peers_t *node_peers, struct pollfd *polls)
{
    const int size = node_peers->size;
    for (int i = 0; i < size; i++) {
        const tt_node_peer_t *node_peer = &node_peers->node_peers[i];
        polls[i] = (struct pollfd){.fd = node_peer->fd, .events = POLLIN};
        polls[size + i] = (struct pollfd){.fd = node_peer->pidfd, .events = POLLIN};
    }
    return 2 * size;
}

void tt_node_peers_look_at_polls(tt_node_peers_t *node_peers)
{
    const int size = node_peers->size;
    for (int i = 0; i < size; i++) {
        if (node_peers->polls[i].revents != 0) {
            tt_node_peers_receive(node_peers, i);
        }
        if (node_peers->polls[size + i].revents != 0) {
            tt_node_peers_end(node_peers, i);
        }
    }
}

void tt_node_peers_check(tt_node_peers_t *node_peers)
{
    node_peers->checked_ns = tt_clock_ns();
    if (node_peers->size == 1) {
        return;
    }
    const int count = tt_node_peers_polls(node_peers, node_peers->polls);
    if (poll(node_peers->polls, (nfds_t)count, 0) > 0) {
        tt_node_peers_look_at_polls(node_peers);
    }
    for (int i = 0; i < node_peers->size; i++) {
        tt_node_peers_tell(node_peers, i);
    }
}

tutti_status_t tt_node_peers_status(const tt_node_peers_t *node_peers)
{
    if (node_peers->starved < 0) {
        return TUTTI_OK;
    }
    char what[80];
    snprintf(what, sizeof what, "rank %d cannot map memory of rank %d",
             tt_node_peers_name(node_peers, node_peers->rank),
             tt_node_peers_name(node_peers, node_peers->starved));
    if (node_peers->starved_text[0] != 0) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "%s: %s", what, node_peers->starved_text);
    }
    return tt_fail_out_of_descriptors(what);
}

const _Atomic uint32_t *tt_node_peers_doorbell(const tt_node_peers_t *node_peers, int rank)
{
    return rank == node_peers->rank ? &node_peers->block->doorbell
                                    : &node_peers->node_peers[rank].block->doorbell;
}

void tt_node_peers_wake(tt_node_peers_t *node_peers, int rank)
{
    if (rank == node_peers->rank) {
        return;
    }
    _Atomic uint32_t *doorbell = &node_peers->node_peers[rank].block->doorbell;
    if (atomic_load_explicit(doorbell, memory_order_relaxed) == 0) {
        return;
    }
    const uint32_t sleeps = atomic_exchange(doorbell, 0);
    if (sleeps == TT_DOORBELL_FUTEX) {
        tt_futex_wake_all(doorbell);
    } else if (sleeps == TT_DOORBELL_POLL) {
        tt_node_peers_send_wake(node_peers, rank);
    }
}

static void sleep_on_doorbell(tt_node_peers_t *node_peers, tt_idle_t *idle, int64_t now,
                              tt_deadline_t deadline)
{
    const tt_deadline_t until = deadline < now + SLEEP_NS ? deadline : now + SLEEP_NS;
    tt_futex_wait(&node_peers->block->doorbell, TT_DOORBELL_FUTEX, until);
    tt_node_peers_idle_end(node_peers, idle);
    idle->start_ns = tt_clock_ns();
    if (idle->start_ns - node_peers->checked_ns > CHECK_NS) {
        tt_node_peers_check(node_peers);
    }
}

/* True when it is time to sleep: the doorbell has been set for a while, and nothing has come. */
static bool is_sleepy(tt_node_peers_t *node_peers, tt_idle_t *idle, uint32_t doorbell, int64_t now)
{
    if (idle->start_ns == 0) {
        idle->start_ns = now;
    }
    const int64_t waited = now - idle->start_ns;
    const int64_t spin_ns = node_peers->is_oversubscribed ? 0 : SPIN_NS;
    if (waited < spin_ns) {
        return false;
    }
    if (waited < spin_ns + YIELD_NS) {
        sched_yield();
    } else if (!idle->is_armed) {
        atomic_store(&node_peers->block->doorbell, doorbell);
        idle->is_armed = true;
        idle->armed_ns = now;
    } else {
        return now - idle->armed_ns >= ARM_NS;
    }
    return false;
}

void tt_node_peers_idle(tt_node_peers_t *node_peers, tt_idle_t *idle, tt_deadline_t deadline)
{
    if (!node_peers->is_oversubscribed && ++idle->polls % POLLS_PER_CLOCK != 0) {
        tt_cpu_pause();
        return;
    }
    const int64_t now = tt_clock_ns();
    if (is_sleepy(node_peers, idle, TT_DOORBELL_FUTEX, now)) {
        sleep_on_doorbell(node_peers, idle, now, deadline);
    }
}

bool tt_node_peers_idle_for_poll(tt_node_peers_t *node_peers, tt_idle_t *idle)
{
    return is_sleepy(node_peers, idle, TT_DOORBELL_POLL, tt_clock_ns());
}

void tt_node_peers_set_oversubscribed(tt_node_peers_t *node_peers, bool is_oversubscribed)
{
    node_peers->is_oversubscribed = is_oversubscribed;
}

void tt_node_peers_idle_end(tt_node_peers_t *node_peers, tt_idle_t *idle)
{
    if (idle->is_armed) {
        atomic_store_explicit(&node_peers->block->doorbell, 0, memory_order_relaxed);
        idle->is_armed = false;
    }
}
