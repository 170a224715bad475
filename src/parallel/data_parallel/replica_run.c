/* One forward of the team, and its backward.
 *
 *     inputs[0] ─ replica 0 ─ outputs[0] ─ root 0        a graph for each replica,
 *     inputs[1] ─ replica 1 ─ outputs[1] ─ root 1        in its context
 *
 * A root depends on all outputs of its replica, so that one backward from it runs the graph once,
 * however many outputs there are; `grad_outputs` are what it hands down.
 *
 * What failed is reported when all have ended, by the first replica that failed.
 */
#include <stdio.h>

#include "core/base/alloc.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"

/* ---- a run ----------------------------------------------------------------------------------- */

void tt_replica_run_release(tt_replica_run_t *run)
{
    if (run == NULL || !tt_ref_release(&run->ref)) {
        return;
    }
    for (int i = 0; i < run->count; i++) {
        tt_replica_part_t *part = &run->parts[i];
        tutti_tensor_release(part->root);
        tt_tensors_release(part->outputs, (size_t)run->output_count);
        tt_tensors_release(part->grad_outputs, (size_t)run->output_count);
        tt_tensors_release(part->inputs, (size_t)run->input_count);
        tt_free(part->inputs);
        tt_free(part->outputs);
        tt_free(part->grad_outputs);
        tt_free(part->specs);
    }
    tt_tensors_release(run->sums, run->team->params.count);
    tt_free(run->sums);
    tt_replicas_release(run->team);
    tt_free(run);
}

static bool make_part(tt_replica_run_t *run, tt_replica_part_t *part)
{
    const size_t inputs = (size_t)run->input_count, outputs = (size_t)run->output_count;
    part->run = run;
    part->inputs = tt_alloc_array(inputs, sizeof *part->inputs, "replicas' run");
    part->outputs = tt_alloc_array(outputs, sizeof *part->outputs, "replicas' run");
    part->grad_outputs = tt_alloc_array(outputs, sizeof *part->grad_outputs, "replicas' run");
    part->specs = tt_alloc_array(outputs, sizeof *part->specs, "replicas' run");
    return part->inputs != NULL && part->outputs != NULL && part->grad_outputs != NULL &&
           part->specs != NULL;
}

tutti_status_t tt_replica_run_new(tt_replicas_t *team, int count, int input_count, int output_count,
                                  tt_replica_run_t **out)
{
    tt_replica_run_t *run = tt_alloc(sizeof *run, "replicas' run");
    TT_TRY_ALLOC(run);
    tt_ref_init(&run->ref);
    tt_ref_retain(&team->ref);
    run->team = team;
    run->count = count;
    run->input_count = input_count;
    run->output_count = output_count;
    run->sums = tt_alloc_array(team->params.count, sizeof *run->sums, "replicas' run");
    bool has_all = run->sums != NULL;
    for (int i = 0; i < count; i++) {
        has_all = make_part(run, &run->parts[i]) && has_all;
    }
    if (!has_all) {
        tt_replica_run_release(run);
        return TUTTI_ERR_NOMEM;
    }
    *out = run;
    return TUTTI_OK;
}

/* ---- the work of all ------------------------------------------------------------------------- */

static void make_progress(void *user)
{
    const tt_replica_run_t *run = user;
    tt_context_idle(run->ctx);
}

static tutti_status_t work(tutti_scope_t *s, tt_replica_run_t *run, void (*fn)(void *, int))
{
    run->ctx = s->ctx;
    tt_thread_team_run(
        run->team->team, run->count,
        &(tt_thread_team_job_t){
            .run = fn, .meanwhile = s->ctx->idle == NULL ? NULL : make_progress, .user = run});
    run->ctx = NULL;
    for (int i = 0; i < run->count; i++) {
        const tt_replica_part_t *part = &run->parts[i];
        if (part->status < 0) {
            return TT_FAIL(part->status, "replica %d: %s", i, part->error);
        }
    }
    return TUTTI_OK;
}

/* Ends what a replica does in a scope, with its text if it failed. */
static void end_part(tt_replica_part_t *part, tutti_scope_t *s, tutti_status_t status)
{
    if (status >= 0) {
        status = tutti_scope_status(s);
    } else if (s != NULL) {
        (void)tutti_scope_fail(s, status);
    }
    part->status = status;
    if (status < 0) {
        snprintf(part->error, sizeof part->error, "%s",
                 s == NULL ? tutti_last_error() : tutti_scope_error(s));
    }
    (void)tutti_scope_close(s);
}

/* ---- the root of a replica's graph ----------------------------------------------------------- */

static tutti_status_t join_infer(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    (void)call;
    outputs[0] = (tutti_spec_t){TUTTI_F32, TUTTI_SCALAR};
    return TUTTI_OK;
}

static tutti_status_t join_forward(tutti_op_call_t *call)
{
    const tt_strided_t out = tt_tensor_strided(call->outputs[0]);
    return tt_fill(tt_scope_exec(call->scope), &out, 0);
}

static tutti_status_t join_backward(tutti_op_backward_t *call)
{
    const tt_replica_part_t *part = *(tt_replica_part_t *const *)call->params;
    for (int i = 0; i < call->input_count; i++) {
        if (call->wanted[i] && part->grad_outputs[i] != NULL) {
            call->grads[i] =
                tt_scope_adopt(call->scope, TUTTI_OK, tutti_tensor_retain(part->grad_outputs[i]));
        }
    }
    return TUTTI_OK;
}

static const tutti_op_t join_op = {
    .name = "data_parallel_join",
    .about = "where a replica's backward begins",
    .params_bytes = sizeof(tt_replica_part_t *),
    .infer = join_infer,
    .forward = join_forward,
    .backward = join_backward,
};

/* The node from which its backward begins. */
static tutti_tensor_t *join(tutti_scope_t *s, tt_replica_part_t *part)
{
    return tutti_op_run(s, &join_op, part->outputs, part->run->output_count, &part);
}

/* ---- forward --------------------------------------------------------------------------------- */

static tutti_status_t keep_output(tt_replica_part_t *part, int i, tutti_tensor_t *y)
{
    if (y == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "the module gave no output %d", i);
    }
    TT_TRY(tutti_tensor_status(y));
    part->outputs[i] = tutti_tensor_retain(y);
    part->specs[i] = (tutti_spec_t){y->dtype, y->shape};
    return TUTTI_OK;
}

/* The module's outputs are its scope's so far. */
static tutti_status_t keep_outputs(tutti_scope_t *s, tt_replica_part_t *part)
{
    bool is_learning = false;
    tutti_status_t status = tutti_scope_status(s);
    for (int i = 0; i < part->run->output_count; i++) {
        tutti_tensor_t *y = part->outputs[i];
        part->outputs[i] = NULL;
        status = status < 0 ? status : keep_output(part, i, y);
        is_learning = is_learning || (status >= 0 && tutti_tensor_requires_grad(y));
    }
    TT_TRY(status);
    if (is_learning && s->ctx->is_grad_enabled) {
        tutti_tensor_t *root = join(s, part);
        TT_TRY(tutti_tensor_status(root));
        part->root = tutti_tensor_retain(root);
    }
    return TUTTI_OK;
}

static void forward_part(void *user, int index)
{
    const tt_replica_run_t *run = user;
    const tt_replica_t *replica = &run->team->replicas[index];
    tt_replica_part_t *part = &((tt_replica_run_t *)user)->parts[index];
    tutti_scope_t *s = NULL;
    tutti_status_t status = tutti_scope_open(replica->ctx, &s);
    if (status >= 0) {
        tutti_forward_many(s, replica->module, part->inputs, run->input_count, part->outputs,
                           run->output_count);
        status = keep_outputs(s, part);
    }
    end_part(part, s, status);
}

/* A replica's modes are the caller's, but for the shard. Random calls go on where the
 * caller's are, so that no stream is drawn twice in a step. */
static void set_modes(const tt_replica_run_t *run, const tutti_context_t *ctx)
{
    for (int i = 0; i < run->count; i++) {
        tutti_context_t *own = run->team->replicas[i].ctx;
        own->seed = ctx->seed;
        own->step = ctx->step;
        own->shard = ctx->shard * run->team->count + i;
        own->random_calls = ctx->random_calls;
        own->is_training = ctx->is_training;
        own->is_recomputing = ctx->is_recomputing;
        own->is_grad_enabled = ctx->is_grad_enabled;
        own->autocast = ctx->autocast;
    }
}

static tutti_status_t compare_outputs(const tt_replica_run_t *run)
{
    char got[192], want[192];
    for (int i = 1; i < run->count; i++) {
        for (int k = 0; k < run->output_count; k++) {
            const tutti_tensor_t *x = run->parts[i].outputs[k], *first = run->parts[0].outputs[k];
            if (x->dtype != first->dtype || x->shape.rank != first->shape.rank) {
                return TT_FAIL(TUTTI_ERR_SHAPE,
                               "output %d of replica %d is %s, but that of replica 0 %s", k, i,
                               tutti_tensor_describe(x, got, sizeof got),
                               tutti_tensor_describe(first, want, sizeof want));
            }
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_replica_run_forward(tutti_scope_t *s, tt_replica_run_t *run)
{
    set_modes(run, s->ctx);
    TT_TRY(work(s, run, forward_part));
    for (int i = 0; i < run->count; i++) {
        const uint64_t calls = run->team->replicas[i].ctx->random_calls;
        s->ctx->random_calls = calls > s->ctx->random_calls ? calls : s->ctx->random_calls;
    }
    return compare_outputs(run);
}

/* ---- backward -------------------------------------------------------------------------------- */

static void backward_part(void *user, int index)
{
    const tt_replica_run_t *run = user;
    tt_replica_part_t *part = &((tt_replica_run_t *)user)->parts[index];
    const tutti_backward_options_t options = {.retain_graph = run->retain_graph};
    if (part->root == NULL) {
        part->status = TUTTI_OK;
        return;
    }
    tutti_scope_t *s = NULL;
    tutti_status_t status = tutti_scope_open(run->team->replicas[index].ctx, &s);
    if (status >= 0) {
        status = tutti_backward_with(s, part->root, &options);
    }
    end_part(part, s, status);
}

static tutti_status_t drop_gradients(tt_replica_run_t *run)
{
    for (int i = 0; i < run->count; i++) {
        for (int k = 0; k < run->input_count; k++) {
            TT_TRY(tutti_tensor_set_grad(run->parts[i].inputs[k], NULL));
        }
        const tt_replica_t *replica = &run->team->replicas[i];
        for (size_t k = 0; k < replica->params.count; k++) {
            TT_TRY(tutti_tensor_set_grad(tt_listed(&replica->params, k), NULL));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_replica_run_backward(tutti_scope_t *s, tt_replica_run_t *run)
{
    TT_TRY(drop_gradients(run));
    const tutti_status_t status = work(s, run, backward_part);
    for (int i = 0; i < run->count; i++) {
        tt_tensors_release(run->parts[i].grad_outputs, (size_t)run->output_count);
    }
    TT_TRY(status);
    return tt_replica_sum(s, run);
}
