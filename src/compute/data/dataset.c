/* Data sets: making and sharing them. */
#include <tutti/data.h>

#include "compute/data/dataset.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

size_t tt_field_bytes(const tutti_field_t *field)
{
    return (size_t)tutti_shape_numel(field->shape) * tutti_dtype_bytes(field->dtype);
}

static tutti_status_t init(tutti_dataset_t *d, const void *options)
{
    d->state = tt_alloc(d->ops->state_bytes, "data set");
    TT_TRY_ALLOC(d->state);
    if (d->ops->init == NULL || (d->ops->read == NULL && d->ops->draw == NULL)) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: init, and read or draw, are required",
                       d->ops->name);
    }
    d->is_begun = true;
    TT_TRY(d->ops->init(d, options, &d->info));
    TT_TRY(tt_shape_check(d->info.input.dtype, d->info.input.shape));
    return d->info.has_target ? tt_shape_check(d->info.target.dtype, d->info.target.shape)
                              : TUTTI_OK;
}

tutti_status_t tutti_dataset_create(const tutti_dataset_ops_t *kind, const void *options,
                                    tutti_dataset_t **out)
{
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

tutti_status_t tutti_dataset_read(tutti_dataset_t *d, int64_t index, tutti_draw_t draw, void *input,
                                  void *target)
{
    if (index < 0 || index >= d->info.count) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set %s: sample %lld: it has %lld", d->ops->name,
                       (long long)index, (long long)d->info.count);
    }
    void *to = d->info.has_target ? target : NULL;
    return d->ops->draw != NULL ? d->ops->draw(d, index, draw, input, to)
                                : d->ops->read(d, index, input, to);
}

tutti_status_t tt_batch_shape(const tutti_field_t *field, int64_t size, tutti_shape_t *out)
{
    if (field->shape.rank >= TUTTI_RANK_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "loader: samples of %d dimensions leave none for the batch",
                       field->shape.rank);
    }
    *out = (tutti_shape_t){.rank = field->shape.rank + 1, .dims = {size}};
    for (int i = 0; i < field->shape.rank; i++) {
        out->dims[i + 1] = field->shape.dims[i];
    }
    return TUTTI_OK;
}
