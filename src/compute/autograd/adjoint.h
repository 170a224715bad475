/* The gradient of an operation that is linear in each input of a floating dtype as long as the
 * others stay, as an operation of its own: slices, products, convolutions.
 *
 *     operation    y = L(x, w)
 *     backward     dx = X(g, w)         with Σ X(g, w) u = Σ g L(u, w) for every u
 *     of dx        u comes in: dg = L(u, w), dw = W(g, u), the backward to w with u in x's place
 *
 * So the operation's forward and backward are all that it takes, for gradients of any order.
 */
#ifndef TT_ADJOINT_H
#define TT_ADJOINT_H

#include "compute/autograd/op_call.h"

/* As `grad` of an operation: the wanted gradients, recorded. Every input that backward takes is
 * saved in order, by tutti_op_save() or tutti_op_save_copy(). An input that is not saved is added
 * as a rule (a bias), and `grad` makes its gradient itself. */
tutti_status_t tt_grad_linear(tutti_op_backward_t *call);

/* The same for one input. */
tutti_tensor_t *tt_adjoint(const tutti_op_backward_t *call, int input);

#endif
