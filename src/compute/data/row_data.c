/* Rows of tensors in memory. */
#include "compute/data/row_data.h"

#include <stdio.h>
#include <string.h>
#include <tutti/devices.h>

#include "compute/data/dataset.h"

/* The part of x that is one row; where several rows are one, it begins with TUTTI_ANY. */
static tutti_field_t row_of(const tutti_tensor_t *x, bool is_ragged)
{
    const tutti_shape_t shape = tutti_tensor_shape(x);
    tutti_field_t field = {.dtype = tutti_tensor_dtype(x), .shape = shape};
    if (is_ragged) {
        field.shape.dims[0] = TUTTI_ANY;
        return field;
    }
    field.shape = (tutti_shape_t){.rank = shape.rank - 1};
    memcpy(field.shape.dims, shape.dims + 1, (size_t)field.shape.rank * sizeof *shape.dims);
    return field;
}

static tutti_status_t check_rows(const char *kind, const char *what, const tutti_tensor_t *x)
{
    TT_TRY(tutti_tensor_status(x));
    char text[200];
    if (tutti_tensor_rank(x) < 1 || !tutti_tensor_is_contiguous(x)) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "data set %s: the %s is %s: it must be contiguous rows",
                       kind, what, tutti_tensor_describe(x, text, sizeof text));
    }
    if (tutti_tensor_device(x) != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set %s: the %s lies on %s: rows are read by the host, and the loader "
                       "brings batches to the context's device",
                       kind, what, tutti_device_name(tutti_tensor_device(x)));
    }
    return TUTTI_OK;
}

/* Offsets go up from 0 or more to the rows that there are at most. */
static tutti_status_t check_offsets(const char *kind, const char *what, const tutti_tensor_t *x,
                                    const tutti_tensor_t *offsets)
{
    char text[200];
    TT_TRY(check_rows(kind, "offsets", offsets));
    if (tutti_tensor_dtype(offsets) != TUTTI_I64 || tutti_tensor_rank(offsets) != 1 ||
        tutti_tensor_numel(offsets) < 1) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "data set %s: the offsets of the %s are %s: expected i64[N "
                       "+ 1]",
                       kind, what, tutti_tensor_describe(offsets, text, sizeof text));
    }
    const int64_t *at = tutti_tensor_data(offsets), rows = tutti_tensor_dim(x, 0);
    int64_t last = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(offsets); i++) {
        if (at[i] < last || at[i] > rows) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "data set %s: offset %lld of the %s is %lld: it must be from %lld to "
                           "%lld",
                           kind, (long long)i, what, (long long)at[i], (long long)last,
                           (long long)rows);
        }
        last = at[i];
    }
    return TUTTI_OK;
}

static const char *name_field(int field, char *text, size_t bytes)
{
    static const char *const names[] = {"input", "target"};
    if (field < 2) {
        return names[field];
    }
    snprintf(text, bytes, "field %d", field);
    return text;
}

static tutti_status_t describe_field(const char *kind, const tt_rows_t *rows, int field,
                                     tutti_dataset_info_t *info)
{
    char text[32];
    const char *what = name_field(field, text, sizeof text);
    const tutti_tensor_t *x = rows->values[field], *offsets = rows->offsets[field];
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: there is no %s", kind, what);
    }
    TT_TRY(check_rows(kind, what, x));
    int64_t count = tutti_tensor_dim(x, 0);
    if (offsets != NULL) {
        TT_TRY(check_offsets(kind, what, x, offsets));
        count = tutti_tensor_numel(offsets) - 1;
    }
    if (field > 0 && count != info->count) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "data set %s: %lld inputs, but %lld %s%s", kind,
                       (long long)info->count, (long long)count, field == 1 ? "targets" : "of ",
                       field == 1 ? "" : what);
    }
    info->count = count;
    info->fields[field] = row_of(x, offsets != NULL);
    return TUTTI_OK;
}

tutti_status_t tt_rows_describe(const char *kind, const tt_rows_t *rows, tutti_dataset_info_t *info)
{
    *info = (tutti_dataset_info_t){.field_count = rows->count};
    for (int i = 0; i < rows->count; i++) {
        TT_TRY(describe_field(kind, rows, i, info));
    }
    return TUTTI_OK;
}

/* Rows of values that are one of the data set, from begin on. */
static tutti_status_t read_rows(const tt_rows_t *rows, int field, int64_t index, tutti_sample_t *to)
{
    const tutti_tensor_t *x = rows->values[field], *offsets = rows->offsets[field];
    int64_t begin = index;
    if (offsets != NULL) {
        const int64_t *at = tutti_tensor_data(offsets);
        tutti_shape_t shape = tutti_tensor_shape(x);
        begin = at[index];
        shape.dims[0] = at[index + 1] - begin;
        TT_TRY(tutti_sample_resize(to, field, shape));
    }
    const size_t bytes = tt_sample_bytes(to, field);
    if (bytes > 0) {
        const size_t row = tutti_tensor_bytes(x) / (size_t)tutti_tensor_dim(x, 0);
        memcpy(to->data[field], (const char *)tutti_tensor_data(x) + (size_t)begin * row, bytes);
    }
    return TUTTI_OK;
}

tutti_status_t tt_rows_read(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const tt_rows_t *rows = d->state;
    for (int i = 0; i < rows->count; i++) {
        TT_TRY(read_rows(rows, i, index, to));
    }
    return TUTTI_OK;
}

void tt_rows_fini(tutti_dataset_t *d)
{
    const tt_rows_t *rows = d->state;
    for (int i = 0; i < TUTTI_FIELDS_MAX; i++) {
        tutti_tensor_release(rows->values[i]);
        tutti_tensor_release(rows->offsets[i]);
    }
}
