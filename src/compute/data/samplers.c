/* The list of kinds of samplers, as a table. */
#include "compute/data/sampler_impl.h"

const tutti_sampler_ops_t *const tt_samplers[] = {
#define X(table) &table,
#include "compute/data/samplers.def"
#undef X
};

const size_t tt_sampler_count = sizeof tt_samplers / sizeof tt_samplers[0];
