/* Collectives and messages of one group over the wires of this project: starting, moving forward,
 * waiting.
 *
 * A call gets the next sequence number and is posted in a flag slot at once; calls are then carried
 * out one after the other, each in these states:
 *
 *     QUEUED     no slot is free yet
 *     POSTED     the slot is written; waiting for the slots of the local ranks (ranks of this host)
 *     RUNNING    the local ranks have come and agree: the plan is carried out
 *     FINISHING  this rank is done; waiting until the local ranks are done with its memory
 *
 * Ranks of other hosts meet in the frames of the plan's messages, which carry the call's
 * descriptor. Messages between two ranks (tt_coll_start_message) are not queued with the calls:
 * p2p.h.
 *
 * Every call is prepared: what depends on its descriptor alone is found out once and kept
 * (coll_prepared.c). Small calls and large ones go through the same states and differ in their
 * executor: a plan of one round whose pieces lie in the flags needs no books (coll_small.c).
 *
 * An object belongs to one rank and is used by one thread at a time. In the steady state (shapes
 * seen before, memory in the heap) a call allocates nothing and makes no system call.
 */
#ifndef TT_COLL_H
#define TT_COLL_H

#include "comm/diagnose/diagnosis.h"

/* Allocates the flag block; the place must reach the local ranks of the group, and theirs must come
 * here with tt_coll_connect, before the first call. Ranks of other hosts need nothing. */
tutti_status_t tt_coll_create(const tt_coll_options_t *options, tt_coll_t **out);
bool tt_coll_has_node_peers(const tt_coll_t *coll);
tt_heap_address_t tt_coll_address(const tt_coll_t *coll);
tutti_status_t tt_coll_connect(tt_coll_t *coll, int rank, tt_heap_address_t address);

/* Leaves the group; runs under way are given up. */
void tt_coll_release(tt_coll_t *coll);

/* run->status: PENDING, or OK when it is done already. Errors are those found before anything is
 * shown to others (ARG, DTYPE, NOMEM), or the failure that the group already has. */
tutti_status_t tt_coll_start(tt_coll_t *coll, const tt_call_t *call, tt_run_t *run);
tutti_status_t tt_coll_start_message(tt_coll_t *coll, const tt_message_t *message,
                                     tt_message_op_t *op);

/* Look for a message without waiting, and leave it where it is: OK, with source, tag, dtype and
 * count in *op, which is no operation under way; PENDING: there is none. */
tutti_status_t tt_coll_iprobe(tt_coll_t *coll, const tt_message_t *message, tt_message_op_t *op);

/* Whether an answer is on its way out that another rank waits for, and no operation of this one. */
bool tt_coll_has_answers(const tt_coll_t *coll);

/* Move all calls forward without blocking. */
void tt_coll_progress(tt_coll_t *coll);

/* PENDING, OK or the failure; looks for dead and late ranks now and then. */
tutti_status_t tt_coll_test(tt_coll_t *coll, tt_op_t *op);

/* The same, but waits: until the operation's end or `deadline` (then PENDING). */
tutti_status_t tt_coll_wait(tt_coll_t *coll, tt_op_t *op, tt_deadline_t deadline);

/* Waits for something else: for one of several operations, say. */
void tt_coll_wait_until(tt_coll_t *coll, const tt_until_t *until, tt_deadline_t deadline);

/* Give the group up, here and on all ranks; these are told the cause, which may be "". */
void tt_coll_abort(tt_coll_t *coll, const char *cause);

/* The same for a failure of this rank outside the engine, with tutti_last_error() as the text: the
 * other ranks get the status, name this rank, and read the text on the board. PEER and others that
 * say something of another rank are STATE there. */
void tt_coll_fail_for(tt_coll_t *coll, tutti_status_t status);

/* OK, or the first failure of the group with its text; it fails if another rank is known to have
 * given it up, which calls that wait see anyway. */
tutti_status_t tt_coll_check(tt_coll_t *coll);

/* ---- for what measures it ---- */

/* The algorithm of the last call that was carried out; NULL: there was none. */
const tt_algorithm_t *tt_coll_last_algorithm(const tt_coll_t *coll);

/* Values that calls of a kind have sent over wires so far. */
int64_t tt_coll_sent_bytes(const tt_coll_t *coll, tt_collective_t collective);
int64_t tt_coll_sent_message_bytes(const tt_coll_t *coll);

/* Calls so far whose bits depended on the order, and were not made in the canonical one. */
int64_t tt_coll_uncanonical_sums(const tt_coll_t *coll);

/* What its calls travel over: "self", "shm", "tcp", "shm+tcp". */
const char *tt_coll_wires(const tt_coll_t *coll);

/* The rules that choose from the next call on; every rank changes them between the same calls. */
tt_coll_rules_t *tt_coll_change_rules(tt_coll_t *coll);

#endif
