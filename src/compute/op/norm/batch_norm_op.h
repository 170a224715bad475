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

/* Who takes a batch's statistics, in place of the running ones that would move towards them. Called
 * in forward, where they would move. */
typedef struct tt_deferred_statistics {
    tutti_status_t (*take)(void *user, tutti_scope_t *s, const tutti_tensor_t *mean,
                           const tutti_tensor_t *variance, double count); /* [C] f64, as forward
                           uses them: over `count` elements */
    void *user;
} tt_deferred_statistics_t;

/* tutti_batch_norm; shared may be NULL, and is called while the context trains only; deferred may
 * be NULL. */
tutti_tensor_t *tt_batch_norm(tutti_scope_t *s, tutti_tensor_t *const inputs[3],
                              const tutti_batch_norm_options_t *options,
                              const tt_shared_statistics_t *shared,
                              const tt_deferred_statistics_t *deferred);

/* Statistics of a batch of `count` elements of each channel, as forward uses them: [C] f64. */
typedef struct {
    const tutti_tensor_t *mean, *variance;
    double count;
} tt_batch_statistics_t;

/* Running statistics [C] move towards a batch's, as forward moves them. */
tutti_status_t tt_batch_norm_move(tutti_scope_t *s, tutti_tensor_t *running_mean,
                                  tutti_tensor_t *running_var, double momentum,
                                  const tt_batch_statistics_t *batch);

#endif
