/* masked_attention: scores, masks, softmax and product as operations of their own; or the one that
 * is fused, where that can do it. Source: op_attention.h. */
#include <tutti/modes.h>
#include <tutti/op_attention.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include <float.h>
#include <math.h>

#include "compute/autograd/op_call.h"
#include "compute/op/attention/matmul_grouped.h"
#include "compute/op/math/elementwise.h"
#include "core/base/default.h"

typedef struct {
    tutti_scope_t *s;
    tutti_masked_attention_options_t options;
    int64_t batch, queries, keys;
} attention_t;

static bool is_flags(const tutti_tensor_t *x)
{
    return x->dtype == TUTTI_BOOL || x->dtype == TUTTI_U8;
}

static tutti_status_t check_mask(const tutti_masked_attention_options_t *o, tutti_shape_t scores)
{
    char text[160];
    if (o->mask != NULL) {
        const tutti_shape_t mask = o->mask->shape;
        TT_TRY(tt_tensor_status(o->mask));
        if (!is_flags(o->mask) && !tutti_dtype_is_float(o->mask->dtype)) {
            return TT_FAIL(TUTTI_ERR_DTYPE,
                           "masked_attention: the mask must be bool, u8 or floating, not %s",
                           tutti_tensor_describe(o->mask, text, sizeof text));
        }
        bool is_good = mask.rank <= 4;
        for (int i = 0; is_good && i < mask.rank; i++) {
            const int64_t size = mask.dims[mask.rank - 1 - i];
            is_good = size == 1 || size == scores.dims[3 - i];
        }
        if (!is_good) {
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "masked_attention: the mask must be broadcast to "
                           "[%lld, %lld, %lld, %lld]: %s",
                           (long long)scores.dims[0], (long long)scores.dims[1],
                           (long long)scores.dims[2], (long long)scores.dims[3],
                           tutti_tensor_describe(o->mask, text, sizeof text));
        }
    }
    if (o->key_padding != NULL) {
        TT_TRY(tt_tensor_status(o->key_padding));
        if (!is_flags(o->key_padding)) {
            return TT_FAIL(TUTTI_ERR_DTYPE,
                           "masked_attention: key_padding must be bool or u8, not %s",
                           tutti_tensor_describe(o->key_padding, text, sizeof text));
        }
        if (!tutti_shape_equal(o->key_padding->shape,
                               TUTTI_SHAPE(scores.dims[0], scores.dims[3]))) {
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "masked_attention: key_padding must be [%lld, %lld]: %s",
                           (long long)scores.dims[0], (long long)scores.dims[3],
                           tutti_tensor_describe(o->key_padding, text, sizeof text));
        }
    }
    return TUTTI_OK;
}

/* Whether k and v can be those of q's heads. */
static bool are_groups(const tutti_tensor_t *q, const tutti_tensor_t *k, const tutti_tensor_t *v)
{
    const int64_t heads = q->shape.dims[1], kv_heads = k->shape.dims[1];
    return v->shape.dims[1] == kv_heads &&
           (heads == kv_heads || (kv_heads > 0 && heads % kv_heads == 0));
}

static tutti_status_t check(const tutti_tensor_t *q, const tutti_tensor_t *k,
                            const tutti_tensor_t *v, const tutti_masked_attention_options_t *o)
{
    TT_TRY(tt_tensor_status(q));
    TT_TRY(tt_tensor_status(k));
    TT_TRY(tt_tensor_status(v));
    if (q->shape.rank != 4 || k->shape.rank != 4 || v->shape.rank != 4 || !are_groups(q, k, v) ||
        q->shape.dims[0] != k->shape.dims[0] || q->shape.dims[0] != v->shape.dims[0] ||
        k->shape.dims[2] != v->shape.dims[2] || q->shape.dims[3] != k->shape.dims[3]) {
        char a[160], b[160], c[160];
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "masked_attention: q must be [B, H, Tq, D], k and v [B, H, Tk, D] or of "
                       "heads that divide H: %s, %s and %s",
                       tutti_tensor_describe(q, a, sizeof a), tutti_tensor_describe(k, b, sizeof b),
                       tutti_tensor_describe(v, c, sizeof c));
    }
    if (!(o->dropout >= 0 && o->dropout < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "masked_attention: dropout must be in [0, 1), not %g",
                       (double)o->dropout);
    }
    return check_mask(
        o, TUTTI_SHAPE(q->shape.dims[0], q->shape.dims[1], q->shape.dims[2], k->shape.dims[2]));
}

static tutti_tensor_t *either(tutti_scope_t *s, tutti_tensor_t *a, tutti_tensor_t *b)
{
    return a == NULL ? b : tutti_logical_or(s, a, b);
}

