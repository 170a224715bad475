/* Which gradient lies in which bucket, and where: a plan, made by a pure function.
 *
 * Gradients become ready roughly in the reverse of the order in which parameters are used, so
 * buckets are filled from the last parameter to the first: bucket 0 is ready first. It is small,
 * so that communication starts early. A bucket holds one dtype of one device (one of each may be
 * open) and is
 * closed as soon as it has reached its cap; they are numbered as they are complete. A parameter
 * larger than the cap has a bucket to itself. Parameters of two units are never in one.
 *
 *     parameters   0 1 2 3 4 5 6         slots of a bucket start at multiples of 64 bytes:
 *     buckets      2 2 1 1 1 0 0         | grad 6 |pad| grad 5 |pad|
 */
#ifndef TT_BUCKET_PLAN_H
#define TT_BUCKET_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/dtype.h>

#include "core/base/fail.h"

typedef struct {
    int64_t numel;
    tutti_dtype_t dtype;
    int device; /* a number for each, from 0 on, below TT_BUCKET_DEVICES_MAX */
    int unit;
} tt_bucket_param_t;

enum { TT_BUCKET_DEVICES_MAX = 16 };

typedef struct {
    int bucket;
    int64_t offset; /* elements from the start of the bucket */
} tt_bucket_slot_t;

typedef struct {
    tutti_dtype_t dtype;
    int unit;
    int param_count;
    int first;     /* where its parameters begin in plan.members */
    int last;      /* of the order: when it is complete */
    int64_t numel; /* with padding */
} tt_bucket_spec_t;

typedef struct {
    int param_count, bucket_count;
    tt_bucket_slot_t *slots; /* [param_count] */
    int *members;            /* [param_count] parameters of bucket 0, then of bucket 1, …; of each
                                in their own order */
    tt_bucket_spec_t *buckets; /* [bucket_count] */
} tt_bucket_plan_t;

/* Fills the plan; give it back with tt_bucket_plan_fini.
 * order: [param_count] in which gradients come; NULL: from the last parameter to the first. */
tutti_status_t tt_bucket_plan_init(const tt_bucket_param_t *params, int param_count,
                                   const int *order, size_t first_bytes, size_t bytes,
                                   tt_bucket_plan_t *out);
bool tt_bucket_plan_equal(const tt_bucket_plan_t *a, const tt_bucket_plan_t *b);
void tt_bucket_plan_fini(tt_bucket_plan_t *plan);

/* The plan as text, a line a bucket: "bucket 0: f32, 1048576 bytes, parameters 5 6". */
size_t tt_bucket_plan_format(const tt_bucket_plan_t *plan, char *text, size_t text_bytes);

#endif
