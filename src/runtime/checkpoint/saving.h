/* A save on its way.
 *
 *     plan, begin    all ranks together
 *     move           all ranks together: of whole tensors, and for other hosts, what others write
 *     copy           perhaps: so that what is saved may change
 *     write          each rank alone, from any thread
 *     take, publish  rank 0, from any thread, when all have written; or abandon
 *
 * Where each host has its own disk, the last step is of all ranks: the first of each publishes
 * there (saving_hosts.c).
 */
#ifndef TT_SAVING_H
#define TT_SAVING_H

#include "runtime/checkpoint/checkpoint_state.h"
#include "runtime/checkpoint/disks.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/step_folders.h"

typedef struct {
    const tutti_checkpoint_t *checkpoint;
    int64_t step;
    int rank, ranks;
    tt_checkpoint_state_t state;
    tt_pieces_t pieces;
    tt_manifest_t *own, *plan; /* what this rank has; of all, what is written */
    tt_manifest_t *has;        /* of whole tensors: of all, the parts and who has them; NULL */
    tt_manifest_t *wanted;     /* the plan, and copies for other hosts; NULL: there are none */
    tt_disks_t disks;
    tt_path_t half; /* the folder that is filled */
    bool is_begun;  /* it is there … */
    int held;       /* … and held; -1: this rank does not see it */
    int64_t begin_ns;
    int64_t waited_ns;         /* of the caller, for the save before */
    int64_t held_ns;           /* of the caller, if it goes on before the end */
    bool is_beside;            /* it is written beside steps, which are not to be held up */
    _Atomic uint64_t *written; /* this rank's bytes on their way to files; NULL: nobody asks */
} tt_saving_t;

/* Who writes what; a collective call. Fills `save` in, also where it fails. */
tutti_status_t tt_saving_plan(tt_saving_t *save, const tutti_checkpoint_t *checkpoint,
                              int64_t step);

/* The folder's lock, and a folder for the files; a collective call. */
tutti_status_t tt_saving_begin(tt_saving_t *save);

/* Pieces of whole tensors, and of copies, to the ranks that write these; a collective call. */
tutti_status_t tt_saving_move(tt_saving_t *save);

/* Bytes of slices that this rank writes, copies included. */
uint64_t tt_saving_own_bytes(const tt_saving_t *save);

/* What this rank writes, into memory of the host that nobody else changes. */
tutti_status_t tt_saving_copy(tt_saving_t *save);

/* This rank's files; and what rank 0 must know of them, to be released. */
tutti_status_t tt_saving_write(tt_saving_t *save, tt_manifest_t **report);
tutti_status_t tt_saving_take(tt_saving_t *save, const tt_manifest_t *report);

/* On the first rank of a disk: all that is to be there is, and so is the manifest. */
tutti_status_t tt_saving_complete(const tt_saving_t *save);

/* On the first rank of a disk, when all have renamed: older ones go, but not the save if they
 * cannot. */
void tt_saving_settle(const tt_saving_t *save);

/* On rank 0, of one disk. Returns OK when the checkpoint has its name. */
tutti_status_t tt_saving_publish(const tt_saving_t *save);

/* Of a disk for each host, collective calls: the folders for the files, if they are on disks apart,
 * where what a crash between two of them has left goes; and publishing, if taking what all have
 * written went well. */
tutti_status_t tt_saving_begin_hosts(tt_saving_t *save);
tutti_status_t tt_saving_publish_hosts(tt_saving_t *save, tutti_status_t taken);

/* The second step of publishing, on the first rank of a disk. */
tutti_status_t tt_saving_rename(const tt_saving_t *save);

/* Rank 0 tells the log that it has its name, and how long that took. */
void tt_saving_log(const tt_saving_t *save);

/* All that follows the plan, together, at once. */
tutti_status_t tt_saving_run(tt_saving_t *save);

/* What was begun goes; the failure stays, with its text. */
tutti_status_t tt_saving_abandon(const tt_saving_t *save, tutti_status_t status);

void tt_saving_end(tt_saving_t *save);

#endif
