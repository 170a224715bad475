/* Weight norm over rows, some rows at a time. Sums are in 16 lanes, which every compiler puts into
 * vectors, of any instruction set with the same bits; the operation waits for memory anyway. Cost:
 * v (and dw) read once from memory and once from a cache, w (dv) written once. */
#include "core/kernel/norm/weight_rows.h"

#include <math.h>

enum { PIECE = 16384, LANES = 16 };

/* ---- f32 ------------------------------------------------------------------------------------- */

static float dot_f32(const float *a, const float *b, size_t n)
{
    float sum[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            sum[i] += a[at + i] * b[at + i];
        }
    }
    for (size_t i = 0; at + i < n; i++) {
        sum[i] += a[at + i] * b[at + i];
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            sum[i] += sum[i + width];
        }
    }
    return sum[0];
}

/* out = factor (a - slope b) */
static void combine_f32(float *restrict out, float factor, const float *a, float slope,
                        const float *b, size_t n)
{
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            out[at + i] = factor * (a[at + i] - slope * b[at + i]);
        }
    }
    for (; at < n; at++) {
        out[at] = factor * (a[at] - slope * b[at]);
    }
}

static void scale_f32(float *restrict out, float factor, const float *a, size_t n)
{
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            out[at + i] = factor * a[at + i];
        }
    }
    for (; at < n; at++) {
        out[at] = factor * a[at];
    }
}

static void forward_f32(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const float *v = (const float *)norm->v + row * n;
    const float length = sqrtf(dot_f32(v, v, n));
    scale_f32((float *)norm->w + row * n, ((const float *)norm->g)[row] / length, v, n);
    if (norm->length != NULL) {
        ((float *)norm->length)[row] = length;
    }
}

static void backward_f32(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const float *v = (const float *)norm->v + row * n, *dw = (const float *)norm->dw + row * n;
    const float length = ((const float *)norm->length)[row], dg = dot_f32(dw, v, n) / length;
    if (norm->dg != NULL) {
        ((float *)norm->dg)[row] = dg;
    }
    if (norm->dv != NULL) {
        const float factor = ((const float *)norm->g)[row] / length;
        combine_f32((float *)norm->dv + row * n, factor, dw, dg / length, v, n);
    }
}

/* ---- f64 ------------------------------------------------------------------------------------- */

static double dot_f64(const double *a, const double *b, size_t n)
{
    double sum[LANES] = {0};
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            sum[i] += a[at + i] * b[at + i];
        }
    }
    for (size_t i = 0; at + i < n; i++) {
        sum[i] += a[at + i] * b[at + i];
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t i = 0; i < width; i++) {
            sum[i] += sum[i + width];
        }
    }
    return sum[0];
}

/* out = factor (a - slope b) */
static void combine_f64(double *restrict out, double factor, const double *a, double slope,
                        const double *b, size_t n)
{
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            out[at + i] = factor * (a[at + i] - slope * b[at + i]);
        }
    }
    for (; at < n; at++) {
        out[at] = factor * (a[at] - slope * b[at]);
    }
}

static void scale_f64(double *restrict out, double factor, const double *a, size_t n)
{
    size_t at = 0;
    for (; at + LANES <= n; at += LANES) {
        for (size_t i = 0; i < LANES; i++) {
            out[at + i] = factor * a[at + i];
        }
    }
    for (; at < n; at++) {
        out[at] = factor * a[at];
    }
}

static void forward_f64(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const double *v = (const double *)norm->v + row * n;
    const double length = sqrt(dot_f64(v, v, n));
    scale_f64((double *)norm->w + row * n, ((const double *)norm->g)[row] / length, v, n);
    if (norm->length != NULL) {
        ((double *)norm->length)[row] = length;
    }
}

static void backward_f64(const tt_weight_norm_t *norm, size_t row)
{
    const size_t n = norm->n;
    const double *v = (const double *)norm->v + row * n, *dw = (const double *)norm->dw + row * n;
    const double length = ((const double *)norm->length)[row], dg = dot_f64(dw, v, n) / length;
    if (norm->dg != NULL) {
        ((double *)norm->dg)[row] = dg;
    }
    if (norm->dv != NULL) {
        const double factor = ((const double *)norm->g)[row] / length;
        combine_f64((double *)norm->dv + row * n, factor, dw, dg / length, v, n);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

typedef struct {
    const tt_weight_norm_t *norm;
    void (*do_row)(const tt_weight_norm_t *norm, size_t row);
    size_t group;
} weight_rows_job_t;

static void do_piece(void *arg, size_t piece)
{
    const weight_rows_job_t *job = arg;
    const size_t first = piece * job->group;
    for (size_t i = first; i < first + job->group && i < job->norm->rows; i++) {
        job->do_row(job->norm, i);
    }
}

static tutti_status_t run(tt_threads_t *threads, const tt_weight_norm_t *norm,
                          void (*do_row)(const tt_weight_norm_t *, size_t))
{
    weight_rows_job_t job = {.norm = norm, .do_row = do_row, .group = PIECE / (norm->n + 1) + 1};
    tt_threads_run(threads, (norm->rows + job.group - 1) / job.group, do_piece, &job);
    return TUTTI_OK;
}

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const tt_weight_norm_t *norm = arguments;
    return run(threads, norm, norm->is_wide ? forward_f64 : forward_f32);
}

static tutti_status_t run_backward(tt_threads_t *threads, const void *arguments)
{
    const tt_weight_norm_t *norm = arguments;
    return run(threads, norm, norm->is_wide ? backward_f64 : backward_f32);
}

static const tt_pointer_t pointers[] = {
    TT_POINTER(tt_weight_norm_t, v),  TT_POINTER(tt_weight_norm_t, g),
    TT_POINTER(tt_weight_norm_t, w),  TT_POINTER(tt_weight_norm_t, length),
    TT_POINTER(tt_weight_norm_t, dw), TT_POINTER(tt_weight_norm_t, dv),
    TT_POINTER(tt_weight_norm_t, dg), TT_NO_POINTER};
TT_LAUNCHER(tt_weight_norm, "weight_norm", tt_weight_norm_t, run_forward, pointers)
TT_LAUNCHER(tt_weight_norm_backward, "weight_norm_backward", tt_weight_norm_t, run_backward,
            pointers)
