/* Manifests between ranks, as text. */
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/buffer.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/step_folders.h"

tutti_status_t tt_checkpoint_check(const tutti_checkpoint_t *checkpoint)
{
    const char *folder = checkpoint->folder;
    if (folder == NULL || folder[0] == 0 || strlen(folder) > TT_STEP_FOLDER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: want a folder of 1 to %d characters",
                       TT_STEP_FOLDER_BYTES_MAX);
    }
    if (checkpoint->host_copies < 0 || (checkpoint->host_copies > 1 && !checkpoint->per_host)) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: host_copies is %d: want %s",
                       checkpoint->host_copies,
                       checkpoint->per_host ? "0 or more" : "0 or 1, or per_host");
    }
    if (checkpoint->keep_steps == NULL && checkpoint->keep_step_count > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: keep_steps is NULL: want %zu of them",
                       checkpoint->keep_step_count);
    }
    return checkpoint->keep >= 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "checkpoint: keep is %d: want 0 or more", checkpoint->keep);
}

tutti_status_t tt_manifest_share(tutti_group_t *group, tutti_status_t mine, const char *what,
                                 tt_manifest_t **manifest)
{
    tutti_buffer_t text = {0}, shared;
    if (tutti_group_size(group) <= 1) {
        return mine;
    }
    const bool is_root = tutti_group_rank(group) == 0;
    if (is_root && mine >= 0) {
        mine = tt_manifest_print(*manifest, &text);
    }
    tutti_status_t status = tt_group_agree(group, mine);
    if (status >= 0) {
        status = tutti_broadcast_bytes(group, tt_buffer_view(&text), 0, &shared);
        status = status < 0 ? tt_group_give_up(group, status) : status;
    }
    tutti_buffer_release(&text);
    TT_TRY(status);
    status = is_root ? TUTTI_OK : tt_manifest_parse(what, tt_buffer_view(&shared), manifest);
    tutti_buffer_release(&shared);
    return tt_group_agree(group, status);
}
