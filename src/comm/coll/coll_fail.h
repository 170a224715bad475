/* What the files of the engine need of each other: failing, leaving, looking after a group. */
#ifndef TT_COLL_FAIL_H
#define TT_COLL_FAIL_H

#include "comm/exec/coll_exec.h"

/* coll.c: looks for dead and late ranks, and moves everything forward, unless it has done so a few
 * ms ago: false. */
bool tt_coll_check_health(tt_coll_t *coll, int64_t now);

/* coll_fail.c: tell those of other hosts, and dump the recorders, once. */
void tt_coll_announce(tt_coll_t *coll);
/* Give the group up, and tell it; nothing, if nothing is wrong. */
void tt_coll_fail(tt_coll_t *coll, tt_verdict_t verdict);
/* The same for a call that failed; one with MISMATCH or ABORTED gets its text here. */
void tt_coll_fail_call(tt_coll_t *coll, const tt_run_t *run, tutti_status_t status);
/* The same for a message; blamed: whose fault it is, if it is not this rank's own, -1: nobody's. */
void tt_coll_fail_message(tt_coll_t *coll, tutti_status_t status, int blamed);
/* Others learn that this rank has left; what it was in the middle of is given up. */
void tt_coll_take_leave(tt_coll_t *coll);

#endif
