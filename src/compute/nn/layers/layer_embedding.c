/* Embedding: rows of a table. Initial values N(0, 1), as torch.nn.Embedding's. */
#include <tutti/nn_layers.h>
#include <tutti/op_nn.h>

#include "core/base/default.h"
#include "core/base/fail.h"

typedef struct {
    tutti_tensor_t *weight;
} embedding_t;

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_embedding_options_t *o = options;
    embedding_t *embedding = tutti_module_state(m);
    if (o == NULL || o->count < 1 || o->width < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "embedding: count %lld, width %lld: both must be at least 1",
                       o == NULL ? 0LL : (long long)o->count,
                       o == NULL ? 0LL : (long long)o->width);
    }
    const tutti_init_t normal = {TUTTI_INIT_NORMAL, 0, tt_or_default(o->std, 1)};
    return tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(o->count, o->width), normal,
                                      &embedding->weight);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const embedding_t *embedding = tutti_module_state(m);
    return tutti_embedding(s, x, embedding->weight);
}

const tutti_module_ops_t tutti_embedding_layer = {
    .name = "embedding",
    .about = "rows of a table, by their numbers",
    .state_bytes = sizeof(embedding_t),
    .init = init,
    .forward = forward,
};
