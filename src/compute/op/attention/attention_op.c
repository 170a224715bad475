/* attention: softmax(scale · q kᵀ) v, blocked, on q, k and v as three tensors or as one.
 *
 *     attention       q [B,H,Tq,D]  k, v [B,Hkv,Tk,D]  padding [B,Tk]  ->  y [B,Tq,H,D]
 *     attention_qkv   qkv [B,T,(H+2Hkv)D]              padding [B,T]   ->  y [B,T,C] = [B,T,H,D]
 *
 * Both describe their operands to one kernel by strides, so nothing is copied, and in the second
 * one the three gradients are written where they belong in one tensor like qkv.
 * Cost: op_nn.h; keeps q, k, v, y and two numbers of each query. Source: op_nn.h. */
#include "core/kernel/attention/attention.h"

#include <math.h>
#include <string.h>

#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>

#include "compute/autograd/compose.h"
#include "compute/op/attention/matmul_grouped.h"
#include "compute/op/linear/dense.h"
#include "compute/op/math/elementwise.h"
#include "compute/op/ops.h"
#include "compute/op/shape/random_stream.h"
#include "core/base/default.h"

typedef struct {
    int64_t heads, kv_heads; /* of attention_qkv */
    double scale;            /* 0: 1/√D */
    bool causal;
    float dropout;
    tt_rng_t rng;
    int64_t first_head, all_heads; /* as the kernel's */
} attention_params_t;

/* ---- what both have in common ---------------------------------------------------------------- */

static tt_attention_t describe_params(const attention_params_t *params, int64_t d)
{
    return (tt_attention_t){
        .d = d,
        .scale = tt_or_default(params->scale, 1 / sqrt((double)d)),
        .causal = params->causal,
        .dropout = params->dropout,
        .rng = params->rng,
        .first_head = params->first_head,
        .all_heads = params->all_heads,
    };
}

static tutti_status_t check_padding(const tutti_op_call_t *call, const tutti_tensor_t *padding,
                                    int64_t batch, int64_t keys)
{
    if (padding == NULL) {
        return TUTTI_OK;
    }
    if (padding->dtype != TUTTI_BOOL && padding->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "key_padding must be bool or u8");
    }
    if (!tutti_shape_equal(padding->shape, TUTTI_SHAPE(batch, keys))) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "key_padding must be [B, Tk], [%lld, %lld]",
                             (long long)batch, (long long)keys);
    }
    return TUTTI_OK;
}

static tutti_status_t check_groups(const tutti_op_call_t *call, int64_t heads, int64_t kv_heads)
{
    return heads == kv_heads || (kv_heads > 0 && heads % kv_heads == 0)
               ? TUTTI_OK
               : tutti_op_fail(call, TUTTI_ERR_SHAPE,
                               "the %lld heads of k and v do not divide the %lld of q",
                               (long long)kv_heads, (long long)heads);
}

/* x with a contiguous last dimension: x itself, retained, or a copy. */
static tutti_status_t load(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t **out)
{
    const int last = x->shape.rank - 1;
    if (x->strides[last] == 1 || x->shape.dims[last] <= 1) {
        *out = tutti_tensor_retain(x);
        return TUTTI_OK;
    }
    return tt_dense(s, x, x->dtype, out);
}

/* The inputs come first. */
static tutti_status_t save_all(tutti_op_call_t *call, tutti_tensor_t *const *operands, int count)
{
    for (int i = 0; i < count; i++) {
        TT_TRY(i < call->input_count ? tutti_op_save_copy(call, operands[i], i)
                                     : tutti_op_save(call, operands[i]));
    }
    return TUTTI_OK;
}

/* ---- the gradient, recorded ------------------------------------------------------------------ */

/* Which keys a query does not see: [B, 1, Tq, Tk]. */
static tutti_tensor_t *hidden_keys(const tutti_op_backward_t *call, tutti_shape_t scores,
                                   const tutti_tensor_t *padding)
{
    const attention_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *hidden =
        tutti_empty(s, TUTTI_BOOL, TUTTI_SHAPE(scores.dims[0], 1, scores.dims[2], scores.dims[3]));
    if (hidden->status < 0) {
        return hidden;
    }
    const tt_attention_t a = {.batch = scores.dims[0],
                              .tq = scores.dims[2],
                              .tk = scores.dims[3],
                              .causal = params->causal,
                              .key_padding = tt_data_of(padding),
                              .out = {.data = tt_tensor_data(hidden)}};
    const tutti_status_t status = tt_attention_hidden(tt_scope_exec(s), &a);
    return status < 0 ? tutti_scope_fail(s, status) : hidden;
}

