/* Two linear layers with an activation between: down(activation(up(x))). */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/activate.h"
#include "compute/nn/module_impl.h"
#include "core/base/default.h"

typedef struct {
    tutti_module_t *up, *down;
    float dropout;
} mlp_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_mlp_options_t *o = options;
    if (o == NULL || o->width < 1 || o->hidden < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "mlp: width %lld, hidden %lld: both must be at least 1",
                       o == NULL ? 0LL : (long long)o->width,
                       o == NULL ? 0LL : (long long)o->hidden);
    }
    if (!(o->dropout >= 0 && o->dropout <= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "mlp: dropout is %g: it must be from 0 to 1",
                       (double)o->dropout);
    }
    mlp_t *mlp = tutti_module_state(m);
    mlp->dropout = o->dropout;
    const int64_t hidden = o->hidden == 0 ? 4 * o->width : o->hidden;
    const bool is_default = o->activation == TUTTI_ACTIVATION_DEFAULT;
    const tutti_linear_options_t up = {.in = o->width,
                                       .out = hidden,
                                       .no_bias = o->no_bias,
                                       .activation =
                                           is_default ? TUTTI_ACTIVATION_GELU : o->activation,
                                       .std = o->std};
    const tutti_linear_options_t down = {.in = hidden,
                                         .out = o->width,
                                         .no_bias = o->no_bias,
                                         .std =
                                             tt_is_given(o->result_std) ? o->result_std : o->std};
    TT_TRY(tutti_module_new_child(m, "up", &tutti_linear_layer, &up, &mlp->up));
    return tutti_module_new_child(m, "down", &tutti_linear_layer, &down, &mlp->down);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const mlp_t *mlp = tutti_module_state(m);
    tutti_tensor_t *y = tutti_forward(s, mlp->down, tutti_forward(s, mlp->up, x));
    return mlp->dropout > 0 ? tt_module_dropout(s, m, y, mlp->dropout) : y;
}

const tutti_module_ops_t tutti_mlp_layer = {
    .name = "mlp",
    .about = "two linear layers with an activation between",
    .state_bytes = sizeof(mlp_t),
    .init = init,
    .forward = forward,
};
