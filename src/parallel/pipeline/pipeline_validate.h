/* Optimistic steps: what a pipeline keeps of one. pipeline_validate_open.c makes it, and
 * pipeline_validate.c steps. */
#ifndef TT_PIPELINE_VALIDATE_H
#define TT_PIPELINE_VALIDATE_H

#include "parallel/pipeline/pipeline_impl.h"
#include "parallel/pipeline/pipeline_undo.h"

typedef struct tt_validation {
    tutti_pipeline_validation_t options; /* with the defaults put in */
    tutti_optim_t *opt;
    tt_undo_t undo;
    double *numbers; /* [count] of this rank, then of all; of the step under way */
    size_t count, room, loss_count, next; /* next: that clipping asks for */
    tutti_tensor_t *sum;                  /* that travels */
    tutti_work_t *work;                   /* NULL: there are no others */
    double lr;                            /* of the step under way */
    bool has_stepped;
    tutti_status_t kept; /* of the copy, and its text: a failure is told with the verdict */
    char error[TT_ERROR_TEXT_BYTES];
    bool has_changed; /* forwards behind the step saw other weights, or another scale */
    tutti_pipeline_verdict_t verdict;
    double *losses; /* the verdict's */
} tt_validation_t;

/* Who steps the optimizer. */
extern const char tt_validation_driver[];

/* The last step of all parameters may be undone until `decides` is called, and nobody keeps or
 * writes them until then; NULL: it stays. */
void tt_validation_mark(tutti_pipeline_t *p, const char *decides);

/* The pipeline's parameter of a tensor; NULL: it is none of the module. */
const tt_pipeline_param_t *tt_validation_param(const tutti_pipeline_t *p, const tutti_tensor_t *x);

#endif
