/* Saving: the ranks say what they have, the root decides who writes what, all write, the root
 * publishes.
 *
 *     rank 0   describe ─┐       ┌─ plan ─┬─ write ─┐        ┌─ manifest, rename
 *     rank 1   describe ─┴─gather┘  share └─ write ─┴─ gather┘
 *
 * Where tensors are saved whole, what is shared says who has their parts: each rank makes the plan
 * of it, and parts go to the ranks that write before all write.
 *
 * Descriptions, plan and reports are manifests. The ranks agree behind each of these steps, so that
 * all have the first failure, and nobody waits for one that has gone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/folder.h"
#include "core/base/log.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/checkpoint_texts.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/pieces_exchange.h"
#include "runtime/checkpoint/rank_files.h"
#include "runtime/checkpoint/save_plan.h"
#include "runtime/checkpoint/saving.h"

/* ---- between ranks --------------------------------------------------------------------------- */

typedef tutti_status_t (*take_t)(tt_manifest_t *plan, const tt_manifest_t *of_rank);

static const char *saved_as(const tt_manifest_t *manifest)
{
    return manifest->is_whole ? "whole tensors" : "slices";
}

static tutti_status_t take_text(const tt_saving_t *save, int rank, const tutti_buffer_t *text,
                                take_t take)
{
    tt_manifest_t *of_rank;
    char what[32];
    snprintf(what, sizeof what, "rank %d", rank);
    TT_TRY(tt_manifest_parse(what, tt_buffer_view(text), &of_rank));
    const tutti_status_t status =
        of_rank->step != save->step
            ? TT_FAIL(TUTTI_ERR_MISMATCH, "checkpoint: rank %d saves step %lld, rank 0 step %lld",
                      rank, (long long)of_rank->step, (long long)save->step)
        : of_rank->is_whole != save->plan->is_whole
            ? TT_FAIL(TUTTI_ERR_MISMATCH, "checkpoint: rank %d saves %s, rank 0 %s", rank,
                      saved_as(of_rank), saved_as(save->plan))
            : take(save->plan, of_rank);
    tt_manifest_release(of_rank);
    return status;
}

/* Each rank's manifest, on the root, to `take`; the root's own without a text. What the root does
 * not take, it alone knows. */
static tutti_status_t gather(const tt_saving_t *save, const tt_manifest_t *manifest, take_t take)
{
    tutti_group_t *group = save->checkpoint->group;
    tutti_buffer_t text = {0};
    if (save->ranks == 1) {
        return take(save->plan, manifest);
    }
    tutti_buffer_t *all = tt_alloc_array((size_t)save->ranks, sizeof *all, "checkpoint");
    tutti_status_t status = all == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0 && save->rank != 0) {
        status = tt_manifest_print(manifest, &text);
    }
    status = tt_group_agree(group, status);
    if (status >= 0) {
        status = tutti_gather_bytes(group, tt_buffer_view(&text), 0, save->rank == 0 ? all : NULL);
        status = status < 0 ? tt_group_give_up(group, status) : status;
    }
    for (int i = 0; i < save->ranks && status >= 0 && save->rank == 0; i++) {
        status = i == 0 ? take(save->plan, manifest) : take_text(save, i, &all[i], take);
    }
    for (int i = 0; i < save->ranks && all != NULL; i++) {
        tutti_buffer_release(&all[i]);
    }
    tt_free(all);
    tutti_buffer_release(&text);
    return status;
}

static tutti_status_t describe(tt_saving_t *save)
{
    const tutti_checkpoint_t *c = save->checkpoint;
    TT_TRY(tt_checkpoint_check(c));
    if (save->step < 0 || save->step > TT_STEP_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint: step %lld; want 0 to %lld",
                       (long long)save->step, (long long)TT_STEP_MAX);
    }
    TT_TRY(tt_checkpoint_state_saved(c, &save->state));
    TT_TRY(tt_pieces_of(save->state.slices, save->state.slice_count, &save->pieces));
    TT_TRY(tt_manifest_create(save->step, save->ranks, &save->own));
    save->own->is_whole = c->whole;
    TT_TRY(tt_checkpoint_texts_add(c, save->own));
    TT_TRY(tt_pieces_describe(save->state.slices, save->state.slice_count, &save->pieces, save->own,
                              save->rank));
    for (size_t i = 0; i < save->state.module_count && c->whole; i++) {
        tt_manifest_find(save->own, save->state.slices[i].name)->is_model = true;
    }
    return TUTTI_OK;
}

/* A disk is known by the folder on it. */
static tutti_status_t make_folder(const tt_saving_t *save)
{
    return save->checkpoint->per_host ? tt_folder_make(save->checkpoint->folder) : TUTTI_OK;
}

