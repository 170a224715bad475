/* Writing a rank's files. Each byte is hashed on its way to the file. */
#include <limits.h>

#include <jansson.h>

#include "core/base/alloc.h"
#include "core/tensor/safetensors_impl.h"
#include "runtime/checkpoint/rank_files.h"

/* A piece that is to be written, and its place in the plan. */
typedef struct {
    const tt_piece_t *piece;
    tt_saved_slice_t *slice;
} job_t;

typedef struct {
    const char *folder;
    int held;
    const tutti_named_tensor_t *tensors; /* [count] of the file */
    job_t *const *jobs;                  /* [count] */
    size_t count;
    tt_digest_t *blocks; /* of the whole file */
    uint64_t block_count;
    const tt_pieces_t *pieces;
    const tt_saved_slice_t *current; /* whose blocks come */
} one_file_t;

_Static_assert(TT_SAFETENSORS_PART_BYTES % TT_BLOCK_BYTES == 0, "parts are whole blocks");

static tutti_status_t digest(void *user, const tutti_named_tensor_t *tensor, uint64_t at,
                             const void *data, size_t bytes)
{
    one_file_t *file = user;
    tt_saved_slice_t *slice = file->jobs[tensor - file->tensors]->slice;
    if (file->current != slice) {
        file->current = slice;
        slice->at = at;
        slice->first_block = file->block_count;
    }
    tt_digest_blocks(data, bytes, file->blocks + file->block_count);
    file->block_count += tt_block_count(bytes);
    if (file->pieces->written != NULL) {
        *file->pieces->written += bytes;
    }
    return TUTTI_OK;
}

static tutti_status_t fetch(void *user, const tutti_named_tensor_t *tensor, int64_t first,
                            tutti_tensor_t *window)
{
    const one_file_t *file = user;
    return file->pieces->fetch(file->pieces->user, file->jobs[tensor - file->tensors]->piece, first,
                               window);
}

/* Of the digests of their blocks. */
static void digest_slices(const one_file_t *file)
{
    for (size_t i = 0; i < file->count; i++) {
        tt_saved_slice_t *slice = file->jobs[i]->slice;
        const uint64_t count = tt_block_count(tutti_tensor_bytes(file->tensors[i].tensor));
        const tt_digest_t *blocks = file->blocks + slice->first_block;
        slice->digest = tt_digest_of(blocks, (size_t)count * sizeof *blocks);
    }
}

static tutti_status_t write_digests(const char *path, const one_file_t *file)
{
    tt_new_file_t new_file;
    TT_TRY(tt_steps_check_held(file->folder, file->held));
    TT_TRY(tt_new_file_begin(path, &new_file));
    return tt_new_file_end(&new_file,
                           tt_new_file_write(&new_file, file->blocks,
                                             (size_t)file->block_count * sizeof *file->blocks));
}

/* {"up.weight": {"saved_offsets": [2, 0]}}, as PyTorch's HuggingFaceStorageReader reads it. */
static tutti_status_t print_offsets(const one_file_t *file, char **out)
{
    json_t *all = json_object();
    bool is_whole = all != NULL;
    for (size_t i = 0; i < file->count && is_whole; i++) {
        const tt_box_t *box = &file->jobs[i]->slice->box;
        json_t *offsets = json_array();
        for (int d = 0; d < box->rank && is_whole; d++) {
            is_whole = json_array_append_new(offsets, json_integer(box->offset[d])) == 0;
        }
        is_whole = json_object_set_new(all, file->tensors[i].name,
                                       json_pack("{s:o}", "saved_offsets", offsets)) == 0 &&
                   is_whole;
    }
    const size_t bytes = is_whole ? json_dumpb(all, NULL, 0, JSON_COMPACT) : 0;
    *out = bytes > 0 ? tt_alloc(bytes + 1, "checkpoint") : NULL;
    const bool is_printed = *out != NULL && json_dumpb(all, *out, bytes, JSON_COMPACT) == bytes;
    json_decref(all);
    if (!is_printed) {
        tt_free(*out);
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory, or a name that is not UTF-8: checkpoint");
    }
    return TUTTI_OK;
}

