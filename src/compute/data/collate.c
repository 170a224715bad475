/* Samples side by side: stacked, padded or packed. A batch is cut into rows, the innermost run of
 * bytes that both a sample and the batch have without a gap, and each is copied to its place.
 */
#include <tutti/collate.h>

#include <string.h>

#include "compute/data/dataset.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t make(const tutti_collate_call_t *call, tutti_shape_t shape,
                           tutti_tensor_t **out)
{
    return tt_tensor_new(NULL, call->field->dtype, shape, false, out);
}

static tutti_shape_t shape_of(const tutti_collate_call_t *call, int64_t sample)
{
    return call->samples[sample].shapes[call->index];
}

static const void *data_of(const tutti_collate_call_t *call, int64_t sample)
{
    return call->samples[sample].data[call->index];
}

static size_t bytes_of(const tutti_collate_call_t *call, int64_t sample)
{
    return tt_sample_bytes(&call->samples[sample], call->index);
}

/* One behind another. */
static void copy_all(const tutti_collate_call_t *call, char *to)
{
    for (int64_t i = 0; i < call->size; i++) {
        const size_t bytes = bytes_of(call, i);
        if (bytes > 0) {
            memcpy(to, data_of(call, i), bytes);
        }
        to += bytes;
    }
}

/* ---- stacked --------------------------------------------------------------------------------- */

tutti_status_t tutti_collate_stack(const void *options, const tutti_collate_call_t *call,
                                   tutti_collated_t *out)
{
    (void)options;
    tutti_shape_t shape, first = call->size > 0 ? shape_of(call, 0) : tt_field_least(call->field);
    for (int64_t i = 1; i < call->size; i++) {
        if (!tutti_shape_equal(first, shape_of(call, i))) {
            char one[200], other[200];
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "field %d: sample %lld of the batch is %s, its first is %s: let "
                           "options.collate pad or pack them, or give them one shape",
                           call->index, (long long)i,
                           tutti_shape_format(shape_of(call, i), other, sizeof other),
                           tutti_shape_format(first, one, sizeof one));
        }
    }
    TT_TRY(tt_batch_shape(first, call->size, &shape));
    TT_TRY(make(call, shape, &out->values));
    copy_all(call, tutti_tensor_data(out->values));
    return TUTTI_OK;
}

/* ---- padded ---------------------------------------------------------------------------------- */

static tutti_status_t check_pad(const tutti_pad_options_t *o)
{
    if (o->multiple < 0 || o->length < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "pad: multiple is %lld, length %lld: they must be at least 0",
                       (long long)o->multiple, (long long)o->length);
    }
    return TUTTI_OK;
}

/* To a multiple, which may lie beyond all numbers. */
static tutti_status_t round_up(const tutti_pad_options_t *o, int field, int64_t most, int64_t *out)
{
    const int64_t multiple = o->multiple > 0 ? o->multiple : 1;
    const int64_t pieces = most / multiple + (most % multiple != 0);
    if (pieces > INT64_MAX / multiple) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "field %d: %lld padded to a multiple of %lld is more than a size can be",
                       field, (long long)most, (long long)multiple);
    }
    *out = pieces * multiple;
    return TUTTI_OK;
}

/* The sizes that all samples get. */
static tutti_status_t pad_sizes(const tutti_pad_options_t *o, const tutti_collate_call_t *call,
                                tutti_shape_t *sizes)
{
    *sizes = tt_field_least(call->field);
    for (int k = 0; k < sizes->rank; k++) {
        if (call->field->shape.dims[k] != TUTTI_ANY) {
            continue;
        }
        for (int64_t i = 0; i < call->size; i++) {
            const int64_t size = shape_of(call, i).dims[k];
            if (o->length > 0 && size > o->length) {
                return TT_FAIL(TUTTI_ERR_SHAPE,
                               "field %d: sample %lld of the batch has size %lld in dimension %d: "
                               "it is padded to %lld: cut it before, or raise length",
                               call->index, (long long)i, (long long)size, k, (long long)o->length);
            }
            sizes->dims[k] = size > sizes->dims[k] ? size : sizes->dims[k];
        }
        TT_TRY(
            round_up(o, call->index, o->length > 0 ? o->length : sizes->dims[k], &sizes->dims[k]));
    }
    return TUTTI_OK;
}

