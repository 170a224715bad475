/**
 * @file work.h
 * Works: calls under way.
 *
 * Example:
 *
 *     tutti_work_t *work;
 *     TUTTI_CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work)); // starts, and returns at once
 *     while (tutti_work_test(work) == TUTTI_PENDING) {
 *         puts("something useful meanwhile");
 *     }
 *     TUTTI_CHECK(tutti_work_wait(work, 0)); // its outcome
 *     tutti_work_release(work);
 *
 * A call that is given a place for a work starts and returns; the work is owned by the caller and
 * holds the tensors of the call, which must be left alone until it is done. Several may be under
 * way in a group. A work that is released early goes on. Where NULL is passed instead, the call
 * waits until it is done.
 *
 * The group's timeout is that of one work. It counts from the first wait: for a message
 * (messages.h) and for a work of several calls from the first wait for this work, so that the calls
 * in it have one deadline together; for a collective from when somebody waits in its group and the
 * calls before it are done.
 */
#ifndef TUTTI_WORK_H
#define TUTTI_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A call under way; reference-counted; the thread of its group. */
typedef struct tutti_work tutti_work_t;

/**
 * Wait until a call is done.
 *
 * @param timeout_ms  how long to wait here; 0: until the call's own deadline
 * @return            OK; PENDING when timeout_ms passed first (the call goes on); its failure
 * @thread            the group's
 * @errors            PEER, TIMEOUT, MISMATCH, ABORTED
 */
TUTTI_API tutti_status_t tutti_work_wait(tutti_work_t *work, int64_t timeout_ms);

/** OK when done, PENDING while under way, or its failure; moves it forward. @thread the group's
 *  @errors as tutti_work_wait */
TUTTI_API tutti_status_t tutti_work_test(tutti_work_t *work);

/**
 * Wait until one of several calls is done.
 *
 * @param works  [count], borrowed; of any groups of this thread; NULL entries are passed over, so
 *               that a work that has been dealt with can be set to NULL
 * @param index  out, also when that call failed: the first work that is done; -1: all are NULL
 * @return       OK or the failure of that call; END when there are no works
 * @thread       the groups'. The deadlines of messages among them count from now on, or earlier;
 *               a deadline that passes ends a call of its group, and so this wait
 * @cost         one look at each work whenever something has moved
 * @errors       ARG; as tutti_work_wait
 * @source       MPI_Waitany
 */
TUTTI_API tutti_status_t tutti_work_wait_any(tutti_work_t *const *works, int count, int *index);

/**
 * Wait until all of several calls are done, also when some fail.
 *
 * @param works  [count], as for tutti_work_wait_any
 * @return       OK, also when there are no works; or the first failure in the order of the works
 * @thread       the groups', as for tutti_work_wait_any
 * @errors       ARG; as tutti_work_wait
 * @source       MPI_Waitall
 */
TUTTI_API tutti_status_t tutti_work_wait_all(tutti_work_t *const *works, int count);

/** Whether it has ended, well or not, as far as is known: moves nothing. NULL has. @thread the
 * group's
 *  @errors none */
TUTTI_API bool tutti_work_is_done(const tutti_work_t *work);

/** Give the call up: aborts its group. Does not wait. @thread the group's @errors none */
TUTTI_API void tutti_work_abort(tutti_work_t *work);

/** The text of its failure, "" if it has none. @thread the group's @errors none */
TUTTI_API const char *tutti_work_error(const tutti_work_t *work);

/** Who sent what a receive that is done has received; -1 for other works. @thread the group's
 *  @errors none */
TUTTI_API int tutti_work_source(const tutti_work_t *work);

/** With which tag; -1 for other works. @thread the group's @errors none */
TUTTI_API int tutti_work_tag(const tutti_work_t *work);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_work_t *tutti_work_retain(tutti_work_t *work);

/** One owner fewer; NULL is fine. A call under way goes on. @thread the group's @errors none */
TUTTI_API void tutti_work_release(tutti_work_t *work);

#ifdef __cplusplus
}
#endif

#endif
