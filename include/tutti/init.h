/**
 * @file init.h
 * Initial values of parameters, for those who want others than the layers begin with.
 *
 * Example:
 *
 *     tutti_module_t *net;
 *     TUTTI_CHECK(tutti_module_create(ctx, &tutti_linear_layer,
 *         &(tutti_linear_options_t){.in = 784, .out = 256}, &net));
 *     tutti_tensor_t *w = tutti_module_find(net, "weight");
 *     TUTTI_CHECK(tutti_init_kaiming_normal(
 *         ctx, w, &(tutti_kaiming_options_t){.nonlinearity = TUTTI_NONLINEARITY_RELU}));
 *
 * Random values are a function of the context's seed, of how many parameters were drawn from the
 * context before, and of the element's index: the same bits whatever the threads and ranks are.
 * A tensor may be of any floating dtype and layout; values are drawn in f32.
 *
 * "fan in" is the number of inputs of one output, the second size times all sizes behind it;
 * "fan out" the first size times those behind the second. Both need two dimensions.
 */
#ifndef TUTTI_INIT_H
#define TUTTI_INIT_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What follows a layer, for the gain that keeps variances as they are. */
typedef enum tutti_nonlinearity {
    TUTTI_NONLINEARITY_LEAKY_RELU, /**< √(2 / (1 + slope²)) */
    TUTTI_NONLINEARITY_RELU,       /**< √2 */
    TUTTI_NONLINEARITY_LINEAR,     /**< 1; convolutions and sigmoid too */
    TUTTI_NONLINEARITY_TANH,       /**< 5/3 */
    TUTTI_NONLINEARITY_SELU,       /**< 3/4 */
} tutti_nonlinearity_t;

/** The gain of a nonlinearity; slope is that of LEAKY_RELU below 0. @thread any @errors none
 *  @source torch.nn.init.calculate_gain */
TUTTI_API double tutti_init_gain(tutti_nonlinearity_t nonlinearity, double slope);

/** Every element the same. @thread the context's @errors DTYPE @source torch.nn.init.constant_ */
TUTTI_API tutti_status_t tutti_init_constant(tutti_tensor_t *x, double value);

/** 1 on the diagonal of a matrix, else 0. @thread the context's @errors SHAPE, DTYPE, NOMEM
 *  @source torch.nn.init.eye_ */
TUTTI_API tutti_status_t tutti_init_eye(tutti_tensor_t *x);

/** Uniform in [low, high). @thread the context's @errors ARG, DTYPE, NOMEM
 *  @source torch.nn.init.uniform_ */
TUTTI_API tutti_status_t tutti_init_uniform(tutti_context_t *ctx, tutti_tensor_t *x, double low,
                                            double high);

/** Normal. @thread the context's @errors ARG, DTYPE, NOMEM @source torch.nn.init.normal_ */
TUTTI_API tutti_status_t tutti_init_normal(tutti_context_t *ctx, tutti_tensor_t *x, double mean,
                                           double deviation);

typedef struct tutti_trunc_normal_options {
    double mean;
    double deviation; /**< 0: 1 */
    double low, high; /**< values lie between them; both 0: -2 and 2 */
} tutti_trunc_normal_options_t;

/** Normal, of what lies between two bounds. @param options NULL for the defaults
 *  @thread the context's @errors ARG, DTYPE, NOMEM @source torch.nn.init.trunc_normal_ */
TUTTI_API tutti_status_t tutti_init_trunc_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                 const tutti_trunc_normal_options_t *options);

/** U(±gain √(6 / (fan in + fan out))). @param gain 0: 1 @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.xavier_uniform_; Glorot and Bengio (2010) */
TUTTI_API tutti_status_t tutti_init_xavier_uniform(tutti_context_t *ctx, tutti_tensor_t *x,
                                                   double gain);

/** N(0, gain² 2 / (fan in + fan out)). @param gain 0: 1 @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.xavier_normal_; Glorot and Bengio (2010) */
TUTTI_API tutti_status_t tutti_init_xavier_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                  double gain);

typedef struct tutti_kaiming_options {
    tutti_nonlinearity_t nonlinearity;
    double slope; /**< of LEAKY_RELU below 0; √5 gives what tutti_linear_layer begins with */
    bool fan_out; /**< keep the variance of gradients, not of values */
} tutti_kaiming_options_t;

/** U(±gain √(3 / fan)). @param options NULL for the defaults @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.kaiming_uniform_; He et al. (2015) */
TUTTI_API tutti_status_t tutti_init_kaiming_uniform(tutti_context_t *ctx, tutti_tensor_t *x,
                                                    const tutti_kaiming_options_t *options);

/** N(0, gain² / fan). @param options NULL for the defaults @thread the context's
 *  @errors SHAPE, DTYPE, NOMEM @source torch.nn.init.kaiming_normal_; He et al. (2015) */
TUTTI_API tutti_status_t tutti_init_kaiming_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                                   const tutti_kaiming_options_t *options);

/**
 * Orthonormal rows or columns, whichever are fewer, times a gain: Q of the QR decomposition of
 * normal numbers, such that R's diagonal is positive. x counts as a matrix of its first size.
 *
 * @param gain  0: 1
 * @thread      the context's
 * @cost        4 m n² operations in f64 for sizes m >= n, on one thread
 * @errors      SHAPE (fewer than two dimensions), DTYPE, NOMEM
 * @source      torch.nn.init.orthogonal_; Saxe et al. (2013)
 */
TUTTI_API tutti_status_t tutti_init_orthogonal(tutti_context_t *ctx, tutti_tensor_t *x,
                                               double gain);

#ifdef __cplusplus
}
#endif

#endif
