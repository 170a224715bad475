/* Steps of which each host has a part on its own disk. A step counts if all of its files are on
 * some disk, beside the same manifest.
 */
#ifndef TT_HOST_STEPS_H
#define TT_HOST_STEPS_H

#include "runtime/checkpoint/disks.h"
#include "runtime/checkpoint/step_folders.h"

/* Which file is on which disk; the same on all ranks. */
typedef struct {
    const tt_disks_t *disks;
    size_t files;
    bool *has; /* [disks->count * files] */
} tt_holders_t;

static inline bool *tt_holders_of(const tt_holders_t *holders, int disk, int file)
{
    return &holders->has[(size_t)disk * holders->files + (size_t)file];
}

/* Whether each file is on some disk; the first that is on none, or -1. */
int tt_holders_find_missing(const tt_holders_t *holders);
void tt_holders_release(tt_holders_t *holders);

/* The newest step below another one that has its name on any disk; TT_NO_STEP. A collective call,
 * as the next one. */
tutti_status_t tt_host_steps_newest(const tutti_checkpoint_t *checkpoint, const tt_disks_t *disks,
                                    int64_t below, int64_t *step);

/* Its manifest and who has what of it. Of several manifests, as of a crash while a step was
 * replaced, that of which all files are there. Errors, on all ranks: IO and FORMAT (names a file
 * that is on no disk, and its host), NOMEM; PEER, TIMEOUT. */
tutti_status_t tt_host_steps_open(const tutti_checkpoint_t *checkpoint, const tt_disks_t *disks,
                                  int64_t step, tt_manifest_t **manifest, tt_holders_t *holders);

/* Whether a step is whole over all disks. A collective call. Errors: NOMEM; PEER, TIMEOUT. */
tutti_status_t tt_host_steps_find_whole(const tutti_checkpoint_t *checkpoint,
                                        const tt_disks_t *disks, int64_t step, bool *is_whole);

/* Steps that a crash has left while they were replaced, host by host: where the new one is whole
 * over all disks, the old one goes; else where that is, it gets its name back. Others stay as they
 * are. A collective call, on folders that are there or not. Errors, on all ranks: IO (this is not
 * possible on some disk: names it), NOMEM; PEER, TIMEOUT. */
tutti_status_t tt_host_steps_recover(const tutti_checkpoint_t *checkpoint, const tt_disks_t *disks);

#endif
