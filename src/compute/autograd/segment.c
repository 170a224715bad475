/* Segments: recording without saved tensors, and filling them in again. See segment.h. */
#include "compute/autograd/segment.h"

#include <stdio.h>
#include <string.h>

#include "compute/autograd/visit.h"
#include "core/base/alloc.h"

/* What a forward is a function of, beside its inputs. */
typedef struct {
    int64_t step, shard;
    uint64_t random_calls;
    bool is_training, is_grad_enabled;
    tutti_dtype_t autocast;
} surroundings_t;

typedef struct {
    const tt_op_ops_t *op;
    tt_node_t *node; /* weak: NULL when it is gone */
} record_t;

struct tt_segment {
    tt_ref_t ref;
    tt_segment_forward_t forward;
    surroundings_t surroundings;
    uint64_t stamp;
    tt_saved_t *inputs;         /* [input_count], without history; NULL tensors stay NULL */
    tutti_tensor_t **arguments; /* [input_count], the same tensors */
    tutti_tensor_t **results;   /* [output_count], of a computation under way */
    int input_count, output_count;
    record_t *records; /* of the nodes, in the order of their making */
    size_t record_count, record_capacity;
    bool is_filling;        /* it is computed again, by this thread's context */
    size_t next;            /* while computed again: the record whose turn it is */
    const tt_run_t *filled; /* the backward that it is computed again for */
};

/* ---- life ------------------------------------------------------------------------------------ */

static void release_segment(tt_segment_t *segment)
{
    if (segment == NULL || !tt_ref_release(&segment->ref)) {
        return;
    }
    for (int i = 0; i < segment->input_count; i++) {
        tutti_tensor_release(segment->inputs[i].tensor);
    }
    segment->forward.release(segment->forward.user);
    tt_free(segment->inputs);
    tt_free(segment->arguments);
    tt_free(segment->results);
    tt_free(segment->records);
    tt_free(segment);
}

/* x without its history, but wanting a gradient where x does: so that the same operations save. */
static tutti_status_t hold_input(tt_segment_t *segment, int index, tutti_tensor_t *x)
{
    tutti_tensor_t *alias;
    tt_autograd_t *a;
    if (x == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_tensor_alias(x, &alias));
    segment->inputs[index] = (tt_saved_t){alias, x->storage->version};
    segment->arguments[index] = alias;
    if (tutti_tensor_requires_grad(x)) {
        TT_TRY(tt_autograd_ensure(alias, &a));
        a->requires_grad = true;
    }
    return TUTTI_OK;
}

static tutti_status_t hold_call(tt_segment_t *segment, const tt_segment_call_t *call)
{
    const size_t inputs = (size_t)call->input_count, outputs = (size_t)call->output_count;
    segment->inputs = tt_alloc_array(inputs, sizeof *segment->inputs, "graph segment");
    TT_TRY_ALLOC(segment->inputs);
    segment->input_count = call->input_count;
    segment->arguments = tt_alloc_array(inputs, sizeof(tutti_tensor_t *), "graph segment");
    TT_TRY_ALLOC(segment->arguments);
    segment->results = tt_alloc_array(outputs, sizeof(tutti_tensor_t *), "graph segment");
    TT_TRY_ALLOC(segment->results);
    segment->output_count = call->output_count;
    for (int i = 0; i < call->input_count; i++) {
        TT_TRY(hold_input(segment, i, call->inputs[i]));
    }
    return TUTTI_OK;
}

static surroundings_t surroundings_of(const tutti_context_t *ctx)
{
    return (surroundings_t){.step = ctx->step,
                            .shard = ctx->shard,
                            .random_calls = ctx->random_calls,
                            .is_training = ctx->is_training,
                            .is_grad_enabled = ctx->is_grad_enabled,
                            .autocast = ctx->autocast};
}

static void set_surroundings(tutti_context_t *ctx, const surroundings_t *to)
{
    ctx->step = to->step;
    ctx->shard = to->shard;
    ctx->random_calls = to->random_calls;
    ctx->is_training = to->is_training;
    ctx->is_grad_enabled = to->is_grad_enabled;
    ctx->autocast = to->autocast;
}

static tutti_status_t create_segment(tutti_context_t *ctx, const tt_segment_forward_t *forward,
                                     const tt_segment_call_t *call, tt_segment_t **out)
{
    tt_segment_t *segment = tt_alloc(sizeof *segment, "graph segment");
    if (segment == NULL) {
        forward->release(forward->user);
        return TUTTI_ERR_NOMEM;
    }
    tt_ref_init(&segment->ref);
    segment->forward = *forward;
    segment->surroundings = surroundings_of(ctx);
    segment->stamp = forward->stamp(forward->user, ctx->is_training);
    const tutti_status_t status = hold_call(segment, call);
    if (status < 0) {
        release_segment(segment);
        return status;
    }
    *out = segment;
    return TUTTI_OK;
}

/* ---- recording ------------------------------------------------------------------------------- */

tutti_status_t tt_segment_join(tt_segment_t *segment, tt_node_t *node)
{
    if (segment->record_count == segment->record_capacity) {
        const size_t capacity = segment->record_capacity == 0 ? 32 : 2 * segment->record_capacity;
        record_t *grown = tt_realloc(segment->records, capacity * sizeof *grown, "graph segment");
        TT_TRY_ALLOC(grown);
        segment->records = grown;
        segment->record_capacity = capacity;
    }
    tt_ref_retain(&segment->ref);
    node->segment = segment;
    node->record = segment->record_count;
    segment->records[segment->record_count++] = (record_t){node->op, node};
    return TUTTI_OK;
}

void tt_segment_leave(tt_node_t *node)
{
    if (node->segment != NULL) {
        node->segment->records[node->record].node = NULL;
        release_segment(node->segment);
        node->segment = NULL;
    }
}

/* Whether there is nothing to hold: failures are forward's to tell. */
static bool is_plain(const tutti_scope_t *s, const tt_segment_call_t *call)
{
    bool is_failed = s->null.status < 0;
    for (int i = 0; i < call->input_count; i++) {
        is_failed = is_failed || (call->inputs[i] != NULL && call->inputs[i]->status < 0);
    }
    return is_failed || !s->ctx->is_grad_enabled || s->ctx->segment != NULL;
}

static void run_forward(tutti_scope_t *s, const tt_segment_forward_t *forward,
                        const tt_segment_call_t *call)
{
    forward->forward(s, forward->user, call->inputs, call->input_count, call->outputs,
                     call->output_count);
}

void tt_segment_run(tutti_scope_t *s, const tt_segment_forward_t *forward,
                    const tt_segment_call_t *call)
{
    if (is_plain(s, call)) {
        run_forward(s, forward, call);
        forward->release(forward->user);
        return;
    }
    tt_segment_t *segment;
    const tutti_status_t status = create_segment(s->ctx, forward, call, &segment);
    if (status < 0) {
        for (int i = 0; i < call->output_count; i++) {
            call->outputs[i] = tutti_scope_fail(s, status);
        }
        return;
    }
    s->ctx->segment = segment;
    run_forward(s, forward, call);
    s->ctx->segment = NULL;
    release_segment(segment); /* its nodes hold it */
}

/* ---- computing again ------------------------------------------------------------------------- */

static tutti_status_t check_record(const tt_segment_t *segment, const tt_op_call_t *call)
{
    const bool is_more = segment->next >= segment->record_count;
    const record_t *record = is_more ? NULL : &segment->records[segment->next];
    if (record != NULL && record->op == call->op &&
        (record->node == NULL || record->node->saved_count == call->saved_count)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "operation %zu is %s, and was %s the first time: forward must do the same each "
                   "time that it is called with the same input",
                   segment->next, call->op->name, is_more ? "not there" : record->op->name);
}

/* Whether the backward under way will come to it. */
static bool is_to_be_filled(const tt_segment_t *segment, const tt_node_t *node)
{
    const tt_visit_t *visit = node == NULL ? NULL : tt_visit_of(node, segment->filled);
    return visit != NULL && visit->is_to_run && !node->is_consumed && !node->is_filled;
}

/* As recorded ones, but without a node. */
static tutti_status_t mark_outputs(const tt_op_call_t *call)
{
    for (int i = 0; i < call->output_count; i++) {
        tt_autograd_t *a;
        TT_TRY(tt_autograd_ensure(call->outputs[i], &a));
        a->requires_grad = tutti_dtype_is_float(call->outputs[i]->dtype);
    }
    return TUTTI_OK;
}

bool tt_segment_is_filling(const tt_segment_t *segment)
{
    return segment != NULL && segment->is_filling;
}

