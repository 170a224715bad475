/* Attention in f64 for one batch and head: the definition, for gradient checks. For each query the
 * scores of all keys, their softmax, the weighted sum, one number after the other.
 *
 * It shares no loop with attention_forward.c and attention_backward.c: these go by blocks of keys
 * through panels of floats, and what they keep for backward is f32 (tt_max_sum_t). Cost: every
 * score is computed twice forward, and twice backward. Source: attention.h. */
#include <math.h>
#include <string.h>

#include "core/kernel/attention/attention_ops.h"

/* A query, and what its weights are made of: e^(score - max) / sum. No key, or none with a score
 * above -infinity: the sum is 0, and so are the weights. */
typedef struct {
    const tt_attention_t *a;
    int64_t bh, b, h, i;
    int64_t kv; /* the head of its keys and values */
    double max, sum;
} query_t;

/* [D] at place t of this batch and head. */
static double *row(const query_t *q, const tt_heads_t *x, int64_t t)
{
    return (double *)x->data + q->b * x->stride_b + q->h * x->stride_h + t * x->stride_t;
}

/* The same of keys, values and their gradients. */
static double *key_row(const query_t *q, const tt_heads_t *x, int64_t t)
{
    return (double *)x->data + q->b * x->stride_b + q->kv * x->stride_h + t * x->stride_t;
}

static double dot(const query_t *q, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t d = 0; d < q->a->d; d++) {
        sum += x[d] * y[d];
    }
    return sum;
}

static void add_scaled(const query_t *q, double *to, double factor, const double *from)
{
    for (int64_t d = 0; d < q->a->d; d++) {
        to[d] += factor * from[d];
    }
}

static void clear(const query_t *q, double *to)
{
    memset(to, 0, (size_t)q->a->d * sizeof *to);
}

static bool is_seen(const query_t *q, int64_t j)
{
    const tt_attention_t *a = q->a;
    return !(a->causal && j > q->i) && !(a->key_padding && a->key_padding[q->b * a->tk + j]);
}

static double score(const query_t *q, int64_t j)
{
    return q->a->scale * dot(q, row(q, &q->a->q, q->i), key_row(q, &q->a->k, j));
}

static double weight(const query_t *q, int64_t j)
{
    return q->sum == 0 ? 0 : exp(score(q, j) - q->max) / q->sum;
}

/* What a kept weight is multiplied by: 0 or 1 / (1 - p). */
static double keep(const query_t *q, int64_t j)
{
    const tt_attention_t *a = q->a;
    if (a->dropout <= 0) {
        return 1;
    }
    const uint64_t index = tt_dropout_index(a, q->bh, q->i, j);
    return tt_rng_uniform(a->rng, index) < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
}

/* Made again in backward, for a.max_sum is f32. */
static query_t query_of(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t h = bh % a->heads;
    query_t q = {a, bh, bh / a->heads, h, i, h / tt_attention_group(a), -INFINITY, 0};
    for (int64_t j = 0; j < a->tk; j++) {
        const double s = is_seen(&q, j) ? score(&q, j) : -INFINITY;
        if (s != -INFINITY) {
            q.sum = s > q.max ? q.sum * exp(q.max - s) + 1 : q.sum + exp(s - q.max);
            q.max = s > q.max ? s : q.max;
        }
    }
    return q;
}

void tt_attention_forward_f64(const tt_attention_t *a, int64_t bh)
{
    for (int64_t i = 0; i < a->tq; i++) {
        const query_t q = query_of(a, bh, i);
        double *out = row(&q, &a->out, i);
        a->max_sum[bh * a->tq + i] = (tt_max_sum_t){(float)q.max, (float)q.sum};
        clear(&q, out);
        for (int64_t j = 0; j < a->tk; j++) {
            if (is_seen(&q, j)) {
                add_scaled(&q, out, weight(&q, j) * keep(&q, j), key_row(&q, &a->v, j));
            }
        }
    }
}

static void backward_query(const query_t *q)
{
    const tt_attention_t *a = q->a;
    const double *x = row(q, &a->q, q->i), *dout = row(q, &a->dout, q->i);
    const double delta = dot(q, dout, row(q, &a->out, q->i));
    double *dx = row(q, &a->dq, q->i);
    clear(q, dx);
    for (int64_t j = 0; j < a->tk; j++) {
        if (is_seen(q, j)) {
            const double p = weight(q, j), kept = keep(q, j);
            const double dp = kept * dot(q, dout, key_row(q, &a->v, j));
            const double ds = p * (dp - delta) * a->scale;
            add_scaled(q, key_row(q, &a->dv, j), p * kept, dout);
            add_scaled(q, key_row(q, &a->dk, j), ds, x);
            add_scaled(q, dx, ds, key_row(q, &a->k, j));
        }
    }
}

void tt_attention_backward_f64(const tt_attention_t *a, int64_t bh)
{
    const int64_t h = bh % a->heads, group = tt_attention_group(a);
    for (int64_t j = 0; h % group == 0 && j < a->tk; j++) {
        const query_t key = {.a = a, .b = bh / a->heads, .kv = h / group};
        clear(&key, key_row(&key, &a->dk, j));
        clear(&key, key_row(&key, &a->dv, j));
    }
    for (int64_t i = 0; i < a->tq; i++) {
        const query_t q = query_of(a, bh, i);
        backward_query(&q);
    }
}
