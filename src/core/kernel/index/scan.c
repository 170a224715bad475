/* Running sums and products. See scan.h.
 *
 * The gradient of a product: with P[i] = Π x[k], k < i, and S[i] = g[i] + x[i + 1] S[i + 1],
 *
 *     dx[i] = P[i] S[i]
 *
 * P goes forward and S backward through the line. Both are kept as a fraction and an exponent of
 * their own, so that a product which leaves the range of f64 and comes back is not lost.
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

/* f32 in order and without gaps, which is most of it. */
static void sum_dense(float *restrict out, const float *restrict x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        out[i] = (float)sum;
    }
}

static void scan_floats(const tt_scan_t *scan, void *out, const void *x)
{
    const int64_t n = scan->x.shape[scan->dim], to = scan->out.strides[scan->dim],
                  from = scan->x.strides[scan->dim];
    const bool is_sum = scan->kind == TT_SCAN_SUM;
    double state = is_sum ? 0 : 1;
    if (is_sum && !scan->is_reverse && to == 1 && from == 1 && scan->x.dtype == TUTTI_F32 &&
        scan->out.dtype == TUTTI_F32) {
        sum_dense(out, x, n);
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

typedef struct {
    const tt_product_backward_t *backward;
    int64_t lines, per_piece, length;
    scaled_t *before; /* [pieces, length] P */
} product_job_t;

static void product_line(const product_job_t *job, int64_t line, scaled_t *before)
{
    const tt_product_backward_t *b = job->backward;
    const void *x = tt_line_data(&b->x, b->dim, line), *g = tt_line_data(&b->g, b->dim, line);
    void *dx = tt_line_data(&b->dx, b->dim, line);
    const int64_t n = job->length, from = b->x.strides[b->dim];
    scaled_t product = {1, 0}, sum = {0, 0};
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
        store_float(b->dx.dtype, dx, i * b->dx.strides[b->dim], plain(times(before[i], sum)));
    }
}

static void product_piece(void *arg, size_t piece)
{
    const product_job_t *job = arg;
    const int64_t first = (int64_t)piece * job->per_piece;
    for (int64_t i = first; i < first + job->per_piece && i < job->lines; i++) {
        product_line(job, i, job->before + (int64_t)piece * job->length);
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
