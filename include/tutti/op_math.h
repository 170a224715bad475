/**
 * @file op_math.h
 * Element-wise mathematics: arithmetic, functions, activations, comparisons, choices; products
 * of matrices.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(3), (float[]){-1, 0, 2});
 *     tutti_tensor_t *y = tutti_add_scalar(s, tutti_mul(s, x, x), 1);   // 2 1 5
 *     tutti_tensor_t *p = tutti_where(s, tutti_gt(s, x, y), x, y);      // the larger one
 *     tutti_tensor_t *a = tutti_gelu(s, x, TUTTI_GELU_TANH);
 *
 * Shapes broadcast as in NumPy: aligned at the last dimension, a missing dimension or one of size
 * 1 repeats. The gradient of an input that was repeated is summed over the repetitions. In the
 * formulas g is the gradient of the result y, and dx that of x.
 *
 * Types: mixed inputs are promoted (f64, f32, 16-bit floats, i64, i32, 8-bit, bool; bf16 with f16
 * gives f32). What makes no sense in integers (div, exp, gelu, …) gives f32 for integers.
 * A scalar takes the tensor's type; if that is an integer type and the scalar is not a whole
 * number, the result is f32; a whole number that the type does not hold is an ARG error. 16-bit
 * floats are computed in f32, with scalars in f32, and rounded once; a scalar that they are
 * compared with, or clamped to, is rounded as they are.
 *
 * Cost of each: one pass over inputs and result, shared by the context's threads; backward the
 * same. Unlike PyTorch there are no in-place forms, and the scalar is always a double.
 */
#ifndef TUTTI_OP_MATH_H
#define TUTTI_OP_MATH_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- arithmetic of two tensors ------------------------------------------------------------ */

