/* Memory of this rank's heap that ranks of this host may still look at, or write, when this rank
 * has no more use for it: flag blocks, bounce buffers, tables, rings of a group.
 *
 * A group has one quarantine. While the group lives, memory that it no longer needs is added. When
 * the group is released here, the quarantine is closed: from then on it belongs to the local ranks
 * object, which frees its memory as soon as every watcher is quiet. A watcher is a rank of this
 * host that knows where the memory lies. It is quiet when it has stored TT_QUIET in its word, or
 * has left the job, or its process has ended: one that is only cut off still has the memory mapped
 * (tt_node_peers_is_gone). The words lie in memory of the quarantine itself: storing it is the
 * last that the watcher does with this memory.
 *
 * The word is stored with release and loaded with acquire, so that whatever the watcher did with
 * the memory has happened before it is freed and used again.
 *
 * Cost: closing one looks at a few closed ones, however many there are; opening looks at none.
 */
#ifndef TT_QUARANTINE_H
#define TT_QUARANTINE_H

#include "comm/wire/node_peers.h"

typedef struct tt_quarantine tt_quarantine_t;

enum { TT_QUIET = 1 };

/* For so many watchers and pieces of memory at most, so that nothing is allocated later; `local
 * ranks` is borrowed and outlives it. Errors: NOMEM. */
tutti_status_t tt_quarantine_open(tt_node_peers_t *node_peers, int watchers_max, int entries_max,
                                  tt_quarantine_t **out);

/* A rank of this host, by its number among the local ranks, and its word. */
void tt_quarantine_watch(tt_quarantine_t *quarantine, int peer, const _Atomic uint64_t *quiet);

/* Memory from tt_node_peers_heap that is not to be used again before all watchers are quiet. NULL
 * memory is fine, and needs no entry. */
void tt_quarantine_add(tt_quarantine_t *quarantine, void *memory, size_t bytes);

/* The local ranks object owns it from here on. NULL is fine. */
void tt_quarantine_close(tt_quarantine_t *quarantine);

/* Free some of the closed quarantines whose watchers are quiet. Calling it as often as quarantines
 * are closed frees all in the end. */
void tt_quarantine_sweep(tt_node_peers_t *node_peers);

/* The local ranks object ends: memory that no rank reads any more is freed. The rest stays as it
 * is, and peers read it in mappings of their own, for what this rank said last. */
void tt_quarantine_end(tt_node_peers_t *node_peers);

#endif
