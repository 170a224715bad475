/* Turns of units: who is wanted, who goes, what is started early. */
#include "parallel/ddp/unit_turns.h"

#include "core/base/alloc.h"
#include "core/base/integers.h"

tutti_status_t tt_unit_turns_open(tt_unit_turns_t *turns, int count)
{
    turns->recomputed = -1;
    turns->units = tt_alloc_array((size_t)count, sizeof *turns->units, "unit turns");
    TT_TRY_ALLOC(turns->units);
    turns->count = count;
    return TUTTI_OK;
}

void tt_unit_turns_close(tt_unit_turns_t *turns)
{
    tt_free(turns->units);
    tt_sharded_list_release(&turns->now);
    tt_sharded_list_release(&turns->last);
}

int tt_unit_most_ahead(int prefetch)
{
    return prefetch == 0 ? 1 : prefetch < 0 ? 0 : prefetch;
}

/* ---- the order ------------------------------------------------------------------------------- */

tutti_status_t tt_unit_turns_record(tt_unit_turns_t *turns, int unit, bool is_near)
{
    return tt_sharded_put(
        &turns->now,
        &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_GATHER, .index = unit, .is_near = is_near});
}

void tt_unit_turns_forget(tt_unit_turns_t *turns)
{
    turns->now.count = 0;
}

static bool is_away(const tt_unit_turns_t *turns, int unit)
{
    return turns->actor->is_away(turns->user, unit);
}

/* A start that nobody foresaw, or the next one of the order. */
void tt_unit_turns_pass(tt_unit_turns_t *turns, int unit)
{
    if (!turns->is_in_step || turns->last.count == 0 || turns->has_changed) {
        return;
    }
    if (turns->cursor < turns->last.count && turns->last.actions[turns->cursor].index == unit) {
        turns->cursor++;
        return;
    }
    turns->has_changed = true;
    if (turns->actor->tell != NULL) {
        turns->actor->tell(turns->user, unit);
    }
}

static tutti_status_t start_ahead(tt_unit_turns_t *turns)
{
    while (turns->is_in_step && !turns->has_changed && turns->cursor < turns->last.count &&
           turns->ahead < turns->most_ahead) {
        const int next = turns->last.actions[turns->cursor].index;
        if (next == TT_UNIT_ROUND_END || !is_away(turns, next)) {
            break; /* it is used now, and will come again */
        }
        turns->cursor++;
        turns->units[next].is_ahead = true;
        turns->ahead++;
        TT_TRY(turns->actor->start(turns->user, next));
    }
    return TUTTI_OK;
}

tutti_status_t tt_unit_turns_want(tt_unit_turns_t *turns, int index)
{
    tt_unit_turn_t *unit = &turns->units[index];
    if (is_away(turns, index)) {
        tt_unit_turns_pass(turns, index);
        TT_TRY(turns->actor->start(turns->user, index));
    }
    turns->ahead -= unit->is_ahead;
    unit->is_ahead = false;
    TT_TRY(start_ahead(turns));
    return turns->actor->wait(turns->user, index);
}

/* ---- steps ----------------------------------------------------------------------------------- */

tutti_status_t tt_unit_turns_begin_step(tt_unit_turns_t *turns)
{
    const tt_sharded_list_t last = turns->last;
    turns->last = turns->now;
    turns->now = last;
    turns->now.count = 0;
    turns->cursor = 0;
    turns->has_changed = false;
    turns->is_in_step = true;
    for (int u = 0; u < turns->count; u++) {
        const bool is_wanted = turns->holds_all || turns->units[u].is_kept;
        TT_TRY(is_wanted ? tt_unit_turns_want(turns, u) : TUTTI_OK);
    }
    return TUTTI_OK;
}

void tt_unit_turns_rest(tt_unit_turns_t *turns, bool stays_in_step)
{
    for (int u = 0; u < turns->count; u++) {
        tt_unit_turn_t *unit = &turns->units[u];
        unit->forwards = unit->backwards = unit->awaited = 0;
        unit->waits_for_backward = unit->is_ahead = unit->has_come_back = false;
    }
    turns->ahead = 0;
    turns->is_in_step &= stays_in_step;
}

void tt_unit_turns_let_go(tt_unit_turns_t *turns)
{
    for (int u = 0; u < turns->count; u++) {
        turns->units[u].is_held = false;
    }
}

bool tt_unit_turns_stays(const tt_unit_turns_t *turns, int unit)
{
    return unit < turns->count && (turns->units[unit].is_kept || turns->units[unit].is_held);
}

/* ---- what happens ---------------------------------------------------------------------------- */

