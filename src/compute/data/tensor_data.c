/* Tensors in memory as a data set. */
#include "compute/data/dataset.h"
#include "compute/data/row_data.h"

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_tensor_data_options_t *o = options;
    tt_rows_t *rows = tutti_dataset_state(d);
    rows->input = o->input == NULL ? NULL : tutti_tensor_retain(o->input);
    rows->target = o->target == NULL ? NULL : tutti_tensor_retain(o->target);
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
