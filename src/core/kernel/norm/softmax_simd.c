/* Rows of softmax, log-softmax and cross entropy. A row is read three times (largest element, sum
 * of exponentials, result), mostly from L1; past its end it is padded with what adds nothing.
 */
#include <math.h>

#include "core/kernel/kernels.h"
#include "core/kernel/norm/rows_ops.h"
#include "core/kernel/vrow.h"

/* In four independent chains: the largest does not depend on the order. */
TT_INLINE tt_real_t row_max(const void *x, size_t n, tutti_dtype_t dtype)
{
    tt_vf m[4];
    for (int chain = 0; chain < 4; chain++) {
        m[chain] = tt_vsplat(-INFINITY);
    }
    for (size_t base = 0; base < n; base += 4 * TT_LANES) {
        for (size_t chain = 0, at = base; chain < 4; chain++, at += TT_LANES) {
            m[chain] = tt_vmax(m[chain], tt_vread(x, at, n, -INFINITY, dtype));
        }
    }
    tt_v16_t all = tt_v16_splat(-INFINITY);
    all.part[0] = tt_vmax(tt_vmax(m[0], m[1]), tt_vmax(m[2], m[3]));
    return tt_v16_max(all);
}

/* The sum of e^(x - m); the terms go to `keep` unless it is NULL. */
TT_INLINE tt_real_t row_sum_exp(const void *x, size_t n, tt_real_t m, tt_real_t *keep,
                                tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    TT_EACH_VECTOR(at, part, 0, n)
    {
        const tt_vf e = tt_vexp(tt_vread(x, at, n, -INFINITY, dtype) - m);
        if (keep != NULL) {
            tt_vwrite(keep, at, n, e, TT_REAL);
        }
        sum.part[part] += e;
    }
    return tt_v16_sum(sum);
}

/* The sum of x - m. */
TT_INLINE tt_real_t row_sum(const void *x, size_t n, tt_real_t m, tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    TT_EACH_VECTOR(at, part, 0, n)
    {
        sum.part[part] += tt_vread(x, at, n, m, dtype) - m;
    }
    return tt_v16_sum(sum);
}

static inline tt_real_t log_of(tt_real_t x)
{
    return tt_vlog(tt_vsplat(x))[0];
}

TT_INLINE void softmax_row(void *y, const void *x, size_t n, tutti_dtype_t dtype)
{
    const tt_real_t m = row_max(x, n, dtype);
    const bool is_kept = dtype == TT_REAL;
    const tt_real_t inverse = 1.0f / row_sum_exp(x, n, m, is_kept ? y : NULL, dtype);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf v = tt_vread(is_kept ? y : x, at, n, 0.0f, dtype);
        tt_vwrite(y, at, n, (is_kept ? v : tt_vexp(v - m)) * inverse, dtype);
    }
}

TT_INLINE void softmax_backward_row(void *dx, const void *dy, const void *y, size_t n,
                                    tutti_dtype_t dtype)
{
    tt_v16_t sum = tt_v16_splat(0.0f);
    TT_EACH_VECTOR(at, part, 0, n)
    {
        sum.part[part] = tt_vfma(tt_vread(dy, at, n, 0.0f, dtype), tt_vread(y, at, n, 0.0f, dtype),
                                 sum.part[part]);
    }
    const tt_real_t dot = tt_v16_sum(sum);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf g = tt_vread(dy, at, n, 0.0f, dtype) - dot;
        tt_vwrite(dx, at, n, tt_vread(y, at, n, 0.0f, dtype) * g, dtype);
    }
}

TT_INLINE void log_softmax_row(void *y, const void *x, size_t n, tutti_dtype_t dtype)
{
    const tt_real_t m = row_max(x, n, dtype);
    const tt_real_t log_sum = log_of(row_sum_exp(x, n, m, NULL, dtype));
    for (size_t at = 0; at < n; at += TT_LANES) {
        tt_vwrite(y, at, n, (tt_vread(x, at, n, 0.0f, dtype) - m) - log_sum, dtype);
    }
}

