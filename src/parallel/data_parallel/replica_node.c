/* A run of the team as nodes of the caller's graph.
 *
 *     parameters 0…62 ──────────── gate ─┐
 *     parameters 63…125 ── gate ── gate  ├─ run ── outputs
 *     inputs ────────────────────────────┘
 *
 * Backward of `run` is that of all replicas; the gradients of inputs are its own, those of
 * parameters it leaves in the run, and gates hand them on: an operation takes 64 inputs, but a
 * module may have any number of parameters. A gate's value means nothing.
 *
 * Nodes hold the run by a ticket, a saved tensor whose memory is the run: it goes when they go.
 *
 * Outputs: either put together along a dimension (scalars as a vector), or, as those of apply may
 * have unlike shapes, one behind the other in a vector.
 */
#include <string.h>

#include <tutti/op_shape.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"
#include "core/kernel/map.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

enum { GATE_PARAMS = TT_OP_INPUTS_MAX - 1 };

typedef struct {
    tt_replica_run_t *run;
    tutti_tensor_t *ticket; /* in forward only */
    size_t first;           /* of a gate: its first parameter */
} node_params_t;

static tt_replica_run_t *run_of(const void *params)
{
    return ((const node_params_t *)params)->run;
}

/* ---- tickets ----------------------------------------------------------------------------------
 */

static void release_ticket(tt_storage_t *storage)
{
    tt_replica_run_release(storage->owner);
}

/* In scope s; retains the run. */
static tutti_tensor_t *make_ticket(tutti_scope_t *s, tt_replica_run_t *run)
{
    tt_storage_t *storage;
    tutti_tensor_t *ticket = NULL;
    tutti_status_t status = tt_storage_borrow(run, sizeof *run, release_ticket, run, &storage);
    if (status >= 0) {
        tt_ref_retain(&run->ref);
        status = tt_tensor_over(storage, TUTTI_U8, TUTTI_SCALAR, NULL, 0, &ticket);
        tt_storage_release(storage);
    }
    return tt_scope_adopt(s, status, ticket);
}

static tutti_status_t save_ticket(tt_op_call_t *call)
{
    return tt_op_save(call, ((const node_params_t *)call->params)->ticket);
}

/* ---- where an output lies ---------------------------------------------------------------------
 */

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

static tutti_status_t shape_gathered(const tt_op_call_t *call, const tt_replica_run_t *run,
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

static tutti_status_t run_infer(const tt_op_call_t *call, tt_spec_t *outputs)
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

/* ---- the run ----------------------------------------------------------------------------------
 */

static tutti_status_t fill_output(const tt_op_call_t *call, int output)
{
    tt_replica_run_t *run = run_of(call->params);
    int64_t start = 0;
    for (int i = 0; i < run->count; i++) {
        tutti_tensor_t *place;
        TT_TRY(view_part(&run->parts[i], output, call->outputs[output], &start, &place));
        const tt_strided_t to = tt_tensor_strided(place),
                           from = tt_tensor_strided(run->parts[i].outputs[output]);
        tt_map_unary(tt_scope_pool(call->scope), TT_UNARY_COPY, (tt_map_params_t){0}, &to, &from);
        tutti_tensor_release(place);
        tutti_tensor_release(run->parts[i].outputs[output]);
        run->parts[i].outputs[output] = NULL;
    }
    return TUTTI_OK;
}

static tutti_status_t run_forward(tt_op_call_t *call)
{
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(fill_output(call, k));
    }
    return save_ticket(call);
}

static bool run_is_differentiable(const tt_op_call_t *call)
{
    const tt_replica_run_t *run = run_of(call->params);
    for (int i = 0; i < run->count; i++) {
        if (run->parts[i].root != NULL) {
            return true;
        }
    }
    return false;
}

static tutti_status_t set_seeds(tt_replica_run_t *run, int output, const tutti_tensor_t *grad)
{
    int64_t start = 0;
    for (int i = 0; i < run->count && grad != NULL; i++) {
        tutti_tensor_release(run->parts[i].seeds[output]); /* of a backward that failed here */
        run->parts[i].seeds[output] = NULL;
        TT_TRY(view_part(&run->parts[i], output, grad, &start, &run->parts[i].seeds[output]));
    }
    return TUTTI_OK;
}

/* A replica's gradient of an input, in scope s; NULL if there is none. */
static tutti_tensor_t *input_grad(tutti_scope_t *s, const tt_replica_part_t *part, int input)
{
    tutti_tensor_t *grad = tutti_tensor_grad(part->inputs[input]);
    return grad == NULL ? NULL : tt_scope_adopt(s, TUTTI_OK, tutti_tensor_retain(grad));
}

/* What the replicas' chunks of an input got, put together. */
static tutti_tensor_t *gather_grads(const tt_backward_call_t *call, int input)
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

