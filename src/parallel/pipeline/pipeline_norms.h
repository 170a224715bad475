/* Running statistics of batch norm that move once for a batch (deferred_statistics). */
#ifndef TT_PIPELINE_NORMS_H
#define TT_PIPELINE_NORMS_H

#include "parallel/pipeline/pipeline_impl.h"

/* Finds this rank's layers, where that is asked for. Behind tt_params_place(). Errors: STATE
 * (another pipeline has them), NOMEM. */
tutti_status_t tt_norms_open(tutti_pipeline_t *p);
void tt_norms_close(tutti_pipeline_t *p);

void tt_norms_begin_step(tutti_pipeline_t *p);
/* The micro-batches' statistics become the batch's, and the running ones move towards them. */
tutti_status_t tt_norms_end_step(tutti_pipeline_t *p);

#endif
