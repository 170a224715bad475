/* Running sums and products. See scan.h.
 *
 * The gradient of a product: with P[i] = Π x[k], k < i, and S[i] = g[i] + x[i + 1] S[i + 1],
 *
 *     dx[i] = P[i] S[i]
 *
 * P goes forward and S backward through the line. Where one of them leaves the range of f64, even
 * if it comes back, the line is done again with a fraction and an exponent of their own for each.
 * As long as all numbers are normal, or 0, both ways round alike: only a 0 may have another sign.
 */
#include "core/kernel/index/scan.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/kernel/half.h"
#include "core/kernel/index/lines.h"

enum { ELEMENTS = 8192, PIECES = 16 };

static double load_float(tutti_dtype_t dtype, const void *line, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return (double)((const float *)line)[i];
    case TUTTI_F64:
        return ((const double *)line)[i];
    case TUTTI_BF16:
        return (double)tt_bf16_to_f32(((const uint16_t *)line)[i]);
    default:
        TT_ASSERT(dtype == TUTTI_F16);
        return (double)tt_f16_to_f32(((const uint16_t *)line)[i]);
    }
}

static void store_float(tutti_dtype_t dtype, void *line, int64_t i, double value)
{
    switch (dtype) {
    case TUTTI_F32:
        ((float *)line)[i] = (float)value;
        return;
    case TUTTI_F64:
        ((double *)line)[i] = value;
        return;
    case TUTTI_BF16:
        ((uint16_t *)line)[i] = tt_bf16_from_f32((float)value);
        return;
    default:
        TT_ASSERT(dtype == TUTTI_F16);
        ((uint16_t *)line)[i] = tt_f16_from_f32((float)value);
    }
}

static int64_t load_whole(tutti_dtype_t dtype, const void *line, int64_t i)
{
    switch (dtype) {
    case TUTTI_I64:
        return ((const int64_t *)line)[i];
    case TUTTI_I32:
        return ((const int32_t *)line)[i];
    case TUTTI_I8:
        return ((const int8_t *)line)[i];
    case TUTTI_U8:
        return ((const uint8_t *)line)[i];
    default:
        TT_ASSERT(dtype == TUTTI_BOOL);
        return ((const uint8_t *)line)[i] != 0;
    }
}

/* ---- running sums and products --------------------------------------------------------------- */

typedef struct {
    const tt_scan_t *scan;
    int64_t lines, per_piece;
} scan_job_t;

/* f32, which is most of it; inline, so that the kind and steps of 1 are decided before the loop. */
static inline __attribute__((always_inline)) void scan_f32(float *restrict out, int64_t to,
                                                           const float *restrict x, int64_t from,
                                                           int64_t n, bool is_sum)
{
    double state = is_sum ? 0 : 1;
    for (int64_t i = 0; i < n; i++) {
        const double value = (double)x[i * from];
        state = is_sum ? state + value : state * value;
        out[i * to] = (float)state;
    }
}

static void scan_f32_of(const tt_scan_t *scan, float *out, const float *x)
{
    const int64_t n = scan->x.shape[scan->dim], to = scan->out.strides[scan->dim],
                  from = scan->x.strides[scan->dim];
    const bool is_sum = scan->kind == TT_SCAN_SUM;
    if (scan->is_reverse) {
        out += (n - 1) * to;
        x += (n - 1) * from;
    }
    const int64_t sign = scan->is_reverse ? -1 : 1;
    if (is_sum && to == 1 && from == 1 && sign == 1) {
        scan_f32(out, 1, x, 1, n, true);
    } else if (is_sum) {
        scan_f32(out, sign * to, x, sign * from, n, true);
    } else {
        scan_f32(out, sign * to, x, sign * from, n, false);
    }
}

static void scan_floats(const tt_scan_t *scan, void *out, const void *x)
{
    const int64_t n = scan->x.shape[scan->dim], to = scan->out.strides[scan->dim],
                  from = scan->x.strides[scan->dim];
    const bool is_sum = scan->kind == TT_SCAN_SUM;
    double state = is_sum ? 0 : 1;
    if (scan->x.dtype == TUTTI_F32 && scan->out.dtype == TUTTI_F32) {
        scan_f32_of(scan, out, x);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = scan->is_reverse ? n - 1 - k : k;
        const double value = load_float(scan->x.dtype, x, i * from);
        state = is_sum ? state + value : state * value;
        store_float(scan->out.dtype, out, i * to, state);
    }
}

