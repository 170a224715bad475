/* Gradients of composed forwards. See compose.h. */
#include "compute/autograd/compose.h"

#include <tutti/op_shape.h>

#include "compute/autograd/backward_run.h"
#include "core/base/alloc.h"

static void take_inputs(const tt_op_backward_t *call, tutti_tensor_t **inputs)
{
    for (int k = 0; k < call->saved_count; k++) {
        if (call->items[k].from > 0) {
            inputs[call->items[k].from - 1] = call->seen.saved[k];
        }
    }
}

/* Each wanted input becomes a result of its own, at which the inner backward ends: one input may
 * depend on another. */
static int separate(const tutti_op_backward_t *call, tutti_tensor_t **inputs,
                    tutti_tensor_t **wanted)
{
    int count = 0;
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i] && inputs[i] != NULL) {
            inputs[i] = tutti_expand(call->scope, inputs[i], inputs[i]->shape);
            wanted[count++] = inputs[i];
        }
    }
    return count;
}

static tutti_status_t run_inner(tt_run_t *run, tutti_tensor_t *y, tutti_tensor_t *grad,
                                tutti_tensor_t *const *wanted, int count)
{
    const tutti_root_t root = {.tensor = y, .grad_output = grad};
    TT_TRY(tt_run_capture(run, wanted, count));
    TT_TRY(tt_run_open(run, &root, 1));
    return tt_run_finish(run, tt_run_advance(run));
}

static tutti_status_t give(tutti_op_backward_t *call, tt_run_t *run, tutti_tensor_t *const *inputs)
{
    int n = 0;
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i] && inputs[i] != NULL) {
            tutti_tensor_t *grad = run->captured[n];
            run->captured[n++] = NULL;
            if (grad != NULL) {
                call->grads[i] = tt_scope_adopt(call->scope, TUTTI_OK, grad);
                TT_TRY(call->grads[i]->status);
            }
        }
    }
    return TUTTI_OK;
}

/* room: [twice the inputs], zeroed */
static tutti_status_t grad_in(tutti_op_backward_t *call, tt_compose_fn_t compose,
                              tutti_tensor_t **room)
{
    tutti_tensor_t **wanted = room + call->input_count;
    take_inputs((const tt_op_backward_t *)call, room);
    const int count = separate(call, room, wanted);
    if (count == 0) {
        return TUTTI_OK;
    }
    tutti_tensor_t *y = compose(call, room);
    TT_TRY(tutti_scope_status(call->scope));
    tt_run_t run = {.scope = call->scope,
                    .options = {.create_graph = true, .retain_graph = true},
                    .ends_at_inputs = true};
    tutti_status_t status = run_inner(&run, y, call->grad_outputs[0], wanted, count);
    if (status >= 0) {
        status = give(call, &run, room);
    }
    tt_run_close(&run);
    return status;
}

tutti_status_t tt_grad_composed(tutti_op_backward_t *call, tt_compose_fn_t compose)
{
    const size_t count = 2 * (size_t)call->input_count;
    tutti_tensor_t **room = tt_alloc_array(count, sizeof *room, "backward");
    TT_TRY_ALLOC(room);
    const tutti_status_t status = grad_in(call, compose, room);
    tt_free(room);
    return status;
}