/* P v of q [B,H,Tq,D], k and v [B,Hkv,Tk,D]: [B,Tq,H,D]. A query that sees no key gives zeros. */
static tutti_tensor_t *compose_heads(const tutti_op_backward_t *call, tutti_tensor_t *const *qkv,
                                     const tutti_tensor_t *padding)
{
    const attention_params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *q = tt_wide(s, qkv[0]), *k = tt_wide(s, qkv[1]), *v = tt_wide(s, qkv[2]);
    const double d = (double)tutti_tensor_dim(q, -1);
    q = tutti_mul_scalar(s, q, tt_or_default(params->scale, 1 / sqrt(d)));
    tutti_tensor_t *scores = tt_matmul_grouped(s, q, tutti_transpose(s, k, -2, -1));
    if (scores->status < 0) {
        return scores;
    }
    tutti_tensor_t *hidden = hidden_keys(call, scores->shape, padding);
    tutti_tensor_t *p = tutti_softmax(s, tutti_masked_fill(s, scores, hidden, -1e30), -1);
    p = tutti_masked_fill(s, p, hidden, 0);
    if (params->dropout > 0) {
        const int64_t scores_each = p->shape.dims[2] * p->shape.dims[3];
        const tt_window_t window = {scores_each, p->shape.dims[1], params->first_head,
                                    params->all_heads};
        p = tt_dropout_by(s, p, params->rng, (double)params->dropout, &window);
    }
    return tutti_transpose(s, tt_matmul_grouped(s, p, v), 1, 2);
}

/* ---- attention ------------------------------------------------------------------------------ */

enum { Q, K, V, PADDING, OUT, MAX_SUM, OPERANDS };

static tutti_status_t attention_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tutti_tensor_t *q = call->inputs[Q], *k = call->inputs[K], *v = call->inputs[V];
    if (q->shape.rank != 4 || k->shape.rank != 4 || !tutti_shape_equal(k->shape, v->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "q must be [B, H, Tq, D], k and v both [B, Hkv, Tk, D]");
    }
    tutti_shape_t want = q->shape;
    want.dims[1] = k->shape.dims[1];
    want.dims[2] = k->shape.dims[2];
    if (!tutti_shape_equal(k->shape, want)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "q, k and v must agree in the first size and the last");
    }
    TT_TRY(check_groups(call, q->shape.dims[1], k->shape.dims[1]));
    const attention_params_t *params = call->params;
    if (params->kv_heads != 0 && params->kv_heads != k->shape.dims[1]) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "k and v have %lld heads, not kv_heads %lld",
                             (long long)k->shape.dims[1], (long long)params->kv_heads);
    }
    if (!tutti_dtype_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "q, k and v must have one floating dtype");
    }
    TT_TRY(check_padding(call, call->inputs[PADDING], want.dims[0], want.dims[2]));
    outputs->dtype = q->dtype;
    outputs->shape =
        TUTTI_SHAPE(q->shape.dims[0], q->shape.dims[2], q->shape.dims[1], q->shape.dims[3]);
    return TUTTI_OK;
}

/* x [B,H,T,D], any strides. */
static tt_heads_t heads_of(const tutti_tensor_t *x)
{
    return (tt_heads_t){tt_tensor_data(x), x->strides[0], x->strides[1], x->strides[2]};
}

/* x [B,T,H,D], contiguous or not. */
static tt_heads_t merged_heads_of(const tutti_tensor_t *x)
{
    return (tt_heads_t){tt_tensor_data(x), x->strides[0], x->strides[2], x->strides[1]};
}

