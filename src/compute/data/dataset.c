/* Data sets: making and sharing them. */
#include <tutti/data.h>
#include <tutti/devices.h>

#include <limits.h>

#include "compute/data/dataset.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

size_t tt_field_bytes(const tutti_field_t *field)
{
    return (size_t)tutti_shape_numel(field->shape) * tutti_dtype_bytes(field->dtype);
}

static tutti_status_t check_ops(const tutti_dataset_ops_t *ops)
{
    const bool is_stream = ops->open != NULL && ops->next != NULL && ops->close != NULL;
    if (ops->init == NULL || (ops->read == NULL && ops->draw == NULL && !is_stream)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set %s: init, and read or draw, are required; of a stream init, open, "
                       "next and close",
                       ops->name);
    }
    return TUTTI_OK;
}

static tutti_status_t check_info(const tutti_dataset_t *d)
{
    const tutti_dataset_info_t *info = &d->info;
    if (info->field_count < 1 || info->field_count > TUTTI_FIELDS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: samples of %d fields: 1 to %d can be",
                       d->ops->name, info->field_count, TUTTI_FIELDS_MAX);
    }
    for (int i = 0; i < info->field_count; i++) {
        TT_TRY(tt_shape_check(info->fields[i].dtype, tt_field_least(&info->fields[i])));
    }
    if (!tt_is_stream(d) && (info->count < 0 || (d->ops->read == NULL && d->ops->draw == NULL))) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: a count of %lld does not fit its functions",
                       d->ops->name, (long long)info->count);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options)
{
    d->state = tt_alloc(d->ops->state_bytes, "data set");
    TT_TRY_ALLOC(d->state);
    TT_TRY(check_ops(d->ops));
    d->is_begun = true;
    TT_TRY(d->ops->init(d, options, &d->info));
    return check_info(d);
}

tutti_status_t tutti_dataset_create(const tutti_dataset_ops_t *kind, const void *options,
                                    tutti_dataset_t **out)
{
    TT_WANT("dataset_create", kind);
    TT_WANT("dataset_create", out);
    if (options == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: options are required", kind->name);
    }
    tutti_dataset_t *d = tt_alloc(sizeof *d, "data set");
    TT_TRY_ALLOC(d);
    tt_ref_init(&d->ref);
    d->ops = kind;
    const tutti_status_t status = init(d, options);
    if (status < 0) {
        tutti_dataset_release(d);
        return status;
    }
    *out = d;
    return TUTTI_OK;
}

tutti_dataset_t *tutti_dataset_retain(tutti_dataset_t *d)
{
    tt_ref_retain(&d->ref);
    return d;
}

void tutti_dataset_release(tutti_dataset_t *d)
{
    if (d != NULL && tt_ref_release(&d->ref)) {
        if (d->is_begun && d->ops->fini != NULL) {
            d->ops->fini(d);
        }
        tt_free(d->state);
        tt_free(d);
    }
}

void *tutti_dataset_state(tutti_dataset_t *d)
{
    return d->state;
}

tutti_dataset_info_t tutti_dataset_info(const tutti_dataset_t *d)
{
    return d->info;
}

tutti_status_t tutti_dataset_read(tutti_dataset_t *d, int64_t index, tutti_draw_t draw,
                                  tutti_sample_t *sample)
{
    TT_TRY(tt_want_numbered("read", d));
    if (index < 0 || index >= d->info.count) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: sample %lld: it has %lld", d->ops->name,
                       (long long)index, (long long)d->info.count);
    }
    TT_TRY(tt_sample_begin(sample, &d->info));
    TT_TRY(d->ops->draw != NULL ? d->ops->draw(d, index, draw, sample)
                                : d->ops->read(d, index, sample));
    return tt_sample_check(sample, d);
}

tutti_status_t tt_batch_shape(tutti_shape_t shape, int64_t size, tutti_shape_t *out)
{
    if (shape.rank >= TUTTI_RANK_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "loader: samples of %d dimensions leave none for the batch",
                       shape.rank);
    }
    *out = (tutti_shape_t){.rank = shape.rank + 1, .dims = {size}};
    for (int i = 0; i < shape.rank; i++) {
        out->dims[i + 1] = shape.dims[i];
    }
    return TUTTI_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

tutti_status_t tt_want_paths(const char *kind, const char *const *paths, int count, int most)
{
    if (count < 1 || count > most) {
        return most == INT_MAX
                   ? TT_FAIL(TUTTI_ERR_ARG, "data set %s: %d paths: at least one is required", kind,
                             count)
                   : TT_FAIL(TUTTI_ERR_ARG, "data set %s: %d paths: 1 to %d are required", kind,
                             count, most);
    }
    for (int i = 0; i < count; i++) {
        if (paths == NULL || paths[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "data set %s: path %d of %d is missing", kind, i, count);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_want_host(const char *path, const tutti_tensor_t *x)
{
    return tutti_tensor_device(x) == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: what is written lies on %s: copy it to the host before", path,
                         tutti_device_name(tutti_tensor_device(x)));
}

/* ---- streams --------------------------------------------------------------------------------- */

tutti_status_t tt_want_numbered(const char *kind, const tutti_dataset_t *d)
{
    return tt_is_stream(d) ? TT_FAIL(TUTTI_ERR_ARG,
                                     "data set %s: %s is a stream, which has no numbered samples",
                                     kind, d->ops->name)
                           : TUTTI_OK;
}

tutti_status_t tt_stream_next(tutti_dataset_t *d, void *cursor, tutti_sample_t *to)
{
    TT_TRY(tt_sample_begin(to, &d->info));
    const tutti_status_t status = d->ops->next(d, cursor, to);
    return status == TUTTI_OK ? tt_sample_check(to, d) : status;
}

static tutti_status_t read_past(tutti_dataset_t *d, void *cursor, int64_t count, int64_t *passed)
{
    tutti_sample_t sample = {0};
    tutti_status_t status = TUTTI_OK;
    while (*passed < count && status == TUTTI_OK) {
        status = tt_stream_next(d, cursor, &sample);
        *passed += status == TUTTI_OK;
    }
    tutti_sample_clear(&sample);
    return status < 0 ? status : TUTTI_OK;
}

tutti_status_t tt_stream_skip(tutti_dataset_t *d, void *cursor, int64_t count, int64_t *passed)
{
    *passed = 0;
    return d->ops->skip != NULL ? d->ops->skip(d, cursor, count, passed)
                                : read_past(d, cursor, count, passed);
}
