/* Regions: recording without saved tensors, and filling them in again. See region.h. */
#include "compute/autograd/region.h"

#include <stddef.h>
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
} mode_t;

typedef struct {
    const void *kind;
    const char *name;
    tt_saved_set_t *set; /* weak: NULL when it is gone */
} record_t;

struct tt_region {
    tt_keeper_t keeper;
    tt_region_forward_t forward;
    mode_t mode;
    uint64_t stamp;
    tt_saved_set_t inputs;      /* without history; NULL tensors stay NULL */
    bool *wanted;               /* [inputs.count] whose gradients are */
    tutti_tensor_t **arguments; /* [inputs.count] of a computation under way */
    tutti_tensor_t **results;   /* [output_count], the same */
    int output_count;
    record_t *records; /* of the sets, in the order of their making */
    size_t record_count, record_capacity;
    size_t next;            /* while computed again: the record whose turn it is */
    const tt_run_t *filled; /* the backward that it is computed again for */
};

/* ---- life ------------------------------------------------------------------------------------ */

static tt_region_t *region_of(tt_keeper_t *keeper)
{
    return (tt_region_t *)keeper;
}

static void destroy(tt_keeper_t *keeper)
{
    tt_region_t *region = region_of(keeper);
    tt_saved_drop(&region->inputs);
    region->forward.release(region->forward.user);
    tt_free(region->inputs.items);
    tt_free(region->wanted);
    tt_free(region->arguments);
    tt_free(region->results);
    tt_free(region->records);
    tt_free(region);
}

/* The inputs without their histories. */
static tutti_status_t hold_inputs(tt_saved_set_t *set, tutti_tensor_t *const *inputs)
{
    for (int i = 0; i < set->count; i++) {
        tutti_tensor_t *alias = NULL;
        if (inputs[i] != NULL) {
            TT_TRY(tt_tensor_alias(inputs[i], &alias));
            set->items[i] = (tt_saved_t){alias, alias->storage->version, tt_is_leaf(inputs[i]), 0};
        }
    }
    return TUTTI_OK;
}

static tutti_status_t hold_call(tt_region_t *region, const tt_region_call_t *call)
{
    const size_t inputs = (size_t)call->input_count, outputs = (size_t)call->output_count;
    region->inputs.items = tt_alloc_array(inputs, sizeof *region->inputs.items, "graph region");
    TT_TRY_ALLOC(region->inputs.items);
    region->inputs.count = call->input_count;
    region->wanted = tt_alloc_array(inputs, sizeof *region->wanted, "graph region");
    TT_TRY_ALLOC(region->wanted);
    region->arguments = tt_alloc_array(inputs, sizeof(tutti_tensor_t *), "graph region");
    TT_TRY_ALLOC(region->arguments);
    region->results = tt_alloc_array(outputs, sizeof(tutti_tensor_t *), "graph region");
    TT_TRY_ALLOC(region->results);
    region->output_count = call->output_count;
    for (int i = 0; i < call->input_count; i++) {
        const tt_autograd_t *a = call->inputs[i] == NULL ? NULL : tt_autograd_of(call->inputs[i]);
        region->wanted[i] = a != NULL && a->requires_grad;
    }
    return hold_inputs(&region->inputs, call->inputs);
}

static mode_t mode_of(const tutti_context_t *ctx)
{
    return (mode_t){.step = ctx->step,
                    .shard = ctx->shard,
                    .random_calls = ctx->random_calls,
                    .is_training = ctx->is_training,
                    .is_grad_enabled = ctx->is_grad_enabled,
                    .autocast = ctx->autocast};
}

static void set_mode(tutti_context_t *ctx, const mode_t *to)
{
    ctx->step = to->step;
    ctx->shard = to->shard;
    ctx->random_calls = to->random_calls;
    ctx->is_training = to->is_training;
    ctx->is_grad_enabled = to->is_grad_enabled;
    ctx->autocast = to->autocast;
}

/* ---- recording: the region as a keeper ------------------------------------------------------- */

/* What parameters point to comes and goes with what was saved. */
static void let_go(tt_saved_set_t *set)
{
    tt_saved_release(set);
    if (set->node != NULL) {
        tt_node_release_params(set->node);
    }
}

