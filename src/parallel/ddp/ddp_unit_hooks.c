/* What a program does with units' modules: hooks around their forwards and backwards tell of it
 * (unit_turns.h says what becomes of that), and the user may ask for units.
 *
 * Where a module's inputs need no gradient nobody says when its nodes have run: its backward ends
 * with the whole. */
#include <tutti/sharded.h>

#include <string.h>

#include "parallel/ddp/ddp_impl.h"

static int index_of(const tt_unit_t *unit)
{
    return (int)(unit - unit->ddp->units.units);
}

static tutti_status_t tell(const tt_unit_t *unit, tutti_sharded_kind_t kind)
{
    return tt_ddp_order_take(unit->ddp,
                             &(tutti_sharded_action_t){.kind = kind, .index = index_of(unit)});
}

static tutti_status_t before_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    return tell(user, TUTTI_SHARDED_FORWARD);
}

/* Behind a failure, too. */
static tutti_status_t after_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    const tt_unit_t *unit = user;
    const tutti_context_t *ctx = tutti_scope_context(s);
    return tt_ddp_order_take(
        unit->ddp,
        &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_FORWARD_END,
                                  .index = index_of(unit),
                                  .is_again = ctx->is_recomputing,
                                  .is_last = !ctx->is_grad_enabled || tutti_scope_status(s) < 0});
}

static tutti_status_t end_backward(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    tutti_ddp_t *ddp = user;
    ddp->leaves_units = false;
    const tutti_status_t left = tt_ddp_order_take(
        ddp, &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_END, .is_last = status < 0});
    return status < 0 ? status : left;
}

static tutti_status_t before_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    const tt_unit_t *unit = user;
    tutti_ddp_t *ddp = unit->ddp;
    if (!ddp->leaves_units) {
        TT_TRY(tutti_backward_on_end(s, end_backward, ddp));
        ddp->leaves_units = true;
    }
    return tell(unit, TUTTI_SHARDED_BACKWARD);
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
    return has_input(call) ? tell(user, TUTTI_SHARDED_BACKWARD_END) : TUTTI_OK;
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
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    tt_unit_turns_rest(&ddp->order.turns, !is_between_steps);
    for (int u = 0; u < ddp->units.count; u++) {
        for (tt_unit_kind_t kind = TT_UNIT_FULL; kind < TT_UNIT_KINDS; kind++) {
            const bool stays = (kind == TT_UNIT_FULL || !is_between_steps) &&
                               tt_unit_turns_stays(&ddp->order.turns, u);
            const tutti_status_t one = stays ? TUTTI_OK : tt_ddp_unit_leave(ddp, u, kind);
            status = status < 0 ? status : one;
        }
    }
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
    return tell(tt_ddp_unit(ddp, index), TUTTI_SHARDED_UNSHARD);
}

tutti_status_t tt_ddp_unit_dismiss(tutti_ddp_t *ddp, int index)
{
    return tell(tt_ddp_unit(ddp, index), TUTTI_SHARDED_RESHARD);
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