static tutti_status_t write_file(const tt_saved_file_t *names, one_file_t *file)
{
    char *offsets;
    tt_path_t path;
    const tt_safetensors_watch_t watch = {digest, file, file->pieces->fetch == NULL ? NULL : fetch,
                                          file->pieces->is_direct};
    TT_TRY(tt_steps_check_held(file->folder, file->held));
    TT_TRY(print_offsets(file, &offsets));
    const tutti_named_text_t metadata[] = {{"DCP_SHARDING_INFO", offsets}, {"format", "pt"}};
    tt_steps_file(file->folder, names->name, path);
    tutti_status_t status =
        tt_safetensors_save(path, file->tensors, file->count, metadata, 2, &watch);
    tt_free(offsets);
    TT_TRY(status);
    digest_slices(file);
    tt_steps_file(file->folder, names->digests, path);
    return write_digests(path, file);
}

/* ---- the jobs of a rank ---------------------------------------------------------------------- */

static tt_saved_slice_t *find_slice(const tt_manifest_t *plan, int rank, const tt_piece_t *piece)
{
    tt_saved_tensor_t *tensor = tt_manifest_find(plan, piece->name);
    for (size_t i = 0; tensor != NULL && i < tensor->slice_count; i++) {
        if (tensor->slices[i].rank == rank && tt_box_equal(&tensor->slices[i].box, &piece->box)) {
            return &tensor->slices[i];
        }
    }
    return NULL;
}

bool tt_rank_files_has(const tt_manifest_t *plan, int rank, const tt_piece_t *piece)
{
    return find_slice(plan, rank, piece) != NULL;
}

/* What of the pieces this rank writes; returns how many, and its files: [first, end). */
static size_t list_jobs(tt_manifest_t *plan, int rank, const tt_pieces_t *pieces, job_t *jobs,
                        int files[2])
{
    size_t count = 0;
    files[0] = INT_MAX;
    files[1] = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const tt_piece_t *piece = &pieces->pieces[i];
        tt_saved_slice_t *slice =
            piece->place != NULL ? piece->place : find_slice(plan, rank, piece);
        if (slice != NULL) {
            jobs[count++] = (job_t){piece, slice};
            files[0] = slice->file < files[0] ? slice->file : files[0];
            files[1] = slice->file >= files[1] ? slice->file + 1 : files[1];
        }
    }
    return count;
}

/* Memory for the largest file. */
typedef struct {
    job_t *jobs, **of_file;
    tutti_named_tensor_t *tensors;
    tt_digest_t *blocks;
} room_t;

static tutti_status_t make_room(const tt_pieces_t *pieces, room_t *room)
{
    uint64_t blocks = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        blocks += tt_block_count(tutti_tensor_bytes(pieces->pieces[i].tensor));
    }
    room->jobs = tt_alloc_array(pieces->count + 1, sizeof *room->jobs, "checkpoint");
    room->of_file = tt_alloc_array(pieces->count + 1, sizeof *room->of_file, "checkpoint");
    room->tensors = tt_alloc_array(pieces->count + 1, sizeof *room->tensors, "checkpoint");
    room->blocks = tt_alloc_array((size_t)blocks + 1, sizeof *room->blocks, "checkpoint");
    return room->jobs == NULL || room->of_file == NULL || room->tensors == NULL ||
                   room->blocks == NULL
               ? TUTTI_ERR_NOMEM
               : TUTTI_OK;
}

static void free_room(room_t *room)
{
    tt_free(room->jobs);
    tt_free(room->of_file);
    tt_free(room->tensors);
    tt_free(room->blocks);
}

static tutti_status_t write_files(const one_file_t *empty, tt_manifest_t *plan, int rank,
                                  const room_t *room)
{
    int files[2];
    const size_t count = list_jobs(plan, rank, empty->pieces, room->jobs, files);
    for (int number = files[0]; number < files[1]; number++) {
        one_file_t file = *empty;
        for (size_t i = 0; i < count; i++) {
            if (room->jobs[i].slice->file == number) {
                room->of_file[file.count] = &room->jobs[i];
                room->tensors[file.count++] =
                    (tutti_named_tensor_t){room->jobs[i].piece->name, room->jobs[i].piece->tensor};
            }
        }
        TT_TRY(write_file(&plan->files[number], &file));
    }
    return TUTTI_OK;
}

tutti_status_t tt_rank_files_write(const char *folder, int held, tt_manifest_t *plan, int rank,
                                   const tt_pieces_t *pieces)
{
    room_t room = {0};
    tutti_status_t status = make_room(pieces, &room);
    if (status >= 0) {
        const one_file_t empty = {.folder = folder,
                                  .held = held,
                                  .tensors = room.tensors,
                                  .jobs = room.of_file,
                                  .blocks = room.blocks,
                                  .pieces = pieces};
        status = write_files(&empty, plan, rank, &room);
    }
    free_room(&room);
    return status;
}
