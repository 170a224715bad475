/* Versions of weights, for schedules that step inside a batch (decision 0029).
 *
 *     stage 0 of 2   F0 F1 B0 S F2 B1 S F3 …        pipedream; S: the optimizer steps
 *     version         0  0  0    1  0    2
 *     newest          0  0  0 1  1  1 2  2          a parameter has these values
 *     kept                    0  0  0               beside it, for B1
 *
 * A version is kept from the STEP that makes the next one until the last action that wants it.
 */
#ifndef TT_PIPELINE_VERSIONS_H
#define TT_PIPELINE_VERSIONS_H

#include "parallel/pipeline/pipeline_impl.h"

/* What an action of the row does to versions. */
enum {
    TT_VERSION_KEEP = 1, /* a STEP behind which the version before it is still wanted */
    TT_VERSION_END = 2,  /* a computation that is the last one with its version */
};

/* Values of parameters at an older version. */
typedef struct {
    int number;
    int64_t bytes;
    tutti_tensor_t **values; /* [param_count], owned; NULL: of what has no versions here */
} tt_version_t;

typedef struct tt_versions {
    uint8_t *marks;     /* [row.count] */
    int *updates;       /* [micro_batches] which STEP takes one in, from 0 */
    tt_version_t *kept; /* [kept_count] */
    int kept_count;
    int64_t kept_bytes;
    tutti_tensor_t **spare; /* [param_count] of a version that has ended, for the next one; NULL */
    int newest;
    tt_version_t *entered; /* whose values parameters have now; NULL: the newest */
    tutti_optim_t *opt;    /* borrowed; NULL: none was given */
} tt_versions_t;

/* ---- pipeline_updates.c ---------------------------------------------------------------------- */

/* What the row says of versions; nothing of a synchronous schedule. Behind the ties. Errors:
 * UNSUPPORTED, NOMEM. */
tutti_status_t tt_updates_open(tutti_pipeline_t *p);

/* Rows of the micro-batches of one's update, of a batch of `total` rows: all in synchronous
 * schedules. */
int64_t tt_update_rows(const tutti_pipeline_t *p, int64_t total, int micro_batch);

/* ---- pipeline_versions.c --------------------------------------------------------------------- */

void tt_versions_close(tutti_pipeline_t *p);

/* STATE where an optimizer is missing. */
tutti_status_t tt_versions_check(const tutti_pipeline_t *p);
void tt_versions_begin_step(tutti_pipeline_t *p);

/* Around an action of the row: parameters have the version that it wants. */
void tt_versions_enter(tutti_pipeline_t *p, int64_t index);
void tt_versions_leave(tutti_pipeline_t *p, int64_t index);

/* A STEP of the row. */
tutti_status_t tt_versions_step(tutti_pipeline_t *p, int64_t index);

/* Of a batch. */
void tt_versions_end_step(tutti_pipeline_t *p);

#endif
