/* Embedding: rows of a table. Initial values N(0, 1), as torch.nn.Embedding's. */
#include <tutti/op_nn.h>

#include "compute/nn/layers/embedding_table.h"

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    static const tutti_embedding_options_t none = {.count = 0};
    const tutti_embedding_options_t *o = options == NULL ? &none : options;
    const tt_embedding_sizes_t sizes = {o->count, o->width, tt_or_default(o->std, 1), o->lookup};
    return tt_embedding_table_add(m, &sizes);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const tt_embedding_table_t *table = tutti_module_state(m);
    return tutti_embedding_with(s, x, table->weight, &table->lookup);
}

const tutti_module_ops_t tutti_embedding_layer = {
    .name = "embedding",
    .about = "rows of a table, by their numbers",
    .state_bytes = sizeof(tt_embedding_table_t),
    .init = init,
    .forward = forward,
};
