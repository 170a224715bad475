/**
 * @file op_activation.h
 * More activations than op_math.h has.
 *
 * Example:
 *
 *     tutti_tensor_t *hidden = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(4, 6), 0, 1);
 *     tutti_tensor_t *y = tutti_leaky_relu(s, hidden, 0.01);
 *     y = tutti_softplus(s, y, 1, 20);
 *     tutti_tensor_t *gated = tutti_glu(s, y, -1); // [4, 3]
 *
 * Each is one pass forward and one backward, which keeps x. Integers give f32. In the formulas g is
 * the gradient of the result, σ the sigmoid; "below 0" means x ≤ 0. PyTorch's defaults are named.
 */
#ifndef TUTTI_OP_ACTIVATION_H
#define TUTTI_OP_ACTIVATION_H

#include <stdbool.h>

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- lines that bend at 0 -------------------------------------------------------------------- */

/** x, below 0 slope · x; PyTorch's slope is 0.01. dx = g, below 0 slope · g. @thread the scope's
 *  @errors NOMEM @source torch.nn.functional.leaky_relu; Maas et al. 2013 */
TUTTI_API tutti_tensor_t *tutti_leaky_relu(tutti_scope_t *s, tutti_tensor_t *x, double slope);

/**
 * x, below 0 weight · x, with a weight that is learned.
 *
 * @param weight  [1] or [], or [C]: one for each channel, x's dimension 1; PyTorch's begins as 0.25
 * @return        [x's shape]; dx = g, below 0 weight · g; dweight = Σ g x over x ≤ 0
 * @thread        the scope's
 * @cost          one pass; backward two
 * @errors        SHAPE, DTYPE, NOMEM
 * @source        torch.nn.functional.prelu; He et al. 2015
 */
TUTTI_API tutti_tensor_t *tutti_prelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight);

/** x, below 0 alpha (e^x - 1); PyTorch's alpha is 1. dx = g, below 0 g alpha e^x.
 *  @thread the scope's @errors NOMEM @source torch.nn.functional.elu; Clevert et al. 2016 */
TUTTI_API tutti_tensor_t *tutti_elu(tutti_scope_t *s, tutti_tensor_t *x, double alpha);

/** x, below 0 alpha (e^(x/alpha) - 1); PyTorch's alpha is 1. dx = g, below 0 g e^(x/alpha).
 *  @thread the scope's @errors ARG (alpha is 0), NOMEM
 *  @source torch.nn.functional.celu; Barron 2017 */
TUTTI_API tutti_tensor_t *tutti_celu(tutti_scope_t *s, tutti_tensor_t *x, double alpha);

/** λ x, below 0 λ α (e^x - 1), with λ 1.0507 and α 1.6733 of the paper. dx = λ g, below 0
 *  λ α g e^x. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.selu; Klambauer et al. 2017 */
TUTTI_API tutti_tensor_t *tutti_selu(tutti_scope_t *s, tutti_tensor_t *x);

/** x above a threshold, else a value. dx = g above it. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.threshold */
TUTTI_API tutti_tensor_t *tutti_threshold(tutti_scope_t *s, tutti_tensor_t *x, double threshold,
                                          double value);

/**
 * x, below 0 slope · x, with a slope in [lower, upper) of each element's own while the context
 * trains, and (lower + upper) / 2 otherwise. dx = g, below 0 slope · g. Slopes are drawn as
 * tutti_dropout() draws: element i has the number i of the call's stream.
 *
 * @param x      floating
 * @param lower  finite, at most upper; PyTorch's are 1/8 and 1/3
 * @return       [x's shape]
 * @thread       the scope's
 * @cost         two passes while training, which keep x and the slopes; else that of leaky_relu
 * @errors       ARG (the bounds), DTYPE, NOMEM
 * @source       torch.nn.functional.rrelu; Xu et al. 2015
 */
TUTTI_API tutti_tensor_t *tutti_rrelu(tutti_scope_t *s, tutti_tensor_t *x, double lower,
                                      double upper);

/* ---- smooth ones ----------------------------------------------------------------------------- */

/** log(1 + e^(beta x)) / beta, but x where beta x exceeds the threshold; PyTorch's are 1 and 20.
 *  dx = g σ(beta x), g beyond. @thread the scope's @errors ARG (beta is 0), NOMEM
 *  @source torch.nn.functional.softplus */
TUTTI_API tutti_tensor_t *tutti_softplus(tutti_scope_t *s, tutti_tensor_t *x, double beta,
                                         double threshold);

/** log σ(x), without overflow. dx = g σ(-x). @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.logsigmoid */
TUTTI_API tutti_tensor_t *tutti_logsigmoid(tutti_scope_t *s, tutti_tensor_t *x);

