/* Vocabulary-parallel cross entropy: the classes of the logits are cut, and stay where they are.
 *
 *     forward    max of each row: all_reduce MAX [rows]
 *                of each of the T shards Σ e^(x - max), and x[target] - max where the target is:
 *                their sums by the canonical tree, one call [2, rows] ([3, rows] with smoothing)
 *     backward   dlogits of this rank's classes = (softmax - onehot) dy: nothing is sent
 *
 * Cost: calls of 3 numbers for each row. Source: Shoeybi et al., "Megatron-LM" (2019). */
#include <tutti/op.h>
#include <tutti/tensor_parallel.h>

#include "comm/group/agree.h"
#include "compute/op/linear/dense.h"
#include "compute/op/loss/loss_reduction.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/norm/rows.h"
#include "core/kernel/reduce/reduce.h"
#include "parallel/tensor/leaf_sum.h"
#include "parallel/tensor/tp_shards.h"

typedef struct {
    tt_tp_t tp;
    int64_t classes; /* of the whole */
    tutti_loss_reduction_t reduction;
    double label_smoothing;
    int64_t ignore_index;
} vocabulary_loss_t;

enum { LOGITS, TARGETS, MAX_SUM, WEIGHT, MAX, SUMS, LOSSES, OPERANDS };

static tt_tp_dim_t dim_of(const vocabulary_loss_t *how)
{
    return (tt_tp_dim_t){1, {how->classes}};
}

static tutti_status_t check_logits(const tutti_op_call_t *call)
{
    const vocabulary_loss_t *how = call->params;
    const tt_tp_dim_t dim = dim_of(how);
    const tutti_shape_t x = call->inputs[LOGITS]->shape;
    const int64_t want = tt_tp_own_size(&how->tp, &dim);
    if (x.rank == 0 || x.dims[x.rank - 1] != want) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "this rank has %lld of the %lld classes, which come last",
                             (long long)want, (long long)how->classes);
    }
    return TUTTI_OK;
}

static tutti_status_t loss_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const vocabulary_loss_t *how = call->params;
    const tutti_tensor_t *logits = call->inputs[LOGITS], *targets = call->inputs[TARGETS];
    tutti_shape_t rows = logits->shape;
    TT_TRY(tt_loss_check(call->op->name, how->reduction));
    if (!tutti_dtype_is_float(logits->dtype)) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the logits must be of a floating dtype");
    }
    if (targets->dtype != TUTTI_I64 && targets->dtype != TUTTI_I32 && targets->dtype != TUTTI_U8) {
        return tutti_op_fail(call, TUTTI_ERR_DTYPE, "the targets must be i64, i32 or u8");
    }
    TT_TRY(check_logits(call));
    rows.rank--;
    if (!tutti_shape_equal(rows, targets->shape)) {
        return tutti_op_fail(call, TUTTI_ERR_SHAPE,
                             "the targets must have the shape of the logits without the classes, "
                             "which come last");
    }
    outputs->dtype = tt_accum_dtype(logits->dtype);
    outputs->shape = how->reduction == TUTTI_LOSS_NONE ? rows : TUTTI_SCALAR;
    return TUTTI_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

typedef struct {
    tutti_op_call_t *call;
    tutti_tensor_t *at[OPERANDS];
} loss_t;

/* The columns of a run of this rank's classes. */
static tt_cross_entropy_part_t part_of(const loss_t *l, tt_span_t run)
{
    const vocabulary_loss_t *how = l->call->params;
    const tutti_tensor_t *logits = l->at[LOGITS];
    const tt_tp_dim_t dim = dim_of(how);
    return (tt_cross_entropy_part_t){
        .dtype = logits->dtype,
        .rows = (size_t)tt_row_count(logits->shape),
        .n = (size_t)run.count,
        .stride = (size_t)logits->shape.dims[logits->shape.rank - 1],
        .logits = (const char *)tt_tensor_data(logits) +
                  run.begin * (int64_t)tutti_dtype_bytes(logits->dtype),
        .targets = tt_tensor_data(l->at[TARGETS]),
        .first = (size_t)(tt_tp_part(&how->tp, &dim, 0).begin + run.begin),
        .has_total = how->label_smoothing > 0,
        .max = tt_tensor_data(l->at[MAX]),
    };
}

static tutti_status_t sum_leaf(void *user, int leaf, const tt_tp_rows_t *rows, tutti_tensor_t *into)
{
    (void)rows; /* all */
    const loss_t *l = user;
    const vocabulary_loss_t *how = l->call->params;
    const tt_tp_dim_t dim = dim_of(how);
    tt_span_t runs[TT_TP_PARTS_MAX];
    (void)tt_tp_runs(&how->tp, &dim, leaf, runs); /* of one part: one */
    tt_cross_entropy_part_t part = part_of(l, runs[0]);
    part.sums = tt_tensor_data(into);
    return tt_cross_entropy_sums(tt_scope_exec(l->call->scope), &part);
}

