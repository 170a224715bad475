/* Reading slices, a window of blocks at a time.
 *
 *     slice    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | …     blocks
 *     wanted        xxx x     xxxxx                runs
 *     windows      |1  |2  | |4  |5  |             blocks that touch are read at once
 *
 * A whole block of a run is read to where it is wanted, and compared with its digest there.
 *
 * What is of another dtype, on a device, or not contiguous there, is read beside it and copied,
 * some rows at a time.
 */
#include "runtime/checkpoint/slice_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/cast_check.h"

enum { WINDOW_BLOCKS = 32, BESIDE_BYTES = 16 << 20 };

tutti_status_t tt_slice_reader_open(tt_slice_reader_t *reader, const char *folder,
                                    const tt_manifest_t *manifest)
{
    *reader = (tt_slice_reader_t){0};
    tt_open_files_init(&reader->files, folder, manifest);
    reader->window = tt_alloc_raw(WINDOW_BLOCKS * TT_BLOCK_BYTES, "checkpoint");
    TT_TRY_ALLOC(reader->window);
    return TUTTI_OK;
}

void tt_slice_reader_close(tt_slice_reader_t *reader)
{
    tt_open_files_close(&reader->files);
    tt_free(reader->window);
    tt_free(reader->blocks);
    *reader = (tt_slice_reader_t){0};
}

/* A slice that is being read. */
typedef struct {
    tt_slice_reader_t *reader;
    const tt_file_t *data;
    const tt_saved_tensor_t *tensor;
    const tt_saved_slice_t *slice;
    size_t size;         /* of an element */
    uint64_t bytes;      /* of the slice */
    uint64_t begin, end; /* bytes of it that are in the window */
} read_t;

/* ---- the digests of a slice ------------------------------------------------------------------ */

static bool has_digests(const read_t *r)
{
    return r->reader->files.manifest->files[r->slice->file].digests != NULL;
}

static tutti_status_t read_digests(const read_t *r)
{
    tt_slice_reader_t *reader = r->reader;
    const tt_file_t *file;
    const size_t bytes = (size_t)tt_block_count(r->bytes) * sizeof *reader->blocks;
    const uint64_t at = r->slice->first_block * sizeof *reader->blocks;
    TT_TRY(tt_open_files_get(&reader->files, r->slice->file, TT_FILE_DIGESTS, &file));
    tt_digest_t *blocks = tt_realloc(reader->blocks, bytes, "checkpoint");
    TT_TRY_ALLOC(blocks);
    reader->blocks = blocks;
    TT_TRY(tt_file_read_at(file, at, blocks, bytes));
    return tt_digest_equal(tt_digest_of(blocks, bytes), r->slice->digest)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT,
                         "%s: damaged: the digests of tensor \"%s\", %zu bytes at offset %" PRIu64
                         ", are not those of the manifest",
                         file->path, r->tensor->name, bytes, at);
}

/* Those of the slice that was read last are still there. */
static tutti_status_t know_digests(const read_t *r)
{
    if (r->reader->known != r->slice && has_digests(r)) {
        r->reader->known = NULL;
        TT_TRY(read_digests(r));
        r->reader->known = r->slice;
    }
    return TUTTI_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Of the slice's bytes from `begin` on, a block's first, which are in memory at `data`. */
static tutti_status_t check_blocks(const read_t *r, uint64_t begin, uint64_t end, const char *data)
{
    tt_digest_t digests[WINDOW_BLOCKS];
    const size_t count = (size_t)tt_block_count(end - begin);
    const uint64_t first = begin / TT_BLOCK_BYTES;
    tt_digest_blocks(data, (size_t)(end - begin), digests);
    for (size_t i = 0; i < count; i++) {
        if (!tt_digest_equal(digests[i], r->reader->blocks[first + i])) {
            const uint64_t at = begin + i * TT_BLOCK_BYTES, left = end - at;
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: damaged: tensor \"%s\", %zu bytes at offset %" PRIu64
                           ", are not what was written",
                           r->data->path, r->tensor->name,
                           left < TT_BLOCK_BYTES ? (size_t)left : TT_BLOCK_BYTES,
                           r->slice->at + at);
        }
    }
    return TUTTI_OK;
}

/* A byte that is neither 0 nor 1 is no bool in C. */
static tutti_status_t check_bools(const read_t *r, uint64_t begin, uint64_t end, const char *data)
{
    for (uint64_t at = begin; at < end; at++) {
        const int byte = (unsigned char)data[at - begin];
        if (byte > 1) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "%s: tensor \"%s\": byte %d at offset %" PRIu64
                           ": expected 0 or 1, a bool",
                           r->data->path, r->tensor->name, byte, r->slice->at + at);
        }
    }
    return TUTTI_OK;
}

