/* How the golden cases of make_vocabulary_golden.py are called. */
#ifndef TT_GOLDEN_VOCABULARY_H
#define TT_GOLDEN_VOCABULARY_H

#include <tutti/op_fractional.h>
#include <tutti/op_vocabulary.h>

#include "golden_args.h"

static tutti_tensor_t *call_linear_cross_entropy(golden_call_t *c)
{
    const tutti_linear_cross_entropy_options_t options = {
        .bias = c->in[2],
        .loss = {.reduction = reduction(c),
                 .label_smoothing = number(c, "label_smoothing"),
                 .has_ignore_index = is_given(c, "ignore_index"),
                 .ignore_index = integer(c, "ignore_index"),
                 .weight = c->in[4]}};
    return tutti_linear_cross_entropy(c->s, c->in[0], c->in[1], c->in[3], &options);
}

static tutti_fractional_pool_options_t fractional_options(const golden_call_t *c)
{
    tutti_fractional_pool_options_t o = {.kernel = {0}};
    const json_t *ratio = json_object_get(c->args, "output_ratio");
    memcpy(o.kernel, shape(c, "kernel").dims, sizeof o.kernel);
    memcpy(o.size, shape(c, "output_size").dims, sizeof o.size);
    for (size_t i = 0; i < json_array_size(ratio); i++) {
        o.ratio[i] = json_number_value(json_array_get(ratio, i));
    }
    return o;
}

static tutti_tensor_t *call_fractional_max_pool2d(golden_call_t *c)
{
    const tutti_fractional_pool_options_t options = fractional_options(c);
    c->out[0] = tutti_fractional_max_pool2d(c->s, c->in[0], c->in[1], &options, &c->out[1]);
    return NULL;
}

static tutti_tensor_t *call_fractional_max_pool3d(golden_call_t *c)
{
    const tutti_fractional_pool_options_t options = fractional_options(c);
    c->out[0] = tutti_fractional_max_pool3d(c->s, c->in[0], c->in[1], &options, &c->out[1]);
    return NULL;
}

static const golden_entry_t golden_vocabulary[] = {
    {"linear_cross_entropy", .other = call_linear_cross_entropy},
    {"fractional_max_pool2d", .other = call_fractional_max_pool2d},
    {"fractional_max_pool3d", .other = call_fractional_max_pool3d},
};

#endif
