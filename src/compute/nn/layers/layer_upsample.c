/* Upsample: interpolation as a layer. */
#include <tutti/nn_layers.h>

#include "compute/op/pool/interpolate_op.h"
#include "core/base/fail.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    tutti_interpolate_options_t *o = tutti_module_state(m);
    if (options != NULL) {
        *o = *(const tutti_interpolate_options_t *)options;
    }
    if ((o->size[0] > 0) == (o->scale[0] > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "upsample: size %lld, scale %g: one of them must be given",
                       (long long)o->size[0], o->scale[0]);
    }
    const char *fault = tt_interpolate_fault(o);
    return fault == NULL ? TUTTI_OK : TT_FAIL(TUTTI_ERR_ARG, "upsample: %s", fault);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    return tutti_interpolate(s, x, tutti_module_state(m));
}

const tutti_module_ops_t tutti_upsample_layer = {
    .name = "upsample",
    .about = "lines or planes of another size, interpolated",
    .state_bytes = sizeof(tutti_interpolate_options_t),
    .init = init,
    .forward = forward,
};
