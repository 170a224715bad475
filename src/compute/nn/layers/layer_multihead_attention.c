/* Multi-head attention of queries to keys and values, as torch.nn.MultiheadAttention.
 *
 *     queries [B,Tq,W] -> q [B,H,Tq,D]    ⎫
 *     keys    [B,Tk,W] -> k [B,Hkv,Tk,D]  ⎬ masked_attention -> [B,Tq,W] -> out_proj
 *     values  [B,Tk,W] -> v [B,Hkv,Tk,D]  ⎭
 *
 * Of one input without masks and caches the three are one product, which attention reads where it
 * lies. */
#include <tutti/nn_transformer.h>
#include <tutti/op_attention.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_pad.h>
#include <tutti/op_shape.h>

#include <math.h>
#include <string.h>

#include "compute/nn/layers/heads.h"
#include "compute/nn/layers/unbatched.h"

enum { Q, K, V, PARTS, MASK = PARTS, PADDING, OLD_KEYS, OLD_VALUES, INPUTS };
enum { RESULT, WEIGHTS, KEYS, VALUES, OUTPUTS };

typedef struct {
    tutti_multihead_attention_options_t o;
    int64_t rows[PARTS];      /* of each projection */
    tutti_tensor_t *together; /* [all rows, W]; NULL: the three are apart */
    tutti_tensor_t *apart[PARTS];
    tutti_tensor_t *bias;        /* [all rows], or NULL */
    tutti_tensor_t *last[PARTS]; /* [1, 1, rows]: one more key and value; or NULL */
    tutti_module_t *out;
} attention_t;

/* ---- parameters ------------------------------------------------------------------------------ */

static tutti_status_t check(const tutti_multihead_attention_options_t *o)
{
    if (o == NULL || o->width < 1 || o->heads < 1 || o->width % o->heads != 0 || o->key_width < 0 ||
        o->value_width < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "multihead_attention: width %lld, heads %lld: both must be at least 1, and "
                       "heads divide the width",
                       o == NULL ? 0LL : (long long)o->width,
                       o == NULL ? 0LL : (long long)o->heads);
    }
    TT_TRY(tt_heads_check("multihead_attention", o->heads, o->kv_heads));
    if (o->causal && (o->bias_kv || o->zero_attention)) {
        return TT_FAIL(TUTTI_ERR_ARG, "multihead_attention: causal counts places from the last "
                                      "key, which bias_kv and zero_attention move: give a mask");
    }
    return o->dropout >= 0 && o->dropout < 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "multihead_attention: dropout is %g: it must be in [0, 1)",
                         (double)o->dropout);
}

static int64_t all_rows(const attention_t *a)
{
    return a->rows[Q] + a->rows[K] + a->rows[V];
}

static tutti_status_t add_weight(tutti_module_t *m, const char *name, int64_t out, int64_t in,
                                 tutti_tensor_t **to)
{
    const double bound = sqrt(6 / ((double)in + (double)out));
    return tutti_module_new_parameter(m, name, TUTTI_SHAPE(out, in),
                                      (tutti_init_t){TUTTI_INIT_UNIFORM, -bound, bound}, to);
}

