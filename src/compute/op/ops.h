/* The tables of all operations, in the order of ops.def. */
#ifndef TT_OPS_H
#define TT_OPS_H

#include "compute/autograd/op_call.h"

typedef enum {
#define X(name, table) TT_OP_##name,
#include "compute/op/ops.def"
#undef X
    TT_OP_COUNT
} tt_op_id_t;

#define X(name, table) extern const tutti_op_t table;
#include "compute/op/ops.def"
#undef X

extern const tutti_op_t *const tt_ops[TT_OP_COUNT];

#endif
