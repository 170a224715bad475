/* Folders of a training's steps, each of which is there as a whole or not at all.
 *
 *     tt_path_t half;
 *     TT_TRY(tt_steps_begin(folder, 300));
 *     tt_steps_half(folder, 300, half);
 *     TT_TRY(…write files into half, flush them…);
 *     TT_TRY(tt_steps_publish(folder, 300));
 *     TT_TRY(tt_steps_prune(folder, 300, 3, NULL, 0));
 *
 *     .half-000000000300/ …files… --flush, rename, flush--> step-000000000300/
 *     step-000000000000/  --rename-->  .half-000000000000/  --> removed
 *
 * One of the same step is exchanged. A file system that cannot do that has it as .old-000000000300/
 * between two renames, and gives it back its name if it was killed there. So has it who publishes
 * beside others: it stays until all have done so, and comes back if they have not
 * (host_steps.h).
 *
 * So a name that begins with "step-" is a whole one, whenever the power goes. Steps are 0 to
 * TT_STEP_MAX. Errors of all: IO names the folder.
 */
#ifndef TT_STEP_FOLDERS_H
#define TT_STEP_FOLDERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

#define TT_STEP_MAX INT64_C(999999999999)

enum { TT_NO_STEP = -1, TT_STEP_FOLDER_BYTES_MAX = 3000 };

typedef char tt_path_t[PATH_MAX];

/* The folder of a step that is there. */
void tt_steps_name(const char *folder, int64_t step, tt_path_t path);

/* A file in a folder. */
void tt_steps_file(const char *folder, const char *file, tt_path_t path);

/* The folder of a step that is being filled. */
void tt_steps_half(const char *folder, int64_t step, tt_path_t path);

/* Whether a folder, or a link to one, is called as a step is; of which. */
bool tt_steps_is_named(const char *path, int64_t *step);

/* Hold on to the half of a step, to see whether it is still the one. A writer that was stopped may
 * wake when others have begun the same step again, in a folder of the same name. -1: it is not
 * there. To be closed by close(). */
int tt_steps_hold(const char *half);

/* Whether a half is the one that `held` holds; one that is not held always is. Errors:
 * STATE; IO (there is none). */
tutti_status_t tt_steps_check_held(const char *half, int held);

/* Make it, empty, and `folder` with all above it. What a crash has left half written there goes. */
tutti_status_t tt_steps_begin(const char *folder, int64_t step);

/* Under its name, on the disk. One of the same step is replaced; what cannot be removed of that is
 * told in the log, and goes with the next save. */
tutti_status_t tt_steps_publish(const char *folder, int64_t step);

/* The same, but one of the same step stays as an old one, until it settles. */
tutti_status_t tt_steps_publish_beside(const char *folder, int64_t step);

/* The old one of a step goes; what cannot be removed is told in the log. */
void tt_steps_settle(const char *folder, int64_t step);

/* The old one of a step gets its name back; what had it goes. */
tutti_status_t tt_steps_restore(const char *folder, int64_t step);

/* The folder of the old one of a step, and the newest step below another one that has one;
 * TT_NO_STEP. */
void tt_steps_old(const char *folder, int64_t step, tt_path_t path);
tutti_status_t tt_steps_newest_old(const char *folder, int64_t below, int64_t *step);

/* Old ones whose names are free get them back. tt_steps_begin() does it, too, and the others go. */
tutti_status_t tt_steps_recover(const char *folder);

/* Of those up to a step all but the newest `keep` and those that are named go. Newer ones, which
 * are damaged or another run's if this one has not got there, neither count nor go. */
tutti_status_t tt_steps_prune(const char *folder, int64_t step, int keep, const int64_t *named,
                              size_t named_count);

/* It goes, as if it had been pruned. */
tutti_status_t tt_steps_remove(const char *folder, int64_t step);

/* Each that is in the folder, whole ones and halves in no order; the path is valid for the call. A
 * folder that is not there is an error. */
typedef struct {
    int64_t step;
    bool is_whole;
    const char *name, *path;
} tt_step_folder_t;

tutti_status_t tt_steps_each(const char *folder,
                             tutti_status_t (*visit)(void *user, const tt_step_folder_t *found),
                             void *user);

/* The newest one below a step; TT_NO_STEP. A folder that is not there has none. */
tutti_status_t tt_steps_newest(const char *folder, int64_t below, int64_t *step);

#endif
