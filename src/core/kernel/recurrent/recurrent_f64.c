/* Rows of recurrent steps in f64, by plain loops: for gradient checks. */
#include <math.h>
#include <stdint.h>

#include "core/kernel/recurrent/recurrent_ops.h"

/* Element `at` of row `row` of [rows, n]; [rows, parts n] has parts × rows of them. */
static double *cell(const tt_recurrent_step_t *s, const void *array, size_t row, size_t at)
{
    return (double *)(uintptr_t)array + row * s->n + at;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void forward_lstm(const tt_recurrent_step_t *s, size_t row, size_t at, const double a[4])
{
    double *kept = cell(s, s->kept, 4 * row, at);
    kept[0] = sigmoid(a[0]);
    kept[s->n] = sigmoid(a[1]);
    kept[2 * s->n] = tanh(a[2]);
    kept[3 * s->n] = sigmoid(a[3]);
    const double c = kept[s->n] * *cell(s, s->c, row, at) + kept[0] * kept[2 * s->n];
    *cell(s, s->c_next, row, at) = c;
    *cell(s, s->y, row, at) = kept[3 * s->n] * tanh(c);
}

static void forward_gru(const tt_recurrent_step_t *s, size_t row, size_t at, const double a[4])
{
    double *kept = cell(s, s->kept, 4 * row, at);
    const double q = *cell(s, s->product, 3 * row + 2, at);
    const double r = sigmoid(a[0]), z = sigmoid(a[1]), n = tanh(a[2] - q + r * q);
    kept[0] = r;
    kept[s->n] = z;
    kept[2 * s->n] = n;
    kept[3 * s->n] = q;
    *cell(s, s->y, row, at) = n + z * (*cell(s, s->h, row, at) - n);
}

static void forward(const tt_recurrent_step_t *s, size_t row)
{
    const size_t gates = tt_recurrent_gates(s->kind);
    for (size_t at = 0; at < s->n; at++) {
        double a[4] = {0};
        for (size_t k = 0; k < gates; k++) {
            a[k] = *cell(s, s->x, gates * row + k, at) + *cell(s, s->product, gates * row + k, at);
        }
        if (s->kind == TT_RECURRENT_LSTM) {
            forward_lstm(s, row, at, a);
        } else if (s->kind == TT_RECURRENT_GRU) {
            forward_gru(s, row, at, a);
        } else {
            const double h = s->kind == TT_RECURRENT_TANH ? tanh(a[0]) : a[0] <= 0 ? 0 : a[0];
            *cell(s, s->kept, row, at) = *cell(s, s->y, row, at) = h;
        }
    }
}

static void backward_lstm(const tt_recurrent_step_t *s, size_t row, size_t at, double dh)
{
    const double *kept = cell(s, s->kept, 4 * row, at);
    const double i = kept[0], f = kept[s->n], g = kept[2 * s->n], o = kept[3 * s->n];
    const double t = tanh(*cell(s, s->c_next, row, at));
    const double dc = *cell(s, s->dc, row, at) + dh * o * (1 - t * t);
    *cell(s, s->dx, 4 * row, at) = dc * g * i * (1 - i);
    *cell(s, s->dx, 4 * row + 1, at) = dc * *cell(s, s->c, row, at) * f * (1 - f);
    *cell(s, s->dx, 4 * row + 2, at) = dc * i * (1 - g * g);
    *cell(s, s->dx, 4 * row + 3, at) = dh * t * o * (1 - o);
    *cell(s, s->dc, row, at) = dc * f;
}

static void backward_gru(const tt_recurrent_step_t *s, size_t row, size_t at, double dh)
{
    const double *kept = cell(s, s->kept, 4 * row, at);
    const double r = kept[0], z = kept[s->n], n = kept[2 * s->n], q = kept[3 * s->n];
    const double dn = dh * (1 - z) * (1 - n * n);
    const double d[3] = {dn * q * r * (1 - r), dh * (*cell(s, s->h, row, at) - n) * z * (1 - z),
                         dn};
    for (size_t k = 0; k < 3; k++) {
        *cell(s, s->dx, 3 * row + k, at) = d[k];
        *cell(s, s->dproduct, 3 * row + k, at) = k == 2 ? dn * r : d[k];
    }
    *cell(s, s->dh, row, at) = dh * z;
}

static void backward(const tt_recurrent_step_t *s, size_t row)
{
    for (size_t at = 0; at < s->n; at++) {
        const double dy = s->dy == NULL ? 0 : *cell(s, s->dy, row, at);
        const double dh = *cell(s, s->dh, row, at) + dy;
        if (s->kind == TT_RECURRENT_LSTM) {
            backward_lstm(s, row, at, dh);
        } else if (s->kind == TT_RECURRENT_GRU) {
            backward_gru(s, row, at, dh);
        } else {
            const double h = *cell(s, s->kept, row, at);
            const double slope = s->kind == TT_RECURRENT_TANH ? 1 - h * h : h > 0;
            *cell(s, s->dx, row, at) = dh * slope;
        }
    }
}

const tt_recurrent_ops_t tt_recurrent_ops_f64 = {forward, backward};
