/* The end of a save: on its disk the checkpoint gets its name, or what was begun goes. */
#include <stdio.h>
#include <unistd.h>

#include "core/base/folder.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/hf_index.h"
#include "runtime/checkpoint/saving.h"

enum { KEEP_DEFAULT = 3 };

/* A rank may have another folder of this name, such as one of its host's own disk. */
static tutti_status_t check_files(const tt_saving_t *save)
{
    for (size_t i = 0; i < save->plan->file_count; i++) {
        tt_path_t path;
        tt_steps_file(save->half, save->plan->files[i].name, path);
        if (tt_manifest_has_on(save->plan, &save->plan->files[i], save->disks.mine) &&
            access(path, F_OK) != 0) {
            return TT_FAIL_ERRNO(TUTTI_ERR_IO,
                                 "%s: its rank has written it, but not here: the folder must be "
                                 "the same on every host, or per_host be set",
                                 path);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_saving_complete(const tt_saving_t *save)
{
    tt_hf_index_t index;
    tt_path_t path;
    TT_TRY(tt_steps_check_held(save->half, save->held));
    TT_TRY(check_files(save));
    tt_hf_index_of(save->plan, &index);
    TT_TRY(tt_hf_index_end(&index, save->half));
    tt_steps_file(save->half, TT_MANIFEST_NAME, path);
    return tt_manifest_write(path, save->plan);
}

void tt_saving_settle(const tt_saving_t *save)
{
    const tutti_checkpoint_t *c = save->checkpoint;
    tt_steps_settle(c->folder, save->step);
    if (tt_steps_prune(c->folder, save->step, c->keep > 0 ? c->keep : KEEP_DEFAULT, c->keep_steps,
                       c->keep_step_count) < 0) {
        tt_log(TT_LOG_WARN, "checkpoint: older ones are left until the next save: %s",
               tutti_last_error());
    }
}

tutti_status_t tt_saving_publish(const tt_saving_t *save)
{
    TT_TRY(tt_saving_complete(save));
    TT_TRY(tt_steps_check_held(save->half, save->held));
    TT_TRY(tt_steps_publish(save->checkpoint->folder, save->step));
    tt_saving_settle(save);
    return TUTTI_OK;
}

tutti_status_t tt_saving_abandon(const tt_saving_t *save, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    const bool is_own =
        save->is_begun && save->disks.is_first && tt_steps_check_held(save->half, save->held) >= 0;
    if (is_own && tt_folder_remove(save->half) < 0) {
        tt_log(TT_LOG_WARN, "checkpoint: %s", tutti_last_error());
    }
    return tt_fail_again(status, text);
}
