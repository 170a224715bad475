/* Layer norm and RMS norm, over the last dimensions. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "compute/nn/layers/layer_norms.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

typedef tt_norm_layer_t norm_t;

/* What the options say of a row; SHAPE where it has no elements. */
static tutti_status_t find_row(const tutti_module_t *m, const tutti_norm_options_t *o,
                               tutti_shape_t *row)
{
    const char *kind = tutti_module_kind(m)->name;
    if (o == NULL || (o->shape.rank == 0 && o->width < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: width %lld: it must be at least 1", kind,
                       o == NULL ? 0LL : (long long)o->width);
    }
    *row = o->shape.rank == 0 ? TUTTI_SHAPE(o->width) : o->shape;
    for (int i = 0; i < row->rank; i++) {
        if (row->rank > TUTTI_RANK_MAX || row->dims[i] < 1) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: a shape has 1 to %d dimensions, each of at least 1: not %lld", kind,
                           TUTTI_RANK_MAX, (long long)row->dims[i]);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t init_norm(tutti_module_t *m, const tutti_norm_options_t *o, bool has_bias)
{
    static const tutti_init_t ones = {TUTTI_INIT_CONSTANT, 1, 0};
    norm_t *norm = tutti_module_state(m);
    TT_TRY(find_row(m, o, &norm->row));
    norm->eps = o->eps;
    if (o->no_affine) {
        return TUTTI_OK;
    }
    TT_TRY(tutti_module_new_parameter(m, "weight", norm->row, ones, &norm->weight));
    return has_bias && !o->no_bias
               ? tutti_module_new_parameter(m, "bias", norm->row, (tutti_init_t){0}, &norm->bias)
               : TUTTI_OK;
}

static tutti_status_t init_layer_norm(tutti_module_t *m, const void *options)
{
    return init_norm(m, options, true);
}

static tutti_status_t init_rms_norm(tutti_module_t *m, const void *options)
{
    return init_norm(m, options, false);
}

/* Without a weight nothing else compares x with the layer. */
static tutti_status_t check_rows(const tutti_module_t *m, const norm_t *norm,
                                 const tutti_tensor_t *x)
{
    char text[160];
    TT_TRY(tt_tensor_status(x));
    const int before = x->shape.rank - norm->row.rank;
    bool fits = before >= 0;
    for (int i = 0; fits && i < norm->row.rank; i++) {
        fits = x->shape.dims[before + i] == norm->row.dims[i];
    }
    return fits ? TUTTI_OK
                : TT_FAIL(TUTTI_ERR_SHAPE, "%s: rows have %d dimensions, the last of %lld: x is %s",
                          tutti_module_kind(m)->name, norm->row.rank,
                          (long long)norm->row.dims[norm->row.rank - 1],
                          tutti_tensor_describe(x, text, sizeof text));
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const norm_t *norm = tutti_module_state(m);
    const tutti_row_norm_options_t options = {.eps = norm->eps, .row_dims = norm->row.rank};
    const tutti_status_t status = norm->weight == NULL ? check_rows(m, norm, x) : TUTTI_OK;
    if (status < 0) {
        return tutti_scope_fail(s, status);
    }
    return tutti_module_kind(m) == &tutti_layer_norm_layer
               ? tutti_layer_norm_with(s, x, norm->weight, norm->bias, &options)
               : tutti_rms_norm_with(s, x, norm->weight, &options);
}

const tutti_module_ops_t tutti_layer_norm_layer = {
    .name = "layer_norm",
    .about = "rows of mean 0 and variance 1, scaled and shifted",
    .state_bytes = sizeof(norm_t),
    .init = init_layer_norm,
    .forward = forward,
};

const tutti_module_ops_t tutti_rms_norm_layer = {
    .name = "rms_norm",
    .about = "rows of root mean square 1, scaled",
    .state_bytes = sizeof(norm_t),
    .init = init_rms_norm,
    .forward = forward,
};
