/* Tensors in memory as a data set. */
#include "compute/data/dataset.h"
#include "compute/data/row_data.h"

/* The tensor of a field, as options have it; NULL if it is missing. */
static tutti_tensor_t *field_of(const tutti_tensor_data_options_t *o, int field)
{
    tutti_tensor_t *const named[] = {o->input, o->target};
    return field < 2 ? named[field] : o->more[field - 2];
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_tensor_data_options_t *o = options;
    tt_rows_t *rows = tutti_dataset_state(d);
    if (o->more_count < 0 || o->more_count > TUTTI_FIELDS_MAX - 2 ||
        (o->more_count > 0 && o->target == NULL)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set tensor: %d fields beside input and target: at most %d can be, and "
                       "both must be there",
                       o->more_count, TUTTI_FIELDS_MAX - 2);
    }
    rows->count = o->target == NULL ? 1 : 2 + o->more_count;
    for (int i = 0; i < rows->count; i++) {
        tutti_tensor_t *x = field_of(o, i), *offsets = o->offsets == NULL ? NULL : o->offsets[i];
        rows->values[i] = x == NULL ? NULL : tutti_tensor_retain(x);
        rows->offsets[i] = offsets == NULL ? NULL : tutti_tensor_retain(offsets);
    }
    return tt_rows_describe("tensor", rows, info);
}

const tutti_dataset_ops_t tutti_tensor_dataset = {
    .name = "tensor",
    .about = "rows of tensors in memory",
    .state_bytes = sizeof(tt_rows_t),
    .init = init,
    .fini = tt_rows_fini,
    .read = tt_rows_read,
};