/* The keys that are ignored, broadcast to the scores; NULL: none. */
static tutti_tensor_t *ignored(const attention_t *a)
{
    const tutti_masked_attention_options_t *o = &a->options;
    tutti_tensor_t *hidden = NULL;
    if (o->mask != NULL && is_flags(o->mask)) {
        hidden = tutti_ne_scalar(a->s, o->mask, 0);
    }
    if (o->key_padding != NULL) {
        tutti_tensor_t *padding = tutti_reshape(a->s, tutti_ne_scalar(a->s, o->key_padding, 0),
                                                TUTTI_SHAPE(a->batch, 1, 1, a->keys));
        hidden = either(a->s, hidden, padding);
    }
    if (o->causal) {
        tutti_tensor_t *last =
            tutti_arange(a->s, TUTTI_I64, (double)(a->keys - a->queries), 1, a->queries);
        tutti_tensor_t *later = tutti_gt(a->s, tutti_arange(a->s, TUTTI_I64, 0, 1, a->keys),
                                         tutti_reshape(a->s, last, TUTTI_SHAPE(a->queries, 1)));
        hidden = either(a->s, hidden, later);
    }
    return hidden;
}

/* In f32 (f64), also of 16-bit q and k and under autocast: a score is an exponent. */
static tutti_tensor_t *scores_of(const attention_t *a, tutti_tensor_t *q, tutti_tensor_t *k)
{
    tutti_context_t *ctx = tutti_scope_context(a->s);
    const double scale = tt_or_default(a->options.scale, 1 / sqrt((double)q->shape.dims[3]));
    const tutti_dtype_t was = tutti_context_autocast(ctx);
    (void)tutti_context_set_autocast(ctx, TUTTI_F32);
    tutti_tensor_t *scores =
        tt_matmul_grouped(a->s, tutti_mul_scalar(a->s, tt_wide(a->s, q), scale),
                          tutti_transpose(a->s, tt_wide(a->s, k), -2, -1));
    (void)tutti_context_set_autocast(ctx, was);
    return scores;
}

/* The least number, not -infinity: softmax of nothing but that is NaN. */
static double least_of(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? -DBL_MAX : -(double)FLT_MAX;
}

static tutti_tensor_t *weights_of(const attention_t *a, tutti_tensor_t *q, tutti_tensor_t *k)
{
    const tutti_masked_attention_options_t *o = &a->options;
    tutti_tensor_t *hidden = ignored(a), *scores = scores_of(a, q, k);
    if (o->mask != NULL && !is_flags(o->mask)) {
        scores = tutti_add(a->s, scores, o->mask);
    }
    if (hidden == NULL) {
        return tutti_softmax(a->s, scores, -1);
    }
    scores = tutti_masked_fill(a->s, scores, hidden, least_of(tutti_tensor_dtype(scores)));
    return tutti_masked_fill(a->s, tutti_softmax(a->s, scores, -1), hidden, 0);
}

tutti_tensor_t *tutti_masked_attention(tutti_scope_t *s, tutti_tensor_t *q, tutti_tensor_t *k,
                                       tutti_tensor_t *v,
                                       const tutti_masked_attention_options_t *options,
                                       tutti_tensor_t **weights)
{
    attention_t a = {.s = s};
    if (options != NULL) {
        a.options = *options;
    }
    tutti_masked_attention_options_t *o = &a.options;
    const tutti_status_t status = check(q, k, v, o);
    if (status < 0) {
        tutti_tensor_t *null = tutti_scope_fail(s, status);
        if (weights != NULL) {
            *weights = null;
        }
        return null;
    }
    a.batch = q->shape.dims[0];
    a.queries = q->shape.dims[2];
    a.keys = k->shape.dims[2];
    o->causal = o->causal && a.queries > 1; /* one query sees all */
    const bool has_widths = q->shape.dims[3] == v->shape.dims[3];
    if (o->mask == NULL && weights == NULL && has_widths && (!o->causal || a.queries == a.keys)) {
        return tutti_attention(s, q, k, v,
                               &(tutti_attention_options_t){.causal = o->causal,
                                                            .scale = o->scale,
                                                            .key_padding = o->key_padding,
                                                            .dropout = o->dropout});
    }
    tutti_tensor_t *w = tutti_cast(s, weights_of(&a, q, k), v->dtype);
    w = o->dropout > 0 ? tutti_dropout(s, w, o->dropout) : w;
    if (weights != NULL) {
        *weights = w;
    }
    return tt_matmul_grouped(s, w, v);
}
