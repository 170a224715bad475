/* Element-wise kinds in f64, against their formulas. */
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/f64_near_test.h"

static const tt_map_params_t params = {.p = 0.75, .q = 1.25};

static wide_t sigmoid(wide_t x)
{
    return 1 / (1 + expl(-x));
}

static wide_t softplus(wide_t x)
{
    return fmaxl(x, 0) + log1pl(expl(-fabsl(x)));
}

static wide_t normal(wide_t x)
{
    return 0.5L * erfcl(-x * sqrtl(0.5L));
}

static wide_t gate(wide_t x)
{
    return sigmoid(2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x));
}

static wide_t gate_slope(wide_t x)
{
    const wide_t s = gate(x), du = 2 * sqrtl(2 / acosl(-1)) * (1 + 3 * 0.044715L * x * x);
    return s + x * s * (1 - s) * du;
}

static wide_t bell(wide_t x)
{
    return expl(-x * x / 2) / sqrtl(2 * acosl(-1));
}

static wide_t sign(wide_t x)
{
    return (wide_t)((x > 0) - (x < 0));
}

static wide_t within(wide_t x, wide_t low, wide_t high)
{
    return isnan(x) ? x : fminl(fmaxl(x, low), high);
}

static const wide_t selu_scale = 1.0507009873554804934193349852946L,
                    selu_alpha = 1.6732632423543772848170429916717L;

static wide_t mish_slope(wide_t x)
{
    const wide_t t = tanhl(softplus(x));
    return t + x * (1 - t * t) * sigmoid(x);
}

/* Logarithms of what is no probability are NaN. */
static wide_t bce(wide_t x, wide_t target)
{
    const wide_t yes = logl(x), no = logl(1 - x);
    return -(target * (yes < -100 ? -100 : yes) + (1 - target) * (no < -100 ? -100 : no));
}

/* Activations with corners. */
static wide_t cornered(tt_unary_t kind, wide_t x)
{
    const wide_t p = params.p, q = params.q;
    switch (kind) {
    case TT_UNARY_LEAKY_RELU:
        return x > 0 ? x : p * x;
    case TT_UNARY_ELU:
        return x > 0 ? x : p * expm1l(q * x);
    case TT_UNARY_SELU:
        return selu_scale * (x > 0 ? x : selu_alpha * expm1l(x));
    case TT_UNARY_SOFTPLUS_STEEP:
        return p * x > q ? x : softplus(p * x) / p;
    case TT_UNARY_LOGSIGMOID:
        return -softplus(-x);
    case TT_UNARY_MISH:
        return x * tanhl(softplus(x));
    case TT_UNARY_HARDSWISH:
        return x * within(x + 3, 0, 6) / 6;
    case TT_UNARY_HARDSIGMOID:
        return within(x + 3, 0, 6) / 6;
    case TT_UNARY_SOFTSIGN:
        return x / (1 + fabsl(x));
    case TT_UNARY_TANHSHRINK:
        return x - tanhl(x);
    case TT_UNARY_THRESHOLD:
        return x <= p ? q : x;
    case TT_UNARY_HARDSHRINK:
        return fabsl(x) <= p ? 0 : x;
    case TT_UNARY_SOFTSHRINK:
        return x > p ? x - p : x < -p ? x + p : 0 * x;
    default:
        return NAN;
    }
}

/* Those that are flat between steps. */
static wide_t stepped(tt_unary_t kind, wide_t x)
{
    switch (kind) {
    case TT_UNARY_FLOOR:
        return floorl(x);
    case TT_UNARY_CEIL:
        return ceill(x);
    case TT_UNARY_ROUND:
        return rintl(x);
    case TT_UNARY_TRUNC:
        return truncl(x);
    case TT_UNARY_NOT:
        return x == 0;
    case TT_UNARY_IS_NAN:
        return isnan(x);
    case TT_UNARY_IS_INF:
        return isinf(x);
    case TT_UNARY_IS_FINITE:
        return isfinite(x);
    default:
        return cornered(kind, x);
    }
}

