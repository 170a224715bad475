/* Bags of embeddings. Initial values as torch.nn.EmbeddingBag's: N(0, 1). */
#include <tutti/op_feature.h>

#include "compute/nn/layers/embedding_table.h"

typedef struct {
    tt_embedding_table_t table;
    tutti_bag_mode_t mode;
    bool has_last_offset;
} embedding_bag_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    static const tutti_embedding_bag_layer_options_t none = {.count = 0};
    const tutti_embedding_bag_layer_options_t *o = options == NULL ? &none : options;
    embedding_bag_t *bag = tutti_module_state(m);
    bag->mode = o->mode;
    bag->has_last_offset = o->has_last_offset;
    const tutti_embedding_lookup_options_t lookup = {.has_padding = o->has_padding,
                                                     .padding = o->padding,
                                                     .max_norm = o->max_norm,
                                                     .norm_p = o->norm_p,
                                                     .scale_by_frequency = o->scale_by_frequency};
    return tt_embedding_table_add(m, &(tt_embedding_sizes_t){o->count, o->width, 1, lookup});
}

static tutti_embedding_bag_options_t options_of(const embedding_bag_t *bag)
{
    const tutti_embedding_lookup_options_t *lookup = &bag->table.lookup;
    return (tutti_embedding_bag_options_t){.mode = bag->mode,
                                           .has_last_offset = bag->has_last_offset,
                                           .has_padding = lookup->has_padding,
                                           .padding = lookup->padding,
                                           .max_norm = lookup->max_norm,
                                           .norm_p = lookup->norm_p,
                                           .scale_by_frequency = lookup->scale_by_frequency};
}

static void forward_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                         int input_count, tutti_tensor_t **outputs, int output_count)
{
    const embedding_bag_t *bag = tutti_module_state(m);
    tutti_embedding_bag_options_t o = options_of(bag);
    if (input_count < 1 || input_count > 3 || output_count != 1) {
        (void)tutti_scope_fail(s, TT_FAIL(TUTTI_ERR_ARG,
                                          "embedding_bag takes one to three tensors and gives one, "
                                          "not %d and %d",
                                          input_count, output_count));
        return;
    }
    o.offsets = input_count > 1 ? inputs[1] : NULL;
    o.weights = input_count > 2 ? inputs[2] : NULL;
    outputs[0] = tutti_embedding_bag(s, inputs[0], bag->table.weight, &o);
}

const tutti_module_ops_t tutti_embedding_bag_layer = {
    .name = "embedding_bag",
    .about = "means, sums or maxima of rows of a table",
    .state_bytes = sizeof(embedding_bag_t),
    .init = init,
    .forward_many = forward_many,
};
