/* Classes as rows with a single 1. */
#include <tutti/op_index.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/op/ops.h"
#include "compute/op/shape/view.h"
#include "core/kernel/index/indexing.h"

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const int64_t classes = *(const int64_t *)call->params;
    const tutti_tensor_t *x = call->inputs[0];
    if (x->dtype != TUTTI_I64 && x->dtype != TUTTI_I32 && x->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "classes must be i64, i32 or u8");
    }
    if (classes < 1 || x->shape.rank == TUTTI_RANK_MAX) {
        return tutti_op_fail(call, TUTTI_ERR_ARG,
                             "%lld classes of %d dimensions: want at least 1, and at most %d",
                             (long long)classes, x->shape.rank, TUTTI_RANK_MAX - 1);
    }
    outputs[0] = (tutti_spec_t){TUTTI_I64, tt_shape_with(x->shape, x->shape.rank, classes)};
    return tt_shape_check(TUTTI_I64, outputs[0].shape);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    tutti_tensor_t *x =
        tutti_contiguous(call->scope, tutti_cast(call->scope, call->inputs[0], TUTTI_I64));
    TT_TRY(x->status);
    const tt_strided_t out = tt_strided_rows(tt_tensor_data(call->outputs[0]), TUTTI_I64, x->numel,
                                             *(const int64_t *)call->params),
                       index = tt_strided_row(tt_tensor_data(x), TUTTI_I64, x->numel);
    return tt_one_hot(tt_scope_exec(call->scope), &out, &index);
}

const tutti_op_t tt_op_one_hot = {
    .name = "one_hot",
    .about = "y[.., c] = 1 where x = c, else 0",
    .params_bytes = sizeof(int64_t),
    .infer = infer,
    .forward = forward,
};

tutti_tensor_t *tutti_one_hot(tutti_scope_t *s, tutti_tensor_t *x, int64_t classes)
{
    return tutti_op_run(s, &tt_op_one_hot, &x, 1, &classes);
}