static wide_t unary(tt_unary_t kind, wide_t x)
{
    const wide_t p = params.p, q = params.q;
    switch (kind) {
    case TT_UNARY_COPY:
        return x;
    case TT_UNARY_NEG:
        return -x;
    case TT_UNARY_ABS:
        return fabsl(x);
    case TT_UNARY_SIGN:
        return sign(x);
    case TT_UNARY_AFFINE:
        return p * x + q;
    case TT_UNARY_SQUARE:
        return x * x;
    case TT_UNARY_SQRT:
        return sqrtl(x);
    case TT_UNARY_RSQRT:
        return 1 / sqrtl(x);
    case TT_UNARY_RECIPROCAL:
        return 1 / x;
    case TT_UNARY_POW:
        return powl(x, p);
    case TT_UNARY_EXP:
        return expl(x);
    case TT_UNARY_LOG:
        return logl(x);
    case TT_UNARY_SIN:
        return sinl(x);
    case TT_UNARY_COS:
        return cosl(x);
    case TT_UNARY_TANH:
        return tanhl(x);
    case TT_UNARY_ERF:
        return erfl(x);
    case TT_UNARY_SIGMOID:
        return sigmoid(x);
    case TT_UNARY_SOFTPLUS:
        return softplus(x);
    case TT_UNARY_RELU:
        return fmaxl(x, 0);
    case TT_UNARY_GELU:
        return x * normal(x);
    case TT_UNARY_GELU_TANH:
        return x * gate(x);
    case TT_UNARY_SILU:
        return x * sigmoid(x);
    case TT_UNARY_CLAMP:
        return fminl(fmaxl(x, p), q);
    case TT_UNARY_LOG1P:
        return log1pl(x);
    case TT_UNARY_EXPM1:
        return expm1l(x);
    default:
        return stepped(kind, x);
    }
}

/* Gradients of those with corners. */
static wide_t cornered_backward(tt_binary_t kind, wide_t a, wide_t b)
{
    const wide_t p = params.p, q = params.q, t = tanhl(b);
    switch (kind) {
    case TT_BINARY_LEAKY_RELU_BACKWARD:
        return b > 0 ? a : p * a;
    case TT_BINARY_ELU_BACKWARD:
        return b > 0 ? a : a * p * q * expl(q * b);
    case TT_BINARY_SELU_BACKWARD:
        return a * selu_scale * (b > 0 ? 1 : selu_alpha * expl(b));
    case TT_BINARY_SOFTPLUS_STEEP_BACKWARD:
        return p * b > q ? a : a * sigmoid(p * b);
    case TT_BINARY_LOGSIGMOID_BACKWARD:
        return a * sigmoid(-b);
    case TT_BINARY_MISH_BACKWARD:
        return a * mish_slope(b);
    case TT_BINARY_HARDSWISH_BACKWARD:
        return b <= -3 ? 0 : b >= 3 ? a : a * (b / 3 + 0.5L);
    case TT_BINARY_HARDSIGMOID_BACKWARD:
        return b > -3 && b < 3 ? a / 6 : 0;
    case TT_BINARY_HARDTANH_BACKWARD:
        return b <= p || b >= q ? 0 : a;
    case TT_BINARY_SOFTSIGN_BACKWARD:
        return a / ((1 + fabsl(b)) * (1 + fabsl(b)));
    case TT_BINARY_TANHSHRINK_BACKWARD:
        return a * t * t;
    case TT_BINARY_THRESHOLD_BACKWARD:
        return b <= p ? 0 : a;
    case TT_BINARY_SHRINK_BACKWARD:
        return fabsl(b) <= p ? 0 : a;
    case TT_BINARY_PRELU_BACKWARD_WEIGHT:
        return b > 0 ? 0 : a * b;
    default:
        return NAN;
    }
}

/* Gradients: a is what comes in. */
static wide_t binary_backward(tt_binary_t kind, wide_t a, wide_t b)
{
    const wide_t p = params.p, q = params.q, s = sigmoid(b);
    switch (kind) {
    case TT_BINARY_ABS_BACKWARD:
        return a * sign(b);
    case TT_BINARY_SQUARE_BACKWARD:
        return 2 * a * b;
    case TT_BINARY_LOG1P_BACKWARD:
        return a / (1 + b);
    case TT_BINARY_EXPM1_BACKWARD:
        return a * (1 + b);
    case TT_BINARY_SQRT_BACKWARD:
        return a / (2 * b);
    case TT_BINARY_RSQRT_BACKWARD:
        return -a * b * b * b / 2;
    case TT_BINARY_RECIPROCAL_BACKWARD:
        return -a * b * b;
    case TT_BINARY_POW_BACKWARD:
        return a * p * powl(b, p - 1);
    case TT_BINARY_SIN_BACKWARD:
        return a * cosl(b);
    case TT_BINARY_COS_BACKWARD:
        return -a * sinl(b);
    case TT_BINARY_TANH_BACKWARD:
        return a * (1 - b * b);
    case TT_BINARY_ERF_BACKWARD:
        return a * 2 / sqrtl(acosl(-1)) * expl(-b * b);
    case TT_BINARY_SIGMOID_BACKWARD:
        return a * b * (1 - b);
    case TT_BINARY_SOFTPLUS_BACKWARD:
        return a * s;
    case TT_BINARY_RELU_BACKWARD:
        return b > 0 ? a : 0;
    case TT_BINARY_GELU_BACKWARD:
        return a * (normal(b) + b * bell(b));
    case TT_BINARY_GELU_TANH_BACKWARD:
        return a * gate_slope(b);
    case TT_BINARY_SILU_BACKWARD:
        return a * s * (1 + b * (1 - s));
    case TT_BINARY_CLAMP_BACKWARD:
        return b >= p && b <= q ? a : 0;
    case TT_BINARY_MASK_BACKWARD:
        return b != 0 ? 0 : a;
    default:
        return cornered_backward(kind, a, b);
    }
}