static tutti_status_t make_plan(tt_saving_t *save)
{
    if (save->rank == 0) {
        TT_TRY(tt_manifest_create(save->step, save->ranks, &save->plan));
        save->plan->is_whole = save->checkpoint->whole;
        save->plan->copies = save->disks.count > 1 ? save->checkpoint->host_copies : 0;
    }
    return TUTTI_OK;
}

/* What was shared is who has what, and where nothing is to be moved the plan. */
static tutti_status_t finish_plan(tt_saving_t *save)
{
    if (save->plan->is_whole) {
        save->has = save->plan;
        save->plan = NULL;
        TT_TRY(tt_save_plan_whole(save->has, &save->plan));
        save->plan->copies = save->has->copies;
    }
    TT_TRY(tt_disks_mark(&save->disks, save->plan));
    return save->plan->copies > 1 ? tt_disks_plan_copies(&save->disks, save->plan, &save->wanted)
                                  : TUTTI_OK;
}

static tutti_status_t plan_together(tt_saving_t *save)
{
    tutti_group_t *group = save->checkpoint->group;
    TT_TRY(tt_group_agree(group, describe(save)));
    TT_TRY(tt_group_agree(group, make_folder(save)));
    TT_TRY(tt_disks_find(save->checkpoint, &save->disks));
    TT_TRY(tt_group_agree(group, make_plan(save)));
    tutti_status_t status = gather(save, save->own, tt_save_plan_add);
    if (status >= 0 && save->rank == 0) {
        status = tt_save_plan_assign(save->plan);
    }
    TT_TRY(tt_manifest_share(group, status, "the plan of rank 0", &save->plan));
    return tt_group_agree(group, finish_plan(save));
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Where a rank has put its slices. */
static tutti_status_t take_report(tt_manifest_t *plan, const tt_manifest_t *of_rank)
{
    for (size_t i = 0; i < of_rank->tensor_count; i++) {
        const tt_saved_tensor_t *from = &of_rank->tensors[i];
        tt_saved_tensor_t *to = tt_manifest_find(plan, from->name);
        for (size_t k = 0; k < from->slice_count; k++) {
            for (size_t j = 0; to != NULL && j < to->slice_count; j++) {
                if (to->slices[j].rank == from->slices[k].rank &&
                    to->slices[j].file == from->slices[k].file) {
                    to->slices[j] = from->slices[k];
                }
            }
        }
    }
    return TUTTI_OK;
}

/* Of the plan what this rank has written. */
static tutti_status_t report_own(const tt_saving_t *save, tt_manifest_t **out)
{
    tt_manifest_t *report;
    TT_TRY(tt_manifest_create(save->step, save->ranks, &report));
    report->is_whole = save->plan->is_whole;
    tutti_status_t status = tt_manifest_copy_files(report, save->plan);
    for (size_t i = 0; i < save->plan->tensor_count && status >= 0; i++) {
        const tt_saved_tensor_t *from = &save->plan->tensors[i];
        for (size_t k = 0; k < from->slice_count && status >= 0; k++) {
            tt_saved_tensor_t *to;
            if (from->slices[k].rank == save->rank) {
                status = tt_manifest_add(report, from->name, from->dtype, from->shape, &to);
                status = status < 0 ? status : tt_manifest_add_slice(to, &from->slices[k]);
            }
        }
    }
    if (status < 0) {
        tt_manifest_release(report);
    } else {
        *out = report;
    }
    return status;
}

/* A rank that does not see it is told of when its files are missed. */
static void hold(tt_saving_t *save)
{
    save->held = tt_steps_hold(save->half);
    if (save->held < 0 && errno != ENOENT) {
        tt_log(TT_LOG_WARN,
               "checkpoint: folder %s: cannot hold it open: %s; whether it stays the same is not "
               "checked",
               save->half, strerror(errno));
    }
}

tutti_status_t tt_saving_begin(tt_saving_t *save)
{
    tutti_group_t *group = save->checkpoint->group;
    const char *folder = save->checkpoint->folder;
    tt_steps_half(folder, save->step, save->half);
    const bool is_first = save->disks.is_first;
    TT_TRY(tt_folder_lock_each(folder, group, is_first, true));
    if (save->disks.count > 1) {
        TT_TRY(tt_saving_begin_hosts(save));
    } else {
        TT_TRY(tt_group_agree(group, is_first ? tt_steps_begin(folder, save->step) : TUTTI_OK));
        save->is_begun = true;
    }
    hold(save);
    return TUTTI_OK;
}

tutti_status_t tt_saving_move(tt_saving_t *save)
{
    tt_pieces_t moved;
    if (save->has == NULL && save->wanted == NULL) {
        return TUTTI_OK;
    }
    const tt_manifest_t *has = save->has == NULL ? save->plan : save->has;
    const tt_manifest_t *wanted = save->wanted == NULL ? save->plan : save->wanted;
    TT_TRY(tt_pieces_exchange(save->checkpoint->group, has, wanted, &save->pieces, &moved));
    tt_pieces_release(&save->pieces);
    save->pieces = moved;
    return TUTTI_OK;
}

tutti_status_t tt_saving_write(tt_saving_t *save, tt_manifest_t **report)
{
    save->pieces.written = save->written;
    save->pieces.is_direct = save->is_beside;
    for (int rank = 0; rank < save->ranks; rank++) {
        if (rank == save->rank ||
            tt_disks_copies(&save->disks, save->plan->copies, rank, save->rank)) {
            TT_TRY(tt_rank_files_write(save->half, save->held, save->plan, rank, &save->pieces));
        }
    }
    return report_own(save, report);
}

tutti_status_t tt_saving_take(tt_saving_t *save, const tt_manifest_t *report)
{
    return take_report(save->plan, report);
}

/* ---- a save, from begin to end --------------------------------------------------------------- */

tutti_status_t tt_saving_plan(tt_saving_t *save, const tutti_checkpoint_t *checkpoint, int64_t step)
{
    tutti_group_t *group = checkpoint->group;
    *save = (tt_saving_t){.checkpoint = checkpoint,
                          .step = step,
                          .rank = group == NULL ? 0 : tutti_group_rank(group),
                          .ranks = group == NULL ? 1 : tutti_group_size(group),
                          .held = -1,
                          .begin_ns = tt_clock_ns()};
    return plan_together(save);
}

static tutti_status_t copy_piece(tt_piece_t *piece)
{
    tutti_tensor_t *copy;
    TT_TRY(tutti_tensor_create(tutti_tensor_dtype(piece->tensor), tutti_tensor_shape(piece->tensor),
                               &copy));
    const tutti_status_t status = tutti_tensor_copy(copy, piece->tensor);
    tutti_tensor_release(piece->tensor);
    piece->tensor = copy;
    piece->is_copy = true;
    return status;
}

/* What others write goes out of the list: its tensors are the training's, which may change them. */
tutti_status_t tt_saving_copy(tt_saving_t *save)
{
    tt_pieces_t *pieces = &save->pieces;
    size_t kept = 0;
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < pieces->count; i++) {
        tt_piece_t *piece = &pieces->pieces[i];
        if (!piece->is_copy && !tt_rank_files_has(save->plan, save->rank, piece)) {
            tutti_tensor_release(piece->tensor);
            continue;
        }
        status = piece->is_copy || status < 0 ? status : copy_piece(piece);
        pieces->pieces[kept++] = *piece;
    }
    pieces->count = kept;
    return status;
}