static void scan_whole(const tt_scan_t *scan, int64_t *out, const void *x)
{
    const int64_t n = scan->x.shape[scan->dim], to = scan->out.strides[scan->dim],
                  from = scan->x.strides[scan->dim];
    const bool is_sum = scan->kind == TT_SCAN_SUM;
    uint64_t state = is_sum ? 0 : 1;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = scan->is_reverse ? n - 1 - k : k;
        const uint64_t value = (uint64_t)load_whole(scan->x.dtype, x, i * from);
        state = is_sum ? state + value : state * value;
        out[i * to] = (int64_t)state;
    }
}

static void scan_piece(void *arg, size_t piece)
{
    const scan_job_t *job = arg;
    const tt_scan_t *scan = job->scan;
    const int64_t first = (int64_t)piece * job->per_piece;
    for (int64_t i = first; i < first + job->per_piece && i < job->lines; i++) {
        void *out = tt_line_data(&scan->out, scan->dim, i);
        const void *x = tt_line_data(&scan->x, scan->dim, i);
        if (tutti_dtype_is_float(scan->x.dtype)) {
            scan_floats(scan, out, x);
        } else {
            scan_whole(scan, out, x);
        }
    }
}

static tutti_status_t run_scan(tt_threads_t *threads, const void *arguments)
{
    const tt_scan_t *scan = arguments;
    scan_job_t job = {scan, tt_line_count(&scan->x, scan->dim),
                      tt_lines_per_piece(scan->x.shape[scan->dim], ELEMENTS)};
    const bool is_float = tutti_dtype_is_float(scan->x.dtype);
    if (scan->x.shape[scan->dim] == 0) {
        return TUTTI_OK; /* of lines that have no element there may be very many */
    }
    TT_ASSERT(is_float ? tutti_dtype_is_float(scan->out.dtype) : scan->out.dtype == TUTTI_I64);
    tt_threads_run(threads, (size_t)((job.lines + job.per_piece - 1) / job.per_piece), scan_piece,
                   &job);
    return TUTTI_OK;
}

static const tt_pointer_t scan_pointers[] = {TT_POINTER(tt_scan_t, out.data),
                                             TT_POINTER(tt_scan_t, x.data), TT_NO_POINTER};

TT_LAUNCHER(tt_scan, "scan", tt_scan_t, run_scan, scan_pointers)

/* ---- the gradient of a running product ------------------------------------------------------- */

/* fraction × 2^exponent; the fraction is 0, in [1/2, 1), or not finite. */
typedef struct {
    double fraction;
    int64_t exponent;
} scaled_t;

static scaled_t scaled(double value, int64_t exponent)
{
    int moved = 0;
    if (value != 0 && isfinite(value)) {
        value = frexp(value, &moved);
    }
    return (scaled_t){value, exponent + moved};
}

static scaled_t times(scaled_t a, scaled_t b)
{
    return scaled(a.fraction * b.fraction, a.exponent + b.exponent);
}

/* a × 2^(a's exponent - exponent), for exponents that are not below a's. */
static double aligned(scaled_t a, int64_t exponent)
{
    const int64_t down = exponent - a.exponent;
    return !isfinite(a.fraction) ? a.fraction : down > 2000 ? 0 : ldexp(a.fraction, -(int)down);
}

static scaled_t plus(scaled_t a, scaled_t b)
{
    if (a.fraction == 0 || b.fraction == 0) {
        return a.fraction == 0 ? b : a;
    }
    const int64_t most = a.exponent > b.exponent ? a.exponent : b.exponent;
    return scaled(aligned(a, most) + aligned(b, most), most);
}

static double plain(scaled_t a)
{
    const int64_t e = a.exponent;
    return a.fraction == 0 || !isfinite(a.fraction) ? a.fraction
                                                    : ldexp(a.fraction, e > 5000    ? 5000
                                                                        : e < -5000 ? -5000
                                                                                    : (int)e);
}

/* A line of the operands, and room for as many of P. */
typedef struct {
    const tt_product_backward_t *backward;
    void *dx;
    const void *x, *g;
    int64_t count;
    scaled_t *before;
} line_t;

/* Every product of two such numbers, or of one with an f32, is normal. */
#define PLAIN_MOST 0x1p450
#define PLAIN_LEAST 0x1p-450