/* The inputs, too: a region around this one may have given them back for nothing, where a backward
 * ended before it came here. */
static void forget(tt_saved_set_t *set, const tt_run_t *run)
{
    if (set->run == run) {
        let_go(set);
    }
    tt_saved_forget(&region_of(set->keeper)->inputs, run);
}

static tutti_status_t keep(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set)
{
    (void)s;
    tt_region_t *region = region_of(keeper);
    if (region->record_count == region->record_capacity) {
        const size_t capacity = region->record_capacity == 0 ? 32 : 2 * region->record_capacity;
        record_t *grown = tt_realloc(region->records, capacity * sizeof *grown, "graph region");
        TT_TRY_ALLOC(grown);
        region->records = grown;
        region->record_capacity = capacity;
    }
    let_go(set);
    set->at.number = region->record_count;
    region->records[region->record_count++] = (record_t){set->kind, set->name, set};
    return TUTTI_OK;
}

static void leave(tt_keeper_t *keeper, tt_saved_set_t *set)
{
    region_of(keeper)->records[set->at.number].set = NULL;
}

static bool reads(const tt_saved_set_t *set, tt_storage_t *const *storages, size_t count)
{
    const tt_region_t *region = (const tt_region_t *)set->keeper;
    const tt_region_forward_t *forward = &region->forward;
    return tt_saved_reads(&region->inputs, storages, count) ||
           (forward->reads != NULL && forward->reads(forward->user, storages, count));
}

/* ---- computing again ------------------------------------------------------------------------- */

static tutti_status_t check_record(const tt_region_t *region, const void *kind, const char *name,
                                   int count)
{
    const bool is_more = region->next >= region->record_count;
    const record_t *record = is_more ? NULL : &region->records[region->next];
    if (record != NULL && record->kind == kind &&
        (record->set == NULL || record->set->count == count)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "operation %zu is %s, and was %s the first time: forward must do the same each "
                   "time that it is called with the same input",
                   region->next, name, is_more ? "not there" : record->name);
}

/* Whether the backward under way will come to it. */
static bool is_to_be_filled(const tt_run_t *run, const tt_saved_set_t *set)
{
    if (set == NULL || !set->is_away) {
        return false;
    }
    if (set->node != NULL) {
        const tt_visit_t *visit = tt_visit_of(set->node, run);
        return visit != NULL && visit->is_to_run && !set->node->is_consumed;
    }
    const tt_region_t *inner =
        (const tt_region_t *)((const char *)set - offsetof(tt_region_t, inputs));
    for (size_t i = 0; i < inner->record_count; i++) {
        if (is_to_be_filled(run, inner->records[i].set)) {
            return true;
        }
    }
    return false;
}

/* As recorded ones, but without a node. */
static tutti_status_t mark_outputs(const tutti_op_call_t *call)
{
    for (int i = 0; i < call->output_count; i++) {
        tt_autograd_t *a;
        TT_TRY(tt_autograd_ensure(call->outputs[i], &a));
        a->requires_grad = !tt_is_constant(call, i);
    }
    return TUTTI_OK;
}

/* Whether this is a part that somebody inside the region keeps. */
static bool is_inside_another(const tutti_context_t *ctx, const tt_region_t *region)
{
    return ctx->keeper != &region->keeper;
}

static tutti_status_t refill(tt_keeper_t *keeper, tutti_op_call_t *call)
{
    tt_region_t *region = region_of(keeper);
    tt_context_idle(call->scope->ctx); /* communication goes on meanwhile */
    if (is_inside_another(call->scope->ctx, region)) {
        return mark_outputs(call);
    }
    TT_TRY(check_record(region, call->op, call->op->name, tt_op_call_of(call)->saved_count));
    tt_saved_set_t *set = region->records[region->next++].set;
    TT_TRY(mark_outputs(call));
    if (is_to_be_filled(region->filled, set)) {
        tt_node_move_saved(set->node, call);
        tt_node_take_params(set->node, call);
        set->is_away = false;
        set->run = region->filled;
    }
    return TUTTI_OK;
}

