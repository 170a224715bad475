/* The disks on which the folder of a checkpoint is: one for all ranks, or one for each host.
 *
 *     ranks   0 1   2 3        {"a", "a"}   {"b", "b"}
 *     disks    0     1         numbered by their lowest rank, which does there what rank 0 does on
 *                              a disk of all
 *
 * Ranks share a disk that are on one machine, and see one folder, by its device and inode.
 */
#ifndef TT_DISKS_H
#define TT_DISKS_H

#include <tutti/checkpoint.h>

#include "runtime/checkpoint/manifest.h"

enum { TT_HOST_NAME_BYTES = 65 };

typedef struct {
    int ranks, count, mine;
    bool is_first;                     /* this rank is its disk's lowest */
    int *of_rank;                      /* [ranks] */
    char (*hosts)[TT_HOST_NAME_BYTES]; /* [count] names; NULL: the disk is that of all ranks */
    uint64_t *tokens;                  /* [count] random numbers of this call */
} tt_disks_t;

/* Those of a checkpoint's folder; a folder that is not there counts as one. A collective call.
 * Errors, on all ranks: MISMATCH (ranks have other options per_host, or with it host_copies or
 * keep: names them), NOMEM, those of the group. */
tutti_status_t tt_disks_find(const tutti_checkpoint_t *checkpoint, tt_disks_t *out);
void tt_disks_release(tt_disks_t *disks);

/* The number-th rank of a disk, counted around. */
int tt_disks_rank(const tt_disks_t *disks, int disk, int number);

/* Whether a rank writes a copy of another one's files: of so many copies, the rank's own files
 * included, on the disks that follow its own. */
bool tt_disks_copies(const tt_disks_t *disks, int copies, int of, int by);

/* The plan's slices, and those that ranks write as copies. */
tutti_status_t tt_disks_plan_copies(const tt_disks_t *disks, const tt_manifest_t *plan,
                                    tt_manifest_t **out);

/* Which file of a plan is on which disk; nothing where there is one. */
tutti_status_t tt_disks_mark(const tt_disks_t *disks, tt_manifest_t *plan);

#endif