static tt_attention_t describe_heads(const attention_params_t *params,
                                     tutti_tensor_t *const *operands)
{
    const tutti_tensor_t *q = operands[Q], *k = operands[K];
    tt_attention_t a = describe_params(params, q->shape.dims[3]);
    a.batch = q->shape.dims[0];
    a.heads = q->shape.dims[1];
    a.group = a.heads > 0 ? a.heads / k->shape.dims[1] : 1;
    a.tq = q->shape.dims[2];
    a.tk = k->shape.dims[2];
    a.dtype = q->dtype;
    a.key_padding = tt_data_of(operands[PADDING]);
    a.q = heads_of(q);
    a.k = heads_of(k);
    a.v = heads_of(operands[V]);
    a.out = merged_heads_of(operands[OUT]);
    a.max_sum = tt_tensor_data(operands[MAX_SUM]);
    return a;
}

static tutti_status_t attend(tutti_op_call_t *call, tutti_tensor_t **operands)
{
    tutti_scope_t *s = call->scope;
    const tutti_shape_t q = call->inputs[Q]->shape;
    for (int i = Q; i <= V; i++) {
        TT_TRY(load(s, call->inputs[i], &operands[i]));
    }
    TT_TRY(tt_dense(s, call->inputs[PADDING],
                    call->inputs[PADDING] == NULL ? TUTTI_U8 : call->inputs[PADDING]->dtype,
                    &operands[PADDING]));
    operands[OUT] = tutti_tensor_retain(call->outputs[0]);
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, TUTTI_F32,
                         TUTTI_SHAPE(q.dims[0], q.dims[1], q.dims[2], 2), false,
                         &operands[MAX_SUM]));
    const tt_attention_t a = describe_heads(call->params, operands);
    TT_TRY(tt_attention_forward(tt_scope_exec(s), &a));
    return save_all(call, operands, OPERANDS);
}

static tutti_status_t attention_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *operands[OPERANDS] = {NULL};
    const tutti_status_t status = attend(call, operands);
    tt_tensors_release(operands, OPERANDS);
    return status;
}

/* A gradient [B,H,T,D] that lies as [B,T,H,D]. */
static tutti_tensor_t *new_grad(tutti_op_backward_t *call, int input)
{
    const tutti_shape_t x = call->inputs[input].shape;
    tutti_tensor_t *merged = tutti_empty(call->scope, call->outputs[0].dtype,
                                         TUTTI_SHAPE(x.dims[0], x.dims[2], x.dims[1], x.dims[3]));
    return tutti_transpose(call->scope, merged, 1, 2);
}

static tutti_status_t attention_backward(tutti_op_backward_t *call)
{
    tutti_tensor_t *dy, *grads[3];
    for (int i = Q; i <= V; i++) {
        grads[i] = new_grad(call, i);
    }
    TT_TRY(tutti_scope_status(call->scope));
    TT_TRY(load(call->scope, call->grad_outputs[0], &dy));
    tt_attention_t a = describe_heads(call->params, call->saved);
    a.dout = merged_heads_of(dy);
    a.dq = heads_of(grads[Q]);
    a.dk = heads_of(grads[K]);
    a.dv = heads_of(grads[V]);
    const tutti_status_t status = tt_attention_backward(tt_scope_exec(call->scope), &a);
    tutti_tensor_release(dy);
    memcpy(call->grads, grads, sizeof grads);
    return status;
}

static tutti_tensor_t *compose_attention(const tutti_op_backward_t *call,
                                         tutti_tensor_t *const *inputs)
{
    return compose_heads(call, inputs, inputs[PADDING]);
}

static tutti_status_t attention_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_attention);
}

const tutti_op_t tt_op_attention = {
    .name = "attention",
    .optional_inputs = 1 << PADDING,
    .about =
        "y = P v, P = softmax(scale q kᵀ); dv = Pᵀ dy, dS = P (dy vᵀ - Σ dy y), dq = scale dS k",
    .params_bytes = sizeof(attention_params_t),
    .autocast = TUTTI_OP_AUTOCAST_LOW,
    .infer = attention_infer,
    .forward = attention_forward,
    .backward = attention_backward,
    .grad = attention_grad,
};

/* ---- attention on one tensor ----------------------------------------------------------------- */

enum { QKV, QKV_PADDING, QKV_OUT, QKV_MAX_SUM, QKV_OPERANDS };

/* D of qkv [B,T,(H+2Hkv)D]. */
static int64_t head_size(const attention_params_t *params, tutti_shape_t qkv)
{
    return qkv.dims[2] / (params->heads + 2 * params->kv_heads);
}

