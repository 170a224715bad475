/* Memory of one sample: a field whose shape is known lies where the caller says, or else in memory
 * that the sample owns, which grows and stays for the next sample.
 */
#include <string.h>

#include <tutti/data.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

bool tt_field_varies(const tutti_field_t *field)
{
    for (int i = 0; i < field->shape.rank; i++) {
        if (field->shape.dims[i] == TUTTI_ANY) {
            return true;
        }
    }
    return false;
}

tutti_shape_t tt_field_least(const tutti_field_t *field)
{
    tutti_shape_t shape = field->shape;
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = shape.dims[i] == TUTTI_ANY ? 0 : shape.dims[i];
    }
    return shape;
}

bool tt_field_equal(const tutti_field_t *a, const tutti_field_t *b)
{
    return a->dtype == b->dtype && tutti_shape_equal(a->shape, b->shape);
}

size_t tt_sample_bytes(const tutti_sample_t *sample, int field)
{
    return (size_t)tutti_shape_numel(sample->shapes[field]) *
           tutti_dtype_bytes(sample->dtypes[field]);
}

static tutti_status_t make_room(tutti_buffer_t *own, size_t bytes)
{
    if (own->data != NULL && own->bytes >= bytes) {
        return TUTTI_OK;
    }
    void *data = tt_alloc_raw(bytes, "sample");
    TT_TRY_ALLOC(data);
    tt_free(own->data);
    *own = (tutti_buffer_t){data, bytes};
    return TUTTI_OK;
}

static tutti_status_t make_own(tutti_sample_t *sample, int field)
{
    TT_TRY(make_room(&sample->own[field], tt_sample_bytes(sample, field)));
    sample->data[field] = sample->own[field].data;
    return TUTTI_OK;
}

/* A fixed field has its memory from here on, a field that varies none. */
tutti_status_t tt_sample_begin(tutti_sample_t *sample, const tutti_dataset_info_t *info)
{
    sample->field_count = info->field_count;
    for (int i = 0; i < info->field_count; i++) {
        const tutti_field_t *field = &info->fields[i];
        sample->dtypes[i] = field->dtype;
        sample->shapes[i] = field->shape;
        if (tt_field_varies(field)) {
            sample->data[i] = NULL;
        } else if (sample->data[i] == NULL || sample->data[i] == sample->own[i].data) {
            TT_TRY(make_own(sample, i));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_sample_check(const tutti_sample_t *sample, const tutti_dataset_t *d)
{
    for (int i = 0; i < sample->field_count; i++) {
        if (sample->data[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "data set %s: a sample's field %d was not given a shape: call "
                           "tutti_sample_resize() before it is written",
                           d->ops->name, i);
        }
    }
    return TUTTI_OK;
}

/* Whether sizes that the data set fixed are those, and the rank is. `declared` has TUTTI_ANY. */
static bool fits(tutti_shape_t declared, tutti_shape_t shape)
{
    for (int i = 0; i < declared.rank && declared.rank == shape.rank; i++) {
        if (declared.dims[i] != TUTTI_ANY && declared.dims[i] != shape.dims[i]) {
            return false;
        }
    }
    return declared.rank == shape.rank;
}

tutti_status_t tutti_sample_resize(tutti_sample_t *sample, int field, tutti_shape_t shape)
{
    if (field < 0 || field >= sample->field_count) {
        return TT_FAIL(TUTTI_ERR_ARG, "sample: field %d: it has %d", field, sample->field_count);
    }
    if (sample->data[field] != NULL && tutti_shape_equal(sample->shapes[field], shape)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_shape_check(sample->dtypes[field], shape));
    if (sample->data[field] != NULL || !fits(sample->shapes[field], shape)) {
        char is[200], was[200];
        return TT_FAIL(TUTTI_ERR_ARG, "sample: field %d is to be %s: the data set said %s%s", field,
                       tutti_shape_format(shape, is, sizeof is),
                       tutti_shape_format(sample->shapes[field], was, sizeof was),
                       sample->data[field] != NULL ? ", or it was resized before" : "");
    }
    sample->shapes[field] = shape;
    return make_own(sample, field);
}

tutti_status_t tutti_sample_copy(tutti_sample_t *to, const tutti_sample_t *from, int field)
{
    if (field < 0 || field >= from->field_count || field >= to->field_count ||
        from->dtypes[field] != to->dtypes[field]) {
        return TT_FAIL(TUTTI_ERR_ARG, "sample: field %d is copied: both must have it, of one dtype",
                       field);
    }
    TT_TRY(tutti_sample_resize(to, field, from->shapes[field]));
    const size_t bytes = tt_sample_bytes(from, field);
    if (bytes > 0) {
        memcpy(to->data[field], from->data[field], bytes);
    }
    return TUTTI_OK;
}

void tutti_sample_clear(tutti_sample_t *sample)
{
    for (int i = 0; sample != NULL && i < TUTTI_FIELDS_MAX; i++) {
        tt_free(sample->own[i].data);
    }
    if (sample != NULL) {
        *sample = (tutti_sample_t){0};
    }
}
