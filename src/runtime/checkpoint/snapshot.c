/* Snapshots: a folder for each (step_folders.h). Ranks agree on what was written, and on what they
 * load, by one number each.
 */
#include <tutti/snapshot.h>

#include <stdio.h>
#include <string.h>

#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "runtime/checkpoint/step_folders.h"

enum { KEEP_DEFAULT = 3 };

static tutti_status_t check(const tutti_snapshots_t *snapshots)
{
    if (snapshots->folder == NULL || snapshots->folder[0] == 0 ||
        strlen(snapshots->folder) > TT_STEP_FOLDER_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "snapshot: want a folder of 1 to %d characters",
                       TT_STEP_FOLDER_BYTES_MAX);
    }
    if (snapshots->module == NULL || snapshots->keep < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "snapshot: %s, keep %d; want a module, and 0 or more",
                       snapshots->module != NULL ? "a module" : "no module", snapshots->keep);
    }
    return TUTTI_OK;
}

/* ---- agreeing -------------------------------------------------------------------------------- */

static bool is_writer(const tutti_snapshots_t *snapshots)
{
    return snapshots->group == NULL || tutti_group_rank(snapshots->group) == 0;
}

/* Rank 0's step, on every rank. */
static tutti_status_t share_step(const tutti_snapshots_t *snapshots, int64_t *step)
{
    tutti_buffer_t first;
    if (snapshots->group == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_broadcast_bytes(snapshots->group, tutti_bytes_of(step, sizeof *step), 0, &first));
    memcpy(step, first.data, sizeof *step);
    tutti_buffer_release(&first);
    return TUTTI_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static tutti_status_t write_tensors(const tutti_snapshots_t *snapshots, const char *path)
{
    tutti_named_tensor_t *list =
        tt_alloc_array(snapshots->tensor_count, sizeof *list, "tensors of a snapshot");
    TT_TRY_ALLOC(list);
    for (size_t i = 0; i < snapshots->tensor_count; i++) {
        list[i] = (tutti_named_tensor_t){snapshots->tensors[i].name, snapshots->tensors[i].tensor};
    }
    const tutti_status_t status =
        tutti_safetensors_save(path, list, snapshots->tensor_count, NULL, 0);
    tt_free(list);
    return status;
}

static tutti_status_t write_files(const tutti_snapshots_t *snapshots, int64_t step,
                                  const char *folder)
{
    char text[24];
    tt_path_t path;
    snprintf(text, sizeof text, "%lld", (long long)step);
    const tutti_named_text_t metadata = {"step", text};
    tt_steps_file(folder, "model.safetensors", path);
    TT_TRY(tutti_module_save(snapshots->module, path, &metadata, 1));
    if (snapshots->optim != NULL) {
        tt_steps_file(folder, "optim.safetensors", path);
        TT_TRY(tutti_optim_save(snapshots->optim, path));
    }
    if (snapshots->tensor_count > 0) {
        tt_steps_file(folder, "extra.safetensors", path);
        TT_TRY(write_tensors(snapshots, path));
    }
    return TUTTI_OK;
}

static tutti_status_t write_snapshot(const tutti_snapshots_t *snapshots, int64_t step)
{
    tt_path_t half;
    TT_TRY(tt_steps_begin(snapshots->folder, step));
    tt_steps_half(snapshots->folder, step, half);
    TT_TRY(write_files(snapshots, step, half));
    TT_TRY(tt_steps_publish(snapshots->folder, step));
    return tt_steps_prune(snapshots->folder, snapshots->keep > 0 ? snapshots->keep : KEEP_DEFAULT);
}

static tutti_status_t check_save(const tutti_snapshots_t *snapshots, int64_t step)
{
    return step >= 0 && step <= TT_STEP_MAX
               ? check(snapshots)
               : TT_FAIL(TUTTI_ERR_ARG, "snapshot: step %lld; want 0 to %lld", (long long)step,
                         (long long)TT_STEP_MAX);
}

tutti_status_t tutti_snapshot_save(const tutti_snapshots_t *snapshots, int64_t step)
{
    tutti_status_t status = check_save(snapshots, step);
    if (status >= 0 && is_writer(snapshots)) {
        status = write_snapshot(snapshots, step);
    }
    return tt_group_agree(snapshots->group, status);
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t read_tensors(const tutti_snapshots_t *snapshots, const char *path)
{
    tutti_safetensors_t *file;
    tutti_status_t status = tutti_safetensors_open(path, &file);
    TT_TRY(status);
    for (size_t i = 0; i < snapshots->tensor_count && status >= 0; i++) {
        status =
            tutti_safetensors_read(file, snapshots->tensors[i].name, snapshots->tensors[i].tensor);
    }
    tutti_safetensors_close(file);
    return status;
}

static tutti_status_t read_snapshot(const tutti_snapshots_t *snapshots, int64_t step)
{
    tt_path_t folder, path;
    tt_steps_name(snapshots->folder, step, folder);
    tt_steps_file(folder, "model.safetensors", path);
    TT_TRY(tutti_module_load_to(snapshots->module, path, snapshots->device));
    if (snapshots->optim != NULL) {
        tt_steps_file(folder, "optim.safetensors", path);
        TT_TRY(tutti_optim_load(snapshots->optim, path));
    }
    if (snapshots->tensor_count > 0) {
        tt_steps_file(folder, "extra.safetensors", path);
        TT_TRY(read_tensors(snapshots, path));
    }
    return TUTTI_OK;
}

/* An older one may do. */
static bool is_damage(tutti_status_t status)
{
    return status == TUTTI_ERR_IO || status == TUTTI_ERR_FORMAT || status == TUTTI_ERR_NOT_FOUND;
}

/* OK on every rank, or the same failure on every rank. */
static tutti_status_t read_together(const tutti_snapshots_t *snapshots, int64_t step)
{
    const tutti_status_t status = tt_group_agree(snapshots->group, read_snapshot(snapshots, step));
    if (is_damage(status)) {
        tt_log(TT_LOG_WARN, "snapshot of step %lld is passed over: %s", (long long)step,
               tutti_last_error());
    }
    return status;
}

/* Rank 0's newest one below a step, on every rank; TT_NO_STEP. */
static tutti_status_t choose(const tutti_snapshots_t *snapshots, int64_t below, int64_t *found)
{
    *found = TT_NO_STEP;
    TT_TRY(tt_group_agree(snapshots->group, is_writer(snapshots)
                                                ? tt_steps_newest(snapshots->folder, below, found)
                                                : TUTTI_OK));
    return share_step(snapshots, found);
}

tutti_status_t tutti_snapshot_load(const tutti_snapshots_t *snapshots, int64_t *step)
{
    tutti_status_t first = TUTTI_END; /* of the newest */
    char text[TT_ERROR_TEXT_BYTES] = "";
    TT_TRY(tt_group_agree(snapshots->group, check(snapshots)));
    for (int64_t found, below = INT64_MAX;; below = found) {
        TT_TRY(choose(snapshots, below, &found));
        if (found == TT_NO_STEP) {
            return first < 0 ? tt_fail_again(first, text) : TUTTI_END;
        }
        const tutti_status_t status = read_together(snapshots, found);
        if (status >= 0) {
            *step = found;
            return TUTTI_OK;
        }
        if (!is_damage(status)) {
            return status;
        }
        if (first == TUTTI_END) {
            first = status;
            snprintf(text, sizeof text, "%s", tutti_last_error());
        }
    }
}