static tutti_status_t qkv_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const attention_params_t *params = call->params;
    const tutti_shape_t x = call->inputs[QKV]->shape;
    const int64_t kv_heads = params->kv_heads;
    if (params->heads >= 1) {
        TT_TRY(check_groups(call, params->heads, kv_heads));
    }
    if (x.rank != 3 || params->heads < 1 || params->heads > INT64_MAX / 4 ||
        x.dims[2] % (params->heads + 2 * kv_heads) != 0) {
        return kv_heads == params->heads
                   ? tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                   "qkv must be [B, T, 3 C] with C a multiple of the %lld heads",
                                   (long long)params->heads)
                   : tutti_op_fail(call, TUTTI_ERR_SHAPE,
                                   "qkv must be [B, T, (%lld + 2 x %lld) D], of heads of D",
                                   (long long)params->heads, (long long)kv_heads);
    }
    TT_TRY(tutti_op_infer_same_float(call, outputs));
    TT_TRY(check_padding(call, call->inputs[QKV_PADDING], x.dims[0], x.dims[1]));
    outputs->shape.dims[2] = params->heads * head_size(params, x);
    return TUTTI_OK;
}

/* Heads from `first` on of [B,T,heads,D], whose rows may be any distance apart. */
static tt_heads_t heads_from(const tutti_tensor_t *x, int64_t first, int64_t d)
{
    char *data = tt_tensor_data(x);
    data += (size_t)(first * d) * tutti_dtype_bytes(x->dtype);
    return (tt_heads_t){data, x->strides[0], d, x->strides[1]};
}

static tt_attention_t describe_qkv(const attention_params_t *params,
                                   tutti_tensor_t *const *operands)
{
    const tutti_tensor_t *qkv = operands[QKV];
    const int64_t d = head_size(params, qkv->shape), kv_heads = params->kv_heads;
    tt_attention_t a = describe_params(params, d);
    a.batch = qkv->shape.dims[0];
    a.heads = params->heads;
    a.group = params->heads / kv_heads;
    a.tq = a.tk = qkv->shape.dims[1];
    a.dtype = qkv->dtype;
    a.key_padding = tt_data_of(operands[QKV_PADDING]);
    a.q = heads_from(qkv, 0, d);
    a.k = heads_from(qkv, a.heads, d);
    a.v = heads_from(qkv, a.heads + kv_heads, d);
    a.out = heads_from(operands[QKV_OUT], 0, d);
    a.max_sum = tt_tensor_data(operands[QKV_MAX_SUM]);
    return a;
}

static tutti_status_t attend_qkv(tutti_op_call_t *call, tutti_tensor_t **operands)
{
    const attention_params_t *params = call->params;
    tutti_tensor_t *padding = call->inputs[QKV_PADDING];
    const tutti_shape_t x = call->inputs[QKV]->shape;
    TT_TRY(load(call->scope, call->inputs[QKV], &operands[QKV]));
    TT_TRY(tt_dense(call->scope, padding, padding == NULL ? TUTTI_U8 : padding->dtype,
                    &operands[QKV_PADDING]));
    operands[QKV_OUT] = tutti_tensor_retain(call->outputs[0]);
    TT_TRY(tt_tensor_new(call->scope->ctx->place.device, TUTTI_F32,
                         TUTTI_SHAPE(x.dims[0], params->heads, x.dims[1], 2), false,
                         &operands[QKV_MAX_SUM]));
    const tt_attention_t a = describe_qkv(params, operands);
    TT_TRY(tt_attention_forward(tt_scope_exec(call->scope), &a));
    return save_all(call, operands, QKV_OPERANDS);
}

static tutti_status_t qkv_forward(tutti_op_call_t *call)
{
    tutti_tensor_t *operands[QKV_OPERANDS] = {NULL};
    const tutti_status_t status = attend_qkv(call, operands);
    tt_tensors_release(operands, QKV_OPERANDS);
    return status;
}

