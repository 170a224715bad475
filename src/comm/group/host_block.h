/* Host blocks: memory that the ranks of a group have once, for they share a host.
 *
 *     block            [ flags of each rank | data: slice of rank 0 | slice of rank 1 | … ]
 *     lies in          the heap of one rank, its keeper; the others map it
 *     is written       by each rank in its slice, in place
 *     is read          by all, as a whole
 *
 * The data have versions. A rank goes round so, in its own time; coll_block.h says what is stored
 * and why nobody reads what is being written:
 *
 *     await      until every rank has written the version that this one reads next
 *     …          reads it, as often as it likes
 *     finish     reads it no more
 *     claim      until every rank has finished it
 *     …          writes its slice
 *     post       the next version of its slice is there
 *
 * A block begins without a version: with claim, which does not wait then.
 *
 * Cost: nothing travels. A wait for what is there loads a line of each rank; so does claim.
 */
#ifndef TT_HOST_BLOCK_H
#define TT_HOST_BLOCK_H

#include <tutti/group.h>

#include "core/base/fail.h"

typedef struct tt_host_block tt_host_block_t;

typedef struct {
    size_t bytes;        /* of the data; the same on all ranks, as the next */
    int keeper;          /* the rank whose heap it lies in */
    const char *what;    /* for error texts: "parameters blocks.1"; copied */
    bool comes_and_goes; /* the data have no memory until the keeper populates them */
} tt_host_block_options_t;

/* Whether a group's ranks can have host blocks; the same on all of them. */
bool tt_group_shares_host(const tutti_group_t *group);

/* On which host a rank is, as a number from 0 on; each rank one of its own where nobody can share
 * memory. */
int tt_group_host(const tutti_group_t *group, int rank);

/* Collective. The data are undefined; they begin at a multiple of 128 bytes. The group is borrowed;
 * when it has gone, the data stay, and nothing but release may be called. Errors, the same on all
 * ranks: UNSUPPORTED (not on one host), NOMEM, and as a group's calls. */
tutti_status_t tt_host_block_create(tutti_group_t *group, const tt_host_block_options_t *options,
                                    tt_host_block_t **out);

/* This rank touches it no more. Its memory goes when all ranks have said so, or are gone. NULL does
 * nothing. */
void tt_host_block_release(tt_host_block_t *block);

void *tt_host_block_data(const tt_host_block_t *block);

/* The version that this rank reads, or reads next; 0: it has posted none. */
uint64_t tt_host_block_version(const tt_host_block_t *block);

/* Whether await would return at once. */
bool tt_host_block_is_there(const tt_host_block_t *block);

/* Whether claim would return at once; whether every other rank has finished the version. */
bool tt_host_block_is_free(const tt_host_block_t *block);
bool tt_host_block_is_unread(const tt_host_block_t *block);

/* Of data that come and go, by the keeper: they have memory, of undefined values, and have it no
 * more. Errors: NOMEM. */
tutti_status_t tt_host_block_populate(tt_host_block_t *block);
void tt_host_block_discard(tt_host_block_t *block);

/* Both move the calls of the group's family forward while they wait, and give the group up when
 * they fail. Errors: PEER and TIMEOUT (name the block, the rank, and what it has not done); as a
 * group's calls. */
tutti_status_t tt_host_block_await(tt_host_block_t *block);
tutti_status_t tt_host_block_claim(tt_host_block_t *block);

/* Neither waits. `finish` may be called again. */
void tt_host_block_finish(tt_host_block_t *block);
void tt_host_block_post(tt_host_block_t *block);

/* Pages that hold nothing of [begin, begin + bytes) of the data are read-only for this rank from
 * now on, until open. Errors: NOMEM; then as before. */
tutti_status_t tt_host_block_guard(tt_host_block_t *block, size_t begin, size_t bytes);
tutti_status_t tt_host_block_open(tt_host_block_t *block);

#endif
