/* Touching the memory of other ranks, and giving a group up: the lease, whose protocol is in
 * flags.h.
 */
#ifndef TT_COLL_LEASE_H
#define TT_COLL_LEASE_H

#include "comm/exec/coll_impl.h"

/* The quarantine of a group, whose block is there; NOMEM. Closing says that this rank is quiet. */
tutti_status_t tt_coll_open_lease(tt_coll_t *coll);
void tt_coll_close_lease(tt_coll_t *coll);

/* Whether and why a group is to be given up; tutti_last_error() has the text of a failure. */
typedef struct {
    tutti_status_t status; /* OK: nothing is wrong */
    int blamed;            /* rank, or -1 */
    bool has_left;         /* the rank has left rather than died */
} tt_verdict_t;

/* So much of a sum or a copy is done between two looks at whether a rank has given the group up,
 * which then waits for this one. */
enum { TT_LOOK_BYTES = 512 << 10 };

/* False: one of them has given the group up, and nothing may be touched. */
bool tt_coll_enter(tt_coll_t *coll);
/* Also when this rank is not inside. False: what was read since tt_coll_enter may have changed
 * meanwhile. Nothing is sent to other ranks before. */
bool tt_coll_leave(tt_coll_t *coll);
/* Copies out of the memory of a rank of this host that has something to give. False: it has given
 * the group up, and what was copied may be something else. */
bool tt_coll_get(tt_coll_t *coll, int rank, void *dst, const void *src, size_t bytes);
/* Whether a rank of this host has given the group up. */
bool tt_coll_is_given_up(const tt_coll_t *coll);
/* Why this rank is about to give the group up, which no number says; before tt_coll_give_up. Cut
 * after TT_CAUSE_BYTES - 1. */
void tt_coll_put_cause(tt_coll_t *coll, const char *text);
/* The first failure counts. The ranks of this host see it, so that all blame the same rank. */
void tt_coll_give_up(tt_coll_t *coll, tt_verdict_t verdict);
/* What a call ends with then: ABORTED, until tt_coll_fail_call has found out why. */
tutti_status_t tt_coll_refuse(void);
/* After tt_coll_give_up: waits until no other rank is inside, 100 ms at most. If one still is, the
 * memory of the calls under way gets other pages, at the same addresses. */
void tt_coll_quiesce(tt_coll_t *coll);

#endif