tutti_status_t tt_segment_refill(tt_segment_t *segment, tt_op_call_t *call)
{
    TT_TRY(check_record(segment, call));
    tt_node_t *node = segment->records[segment->next++].node;
    TT_TRY(mark_outputs(call));
    if (is_to_be_filled(segment, node)) {
        tt_node_move_saved(node, call);
        tt_node_take_params(node, call);
        node->is_filled = true;
    }
    tt_context_idle(call->scope->ctx); /* communication goes on meanwhile */
    return TUTTI_OK;
}

static tutti_status_t check_unchanged(const tt_segment_t *segment)
{
    char text[192];
    for (int i = 0; i < segment->input_count; i++) {
        const tt_saved_t input = segment->inputs[i];
        if (input.tensor != NULL && input.tensor->storage->version != input.version) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "its input %s was written since: write after backward, or clone it",
                           tutti_tensor_describe(input.tensor, text, sizeof text));
        }
    }
    const surroundings_t *then = &segment->surroundings;
    if (segment->forward.stamp(segment->forward.user, then->is_training) != segment->stamp) {
        return TT_FAIL(TUTTI_ERR_STATE, "a parameter%s was written since: step after backward",
                       then->is_training ? "" : " or buffer");
    }
    return TUTTI_OK;
}

static tutti_status_t check_count(const tt_segment_t *segment)
{
    if (segment->next == segment->record_count) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "%zu operations were recorded, and %zu the first time: forward must do the same "
                   "each time that it is called with the same input",
                   segment->next, segment->record_count);
}

static tutti_status_t run_again(tutti_scope_t *s, tt_segment_t *segment)
{
    TT_TRY(check_unchanged(segment));
    run_forward(s, &segment->forward,
                &(tt_segment_call_t){segment->arguments, segment->input_count, segment->results,
                                     segment->output_count});
    TT_TRY(tutti_scope_status(s));
    return check_count(segment);
}

/* So that a failure says where it was. */
static void name_failure(tutti_scope_t *s, const tt_segment_t *segment, tutti_status_t status)
{
    char error[TT_ERROR_TEXT_BYTES];
    (void)tutti_scope_fail(s, status);
    snprintf(error, sizeof error, "%s", s->error);
    snprintf(s->error, sizeof s->error, "recomputing %s for its backward: ", segment->forward.name);
    const size_t used = strlen(s->error);
    snprintf(s->error + used, sizeof s->error - used, "%s", error);
}

/* Fills all nodes that the backward under way will come to. */
static tutti_status_t compute_again(tutti_scope_t *outer, tt_segment_t *segment)
{
    tutti_context_t *ctx = outer->ctx;
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open_inside(outer, &s));
    const surroundings_t now = surroundings_of(ctx);
    const bool was_recomputing = ctx->is_recomputing; /* as part of another graph's forward */
    set_surroundings(ctx, &segment->surroundings);
    ctx->segment = segment;
    ctx->is_recomputing = true;
    segment->is_filling = true;
    segment->next = 0;
    segment->filled = ctx->backward;
    const tutti_status_t status = run_again(s, segment);
    segment->filled = NULL;
    segment->is_filling = false;
    ctx->is_recomputing = was_recomputing;
    ctx->segment = NULL;
    set_surroundings(ctx, &now);
    if (status < 0) {
        name_failure(s, segment, status);
    }
    return tutti_scope_close(s);
}

/* Whether its backward needs more than the node keeps in a segment. */
static bool is_filled_to_run(const tt_node_t *node)
{
    return node->saved_count > 0 || node->op->retain_params != NULL;
}

tutti_status_t tt_segment_restore(tutti_scope_t *s, tt_node_t *node)
{
    if (node->segment == NULL || node->is_filled || !is_filled_to_run(node)) {
        return TUTTI_OK;
    }
    TT_TRY(compute_again(s, node->segment));
    TT_ASSERT(node->is_filled);
    return TUTTI_OK;
}

void tt_segment_forget(tt_node_t *node)
{
    if (node->is_filled) {
        tt_node_drop_saved(node);
        node->is_filled = false;
    }
}

bool tt_segment_reads(const tt_node_t *node, tt_storage_t *const *storages, size_t count)
{
    const tt_segment_t *segment = node->segment;
    if (segment == NULL || node->is_consumed || node->is_filled || !is_filled_to_run(node)) {
        return false;
    }
    for (int i = 0; i < segment->input_count; i++) {
        if (tt_is_over_any(segment->inputs[i].tensor, storages, count)) {
            return true;
        }
    }
    const tt_segment_forward_t *forward = &segment->forward;
    return forward->reads != NULL && forward->reads(forward->user, storages, count);
}