/** x t with t = tanh(log(1 + e^x)). dx = g (t + x (1 - t²) σ(x)). @thread the scope's
 *  @errors NOMEM @source torch.nn.functional.mish; Misra 2019 */
TUTTI_API tutti_tensor_t *tutti_mish(tutti_scope_t *s, tutti_tensor_t *x);

/** x / (1 + |x|). dx = g / (1 + |x|)². @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.softsign */
TUTTI_API tutti_tensor_t *tutti_softsign(tutti_scope_t *s, tutti_tensor_t *x);

/** x - tanh x. dx = g tanh² x. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.tanhshrink */
TUTTI_API tutti_tensor_t *tutti_tanhshrink(tutti_scope_t *s, tutti_tensor_t *x);

/** softmax(-x) along a dimension. @thread the scope's @errors ARG (dim), DTYPE, NOMEM
 *  @source torch.nn.functional.softmin */
TUTTI_API tutti_tensor_t *tutti_softmin(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/**
 * softmax((x + G) / tau) along a dimension, with a number G of Gumbel's distribution, -log(-log u),
 * for each element: a sample of the classes whose logits are x, with a gradient. It is drawn in
 * training and evaluation, as tutti_dropout() draws: u of element i is number i of the call's
 * stream.
 *
 * @param x        logits, floating
 * @param tau      the temperature, above 0; PyTorch's is 1
 * @param is_hard  1 at the largest element and 0 elsewhere, with the gradient of the softmax
 * @param dim      PyTorch's is -1
 * @return         x's shape and dtype; dx is that of the softmax over tau. 16-bit logits are
 *                 computed in f32 and rounded once
 * @thread         the scope's
 * @cost           six passes, six more if it is hard
 * @errors         ARG (tau, dim), DTYPE, SHAPE (hard, of no classes), NOMEM
 * @source         torch.nn.functional.gumbel_softmax; Jang et al. 2017, Maddison et al. 2017
 */
TUTTI_API tutti_tensor_t *tutti_gumbel_softmax(tutti_scope_t *s, tutti_tensor_t *x, double tau,
                                               bool is_hard, int dim);

/**
 * a σ(b) of the halves a and b of a dimension.
 *
 * @param x    floating, of an even size at dim; PyTorch's dim is -1
 * @return     as x, with half its size at dim; da = g σ(b), db = g a σ(b) (1 - σ(b))
 * @thread     the scope's
 * @cost       one pass; backward two
 * @errors     ARG (dim), SHAPE (an odd size), DTYPE, NOMEM
 * @source     torch.nn.functional.glu; Dauphin et al. 2017
 */
TUTTI_API tutti_tensor_t *tutti_glu(tutti_scope_t *s, tutti_tensor_t *x, int dim);

/* ---- of straight pieces ---------------------------------------------------------------------- */

/** min(max(x, low), high); PyTorch's bounds are -1 and 1. dx = g between them and 0 at them, where
 *  tutti_clamp() gives g. @thread the scope's @errors ARG (low > high), NOMEM
 *  @source torch.nn.functional.hardtanh */
TUTTI_API tutti_tensor_t *tutti_hardtanh(tutti_scope_t *s, tutti_tensor_t *x, double low,
                                         double high);

/** tutti_hardtanh() between 0 and 6. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.relu6 */
TUTTI_API tutti_tensor_t *tutti_relu6(tutti_scope_t *s, tutti_tensor_t *x);

/** min(max(x + 3, 0), 6) / 6. dx = g/6 between -3 and 3. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.hardsigmoid */
TUTTI_API tutti_tensor_t *tutti_hardsigmoid(tutti_scope_t *s, tutti_tensor_t *x);

/** x hardsigmoid(x). dx = g (x/3 + 1/2) between -3 and 3, 0 before and g behind.
 *  @thread the scope's @errors NOMEM @source torch.nn.functional.hardswish; Howard et al. 2019 */
TUTTI_API tutti_tensor_t *tutti_hardswish(tutti_scope_t *s, tutti_tensor_t *x);

/** x, 0 where |x| ≤ lambda; PyTorch's lambda is 0.5. dx = g beyond. @thread the scope's
 *  @errors NOMEM @source torch.nn.functional.hardshrink */
TUTTI_API tutti_tensor_t *tutti_hardshrink(tutti_scope_t *s, tutti_tensor_t *x, double lambda);

/** x - lambda above lambda, x + lambda below -lambda, else 0; PyTorch's lambda is 0.5. dx = g
 *  beyond. @thread the scope's @errors ARG (lambda is below 0), NOMEM
 *  @source torch.nn.functional.softshrink */
TUTTI_API tutti_tensor_t *tutti_softshrink(tutti_scope_t *s, tutti_tensor_t *x, double lambda);

#ifdef __cplusplus
}
#endif

#endif
