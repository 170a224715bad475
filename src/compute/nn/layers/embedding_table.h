/* What embedding and embedding_bag share: a table, of which a row of padding begins as zeros, and
 * how rows are looked up in it. */
#ifndef TT_EMBEDDING_TABLE_H
#define TT_EMBEDDING_TABLE_H

#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>

#include "compute/nn/module_impl.h"
#include "core/base/default.h"

/* The state, or the beginning of the state, of both. */
typedef struct {
    tutti_tensor_t *weight;
    tutti_embedding_lookup_options_t lookup;
} tt_embedding_table_t;

typedef struct {
    int64_t count, width;
    double std;
    tutti_embedding_lookup_options_t lookup;
} tt_embedding_sizes_t;

/* Check the sizes and options, register "weight", and fill the state in. */
tutti_status_t tt_embedding_table_add(tutti_module_t *m, const tt_embedding_sizes_t *sizes);

/* Whether a module's forward writes its table: each replica its own rows. */
static inline bool tt_writes_its_table(const tutti_module_t *m)
{
    const bool is_one = m->ops == &tutti_embedding_layer || m->ops == &tutti_embedding_bag_layer;
    return is_one && tt_is_given(((const tt_embedding_table_t *)m->state)->lookup.max_norm);
}

#endif
