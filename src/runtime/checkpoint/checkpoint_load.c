/* Loading: the root reads the newest manifest, every rank compares it with what it wants and reads
 * the parts of all slices in which that is. What one rank cannot read is passed over by all. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/checkpoint_texts.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/load_state.h"
#include "runtime/checkpoint/pieces.h"
#include "runtime/checkpoint/source.h"
#include "runtime/checkpoint/step_folders.h"

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_root(const tutti_checkpoint_t *c)
{
    return c->group == NULL || tutti_group_rank(c->group) == 0;
}

/* Of a checkpoint, or of a snapshot of earlier versions. That of a folder which was copied to
 * another name is damaged. */
static tutti_status_t read_manifest(const char *folder, int64_t step, tt_manifest_t **out)
{
    tt_source_t source;
    struct stat about;
    if (stat(folder, &about) == 0 && !S_ISDIR(about.st_mode)) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: not a folder", folder);
    }
    TT_TRY(tt_source_open(folder, &source));
    const int64_t found = source.manifest->step;
    if (found == step) {
        *out = source.manifest;
        return TUTTI_OK;
    }
    tt_source_close(&source);
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: is of step %" PRId64, folder, found);
}

static tutti_status_t open_step(const tutti_checkpoint_t *c, const tt_disks_t *disks, int64_t step,
                                tt_loaded_t *loaded, tt_holders_t *holders)
{
    tt_manifest_t *manifest = NULL;
    if (disks->count > 1) {
        loaded->holders = holders;
        TT_TRY(tt_host_steps_open(c, disks, step, &manifest, holders));
    } else {
        const tutti_status_t status = tt_manifest_share(
            c->group, is_root(c) ? read_manifest(loaded->folder, step, &manifest) : TUTTI_OK,
            "the manifest of rank 0", &manifest);
        if (status < 0) {
            tt_manifest_release(manifest);
            return status;
        }
    }
    loaded->manifest = manifest;
    return TUTTI_OK;
}

static tutti_status_t read_step(const tutti_checkpoint_t *c, const tt_disks_t *disks, int64_t step)
{
    tt_path_t folder;
    char what[64];
    tt_holders_t holders = {0};
    tt_loaded_t loaded = {.what = what, .folder = folder};
    tt_steps_name(c->folder, step, folder);
    snprintf(what, sizeof what, "checkpoint of step %lld", (long long)step);
    TT_TRY(open_step(c, disks, step, &loaded, &holders));
    const tutti_status_t status = tt_load_state(c, &loaded);
    tt_manifest_release((tt_manifest_t *)(uintptr_t)loaded.manifest);
    tt_holders_release(&holders);
    return status;
}

/* ---- which one ------------------------------------------------------------------------------- */

/* An older one may do. */
static bool is_damage(tutti_status_t status)
{
    return status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT || status == TUTTI_ERR_NOT_FOUND;
}

/* Rank 0's newest one below a step, on every rank; TT_NO_STEP. */
static tutti_status_t choose(const tutti_checkpoint_t *c, const tt_disks_t *disks, int64_t below,
                             int64_t *found)
{
    tutti_buffer_t shared;
    *found = TT_NO_STEP;
    if (disks->count > 1) {
        return tt_host_steps_newest(c, disks, below, found);
    }
    TT_TRY(
        tt_group_agree(c->group, is_root(c) ? tt_steps_newest(c->folder, below, found) : TUTTI_OK));
    if (c->group == NULL) {
        return TUTTI_OK;
    }
    const tutti_status_t status =
        tutti_broadcast_bytes(c->group, tutti_bytes_of(found, sizeof *found), 0, &shared);
    if (status < 0) {
        return tt_group_give_up(c->group, status);
    }
    memcpy(found, shared.data, sizeof *found);
    tutti_buffer_release(&shared);
    return TUTTI_OK;
}

/* Who may not write here reads what has its name. */
static tutti_status_t recover(const tutti_checkpoint_t *c, const tt_disks_t *disks)
{
    tutti_status_t status = TUTTI_OK;
    if (disks->count > 1) {
        status = tt_host_steps_recover(c, disks);
    } else if (disks->is_first) {
        status = tt_steps_recover(c->folder);
    }
    if (status == TUTTI_ERR_IO) {
        tt_log(TT_LOG_WARN, "checkpoint: %s", tutti_last_error());
        status = TUTTI_OK;
    }
    return status;
}

static tutti_status_t check(const tutti_checkpoint_t *c)
{
    tt_pieces_t pieces;
    TT_TRY(tt_checkpoint_check(c));
    TT_TRY(tt_checkpoint_texts_check_names(c));
    TT_TRY(tt_pieces_of(c->slices, c->slice_count, &pieces));
    tt_pieces_release(&pieces);
    return TUTTI_OK;
}

static tutti_status_t load_newest(const tutti_checkpoint_t *checkpoint, const tt_disks_t *disks,
                                  int64_t *step)
{
    tutti_status_t first = TUTTI_END; /* of the newest */
    char text[TT_ERROR_TEXT_BYTES] = "";
    TT_TRY(tt_folder_lock_each(checkpoint->folder, checkpoint->group, disks->is_first, false));
    TT_TRY(recover(checkpoint, disks));
    for (int64_t found, below = INT64_MAX;; below = found) {
        TT_TRY(choose(checkpoint, disks, below, &found));
        if (found == TT_NO_STEP) {
            return first < 0 ? tt_fail_again(first, text) : TUTTI_END;
        }
        const tutti_status_t status = read_step(checkpoint, disks, found);
        if (status >= 0) {
            *step = found;
            return TUTTI_OK;
        }
        if (!is_damage(status)) {
            return status;
        }
        tt_log(TT_LOG_WARN, "checkpoint of step %lld is passed over: %s", (long long)found,
               tutti_last_error());
        if (first == TUTTI_END) {
            first = status;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
}

tutti_status_t tutti_checkpoint_load(const tutti_checkpoint_t *checkpoint, int64_t *step)
{
    TT_WANT("checkpoint_load", checkpoint);
    tt_disks_t disks;
    TT_TRY(tt_group_agree(checkpoint->group, check(checkpoint)));
    TT_TRY(tt_disks_find(checkpoint, &disks));
    const tutti_status_t status = load_newest(checkpoint, &disks, step);
    tt_disks_release(&disks);
    return status;
}

tutti_status_t tutti_checkpoint_newest(const char *folder, int64_t *step)
{
    int64_t found;
    TT_TRY(tt_checkpoint_check(&(tutti_checkpoint_t){.folder = folder}));
    TT_TRY(tt_steps_newest(folder, INT64_MAX, &found));
    if (found == TT_NO_STEP) {
        return TUTTI_END;
    }
    *step = found;
    return TUTTI_OK;
}
