/* Layers of two inputs: distances, and the bilinear form. */
#include <tutti/nn_functions.h>
#include <tutti/op_feature.h>
#include <tutti/op_margin_loss.h>
#include <tutti/op_shape.h>

#include <math.h>

#include "compute/nn/layers/kept_options.h"
#include "core/base/default.h"

static tutti_status_t init_cosine(tutti_module_t *m, const void *options)
{
    static const tutti_cosine_similarity_options_t usual = {.dim = 1};
    (void)tt_keep_options(m, options == NULL ? &usual : options);
    return TUTTI_OK;
}

static void forward_cosine(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                           int input_count, tutti_tensor_t **outputs, int output_count)
{
    const tutti_cosine_similarity_options_t *o = tutti_module_state(m);
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        outputs[0] =
            tutti_cosine_similarity(s, inputs[0], inputs[1], o->dim, tt_or_default(o->eps, 1e-8));
    }
}

static tutti_status_t init_distance(tutti_module_t *m, const void *options)
{
    const tutti_pairwise_distance_options_t *o = tt_keep_options(m, options);
    return tt_or_default(o->p, 2) > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pairwise_distance: p must be above 0, not %g", o->p);
}

static void forward_distance(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                             int input_count, tutti_tensor_t **outputs, int output_count)
{
    const tutti_pairwise_distance_options_t *o = tutti_module_state(m);
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        tutti_tensor_t *y = tutti_pairwise_distance(s, inputs[0], inputs[1], tt_or_default(o->p, 2),
                                                    tt_or_default(o->eps, 1e-6));
        outputs[0] = o->keep_dim ? tutti_unsqueeze(s, y, -1) : y;
    }
}

const tutti_module_ops_t tutti_cosine_similarity_layer = {
    .name = "cosine_similarity",
    .about = "the cosine of the angle between two inputs",
    .state_bytes = sizeof(tutti_cosine_similarity_options_t),
    .init = init_cosine,
    .forward_many = forward_cosine,
};

const tutti_module_ops_t tutti_pairwise_distance_layer = {
    .name = "pairwise_distance",
    .about = "the distance of two inputs, row by row",
    .state_bytes = sizeof(tutti_pairwise_distance_options_t),
    .init = init_distance,
    .forward_many = forward_distance,
};

/* ---- bilinear -------------------------------------------------------------------------------- */

typedef struct {
    tutti_tensor_t *weight, *bias;
} bilinear_t;

static tutti_status_t init_bilinear(tutti_module_t *m, const void *options)
{
    const tutti_bilinear_options_t *o = options;
    bilinear_t *bilinear = tutti_module_state(m);
    if (o == NULL || o->in < 1 || o->second_in < 1 || o->out < 1) {
        return TT_FAIL(
            TUTTI_ERR_ARG, "bilinear: in %lld, second_in %lld, out %lld: all must be at least 1",
            o == NULL ? 0LL : (long long)o->in, o == NULL ? 0LL : (long long)o->second_in,
            o == NULL ? 0LL : (long long)o->out);
    }
    const double bound = 1 / sqrt((double)o->in);
    const tutti_init_t uniform = {TUTTI_INIT_UNIFORM, -bound, bound};
    TT_TRY(tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->out, o->in, o->second_in),
                                      uniform, &bilinear->weight));
    return o->no_bias ? TUTTI_OK
                      : tutti_module_new_parameter(m, "bias", TUTTI_SHAPE(o->out), uniform,
                                                   &bilinear->bias);
}

static void forward_bilinear(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                             int input_count, tutti_tensor_t **outputs, int output_count)
{
    const bilinear_t *bilinear = tutti_module_state(m);
    if (tt_is_call_of(s, m, 2, input_count, output_count)) {
        outputs[0] = tutti_bilinear(s, inputs[0], inputs[1], bilinear->weight, bilinear->bias);
    }
}

const tutti_module_ops_t tutti_bilinear_layer = {
    .name = "bilinear",
    .about = "a bilinear form of two inputs",
    .state_bytes = sizeof(bilinear_t),
    .init = init_bilinear,
    .forward_many = forward_bilinear,
};
