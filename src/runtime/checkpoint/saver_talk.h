/* What the threads of a save in the background tell each other. The groups of a world belong to one
 * thread, so these speak through the store, which any thread may use, under a prefix of the saver's
 * own:
 *
 *     <number of the save>/report/<rank>    "0 0\n" and the rank's manifest, or a failure
 *     <number of the save>/complete         "0 0\n" and the manifest of all, or a failure
 *     <number of the save>/complete/<rank>  "0 0\n", or a failure
 *     <number of the save>/rename …         as complete, without a manifest
 *     <number of the save>/outcome          "0 0\n", or a failure
 *     <any of these>+<number>               the next part of what is longer than a value of a store
 *
 * of which complete and rename are for the first ranks of hosts that have a disk each
 * (saving_hosts.c), and the second number is that of the parts which follow; a failure is its
 * number, that of no parts, a newline and its text.
 */
#ifndef TT_SAVER_TALK_H
#define TT_SAVER_TALK_H

#include <stdatomic.h>

#include <tutti/group.h>

#include "core/base/fail.h"

enum { TT_TALK_KEY_BYTES = 64 };

typedef struct {
    const tutti_group_t *group; /* borrowed: its store, which the talk has for itself, and its
                                   timeout alone */
    int64_t number;             /* of the save */
    int64_t step;               /* of it, for messages */
    _Atomic int64_t leave_by;   /* others are not waited for any longer than that; 0: they are */
} tt_talk_t;

/* Keys. `phase` is "complete" or "rename"; `rank`: who has done it; 0: the root, which wants it
 * done. */
tutti_bytes_t tt_talk_report(const tt_talk_t *talk, int rank, char key[TT_TALK_KEY_BYTES]);
tutti_bytes_t tt_talk_phase(const tt_talk_t *talk, const char *phase, int rank,
                            char key[TT_TALK_KEY_BYTES]);
tutti_bytes_t tt_talk_outcome(const tt_talk_t *talk, char key[TT_TALK_KEY_BYTES]);

/* That it went well, with what there is to say. What cannot be told is to be told as a failure:
 * others wait for the key. A store that does not answer is tried until the group's timeout, or
 * leave_by. Errors: those of the store, NOMEM. */
tutti_status_t tt_talk_tell(const tt_talk_t *talk, tutti_bytes_t key, tutti_bytes_t said);

/* The last error, with its text, which stays. Returns whether it has been told. */
bool tt_talk_tell_failure(const tt_talk_t *talk, tutti_bytes_t key, tutti_status_t status);

/* What a rank told, when it is there: another rank is waited for as long as the group's timeout
 * says, rank 0 (ranks + 1) times as long, for it writes, too, and hears one rank after another.
 * *told is how it went there, with its text, fit for a line, if that was a failure. `late` says
 * what the rank has not done if it does not tell. Errors: TIMEOUT (names the rank), FORMAT, those
 * of the store. */
tutti_status_t tt_talk_hear(const tt_talk_t *talk, tutti_bytes_t key, int rank, const char *late,
                            tutti_status_t *told, tutti_buffer_t *out);

/* What was told, and has been heard. The last error's text stays. */
void tt_talk_forget(const tt_talk_t *talk, tutti_bytes_t key);

#endif
