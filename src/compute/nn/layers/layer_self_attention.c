/* Multi-head self-attention. One linear layer makes q, k and v, and the attention reads them where
 * they lie: nothing is transposed or copied.
 *
 *     x[B,T,C] -> qkv[B,T,3C] -> attention[B,T,C] -> proj[B,T,C]
 *
 * Where heads share keys and values, qkv has C columns and those of the heads of both. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/heads.h"
#include "compute/nn/layers/layer_self_attention.h"
#include "compute/nn/module_impl.h"
#include "core/base/default.h"
#include "core/base/fail.h"

typedef tt_self_attention_layer_t self_attention_t;

static tutti_status_t check(const tutti_self_attention_options_t *o)
{
    if (o == NULL || o->width < 1 || o->heads < 1) {
        return TT_FAIL(
            TUTTI_ERR_ARG, "self_attention: width %lld, heads %lld: both must be at least 1",
            o == NULL ? 0LL : (long long)o->width, o == NULL ? 0LL : (long long)o->heads);
    }
    if (o->width % o->heads != 0) {
        const int64_t less = o->width / o->heads * o->heads;
        const int64_t near = less == 0 ? o->heads : less;
        return TT_FAIL(TUTTI_ERR_ARG,
                       "self_attention: %lld heads do not divide a width of %lld: choose a width "
                       "that is a multiple of %lld, such as %lld, or other heads",
                       (long long)o->heads, (long long)o->width, (long long)o->heads,
                       (long long)near);
    }
    TT_TRY(tt_heads_check("self_attention", o->heads, o->kv_heads));
    if (!(o->dropout >= 0 && o->dropout < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "self_attention: dropout is %g: it must be in [0, 1)",
                       (double)o->dropout);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_self_attention_options_t *o = options;
    TT_TRY(check(o));
    self_attention_t *state = tutti_module_state(m);
    state->width = o->width;
    state->heads = o->heads;
    state->kv_heads = tt_kv_heads_of(o->heads, o->kv_heads);
    state->causal = o->causal;
    state->dropout = o->dropout;
    const tutti_linear_options_t qkv = {.in = o->width,
                                        .out =
                                            o->width + 2 * state->kv_heads * (o->width / o->heads),
                                        .no_bias = o->no_bias,
                                        .std = o->std};
    tutti_linear_options_t proj = qkv;
    proj.out = o->width;
    proj.std = tt_is_given(o->result_std) ? o->result_std : o->std;
    TT_TRY(tutti_module_new_child(m, "qkv", &tutti_linear_layer, &qkv, &state->qkv));
    return tutti_module_new_child(m, "proj", &tutti_linear_layer, &proj, &state->proj);
}

static tutti_status_t check_input(const self_attention_t *state, const tutti_tensor_t *x)
{
    char text[160];
    const tutti_shape_t shape = tutti_tensor_shape(x);
    return shape.rank == 3 && shape.dims[2] == state->width
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "x must be [B, T, width], width being %lld, not %s",
                         (long long)state->width, tutti_tensor_describe(x, text, sizeof text));
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const self_attention_t *state = tutti_module_state(m);
    const tutti_status_t status = x == NULL ? TUTTI_OK : check_input(state, x);
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    const tt_share_t heads = m->cut != NULL ? m->cut->heads : (tt_share_t){0};
    const int64_t own = heads.of > 0 ? heads.count : state->heads;
    const tutti_attention_options_t options = {.causal = state->causal,
                                               .dropout = state->dropout,
                                               .first_head = heads.first,
                                               .all_heads = heads.of,
                                               .kv_heads = own * state->kv_heads / state->heads};
    tutti_tensor_t *qkv = tutti_forward(s, state->qkv, x);
    tutti_tensor_t *y = tutti_attention_qkv(s, qkv, own, &options);
    y = tutti_forward(s, state->proj, y);
    return state->dropout > 0 ? tt_module_dropout(s, m, y, state->dropout) : y;
}

const tutti_module_ops_t tutti_self_attention_layer = {
    .name = "self_attention",
    .about = "multi-head self-attention",
    .state_bytes = sizeof(self_attention_t),
    .init = init,
    .forward = forward,
};