/* A sample into its room of `sizes`, row by row. */
static void place(tutti_shape_t from, tutti_shape_t sizes, const tutti_pad_options_t *o,
                  size_t element, const char *data, char *to)
{
    int64_t strides[TUTTI_RANK_MAX], at[TUTTI_RANK_MAX] = {0};
    const int last = from.rank - 1;
    if (tutti_shape_numel(from) == 0 || from.rank == 0) {
        memcpy(to, data, from.rank == 0 ? element : 0);
        return;
    }
    tt_shape_strides(sizes, strides);
    const size_t row = (size_t)from.dims[last] * element;
    for (int k = 0; k <= last && o->left; k++) {
        to += (size_t)((sizes.dims[k] - from.dims[k]) * strides[k]) * element;
    }
    for (int64_t rows = tutti_shape_numel(from) / from.dims[last]; rows > 0; rows--) {
        int64_t offset = 0;
        for (int k = 0; k < last; k++) {
            offset += at[k] * strides[k];
        }
        memcpy(to + (size_t)offset * element, data, row);
        data += row;
        for (int k = last - 1; k >= 0 && ++at[k] == from.dims[k]; k--) {
            at[k] = 0;
        }
    }
}

/* i64 [size], or [size, n]. */
static tutti_status_t make_lengths(const tutti_collate_call_t *call, tutti_tensor_t **out)
{
    const tutti_shape_t declared = call->field->shape;
    int varying = 0;
    for (int k = 0; k < declared.rank; k++) {
        varying += declared.dims[k] == TUTTI_ANY;
    }
    const tutti_shape_t shape =
        varying > 1 ? TUTTI_SHAPE(call->size, varying) : TUTTI_SHAPE(call->size);
    if (varying == 0) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_new(NULL, TUTTI_I64, shape, false, out));
    int64_t *to = tutti_tensor_data(*out);
    for (int64_t i = 0; i < call->size; i++) {
        for (int k = 0; k < declared.rank; k++) {
            if (declared.dims[k] == TUTTI_ANY) {
                *to++ = shape_of(call, i).dims[k];
            }
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_collate_pad(const void *options, const tutti_collate_call_t *call,
                                 tutti_collated_t *out)
{
    const tutti_pad_options_t none = {0}, *o = options == NULL ? &none : options;
    tutti_shape_t sizes, shape;
    TT_TRY(check_pad(o));
    TT_TRY(pad_sizes(o, call, &sizes));
    TT_TRY(tt_batch_shape(sizes, call->size, &shape));
    TT_TRY(make(call, shape, &out->values));
    TT_TRY(tutti_tensor_fill(out->values, o->value));
    const size_t element = tutti_dtype_bytes(call->field->dtype);
    const size_t room = (size_t)tutti_shape_numel(sizes) * element;
    char *to = tutti_tensor_data(out->values);
    for (int64_t i = 0; i < call->size; i++, to += room) {
        place(shape_of(call, i), sizes, o, element, data_of(call, i), to);
    }
    return make_lengths(call, &out->lengths);
}

/* ---- packed ---------------------------------------------------------------------------------- */

static tutti_status_t check_pack(const tutti_collate_call_t *call)
{
    const tutti_shape_t shape = call->field->shape;
    bool is_fit = shape.rank > 0;
    for (int k = 1; k < shape.rank; k++) {
        is_fit = is_fit && shape.dims[k] != TUTTI_ANY;
    }
    if (!is_fit) {
        char text[200];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "field %d is %s: packing needs a first dimension, and only that may differ "
                       "from sample to sample",
                       call->index, tutti_shape_format(shape, text, sizeof text));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_collate_pack(const void *options, const tutti_collate_call_t *call,
                                  tutti_collated_t *out)
{
    (void)options;
    TT_TRY(check_pack(call));
    TT_TRY(tt_tensor_new(NULL, TUTTI_I64, TUTTI_SHAPE(call->size + 1), false, &out->lengths));
    int64_t *offsets = tutti_tensor_data(out->lengths);
    offsets[0] = 0;
    for (int64_t i = 0; i < call->size; i++) {
        offsets[i + 1] = offsets[i] + shape_of(call, i).dims[0];
    }
    tutti_shape_t shape = call->field->shape;
    shape.dims[0] = offsets[call->size];
    TT_TRY(make(call, shape, &out->values));
    copy_all(call, tutti_tensor_data(out->values));
    return TUTTI_OK;
}
