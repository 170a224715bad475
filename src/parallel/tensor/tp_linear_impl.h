/* What the operations of tensor parallelism have in common. */
#ifndef TT_TP_LINEAR_IMPL_H
#define TT_TP_LINEAR_IMPL_H

#include <tutti/op.h>

#include "compute/op/linear/linear_parts.h"
#include "parallel/tensor/tp_ops.h"

typedef struct {
    tt_linear_params_t linear;
    tt_tp_linear_t how;
} tt_tp_params_t;

void tt_tp_retain(const void *params);
void tt_tp_release(const void *params);

/* An operation of these parameters. If it fails, also because of an input that failed, the group is
 * given up: others wait in it. */
tutti_tensor_t *tt_tp_run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                          int count, const tt_tp_params_t *params);

#endif
