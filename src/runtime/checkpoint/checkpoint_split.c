/* Whatever can be opened, as a checkpoint of ours: each of so many ranks has a part of the rows of
 * every tensor. Ranks are written one after the other, a window of 16 MiB at a time in memory. */
#include <stdio.h>
#include <string.h>

#include <tutti/devices.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/folder.h"
#include "core/base/log.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/rank_files.h"
#include "runtime/checkpoint/save_plan.h"
#include "runtime/checkpoint/saved_impl.h"

typedef struct {
    tutti_saved_t *saved;
    const char *folder;
    const tutti_saved_watch_t *watch;
    tutti_device_t *meta;
    tt_manifest_t *plan;
    size_t *next; /* [tensors] of each, the first slice that is not written: ranks are in order */
    tt_path_t half;
    uint64_t done;
} split_t;

/* ---- the plan -------------------------------------------------------------------------------- */

/* Rows as evenly as it goes; what has none belongs to the first rank. */
static tt_box_t box_of(tutti_shape_t shape, int rank, int ranks)
{
    tt_box_t box = tt_box_of(shape);
    if (shape.rank == 0) {
        return box;
    }
    const int64_t rows = shape.dims[0], each = rows / ranks, more = rows % ranks;
    box.offset[0] = each * rank + (rank < more ? rank : more);
    box.size[0] = each + (rank < more);
    return box;
}

static tutti_status_t make_plan(split_t *split, int ranks)
{
    const tt_manifest_t *from = tt_saved_names(split->saved),
                        *source = split->saved->source.manifest;
    TT_TRY(tt_manifest_create(from->step, ranks, &split->plan));
    for (size_t i = 0; i < from->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &from->tensors[i];
        tt_saved_tensor_t *to;
        TT_TRY(tt_manifest_add(split->plan, tensor->name, tensor->dtype, tensor->shape, &to));
        for (int rank = 0; rank < (tensor->shape.rank == 0 ? 1 : ranks); rank++) {
            const tt_saved_slice_t slice = {
                .box = box_of(tensor->shape, rank, ranks), .rank = rank, .file = TT_NO_FILE};
            if (tt_box_numel(&slice.box) > 0) {
                TT_TRY(tt_manifest_add_slice(to, &slice));
            }
        }
    }
    for (size_t i = 0; i < source->text_count; i++) {
        TT_TRY(tt_manifest_add_text(split->plan, source->texts[i].name,
                                    tt_buffer_view(&source->texts[i].text)));
    }
    return tt_save_plan_assign(split->plan);
}

/* ---- writing --------------------------------------------------------------------------------- */

static tutti_status_t fetch(void *user, const tt_piece_t *piece, int64_t first,
                            tutti_tensor_t *window)
{
    split_t *split = user;
    TT_TRY(tt_saved_read_window(split->saved, piece->name, &piece->box, first, window));
    split->done += tutti_tensor_bytes(window);
    return tt_saved_advance(split->watch, split->done, split->saved->bytes);
}

/* What a rank has, without values: at most one slice of each tensor. */
static tutti_status_t list_pieces(const split_t *split, int rank, tt_pieces_t *pieces)
{
    for (size_t i = 0; i < split->plan->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &split->plan->tensors[i];
        const size_t next = split->next[i];
        if (next == tensor->slice_count || tensor->slices[next].rank != rank) {
            continue;
        }
        split->next[i]++;
        tt_piece_t *piece = &pieces->pieces[pieces->count];
        *piece = (tt_piece_t){.name = tensor->name,
                              .whole = tensor->shape,
                              .box = tensor->slices[next].box,
                              .place = &tensor->slices[next]};
        TT_TRY(tt_tensor_new(split->meta, tensor->dtype, tt_box_shape(&piece->box), false,
                             &piece->tensor));
        pieces->count++;
    }
    return TUTTI_OK;
}

static tutti_status_t write_rank(split_t *split, int rank)
{
    tt_pieces_t pieces = {.fetch = fetch, .user = split};
    pieces.pieces = tt_alloc_array(split->plan->tensor_count + 1, sizeof *pieces.pieces, "split");
    TT_TRY_ALLOC(pieces.pieces);
    tutti_status_t status = list_pieces(split, rank, &pieces);
    if (status >= 0) {
        status = tt_rank_files_write(split->half, -1, split->plan, rank, &pieces);
    }
    tt_pieces_release(&pieces);
    return status;
}

static tutti_status_t write_all(split_t *split)
{
    tt_path_t path;
    for (int rank = 0; rank < split->plan->ranks; rank++) {
        TT_TRY(write_rank(split, rank));
    }
    tt_steps_file(split->half, TT_MANIFEST_NAME, path);
    TT_TRY(tt_manifest_write(path, split->plan));
    return tt_steps_publish(split->folder, split->plan->step);
}

/* What was begun goes; the first failure stays. */
static tutti_status_t abandon(const split_t *split, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    if (tt_folder_remove(split->half) < 0) {
        tt_log(TT_LOG_WARN, "split: %s", tutti_last_error());
    }
    return tt_fail_again(status, text);
}

static tutti_status_t split_all(split_t *split, int ranks)
{
    TT_TRY(make_plan(split, ranks));
    split->next = tt_alloc_array(split->plan->tensor_count + 1, sizeof *split->next, "split");
    TT_TRY_ALLOC(split->next);
    TT_TRY(tutti_device_open("meta", NULL, &split->meta));
    TT_TRY(tt_folder_lock(split->folder, NULL, true));
    tt_steps_half(split->folder, split->plan->step, split->half);
    TT_TRY(tt_steps_begin(split->folder, split->plan->step));
    const tutti_status_t status = write_all(split);
    return status < 0 ? abandon(split, status) : status;
}

tutti_status_t tutti_saved_split(tutti_saved_t *saved, const char *folder, int ranks,
                                 const tutti_saved_watch_t *watch)
{
    static const tutti_saved_watch_t nobody;
    const tutti_checkpoint_t checkpoint = {.folder = folder};
    split_t split = {.saved = saved, .folder = folder, .watch = watch == NULL ? &nobody : watch};
    TT_TRY(tt_checkpoint_check(&checkpoint));
    if (ranks < 1 || ranks > 99999) {
        return TT_FAIL(TUTTI_ERR_ARG, "split: %d ranks; want 1 to 99999", ranks);
    }
    const tutti_status_t status = split_all(&split, ranks);
    tutti_device_release(split.meta);
    tt_manifest_release(split.plan);
    tt_free(split.next);
    return status;
}
