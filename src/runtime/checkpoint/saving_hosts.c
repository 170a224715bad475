/* Saving on a disk for each host. The first rank of each does there what rank 0 does on a disk of
 * all, in steps that end on all hosts before the next one begins:
 *
 *     all have written   the manifest of rank 0, on every disk
 *     all have that      renames
 *     all have renamed   older ones go, that of the same step, too: not before, for what is under
 *                        its name on some hosts only is no checkpoint
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/file.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/host_steps.h"
#include "runtime/checkpoint/saving.h"

/* ---- one disk, or several? ------------------------------------------------------------------- */

static void mark_path(const tt_saving_t *save, int disk, tt_path_t path)
{
    char name[32];
    snprintf(name, sizeof name, ".host-%d", disk);
    tt_steps_file(save->checkpoint->folder, name, path);
}

static tutti_status_t write_mark(const tt_saving_t *save)
{
    tt_path_t path;
    tt_new_file_t file;
    const uint64_t *token = &save->disks.tokens[save->disks.mine];
    mark_path(save, save->disks.mine, path);
    TT_TRY(tt_new_file_begin(path, &file));
    return tt_new_file_end(&file, tt_new_file_write(&file, token, sizeof *token));
}

/* One that a crash has left has another number. */
static bool is_mark(const char *path, uint64_t token)
{
    tt_file_t file;
    uint64_t found = 0;
    if (access(path, F_OK) != 0 || tt_file_open(path, &file) < 0) {
        return false;
    }
    const bool is_read = tt_file_read_at(&file, 0, &found, sizeof found) >= 0;
    tt_file_close(&file);
    return is_read && found == token;
}

static tutti_status_t find_marks(const tt_saving_t *save)
{
    const tt_disks_t *disks = &save->disks;
    for (int i = 0; i < disks->count; i++) {
        tt_path_t path;
        mark_path(save, i, path);
        if (i != disks->mine && is_mark(path, disks->tokens[i])) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "checkpoint: folder %s of host %s is that of host %s, too: per_host is "
                           "for hosts that have disks of their own",
                           save->checkpoint->folder, disks->hosts[disks->mine], disks->hosts[i]);
        }
    }
    return TUTTI_OK;
}

/* Hosts may have one folder, of a file system that they share: each shows the others a file. */
static tutti_status_t check_apart(const tt_saving_t *save)
{
    tutti_group_t *group = save->checkpoint->group;
    const bool is_first = save->disks.is_first;
    tt_path_t path;
    tutti_status_t status = tt_group_agree(group, is_first ? write_mark(save) : TUTTI_OK);
    if (status >= 0) {
        status = tt_group_agree(group, is_first ? find_marks(save) : TUTTI_OK);
    }
    if (is_first) {
        mark_path(save, save->disks.mine, path);
        (void)unlink(path); /* which harms nobody if it stays */
    }
    return status;
}

/* ---- what a crash has left ------------------------------------------------------------------- */

typedef struct {
    int64_t *steps, below;
    size_t count, room;
} steps_t;

static tutti_status_t add_step(void *user, const tt_step_folder_t *found)
{
    steps_t *list = user;
    if (!found->is_whole || found->step >= list->below) {
        return TUTTI_OK;
    }
    if (list->count == list->room) {
        const size_t room = 2 * list->room + 8;
        int64_t *steps = tt_realloc(list->steps, room * sizeof *steps, "checkpoint");
        TT_TRY_ALLOC(steps);
        list->steps = steps;
        list->room = room;
    }
    list->steps[list->count++] = found->step;
    return TUTTI_OK;
}

static bool has_step(const tutti_buffer_t *steps, int64_t step)
{
    const int64_t *list = steps->data;
    for (size_t i = 0; i < steps->bytes / sizeof *list; i++) {
        if (list[i] == step) {
            return true;
        }
    }
    return false;
}

/* `all` [ranks]: of the first rank of each disk the steps there. */
static bool is_everywhere(const tt_saving_t *save, const tutti_buffer_t *all, int64_t step)
{
    for (int i = 0; i < save->disks.count; i++) {
        if (!has_step(&all[tt_disks_rank(&save->disks, i, 0)], step)) {
            return false;
        }
    }
    return true;
}

