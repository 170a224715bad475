/* The list of all operations, made from ops.def. */
#include "compute/op/ops.h"

const tutti_op_t *const tt_ops[TT_OP_COUNT] = {
#define X(name, table) &(table),
#include "compute/op/ops.def"
#undef X
};
