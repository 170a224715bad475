/* The list of layers, as a table. */
#include <tutti/nn_functions.h>
#include <tutti/nn_layers.h>
#include <tutti/nn_transformer.h>
#include <tutti/nn_vocabulary.h>

#include "compute/nn/module_impl.h"

const tutti_module_ops_t *const tt_layers[] = {
#define X(table) &table,
#include "compute/nn/layers.def"
#undef X
};

const size_t tt_layer_count = sizeof tt_layers / sizeof tt_layers[0];
