/* Batch norm whose statistics are over more than this process's samples: what parallel/ adds. */
#ifndef TT_BATCH_NORM_OP_H
#define TT_BATCH_NORM_OP_H

#include <tutti/op_nn.h>

#include "compute/autograd/op_call.h"

/* The ranks that have the other samples. Calls replace this process's sums by everybody's. */
typedef struct tt_shared_statistics {
    tutti_status_t (*merge)(void *user, tutti_scope_t *s, tutti_tensor_t *mean,
                            tutti_tensor_t *variance,
                            double *count); /* count: elements of a channel */
    tutti_status_t (*add)(void *user, tutti_scope_t *s, tutti_tensor_t *sums);
    void *user;
    void (*retain)(void *user); /* the graph holds it until its backward has run */
    void (*release)(void *user);
} tt_shared_statistics_t;

/* tutti_batch_norm; shared may be NULL, and is called while the context trains only. */
tutti_tensor_t *tt_batch_norm(tutti_scope_t *s, tutti_tensor_t *const inputs[3],
                              const tutti_batch_norm_options_t *options,
                              const tt_shared_statistics_t *shared);

#endif
