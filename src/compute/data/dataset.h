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

/* ---- fields ---------------------------------------------------------------------------------- */

/* Whether a size of it is TUTTI_ANY. */
bool tt_field_varies(const tutti_field_t *field);

/* Its shape, with 0 for TUTTI_ANY. */
tutti_shape_t tt_field_least(const tutti_field_t *field);

bool tt_field_equal(const tutti_field_t *a, const tutti_field_t *b);

/* Elements of one sample × bytes of one element; of a field that does not vary. */
size_t tt_field_bytes(const tutti_field_t *field);

/* [size, shape]; ARG if that is too many dimensions. */
tutti_status_t tt_batch_shape(tutti_shape_t shape, int64_t size, tutti_shape_t *out);

/* What most kinds have: an input and a target. */
static inline tutti_dataset_info_t tt_pair_info(tutti_field_t input, tutti_field_t target)
{
    return (tutti_dataset_info_t){.field_count = 2, .fields = {input, target}};
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Bytes of a field of this sample. */
size_t tt_sample_bytes(const tutti_sample_t *sample, int field);

/* Before a data set writes it: say what its fields are, and make the memory that is missing. */
tutti_status_t tt_sample_begin(tutti_sample_t *sample, const tutti_dataset_info_t *info);

/* Afterwards: STATE if a field has no shape yet. */
tutti_status_t tt_sample_check(const tutti_sample_t *sample, const tutti_dataset_t *d);

/* ---- files ----------------------------------------------------------------------------------- */

/* ARG, with the name of the kind: fewer than one path or more than `most`, or one is missing. */
tutti_status_t tt_want_paths(const char *kind, const char *const *paths, int count, int most);

/* ARG: what is to be written to a file lies on a device. */
tutti_status_t tt_want_host(const char *path, const tutti_tensor_t *x);

/* ---- streams --------------------------------------------------------------------------------- */

static inline bool tt_is_stream(const tutti_dataset_t *d)
{
    return d->ops->open != NULL && d->info.count == TUTTI_ANY;
}

/* ARG, with the name of the kind that wants numbered samples. */
tutti_status_t tt_want_numbered(const char *kind, const tutti_dataset_t *d);

/* The next sample of a cursor, or TUTTI_END. */
tutti_status_t tt_stream_next(tutti_dataset_t *d, void *cursor, tutti_sample_t *to);

/* Pass samples by; `passed` is less than `count` at the end only. */
tutti_status_t tt_stream_skip(tutti_dataset_t *d, void *cursor, int64_t count, int64_t *passed);

#endif
