/* Where a training begins: at its newest checkpoint, or in a folder that has none. */
#include <inttypes.h>

#include "comm/group/agree.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/disks.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/step_folders.h"

/* What is there is another training's, or this one should go on from it. */
static tutti_status_t check_unused(const char *folder)
{
    int64_t found;
    TT_TRY(tt_steps_recover(folder));
    TT_TRY(tt_steps_newest(folder, INT64_MAX, &found));
    return found == TT_NO_STEP ? TUTTI_OK
                               : TT_FAIL(TUTTI_ERR_STATE,
                                         "checkpoint: folder %s has a checkpoint of step %" PRId64
                                         ": resume, to go on from it, or give another folder",
                                         folder, found);
}

/* On every disk. */
static tutti_status_t begin_anew(const tutti_checkpoint_t *c)
{
    tt_disks_t disks;
    TT_TRY(tt_group_agree(c->group, tt_checkpoint_check(c)));
    TT_TRY(tt_disks_find(c, &disks));
    tutti_status_t status = tt_folder_lock_each(c->folder, c->group, disks.is_first, false);
    if (status >= 0) {
        status = tt_group_agree(c->group, disks.is_first ? check_unused(c->folder) : TUTTI_OK);
    }
    tt_disks_release(&disks);
    return status < 0 ? status : TUTTI_END;
}

tutti_status_t tutti_checkpoint_begin(const tutti_checkpoint_t *checkpoint, bool resume,
                                      int64_t *step)
{
    int64_t found = 0;
    const tutti_status_t status =
        resume ? tutti_checkpoint_load(checkpoint, &found) : begin_anew(checkpoint);
    TT_TRY(status);
    if (status == TUTTI_OK) {
        tt_log(TT_LOG_INFO, "checkpoint: goes on from step %" PRId64 " of folder %s", found,
               checkpoint->folder);
    } else {
        tt_log(TT_LOG_INFO, "checkpoint: folder %s has none: begins at step 0", checkpoint->folder);
    }
    *step = found;
    return status;
}