static tutti_status_t leave_if_unwanted(tt_unit_turns_t *turns, int index)
{
    const tt_unit_turn_t *unit = &turns->units[index];
    const bool is_wanted = (turns->holds_all && turns->is_in_step) || unit->forwards > 0 ||
                           unit->backwards > 0 || unit->waits_for_backward || unit->is_ahead ||
                           tt_unit_turns_stays(turns, index);
    if (is_wanted) {
        return TUTTI_OK;
    }
    return turns->keeps_near && unit->awaited > 0 ? turns->actor->keep(turns->user, index)
                                                  : turns->actor->leave(turns->user, index);
}

static tutti_status_t hold(tt_unit_turns_t *turns, int index)
{
    TT_TRY(tt_unit_turns_want(turns, index));
    turns->units[index].is_held = true;
    return TUTTI_OK;
}

static tutti_status_t let_go(tt_unit_turns_t *turns, int index)
{
    turns->units[index].is_held = false;
    return leave_if_unwanted(turns, index);
}

static tutti_status_t begin_forward(tt_unit_turns_t *turns, int index)
{
    turns->units[index].forwards++;
    return tt_unit_turns_want(turns, index);
}

/* Of those that were computed again. */
static tutti_status_t stay_alone(tt_unit_turns_t *turns, int index)
{
    const int before = turns->recomputed;
    turns->units[index].waits_for_backward = true;
    turns->recomputed = index;
    if (before < 0 || before == index || !turns->units[before].waits_for_backward) {
        return TUTTI_OK;
    }
    turns->units[before].waits_for_backward = false;
    return leave_if_unwanted(turns, before);
}

static tutti_status_t end_forward(tt_unit_turns_t *turns, const tutti_sharded_action_t *call)
{
    tt_unit_turn_t *unit = &turns->units[call->index];
    const bool stays = call->index == 0 || turns->keeps_after_forward;
    unit->forwards--;
    unit->awaited += turns->is_in_step && !call->is_again && !call->is_last;
    if (call->is_again) {
        TT_TRY(stay_alone(turns, call->index));
    } else if (stays && !call->is_last) {
        unit->waits_for_backward = true;
    }
    return leave_if_unwanted(turns, call->index);
}

static tutti_status_t begin_backward(tt_unit_turns_t *turns, int index)
{
    turns->units[index].backwards++;
    turns->units[index].has_come_back = true;
    turns->units[index].waits_for_backward = false;
    return tt_unit_turns_want(turns, index);
}

static tutti_status_t end_backward(tt_unit_turns_t *turns, int index)
{
    tt_unit_turn_t *unit = &turns->units[index];
    if (unit->backwards == 0) {
        return TUTTI_OK;
    }
    unit->backwards--;
    unit->awaited -= unit->awaited > 0;
    unit->waits_for_backward |= turns->keeps_after_backward;
    return leave_if_unwanted(turns, index);
}

/* What has not said that its backward ended has had it now. */
static bool is_another_awaited(tt_unit_turns_t *turns)
{
    bool is_awaited = false;
    for (int u = 0; u < turns->count; u++) {
        tt_unit_turn_t *unit = &turns->units[u];
        unit->awaited -= tt_min(unit->awaited, unit->backwards);
        is_awaited |= unit->has_come_back && unit->awaited > 0;
        unit->has_come_back = false;
    }
    return is_awaited;
}

/* is_last: no other backward follows in the step, for it has failed. */
static tutti_status_t end_all(tt_unit_turns_t *turns, const tutti_sharded_action_t *call)
{
    const bool stays = turns->keeps_after_backward && !call->is_last && turns->is_in_step;
    const bool is_awaited = is_another_awaited(turns) && !call->is_last;
    tutti_status_t status = TUTTI_OK;
    turns->recomputed = -1;
    for (int u = 0; u < turns->count; u++) {
        tt_unit_turn_t *unit = &turns->units[u];
        unit->waits_for_backward = stays && (unit->waits_for_backward || unit->backwards > 0);
        unit->backwards = 0;
        unit->awaited = is_awaited ? unit->awaited : 0;
        const tutti_status_t one = leave_if_unwanted(turns, u);
        status = status < 0 ? status : one;
    }
    return status;
}

tutti_status_t tt_unit_turns_take(tt_unit_turns_t *turns, const tutti_sharded_action_t *call)
{
    switch (call->kind) {
    case TUTTI_SHARDED_FORWARD:
        return begin_forward(turns, call->index);
    case TUTTI_SHARDED_FORWARD_END:
        return end_forward(turns, call);
    case TUTTI_SHARDED_BACKWARD:
        return begin_backward(turns, call->index);
    case TUTTI_SHARDED_BACKWARD_END:
        return end_backward(turns, call->index);
    case TUTTI_SHARDED_END:
        return end_all(turns, call);
    case TUTTI_SHARDED_UNSHARD:
        return hold(turns, call->index);
    case TUTTI_SHARDED_RESHARD:
        return let_go(turns, call->index);
    default:
        return TUTTI_OK; /* nothing comes or goes */
    }
}