static bool is_plain(double value)
{
    const double size = fabs(value);
    return (size < PLAIN_MOST && size > PLAIN_LEAST) || size == 0;
}

/* f32; false: a number has left the range, and dx is not all written. */
static bool product_line_f32(const line_t *l)
{
    const tt_product_backward_t *b = l->backward;
    const int64_t x_step = b->x.strides[b->dim], g_step = b->g.strides[b->dim],
                  dx_step = b->dx.strides[b->dim];
    const float *x = l->x, *g = l->g;
    float *dx = l->dx;
    double *before = (double *)(void *)l->before, product = 1, sum = 0;
    bool is_good = true;
    for (int64_t i = 0; i < l->count; i++) {
        before[i] = product;
        is_good &= is_plain(product);
        product *= (double)x[i * x_step];
    }
    for (int64_t i = l->count; i-- > 0 && is_good;) {
        sum = (double)g[i * g_step] + sum;
        is_good &= is_plain(sum);
        dx[i * dx_step] = (float)(before[i] * sum);
        sum *= (double)x[i * x_step];
    }
    return is_good;
}

/* Any floats, and any of their products. */
static void product_line(const line_t *l)
{
    const tt_product_backward_t *b = l->backward;
    const int64_t n = l->count, from = b->x.strides[b->dim];
    const void *x = l->x, *g = l->g;
    scaled_t product = {1, 0}, sum = {0, 0}, *before = l->before;
    for (int64_t i = 0; i < n; i++) {
        before[i] = product;
        product = times(product, scaled(load_float(b->x.dtype, x, i * from), 0));
    }
    for (int64_t i = n; i-- > 0;) {
        const double own = load_float(b->g.dtype, g, i * b->g.strides[b->dim]);
        if (i + 1 < n) {
            sum = times(sum, scaled(load_float(b->x.dtype, x, (i + 1) * from), 0));
        }
        sum = plus(scaled(own, 0), sum);
        store_float(b->dx.dtype, l->dx, i * b->dx.strides[b->dim], plain(times(before[i], sum)));
    }
}

typedef struct {
    const tt_product_backward_t *backward;
    int64_t lines, per_piece, length;
    scaled_t *before; /* [pieces, length] P */
} product_job_t;

static void product_piece(void *arg, size_t piece)
{
    const product_job_t *job = arg;
    const int64_t first = (int64_t)piece * job->per_piece;
    for (int64_t i = first; i < first + job->per_piece && i < job->lines; i++) {
        const tt_product_backward_t *b = job->backward;
        const line_t line = {.backward = b,
                             .dx = tt_line_data(&b->dx, b->dim, i),
                             .x = tt_line_data(&b->x, b->dim, i),
                             .g = tt_line_data(&b->g, b->dim, i),
                             .count = job->length,
                             .before = job->before + (int64_t)piece * job->length};
        const bool is_f32 =
            b->x.dtype == TUTTI_F32 && b->g.dtype == TUTTI_F32 && b->dx.dtype == TUTTI_F32;
        if (!is_f32 || !product_line_f32(&line)) {
            product_line(&line);
        }
    }
}

static tutti_status_t run_product(tt_threads_t *threads, const void *arguments)
{
    const tt_product_backward_t *backward = arguments;
    product_job_t job = {.backward = backward,
                         .lines = tt_line_count(&backward->x, backward->dim),
                         .length = backward->x.shape[backward->dim]};
    const int64_t pieces = job.lines < PIECES ? job.lines : PIECES;
    if (pieces == 0 || job.length == 0) {
        return TUTTI_OK;
    }
    job.per_piece = (job.lines + pieces - 1) / pieces;
    job.before = tt_threads_borrow(threads, (size_t)(pieces * job.length) * sizeof *job.before);
    TT_TRY_ALLOC(job.before);
    tt_threads_run(threads, (size_t)pieces, product_piece, &job);
    tt_threads_give_back(threads, job.before);
    return TUTTI_OK;
}

static const tt_pointer_t product_pointers[] = {
    TT_POINTER(tt_product_backward_t, dx.data), TT_POINTER(tt_product_backward_t, g.data),
    TT_POINTER(tt_product_backward_t, x.data), TT_NO_POINTER};

TT_LAUNCHER(tt_scan_product_backward, "cumprod_backward", tt_product_backward_t, run_product,
            product_pointers)
