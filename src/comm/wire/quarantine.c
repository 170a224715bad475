/* Closed quarantines stand in a queue. A sweep looks at the first few and puts those that must wait
 * at the end: twice as many are looked at as are added, so the queue gets shorter when peers become
 * quiet, and a peer that stays away makes no call slower. */
#include "comm/wire/quarantine.h"

#include "comm/wire/node_peers_impl.h"
#include "core/base/alloc.h"

enum { SWEEP_MAX = 8 };

typedef struct {
    void *memory;
    size_t bytes;
} entry_t;

typedef struct {
    const _Atomic uint64_t *quiet;
    int peer;
} watcher_t;

struct tt_quarantine {
    STAILQ_ENTRY(tt_quarantine) next;
    tt_node_peers_t *node_peers;
    entry_t *entries; /* [entries_max], in the same block */
    int entry_count, entries_max;
    int watcher_count;
    watcher_t watchers[];
};

tutti_status_t tt_quarantine_open(tt_node_peers_t *node_peers, int watchers_max, int entries_max,
                                  tt_quarantine_t **out)
{
    const size_t bytes = sizeof(tt_quarantine_t) + (size_t)watchers_max * sizeof(watcher_t) +
                         (size_t)entries_max * sizeof(entry_t);
    tt_quarantine_t *quarantine = tt_alloc(bytes, "quarantine");
    TT_TRY_ALLOC(quarantine);
    quarantine->entries = (entry_t *)(quarantine->watchers + watchers_max);
    quarantine->entries_max = entries_max;
    quarantine->node_peers = node_peers;
    *out = quarantine;
    return TUTTI_OK;
}

void tt_quarantine_watch(tt_quarantine_t *quarantine, int peer, const _Atomic uint64_t *quiet)
{
    quarantine->watchers[quarantine->watcher_count++] = (watcher_t){quiet, peer};
}

void tt_quarantine_add(tt_quarantine_t *quarantine, void *memory, size_t bytes)
{
    if (memory != NULL) {
        TT_ASSERT(quarantine->entry_count < quarantine->entries_max);
        quarantine->entries[quarantine->entry_count++] = (entry_t){memory, bytes};
    }
}

static bool is_quiet(const tt_quarantine_t *quarantine)
{
    for (int i = 0; i < quarantine->watcher_count; i++) {
        const watcher_t *watcher = &quarantine->watchers[i];
        if (atomic_load_explicit(watcher->quiet, memory_order_acquire) != TT_QUIET &&
            !tt_node_peer_is_gone(&quarantine->node_peers->node_peers[watcher->peer])) {
            return false;
        }
    }
    return true;
}

static void free_quarantine(tt_quarantine_t *quarantine)
{
    tt_device_t *heap = quarantine->node_peers->heap;
    for (int i = 0; i < quarantine->entry_count; i++) {
        tt_device_free(heap, quarantine->entries[i].memory, quarantine->entries[i].bytes);
    }
    tt_free(quarantine);
}

static tt_quarantine_t *take_first(tt_node_peers_t *node_peers)
{
    tt_quarantine_t *first = STAILQ_FIRST(&node_peers->quarantines);
    if (first != NULL) {
        STAILQ_REMOVE_HEAD(&node_peers->quarantines, next);
        node_peers->quarantine_count--;
    }
    return first;
}

static void append(tt_quarantine_t *quarantine)
{
    STAILQ_INSERT_TAIL(&quarantine->node_peers->quarantines, quarantine, next);
    quarantine->node_peers->quarantine_count++;
}

void tt_quarantine_close(tt_quarantine_t *quarantine)
{
    if (quarantine != NULL) {
        append(quarantine);
        tt_quarantine_sweep(quarantine->node_peers);
    }
}

void tt_quarantine_sweep(tt_node_peers_t *node_peers)
{
    const int count =
        node_peers->quarantine_count < SWEEP_MAX ? node_peers->quarantine_count : SWEEP_MAX;
    for (int i = 0; i < count; i++) {
        tt_quarantine_t *first = take_first(node_peers);
        if (is_quiet(first)) {
            free_quarantine(first);
        } else {
            append(first);
        }
    }
}

/* What a peer may still look at stays as it is until the heap closes, and beyond: the peer has
 * mapped it. A rank that has sent its last message and is gone must not take the message back. */
static void leave_quarantine(tt_quarantine_t *quarantine)
{
    for (int i = 0; i < quarantine->entry_count; i++) {
        tt_heap_abandon(quarantine->node_peers->heap);
    }
    tt_free(quarantine);
}

void tt_quarantine_end(tt_node_peers_t *node_peers)
{
    for (tt_quarantine_t *at; (at = take_first(node_peers)) != NULL;) {
        if (is_quiet(at)) {
            free_quarantine(at);
        } else {
            leave_quarantine(at);
        }
    }
}
