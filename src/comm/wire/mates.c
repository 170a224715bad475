/* Host-mates after they have met: places, states, and how a rank waits.
 *
 * Waiting: spin SPIN_NS with pauses (not when crowded), give the core away for YIELD_NS, then set
 * the bell, look once more, and sleep on it. Who publishes looks at the bell of each reader and
 * wakes it. The publisher does not fence between its flag and the bell: the sleeper looks at the
 * flags for ARM_NS after setting the bell, longer than a store stays in a store buffer; should a
 * wake-up be missed all the same, the sleep ends after SLEEP_NS. That keeps the fast path free of
 * fences.
 */
#include "comm/wire/mates.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/mates_impl.h"
#include "core/base/alloc.h"
#include "core/base/futex.h"

enum {
    SPIN_NS = 20000,
    YIELD_NS = 40000,
    ARM_NS = 2000,
    SLEEP_NS = 10000000,
    CHECK_NS = 5000000,
    BYE_MS = 100,
    POLLS_PER_CLOCK = 32
};

tt_mates_t *tt_mates_retain(tt_mates_t *mates)
{
    tt_ref_retain(&mates->ref);
    return mates;
}

static void say_goodbye(tt_mates_t *mates)
{
    const tt_mate_message_t bye = {
        .magic = TT_MATE_MAGIC, .kind = TT_MATE_BYE, .rank = mates->rank};
    for (int i = 0; i < mates->size; i++) {
        tt_mate_t *mate = &mates->mates[i];
        if (mate->fd >= 0) {
            /* one that is stopped, and whose socket is full, is not waited for long */
            tt_unix_set_send_deadline(mate->fd, tt_deadline_in_ms(BYE_MS));
            (void)tt_mates_send(mate->fd, &bye, -1, 0);
            tt_socket_close(mate->fd);
        }
        if (mate->pidfd >= 0) {
            close(mate->pidfd);
        }
        tt_heap_view_close(&mate->view);
    }
}

/* Others may still ring its doorbell. */
static void free_block(tt_mates_t *mates)
{
    if (mates->block != NULL && mates->size > 1) {
        tt_heap_abandon(mates->heap);
    } else {
        tt_device_free(mates->heap, mates->block, sizeof *mates->block);
    }
}

void tt_mates_release(tt_mates_t *mates)
{
    if (mates == NULL || !tt_ref_release(&mates->ref)) {
        return;
    }
    if (mates->heap != NULL) {
        tt_heap_set_on_segment(mates->heap, NULL, NULL);
    }
    if (mates->mates != NULL) {
        say_goodbye(mates);
    }
    if (mates->heap != NULL) {
        tt_quarantine_end(mates);
        free_block(mates);
        tt_device_release(mates->heap);
    }
    pthread_mutex_destroy(&mates->telling);
    tt_free(mates->polls);
    tt_free(mates->mates);
    tt_free(mates);
}

int tt_mates_rank(const tt_mates_t *mates)
{
    return mates->rank;
}

int tt_mates_size(const tt_mates_t *mates)
{
    return mates->size;
}

tt_device_t *tt_mates_heap(tt_mates_t *mates)
{
    return mates->heap;
}

void *tt_mates_at(const tt_mates_t *mates, int rank, tt_place_t place, size_t bytes)
{
    if (rank == mates->rank) {
        return tt_heap_at(mates->heap, place, bytes);
    }
    return tt_heap_view_at(&mates->mates[rank].view, place, bytes);
}

bool tt_mates_is_crowded(const tt_mates_t *mates)
{
    return mates->is_crowded;
}

tt_mate_state_t tt_mates_state(const tt_mates_t *mates, int rank)
{
    return mates->mates[rank].state;
}

int64_t tt_mates_pid(const tt_mates_t *mates, int rank)
{
    return rank == mates->rank ? mates->block->pid : mates->mates[rank].block->pid;
}

int tt_mates_fill_polls(tt_mates_t *mates)
{
    const int size = mates->size;
    for (int i = 0; i < size; i++) {
        const tt_mate_t *mate = &mates->mates[i];
        mates->polls[i] = (struct pollfd){.fd = mate->fd, .events = POLLIN};
        mates->polls[size + i] = (struct pollfd){.fd = mate->pidfd, .events = POLLIN};
    }
    return 2 * size;
}

void tt_mates_look_at_polls(tt_mates_t *mates)
{
    const int size = mates->size;
    for (int i = 0; i < size; i++) {
        if (mates->polls[i].revents != 0) {
            tt_mates_receive(mates, i);
        }
        if (mates->polls[size + i].revents != 0) {
            tt_mates_end(mates, i);
        }
    }
}