/** a + b. da = g, db = g. @thread the scope's @errors SHAPE, NOMEM @source torch.add */
TUTTI_API tutti_tensor_t *tutti_add(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** a - b. da = g, db = -g. @thread the scope's @errors SHAPE, DTYPE (bool), NOMEM
 *  @source torch.sub */
TUTTI_API tutti_tensor_t *tutti_sub(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** a × b. da = g b, db = g a. @thread the scope's @errors SHAPE, NOMEM @source torch.mul */
TUTTI_API tutti_tensor_t *tutti_mul(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** a / b, true division: integers give f32. da = g / b, db = -g y / b. @thread the scope's
 *  @errors SHAPE, NOMEM @source torch.div */
TUTTI_API tutti_tensor_t *tutti_div(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** a to the power b. da = g b a^(b-1), db = g y ln a (0 where a = 0 and b ≥ 0). Integers give
 *  f32, unlike PyTorch. @thread the scope's @errors SHAPE, NOMEM @source torch.pow */
TUTTI_API tutti_tensor_t *tutti_pow(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** The larger of a and b; NaN if either is. g goes to the larger one, half to each where they are
 *  equal, all of it to each where either is NaN. @thread the scope's @errors SHAPE, NOMEM
 *  @source torch.maximum */
TUTTI_API tutti_tensor_t *tutti_maximum(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** The smaller of a and b; NaN if either is. g goes to the smaller one, half to each where they
 *  are equal, all of it to each where either is NaN. @thread the scope's @errors SHAPE, NOMEM
 *  @source torch.minimum */
TUTTI_API tutti_tensor_t *tutti_minimum(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/* ---- arithmetic with a number --------------------------------------------------------------- */

/** x + value. dx = g. @thread the scope's @errors NOMEM @source torch.add */
TUTTI_API tutti_tensor_t *tutti_add_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x - value. dx = g. @thread the scope's @errors NOMEM @source torch.sub */
TUTTI_API tutti_tensor_t *tutti_sub_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** value - x. dx = -g. @thread the scope's @errors NOMEM @source torch.rsub */
TUTTI_API tutti_tensor_t *tutti_scalar_sub(tutti_scope_t *s, double value, tutti_tensor_t *x);
/** x × value. dx = g value. @thread the scope's @errors NOMEM @source torch.mul */
TUTTI_API tutti_tensor_t *tutti_mul_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x / value; integers give f32. dx = g / value. @thread the scope's @errors NOMEM
 *  @source torch.div */
TUTTI_API tutti_tensor_t *tutti_div_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** value / x; integers give f32. dx = -g y / x. @thread the scope's @errors NOMEM
 *  @source torch.div */
TUTTI_API tutti_tensor_t *tutti_scalar_div(tutti_scope_t *s, double value, tutti_tensor_t *x);
/** x to the power value; integers give f32, unlike PyTorch. dx = g value x^(value-1).
 *  @thread the scope's @errors NOMEM @source torch.pow */
TUTTI_API tutti_tensor_t *tutti_pow_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);

/** x kept within [low, high] (an infinity: no bound on that side); NaN stays. dx = g where
 *  low ≤ x ≤ high, else 0. @thread the scope's @errors ARG (low > high), NOMEM
 *  @source torch.clamp */
TUTTI_API tutti_tensor_t *tutti_clamp(tutti_scope_t *s, tutti_tensor_t *x, double low, double high);

/* ---- functions of one tensor ---------------------------------------------------------------- */

/** -x. dx = -g. @thread the scope's @errors DTYPE (bool), NOMEM @source torch.neg */
TUTTI_API tutti_tensor_t *tutti_neg(tutti_scope_t *s, tutti_tensor_t *x);
/** |x|. dx = g sign(x), 0 at 0 and at NaN. @thread the scope's @errors DTYPE (bool), NOMEM
 *  @source torch.abs */
TUTTI_API tutti_tensor_t *tutti_abs(tutti_scope_t *s, tutti_tensor_t *x);
/** x². dx = 2 g x. @thread the scope's @errors DTYPE (bool), NOMEM @source torch.square */
TUTTI_API tutti_tensor_t *tutti_square(tutti_scope_t *s, tutti_tensor_t *x);
/** √x. dx = g / (2 y). @thread the scope's @errors NOMEM @source torch.sqrt */
TUTTI_API tutti_tensor_t *tutti_sqrt(tutti_scope_t *s, tutti_tensor_t *x);
/** 1 / √x. dx = -g y³ / 2. @thread the scope's @errors NOMEM @source torch.rsqrt */
TUTTI_API tutti_tensor_t *tutti_rsqrt(tutti_scope_t *s, tutti_tensor_t *x);
/** e to the power x. dx = g y. @thread the scope's @errors NOMEM @source torch.exp */
TUTTI_API tutti_tensor_t *tutti_exp(tutti_scope_t *s, tutti_tensor_t *x);
/** Natural logarithm. dx = g / x. @thread the scope's @errors NOMEM @source torch.log */
TUTTI_API tutti_tensor_t *tutti_log(tutti_scope_t *s, tutti_tensor_t *x);
/** log(1 + x), to 2 ulp also of tiny x. dx = g / (1 + x). @thread the scope's @errors NOMEM
 *  @source torch.log1p */
TUTTI_API tutti_tensor_t *tutti_log1p(tutti_scope_t *s, tutti_tensor_t *x);
/** e to the power x, less 1, to 3 ulp also of tiny x. dx = g (1 + y). @thread the scope's
 *  @errors NOMEM @source torch.expm1 */
TUTTI_API tutti_tensor_t *tutti_expm1(tutti_scope_t *s, tutti_tensor_t *x);
/** sin x. dx = g cos x. @thread the scope's @errors NOMEM @source torch.sin */
TUTTI_API tutti_tensor_t *tutti_sin(tutti_scope_t *s, tutti_tensor_t *x);
/** cos x. dx = -g sin x. @thread the scope's @errors NOMEM @source torch.cos */
TUTTI_API tutti_tensor_t *tutti_cos(tutti_scope_t *s, tutti_tensor_t *x);
/** The error function. dx = g 2/√π exp(-x²). @thread the scope's @errors NOMEM
 *  @source torch.erf */
TUTTI_API tutti_tensor_t *tutti_erf(tutti_scope_t *s, tutti_tensor_t *x);
/** tanh x. dx = g (1 - y²). @thread the scope's @errors NOMEM @source torch.tanh */
TUTTI_API tutti_tensor_t *tutti_tanh(tutti_scope_t *s, tutti_tensor_t *x);
/** 1 / (1 + exp(-x)). dx = g y (1 - y). As in PyTorch, 0 where exp(-x) overflows (f32: below
 *  -88.7), though a denormal number would be nearer. @thread the scope's @errors NOMEM
 *  @source torch.sigmoid */
TUTTI_API tutti_tensor_t *tutti_sigmoid(tutti_scope_t *s, tutti_tensor_t *x);

/* ---- steps: dx = 0; integers stay as they are ----------------------------------------------- */

/** -1 below 0, 1 above it, 0 at it and at NaN. @thread the scope's @errors DTYPE (bool), NOMEM
 *  @source torch.sign */
TUTTI_API tutti_tensor_t *tutti_sign(tutti_scope_t *s, tutti_tensor_t *x);
/** The largest whole number that is not above x. @thread the scope's @errors DTYPE (bool), NOMEM
 *  @source torch.floor */
TUTTI_API tutti_tensor_t *tutti_floor(tutti_scope_t *s, tutti_tensor_t *x);
/** The smallest whole number that is not below x. @thread the scope's @errors DTYPE (bool), NOMEM
 *  @source torch.ceil */
TUTTI_API tutti_tensor_t *tutti_ceil(tutti_scope_t *s, tutti_tensor_t *x);
/** The nearest whole number, of halves the even one. @thread the scope's @errors DTYPE (bool),
 *  NOMEM @source torch.round */
TUTTI_API tutti_tensor_t *tutti_round(tutti_scope_t *s, tutti_tensor_t *x);
/** x without its fraction. @thread the scope's @errors DTYPE (bool), NOMEM @source torch.trunc */
TUTTI_API tutti_tensor_t *tutti_trunc(tutti_scope_t *s, tutti_tensor_t *x);

/* ---- activations ---------------------------------------------------------------------------- */

/** max(x, 0). dx = 0 where x ≤ 0, else g, also at NaN. @thread the scope's @errors NOMEM
 *  @source torch.nn.functional.relu */
TUTTI_API tutti_tensor_t *tutti_relu(tutti_scope_t *s, tutti_tensor_t *x);
/** x sigmoid(x); -0 where sigmoid(x) is 0. dx = g σ (1 + x (1 - σ)). @thread the scope's @errors
 * NOMEM
 *  @source torch.nn.functional.silu */
TUTTI_API tutti_tensor_t *tutti_silu(tutti_scope_t *s, tutti_tensor_t *x);

/** Which formula of GELU. */
typedef enum tutti_gelu {
    TUTTI_GELU_ERF,  /**< x Φ(x) with the error function: exact, PyTorch's default */
    TUTTI_GELU_TANH, /**< x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))): GPT-2's */
} tutti_gelu_t;

/** x Φ(x), Φ the normal distribution. dx = g (Φ + x φ), φ its density; with the tanh formula,
 *  the derivative of that. Far below 0 the error grows with x², to 50 ulp at -12 (100 by the tanh
 *  formula at -9, and -0 from -10.1 on, in f32).
 *  @thread the scope's @errors ARG (unknown formula), NOMEM
 *  @source torch.nn.functional.gelu; Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 */
TUTTI_API tutti_tensor_t *tutti_gelu(tutti_scope_t *s, tutti_tensor_t *x, tutti_gelu_t formula);

/* ---- comparisons: bool, without gradients ------------------------------------------------- */

/** a = b. @thread the scope's @errors SHAPE, NOMEM @source torch.eq */
TUTTI_API tutti_tensor_t *tutti_eq(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** a ≠ b. @thread the scope's @errors SHAPE, NOMEM @source torch.ne */
TUTTI_API tutti_tensor_t *tutti_ne(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** a < b. @thread the scope's @errors SHAPE, NOMEM @source torch.lt */
TUTTI_API tutti_tensor_t *tutti_lt(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** a ≤ b. @thread the scope's @errors SHAPE, NOMEM @source torch.le */
TUTTI_API tutti_tensor_t *tutti_le(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** a > b. @thread the scope's @errors SHAPE, NOMEM @source torch.gt */
TUTTI_API tutti_tensor_t *tutti_gt(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** a ≥ b. @thread the scope's @errors SHAPE, NOMEM @source torch.ge */
TUTTI_API tutti_tensor_t *tutti_ge(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/** x = value. @thread the scope's @errors NOMEM @source torch.eq */
TUTTI_API tutti_tensor_t *tutti_eq_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x ≠ value. @thread the scope's @errors NOMEM @source torch.ne */
TUTTI_API tutti_tensor_t *tutti_ne_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x < value. @thread the scope's @errors NOMEM @source torch.lt */
TUTTI_API tutti_tensor_t *tutti_lt_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x ≤ value. @thread the scope's @errors NOMEM @source torch.le */
TUTTI_API tutti_tensor_t *tutti_le_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x > value. @thread the scope's @errors NOMEM @source torch.gt */
TUTTI_API tutti_tensor_t *tutti_gt_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);
/** x ≥ value. @thread the scope's @errors NOMEM @source torch.ge */
TUTTI_API tutti_tensor_t *tutti_ge_scalar(tutti_scope_t *s, tutti_tensor_t *x, double value);

/** Whether x is NaN. @thread the scope's @errors NOMEM @source torch.isnan */
TUTTI_API tutti_tensor_t *tutti_isnan(tutti_scope_t *s, tutti_tensor_t *x);
/** Whether x is an infinity. @thread the scope's @errors NOMEM @source torch.isinf */
TUTTI_API tutti_tensor_t *tutti_isinf(tutti_scope_t *s, tutti_tensor_t *x);
/** Whether x is neither NaN nor an infinity. @thread the scope's @errors NOMEM
 *  @source torch.isfinite */
TUTTI_API tutti_tensor_t *tutti_isfinite(tutti_scope_t *s, tutti_tensor_t *x);

/* ---- logic: bool in, bool out (numbers count as "not zero") --------------------------------- */

/** Whether x is zero. @thread the scope's @errors NOMEM @source torch.logical_not */
TUTTI_API tutti_tensor_t *tutti_logical_not(tutti_scope_t *s, tutti_tensor_t *x);
/** Whether both are not zero. @thread the scope's @errors SHAPE, NOMEM
 *  @source torch.logical_and */
TUTTI_API tutti_tensor_t *tutti_logical_and(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);
/** Whether one of them is not zero. @thread the scope's @errors SHAPE, NOMEM
 *  @source torch.logical_or */
TUTTI_API tutti_tensor_t *tutti_logical_or(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/* ---- choices -------------------------------------------------------------------------------- */

/**
 * a where the condition holds, b elsewhere; all three broadcast. da = g where it holds, else 0;
 * db the opposite.
 *
 * @param condition  bool
 * @thread           the scope's
 * @errors           SHAPE, DTYPE (condition is not bool), NOMEM
 * @source           torch.where
 */
TUTTI_API tutti_tensor_t *tutti_where(tutti_scope_t *s, tutti_tensor_t *condition,
                                      tutti_tensor_t *a, tutti_tensor_t *b);

/**
 * x with `value` where the mask is set. dx = g where it is not, else 0.
 *
 * @param mask  bool, broadcasts to x's shape
 * @thread      the scope's
 * @errors      SHAPE, DTYPE (mask is not bool), NOMEM
 * @source      torch.Tensor.masked_fill
 */
TUTTI_API tutti_tensor_t *tutti_masked_fill(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *mask, double value);

/* ---- products -------------------------------------------------------------------------------- */

/* Matrix products and linear layers.
 *
 * Example:
 *
 *     tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 16, 8));
 *     tutti_tensor_t *w = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 8));
 *     tutti_tensor_t *y = tutti_linear(s, x, w, NULL); // [4, 16, 3]
 *
 * Under autocast (context.h) the inputs are rounded to the autocast dtype, sums are made in f32
 * and results have the autocast dtype. The gradient of a f32 weight or bias is summed in f32 and
 * never rounded to 16 bits on its way, which PyTorch does.
 *
 * Every product is cut on a grid fixed by its shape, so that the number of threads changes no bit.
 */

/**
 * a · b. Dimensions before the last two are batches and broadcast against each other; a vector
 * on the left is a row, one on the right a column, and its dimension is dropped from the result.
 *
 * @param a  [..., M, K] or [K]; any strides
 * @param b  [..., K, N] or [K]; promoted with a to one floating dtype
 * @return   [..., M, N]; da = dy · bᵀ and db = aᵀ · dy, summed over what was broadcast
 * @thread   the scope's
 * @cost     2 · batch · M · N · K flops; rows or columns that are not packed are copied first
 * @errors   SHAPE (the inner sizes differ; batches do not broadcast; a scalar), DTYPE
 * @source   torch.matmul
 */
TUTTI_API tutti_tensor_t *tutti_matmul(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b);

/**
 * x · weightᵀ + bias.
 *
 * @param x       [..., in]
 * @param weight  [out, in]
 * @param bias    [out], or NULL
 * @return        [..., out]; dx = dy · weight, dweight = dyᵀ · x, dbias = Σ dy over all rows
 * @thread        the scope's
 * @cost          2 · rows · in · out flops; backward keeps x and weight, no copies
 * @errors        SHAPE, DTYPE
 * @source        torch.nn.functional.linear
 */
TUTTI_API tutti_tensor_t *tutti_linear(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *weight,
                                       tutti_tensor_t *bias);

/**
 * gelu(x · weightᵀ + bias) in one pass over the result.
 *
 * @param x        [..., in]
 * @param weight   [out, in]
 * @param bias     [out], or NULL
 * @param formula  TUTTI_GELU_ERF or TUTTI_GELU_TANH
 * @return         [..., out]; with z what gelu is given, dz = dy · gelu'(z), then as tutti_linear
 * @thread         the scope's
 * @cost           as tutti_linear; backward keeps z as well
 * @errors         SHAPE, DTYPE, ARG (formula)
 * @source         Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016)
 */
TUTTI_API tutti_tensor_t *tutti_linear_gelu(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *weight, tutti_tensor_t *bias,
                                            tutti_gelu_t formula);

#ifdef __cplusplus
}
#endif

#endif
