/* Units come in one order on all ranks.
 *
 * Each start is a call of the units' group, tagged with step, unit and kind, so that ranks that
 * come to other units are told so. Where all ranks have as many shards with data, a rank makes the
 * calls of its own program. Where some may have less to compute, each start is announced before:
 *
 *     computes    all_reduce [unit, −unit]      start
 *     follows     all_reduce [0, −∞]            start, and leave
 *     …
 *     all follow  the maximum is 0: the step has no more starts
 *
 * Where buckets leave in rounds (options.accumulate), all follow at the end of each of them, and
 * let go of all units: what a rank has kept or started early in a round in which others had no data
 * would be announced in the next one by those alone.
 *
 * Where a start is each rank's own business (unit_source.h), nothing is announced.
 *
 * The order of a whole step is that of the next one, as a rule: the next units of it are started
 * before they are wanted, as many as options.prefetch says. A start out of that order ends it for
 * the step. If what was started early was wanted by nobody, nothing is started early in the next
 * step.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

enum { FIRST_WORD = 2 }; /* of units; 0: none, 1: none, and something was wanted by nobody */
enum { ROUND_END = -1 }; /* among starts: nothing is started early beyond it */

static int code_of(int unit, tt_unit_kind_t kind)
{
    return unit * TT_UNIT_KINDS + (int)kind;
}

static bool is_in_step(const tutti_ddp_t *ddp)
{
    return ddp->step.phase != TT_DDP_BETWEEN_STEPS;
}

tutti_status_t tt_ddp_open_order(tutti_ddp_t *ddp, bool is_local)
{
    const int size = tutti_group_size(ddp->group);
    ddp->order.announces =
        tutti_group_size(ddp->units.group) > 1 && !is_local &&
        (ddp->options.uneven != TUTTI_DDP_EVEN || ddp->options.shards % size != 0);
    return tutti_group_tensor(ddp->group, TUTTI_I64, TUTTI_SHAPE(2), &ddp->order.word);
}

void tt_ddp_close_order(tutti_ddp_t *ddp)
{
    tutti_tensor_release(ddp->order.word);
    tt_free(ddp->order.now.starts);
    tt_free(ddp->order.last.starts);
}

void tt_ddp_order_end_step(tutti_ddp_t *ddp)
{
    ddp->order.ahead = 0;
}

static tutti_status_t record(tt_unit_order_t *order, int code)
{
    if (order->count == order->capacity) {
        const int capacity = order->capacity == 0 ? 64 : 2 * order->capacity;
        int *grown = tt_realloc(order->starts, (size_t)capacity * sizeof *grown, "ddp units");
        TT_TRY_ALLOC(grown);
        order->starts = grown;
        order->capacity = capacity;
    }
    order->starts[order->count++] = code;
    return TUTTI_OK;
}

/* ---- one order ------------------------------------------------------------------------------- */

static const char *name_of(const tutti_ddp_t *ddp, int64_t word)
{
    const tt_unit_t *unit = tt_ddp_unit(ddp, (int)((word - FIRST_WORD) / TT_UNIT_KINDS));
    return unit->is_kept ? "the kept ones" : unit->name[0] == 0 ? "the root" : unit->name;
}

/* word: of a unit, or less than FIRST_WORD if this rank follows; becomes the one that all go by. */
static tutti_status_t announce(const tutti_ddp_t *ddp, int64_t *word)
{
    int64_t *words = tutti_tensor_data(ddp->order.word);
    words[0] = *word;
    words[1] = *word >= FIRST_WORD ? -*word : INT64_MIN;
    TT_TRY(tutti_all_reduce(ddp->units.group, ddp->order.word, TUTTI_MAX, NULL));
    *word = words[0];
    if (words[0] >= FIRST_WORD && words[0] != -words[1]) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "ddp: ranks came to units in other orders, to %s and to %s: every rank "
                       "must call them in one order",
                       name_of(ddp, -words[1]), name_of(ddp, words[0]));
    }
    return TUTTI_OK;
}

static void set_tag(const tutti_ddp_t *ddp, int code)
{
    const uint64_t phase = is_in_step(ddp);
    tutti_group_set_tag(ddp->units.group, (ddp->step.number << 24) | ((uint64_t)code << 1) | phase);
}

static tutti_status_t start_announced(tutti_ddp_t *ddp, int code)
{
    set_tag(ddp, code);
    const tutti_status_t status =
        tt_ddp_unit_start(ddp, code / TT_UNIT_KINDS, (tt_unit_kind_t)(code % TT_UNIT_KINDS));
    TT_TRY(status);
    return is_in_step(ddp) ? record(&ddp->order.now, code) : TUTTI_OK;
}

static tutti_status_t start(tutti_ddp_t *ddp, int code)
{
    if (is_in_step(ddp) && ddp->order.announces) {
        int64_t word = code + FIRST_WORD;
        set_tag(ddp, 0);
        TT_TRY(announce(ddp, &word));
    }
    return start_announced(ddp, code);
}

/* Another rank wants it. */
static tutti_status_t follow_start(tutti_ddp_t *ddp, int code)
{
    const int unit = code / TT_UNIT_KINDS;
    const tt_unit_kind_t kind = (tt_unit_kind_t)(code % TT_UNIT_KINDS);
    TT_TRY(tt_ddp_unit_leave(ddp, unit, kind)); /* what is ahead here is wanted again there */
    TT_TRY(start_announced(ddp, code));
    TT_TRY(tt_ddp_unit_wait(ddp, unit, kind));
    return tt_ddp_unit_leave(ddp, unit, kind);
}

