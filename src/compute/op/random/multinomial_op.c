/* Indices drawn by weights. Source: multinomial.h. */
#include <tutti/op_index.h>
#include <tutti/op_shape.h>

#include "compute/op/ops.h"
#include "compute/op/shape/random_stream.h"
#include "core/kernel/random/multinomial.h"

typedef struct {
    int64_t count;
    bool replaces;
} params_t;

static tutti_status_t infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const params_t *params = call->params;
    const tutti_tensor_t *x = call->inputs[0];
    const int last = x->shape.rank - 1;
    if (!tutti_dtype_is_float(x->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "weights must be of a floating dtype");
    }
    if (last < 0 || x->shape.dims[last] == 0) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE, "there is no weight in a row");
    }
    if (params->count < 1 || (!params->replaces && params->count > x->shape.dims[last])) {
        return tutti_op_fail(call, TUTTI_ERR_ARG, "%lld draws from %lld weights: want at least 1%s",
                             (long long)params->count, (long long)x->shape.dims[last],
                             params->replaces ? "" : ", and without replacement no more than that");
    }
    outputs[0] = (tutti_spec_t){TUTTI_I64, x->shape};
    outputs[0].shape.dims[last] = params->count;
    return tt_shape_check(TUTTI_I64, outputs[0].shape);
}

static tutti_status_t forward(tutti_op_call_t *call)
{
    const params_t *params = call->params;
    tutti_scope_t *s = call->scope;
    tutti_tensor_t *x = tutti_contiguous(s, tutti_cast(s, call->inputs[0], TUTTI_F64));
    TT_TRY(x->status);
    const int64_t length = x->shape.dims[x->shape.rank - 1];
    const tt_multinomial_t choice = {
        .at = {tt_random_stream(s->ctx, (tutti_random_name_t){0}), 0},
        .out = tt_tensor_data(call->outputs[0]),
        .weights = tt_tensor_data(x),
        .rows = x->numel / length,
        .length = length,
        .count = params->count,
        .replaces = params->replaces,
    };
    return tt_multinomial(tt_scope_exec(s), &choice);
}

const tutti_op_t tt_op_multinomial = {
    .name = "multinomial",
    .about = "indices, each drawn with the probability that its weight has in its row",
    .params_bytes = sizeof(params_t),
    .infer = infer,
    .forward = forward,
};

tutti_tensor_t *tutti_multinomial(tutti_scope_t *s, tutti_tensor_t *weights, int64_t count,
                                  bool replacement)
{
    return tutti_op_run(s, &tt_op_multinomial, &weights, 1, &(params_t){count, replacement});
}
