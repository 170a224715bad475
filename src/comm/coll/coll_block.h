/* The flags of a host block: memory that the ranks of a host have once. Each rank has a slice of
 * it, which it writes; all read the whole. What it holds has versions, from 1 on:
 *
 *     posted      the newest version of this rank's slice that is there
 *     finished    this rank reads no version up to that one any more
 *     quiet       TT_QUIET: this rank touches nothing of the block any more (wire/quarantine.h)
 *
 * A writer of version v of its slice:
 *
 *     W1  load finished of every rank, acquire, until each is at least v - 1
 *     W2  write the slice
 *     W3  posted = v                                                            release
 *
 * A reader of version v:
 *
 *     R1  load posted of every rank, acquire, until each is at least v
 *     R2  read the whole
 *     R3  finished = v; no R2 of v comes after it                               release
 *
 * Why nobody reads what is being written. A rank writes version v + 1 (W2) after it has seen
 * finished >= v of each rank (W1), which that rank stored behind all its reads of v (R3). It begins
 * to read v + 1 (R1) when each rank has posted it, which each did behind its writes (W3). Every
 * word has one writer and only grows, so release and acquire are enough.
 *
 * A rank that dies while it writes has not posted: nobody reads what it left. One that dies while
 * it reads has not finished: nobody writes. Both waits end with its name.
 */
#ifndef TT_COLL_BLOCK_H
#define TT_COLL_BLOCK_H

#include "comm/coll/coll.h"
#include "comm/exec/coll_impl.h"

/* Of one rank; in memory that all map. Written by that rank alone. */
typedef struct {
    _Alignas(128) _Atomic uint64_t posted;
    _Atomic uint64_t finished, quiet;
} tt_block_flags_t;

_Static_assert(sizeof(tt_block_flags_t) == 128, "docs/formats/shm.md says 128");

typedef enum { TT_BLOCK_POSTED, TT_BLOCK_FINISHED } tt_block_word_t;

/* Until that word of every rank is at least `version`. */
typedef struct {
    tt_block_flags_t *flags; /* [size of the group] */
    tt_block_word_t word;
    uint64_t version;
    int64_t heard_ns; /* when this rank heard of a death that it has not seen; 0: it has not */
    const char *what; /* "parameters blocks.1", for error texts */
    int64_t since_ns; /* the deadline counts from then */
    bool is_reported; /* in the log, that it takes long */
} tt_block_wait_t;

/* The first rank whose word is behind, or -1. */
int tt_coll_block_behind(const tt_coll_t *coll, const tt_block_wait_t *wait);

/* This rank has reached a version. */
void tt_coll_block_set(tt_coll_t *coll, tt_block_flags_t *flags, tt_block_word_t word,
                       uint64_t version);

/* Waits until nobody is behind, or the deadline: PENDING then. Does not look at others where nobody
 * is behind. All other ways out are failures, with which the group is given up: PEER (a rank that
 * is behind has died or left), TIMEOUT (the group's, counted from wait->since_ns), and that which
 * another rank gave the group up with. */
tutti_status_t tt_coll_block_await(tt_coll_t *coll, tt_block_wait_t *wait, tt_deadline_t deadline);

/* Memory of a rank's heap, as this rank sees it, when its segment has come. Errors: as
 * tt_node_peers_find(); PEER, TIMEOUT (of the group). */
tutti_status_t tt_coll_find_block(tt_coll_t *coll, int rank, tt_heap_span_t span, void **out);

/* All ranks of the group are on one host, whose memory they share. */
bool tt_coll_is_on_one_host(const tt_coll_t *coll);

#endif