void tt_mates_check(tt_mates_t *mates)
{
    mates->checked_ns = tt_clock_ns();
    if (mates->size == 1) {
        return;
    }
    const int count = tt_mates_fill_polls(mates);
    if (poll(mates->polls, (nfds_t)count, 0) > 0) {
        tt_mates_look_at_polls(mates);
    }
    for (int i = 0; i < mates->size; i++) {
        tt_mates_tell(mates, i);
    }
}

tutti_status_t tt_mates_status(const tt_mates_t *mates)
{
    if (mates->starved < 0) {
        return TUTTI_OK;
    }
    char what[80];
    snprintf(what, sizeof what, "rank %d cannot map memory of rank %d",
             tt_mates_name(mates, mates->rank), tt_mates_name(mates, mates->starved));
    if (mates->starved_text[0] != 0) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "%s: %s", what, mates->starved_text);
    }
    return tt_fail_out_of_descriptors(what);
}

const _Atomic uint32_t *tt_mates_bell(const tt_mates_t *mates, int rank)
{
    return rank == mates->rank ? &mates->block->bell : &mates->mates[rank].block->bell;
}

void tt_mates_wake(tt_mates_t *mates, int rank)
{
    if (rank == mates->rank) {
        return;
    }
    _Atomic uint32_t *bell = &mates->mates[rank].block->bell;
    if (atomic_load_explicit(bell, memory_order_relaxed) == 0) {
        return;
    }
    const uint32_t sleeps = atomic_exchange(bell, 0);
    if (sleeps == TT_BELL_FUTEX) {
        tt_futex_wake_all(bell);
    } else if (sleeps == TT_BELL_POLL) {
        tt_mates_send_wake(mates, rank);
    }
}

static void sleep_on_bell(tt_mates_t *mates, tt_idle_t *idle, int64_t now, tt_deadline_t deadline)
{
    const tt_deadline_t until = deadline < now + SLEEP_NS ? deadline : now + SLEEP_NS;
    tt_futex_wait(&mates->block->bell, TT_BELL_FUTEX, until);
    tt_mates_idle_end(mates, idle);
    idle->start_ns = tt_clock_ns();
    if (idle->start_ns - mates->checked_ns > CHECK_NS) {
        tt_mates_check(mates);
    }
}

/* True when it is time to sleep: the bell has been set for a while, and nothing has come. */
static bool is_sleepy(tt_mates_t *mates, tt_idle_t *idle, uint32_t bell, int64_t now)
{
    if (idle->start_ns == 0) {
        idle->start_ns = now;
    }
    const int64_t waited = now - idle->start_ns;
    const int64_t spin_ns = mates->is_crowded ? 0 : SPIN_NS;
    if (waited < spin_ns) {
        return false;
    }
    if (waited < spin_ns + YIELD_NS) {
        sched_yield();
    } else if (!idle->is_armed) {
        atomic_store(&mates->block->bell, bell);
        idle->is_armed = true;
        idle->armed_ns = now;
    } else {
        return now - idle->armed_ns >= ARM_NS;
    }
    return false;
}

void tt_mates_idle(tt_mates_t *mates, tt_idle_t *idle, tt_deadline_t deadline)
{
    if (!mates->is_crowded && ++idle->polls % POLLS_PER_CLOCK != 0) {
        tt_cpu_pause();
        return;
    }
    const int64_t now = tt_clock_ns();
    if (is_sleepy(mates, idle, TT_BELL_FUTEX, now)) {
        sleep_on_bell(mates, idle, now, deadline);
    }
}

bool tt_mates_idle_for_poll(tt_mates_t *mates, tt_idle_t *idle)
{
    return is_sleepy(mates, idle, TT_BELL_POLL, tt_clock_ns());
}

int tt_mates_polls(const tt_mates_t *mates, struct pollfd *polls)
{
    int count = 0;
    for (int i = 0; i < mates->size && mates->size > 1; i++) {
        const tt_mate_t *mate = &mates->mates[i];
        if (mate->fd >= 0) {
            polls[count++] = (struct pollfd){.fd = mate->fd, .events = POLLIN};
            polls[count++] = (struct pollfd){.fd = mate->pidfd, .events = POLLIN};
        }
    }
    return count;
}

void tt_mates_set_crowded(tt_mates_t *mates, bool is_crowded)
{
    mates->is_crowded = is_crowded;
}

void tt_mates_idle_end(tt_mates_t *mates, tt_idle_t *idle)
{
    if (idle->is_armed) {
        atomic_store_explicit(&mates->block->bell, 0, memory_order_relaxed);
        idle->is_armed = false;
    }
}
