/* The inside of a data set, and the list of kinds. */
#ifndef TT_DATASET_H
#define TT_DATASET_H

#include <tutti/data.h>

#include "core/base/fail.h"
#include "core/base/ref.h"

struct tutti_dataset {
    tt_ref_t ref;
    const tutti_dataset_ops_t *ops;
    tutti_dataset_info_t info;
    void *state;
    bool is_begun; /* init was called */
};

extern const tutti_dataset_ops_t *const tt_datasets[];
extern const size_t tt_dataset_count;

/* Elements of one sample × bytes of one element. */
size_t tt_field_bytes(const tutti_field_t *field);

/* [size, the field's shape]; ARG if that is too many dimensions. */
tutti_status_t tt_batch_shape(const tutti_field_t *field, int64_t size, tutti_shape_t *out);

#endif
