/* Attention, row by row: for each query the scores of all keys, their softmax, the weighted sum.
 * Source: attention.h. */
#include "core/kernel/attention.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/half.h"

static double load(const tt_heads_t *x, tutti_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return ((const float *)x->data)[i];
    case TUTTI_F64:
        return ((const double *)x->data)[i];
    case TUTTI_BF16:
        return tt_bf16_to_f32(((const uint16_t *)x->data)[i]);
    default:
        return tt_f16_to_f32(((const uint16_t *)x->data)[i]);
    }
}

static void store(const tt_heads_t *x, tutti_dtype_t dtype, int64_t i, double value)
{
    switch (dtype) {
    case TUTTI_F32:
        ((float *)x->data)[i] = (float)value;
        return;
    case TUTTI_F64:
        ((double *)x->data)[i] = value;
        return;
    case TUTTI_BF16:
        ((uint16_t *)x->data)[i] = tt_bf16_from_f32((float)value);
        return;
    default:
        ((uint16_t *)x->data)[i] = tt_f16_from_f32((float)value);
        return;
    }
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
        sum += load(x, a->dtype, i + d) * load(y, a->dtype, j + d);
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

static void attend(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t b = bh / a->heads, h = bh % a->heads;
    const int64_t q = at(&a->q, b, h, i), o = at(&a->out, b, h, i);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->tk; j++) {
        if (is_seen(a, b, i, j)) {
            const double s = a->scale * dot(a, &a->q, q, &a->k, at(&a->k, b, h, j));
            sum = s > most ? sum * exp(most - s) + 1 : sum + exp(s - most);
            most = s > most ? s : most;
        }
    }
    const double lse = most + log(sum);
    a->lse[bh * a->tq + i] = (float)(sum > 0 ? lse : -INFINITY);
    for (int64_t d = 0; d < a->d; d++) {
        double total = 0;
        for (int64_t j = 0; j < a->tk; j++) {
            if (is_seen(a, b, i, j)) {
                const double s = a->scale * dot(a, &a->q, q, &a->k, at(&a->k, b, h, j));
                total += exp(s - lse) * keep(a, bh, i, j) *
                         load(&a->v, a->dtype, at(&a->v, b, h, j) + d);
            }
        }
        store(&a->out, a->dtype, o + d, total);
    }
}

static void attend_piece(void *arg, size_t piece)
{
    const tt_attention_t *a = arg;
    for (int64_t i = 0; i < a->tq; i++) {
        attend(a, (int64_t)piece, i);
    }
}

static void clear(const tt_attention_t *a, const tt_heads_t *x, int64_t bh, int64_t t)
{
    for (int64_t d = 0; d < a->d; d++) {
        store(x, a->dtype, at(x, bh / a->heads, bh % a->heads, t) + d, 0);
    }
}

static void add_scaled(const tt_attention_t *a, const tt_heads_t *to, int64_t i, double factor,
                       const tt_heads_t *from, int64_t j)
{
    for (int64_t d = 0; d < a->d; d++) {
        store(to, a->dtype, i + d,
              load(to, a->dtype, i + d) + factor * load(from, a->dtype, j + d));
    }
}

static void push_back_query(const tt_attention_t *a, int64_t bh, int64_t i)
{
    const int64_t b = bh / a->heads, h = bh % a->heads;
    const int64_t q = at(&a->q, b, h, i), go = at(&a->dout, b, h, i);
    const double delta = dot(a, &a->dout, go, &a->out, at(&a->out, b, h, i));
    const double lse = (double)a->lse[bh * a->tq + i];
    for (int64_t j = 0; j < a->tk; j++) {
        if (is_seen(a, b, i, j)) {
            const int64_t k = at(&a->k, b, h, j), v = at(&a->v, b, h, j);
            const double p = exp(a->scale * dot(a, &a->q, q, &a->k, k) - lse);
            const double kept = keep(a, bh, i, j);
            const double ds = p * (kept * dot(a, &a->dout, go, &a->v, v) - delta) * a->scale;
            add_scaled(a, &a->dv, at(&a->dv, b, h, j), p * kept, &a->dout, go);
            add_scaled(a, &a->dk, at(&a->dk, b, h, j), ds, &a->q, q);
            add_scaled(a, &a->dq, at(&a->dq, b, h, i), ds, &a->k, k);
        }
    }
}

static void push_back_piece(void *arg, size_t piece)
{
    const tt_attention_t *a = arg;
    for (int64_t j = 0; j < a->tk; j++) {
        clear(a, &a->dk, (int64_t)piece, j);
        clear(a, &a->dv, (int64_t)piece, j);
    }
    for (int64_t i = 0; i < a->tq; i++) {
        clear(a, &a->dq, (int64_t)piece, i);
        push_back_query(a, (int64_t)piece, i);
    }
}

static tutti_status_t check(const tt_attention_t *a)
{
    if (!tutti_dtype_is_float(a->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "attention takes f32, f64, bf16 or f16, not %s",
                       tutti_dtype_name(a->dtype));
    }
    if (!(a->dropout >= 0 && a->dropout < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "attention's dropout must be in [0,1), not %g",
                       (double)a->dropout);
    }
    return TUTTI_OK;
}

tutti_status_t tt_attention_forward(tt_pool_t *pool, const tt_attention_t *a)
{
    TT_TRY(check(a));
    tt_pool_run(pool, (size_t)(a->batch * a->heads), attend_piece, (void *)(uintptr_t)a);
    return TUTTI_OK;
}

tutti_status_t tt_attention_backward(tt_pool_t *pool, const tt_attention_t *a)
{
    TT_TRY(check(a));
    tt_pool_run(pool, (size_t)(a->batch * a->heads), push_back_piece, (void *)(uintptr_t)a);
    return TUTTI_OK;
}