void tt_saving_end(tt_saving_t *save)
{
    tt_pieces_release(&save->pieces);
    (void)tt_checkpoint_state_end(&save->state, TUTTI_OK);
    tt_manifest_release(save->own);
    tt_manifest_release(save->plan);
    tt_manifest_release(save->has);
    tt_manifest_release(save->wanted);
    tt_disks_release(&save->disks);
    if (save->held >= 0) {
        close(save->held);
    }
    *save = (tt_saving_t){.held = -1};
}

static tutti_status_t publish_together(tt_saving_t *save, const tt_manifest_t *report)
{
    tutti_status_t status = gather(save, report, take_report);
    if (save->disks.count > 1) {
        return tt_saving_publish_hosts(save, status);
    }
    if (save->rank == 0 && status >= 0) {
        status = tt_saving_publish(save);
    }
    return tt_group_agree(save->checkpoint->group, status);
}

static tutti_status_t write_together(tt_saving_t *save)
{
    tt_manifest_t *report = NULL;
    TT_TRY(tt_saving_begin(save));
    TT_TRY(tt_saving_move(save));
    tutti_status_t status = tt_group_agree(save->checkpoint->group, tt_saving_write(save, &report));
    status = status < 0 ? status : publish_together(save, report);
    tt_manifest_release(report);
    return status;
}

tutti_status_t tt_saving_run(tt_saving_t *save)
{
    const tutti_status_t status = write_together(save);
    if (status < 0) {
        return tt_saving_abandon(save, status);
    }
    tt_saving_log(save);
    return TUTTI_OK;
}

tutti_status_t tutti_checkpoint_save(const tutti_checkpoint_t *checkpoint, int64_t step)
{
    TT_WANT("checkpoint_save", checkpoint);
    tt_saving_t save;
    tutti_status_t status = tt_saving_plan(&save, checkpoint, step);
    status = status < 0 ? status : tt_saving_run(&save);
    tt_saving_end(&save);
    return status;
}
