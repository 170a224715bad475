/* What batch norm and its synchronised form share: parameters, buffers, forward. */
#ifndef TT_LAYER_BATCH_NORM_H
#define TT_LAYER_BATCH_NORM_H

#include <tutti/nn_layers.h>

#include "compute/op/norm/batch_norm_op.h"

/* The state, or the beginning of the state, of norms over channels. */
typedef struct {
    tutti_tensor_t *weight, *bias;
    tutti_tensor_t *running_mean, *running_var, *batches;
    double eps, momentum;
    bool is_cumulative, has_relu;
    bool is_renewed, was_cumulative; /* norm_statistics.c */
    int64_t groups;
    tt_shared_statistics_t shared; /* merge is NULL: the statistics are of this process alone */
    const tt_deferred_statistics_t *deferred; /* borrowed; NULL: running ones move in forward */
} tt_channel_norm_t;

/* What norms over channels have: a width of at least 1 (ARG); "weight" and "bias"; running
 * statistics. Both add to a state that begins as tt_channel_norm_t. */
tutti_status_t tt_channel_norm_check(const tutti_module_t *m, int64_t width);
tutti_status_t tt_channel_norm_add_affine(tutti_module_t *m, int64_t width, bool no_bias);
tutti_status_t tt_channel_norm_add_running(tutti_module_t *m, int64_t width);

/* options: tutti_batch_norm_layer_options_t */
tutti_status_t tt_batch_norm_layer_init(tutti_module_t *m, const void *options);

/* Running statistics move towards a batch's, which is counted. */
tutti_status_t tt_batch_norm_layer_move(tutti_scope_t *s, tt_channel_norm_t *norm,
                                        const tt_batch_statistics_t *batch);

/* forward_many of both. */
void tt_batch_norm_layer_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                                 int input_count, tutti_tensor_t **outputs, int output_count);

#endif