static tutti_status_t follow(tutti_ddp_t *ddp)
{
    bool has_followed = false;
    for (;;) {
        int64_t word = ddp->order.ahead > 0 && !has_followed;
        set_tag(ddp, 0);
        TT_TRY(announce(ddp, &word));
        if (word < FIRST_WORD) {
            ddp->order.now.count = word == 0 ? ddp->order.now.count : 0;
            return TUTTI_OK;
        }
        TT_TRY(follow_start(ddp, (int)(word - FIRST_WORD)));
        has_followed = true;
    }
}

tutti_status_t tt_ddp_order_follow(tutti_ddp_t *ddp)
{
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    if (ddp->order.announces) {
        return follow(ddp);
    }
    if (ddp->order.ahead > 0) {
        ddp->order.now.count = 0;
    }
    return TUTTI_OK;
}

/* ---- what comes next ------------------------------------------------------------------------- */

tutti_status_t tt_ddp_units_begin_step(tutti_ddp_t *ddp)
{
    tt_ddp_order_t *order = &ddp->order;
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    const tt_unit_order_t last = order->last;
    order->last = order->now;
    order->now = last;
    order->now.count = 0;
    order->cursor = 0;
    order->has_changed = false;
    TT_TRY(tt_ddp_store_begin_step(ddp));
    const int kept = ddp->units.count - 1;
    for (int u = 0; u < ddp->units.count; u++) {
        const bool is_wanted = ddp->driver != NULL || (u == kept && tt_ddp_unit(ddp, u)->is_kept);
        TT_TRY(is_wanted ? tt_ddp_unit_want(ddp, u) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* A start that nobody foresaw, or the next one of the order. */
static void pass(tutti_ddp_t *ddp, int code)
{
    tt_ddp_order_t *order = &ddp->order;
    if (order->last.count == 0 || order->has_changed) {
        return;
    }
    if (order->cursor < order->last.count && order->last.starts[order->cursor] == code) {
        order->cursor++;
        return;
    }
    order->has_changed = true;
    if (!order->has_told && tutti_group_rank(ddp->group) == 0) {
        order->has_told = true;
        tt_log(TT_LOG_INFO,
               "ddp: units come in another order than in the step before, first %s: nothing is "
               "gathered early in such a step",
               code == ROUND_END ? "the end of a round" : name_of(ddp, code + FIRST_WORD));
    }
}

tutti_status_t tt_ddp_order_end_round(tutti_ddp_t *ddp)
{
    if (!tt_ddp_rounds_are_told(ddp)) {
        return TUTTI_OK;
    }
    for (;;) {
        int64_t word = 0;
        set_tag(ddp, 0);
        TT_TRY(announce(ddp, &word));
        if (word < FIRST_WORD) {
            break;
        }
        pass(ddp, (int)(word - FIRST_WORD));
        TT_TRY(follow_start(ddp, (int)(word - FIRST_WORD)));
    }
    pass(ddp, ROUND_END);
    return record(&ddp->order.now, ROUND_END);
}

int tt_ddp_most_ahead(const tutti_ddp_t *ddp)
{
    const int prefetch = ddp->options.prefetch;
    return prefetch == 0 ? 1 : prefetch < 0 ? 0 : prefetch;
}

static tutti_status_t start_ahead(tutti_ddp_t *ddp)
{
    tt_ddp_order_t *order = &ddp->order;
    while (is_in_step(ddp) && !order->has_changed && order->cursor < order->last.count &&
           order->ahead < tt_ddp_most_ahead(ddp)) {
        const int code = order->last.starts[order->cursor];
        if (code == ROUND_END) {
            break;
        }
        tt_unit_t *unit = tt_ddp_unit(ddp, code / TT_UNIT_KINDS);
        if (unit->states[code % TT_UNIT_KINDS] != TT_UNIT_AWAY) {
            break; /* it is used now, and will come again */
        }
        order->cursor++;
        unit->is_ahead = true;
        order->ahead++;
        TT_TRY(start(ddp, code));
    }
    return TUTTI_OK;
}

static tutti_status_t want(tutti_ddp_t *ddp, int index)
{
    tt_unit_t *unit = tt_ddp_unit(ddp, index);
    const tt_unit_kind_t kind = tt_ddp_unit_kind(ddp);
    if (unit->states[kind] == TT_UNIT_AWAY) {
        const int code = code_of(index, kind);
        if (is_in_step(ddp)) {
            pass(ddp, code);
        }
        TT_TRY(start(ddp, code));
    }
    ddp->order.ahead -= unit->is_ahead;
    unit->is_ahead = false;
    TT_TRY(start_ahead(ddp));
    return tt_ddp_unit_wait(ddp, index, kind);
}

tutti_status_t tt_ddp_unit_want(tutti_ddp_t *ddp, int index)
{
    if (ddp->step.status < 0) {
        return tt_fail_again(ddp->step.status, ddp->step.error);
    }
    const tutti_status_t status = want(ddp, index);
    return status < 0 ? tt_ddp_fail(ddp, status) : TUTTI_OK;
}
