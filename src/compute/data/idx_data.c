/* IDX files as a data set: both are read into memory. */
#include <tutti/data_files.h>

#include "compute/data/dataset.h"
#include "compute/data/row_data.h"

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_idx_options_t *o = options;
    tt_rows_t *rows = tutti_dataset_state(d);
    rows->count = o->targets == NULL ? 1 : 2;
    if (o->inputs == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set idx: the path of the inputs is required");
    }
    TT_TRY(tutti_idx_read(o->inputs, &rows->values[0]));
    if (o->targets != NULL) {
        TT_TRY(tutti_idx_read(o->targets, &rows->values[1]));
    }
    return tt_rows_describe("idx", rows, info);
}

const tutti_dataset_ops_t tutti_idx_dataset = {
    .name = "idx",
    .about = "rows of IDX files, such as MNIST's",
    .state_bytes = sizeof(tt_rows_t),
    .init = init,
    .fini = tt_rows_fini,
    .read = tt_rows_read,
};