TT_INLINE void log_softmax_backward_row(void *dx, const void *dy, const void *y, size_t n,
                                        tutti_dtype_t dtype)
{
    const tt_real_t sum = row_sum(dy, n, 0.0f, dtype);
    for (size_t at = 0; at < n; at += TT_LANES) {
        const tt_vf share = tt_vexp(tt_vread(y, at, n, 0.0f, dtype)) * sum;
        tt_vwrite(dx, at, n, tt_vread(dy, at, n, 0.0f, dtype) - share, dtype);
    }
}

TT_INLINE tt_real_t element(const void *x, size_t at, tutti_dtype_t dtype)
{
    return tt_vread((const char *)x + at * tt_vbytes(dtype), 0, 1, 0.0f, dtype)[0];
}

TT_INLINE void loss_max_row(tt_loss_row_t *row, tutti_dtype_t dtype)
{
    row->max = (double)row_max(row->x, row->n, dtype);
}

TT_INLINE void loss_sums_row(tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const tt_real_t m = (tt_real_t)row->max;
    row->sum = (double)row_sum_exp(row->x, row->n, m, NULL, dtype);
    row->pick = row->target < 0 ? 0 : (double)(element(row->x, (size_t)row->target, dtype) - m);
    row->total = row->smoothing > 0 ? (double)row_sum(row->x, row->n, m, dtype) : 0;
}

TT_INLINE void loss_finish_row(tt_loss_row_t *row)
{
    const tt_real_t log_sum = log_of((tt_real_t)row->sum);
    const tt_real_t smoothing = (tt_real_t)row->smoothing;
    tt_real_t loss = log_sum - (tt_real_t)row->pick;
    if (smoothing > 0) {
        const tt_real_t mean = (tt_real_t)row->total / (tt_real_t)row->classes;
        loss = (1.0f - smoothing) * loss + smoothing * (log_sum - mean);
    }
    row->loss = (double)loss;
}

TT_INLINE void loss_row(tt_loss_row_t *row, tutti_dtype_t dtype)
{
    loss_max_row(row, dtype);
    loss_sums_row(row, dtype);
    loss_finish_row(row);
}

TT_INLINE void loss_backward_row(const tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const tt_real_t max = (tt_real_t)row->max, inverse = 1.0f / (tt_real_t)row->sum;
    const tt_real_t scale = (tt_real_t)row->scale, factor = scale * inverse;
    const tt_real_t smoothing = (tt_real_t)row->smoothing,
                    floor = smoothing / (tt_real_t)row->classes;
    tt_vf at_target = tt_vsplat(0.0f); /* first of all: dx may be x */
    if (row->target >= 0) {
        const tt_real_t x = element(row->x, (size_t)row->target, dtype);
        const tt_real_t hit = tt_vexp(tt_vsplat(x - max))[0] * inverse;
        at_target = tt_vsplat(scale * (hit - floor - (1.0f - smoothing)));
    }
    for (size_t at = 0; at < row->n; at += TT_LANES) {
        const tt_vf e = tt_vexp(tt_vread(row->x, at, row->n, 0.0f, dtype) - max);
        tt_vwrite(row->dx, at, row->n, e * factor - scale * floor, dtype);
    }
    if (row->target >= 0) {
        tt_vwrite((char *)row->dx + (size_t)row->target * tt_vbytes(dtype), 0, 1, at_target, dtype);
    }
}

/* ---- targets that are distributions ---------------------------------------------------------- */

/* What is spread over all classes, and what goes where the target is. */
typedef struct {
    tt_real_t floor, kept;
} shares_t;

TT_INLINE shares_t shares_of(const tt_loss_row_t *row)
{
    const tt_real_t smoothing = (tt_real_t)row->smoothing;
    return (shares_t){.floor = smoothing / (tt_real_t)row->classes, .kept = 1.0f - smoothing};
}