static tutti_status_t add_weights(tutti_module_t *m, attention_t *a)
{
    static const char *const names[] = {"q_proj_weight", "k_proj_weight", "v_proj_weight"};
    const int64_t in[] = {a->o.width, a->o.key_width, a->o.value_width};
    if (in[K] == in[Q] && in[V] == in[Q]) {
        return add_weight(m, "in_proj_weight", all_rows(a), in[Q], &a->together);
    }
    for (int i = 0; i < PARTS; i++) {
        TT_TRY(add_weight(m, names[i], a->rows[i], in[i], &a->apart[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t add_last(tutti_module_t *m, attention_t *a)
{
    const tutti_init_t normal = {TUTTI_INIT_NORMAL, 0, 1 / sqrt((double)a->rows[K])};
    const tutti_shape_t shape = TUTTI_SHAPE(1, 1, a->rows[K]);
    if (!a->o.bias_kv) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_module_new_parameter(m, "bias_k", shape, normal, &a->last[K]));
    return tutti_module_new_parameter(m, "bias_v", shape, normal, &a->last[V]);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    attention_t *a = tutti_module_state(m);
    TT_TRY(check(options));
    a->o = *(const tutti_multihead_attention_options_t *)options;
    a->o.key_width = a->o.key_width == 0 ? a->o.width : a->o.key_width;
    a->o.value_width = a->o.value_width == 0 ? a->o.width : a->o.value_width;
    a->o.kv_heads = tt_kv_heads_of(a->o.heads, a->o.kv_heads);
    a->rows[Q] = a->o.width;
    a->rows[K] = a->rows[V] = a->o.width / a->o.heads * a->o.kv_heads;
    TT_TRY(add_weights(m, a));
    if (!a->o.no_bias) {
        TT_TRY(tutti_module_new_parameter(m, "in_proj_bias", TUTTI_SHAPE(all_rows(a)),
                                          (tutti_init_t){0}, &a->bias));
    }
    TT_TRY(add_last(m, a));
    const tutti_linear_options_t out = {
        .in = a->o.width, .out = a->o.width, .no_bias = a->o.no_bias};
    TT_TRY(tutti_module_new_child(m, "out_proj", &tutti_linear_layer, &out, &a->out));
    tutti_tensor_t *bias = tutti_module_find(a->out, "bias");
    return bias == NULL ? TUTTI_OK : tutti_init_constant(bias, 0);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef struct {
    tutti_scope_t *s;
    const attention_t *a;
    tutti_tensor_t *in[INPUTS];
    int64_t batch, queries;
} call_t;

static tutti_status_t take_inputs(call_t *c, tutti_tensor_t *const *inputs, int input_count,
                                  int output_count)
{
    if (input_count < 1 || input_count > INPUTS || output_count < 1 || output_count > OUTPUTS) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "multihead_attention takes one to %d tensors and gives one to %d, not %d "
                       "and %d",
                       INPUTS, OUTPUTS, input_count, output_count);
    }
    for (int i = 0; i < input_count; i++) {
        c->in[i] = inputs[i];
    }
    if (c->in[Q] == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "multihead_attention: the queries are NULL");
    }
    c->in[K] = c->in[K] == NULL ? c->in[Q] : c->in[K];
    c->in[V] = c->in[V] == NULL ? c->in[K] : c->in[V];
    return (c->in[OLD_KEYS] == NULL) == (c->in[OLD_VALUES] == NULL)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "multihead_attention: a cache must have both keys and values");
}

static tutti_status_t check_inputs(call_t *c)
{
    const tutti_multihead_attention_options_t *o = &c->a->o;
    const int64_t widths[] = {o->width, o->key_width, o->value_width};
    const int rows = o->batch_first ? 0 : 1;
    c->batch = tutti_tensor_dim(c->in[Q], rows);
    c->queries = tutti_tensor_dim(c->in[Q], 1 - rows);
    for (int i = 0; i < PARTS; i++) {
        char text[160];
        const tutti_shape_t shape = tutti_tensor_shape(c->in[i]);
        if (shape.rank != 3 || shape.dims[2] != widths[i] || shape.dims[rows] != c->batch ||
            shape.dims[1 - rows] != tutti_tensor_dim(c->in[i == Q ? Q : K], 1 - rows)) {
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "multihead_attention: input %d must be [%s, %lld], of the batch and "
                           "length of the others: %s",
                           i, o->batch_first ? "B, T" : "T, B", (long long)widths[i],
                           tutti_tensor_describe(c->in[i], text, sizeof text));
        }
    }
    return TUTTI_OK;
}

/* A mask of each head is [B heads, Tq, Tk]. */
static tutti_tensor_t *mask_of(const call_t *c)
{
    tutti_tensor_t *mask = c->in[MASK];
    if (mask == NULL || tutti_tensor_rank(mask) != 3 ||
        tutti_tensor_dim(mask, 0) != c->batch * c->a->o.heads) {
        return mask;
    }
    return tutti_reshape(
        c->s, mask,
        TUTTI_SHAPE(c->batch, c->a->o.heads, tutti_tensor_dim(mask, 1), tutti_tensor_dim(mask, 2)));
}

/* ---- running --------------------------------------------------------------------------------- */

/* [B, T, width] -> [B, heads, T, width / heads]: heads of queries, or those of keys. */
static tutti_tensor_t *project(const call_t *c, int part)
{
    const attention_t *a = c->a;
    const int64_t rows = a->rows[part];
    const int64_t first = part == Q ? 0 : a->rows[Q] + (part - K) * a->rows[K];
    tutti_tensor_t *x = c->in[part], *bias = a->bias;
    x = a->o.batch_first ? x : tutti_transpose(c->s, x, 0, 1);
    tutti_tensor_t *weight =
        a->together == NULL ? a->apart[part] : tutti_narrow(c->s, a->together, 0, first, rows);
    bias = bias == NULL ? NULL : tutti_narrow(c->s, bias, 0, first, rows);
    tutti_tensor_t *y = tutti_linear(c->s, x, weight, bias);
    y = tutti_reshape(c->s, y,
                      TUTTI_SHAPE(c->batch, tutti_tensor_dim(y, 1),
                                  part == Q ? a->o.heads : a->o.kv_heads, a->o.width / a->o.heads));
    return tutti_transpose(c->s, y, 1, 2);
}

static tutti_tensor_t *behind(tutti_scope_t *s, tutti_tensor_t *old, tutti_tensor_t *new)
{
    return old == NULL ? new : tutti_cat(s, (tutti_tensor_t *[]){old, new}, 2, 2);
}

/* How many keys stand behind those given. */
static int64_t more_keys(const call_t *c)
{
    return (c->a->o.bias_kv ? 1 : 0) + (c->a->o.zero_attention ? 1 : 0);
}

