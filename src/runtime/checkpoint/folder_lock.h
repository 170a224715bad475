/* One job at a time has a checkpoint's folder: its ranks hold a lock on FOLDER/.lock until they
 * end.
 *
 *     rank 0   exclusive: no rank of another job is left; says in it who it is; turns it into
 *              a shared one
 *     others   shared, when rank 0 has it
 *
 * The kernel drops the lock of a process that ends, however it ends. Ranks that are threads of one
 * process share one, and so do processes of one job that save and load alone. Of a second job
 * rank 0 waits, TUTTI_CHECKPOINT_WAIT_MS at most, until the first one's ranks have ended; where
 * that is longer than the group's timeout, its other ranks are told meanwhile.
 */
#ifndef TT_FOLDER_LOCK_H
#define TT_FOLDER_LOCK_H

#include <stdbool.h>

#include <tutti/group.h>

#include "core/base/fail.h"

/* Take the lock on every rank of the group; NULL: on this one alone. What this process holds
 * already costs a look at the file.
 *
 * `is_saving`: the folder is made if it is not there. Without, nothing is locked in one that is not
 * there, or in which this user may not write.
 * Errors, on every rank: STATE (another job has it: says which, as far as that is known), IO (only
 * `is_saving`); those of the group. */
tutti_status_t tt_folder_lock(const char *folder, tutti_group_t *group, bool is_saving);

/* The same, where hosts have disks of their own: the first rank of each does what rank 0 does. */
tutti_status_t tt_folder_lock_each(const char *folder, tutti_group_t *group, bool is_first,
                                   bool is_saving);

#endif
