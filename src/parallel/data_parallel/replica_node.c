/* A run of the team as a node of the caller's graph.
 *
 *     inputs ─────┐
 *     parameters ─┴─ run ── outputs
 *
 * Backward of `run` is that of all replicas; the gradients of inputs are its own, those of
 * parameters it leaves in the run's sums. The node holds the run by its parameters.
 *
 * Outputs: either put together along a dimension (scalars as a vector), or, as those of apply may
 * have unlike shapes, one behind the other in a vector.
 */
#include <string.h>

#include <tutti/devices.h>
#include <tutti/op_shape.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

/* Parameters of the operation: the run. */
static tt_replica_run_t *run_of(const void *params)
{
    return *(tt_replica_run_t *const *)params;
}

static void retain_run(const void *params)
{
    tt_ref_retain(&run_of(params)->ref);
}

static void release_run(const void *params)
{
    tt_replica_run_release(run_of(params));
}

/* Inputs of the operation before the parameters. */
static int input_count(const tt_replica_run_t *run)
{
    return run->dim >= 0 ? run->input_count : run->count;
}

/* ---- where an output lies -------------------------------------------------------------------- */

/* Outputs may have other ranks than inputs; -1: there is no such dimension. */
static int out_dim(const tt_replica_run_t *run, tutti_shape_t output)
{
    return tt_dim_index(run->out_dim, output.rank);
}

/* Output `output` of a part as a view of what all of them make up, which may be a gradient and
 * have any strides; `start` moves on to the next part's. Owned by the caller. */
static tutti_status_t view_part(const tt_replica_part_t *part, int output,
                                const tutti_tensor_t *all, int64_t *start, tutti_tensor_t **out)
{
    const tutti_shape_t shape = part->specs[output].shape;
    const int dim = out_dim(part->run, shape);
    const bool is_gathered = part->run->dim >= 0 && shape.rank > 0;
    const int along = is_gathered ? dim : 0;
    int64_t strides[TUTTI_RANK_MAX];
    if (is_gathered) {
        memcpy(strides, all->strides, sizeof strides);
    } else {
        tt_shape_strides(shape, strides);
        for (int i = 0; i < shape.rank; i++) {
            strides[i] *= all->strides[0];
        }
    }
    const int64_t offset = all->offset + *start * all->strides[along];
    *start += is_gathered ? shape.dims[dim] : tutti_shape_numel(shape);
    return tt_tensor_over(all->storage, all->dtype, shape, strides, offset, out);
}

/* [sum] */
static tutti_shape_t shape_in_row(const tt_replica_run_t *run, int output)
{
    int64_t numel = 0;
    for (int i = 0; i < run->count; i++) {
        numel += tutti_shape_numel(run->parts[i].specs[output].shape);
    }
    return TUTTI_SHAPE(numel);
}

static tutti_status_t shape_gathered(const tutti_op_call_t *call, const tt_replica_run_t *run,
                                     int output, tutti_shape_t *out)
{
    char got[192], want[192];
    *out = run->parts[0].specs[output].shape;
    const int dim = out_dim(run, *out);
    if (dim < 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: output %d has no dimension %d to put together",
                       call->op->name, output, run->out_dim);
    }
    out->dims[dim] = 0;
    for (int i = 0; i < run->count; i++) {
        tutti_shape_t shape = run->parts[i].specs[output].shape;
        const int64_t size = shape.dims[dim];
        shape.dims[dim] = out->dims[dim];
        if (!tutti_shape_equal(shape, *out)) {
            return TT_FAIL(
                TUTTI_ERR_SHAPE,
                "%s: output %d of replica %d is %s, of replica 0 %s: they must have equal sizes "
                "but for dimension %d",
                call->op->name, output, i,
                tutti_tensor_describe(run->parts[i].outputs[output], got, sizeof got),
                tutti_tensor_describe(run->parts[0].outputs[output], want, sizeof want), dim);
        }
        out->dims[dim] += size;
    }
    return TUTTI_OK;
}

static tutti_status_t run_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    const tt_replica_run_t *run = run_of(call->params);
    for (int k = 0; k < call->output_count; k++) {
        outputs[k].dtype = run->parts[0].specs[k].dtype;
        if (run->dim < 0 || run->parts[0].specs[k].shape.rank == 0) {
            outputs[k].shape = shape_in_row(run, k);
        } else {
            TT_TRY(shape_gathered(call, run, k, &outputs[k].shape));
        }
        TT_TRY(tt_shape_check(outputs[k].dtype, outputs[k].shape));
    }
    return TUTTI_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static tutti_status_t fill_output(const tutti_op_call_t *call, int output)
{
    tt_replica_run_t *run = run_of(call->params);
    int64_t start = 0;
    for (int i = 0; i < run->count; i++) {
        tutti_tensor_t *place;
        TT_TRY(view_part(&run->parts[i], output, call->outputs[output], &start, &place));
        tutti_status_t status =
            tt_replica_move(place->storage->device, &run->parts[i].outputs[output]);
        if (status >= 0) {
            status =
                tt_tensor_convert(tt_scope_exec(call->scope), place, run->parts[i].outputs[output]);
        }
        tutti_tensor_release(place);
        TT_TRY(status);
        tutti_tensor_release(run->parts[i].outputs[output]);
        run->parts[i].outputs[output] = NULL;
    }
    return TUTTI_OK;
}

static tutti_status_t run_forward(tutti_op_call_t *call)
{
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(fill_output(call, k));
    }
    return TUTTI_OK;
}