static wide_t binary(tt_binary_t kind, wide_t a, wide_t b)
{
    const wide_t p = params.p, q = params.q, d = a - b;
    switch (kind) {
    case TT_BINARY_ADD:
        return a + b;
    case TT_BINARY_ADD_SCALED:
        return a + p * b;
    case TT_BINARY_SUB:
        return d;
    case TT_BINARY_MUL:
        return a * b;
    case TT_BINARY_DIV:
        return a / b;
    case TT_BINARY_POW:
        return powl(a, b);
    case TT_BINARY_MAXIMUM:
        return fmaxl(a, b);
    case TT_BINARY_MINIMUM:
        return fminl(a, b);
    case TT_BINARY_SQUARED_DIFFERENCE:
        return d * d;
    case TT_BINARY_MASKED_FILL:
        return b != 0 ? p : a;
    case TT_BINARY_EQ:
        return a == b;
    case TT_BINARY_NE:
        return a != b;
    case TT_BINARY_LT:
        return a < b;
    case TT_BINARY_LE:
        return a <= b;
    case TT_BINARY_GT:
        return a > b;
    case TT_BINARY_GE:
        return a >= b;
    case TT_BINARY_AND:
        return a != 0 && b != 0;
    case TT_BINARY_OR:
        return a != 0 || b != 0;
    case TT_BINARY_BCE:
        return softplus(a) - a * b;
    case TT_BINARY_SMOOTH_L1:
        return fabsl(d) < p ? q * d * d / (2 * p) : q * (fabsl(d) - p / 2);
    case TT_BINARY_KL_DIV:
        return b == 0 ? 0 : b * (logl(b) - a);
    case TT_BINARY_KL_DIV_LOG:
        return expl(b) * (b - a);
    case TT_BINARY_BCE_LOSS:
        return bce(a, b);
    case TT_BINARY_PRELU:
        return a > 0 ? a : a * b;
    case TT_BINARY_GLU:
        return a * sigmoid(b);
    default:
        return binary_backward(kind, a, b);
    }
}

static wide_t ternary(tt_ternary_t kind, wide_t a, wide_t b, wide_t c)
{
    const wide_t p = params.p, q = params.q, d = b - c;
    switch (kind) {
    case TT_TERNARY_WHERE:
        return a != 0 ? b : c;
    case TT_TERNARY_LERP:
        return a + c * (b - a);
    case TT_TERNARY_ADDCMUL:
        return a + p * b * c;
    case TT_TERNARY_ADDCDIV:
        return a + p * b / c;
    case TT_TERNARY_DIV_BACKWARD_B:
        return -a * b / (c * c);
    case TT_TERNARY_POW_BACKWARD_A:
        return a * c * powl(b, c - 1);
    case TT_TERNARY_POW_BACKWARD_B:
        return a * powl(b, c) * logl(b);
    case TT_TERNARY_MAXIMUM_BACKWARD:
        return b > c ? a : b == c ? a / 2 : 0;
    case TT_TERNARY_MINIMUM_BACKWARD:
        return b < c ? a : b == c ? a / 2 : 0;
    case TT_TERNARY_SMOOTH_L1_BACKWARD:
        return a * q * (fabsl(d) < p ? d / p : sign(d));
    case TT_TERNARY_PRELU_BACKWARD:
        return b > 0 ? a : a * c;
    case TT_TERNARY_GLU_BACKWARD_GATE:
        return a * b * sigmoid(c) * (1 - sigmoid(c));
    case TT_TERNARY_BCE_LOSS_BACKWARD:
        return a * d / fmaxl(b * (1 - b), 1e-12L);
    case TT_TERNARY_BCE_BACKWARD:
        return a * (sigmoid(b) - c);
    case TT_TERNARY_COUNT:
        break;
    }
    return NAN;
}

static double in[3][N_MAX], out[N_MAX];
static int kind_now;

