/**
 * @file nn_vocabulary.h
 * Heads of models with large vocabularies, together with their loss.
 *
 * Example:
 *
 *     tutti_module_t *head;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_adaptive_log_softmax_layer,
 *         &(tutti_adaptive_log_softmax_options_t){
 *             .in = 64, .classes = 10000, .cutoffs = {500, 2000}}, &head));
 *     tutti_tensor_t *hidden = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(8, 64));
 *     tutti_tensor_t *targets = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(8)), *outputs[2];
 *     tutti_forward_many(s, head, (tutti_tensor_t *[]){hidden, targets}, 2, outputs, 2);
 *     TUTTI_CHECK(tutti_backward(s, outputs[1]));
 *     tutti_tensor_t *words = tutti_adaptive_predict(s, head, hidden); // i64[8]
 */
#ifndef TUTTI_NN_VOCABULARY_H
#define TUTTI_NN_VOCABULARY_H

#include <tutti/nn.h>
#include <tutti/op_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_LOSS_SIZES_MAX = 6, TUTTI_CUTOFFS_MAX = 16 };

typedef struct tutti_linear_cross_entropy_layer_options {
    int64_t in, classes;
    int64_t sizes[TUTTI_LOSS_SIZES_MAX]; /**< d1, ..., dK, of losses at each row; ended by 0 */
    bool has_bias;
    bool has_weight; /**< of classes: a buffer "weight" [classes], which begins as 1 */
    tutti_loss_reduction_t reduction;
    double label_smoothing;
    bool has_ignore_index;
    int64_t ignore_index;
    int64_t chunk; /**< these as in tutti_linear_cross_entropy_options_t (op_vocabulary.h) */
} tutti_linear_cross_entropy_layer_options_t;

/** tutti_linear_cross_entropy(): two inputs of tutti_forward_many(), x [..., in] and targets.
 *  "linear.weight" [classes d1 ... dK, in], "linear.bias", as tutti_linear_layer's; the classes are
 *  their first dimension, as in PyTorch. @source torch.nn.LinearCrossEntropyLoss */
TUTTI_API extern const tutti_module_ops_t tutti_linear_cross_entropy_layer;

typedef struct tutti_adaptive_log_softmax_options {
    int64_t in, classes;
    int64_t cutoffs[TUTTI_CUTOFFS_MAX]; /**< rising, in [1, classes): where clusters begin; at least
                                             one, ended by 0 */
    double div_value; /**< 0: 4. Cluster i, counted from 1, has in / div_value^i features */
    bool has_bias;    /**< of the head */
} tutti_adaptive_log_softmax_options_t;

/**
 * Adaptive softmax: classes sorted by how frequent they are. The head knows those below the first
 * cutoff and each cluster as one class more; a cluster has fewer features the rarer its classes
 * are, and computes those rows alone whose target it has.
 *
 * Inputs of tutti_forward_many(): x [..., in]; targets [...], i64 (or i32, u8) in [0, classes).
 * Outputs: [...] the targets' log-probabilities, f64 or f32; and the mean of their negatives.
 * Parameters: "head.weight" [cutoffs[0] + clusters, in], "head.bias"; of cluster i
 * "tail.i.0.weight" [features, in] and "tail.i.1.weight" [its classes, features]. A cluster without
 * targets gets gradients of 0 (PyTorch: none). The call waits for the targets, where they are on a
 * device.
 * @source torch.nn.AdaptiveLogSoftmaxWithLoss; Grave et al., "Efficient softmax approximation for
 * GPUs" (2017)
 */
TUTTI_API extern const tutti_module_ops_t tutti_adaptive_log_softmax_layer;

/**
 * The log-probabilities of all classes.
 *
 * @param m  a tutti_adaptive_log_softmax_layer
 * @param x  [..., in]
 * @return   [..., classes]
 * @thread   the scope's
 * @cost     all clusters for all rows
 * @errors   ARG (another kind of module), SHAPE, DTYPE, NOMEM
 * @source   torch.nn.AdaptiveLogSoftmaxWithLoss.log_prob
 */
TUTTI_API tutti_tensor_t *tutti_adaptive_log_prob(tutti_scope_t *s, tutti_module_t *m,
                                                  tutti_tensor_t *x);

/** The likeliest class of each row: i64 [...], the first of several. The call waits for the head's
 *  results, where they are on a device.
 *  @thread the scope's @cost the head for all rows, all clusters for those alone whose best entry
 *  of the head is a cluster @errors those of tutti_adaptive_log_prob
 *  @source torch.nn.AdaptiveLogSoftmaxWithLoss.predict */
TUTTI_API tutti_tensor_t *tutti_adaptive_predict(tutti_scope_t *s, tutti_module_t *m,
                                                 tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif
