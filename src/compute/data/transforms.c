/* The list of kinds of steps, as a table. */
#include "compute/data/transform_impl.h"

const tutti_transform_ops_t *const tt_transforms[] = {
#define X(table) &table,
#include "compute/data/transforms.def"
#undef X
};

const size_t tt_transform_count = sizeof tt_transforms / sizeof tt_transforms[0];