static void run_kind(size_t n)
{
    tt_strided_t x[3];
    for (int k = 0; k < 3; k++) {
        x[k] = tt_strided_row(in[k], TUTTI_F64, (int64_t)n);
    }
    const tt_strided_t y = tt_strided_row(out, TUTTI_F64, (int64_t)n);
    int kind = kind_now;
    if (kind < TT_UNARY_COUNT) {
        tt_map_unary(NULL, (tt_unary_t)kind, params, &y, &x[0]);
    } else if ((kind -= TT_UNARY_COUNT) < TT_BINARY_COUNT) {
        tt_map_binary(NULL, (tt_binary_t)kind, params, &y, &x[0], &x[1]);
    } else {
        tt_map_ternary(NULL, (tt_ternary_t)(kind - TT_BINARY_COUNT), params, &y, &x[0], &x[1],
                       &x[2]);
    }
}

static wide_t expect_kind(int kind, size_t i)
{
    const wide_t a = in[0][i], b = in[1][i], c = in[2][i];
    if (kind < TT_UNARY_COUNT) {
        return unary((tt_unary_t)kind, a);
    }
    kind -= TT_UNARY_COUNT;
    return kind < TT_BINARY_COUNT ? binary((tt_binary_t)kind, a, b)
                                  : ternary((tt_ternary_t)(kind - TT_BINARY_COUNT), a, b, c);
}

static const char *name_of(int kind)
{
    if (kind < TT_UNARY_COUNT) {
        return tt_unary_table[kind].name;
    }
    kind -= TT_UNARY_COUNT;
    return kind < TT_BINARY_COUNT ? tt_binary_table[kind].name
                                  : tt_ternary_table[kind - TT_BINARY_COUNT].name;
}

/* Each is near by itself: small results of small operands are not hidden behind large ones. */
static void element_kinds_equal_their_formulas(void **state)
{
    (void)state;
    const int kinds = (int)TT_UNARY_COUNT + (int)TT_BINARY_COUNT + (int)TT_TERNARY_COUNT;
    for (int k = 0; k < 3; k++) {
        fill(in[k], N_MAX, (uint64_t)k + 1);
    }
    in[0][0] = in[1][0] = in[2][0] = 1;
    in[0][1] = 0;
    in[1][2] = in[2][2] = 2;
    for (kind_now = 0; kind_now < kinds; kind_now++) {
        for (size_t s = 0; s < SIZES; s++) {
            on_all_variants(run_kind, sizes[s], out, sizes[s] * sizeof *out);
            for (size_t i = 0; i < sizes[s]; i++) {
                const wide_t want = expect_kind(kind_now, i);
                const wide_t room = 1e-15L * (8 * fabsl(want) + fabsl(in[0][i]));
                const bool is_special = isnan(want) || isinf(want);
                if (is_special ? isnan(want) != isnan(out[i]) || (isinf(want) && out[i] != want)
                               : !(fabsl((wide_t)out[i] - want) <= room)) {
                    fail_msg("%s(%.17g, %.17g, %.17g) = %.17g, not %.20Lg", name_of(kind_now),
                             in[0][i], in[1][i], in[2][i], out[i], want);
                }
            }
        }
    }
}

/* Small results do not come out of differences of large ones. */
static void element_kinds_keep_their_digits_far_out(void **state)
{
    (void)state;
    static const struct {
        tt_unary_t kind;
        double x;
    } cases[] = {
        {TT_UNARY_GELU, -20},         {TT_UNARY_GELU_TANH, -8},  {TT_UNARY_SILU, -300},
        {TT_UNARY_SIGMOID, -700},     {TT_UNARY_SOFTPLUS, -40},  {TT_UNARY_SOFTPLUS, 800},
        {TT_UNARY_TANH, 1e-9},        {TT_UNARY_ERF, 1e-9},      {TT_UNARY_EXP, -708},
        {TT_UNARY_LOG, 1 + 1e-9},     {TT_UNARY_SIN, 1e6},       {TT_UNARY_COS, -1e6},
        {TT_UNARY_FLOOR, 1e15 + 0.5}, {TT_UNARY_SQRT, 1e-300},   {TT_UNARY_ELU, -1e-9},
        {TT_UNARY_SELU, -1e-12},      {TT_UNARY_LOGSIGMOID, 40}, {TT_UNARY_ELU, -800},
        {TT_UNARY_MISH, -30},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        in[0][0] = cases[i].x;
        kind_now = (int)cases[i].kind;
        on_all_variants(run_kind, 1, out, sizeof *out);
        const wide_t want = unary(cases[i].kind, in[0][0]);
        if (!(fabsl((wide_t)out[0] - want) <= 1e-13L * fabsl(want))) {
            fail_msg("%s(%.17g) = %.17g, not %.20Lg", name_of(kind_now), in[0][0], out[0], want);
        }
    }
}

static int nothing_is_left(void **state)
{
    (void)state;
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(element_kinds_equal_their_formulas, nothing_is_left),
        cmocka_unit_test_teardown(element_kinds_keep_their_digits_far_out, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
