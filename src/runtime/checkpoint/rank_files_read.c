/* Reading parts of slices: whole blocks, each compared with its digest, a window of them at a time.
 *
 *     slice    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | …     blocks
 *     wanted        xxx x     xxxxx                runs
 *     windows      |1  |2  | |4  |5  |             blocks that touch are read at once
 *
 * Memory: a window of 1 MiB and its digests.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/rank_files.h"

enum { WINDOW_BLOCKS = 64 };

typedef struct {
    tt_file_t data, digests;
    const char *tensor; /* its name */
    const tt_saved_slice_t *slice;
    uint64_t bytes;      /* of the slice */
    uint64_t begin, end; /* bytes of it that are in the window */
    unsigned char *window;
    tt_digest_t *blocks; /* all of the slice's */
} reader_t;

/* ---- the digests of a slice ------------------------------------------------------------------ */

static tutti_status_t read_digests(reader_t *r)
{
    const uint64_t count = tt_block_count(r->bytes);
    const size_t bytes = (size_t)count * sizeof *r->blocks;
    r->blocks = tt_alloc_raw(bytes + 1, "checkpoint");
    TT_TRY_ALLOC(r->blocks);
    const uint64_t at = r->slice->first_block * sizeof *r->blocks;
    TT_TRY(tt_file_read_at(&r->digests, at, r->blocks, bytes));
    return tt_digest_equal(tt_digest_of(r->blocks, bytes), r->slice->digest)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: damaged: the digests of tensor \"%s\", %zu bytes at offset %" PRIu64
                         ", are not those of the manifest",
                         r->digests.path, r->tensor, bytes, at);
}

/* ---- windows --------------------------------------------------------------------------------- */

static tutti_status_t check_window(const reader_t *r)
{
    for (uint64_t at = r->begin; at < r->end; at += TT_BLOCK_BYTES) {
        const uint64_t left = r->end - at;
        const size_t bytes = left < TT_BLOCK_BYTES ? (size_t)left : TT_BLOCK_BYTES;
        if (!tt_digest_equal(tt_digest_of(r->window + (at - r->begin), bytes),
                             r->blocks[at / TT_BLOCK_BYTES])) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: damaged: tensor \"%s\", %zu bytes at offset %" PRIu64
                           ", are not what was written",
                           r->data.path, r->tensor, bytes, r->slice->at + at);
        }
    }
    return TUTTI_OK;
}

/* From the block of a run's first byte on, as far as the blocks of it and of the next ones touch.
 */
static tutti_status_t load_window(reader_t *r, uint64_t first, tt_runs_t runs, size_t size)
{
    uint64_t end = ((uint64_t)(runs.a + runs.count) * size - 1) / TT_BLOCK_BYTES + 1;
    const uint64_t begin = first / TT_BLOCK_BYTES;
    for (; end < begin + WINDOW_BLOCKS && runs.count > 0; tt_runs_next(&runs)) {
        if ((uint64_t)runs.a * size / TT_BLOCK_BYTES > end) {
            break;
        }
        end = ((uint64_t)(runs.a + runs.count) * size - 1) / TT_BLOCK_BYTES + 1;
    }
    end = end < begin + WINDOW_BLOCKS ? end : begin + WINDOW_BLOCKS;
    r->begin = begin * TT_BLOCK_BYTES;
    r->end = end * TT_BLOCK_BYTES < r->bytes ? end * TT_BLOCK_BYTES : r->bytes;
    TT_TRY(
        tt_file_read_at(&r->data, r->slice->at + r->begin, r->window, (size_t)(r->end - r->begin)));
    return check_window(r);
}

/* What of the slice is in the piece, to where it is there. */
static tutti_status_t copy_runs(reader_t *r, const tt_box_t *wanted, size_t size, char *to)
{
    r->begin = r->end = 0;
    for (tt_runs_t runs = tt_runs_of(&r->slice->box, wanted); runs.count > 0; tt_runs_next(&runs)) {
        const uint64_t stop = (uint64_t)(runs.a + runs.count) * size;
        for (uint64_t at = (uint64_t)runs.a * size; at < stop;) {
            if (at < r->begin || at >= r->end) {
                TT_TRY(load_window(r, at, runs, size));
            }
            const uint64_t end = stop < r->end ? stop : r->end;
            memcpy(to + (uint64_t)runs.b * size + (at - (uint64_t)runs.a * size),
                   r->window + (at - r->begin), (size_t)(end - at));
            at = end;
        }
    }
    return TUTTI_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static tutti_status_t open_files(const char *folder, reader_t *r)
{
    char name[64];
    tt_path_t path;
    snprintf(name, sizeof name, "rank-%05d-%d.safetensors", r->slice->rank, r->slice->file);
    tt_steps_file(folder, name, path);
    TT_TRY(tt_file_open(path, &r->data));
    snprintf(name, sizeof name, "rank-%05d-%d.digests", r->slice->rank, r->slice->file);
    tt_steps_file(folder, name, path);
    const tutti_status_t status = tt_file_open(path, &r->digests);
    if (status < 0) {
        tt_file_close(&r->data);
    }
    return status;
}

static tutti_status_t read_slice(const char *folder, reader_t *r, const tt_box_t *wanted,
                                 size_t size, char *to)
{
    TT_TRY(open_files(folder, r));
    tutti_status_t status = read_digests(r);
    if (status >= 0) {
        status = copy_runs(r, wanted, size, to);
    }
    tt_free(r->blocks);
    tt_file_close(&r->data);
    tt_file_close(&r->digests);
    return status;
}

static tutti_status_t read_slices(const char *folder, const tt_saved_tensor_t *saved,
                                  const tt_box_t *wanted, unsigned char *window, char *to)
{
    const size_t size = tutti_dtype_bytes(saved->dtype);
    for (size_t i = 0; i < saved->slice_count; i++) {
        tt_box_t both;
        const tt_saved_slice_t *slice = &saved->slices[i];
        if (tt_box_intersect(&slice->box, wanted, &both)) {
            reader_t reader = {.tensor = saved->name,
                               .slice = slice,
                               .bytes = (uint64_t)tt_box_numel(&slice->box) * size,
                               .window = window};
            TT_TRY(read_slice(folder, &reader, wanted, size, to));
        }
    }
    return TUTTI_OK;
}

/* Into the piece itself, or into memory from which it is copied. */
static tutti_status_t read_piece(const char *folder, const tt_saved_tensor_t *saved,
                                 const tt_piece_t *piece, unsigned char *window)
{
    tutti_tensor_t *x = piece->tensor, *host = NULL;
    const bool is_direct = tutti_tensor_device(x) == NULL && tutti_tensor_is_contiguous(x);
    if (!is_direct) {
        TT_TRY(tutti_tensor_create(saved->dtype, tutti_tensor_shape(x), &host));
    }
    tutti_status_t status =
        read_slices(folder, saved, &piece->box, window, tt_tensor_data(is_direct ? x : host));
    if (status >= 0 && !is_direct) {
        status = tutti_tensor_copy(x, host);
    }
    if (is_direct) {
        tt_tensor_touch(x);
    }
    tutti_tensor_release(host);
    return status;
}

tutti_status_t tt_rank_files_read(const char *folder, const tt_saved_tensor_t *saved,
                                  const tt_piece_t *piece)
{
    unsigned char *window = tt_alloc_raw(WINDOW_BLOCKS * TT_BLOCK_BYTES, "checkpoint");
    TT_TRY_ALLOC(window);
    const tutti_status_t status = read_piece(folder, saved, piece, window);
    tt_free(window);
    return status;
}
