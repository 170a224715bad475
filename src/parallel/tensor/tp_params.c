/* Calls of the operations of tensor parallelism. */
#include "comm/group/agree.h"
#include "parallel/tensor/tp_linear_impl.h"

void tt_tp_retain(const void *params)
{
    (void)tutti_group_retain(((const tt_tp_params_t *)params)->how.tp.group);
}

void tt_tp_release(const void *params)
{
    tutti_group_release(((const tt_tp_params_t *)params)->how.tp.group);
}

tutti_tensor_t *tt_tp_run(tutti_scope_t *s, const tutti_op_t *op, tutti_tensor_t *const *inputs,
                          int count, const tt_tp_params_t *params)
{
    tutti_tensor_t *y = tutti_op_run(s, op, inputs, count, params);
    if (tutti_tensor_status(y) < 0) {
        (void)tt_group_give_up(params->how.tp.group, tt_tensor_status(y));
    }
    return y;
}
