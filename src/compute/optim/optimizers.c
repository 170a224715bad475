/* The list of optimizers, as a table. */
#include <tutti/optim.h>

#include "compute/optim/optimizer.h"

const tutti_optim_ops_t *const tt_optimizers[] = {
#define X(table) &table,
#include "compute/optim/optimizers.def"
#undef X
};

const size_t tt_optimizer_count = sizeof tt_optimizers / sizeof tt_optimizers[0];