static tutti_status_t check_unchanged(const tt_region_t *region)
{
    char text[192];
    for (int i = 0; i < region->inputs.count; i++) {
        const tt_saved_t input = region->inputs.items[i];
        if (input.tensor != NULL && input.tensor->storage->version != input.version) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "its input %s was written since: write after backward, or clone it",
                           tutti_tensor_describe(input.tensor, text, sizeof text));
        }
    }
    const mode_t *then = &region->mode;
    if (region->forward.stamp(region->forward.user, then->is_training) != region->stamp) {
        return TT_FAIL(TUTTI_ERR_STATE, "a parameter%s was written since: step after backward",
                       then->is_training ? "" : " or buffer");
    }
    return TUTTI_OK;
}

static tutti_status_t check_count(const tt_region_t *region)
{
    if (region->next == region->record_count) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_STATE,
                   "%zu operations were recorded, and %zu the first time: forward must do the same "
                   "each time that it is called with the same input",
                   region->next, region->record_count);
}

/* The inputs, wanting gradients where they did: so that the same operations save. In scope s. */
static tutti_status_t make_arguments(tutti_scope_t *s, tt_region_t *region)
{
    for (int i = 0; i < region->inputs.count; i++) {
        tutti_tensor_t *x = region->inputs.items[i].tensor, *alias = NULL;
        region->arguments[i] = NULL;
        if (x == NULL) {
            continue;
        }
        const tutti_status_t status = tt_tensor_alias(x, &alias);
        tutti_tensor_t *argument = tt_scope_adopt(s, status, alias);
        TT_TRY(argument->status);
        region->arguments[i] = argument;
        if (region->wanted[i]) {
            tt_autograd_t *a;
            TT_TRY(tt_autograd_ensure(argument, &a));
            a->requires_grad = true;
        }
    }
    return TUTTI_OK;
}

static void run_forward(tutti_scope_t *s, const tt_region_forward_t *forward,
                        const tt_region_call_t *call)
{
    forward->forward(s, forward->user, call->inputs, call->input_count, call->outputs,
                     call->output_count);
}

static tutti_status_t run_again(tutti_scope_t *s, tt_region_t *region)
{
    TT_TRY(check_unchanged(region));
    TT_TRY(make_arguments(s, region));
    run_forward(s, &region->forward,
                &(tt_region_call_t){region->arguments, region->inputs.count, region->results,
                                    region->output_count});
    TT_TRY(tutti_scope_status(s));
    return check_count(region);
}

/* So that a failure says where it was. */
static void name_failure(tutti_scope_t *s, const tt_region_t *region, tutti_status_t status)
{
    char error[TT_ERROR_TEXT_BYTES];
    (void)tutti_scope_fail(s, status);
    snprintf(error, sizeof error, "%s", s->error);
    snprintf(s->error, sizeof s->error, "recomputing %s for its backward: ", region->forward.name);
    const size_t used = strlen(s->error);
    snprintf(s->error + used, sizeof s->error - used, "%s", error);
}

/* Fills all sets that the backward under way will come to. The region is the innermost keeper
 * meanwhile, as it was, and nothing else is recorded. */
static tutti_status_t compute_again(tutti_scope_t *outer, tt_region_t *region)
{
    tutti_context_t *ctx = outer->ctx;
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open_inside(outer, &s));
    const mode_t mode = mode_of(ctx);
    const bool was_recomputing = ctx->is_recomputing; /* as part of another graph's forward */
    tt_keeper_t *around = ctx->keeper, *was_refilled = ctx->refilled;
    set_mode(ctx, &region->mode);
    ctx->keeper = &region->keeper;
    ctx->refilled = &region->keeper;
    ctx->is_recomputing = true;
    region->next = 0;
    region->filled = ctx->backward;
    const tutti_status_t status = run_again(s, region);
    region->filled = NULL;
    ctx->is_recomputing = was_recomputing;
    ctx->refilled = was_refilled;
    tt_keeper_leave(ctx, &region->keeper);
    ctx->keeper = around;
    set_mode(ctx, &mode);
    if (status < 0) {
        name_failure(s, region, status);
    }
    return tutti_scope_close(s);
}

