/* Optimistic steps: what a pipeline keeps of one. pipeline_validate_open.c makes it, and
 * pipeline_validate.c steps. */
#ifndef TT_PIPELINE_VALIDATE_H
#define TT_PIPELINE_VALIDATE_H

#include "compute/optim/optimizer.h"
#include "parallel/pipeline/pipeline_impl.h"

/* Of a slot of the optimizer, before the step. */
typedef struct {
    tutti_tensor_t *values, *moments[TT_MOMENTS_MAX]; /* owned; NULL: there was none */
    int64_t step;
    bool is_kept;
} tt_kept_t;

typedef struct tt_validation {
    tutti_pipeline_validation_t options; /* with the defaults put in */
    tutti_optim_t *opt;
    tt_kept_t *kept; /* [slot_count] */
    size_t slot_count;
    tutti_tensor_t *numbers; /* NULL: none has been asked */
    tutti_work_t *work;
    double lr; /* of the step under way */
    bool has_stepped;
    tutti_pipeline_verdict_t verdict;
} tt_validation_t;

/* Who steps the optimizer. */
extern const char tt_validation_driver[];

/* The last step of all parameters may be undone until `decides` is called, and nobody keeps or
 * writes them until then; NULL: it stays. */
void tt_validation_mark(tutti_pipeline_t *p, const char *decides);

#endif