/* The newest step of any disk below another one; TT_NO_STEP. */
static int64_t newest_below(const tt_saving_t *save, const tutti_buffer_t *all, int64_t below)
{
    int64_t newest = TT_NO_STEP;
    for (int i = 0; i < save->ranks; i++) {
        const int64_t *list = all[i].data;
        for (size_t k = 0; k < all[i].bytes / sizeof *list; k++) {
            newest = list[k] < below && list[k] > newest ? list[k] : newest;
        }
    }
    return newest;
}

/* What is newer than the newest one of all disks, but not on all, was never published as a whole,
 * unless there were fewer hosts then. The newest that stays; what is newer goes. */
static tutti_status_t find_newest(const tt_saving_t *save, const tutti_buffer_t *all, int64_t *out)
{
    bool is_whole = false;
    int64_t common = save->step, newest = save->step;
    do {
        common = newest_below(save, all, common);
    } while (common != TT_NO_STEP && !is_everywhere(save, all, common));
    while (common != TT_NO_STEP && !is_whole &&
           (newest = newest_below(save, all, newest)) > common) {
        TT_TRY(tt_host_steps_find_whole(save->checkpoint, &save->disks, newest, &is_whole));
    }
    *out = newest;
    return TUTTI_OK;
}

static tutti_status_t drop_newer(const tt_saving_t *save, const steps_t *own, int64_t newest)
{
    for (size_t i = 0; i < own->count; i++) {
        if (own->steps[i] > newest) {
            TT_TRY(tt_steps_remove(save->checkpoint->folder, own->steps[i]));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t drop_together(const tt_saving_t *save)
{
    tutti_group_t *group = save->checkpoint->group;
    steps_t own = {.below = save->step};
    int64_t newest = TT_NO_STEP;
    tutti_buffer_t *all = tt_alloc_array((size_t)save->ranks, sizeof *all, "checkpoint");
    tutti_status_t status = all == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0 && save->disks.is_first) {
        status = tt_steps_each(save->checkpoint->folder, add_step, &own);
    }
    status = tt_group_agree(group, status);
    if (status >= 0) {
        const size_t bytes = own.count * sizeof *own.steps;
        status = tutti_all_gather_bytes(group, tutti_bytes_of(own.steps, bytes), all);
        status = status < 0 ? tt_group_give_up(group, status) : find_newest(save, all, &newest);
        status = status < 0 ? status : tt_group_agree(group, drop_newer(save, &own, newest));
    }
    for (int i = 0; i < save->ranks && all != NULL; i++) {
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
    tt_free(own.steps);
    return status;
}

tutti_status_t tt_saving_begin_hosts(tt_saving_t *save)
{
    const char *folder = save->checkpoint->folder;
    const bool is_first = save->disks.is_first;
    TT_TRY(check_apart(save));
    TT_TRY(tt_host_steps_recover(save->checkpoint, &save->disks));
    TT_TRY(tt_group_agree(save->checkpoint->group,
                          is_first ? tt_steps_begin(folder, save->step) : TUTTI_OK));
    save->is_begun = true;
    return drop_together(save);
}

tutti_status_t tt_saving_rename(const tt_saving_t *save)
{
    TT_TRY(tt_steps_check_held(save->half, save->held));
    return tt_steps_publish_beside(save->checkpoint->folder, save->step);
}

/* ---- publishing ------------------------------------------------------------------------------ */

tutti_status_t tt_saving_publish_hosts(tt_saving_t *save, tutti_status_t taken)
{
    tutti_group_t *group = save->checkpoint->group;
    const bool is_first = save->disks.is_first;
    if (save->rank != 0) { /* it has places of this rank's files alone */
        tt_manifest_release(save->plan);
        save->plan = NULL;
    }
    TT_TRY(tt_manifest_share(group, taken, "the manifest of rank 0", &save->plan));
    TT_TRY(tt_group_agree(group, is_first ? tt_saving_complete(save) : TUTTI_OK));
    TT_TRY(tt_group_agree(group, is_first ? tt_saving_rename(save) : TUTTI_OK));
    if (is_first) {
        tt_saving_settle(save);
    }
    return TUTTI_OK;
}
