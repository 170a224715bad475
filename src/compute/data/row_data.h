/* Samples that are rows of one or two tensors: what tensors and IDX files have in common. */
#ifndef TT_ROW_DATA_H
#define TT_ROW_DATA_H

#include <tutti/data.h>

typedef struct {
    tutti_tensor_t *input, *target; /* retained; target may be NULL */
} tt_rows_t;

/* Check that both have as many rows; `kind` stands in messages. Nothing is retained. */
tutti_status_t tt_rows_describe(const char *kind, const tt_rows_t *rows,
                                tutti_dataset_info_t *info);

/* ops->read and ops->fini of a data set whose state begins with rows. */
tutti_status_t tt_rows_read(tutti_dataset_t *d, int64_t index, void *input, void *target);
void tt_rows_fini(tutti_dataset_t *d);

#endif