static tutti_status_t find_max(const loss_t *l)
{
    const vocabulary_loss_t *how = l->call->params;
    const tt_cross_entropy_part_t all =
        part_of(l, (tt_span_t){0, l->at[LOGITS]->shape.dims[l->at[LOGITS]->shape.rank - 1]});
    TT_TRY(tt_cross_entropy_max(tt_scope_exec(l->call->scope), &all));
    return tutti_group_size(how->tp.group) > 1 && tt_device_has_values(l->at[MAX]->storage->device)
               ? tutti_all_reduce(how->tp.group, l->at[MAX], TUTTI_MAX, NULL)
               : TUTTI_OK;
}

static tutti_status_t add_sums(loss_t *l)
{
    const vocabulary_loss_t *how = l->call->params;
    tt_leaf_sum_t sum = {.tp = &how->tp,
                         .s = l->call->scope,
                         .dtype = l->at[SUMS]->dtype,
                         .numel = l->at[SUMS]->numel,
                         .make = sum_leaf,
                         .user = l};
    return tt_leaf_sum(&sum, l->at[SUMS]);
}

static tt_cross_entropy_t describe(const vocabulary_loss_t *how, tutti_tensor_t *const *operands)
{
    const tutti_tensor_t *logits = operands[LOGITS];
    const tt_tp_dim_t dim = dim_of(how);
    return (tt_cross_entropy_t){
        .shape = {logits->dtype, (size_t)tt_row_count(logits->shape),
                  (size_t)logits->shape.dims[logits->shape.rank - 1]},
        .logits = tt_tensor_data(logits),
        .targets = tt_tensor_data(operands[TARGETS]),
        .ignore_index = how->ignore_index,
        .label_smoothing = how->label_smoothing,
        .max_sum = tt_tensor_data(operands[MAX_SUM]),
        .weight = tt_data_of(operands[WEIGHT]),
        .first = (size_t)tt_tp_part(&how->tp, &dim, 0).begin,
        .classes = (size_t)how->classes,
    };
}

static tt_strided_t as_row(const tutti_tensor_t *x)
{
    return tt_strided_row(tt_tensor_data(x), x->dtype, x->numel);
}

/* Their sum, times the weight of a mean. */
static tutti_status_t reduce_losses(const loss_t *l)
{
    tt_exec_t *exec = tt_scope_exec(l->call->scope);
    const tt_strided_t in = as_row(l->at[LOSSES]), out = as_row(l->call->outputs[0]);
    TT_TRY(tt_reduce(exec, TT_REDUCE_SUM, (tt_reduce_params_t){0}, &out, &in, 1u));
    if (l->at[WEIGHT] == NULL) {
        return TUTTI_OK;
    }
    const tt_strided_t factor = as_row(l->at[WEIGHT]);
    return tt_map_binary(exec, TT_BINARY_MUL, (tt_map_params_t){0}, &out, &out, &factor);
}

static tutti_status_t make_operands(loss_t *l)
{
    tutti_op_call_t *call = l->call;
    const vocabulary_loss_t *how = call->params;
    tutti_tensor_t *logits = call->inputs[LOGITS], *targets = call->inputs[TARGETS];
    tt_device_t *device = call->scope->ctx->place.device;
    const tutti_dtype_t dtype = call->outputs[0]->dtype;
    tutti_shape_t pairs = logits->shape;
    pairs.dims[pairs.rank - 1] = 2;
    const int64_t rows = tt_row_count(logits->shape);
    TT_TRY(tt_dense(call->scope, logits, logits->dtype, &l->at[LOGITS]));
    TT_TRY(tt_dense(call->scope, targets, TUTTI_I64, &l->at[TARGETS]));
    TT_TRY(tt_tensor_new(device, dtype, pairs, false, &l->at[MAX_SUM]));
    TT_TRY(tt_tensor_new(device, dtype, TUTTI_SHAPE(rows), false, &l->at[MAX]));
    TT_TRY(tt_tensor_new(device, dtype, TUTTI_SHAPE(how->label_smoothing > 0 ? 3 : 2, rows), false,
                         &l->at[SUMS]));
    if (how->reduction == TUTTI_LOSS_MEAN) {
        TT_TRY(tt_tensor_new(device, dtype, TUTTI_SCALAR, false, &l->at[WEIGHT]));
    }
    if (how->reduction != TUTTI_LOSS_NONE) {
        return tt_tensor_new(device, dtype, targets->shape, false, &l->at[LOSSES]);
    }
    l->at[LOSSES] = tutti_tensor_retain(call->outputs[0]);
    return TUTTI_OK;
}

