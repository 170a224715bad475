/* Attention in f64 for one batch and head, plainly, for gradient checks: for each query the scores
 * of all keys, their softmax, the weighted sum. Cost: D times more exponentials than needed.
 * Source: attention.h. */
#include <math.h>

#include "core/kernel/attention/attention_ops.h"

static double load(const tt_heads_t *x, int64_t i)
{
    return ((const double *)x->data)[i];
}

static void store(const tt_heads_t *x, int64_t i, double value)
{
    ((double *)x->data)[i] = value;
}

static int64_t at(const tt_heads_t *x, int64_t b, int64_t h, int64_t t)
{
    return b * x->stride_b + h * x->stride_h + t * x->stride_t;
}

static bool is_seen(const tt_attention_t *a, int64_t b, int64_t i, int64_t j)
{
    return !(a->causal && j > i) && !(a->key_padding && a->key_padding[b * a->tk + j]);
}

static double dot(const tt_attention_t *a, const tt_heads_t *x, int64_t i, const tt_heads_t *y,
                  int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < a->d; d++) {
        sum += load(x, i + d) * load(y, j + d);
    }
    return sum;
}

/* What a kept weight is multiplied by: 0 or 1 / (1 - p). */
static double keep(const tt_attention_t *a, int64_t bh, int64_t i, int64_t j)
{
    if (a->dropout <= 0) {
        return 1;
    }
    const uint64_t index = (uint64_t)((bh * a->tq + i) * a->tk + j);
    return tt_rng_uniform(a->rng, index) < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
}

typedef struct {
    double max, sum;
} wide_t;

/* Made again in backward, for a.max_sum is f32. */
static wide_t max_sum(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t b = bh / a->heads, h = bh % a->heads, q = at(&a->q, b, h, i);
    wide_t of = {-INFINITY, 0};
    for (int64_t j = 0; j < a->tk; j++) {
        if (is_seen(a, b, i, j)) {
            const double s = a->scale * dot(a, &a->q, q, &a->k, at(&a->k, b, h, j));
            of.sum = s > of.max ? of.sum * exp(of.max - s) + 1 : of.sum + exp(s - of.max);
            of.max = s > of.max ? s : of.max;
        }
    }
    return of;
}

static void attend(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t b = bh / a->heads, h = bh % a->heads;
    const int64_t q = at(&a->q, b, h, i), o = at(&a->out, b, h, i);
    const wide_t of = max_sum(a, bh, i);
    a->max_sum[bh * a->tq + i] = (tt_max_sum_t){(float)of.max, (float)of.sum};
    for (int64_t d = 0; d < a->d; d++) {
        double total = 0;
        for (int64_t j = 0; j < a->tk; j++) {
            if (is_seen(a, b, i, j)) {
                const double s = a->scale * dot(a, &a->q, q, &a->k, at(&a->k, b, h, j));
                const double p = exp(s - of.max) / of.sum;
                total += p * keep(a, bh, i, j) * load(&a->v, at(&a->v, b, h, j) + d);
            }
        }
        store(&a->out, o + d, total);
    }
}

void tt_attention_forward_f64(const tt_attention_t *a, int64_t bh)
{
    for (int64_t i = 0; i < a->tq; i++) {
        attend(a, bh, i);
    }
}

static void clear(const tt_attention_t *a, const tt_heads_t *x, int64_t bh, int64_t t)
{
    for (int64_t d = 0; d < a->d; d++) {
        store(x, at(x, bh / a->heads, bh % a->heads, t) + d, 0);
    }
}

static void add_scaled(const tt_attention_t *a, const tt_heads_t *to, int64_t i, double factor,
                       const tt_heads_t *from, int64_t j)
{
    for (int64_t d = 0; d < a->d; d++) {
        store(to, i + d, load(to, i + d) + factor * load(from, j + d));
    }
}

static void backward_query(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t b = bh / a->heads, h = bh % a->heads;
    const int64_t q = at(&a->q, b, h, i), go = at(&a->dout, b, h, i);
    const double delta = dot(a, &a->dout, go, &a->out, at(&a->out, b, h, i));
    const wide_t of = max_sum(a, bh, i);
    for (int64_t j = 0; j < a->tk; j++) {
        if (is_seen(a, b, i, j)) {
            const int64_t k = at(&a->k, b, h, j), v = at(&a->v, b, h, j);
            const double p = exp(a->scale * dot(a, &a->q, q, &a->k, k) - of.max) / of.sum;
            const double kept = keep(a, bh, i, j);
            const double ds = p * (kept * dot(a, &a->dout, go, &a->v, v) - delta) * a->scale;
            add_scaled(a, &a->dv, at(&a->dv, b, h, j), p * kept, &a->dout, go);
            add_scaled(a, &a->dk, at(&a->dk, b, h, j), ds, &a->q, q);
            add_scaled(a, &a->dq, at(&a->dq, b, h, i), ds, &a->k, k);
        }
    }
}

void tt_attention_backward_f64(const tt_attention_t *a, int64_t bh)
{
    for (int64_t j = 0; j < a->tk; j++) {
        clear(a, &a->dk, bh, j);
        clear(a, &a->dv, bh, j);
    }
    for (int64_t i = 0; i < a->tq; i++) {
        clear(a, &a->dq, bh, i);
        backward_query(a, bh, i);
    }
}
