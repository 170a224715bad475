/* Bags of embeddings. Initial values as torch.nn.EmbeddingBag's: N(0, 1). */
#include <tutti/nn_functions.h>
#include <tutti/op_feature.h>

#include "core/base/fail.h"

typedef struct {
    tutti_tensor_t *weight;
    tutti_embedding_bag_options_t options;
} embedding_bag_t;

static tutti_status_t check(const tutti_embedding_bag_layer_options_t *o)
{
    if (o == NULL || o->count < 1 || o->width < 1) {
        return TT_FAIL(
            TUTTI_ERR_ARG, "embedding_bag: count %lld, width %lld: both must be at least 1",
            o == NULL ? 0LL : (long long)o->count, o == NULL ? 0LL : (long long)o->width);
    }
    return !o->has_padding || (o->padding >= 0 && o->padding < o->count)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "embedding_bag: padding %lld is no index below %lld",
                         (long long)o->padding, (long long)o->count);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    static const tutti_init_t normal = {TUTTI_INIT_NORMAL, 0, 1};
    const tutti_embedding_bag_layer_options_t *o = options;
    embedding_bag_t *bag = tutti_module_state(m);
    TT_TRY(check(o));
    bag->options = (tutti_embedding_bag_options_t){.mode = o->mode,
                                                   .has_last_offset = o->has_last_offset,
                                                   .has_padding = o->has_padding,
                                                   .padding = o->padding};
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->count, o->width), normal,
                                      &bag->weight);
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const embedding_bag_t *bag = tutti_module_state(m);
    tutti_embedding_bag_options_t o = bag->options;
    if (input_count < 1 || input_count > 3 || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "embedding_bag takes one to three tensors and gives one, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    o.offsets = input_count > 1 ? inputs[1] : NULL;
    o.weights = input_count > 2 ? inputs[2] : NULL;
    outputs[0] = tutti_embedding_bag(s, inputs[0], bag->weight, &o);
}

const tutti_module_ops_t tutti_embedding_bag_layer = {
    .name = "embedding_bag",
    .about = "means, sums or maxima of rows of a table",
    .state_bytes = sizeof(embedding_bag_t),
    .init = init,
    .forward_many = forward_many,
};
