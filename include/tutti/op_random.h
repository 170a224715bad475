/**
 * @file op_random.h
 * Random tensors, the same on every machine and for every number of threads.
 *
 * Example:
 *
 *     tutti_tensor_t *w = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, 3), 0, 0.02);
 *     tutti_tensor_t *coins = tutti_bernoulli(s, TUTTI_BOOL, TUTTI_SHAPE(10), 0.5);
 *
 * Element i of a call is number i of a Philox stream that is named by the context's seed, step
 * and shard and by the number of random calls made since step or shard were set. So numbers
 * do not depend on what else was computed, and a repeated step repeats them. Unlike PyTorch there
 * is no generator with a state to be saved.
 *
 * Cost of each: one pass over the result.
 */
#ifndef TUTTI_OP_RANDOM_H
#define TUTTI_OP_RANDOM_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Uniform in [low, high), a floating type; low itself if both are equal. A number of the type that
 *  rounding would put outside becomes the nearest inside. @thread the scope's @errors ARG
 *  (low > high, no number of the type between them, a width that is not finite), DTYPE, NOMEM
 *  @source torch.Tensor.uniform_; Salmon et al., SC 2011 */
TUTTI_API tutti_tensor_t *tutti_uniform(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                        double low, double high);

/** Normal with mean and standard deviation, a floating type. @thread the scope's
 *  @errors ARG (deviation < 0), DTYPE, NOMEM @source torch.Tensor.normal_; Box and Muller, 1958 */
TUTTI_API tutti_tensor_t *tutti_normal(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                       double mean, double deviation);

/** Whole numbers in [low, high), any type that holds them. @thread the scope's
 *  @errors ARG (low ≥ high, or beyond the type's range), NOMEM @source torch.randint */
TUTTI_API tutti_tensor_t *tutti_randint(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                        int64_t low, int64_t high);

/** One with the given probability, else zero; any type. @thread the scope's
 *  @errors ARG (outside [0, 1]), NOMEM @source torch.bernoulli */
TUTTI_API tutti_tensor_t *tutti_bernoulli(tutti_scope_t *s, tutti_dtype_t dtype,
                                          tutti_shape_t shape, double probability);

#ifdef __cplusplus
}
#endif

#endif
