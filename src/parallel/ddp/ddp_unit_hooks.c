/* When units are whole: around forward and backward of their modules.
 *
 *     before_forward    wanted
 *     after_forward     it goes, unless it is to stay for its backward: the root, or by option
 *     before_backward   wanted
 *     after_backward    it goes. Where its module's inputs need no gradient, at the end of the
 *                       backward, for then nobody says when its nodes have run
 *
 * What is computed again is a forward, too. The unit that was computed again last stays, for its
 * backward comes next; where a region has several units, the others come once more. */
#include <tutti/sharded.h>

#include <string.h>

#include "parallel/ddp/ddp_impl.h"

/* A driver runs many forwards and backwards in a step, also of parts without their parents: it has
 * all units from the beginning to the end. */
static bool is_driven(const tutti_ddp_t *ddp)
{
    return ddp->driver != NULL && ddp->step.phase != TT_DDP_BETWEEN_STEPS;
}

static bool is_wanted(const tt_unit_t *unit)
{
    return is_driven(unit->ddp) || unit->forwards > 0 || unit->backwards > 0 ||
           unit->waits_for_backward || unit->is_ahead || unit->is_held || unit->is_kept;
}

static int index_of(const tt_unit_t *unit)
{
    return (int)(unit - unit->ddp->units.units);
}

static tutti_status_t leave_if_unwanted(tt_unit_t *unit)
{
    return is_wanted(unit)
               ? TUTTI_OK
               : tt_ddp_unit_leave(unit->ddp, index_of(unit), tt_ddp_unit_kind(unit->ddp));
}

static tutti_status_t before_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    tt_unit_t *unit = user;
    unit->forwards++;
    return tt_ddp_unit_want(unit->ddp, index_of(unit));
}

/* Of those that were computed again. */
static tutti_status_t stay_alone(tt_unit_t *unit)
{
    tutti_ddp_t *ddp = unit->ddp;
    tt_unit_t *before = ddp->recomputed;
    unit->waits_for_backward = true;
    ddp->recomputed = unit;
    if (before == NULL || before == unit || !before->waits_for_backward) {
        return TUTTI_OK;
    }
    before->waits_for_backward = false;
    return leave_if_unwanted(before);
}

/* Behind a failure, too. */
static tutti_status_t after_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    tt_unit_t *unit = user;
    tutti_context_t *ctx = tutti_scope_context(s);
    const bool stays = index_of(unit) == 0 || unit->ddp->options.keep_after_forward;
    unit->forwards--;
    if (ctx->is_recomputing) {
        TT_TRY(stay_alone(unit));
    } else if (stays && ctx->is_grad_enabled && tutti_scope_status(s) >= 0) {
        unit->waits_for_backward = true;
    }
    return leave_if_unwanted(unit);
}

static tutti_status_t end_backward(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    tutti_ddp_t *ddp = user;
    const bool stays =
        ddp->options.keep_after_backward && status >= 0 && ddp->step.phase != TT_DDP_BETWEEN_STEPS;
    ddp->leaves_units = false;
    ddp->recomputed = NULL;
    for (int u = 0; u < ddp->units.count; u++) {
        tt_unit_t *unit = tt_ddp_unit(ddp, u);
        unit->waits_for_backward = stays && (unit->waits_for_backward || unit->backwards > 0);
        unit->backwards = 0;
        const tutti_status_t one = leave_if_unwanted(unit);
        status = status < 0 ? status : one;
    }
    return status;
}

static tutti_status_t before_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    tt_unit_t *unit = user;
    tutti_ddp_t *ddp = unit->ddp;
    if (!ddp->leaves_units) {
        TT_TRY(tutti_backward_on_end(s, end_backward, ddp));
        ddp->leaves_units = true;
    }
    unit->backwards++;
    unit->waits_for_backward = false;
    return tt_ddp_unit_want(ddp, index_of(unit));
}

static bool has_input(const tutti_module_call_t *call)
{
    for (int i = 0; i < call->input_count; i++) {
        if (call->inputs[i] != NULL) {
            return true;
        }
    }
    return false;
}

static tutti_status_t after_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s;
    tt_unit_t *unit = user;
    if (!has_input(call) || unit->backwards == 0) {
        return TUTTI_OK;
    }
    unit->backwards--;
    unit->waits_for_backward |= unit->ddp->options.keep_after_backward;
    return leave_if_unwanted(unit);
}

static bool has_params(const tt_ddp_units_t *units, int unit)
{
    for (int i = 0; i < units->param_count; i++) {
        if (units->unit_of[i] == unit) {
            return true;
        }
    }
    return false;
}