static tutti_status_t compute(loss_t *l)
{
    tutti_op_call_t *call = l->call;
    const vocabulary_loss_t *how = call->params;
    TT_TRY(make_operands(l));
    TT_TRY(find_max(l));
    TT_TRY(add_sums(l));
    tt_cross_entropy_t ce = describe(how, l->at);
    ce.loss = tt_tensor_data(l->at[LOSSES]);
    TT_TRY(tt_cross_entropy_finish(tt_scope_exec(call->scope), &ce, tt_tensor_data(l->at[MAX]),
                                   tt_tensor_data(l->at[SUMS])));
    TT_TRY(how->reduction != TUTTI_LOSS_NONE ? reduce_losses(l) : TUTTI_OK);
    TT_TRY(tutti_op_save_copy(call, l->at[LOGITS], LOGITS));
    TT_TRY(tutti_op_save_copy(call, l->at[TARGETS], TARGETS));
    TT_TRY(tutti_op_save(call, l->at[MAX_SUM]));
    return tutti_op_save(call, l->at[WEIGHT]);
}

static tutti_status_t loss_forward(tutti_op_call_t *call)
{
    const vocabulary_loss_t *how = call->params;
    loss_t l = {.call = call};
    const tutti_status_t status = compute(&l);
    tt_tensors_release(l.at, OPERANDS);
    return status < 0 ? tt_group_give_up(how->tp.group, status) : TUTTI_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static tutti_status_t push(tutti_op_backward_t *call)
{
    const vocabulary_loss_t *how = call->params;
    const tutti_tensor_t *logits = call->saved[LOGITS];
    tutti_tensor_t *dy, *dlogits = tt_scratch(call->scope, logits->dtype, logits->shape);
    if (dlogits == NULL) {
        return tutti_scope_status(call->scope);
    }
    TT_TRY(tt_dense(call->scope, call->grad_outputs[0], call->outputs[0].dtype, &dy));
    tt_cross_entropy_t ce = describe(how, call->saved);
    ce.dlogits = tt_tensor_data(dlogits);
    ce.scale = tt_tensor_data(dy);
    ce.scale_is_shared = how->reduction != TUTTI_LOSS_NONE;
    const tutti_status_t status = tt_cross_entropy_backward(tt_scope_exec(call->scope), &ce);
    tutti_tensor_release(dy);
    call->grads[LOGITS] = dlogits;
    return status;
}

static tutti_status_t loss_backward(tutti_op_backward_t *call)
{
    const vocabulary_loss_t *how = call->params;
    const tutti_status_t status = push(call);
    return status < 0 ? tt_group_give_up(how->tp.group, status) : TUTTI_OK;
}

static void retain_group(const void *params)
{
    (void)tutti_group_retain(((const vocabulary_loss_t *)params)->tp.group);
}

static void release_group(const void *params)
{
    tutti_group_release(((const vocabulary_loss_t *)params)->tp.group);
}

static const tutti_op_t loss_op = {
    .name = "vocabulary_cross_entropy",
    .about = "-log softmax(logits)[target], classes cut; dlogits = (softmax - onehot) dy / rows",
    .params_bytes = sizeof(vocabulary_loss_t),
    .infer = loss_infer,
    .forward = loss_forward,
    .backward = loss_backward,
    .retain_params = retain_group,
    .release_params = release_group,
};

static tutti_tensor_t *run_loss(tutti_scope_t *s, tutti_tensor_t *logits, tutti_tensor_t *targets,
                                const vocabulary_loss_t *how)
{
    tutti_tensor_t *y = tutti_op_run(s, &loss_op, (tutti_tensor_t *[]){logits, targets}, 2, how);
    if (tutti_tensor_status(y) < 0) {
        (void)tt_group_give_up(how->tp.group, tt_tensor_status(y));
    }
    return y;
}

/* ---- the call -------------------------------------------------------------------------------- */

static tutti_status_t resolve(const tutti_parallel_loss_options_t *o, vocabulary_loss_t *how)
{
    if (o == NULL || o->group == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "parallel_cross_entropy: options.group is missing");
    }
    const int ranks = tutti_group_size(o->group);
    *how = (vocabulary_loss_t){
        .tp = {o->group, o->shards == 0 ? ranks : o->shards},
        .classes = o->classes,
        .reduction = o->loss.reduction,
        .label_smoothing = o->loss.label_smoothing,
        .ignore_index = o->loss.has_ignore_index ? o->loss.ignore_index : -100,
    };
    TT_TRY(tt_tp_check("parallel_cross_entropy", &how->tp));
    if (o->classes < 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "parallel_cross_entropy: %lld classes: want those of all "
                       "ranks together",
                       (long long)o->classes);
    }
    return o->loss.label_smoothing >= 0 && o->loss.label_smoothing <= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "parallel_cross_entropy: label_smoothing must be in [0, 1], not %g",
                         o->loss.label_smoothing);
}

tutti_tensor_t *tutti_parallel_cross_entropy(tutti_scope_t *s, tutti_tensor_t *logits,
                                             tutti_tensor_t *targets,
                                             const tutti_parallel_loss_options_t *options)
{
    vocabulary_loss_t how;
    const tutti_status_t status = resolve(options, &how);
    if (status < 0) {
        return tutti_scope_fail(s, options == NULL || options->group == NULL
                                       ? status
                                       : tt_group_give_up(options->group, status));
    }
    return run_loss(s, logits, targets, &how);
}
