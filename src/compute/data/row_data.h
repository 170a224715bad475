/* Samples that are rows of tensors, a tensor for each field: what tensors, IDX files, CSV and other
 * files that are read into memory have in common.
 */
#ifndef TT_ROW_DATA_H
#define TT_ROW_DATA_H

#include <tutti/data.h>

typedef struct {
    int count;                                 /* of fields */
    tutti_tensor_t *values[TUTTI_FIELDS_MAX];  /* retained */
    tutti_tensor_t *offsets[TUTTI_FIELDS_MAX]; /* NULL, or i64 [N + 1]: of rows of several rows of
                                                  values; retained */
} tt_rows_t;

/* Check that all have as many rows; `kind` stands in messages. Nothing is retained. */
tutti_status_t tt_rows_describe(const char *kind, const tt_rows_t *rows,
                                tutti_dataset_info_t *info);

/* ops->read and ops->fini of a data set whose state begins with rows. */
tutti_status_t tt_rows_read(tutti_dataset_t *d, int64_t index, tutti_sample_t *to);
void tt_rows_fini(tutti_dataset_t *d);

#endif
