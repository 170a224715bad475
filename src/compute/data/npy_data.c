/* NumPy's .npy: files as tensors, tensors as files, and their rows as samples. */
#include <stdio.h>
#include <string.h>

#include <tutti/data_files.h>

#include "compute/data/npy.h"

#include "compute/data/dataset.h"
#include "compute/data/swap_elements.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

/* ---- reading --------------------------------------------------------------------------------- */

/* Elements as they stand in the file become those of a tensor: bytes in order, bools 0 or 1. */
static void finish(const tt_npy_t *npy, void *data, int64_t count)
{
    if (npy->is_swapped) {
        tt_swap_elements(data, (size_t)count, tutti_dtype_bytes(npy->dtype));
    }
    unsigned char *bytes = data;
    for (int64_t i = 0; i < count && npy->dtype == TUTTI_BOOL; i++) {
        bytes[i] = bytes[i] != 0;
    }
}

/* From the first index running fastest to the last one. */
static void turn(tutti_shape_t shape, size_t element, const char *from, char *to)
{
    int64_t at[TUTTI_RANK_MAX] = {0};
    for (int64_t i = tutti_shape_numel(shape); i > 0; i--, to += element) {
        int64_t offset = 0;
        for (int k = shape.rank - 1; k >= 0; k--) {
            offset = offset * shape.dims[k] + at[k];
        }
        memcpy(to, from + (size_t)offset * element, element);
        for (int k = shape.rank - 1; k >= 0 && ++at[k] == shape.dims[k]; k--) {
            at[k] = 0;
        }
    }
}

static tutti_status_t read_turned(const tt_file_t *file, const tt_npy_t *npy, tutti_tensor_t *x)
{
    const size_t bytes = tutti_tensor_bytes(x);
    char *raw = tt_alloc_raw(bytes, "npy elements");
    TT_TRY_ALLOC(raw);
    const tutti_status_t status = tt_file_read_at(file, npy->offset, raw, bytes);
    if (status >= 0) {
        turn(npy->shape, tutti_dtype_bytes(npy->dtype), raw, tutti_tensor_data(x));
    }
    tt_free(raw);
    return status;
}

static tutti_status_t load(const tt_file_t *file, const tt_npy_t *npy, tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(tt_tensor_new(NULL, npy->dtype, npy->shape, false, &x));
    const tutti_status_t status =
        npy->is_fortran
            ? read_turned(file, npy, x)
            : tt_file_read_at(file, npy->offset, tutti_tensor_data(x), tutti_tensor_bytes(x));
    if (status < 0) {
        tutti_tensor_release(x);
        return status;
    }
    finish(npy, tutti_tensor_data(x), tutti_tensor_numel(x));
    *out = x;
    return TUTTI_OK;
}

static tutti_status_t load_file(tt_file_t *file, tutti_tensor_t **out)
{
    tt_npy_t npy;
    tutti_status_t status = tt_npy_open(file, &npy);
    if (status >= 0) {
        status = load(file, &npy, out);
    }
    tt_file_close(file);
    return status;
}

tutti_status_t tutti_npy_read(const char *path, tutti_tensor_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    return load_file(&file, out);
}

