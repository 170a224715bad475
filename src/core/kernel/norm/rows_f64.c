/* Rows of softmax, cross entropy and norms in f64, by plain loops: for gradient checks. */
#include <math.h>

#include "core/kernel/norm/rows_ops.h"

/* The largest element, and the sum of e^(x - it). */
static double sum_exp(const double *x, size_t n, double *max)
{
    double m = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        m = x[i] > m || isnan(x[i]) ? x[i] : m;
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp(x[i] - m);
    }
    *max = m;
    return sum;
}

static void softmax(void *y, const void *x, size_t n)
{
    const double *from = x;
    double max;
    const double sum = sum_exp(from, n, &max);
    for (size_t i = 0; i < n; i++) {
        ((double *)y)[i] = exp(from[i] - max) / sum;
    }
}

static void softmax_backward(void *dx, const void *dy, const void *y, size_t n)
{
    const double *g = dy, *p = y;
    double dot = 0;
    for (size_t i = 0; i < n; i++) {
        dot += g[i] * p[i];
    }
    for (size_t i = 0; i < n; i++) {
        ((double *)dx)[i] = p[i] * (g[i] - dot);
    }
}

static void log_softmax(void *y, const void *x, size_t n)
{
    const double *from = x;
    double max;
    const double log_sum = log(sum_exp(from, n, &max));
    for (size_t i = 0; i < n; i++) {
        ((double *)y)[i] = from[i] - max - log_sum;
    }
}

static void log_softmax_backward(void *dx, const void *dy, const void *y, size_t n)
{
    const double *g = dy, *p = y;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += g[i];
    }
    for (size_t i = 0; i < n; i++) {
        ((double *)dx)[i] = g[i] - exp(p[i]) * sum;
    }
}

static void loss(tt_loss_row_t *row)
{
    const double *x = row->x;
    double mean = 0;
    row->sum = sum_exp(x, row->n, &row->max);
    for (size_t i = 0; i < row->n; i++) {
        mean += (x[i] - row->max) / (double)row->n;
    }
    const double log_sum = log(row->sum);
    row->loss = (1 - row->smoothing) * (log_sum - (x[row->target] - row->max));
    row->loss += row->smoothing > 0 ? row->smoothing * (log_sum - mean) : 0;
}

static void loss_backward(const tt_loss_row_t *row)
{
    const double *x = row->x, floor = row->smoothing / (double)row->n;
    for (size_t i = 0; i < row->n; i++) {
        const double p = exp(x[i] - row->max) / row->sum;
        const double hit = (int64_t)i == row->target ? 1 - row->smoothing : 0;
        ((double *)row->dx)[i] = row->scale * (p - floor - hit);
    }
}

const tt_softmax_rows_t tt_softmax_rows_f64 = {
    softmax, softmax_backward, log_softmax, log_softmax_backward, loss, loss_backward};

static void norm_forward(tt_norm_row_t *row, bool is_rms)
{
    const double *x = row->x, *gamma = row->gamma, *beta = row->beta, n = (double)row->n;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < row->n; i++) {
        sum += x[i];
    }
    row->mean = is_rms ? 0 : sum / n;
    for (size_t i = 0; i < row->n; i++) {
        squares += (x[i] - row->mean) * (x[i] - row->mean);
    }
    row->rstd = 1 / sqrt(squares / n + row->eps);
    for (size_t i = 0; i < row->n; i++) {
        const double y = (x[i] - row->mean) * row->rstd * (gamma == NULL ? 1 : gamma[i]);
        ((double *)row->y)[i] = y + (beta == NULL || is_rms ? 0 : beta[i]);
    }
}

static void norm_backward(const tt_norm_row_t *row, bool is_rms)
{
    const double *x = row->x, *dy = row->dy, *gamma = row->gamma, n = (double)row->n;
    double *dx = row->dx, *dgamma = row->dgamma, *dbeta = row->dbeta, sum = 0, dot = 0;
    for (size_t i = 0; i < row->n; i++) {
        const double hat = (x[i] - row->mean) * row->rstd, g = dy[i] * (gamma ? gamma[i] : 1);
        sum += is_rms ? 0 : g;
        dot += g * hat;
        if (dgamma != NULL) {
            dgamma[i] += dy[i] * hat;
        }
        if (dbeta != NULL) {
            dbeta[i] += dy[i];
        }
    }
    for (size_t i = 0; i < row->n && dx != NULL; i++) {
        const double hat = (x[i] - row->mean) * row->rstd, g = dy[i] * (gamma ? gamma[i] : 1);
        dx[i] = row->rstd * (g - sum / n - hat * (dot / n));
    }
}

static void layer_forward(tt_norm_row_t *row)
{
    norm_forward(row, false);
}

static void layer_backward(const tt_norm_row_t *row)
{
    norm_backward(row, false);
}

static void rms_forward(tt_norm_row_t *row)
{
    norm_forward(row, true);
}

static void rms_backward(const tt_norm_row_t *row)
{
    norm_backward(row, true);
}

const tt_norm_rows_t tt_layer_norm_rows_f64 = {layer_forward, layer_backward};
const tt_norm_rows_t tt_rms_norm_rows_f64 = {rms_forward, rms_backward};
