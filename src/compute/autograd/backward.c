/* Public backwards: at once, for chosen inputs, in two turns, and with gradients that come later.
 */
#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_shape.h>

#include "compute/autograd/backward_run.h"
#include "compute/autograd/region.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"

enum { LOOK_EVERY_NS = 20000 }; /* what delivers, an idle function, gives no notice */

/* A run of its own memory, which waits between two calls of its owner. */
struct tutti_backward_run {
    tt_run_t run;
};

static tutti_status_t check_place(const tutti_context_t *ctx)
{
    return !tt_region_is_around(ctx)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "backward inside a forward that is to be recomputed: "
                                          "what it saved is not kept; call it outside");
}

static tutti_status_t check_roots(const tutti_root_t *roots, int count, bool may_await)
{
    if (count < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "backward: %d roots", count);
    }
    for (int i = 0; i < count; i++) {
        if (roots[i].is_awaited && !may_await) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "backward: the gradient of root %d is awaited: call "
                           "tutti_backward_begin()",
                           i);
        }
    }
    return TUTTI_OK;
}

static tt_run_t make_run(tutti_scope_t *s, const tutti_backward_options_t *options)
{
    tt_run_t run = {.scope = s,
                    .options = options == NULL ? (tutti_backward_options_t){0} : *options};
    run.options.retain_graph = run.options.retain_graph || run.options.create_graph;
    return run;
}

static tutti_status_t check_create_graph(const tt_run_t *run)
{
    if (!run->options.create_graph) {
        return TUTTI_OK;
    }
    if (run->defers) {
        return TT_FAIL(TUTTI_ERR_ARG, "backward_inputs: create_graph: a backward in two turns is "
                                      "not recorded; call tutti_grad()");
    }
    return run->captures || run->options.sink != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "backward: create_graph: a leaf that keeps a gradient with a history "
                         "would keep itself alive; call tutti_grad(), or give a sink");
}

/* Opens the run; a failure is the scope's, too. */
static tutti_status_t open_run(tt_run_t *run, const tutti_root_t *roots, int count, bool may_await)
{
    tutti_status_t status = check_roots(roots, count, may_await);
    if (status >= 0) {
        status = check_create_graph(run);
    }
    if (status >= 0) {
        status = check_place(run->scope->ctx);
    }
    if (status >= 0) {
        status = tt_run_open(run, roots, count);
    }
    if (status < 0) {
        (void)tutti_scope_fail(run->scope, status);
    }
    return status;
}

/* ---- at once --------------------------------------------------------------------------------- */

tutti_status_t tutti_backward_many(tutti_scope_t *s, const tutti_root_t *roots, int count,
                                   const tutti_backward_options_t *options)
{
    TT_TRY(tutti_scope_status(s));
    tt_run_t run = make_run(s, options);
    tutti_status_t status = open_run(&run, roots, count, false);
    if (status >= 0) {
        status = tt_run_finish(&run, tt_run_advance(&run));
    }
    tt_run_close(&run);
    return status;
}

tutti_status_t tutti_backward_with(tutti_scope_t *s, tutti_tensor_t *loss,
                                   const tutti_backward_options_t *options)
{
    const tutti_root_t root = {.tensor = loss,
                               .grad_output = options == NULL ? NULL : options->grad_output};
    return tutti_backward_many(s, &root, 1, options);
}

tutti_status_t tutti_backward(tutti_scope_t *s, tutti_tensor_t *loss)
{
    return tutti_backward_with(s, loss, NULL);
}

/* ---- of chosen inputs ------------------------------------------------------------------------ */

/* The caller's alone, who may write it. */
static tutti_status_t give_captured(tutti_scope_t *s, tutti_tensor_t **captured,
                                    tutti_tensor_t **out)
{
    *out = NULL;
    if (*captured == NULL) {
        return TUTTI_OK;
    }
    const bool is_alone =
        s->ctx->is_grad_enabled ? tt_grad_is_alone(*captured) : tt_grad_is_sole(*captured);
    *out = tt_scope_adopt(s, TUTTI_OK, *captured);
    *captured = NULL;
    if (!is_alone) {
        *out = tutti_clone(s, *out);
    }
    return (*out)->status;
}

static tutti_status_t give_all(tt_run_t *run, int count, tutti_tensor_t **grads)
{
    tutti_context_t *ctx = run->scope->ctx;
    const bool was_enabled = tutti_context_set_grad_enabled(ctx, run->options.create_graph);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < count && status >= 0; i++) {
        status = give_captured(run->scope, &run->captured[i], &grads[i]);
    }
    (void)tutti_context_set_grad_enabled(ctx, was_enabled);
    return status;
}