tutti_status_t tutti_npy_parse(const char *name, tutti_bytes_t data, tutti_tensor_t **out)
{
    tt_file_t file;
    TT_TRY(tt_file_open_memory(name, data.data, data.bytes, &file));
    return load_file(&file, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { HEADER_BYTES = 256, PREFIX_BYTES = 10 };

static const char *descr_of(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_F32:
        return "<f4";
    case TUTTI_F64:
        return "<f8";
    case TUTTI_F16:
        return "<f2";
    case TUTTI_I64:
        return "<i8";
    case TUTTI_I32:
        return "<i4";
    case TUTTI_I8:
        return "|i1";
    case TUTTI_U8:
        return "|u1";
    case TUTTI_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

/* The prefix and the text, blanks to a multiple of 64, and a newline; returns their bytes. */
static size_t write_header(const tutti_tensor_t *x, char header[HEADER_BYTES])
{
    const tutti_shape_t shape = tutti_tensor_shape(x);
    static const char prefix[PREFIX_BYTES] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    int at = PREFIX_BYTES;
    memcpy(header, prefix, sizeof prefix);
    at += snprintf(header + at, HEADER_BYTES - PREFIX_BYTES,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (",
                   descr_of(tutti_tensor_dtype(x)));
    for (int i = 0; i < shape.rank; i++) {
        at += snprintf(header + at, (size_t)(HEADER_BYTES - at), "%lld%s", (long long)shape.dims[i],
                       shape.rank == 1      ? ","
                       : i + 1 < shape.rank ? ", "
                                            : "");
    }
    at += snprintf(header + at, (size_t)(HEADER_BYTES - at), "), }");
    const int end = (at + 1 + 63) / 64 * 64;
    memset(header + at, ' ', (size_t)(end - at));
    header[end - 1] = '\n';
    header[8] = (char)((end - PREFIX_BYTES) & 255);
    header[9] = (char)((end - PREFIX_BYTES) >> 8);
    return (size_t)end;
}

static tutti_status_t check_written(const char *path, const tutti_tensor_t *x)
{
    char text[200];
    TT_TRY(tutti_tensor_status(x));
    TT_TRY(tt_want_host(path, x));
    if (descr_of(tutti_tensor_dtype(x)) == NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: NumPy has no %s: copy it to f32 before", path,
                       tutti_dtype_name(tutti_tensor_dtype(x)));
    }
    if (!tutti_tensor_is_contiguous(x)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s is not contiguous: copy it before", path,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_npy_write(const char *path, const tutti_tensor_t *x)
{
    char header[HEADER_BYTES];
    tt_new_file_t file;
    TT_TRY(check_written(path, x));
    const size_t bytes = write_header(x, header);
    TT_TRY(tt_new_file_begin(path, &file));
    tutti_status_t status = tt_new_file_write(&file, header, bytes);
    if (status >= 0) {
        status = tt_new_file_write(&file, tutti_tensor_data(x), tutti_tensor_bytes(x));
    }
    return tt_new_file_end(&file, status);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct {
    tt_file_t file;
    tt_npy_t npy;
    tutti_tensor_t *whole; /* of a file in Fortran order */
} part_t;

typedef struct {
    part_t parts[TUTTI_FIELDS_MAX];
    int count; /* of open files */
} state_t;

static tutti_status_t open_part(part_t *part, int64_t *rows, tutti_field_t *field)
{
    TT_TRY(tt_npy_open(&part->file, &part->npy));
    const tutti_shape_t shape = part->npy.shape;
    if (shape.rank < 1) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "data set npy: %s is one number: rows are expected",
                       part->file.path);
    }
    if (*rows != TUTTI_ANY && *rows != shape.dims[0]) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "data set npy: %s has %lld rows, the first file %lld",
                       part->file.path, (long long)shape.dims[0], (long long)*rows);
    }
    *rows = shape.dims[0];
    *field = (tutti_field_t){.dtype = part->npy.dtype, .shape = {.rank = shape.rank - 1}};
    memcpy(field->shape.dims, shape.dims + 1, (size_t)field->shape.rank * sizeof *shape.dims);
    return part->npy.is_fortran ? load(&part->file, &part->npy, &part->whole) : TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_npy_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    TT_TRY(tt_want_paths("npy", o->paths, o->path_count, TUTTI_FIELDS_MAX));
    int64_t rows = TUTTI_ANY;
    *info = (tutti_dataset_info_t){.field_count = o->path_count};
    for (int i = 0; i < o->path_count; i++) {
        TT_TRY(tt_file_open(o->paths[i], &state->parts[i].file));
        state->count++;
        TT_TRY(open_part(&state->parts[i], &rows, &info->fields[i]));
    }
    info->count = rows;
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    state_t *state = d->state;
    for (int i = 0; i < state->count; i++) {
        tutti_tensor_release(state->parts[i].whole);
        tt_file_close(&state->parts[i].file);
    }
}

static tutti_status_t read_row(const part_t *part, const tutti_field_t *field, int64_t index,
                               void *to)
{
    const size_t bytes = tt_field_bytes(field);
    const uint64_t offset = (uint64_t)index * bytes;
    if (part->whole != NULL && bytes > 0) {
        memcpy(to, (const char *)tutti_tensor_data(part->whole) + offset, bytes);
    }
    if (part->whole != NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_file_read_at(&part->file, part->npy.offset + offset, to, bytes));
    finish(&part->npy, to, tutti_shape_numel(field->shape));
    return TUTTI_OK;
}

static tutti_status_t read_sample(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const state_t *state = d->state;
    for (int i = 0; i < state->count; i++) {
        TT_TRY(read_row(&state->parts[i], &d->info.fields[i], index, to->data[i]));
    }
    return TUTTI_OK;
}

const tutti_dataset_ops_t tutti_npy_dataset = {
    .name = "npy",
    .about = "rows of NumPy's .npy files",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_sample,
};