/* q of the classes from `at` on, without what a target that is one class adds; 0 past the end. */
TT_INLINE tt_vf spread_at(const tt_loss_row_t *row, shares_t shares, size_t at)
{
    const tt_vf weight = tt_vread(row->weight, at, row->n, 0.0f, TT_REAL);
    if (row->probs == NULL) {
        return weight * shares.floor;
    }
    const tt_vf probs = tt_vread(row->probs, at, row->n, 0.0f, TT_REAL);
    return weight * (probs * shares.kept + shares.floor);
}

TT_INLINE bool is_spread(const tt_loss_row_t *row)
{
    return row->probs != NULL || row->smoothing > 0;
}

/* What such a target adds to its class. */
TT_INLINE tt_real_t share_of_target(const tt_loss_row_t *row, shares_t shares)
{
    return ((const tt_real_t *)row->weight)[row->target] * shares.kept;
}

/* The sum of q, and with `distance` that of q (x - m). */
TT_INLINE tt_real_t sum_of_shares(const tt_loss_row_t *row, tt_real_t m, tt_real_t *distance,
                                  tutti_dtype_t dtype)
{
    const shares_t shares = shares_of(row);
    tt_v16_t sum = tt_v16_splat(0.0f), dot = tt_v16_splat(0.0f);
    TT_EACH_VECTOR(at, part, 0, is_spread(row) ? row->n : 0)
    {
        const tt_vf q = spread_at(row, shares, at);
        sum.part[part] += q;
        if (distance != NULL) {
            dot.part[part] = tt_vfma(q, tt_vread(row->x, at, row->n, m, dtype) - m, dot.part[part]);
        }
    }
    const tt_real_t own = row->probs == NULL ? share_of_target(row, shares) : 0;
    if (distance != NULL) {
        *distance = tt_v16_sum(dot);
        *distance +=
            row->probs == NULL ? own * (element(row->x, (size_t)row->target, dtype) - m) : 0;
    }
    return tt_v16_sum(sum) + own;
}

TT_INLINE void soft_loss_row(tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const tt_real_t m = row_max(row->x, row->n, dtype);
    tt_real_t distance;
    row->max = (double)m;
    row->sum = (double)row_sum_exp(row->x, row->n, m, NULL, dtype);
    const tt_real_t shares = sum_of_shares(row, m, &distance, dtype);
    row->loss = (double)(shares * log_of((tt_real_t)row->sum) - distance);
}

/* -(1 - s) weight log softmax */
TT_INLINE void probs_backward_row(const tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const tt_real_t m = (tt_real_t)row->max, log_sum = log_of((tt_real_t)row->sum);
    const tt_real_t factor = -(tt_real_t)row->scale * shares_of(row).kept;
    for (size_t at = 0; at < row->n; at += TT_LANES) {
        const tt_vf weight = tt_vread(row->weight, at, row->n, 0.0f, TT_REAL);
        const tt_vf log = (tt_vread(row->x, at, row->n, 0.0f, dtype) - m) - log_sum;
        tt_vwrite(row->dprobs, at, row->n, weight * log * factor, TT_REAL);
    }
}

TT_INLINE void soft_loss_backward_row(const tt_loss_row_t *row, tutti_dtype_t dtype)
{
    const shares_t shares = shares_of(row);
    const tt_real_t m = (tt_real_t)row->max, scale = (tt_real_t)row->scale;
    const tt_real_t sum = sum_of_shares(row, m, NULL, dtype), inverse = sum / (tt_real_t)row->sum;
    tt_vf at_target = tt_vsplat(0.0f); /* first of all: dx may be x */
    if (row->probs == NULL) {
        const tt_real_t hit =
            tt_vexp(tt_vsplat(element(row->x, (size_t)row->target, dtype) - m))[0];
        const tt_real_t weight = ((const tt_real_t *)row->weight)[row->target];
        at_target = tt_vsplat(scale * (hit * inverse - weight * (shares.floor + shares.kept)));
    }
    if (row->dprobs != NULL) {
        probs_backward_row(row, dtype);
    }
    for (size_t at = 0; at < row->n; at += TT_LANES) {
        const tt_vf e = tt_vexp(tt_vread(row->x, at, row->n, 0.0f, dtype) - m);
        tt_vwrite(row->dx, at, row->n, (e * inverse - spread_at(row, shares, at)) * scale, dtype);
    }
    if (row->probs == NULL) {
        tt_vwrite((char *)row->dx + (size_t)row->target * tt_vbytes(dtype), 0, 1, at_target, dtype);
    }
}