static tutti_status_t grad_in(tt_run_t *run, const tutti_root_t *roots, int root_count,
                              tutti_tensor_t *const *inputs, int count, tutti_tensor_t **grads)
{
    if (count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "grad: %d inputs", count);
    }
    for (int i = 0; i < count; i++) {
        grads[i] = NULL;
    }
    TT_TRY(tt_run_capture(run, inputs, count));
    TT_TRY(open_run(run, roots, root_count, false));
    TT_TRY(tt_run_finish(run, tt_run_advance(run)));
    return give_all(run, count, grads);
}

tutti_status_t tutti_grad_many(tutti_scope_t *s, const tutti_root_t *roots, int root_count,
                               const tutti_backward_options_t *options,
                               tutti_tensor_t *const *inputs, int count, tutti_tensor_t **grads)
{
    TT_TRY(tutti_scope_status(s));
    tt_run_t run = make_run(s, options);
    const tutti_status_t status = grad_in(&run, roots, root_count, inputs, count, grads);
    tt_run_close(&run);
    return status;
}

tutti_status_t tutti_grad(tutti_scope_t *s, tutti_tensor_t *y,
                          const tutti_backward_options_t *options, tutti_tensor_t *const *inputs,
                          int count, tutti_tensor_t **grads)
{
    const tutti_root_t root = {.tensor = y,
                               .grad_output = options == NULL ? NULL : options->grad_output};
    return tutti_grad_many(s, &root, 1, options, inputs, count, grads);
}

/* ---- in parts -------------------------------------------------------------------------------- */

static tutti_status_t create_run(tutti_scope_t *s, const tutti_backward_options_t *options,
                                 tutti_backward_run_t **out)
{
    tutti_backward_run_t *own = tt_alloc(sizeof *own, "backward");
    TT_TRY_ALLOC(own);
    own->run = make_run(s, options);
    own->run.outer = s->ctx->waiting_backwards;
    s->ctx->waiting_backwards = &own->run;
    *out = own;
    return TUTTI_OK;
}

static bool is_under_way(const tt_run_t *run)
{
    const tt_run_t *at = run->scope->ctx->backward;
    while (at != NULL && at != run) {
        at = at->outer;
    }
    return at == run;
}

/* Out of those that wait. */
static void resume(tt_run_t *run)
{
    tt_run_t **at = &run->scope->ctx->waiting_backwards;
    while (*at != run) {
        at = &(*at)->outer;
    }
    *at = run->outer;
}

static void suspend(tt_run_t *run)
{
    run->outer = run->scope->ctx->waiting_backwards;
    run->scope->ctx->waiting_backwards = run;
}

static void drop_callbacks(tt_run_t *run)
{
    while (run->end_callbacks != NULL) {
        tt_end_callback_t *next = run->end_callbacks->next;
        tt_free(run->end_callbacks);
        run->end_callbacks = next;
    }
}

void tutti_backward_release(tutti_backward_run_t *own)
{
    if (own != NULL) {
        resume(&own->run);
        if (own->run.defers) {
            drop_callbacks(&own->run); /* the first turn went well, and a second is not wanted */
        }
        if (own->run.end_callbacks != NULL) {
            (void)tt_run_finish(&own->run,
                                TT_FAIL(TUTTI_ERR_ABORTED, "backward: released before its end"));
        }
        tt_run_close(&own->run);
        tt_free(own);
    }
}

tutti_status_t tutti_backward_begin(tutti_scope_t *s, const tutti_root_t *roots, int count,
                                    const tutti_backward_options_t *options,
                                    tutti_backward_run_t **out)
{
    tutti_backward_run_t *own;
    *out = NULL;
    TT_TRY(tutti_scope_status(s));
    TT_TRY(create_run(s, options, &own));
    const tutti_status_t status = open_run(&own->run, roots, count, true);
    if (status < 0) {
        tutti_backward_release(own);
        return status;
    }
    *out = own;
    return TUTTI_OK;
}

tutti_status_t tutti_backward_deliver(tutti_backward_run_t *own, int root, tutti_tensor_t *grad)
{
    tt_run_t *run = &own->run;
    if (root < 0 || root >= run->root_count || !run->roots[root].is_awaited) {
        return TT_FAIL(TUTTI_ERR_ARG, "backward: no gradient of root %d is awaited", root);
    }
    tt_run_root_t *at = &run->roots[root];
    if (grad != NULL) {
        TT_TRY(tt_tensor_status(grad));
        TT_TRY(tt_run_seed(run, at, grad));
    }
    at->is_awaited = false;
    tt_run_note_awaited(run);
    if (--at->visit->pending == 0 && at->visit->is_wanted) {
        tt_ready_push(&run->ready, at->visit);
    }
    return TUTTI_OK;
}

tutti_status_t tutti_backward_advance(tutti_backward_run_t *own)
{
    tt_run_t *run = &own->run;
    if (is_under_way(run)) {
        return TT_FAIL(TUTTI_ERR_STATE, "backward: advanced from inside itself, by a hook or an "
                                        "idle function");
    }
    TT_TRY(tutti_scope_status(run->scope));
    TT_TRY(check_place(run->scope->ctx));
    resume(run);
    tutti_status_t status = tt_run_advance(run);
    if (status != TUTTI_PENDING) {
        status = tt_run_finish(run, status);
    }
    suspend(run);
    return status;
}

static int first_awaited(const tt_run_t *run)
{
    int i = 0;
    while (i < run->root_count && !run->roots[i].is_awaited) {
        i++;
    }
    return i;
}

tutti_status_t tutti_backward_wait(tutti_backward_run_t *own, int64_t timeout_ms)
{
    const tt_run_t *run = &own->run;
    const tt_deadline_t deadline = tt_deadline_in_ms(timeout_ms);
    if (timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "backward: a timeout of %lld ms; want 0 or more",
                       (long long)timeout_ms);
    }
    tutti_status_t status = tutti_backward_advance(own);
    while (status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
        tt_clock_sleep(LOOK_EVERY_NS, deadline);
        tt_context_idle(run->scope->ctx);
        status = tutti_backward_advance(own);
    }
    if (status == TUTTI_PENDING) {
        const int root = first_awaited(run);
        return TT_FAIL(TUTTI_ERR_TIMEOUT,
                       "backward: the gradient of root %d (%s) has not been delivered within "
                       "%lld ms",
                       root, tt_run_root_name(run, root), (long long)timeout_ms);
    }
    return status;
}

/* ---- in two turns ---------------------------------------------------------------------------- */

tutti_status_t tutti_backward_inputs(tutti_scope_t *s, const tutti_root_t *roots, int root_count,
                                     const tutti_backward_options_t *options,
                                     tutti_tensor_t *const *inputs, int count,
                                     tutti_tensor_t **grads, tutti_backward_run_t **out)
{
    tutti_backward_run_t *own;
    *out = NULL;
    TT_TRY(tutti_scope_status(s));
    TT_TRY(create_run(s, options, &own));
    own->run.defers = true;
    resume(&own->run);
    const tutti_status_t status = grad_in(&own->run, roots, root_count, inputs, count, grads);
    suspend(&own->run);
    if (status < 0) {
        tutti_backward_release(own);
        return status;
    }
    *out = own;
    return TUTTI_OK;
}

tutti_status_t tutti_backward_weights(tutti_backward_run_t *own)
{
    tutti_status_t status = tutti_scope_status(own->run.scope);
    if (status >= 0 && !own->run.defers) {
        status = TT_FAIL(TUTTI_ERR_STATE, "backward_weights: the run is not one of "
                                          "tutti_backward_inputs(), or had its second turn");
    }
    if (status >= 0) {
        tt_run_turn(&own->run);
        status = tutti_backward_advance(own);
    }
    own->run.defers = false; /* who waits for the second turn hears that it is not */
    tutti_backward_release(own);
    return status;
}

/* ---- beside ---------------------------------------------------------------------------------- */

static tutti_status_t add_callback(const tutti_scope_t *s, tutti_backward_end_t callback,
                                   void *user, bool is_of_turns)
{
    tt_run_t *run = s->ctx->backward;
    if (run == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "no backward is under way: call it from a hook");
    }
    tt_end_callback_t *added = tt_alloc(sizeof *added, "backward callback");
    TT_TRY_ALLOC(added);
    *added = (tt_end_callback_t){.call = callback, .user = user, .is_of_turns = is_of_turns};
    tt_end_callback_t **end = &run->end_callbacks;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = added;
    return TUTTI_OK;
}

tutti_status_t tutti_backward_on_end(tutti_scope_t *s, tutti_backward_end_t callback, void *user)
{
    return add_callback(s, callback, user, false);
}

tutti_status_t tt_backward_on_turns(tutti_scope_t *s, tutti_backward_end_t callback, void *user)
{
    return add_callback(s, callback, user, true);
}

tutti_tensor_t *tutti_detach(tutti_scope_t *s, tutti_tensor_t *x)
{
    tutti_tensor_t *alias = NULL;
    tutti_status_t status = tt_tensor_status(x);
    if (status >= 0) {
        status = tt_tensor_alias(x, &alias);
    }
    return tt_scope_adopt(s, status, alias);
}