tutti_status_t tt_ddp_hook_units(tutti_ddp_t *ddp)
{
    static const tutti_module_hooks_t hooks = {.before_forward = before_forward,
                                               .after_forward = after_forward,
                                               .before_backward = before_backward,
                                               .after_backward = after_backward,
                                               .always_call = true};
    for (int u = 0; u < ddp->units.count; u++) {
        tt_unit_t *unit = tt_ddp_unit(ddp, u);
        if (!unit->is_kept && has_params(&ddp->units, u)) {
            TT_TRY(tutti_module_add_hooks(unit->module, &hooks, unit));
        }
    }
    return TUTTI_OK;
}

void tt_ddp_unhook_units(tutti_ddp_t *ddp)
{
    for (int u = 0; u < ddp->units.count; u++) {
        if (!ddp->units.units[u].is_kept) {
            tutti_module_remove_hooks(ddp->units.units[u].module, tt_ddp_unit(ddp, u));
        }
    }
}

/* Those that are held stay, and small ones; between steps no 16-bit copies. */
static tutti_status_t let_all_go(tutti_ddp_t *ddp, bool is_between_steps)
{
    tutti_status_t status = TUTTI_OK;
    for (int u = 0; u < ddp->units.count; u++) {
        tt_unit_t *unit = tt_ddp_unit(ddp, u);
        unit->forwards = unit->backwards = 0;
        unit->waits_for_backward = unit->is_ahead = false;
        for (tt_unit_kind_t kind = TT_UNIT_FULL; kind < TT_UNIT_KINDS; kind++) {
            const bool stays =
                (kind == TT_UNIT_FULL || !is_between_steps) && (unit->is_kept || unit->is_held);
            const tutti_status_t one = stays ? TUTTI_OK : tt_ddp_unit_leave(ddp, u, kind);
            status = status < 0 ? status : one;
        }
    }
    tt_ddp_order_end_step(ddp);
    return status;
}

tutti_status_t tt_ddp_units_end_step(tutti_ddp_t *ddp)
{
    return let_all_go(ddp, true);
}

tutti_status_t tt_ddp_units_end_round(tutti_ddp_t *ddp)
{
    return tt_ddp_rounds_are_told(ddp) ? let_all_go(ddp, false) : TUTTI_OK;
}

/* ---- by the user ----------------------------------------------------------------------------- */

tutti_status_t tt_ddp_find_units(const tutti_ddp_t *ddp, const char *what, const char *name,
                                 int *first, int *end)
{
    *first = 0;
    *end = ddp->units.count; /* 0 where nothing is sharded */
    for (int u = 0; name != NULL && u < ddp->units.count; u++) {
        if (!ddp->units.units[u].is_kept && strcmp(ddp->units.units[u].name, name) == 0) {
            *first = u;
            *end = u + 1;
            return TUTTI_OK;
        }
    }
    return name == NULL || !tt_ddp_has_units(ddp)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "%s: no unit is called %s: tutti_ddp_describe() says which there are",
                         what, name);
}

tutti_status_t tt_ddp_unit_summon(tutti_ddp_t *ddp, int index)
{
    tt_unit_t *unit = tt_ddp_unit(ddp, index);
    TT_TRY(tt_ddp_unit_want(ddp, index));
    unit->is_held = true;
    return TUTTI_OK;
}

tutti_status_t tt_ddp_unit_dismiss(tutti_ddp_t *ddp, int index)
{
    tt_unit_t *unit = tt_ddp_unit(ddp, index);
    unit->is_held = false;
    return leave_if_unwanted(unit);
}

tutti_status_t tutti_ddp_unshard(tutti_ddp_t *ddp, const char *name)
{
    int first, end;
    TT_TRY(tt_ddp_find_units(ddp, "ddp_unshard", name, &first, &end));
    for (int u = first; u < end; u++) {
        TT_TRY(tt_ddp_unit_summon(ddp, u));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_ddp_reshard(tutti_ddp_t *ddp, const char *name)
{
    int first, end;
    tutti_status_t status = TUTTI_OK;
    TT_TRY(tt_ddp_find_units(ddp, "ddp_reshard", name, &first, &end));
    if (first < ddp->summons.end && ddp->summons.first < end) {
        TT_TRY(tt_ddp_check_dismissed(ddp, "ddp_reshard"));
    }
    for (int u = first; u < end; u++) {
        const tutti_status_t one = tt_ddp_unit_dismiss(ddp, u);
        status = status < 0 ? status : one;
    }
    return status;
}