static tutti_status_t run_backward(tt_backward_call_t *call)
{
    tt_replica_run_t *run = run_of(call->params);
    const int gate = call->input_count - 1;
    run->retain_graph = call->retain_graph;
    for (int k = 0; k < call->output_count; k++) {
        TT_TRY(set_seeds(run, k, call->grad_outputs[k]));
    }
    TT_TRY(tt_replica_run_backward(call->scope, run));
    for (int i = 0; i < gate; i++) {
        if (call->wanted[i]) {
            call->grads[i] =
                run->dim >= 0 ? gather_grads(call, i) : input_grad(call->scope, &run->parts[i], 0);
        }
    }
    if (call->wanted[gate]) {
        call->grads[gate] = tutti_zeros(call->scope, TUTTI_F32, TUTTI_SCALAR);
    }
    return TUTTI_OK;
}

static const tt_op_ops_t run_op = {
    .name = "data_parallel",
    .about = "a module's replicas, at once, on parts of a batch",
    .params_bytes = sizeof(node_params_t),
    .infer = run_infer,
    .forward = run_forward,
    .backward = run_backward,
    .is_differentiable = run_is_differentiable,
};

/* ---- gates ------------------------------------------------------------------------------------
 */

static tutti_status_t gate_infer(const tt_op_call_t *call, tt_spec_t *outputs)
{
    (void)call;
    outputs[0] = (tt_spec_t){TUTTI_F32, TUTTI_SCALAR};
    return TUTTI_OK;
}

static tutti_status_t gate_forward(tt_op_call_t *call)
{
    *(float *)tutti_tensor_data(call->outputs[0]) = 0;
    return save_ticket(call);
}

static tutti_status_t gate_backward(tt_backward_call_t *call)
{
    tt_replica_run_t *run = run_of(call->params);
    const size_t first = ((const node_params_t *)call->params)->first;
    for (int i = 1; i < call->input_count; i++) {
        tutti_tensor_t **sum = &run->sums[first + (size_t)i - 1];
        if (call->wanted[i] && *sum != NULL) {
            call->grads[i] = tt_scope_adopt(call->scope, TUTTI_OK, *sum);
            *sum = NULL;
        }
    }
    if (call->wanted[0]) {
        call->grads[0] = tutti_zeros(call->scope, TUTTI_F32, TUTTI_SCALAR);
    }
    return TUTTI_OK;
}

static const tt_op_ops_t gate_op = {
    .name = "data_parallel_gate",
    .about = "hands the summed gradients of the replicas on to the parameters",
    .params_bytes = sizeof(node_params_t),
    .infer = gate_infer,
    .forward = gate_forward,
    .backward = gate_backward,
};

/* The first gate of the chain, which is made from its end; NULL without parameters. */
static tutti_tensor_t *make_gates(tutti_scope_t *s, tt_replica_run_t *run, tutti_tensor_t *ticket)
{
    const tt_tensor_list_t *params = &run->team->params;
    const size_t gates = (params->count + GATE_PARAMS - 1) / GATE_PARAMS;
    tutti_tensor_t *inputs[TT_OP_INPUTS_MAX], *gate = NULL;
    for (size_t k = gates; k-- > 0;) {
        const node_params_t own = {.run = run, .ticket = ticket, .first = k * GATE_PARAMS};
        const size_t left = params->count - own.first;
        const size_t count = left < GATE_PARAMS ? left : GATE_PARAMS;
        inputs[0] = gate;
        for (size_t i = 0; i < count; i++) {
            inputs[1 + i] = tt_listed(params, own.first + i);
        }
        gate = tt_op_run(s, &gate_op, inputs, (int)count + 1, &own);
    }
    return gate;
}

void tt_replica_run_record(tutti_scope_t *s, tt_replica_run_t *run, tutti_tensor_t *const *inputs,
                           tutti_tensor_t **outputs)
{
    tutti_tensor_t *all[TT_OP_INPUTS_MAX];
    const int count = run->dim >= 0 ? run->input_count : run->count;
    const node_params_t params = {.run = run, .ticket = make_ticket(s, run)};
    memcpy(all, inputs, (size_t)count * sizeof(tutti_tensor_t *));
    all[count] = s->ctx->is_grad_enabled ? make_gates(s, run, params.ticket) : NULL;
    tt_op_run_many(s, &run_op, all, count + 1, &params, outputs, run->output_count);
}

/* ---- the root of a replica's graph ------------------------------------------------------------
 */

static tutti_status_t join_forward(tt_op_call_t *call)
{
    *(float *)tutti_tensor_data(call->outputs[0]) = 0;
    return TUTTI_OK;
}

static tutti_status_t join_backward(tt_backward_call_t *call)
{
    const tt_replica_part_t *part = *(tt_replica_part_t *const *)call->params;
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i] && part->seeds[i] != NULL) {
            call->grads[i] =
                tt_scope_adopt(call->scope, TUTTI_OK, tutti_tensor_retain(part->seeds[i]));
        }
    }
    return TUTTI_OK;
}

static const tt_op_ops_t join_op = {
    .name = "data_parallel_join",
    .about = "where a replica's backward begins",
    .params_bytes = sizeof(tt_replica_part_t *),
    .infer = gate_infer,
    .forward = join_forward,
    .backward = join_backward,
};

tutti_tensor_t *tt_replica_join(tutti_scope_t *s, tt_replica_part_t *part)
{
    return tt_op_run(s, &join_op, part->outputs, part->run->output_count, &part);
}