/* One function for each dtype. */
#define TT_DTYPE(suffix, dtype)                                                                    \
    static void softmax_##suffix(void *y, const void *x, size_t n)                                 \
    {                                                                                              \
        softmax_row(y, x, n, dtype);                                                               \
    }                                                                                              \
                                                                                                   \
    static void softmax_backward_##suffix(void *dx, const void *dy, const void *y, size_t n)       \
    {                                                                                              \
        softmax_backward_row(dx, dy, y, n, dtype);                                                 \
    }                                                                                              \
                                                                                                   \
    static void log_softmax_##suffix(void *y, const void *x, size_t n)                             \
    {                                                                                              \
        log_softmax_row(y, x, n, dtype);                                                           \
    }                                                                                              \
                                                                                                   \
    static void log_softmax_backward_##suffix(void *dx, const void *dy, const void *y, size_t n)   \
    {                                                                                              \
        log_softmax_backward_row(dx, dy, y, n, dtype);                                             \
    }                                                                                              \
                                                                                                   \
    static void loss_##suffix(tt_loss_row_t *row)                                                  \
    {                                                                                              \
        loss_row(row, dtype);                                                                      \
    }                                                                                              \
                                                                                                   \
    static void loss_max_##suffix(tt_loss_row_t *row)                                              \
    {                                                                                              \
        loss_max_row(row, dtype);                                                                  \
    }                                                                                              \
                                                                                                   \
    static void loss_sums_##suffix(tt_loss_row_t *row)                                             \
    {                                                                                              \
        loss_sums_row(row, dtype);                                                                 \
    }                                                                                              \
                                                                                                   \
    static void loss_finish_##suffix(tt_loss_row_t *row)                                           \
    {                                                                                              \
        loss_finish_row(row);                                                                      \
    }                                                                                              \
                                                                                                   \
    static void loss_backward_##suffix(const tt_loss_row_t *row)                                   \
    {                                                                                              \
        loss_backward_row(row, dtype);                                                             \
    }                                                                                              \
                                                                                                   \
    static void soft_loss_##suffix(tt_loss_row_t *row)                                             \
    {                                                                                              \
        soft_loss_row(row, dtype);                                                                 \
    }                                                                                              \
                                                                                                   \
    static void soft_loss_backward_##suffix(const tt_loss_row_t *row)                              \
    {                                                                                              \
        soft_loss_backward_row(row, dtype);                                                        \
    }
#include "core/kernel/dtypes.def"
#undef TT_DTYPE

extern const tt_softmax_ops_t TT_ISA_NAME(tt_softmax_ops);

const tt_softmax_ops_t TT_ISA_NAME(tt_softmax_ops) = {.rows = {
#define TT_DTYPE(suffix, dtype)                                                                    \
    [dtype] = {.softmax = softmax_##suffix,                                                        \
               .softmax_backward = softmax_backward_##suffix,                                      \
               .log_softmax = log_softmax_##suffix,                                                \
               .log_softmax_backward = log_softmax_backward_##suffix,                              \
               .loss = loss_##suffix,                                                              \
               .loss_max = loss_max_##suffix,                                                      \
               .loss_sums = loss_sums_##suffix,                                                    \
               .loss_finish = loss_finish_##suffix,                                                \
               .loss_backward = loss_backward_##suffix,                                            \
               .soft_loss = soft_loss_##suffix,                                                    \
               .soft_loss_backward = soft_loss_backward_##suffix},
#include "core/kernel/dtypes.def"
#undef TT_DTYPE
                                                      }};
