/* Rows of tensors in memory. */
#include "compute/data/row_data.h"

#include <string.h>
#include <tutti/devices.h>

#include "compute/data/dataset.h"

/* The part of x that is one row. */
static tutti_field_t row_of(const tutti_tensor_t *x)
{
    const tutti_shape_t shape = tutti_tensor_shape(x);
    tutti_field_t field = {.dtype = tutti_tensor_dtype(x), .shape = {.rank = shape.rank - 1}};
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

tutti_status_t tt_rows_describe(const char *kind, const tt_rows_t *rows, tutti_dataset_info_t *info)
{
    if (rows->input == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: there is no input", kind);
    }
    TT_TRY(check_rows(kind, "input", rows->input));
    *info = (tutti_dataset_info_t){.count = tutti_tensor_dim(rows->input, 0),
                                   .input = row_of(rows->input)};
    if (rows->target == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(check_rows(kind, "target", rows->target));
    if (tutti_tensor_dim(rows->target, 0) != info->count) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "data set %s: %lld inputs, but %lld targets", kind,
                       (long long)info->count, (long long)tutti_tensor_dim(rows->target, 0));
    }
    info->has_target = true;
    info->target = row_of(rows->target);
    return TUTTI_OK;
}

static void read_row(const tutti_tensor_t *x, const tutti_field_t *field, int64_t index, void *to)
{
    const size_t bytes = tt_field_bytes(field);
    if (bytes > 0) {
        memcpy(to, (const char *)tutti_tensor_data(x) + (size_t)index * bytes, bytes);
    }
}

tutti_status_t tt_rows_read(tutti_dataset_t *d, int64_t index, void *input, void *target)
{
    const tt_rows_t *rows = d->state;
    read_row(rows->input, &d->info.input, index, input);
    if (rows->target != NULL) {
        read_row(rows->target, &d->info.target, index, target);
    }
    return TUTTI_OK;
}

void tt_rows_fini(tutti_dataset_t *d)
{
    const tt_rows_t *rows = d->state;
    tutti_tensor_release(rows->input);
    tutti_tensor_release(rows->target);
}
