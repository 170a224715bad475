/* What a node saved, with its history: for the gradient of a gradient.
 *
 * Nodes keep tensors without history, for an output with one would hold the node that keeps it. A
 * gradient that is to have a gradient needs it back:
 *
 *     saved input i     ──> edge i of the node, through a cast where it was saved in another dtype
 *     saved output k    ──> the node itself
 *     something else    ──> nothing: a constant
 *
 * These tensors live as long as the node's turn; what is recorded from them holds the nodes alone.
 */
#ifndef TT_HISTORY_H
#define TT_HISTORY_H

#include "compute/autograd/node.h"

/* What the node saved, one tensor for each in scope s: saved[i], NULL where it was NULL. */
tutti_status_t tt_history_restore(tutti_scope_t *s, tt_node_t *node, tutti_tensor_t **saved);

/* In `grad`: a tensor of its own that holds an input's values gets that input's history. Returns
 * it. */
tutti_tensor_t *tt_history_of_input(const tutti_op_backward_t *call, int input,
                                    tutti_tensor_t *copy);

/* In `grad`: something else that was saved, the result of an operation on the same inputs that was
 * not recorded, gets the history that it would have. The operation saves of its inputs what the
 * call's own did, in the same order. */
tutti_tensor_t *tt_history_of_result(const tutti_op_backward_t *call, int saved,
                                     const tutti_op_t *op, const void *params);

#endif