static tutti_status_t restore(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set)
{
    (void)set;
    tt_region_t *region = region_of(keeper);
    TT_TRY(tt_saved_restore(s, &region->inputs));
    const tutti_status_t status = compute_again(s, region);
    tt_saved_forget(&region->inputs, s->ctx->backward);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static const tt_keeper_ops_t ops = {.keep = keep,
                                    .restore = restore,
                                    .reads = reads,
                                    .forget = forget,
                                    .leave = leave,
                                    .destroy = destroy,
                                    .refill = refill};

static tutti_status_t create_region(tutti_scope_t *s, const tt_region_forward_t *forward,
                                    const tt_region_call_t *call, tt_region_t **out)
{
    tt_region_t *region = tt_alloc(sizeof *region, "graph region");
    if (region == NULL) {
        forward->release(forward->user);
        return TUTTI_ERR_NOMEM;
    }
    tt_ref_init(&region->keeper.ref);
    region->keeper.ops = &ops;
    region->forward = *forward;
    region->mode = mode_of(s->ctx);
    region->inputs.kind = forward->user;
    region->inputs.name = forward->name;
    tutti_status_t status = hold_call(region, call);
    if (status >= 0) {
        status = tt_saved_keep(s, &region->inputs);
    }
    if (status < 0) {
        tt_keeper_release(&region->keeper);
        return status;
    }
    *out = region;
    return TUTTI_OK;
}

/* Whether there is nothing to hold: failures are forward's to tell. */
static bool is_plain(const tutti_scope_t *s, const tt_region_call_t *call)
{
    bool is_failed = s->null.status < 0;
    for (int i = 0; i < call->input_count; i++) {
        is_failed = is_failed || (call->inputs[i] != NULL && call->inputs[i]->status < 0);
    }
    return is_failed || !s->ctx->is_grad_enabled;
}

/* The forward around this region is computed again, and gives it its inputs back. */
static tutti_status_t refill_inputs(tutti_context_t *ctx, const tt_region_forward_t *forward,
                                    const tt_region_call_t *call)
{
    tt_region_t *around = region_of(ctx->refilled);
    if (is_inside_another(ctx, around)) {
        return TUTTI_OK;
    }
    TT_TRY(check_record(around, forward->user, forward->name, call->input_count));
    tt_saved_set_t *set = around->records[around->next++].set;
    if (is_to_be_filled(around->filled, set)) {
        const tutti_status_t status = hold_inputs(set, call->inputs);
        set->is_away = status < 0;
        set->run = status < 0 ? NULL : around->filled;
        if (status < 0) {
            tt_saved_release(set);
        }
        return status;
    }
    return TUTTI_OK;
}

/* As a part of the forward around it. */
static void run_inside(tutti_scope_t *s, const tt_region_forward_t *forward,
                       const tt_region_call_t *call)
{
    tt_keeper_t nobody = {.outer = s->ctx->keeper};
    const tutti_status_t status = refill_inputs(s->ctx, forward, call);
    if (status < 0) {
        tt_fail_outputs(s, status, call->outputs, call->output_count);
        return;
    }
    s->ctx->keeper = &nobody;
    run_forward(s, forward, call);
    tt_keeper_leave(s->ctx, &nobody);
    s->ctx->keeper = nobody.outer;
}

void tt_region_run(tutti_scope_t *s, const tt_region_forward_t *forward,
                   const tt_region_call_t *call)
{
    tt_region_t *region;
    if (is_plain(s, call)) {
        run_forward(s, forward, call);
        forward->release(forward->user);
        return;
    }
    if (s->ctx->refilled != NULL) {
        run_inside(s, forward, call);
        forward->release(forward->user);
        return;
    }
    const tutti_status_t status = create_region(s, forward, call, &region);
    if (status < 0) {
        tt_fail_outputs(s, status, call->outputs, call->output_count);
        return;
    }
    tt_keeper_t *around = s->ctx->keeper;
    tt_keeper_enter(s->ctx, &region->keeper);
    run_forward(s, forward, call);
    /* behind it: what forward writes itself, a bounded table, it finds as it left it */
    region->stamp = forward->stamp(forward->user, region->mode.is_training);
    tt_keeper_leave(s->ctx, around);
    tt_keeper_release(&region->keeper); /* its sets hold it */
}

bool tt_region_is_around(const tutti_context_t *ctx)
{
    const tt_keeper_t *keeper = ctx->keeper;
    while (keeper != NULL && keeper->ops != &ops) {
        keeper = keeper->outer;
    }
    return keeper != NULL || ctx->refilled != NULL;
}