/* So many as a window has at most. */
static tutti_status_t read_blocks(const read_t *r, uint64_t begin, uint64_t end, char *data)
{
    TT_TRY(tt_file_read_at(r->data, r->slice->at + begin, data, (size_t)(end - begin)));
    TT_TRY(has_digests(r) ? check_blocks(r, begin, end, data) : TUTTI_OK);
    return r->tensor->dtype == TUTTI_BOOL ? check_bools(r, begin, end, data) : TUTTI_OK;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* From the block of a run's first byte on, as far as the blocks of it and of the next ones touch.
 */
static tutti_status_t load_window(read_t *r, uint64_t first, tt_runs_t runs)
{
    uint64_t end = ((uint64_t)(runs.a + runs.count) * r->size - 1) / TT_BLOCK_BYTES + 1;
    const uint64_t begin = first / TT_BLOCK_BYTES;
    for (; end < begin + WINDOW_BLOCKS && runs.count > 0; tt_runs_next(&runs)) {
        if ((uint64_t)runs.a * r->size / TT_BLOCK_BYTES > end) {
            break;
        }
        end = ((uint64_t)(runs.a + runs.count) * r->size - 1) / TT_BLOCK_BYTES + 1;
    }
    end = end < begin + WINDOW_BLOCKS ? end : begin + WINDOW_BLOCKS;
    r->begin = begin * TT_BLOCK_BYTES;
    r->end = end * TT_BLOCK_BYTES < r->bytes ? end * TT_BLOCK_BYTES : r->bytes;
    return read_blocks(r, r->begin, r->end, r->reader->window);
}

/* To where a run goes, from `at` to its end in the slice, what comes next of it: whole blocks into
 * their place, where they are checked; parts of blocks out of a window. Moves `at`. */
static tutti_status_t read_next(read_t *r, tt_runs_t runs, uint64_t *at, uint64_t stop, char *to)
{
    const uint64_t whole = stop == r->bytes ? stop : stop / TT_BLOCK_BYTES * TT_BLOCK_BYTES;
    uint64_t end = *at + WINDOW_BLOCKS * TT_BLOCK_BYTES;
    end = end < whole ? end : whole;
    const bool is_in_window = *at >= r->begin && *at < r->end;
    if (!is_in_window && *at % TT_BLOCK_BYTES == 0 && end > *at) {
        TT_TRY(read_blocks(r, *at, end, to));
    } else {
        TT_TRY(is_in_window ? TUTTI_OK : load_window(r, *at, runs));
        end = stop < r->end ? stop : r->end;
        memcpy(to, r->reader->window + (*at - r->begin), (size_t)(end - *at));
    }
    *at = end;
    return TUTTI_OK;
}

/* What of the slice is in the box, to where it is there. */
static tutti_status_t read_runs(read_t *r, const tt_box_t *box, char *to)
{
    const size_t size = r->size;
    for (tt_runs_t runs = tt_runs_of(&r->slice->box, box); runs.count > 0; tt_runs_next(&runs)) {
        const uint64_t stop = (uint64_t)(runs.a + runs.count) * size;
        const uint64_t begin = (uint64_t)runs.a * size;
        for (uint64_t at = begin; at < stop;) {
            TT_TRY(read_next(r, runs, &at, stop, to + (uint64_t)runs.b * size + (at - begin)));
        }
    }
    return TUTTI_OK;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* What one slice has of the box. */
static tutti_status_t read_slice(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                 const tt_saved_slice_t *slice, const tt_box_t *box, char *to)
{
    const size_t size = tutti_dtype_bytes(saved->dtype);
    read_t read = {.reader = reader,
                   .tensor = saved,
                   .slice = slice,
                   .size = size,
                   .bytes = (uint64_t)tt_box_numel(&slice->box) * size};
    TT_TRY(tt_open_files_get(&reader->files, slice->file, TT_FILE_DATA, &read.data));
    TT_TRY(know_digests(&read));
    return read_runs(&read, box, to);
}

/* Into memory of the host, in the saved dtype. */
static tutti_status_t read_box(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                               const tt_box_t *box, char *to)
{
    int64_t left = tt_box_numel(box);
    for (size_t i = 0; i < saved->slice_count && left > 0; i++) {
        tt_box_t both;
        if (tt_box_intersect(&saved->slices[i].box, box, &both)) {
            TT_TRY(read_slice(reader, saved, &saved->slices[i], box, to));
            left -= tt_box_numel(&both);
        }
    }
    return left == 0 ? TUTTI_OK
                     : TT_FAIL(TUTTI_ERR_FORMAT,
                               "%s: tensor \"%s\": %" PRId64 " elements are in no slice",
                               reader->files.folder, saved->name, left);
}

/* The element of a box at a place in its row-major order, as "[3, 0, 7]" into text. */
static void format_element(const tt_box_t *box, size_t at, char text[160])
{
    int64_t index[TUTTI_RANK_MAX];
    size_t bytes = 0;
    for (int d = box->rank; d-- > 0; at /= (size_t)box->size[d]) {
        index[d] = box->offset[d] + (int64_t)(at % (size_t)box->size[d]);
    }
    for (int d = 0; d < box->rank; d++) {
        bytes += (size_t)snprintf(text + bytes, 160 - bytes, "%s%" PRId64, d == 0 ? "[" : ", ",
                                  index[d]);
    }
    snprintf(text + bytes, 160 - bytes, box->rank == 0 ? "[]" : "]");
}

/* What another dtype would change into something else. */
static tutti_status_t check_cast(const tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                 const tt_box_t *box, const tutti_tensor_t *host,
                                 tutti_dtype_t dtype)
{
    size_t at;
    double value;
    char element[160];
    if (!tt_cast_loses(saved->dtype, tt_tensor_data(host), (size_t)tt_box_numel(box), dtype, &at,
                       &value)) {
        return TUTTI_OK;
    }
    format_element(box, at, element);
    return TT_FAIL(TUTTI_ERR_DTYPE,
                   "%s: tensor \"%s\": element %s, %.15g, is beyond the range of %s",
                   reader->files.folder, saved->name, element, value, tutti_dtype_name(dtype));
}

static tutti_status_t read_beside(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                  const tt_box_t *box, tutti_tensor_t *x)
{
    tutti_tensor_t *host;
    TT_TRY(tutti_tensor_create(saved->dtype, tt_box_shape(box), &host));
    tutti_status_t status = read_box(reader, saved, box, tt_tensor_data(host));
    status = status < 0 ? status : check_cast(reader, saved, box, host, tutti_tensor_dtype(x));
    if (status >= 0) {
        status = tutti_tensor_copy(x, host);
    }
    tutti_tensor_release(host);
    return status;
}

/* Rows of dimension d of both. */
static tutti_status_t take_rows(tutti_tensor_t *x, tt_box_t *box, int d, int64_t first,
                                int64_t count, tutti_tensor_t **rows)
{
    tutti_shape_t shape = x->shape;
    shape.dims[d] = count;
    box->offset[d] += first;
    box->size[d] = count;
    return tt_tensor_over(x->storage, x->dtype, shape, x->strides,
                          x->offset + first * x->strides[d], rows);
}

/* Rows of dimension d at a time, so many that they are not too much memory; a single one that is,
 * by those of the next dimension. */
static tutti_status_t read_rows(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                const tt_box_t *box, tutti_tensor_t *x, int d)
{
    const int64_t bytes = tt_box_numel(box) * (int64_t)tutti_dtype_bytes(saved->dtype);
    if (bytes <= BESIDE_BYTES || d == box->rank) {
        return read_beside(reader, saved, box, x);
    }
    const int64_t fit = BESIDE_BYTES / (bytes / box->size[d]), step = fit > 0 ? fit : 1;
    for (int64_t first = 0; first < box->size[d]; first += step) {
        const int64_t left = box->size[d] - first;
        tt_box_t part = *box;
        tutti_tensor_t *rows;
        TT_TRY(take_rows(x, &part, d, first, left < step ? left : step, &rows));
        const tutti_status_t status = read_rows(reader, saved, &part, rows, d + 1);
        tutti_tensor_release(rows);
        TT_TRY(status);
    }
    return TUTTI_OK;
}

tutti_status_t tt_slice_reader_read(tt_slice_reader_t *reader, const tt_saved_tensor_t *saved,
                                    const tt_box_t *box, tutti_tensor_t *x)
{
    const bool is_direct = tutti_tensor_device(x) == NULL && tutti_tensor_is_contiguous(x) &&
                           tutti_tensor_dtype(x) == saved->dtype;
    if (!is_direct) {
        return read_rows(reader, saved, box, x, 0);
    }
    const tutti_status_t status = read_box(reader, saved, box, tt_tensor_data(x));
    tt_tensor_touch(x);
    return status;
}
