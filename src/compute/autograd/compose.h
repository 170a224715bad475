/* The recorded gradient of an operation that is one kernel, by the same in several operations: its
 * forward is composed again, of what was saved of its inputs, and the gradient of that is taken.
 */
#ifndef TT_COMPOSE_H
#define TT_COMPOSE_H

#include "compute/autograd/op_call.h"

/* inputs: [call->input_count] as they were saved, NULL where they were not. The result is that of
 * output 0; its dtype may be wider. */
typedef tutti_tensor_t *(*tt_compose_fn_t)(const tutti_op_backward_t *call,
                                           tutti_tensor_t *const *inputs);

/* In `grad`: gradients of those wanted inputs that were saved (tutti_op_save() or
 * tutti_op_save_copy()). Those of others, of a bias, are `grad`'s own to make. */
tutti_status_t tt_grad_composed(tutti_op_backward_t *call, tt_compose_fn_t compose);

#endif
