/* Copies of a parameter that every rank of the group has, such as a norm's: one for each slice of
 * the sequence. The gradient is the sum over all T slices, by the canonical tree, whether one rank
 * has computed them all or each its own.
 *
 * Cost: forward nothing; backward an all_reduce of the parameter's size if the sequence is cut. */
#include <tutti/op.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/norm/rows.h"
#include "parallel/tensor/leaf_sum.h"
#include "parallel/tensor/tp_linear_impl.h"

static tutti_status_t copies_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    for (int i = 0; i < call->output_count; i++) {
        outputs[i] = (tutti_spec_t){call->inputs[0]->dtype, call->inputs[0]->shape};
    }
    return TUTTI_OK;
}

static tutti_status_t copies_forward(tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count; i++) {
        TT_TRY(tutti_op_set_output(call, i, call->inputs[0]));
    }
    return TUTTI_OK;
}

typedef struct {
    tutti_op_backward_t *call;
    int first; /* leaf of the first copy */
} grads_t;

static tutti_status_t take_grad(void *user, int leaf, tutti_tensor_t *into)
{
    const grads_t *g = user;
    tutti_scope_t *s = g->call->scope;
    const tutti_tensor_t *dy = g->call->grad_outputs[leaf - g->first];
    tt_strided_t to = tt_tensor_strided(dy);
    to.data = tt_tensor_data(into);
    to.dtype = into->dtype;
    tt_shape_strides(dy->shape, to.strides);
    const tt_strided_t from = tt_tensor_strided(dy);
    return tt_map_unary(tt_scope_exec(s), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
}

static tutti_status_t copies_backward(tutti_op_backward_t *call)
{
    const tt_tp_params_t *p = call->params;
    grads_t grads = {call, p->how.is_sequence_cut ? tt_tp_leaves(&p->how.tp).begin : 0};
    tutti_tensor_t *dx;
    tutti_status_t status = tt_new_grad(call, 0, &dx);
    if (status >= 0) {
        tt_leaf_sum_t sum = {.tp = &p->how.tp,
                             .s = call->scope,
                             .dtype = tt_accum_dtype(dx->dtype),
                             .numel = dx->numel,
                             .make = take_grad,
                             .user = &grads};
        status = p->how.is_sequence_cut ? tt_leaf_sum(&sum, dx, NULL) : tt_leaf_sum_here(&sum, dx);
    }
    return status < 0 ? tt_group_give_up(p->how.tp.group, status) : TUTTI_OK;
}

static const tutti_op_t copies_op = {
    .name = "slice_copies",
    .about = "a parameter for each slice of the sequence; dx = Σ T slices dy",
    .input_count = 1,
    .output_count = TUTTI_OP_ANY,
    .params_bytes = sizeof(tt_tp_params_t),
    .infer = copies_infer,
    .forward = copies_forward,
    .backward = copies_backward,
    .retain_params = tt_tp_retain,
    .release_params = tt_tp_release,
    .makes_outputs = true,
    .zero_grad_outputs = true,
};

void tt_tp_copies(tutti_scope_t *s, tutti_tensor_t *x, const tt_tp_t *tp, bool is_sequence_cut,
                  tutti_tensor_t **copies, int count)
{
    const tt_tp_params_t params = {.how = {.tp = *tp, .is_sequence_cut = is_sequence_cut}};
    tutti_op_run_many(s, &copies_op, &x, 1, &params, copies, count);
    if (count > 0 && tutti_tensor_status(copies[0]) < 0) {
        (void)tt_group_give_up(tp->group, tt_tensor_status(copies[0]));
    }
}
