/* What the thread of a save in the background does: it writes this rank's files, and brings the
 * save to its end with the threads of the other ranks.
 *
 *     rank 0   | write | hear the reports | publish | tell the outcome |
 *     others   | write | report           | hear the outcome           |
 *
 * With a disk for each host the first rank of each publishes there, when rank 0 wants it.
 */
#ifndef TT_SAVER_WRITE_H
#define TT_SAVER_WRITE_H

#include "runtime/checkpoint/saver_talk.h"
#include "runtime/checkpoint/saving.h"

/* What a rank knows of the end. */
typedef struct {
    bool is_shared;  /* all ranks know that it ended so */
    bool is_missed;  /* rank 0 did not tell in time how it ended */
    bool is_cut_off; /* the store did not answer: it may have gone with the rank that has it */
} tt_outcome_t;

/* From the copy to the outcome. Errors: those of the lowest rank that has failed; TIMEOUT, those of
 * the store. */
tutti_status_t tt_saver_write(tt_saving_t *saving, const tt_talk_t *talk, tt_outcome_t *outcome);

/* Where the outcome was missed, when rank 0 has told it. Returns what it is. */
tutti_status_t tt_saver_hear_again(tt_saving_t *saving, const tt_talk_t *talk,
                                   tt_outcome_t *outcome);

/* On rank 0, when all ranks have heard it: what was told goes. */
void tt_saver_forget(const tt_talk_t *talk);

#endif
