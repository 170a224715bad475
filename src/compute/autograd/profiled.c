/* Counting what operations read and write. Views, which are made without moving anything, count as
 * what they are views of: what they cost shows in their time. */
#include "compute/autograd/profiled.h"

#include "core/tensor/tensor_impl.h"

static uint64_t bytes_of(const tutti_tensor_t *x)
{
    return x == NULL ? 0 : (uint64_t)x->numel * tutti_dtype_bytes(x->dtype);
}

static void add(tt_profile_end_t *end, tutti_tensor_t *const *tensors, int count, bool is_made)
{
    for (int i = 0; i < count; i++) {
        end->bytes += bytes_of(tensors[i]);
        end->elements += is_made && tensors[i] != NULL ? (double)tensors[i]->numel : 0;
    }
}

tt_profile_end_t tt_profiled_forward(const tutti_op_call_t *call)
{
    tt_profile_end_t end = {0};
    add(&end, call->inputs, call->input_count, false);
    add(&end, call->outputs, call->output_count, true);
    return end;
}

tt_profile_end_t tt_profiled_backward(const tutti_op_backward_t *call, int saved_count)
{
    tt_profile_end_t end = {0};
    add(&end, call->grad_outputs, call->output_count, false);
    add(&end, call->saved, saved_count, false);
    add(&end, call->grads, call->input_count, true);
    return end;
}