static tutti_status_t qkv_backward(tutti_op_backward_t *call)
{
    const attention_params_t *params = call->params;
    tt_attention_t a = describe_qkv(params, call->saved);
    tutti_tensor_t *dy, *dqkv = tt_scratch(call->scope, a.dtype, call->inputs[QKV].shape);
    if (dqkv == NULL) {
        return tutti_scope_status(call->scope);
    }
    TT_TRY(load(call->scope, call->grad_outputs[0], &dy));
    a.dout = heads_from(dy, 0, a.d);
    a.dq = heads_from(dqkv, 0, a.d);
    a.dk = heads_from(dqkv, a.heads, a.d);
    a.dv = heads_from(dqkv, a.heads + params->kv_heads, a.d);
    const tutti_status_t status = tt_attention_backward(tt_scope_exec(call->scope), &a);
    tutti_tensor_release(dy);
    call->grads[QKV] = dqkv;
    return status;
}

static tutti_tensor_t *compose_qkv(const tutti_op_backward_t *call, tutti_tensor_t *const *inputs)
{
    const attention_params_t *params = call->params;
    const tutti_shape_t x = call->inputs[QKV].shape;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *parts[3];
    const int64_t counts[] = {params->heads, params->kv_heads, params->kv_heads};
    tutti_tensor_t *all = tutti_reshape(
        s, inputs[QKV],
        TUTTI_SHAPE(x.dims[0], x.dims[1], counts[0] + 2 * counts[1], head_size(params, x)));
    for (int64_t i = 0, first = 0; i < 3; first += counts[i++]) {
        parts[i] = tutti_transpose(s, tutti_narrow(s, all, 2, first, counts[i]), 1, 2);
    }
    return tutti_reshape(s, compose_heads(call, parts, inputs[QKV_PADDING]),
                         call->outputs[0].shape);
}

static tutti_status_t qkv_grad(tutti_op_backward_t *call)
{
    return tt_grad_composed(call, compose_qkv);
}

const tutti_op_t tt_op_attention_qkv = {
    .name = "attention_qkv",
    .optional_inputs = 1 << QKV_PADDING,
    .about = "attention whose q, k and v lie in one tensor, and their gradients too",
    .params_bytes = sizeof(attention_params_t),
    .autocast = TUTTI_OP_AUTOCAST_LOW,
    .infer = qkv_infer,
    .forward = qkv_forward,
    .backward = qkv_backward,
    .grad = qkv_grad,
};

/* ---- calls ----------------------------------------------------------------------------------- */

static tutti_status_t take_options(tutti_scope_t *s, const tutti_attention_options_t *o,
                                   attention_params_t *params)
{
    if (!(o->dropout >= 0 && o->dropout < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "attention: dropout must be in [0, 1), not %g",
                       (double)o->dropout);
    }
    if (o->first_head < 0 || o->all_heads < 0 || o->first_head > o->all_heads) {
        return TT_FAIL(TUTTI_ERR_ARG, "attention: first head %lld of %lld",
                       (long long)o->first_head, (long long)o->all_heads);
    }
    params->scale = o->scale;
    params->causal = o->causal;
    params->first_head = o->first_head;
    params->all_heads = o->all_heads;
    if (o->dropout > 0 && s->ctx->is_training) {
        params->dropout = o->dropout;
        params->rng = tt_random_stream(s->ctx, o->name);
    }
    return TUTTI_OK;
}

tutti_tensor_t *tutti_attention(tutti_scope_t *s, tutti_tensor_t *q, tutti_tensor_t *k,
                                tutti_tensor_t *v, const tutti_attention_options_t *options)
{
    const tutti_attention_options_t o = options == NULL ? (tutti_attention_options_t){0} : *options;
    attention_params_t params = {.kv_heads = o.kv_heads};
    const tutti_status_t status = take_options(s, &o, &params);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *in[] = {q, k, v, o.key_padding};
    return tutti_transpose(s, tutti_op_run(s, &tt_op_attention, in, 4, &params), 1, 2);
}

tutti_tensor_t *tutti_attention_qkv(tutti_scope_t *s, tutti_tensor_t *qkv, int64_t heads,
                                    const tutti_attention_options_t *options)
{
    const tutti_attention_options_t o = options == NULL ? (tutti_attention_options_t){0} : *options;
    attention_params_t params = {.heads = heads, .kv_heads = o.kv_heads != 0 ? o.kv_heads : heads};
    const tutti_status_t status = take_options(s, &o, &params);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    tutti_tensor_t *in[] = {qkv, o.key_padding};
    return tutti_op_run(s, &tt_op_attention_qkv, in, 2, &params);
}