/* [B, kv_heads, T, D] with the last keys or values behind it. */
static tutti_tensor_t *with_last(const call_t *c, int part, tutti_tensor_t *x)
{
    const attention_t *a = c->a;
    const int64_t D = a->o.width / a->o.heads;
    const tutti_shape_t one = TUTTI_SHAPE(c->batch, a->o.kv_heads, 1, D);
    if (a->o.bias_kv) {
        tutti_tensor_t *last = tutti_reshape(c->s, a->last[part], TUTTI_SHAPE(a->o.kv_heads, 1, D));
        x = behind(c->s, x, tutti_expand(c->s, last, one));
    }
    return a->o.zero_attention ? behind(c->s, x, tutti_zeros(c->s, tutti_tensor_dtype(x), one)) : x;
}

/* A mask or padding that leaves them open. */
static tutti_tensor_t *open_to_last(const call_t *c, tutti_tensor_t *mask)
{
    const int64_t more = more_keys(c);
    return mask == NULL || more == 0
               ? mask
               : tutti_pad(c->s, mask, TUTTI_PADDING(0, more), TUTTI_PAD_CONSTANT, 0);
}

/* [B, Tq, width] */
static tutti_tensor_t *attend(const call_t *c, tutti_tensor_t **outputs, int output_count)
{
    const attention_t *a = c->a;
    const tutti_masked_attention_options_t options = {.mask = open_to_last(c, mask_of(c)),
                                                      .key_padding =
                                                          open_to_last(c, c->in[PADDING]),
                                                      .causal = a->o.causal,
                                                      .dropout = a->o.dropout};
    tutti_tensor_t *q = project(c, Q);
    tutti_tensor_t *k = behind(c->s, c->in[OLD_KEYS], project(c, K));
    tutti_tensor_t *v = behind(c->s, c->in[OLD_VALUES], project(c, V));
    if (output_count > KEYS) {
        outputs[KEYS] = k;
    }
    if (output_count > VALUES) {
        outputs[VALUES] = v;
    }
    k = with_last(c, K, k);
    v = with_last(c, V, v);
    tutti_tensor_t *y = tutti_masked_attention(c->s, q, k, v, &options,
                                               output_count > WEIGHTS ? &outputs[WEIGHTS] : NULL);
    return tutti_reshape(c->s, tutti_transpose(c->s, y, 1, 2),
                         TUTTI_SHAPE(c->batch, c->queries, a->o.width));
}

/* Whether q, k and v can stay in one product. */
static bool is_plain(const call_t *c, int output_count)
{
    return c->a->together != NULL && c->in[K] == c->in[Q] && c->in[V] == c->in[Q] &&
           c->in[MASK] == NULL && c->in[OLD_KEYS] == NULL && output_count == 1 && more_keys(c) == 0;
}

static tutti_tensor_t *attend_plain(const call_t *c)
{
    const attention_t *a = c->a;
    tutti_tensor_t *x = c->in[Q];
    x = a->o.batch_first ? x : tutti_transpose(c->s, x, 0, 1);
    return tutti_attention_qkv(c->s, tutti_linear(c->s, x, a->together, a->bias), a->o.heads,
                               &(tutti_attention_options_t){.causal = a->o.causal,
                                                            .key_padding = c->in[PADDING],
                                                            .dropout = a->o.dropout,
                                                            .kv_heads = a->o.kv_heads});
}

/* A batch: [B, T, width] or [T, B, width]. */
static tutti_status_t run(call_t *c, tutti_tensor_t **outputs, int output_count)
{
    TT_TRY(check_inputs(c));
    tutti_tensor_t *y =
        is_plain(c, output_count) ? attend_plain(c) : attend(c, outputs, output_count);
    y = tutti_forward(c->s, c->a->out, y);
    outputs[RESULT] = c->a->o.batch_first ? y : tutti_transpose(c->s, y, 0, 1);
    return TUTTI_OK;
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    call_t c = {.s = s, .a = tutti_module_state(m)};
    tutti_status_t status = take_inputs(&c, inputs, input_count, output_count);
    const tt_batch_place_t x = {2, c.a->o.batch_first ? 0 : 1}, old = {3, 0};
    const tt_batch_place_t places[INPUTS] = {x, x, x, {0, 0}, {1, 0}, old, old};
    const tt_batch_place_t results[OUTPUTS] = {x, {0, 0}, {0, 0}, {0, 0}};
    const bool lacks_batch = status >= 0 && tutti_tensor_rank(c.in[Q]) == x.rank;
    if (lacks_batch) {
        tutti_tensor_t *given[INPUTS];
        memcpy(given, c.in, sizeof given);
        tt_add_batch(s, given, INPUTS, places, c.in);
    }
    status = status < 0 ? status : run(&c, outputs, output_count);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    } else if (lacks_batch) {
        tt_drop_batch(s, outputs, output_count, results);
    }
}

const tutti_module_ops_t tutti_multihead_attention_layer = {
    .name = "multihead_attention",
    .about = "multi-head attention with masks and caches",
    .state_bytes = sizeof(attention_t),
    .init = init,
    .forward_many = forward_many,
};