static bool run_is_differentiable(const tutti_op_call_t *call)
{
    const tt_replica_run_t *run = run_of(call->params);
    for (int i = 0; i < run->count; i++) {
        if (run->parts[i].root != NULL) {
            return true;
        }
    }
    return false;
}

/* Where output `output` of a part with a root was: its gradient goes there. */
static tt_device_t *output_place(const tt_replica_part_t *part, int output)
{
    const tt_edge_t edge = tt_autograd_of(part->root)->node->edges[output];
    return edge.node == NULL ? NULL : tt_node_place(edge.node, edge.output);
}

static tutti_status_t set_grad_outputs(tt_replica_run_t *run, int output,
                                       const tutti_tensor_t *grad)
{
    int64_t start = 0;
    for (int i = 0; i < run->count; i++) {
        tutti_tensor_t **own = &run->parts[i].grad_outputs[output];
        tutti_tensor_release(*own); /* of a backward that failed here */
        *own = NULL;
        if (grad != NULL) {
            TT_TRY(view_part(&run->parts[i], output, grad, &start, own));
            TT_TRY(run->parts[i].root == NULL
                       ? TUTTI_OK
                       : tt_replica_move(output_place(&run->parts[i], output), own));
        }
    }
    return TUTTI_OK;
}

/* A replica's gradient of an input, in scope s, where the caller's lie; NULL if there is none. */
static tutti_tensor_t *input_grad(tutti_scope_t *s, const tt_replica_part_t *part, int input)
{
    tutti_tensor_t *grad = tutti_tensor_grad(part->inputs[input]);
    if (grad == NULL) {
        return NULL;
    }
    (void)tutti_tensor_retain(grad);
    const tutti_status_t status = tt_replica_move(s->ctx->place.accelerator, &grad);
    if (status < 0) {
        tutti_tensor_release(grad);
    }
    return tt_scope_adopt(s, status, grad);
}

/* What the replicas' chunks of an input got, put together. */
static tutti_tensor_t *gather_grads(const tutti_op_backward_t *call, int input)
{
    const tt_replica_run_t *run = run_of(call->params);
    tutti_tensor_t *parts[TUTTI_DATA_PARALLEL_MAX];
    bool has_any = false;
    for (int i = 0; i < run->count; i++) {
        const tutti_tensor_t *x = run->parts[i].inputs[input];
        parts[i] = input_grad(call->scope, &run->parts[i], input);
        has_any = has_any || parts[i] != NULL;
        if (parts[i] == NULL) {
            parts[i] = tutti_zeros(call->scope, x->dtype, x->shape);
        }
    }
    return has_any ? tutti_cat(call->scope, parts, run->count, run->dim) : NULL;
}

/* What the replicas' gradients of a parameter add up to, in scope s; NULL if none came. */
static tutti_tensor_t *take_sum(tutti_scope_t *s, const tt_replica_run_t *run, int param)
{
    tutti_tensor_t *sum = run->sums[param];
    run->sums[param] = NULL;
    return sum == NULL ? NULL : tt_scope_adopt(s, TUTTI_OK, sum);
}

static tutti_status_t run_backward(tutti_op_backward_t *call)
{
    tt_replica_run_t *run = run_of(call->params);
    const int inputs = input_count(run);
    TT_TRY(tt_replicas_check_streams(run->team));
    run->retain_graph = call->retain_graph;
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(set_grad_outputs(run, k, call->grad_outputs[k]));
    }
    TT_TRY(tt_replica_run_backward(call->scope, run));
    for (int i = 0; i < call->input_count; i++) {
        if (!call->wanted[i]) {
            continue;
        }
        call->grads[i] = i >= inputs     ? take_sum(call->scope, run, i - inputs)
                         : run->dim >= 0 ? gather_grads(call, i)
                                         : input_grad(call->scope, &run->parts[i], 0);
    }
    return TUTTI_OK;
}

static const tutti_op_t run_op = {
    .name = "data_parallel",
    .output_count = TUTTI_OP_ANY,
    .about = "a module's replicas, at once, on parts of a batch",
    .params_bytes = sizeof(tt_replica_run_t *),
    .retain_params = retain_run,
    .release_params = release_run,
    .infer = run_infer,
    .forward = run_forward,
    .backward = run_backward,
    .is_differentiable = run_is_differentiable,
};

static void fail_outputs(tutti_scope_t *s, tutti_tensor_t **outputs, int count)
{
    for (int i = 0; i < count; i++) {
        outputs[i] = tutti_scope_fail(s, TUTTI_ERR_NOMEM);
    }
}

void tt_replica_run_record(tutti_scope_t *s, tt_replica_run_t *run, tutti_tensor_t *const *inputs,
                           tutti_tensor_t **outputs)
{
    const tt_tensor_list_t *params = &run->team->params;
    const size_t count = (size_t)input_count(run);
    tutti_tensor_t **all = tt_alloc_array(count + params->count, sizeof *all, "operation inputs");
    if (all == NULL) {
        fail_outputs(s, outputs, run->output_count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        all[i] = tutti_tensor_to(s, inputs[i], tt_replica_device(run->team, 0));
    }
    for (size_t i = 0; i < params->count; i++) {
        all[count + i] = tt_listed(params, i);
    }
    tutti_op_run_many(s, &run_op, all, (int)(count + params->count), &run, outputs,
                      run->output_count);
    tt_free(all);
}
