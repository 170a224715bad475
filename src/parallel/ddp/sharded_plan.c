/* Plans of steps: a rank's calls go through the machine that a step goes through (unit_turns.h),
 * and what comes out is written down between them.
 *
 *     calls    forward 1 ──────────────── forward_end 1 ───────────── backward 1
 *     row      gather 1, gather 2, forward 1, forward_end 1, release 1, …
 *
 * The first step has no order. A later one foresees that of the first: it is planned by planning
 * the first. Ranks with fewer shards than others follow the order of a rank that has most.
 */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/reduce/tree.h"
#include "parallel/ddp/unit_turns.h"

enum { RANKS_MAX = 4096, SHARDS_MAX = 1 << 20 };

/* ---- options --------------------------------------------------------------------------------- */

static tutti_status_t check_units(const tutti_sharded_options_t *o)
{
    for (int u = 0; u < o->unit_count; u++) {
        const tutti_sharded_unit_t *unit = &o->units[u];
        const bool is_time = isfinite(unit->forward) && isfinite(unit->backward) &&
                             unit->forward >= 0 && unit->backward >= 0;
        if (!is_time) {
            return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: unit %d takes %g and %g seconds", u,
                           unit->forward, unit->backward);
        }
        if (unit->is_kept && (u == 0 || u + 1 < o->unit_count)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "sharded_plan: unit %d of %d is kept: that is the last one, behind the "
                           "root",
                           u, o->unit_count);
        }
    }
    for (int b = 0; b < o->bucket_count; b++) {
        if (o->buckets[b].unit < 0 || o->buckets[b].unit >= o->unit_count) {
            return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: bucket %d is of unit %d of %d", b,
                           o->buckets[b].unit, o->unit_count);
        }
    }
    return TUTTI_OK;
}

/* Calls are of units that there are, and what begins ends; a backward may end with the whole. */
static tutti_status_t check_calls(const tutti_sharded_options_t *o)
{
    int forwards = 0, scatters = 0;
    for (int i = 0; i < o->call_count; i++) {
        const tutti_sharded_action_t *call = &o->calls[i];
        const bool is_bucket = call->kind == TUTTI_SHARDED_SCATTER;
        const int count = is_bucket ? o->bucket_count : o->unit_count;
        if (call->kind > TUTTI_SHARDED_RESHARD || call->index < 0 || call->index >= count) {
            return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: call %d: no kind %d, or no %s %d", i,
                           (int)call->kind, is_bucket ? "bucket" : "unit", call->index);
        }
        forwards += call->kind == TUTTI_SHARDED_FORWARD;
        forwards -= call->kind == TUTTI_SHARDED_FORWARD_END;
        if (forwards < 0 || (is_bucket && call->index != scatters++)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "sharded_plan: call %d: a forward ends that has not begun, or buckets "
                           "leave in another order than theirs",
                           i);
        }
    }
    return forwards == 0 ? TUTTI_OK
                         : TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: %d forwards do not end", forwards);
}

static tutti_status_t check_options(const tutti_sharded_options_t *o)
{
    if (o->stage < 0 || o->stage > 3) {
        return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: stage %d: want 0 to 3", o->stage);
    }
    if (o->ranks < 1 || o->ranks > RANKS_MAX || o->shards < 1 || o->shards > SHARDS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sharded_plan: %d shards on %d ranks: want 1 to %d, on 1 to %d", o->shards,
                       o->ranks, SHARDS_MAX, RANKS_MAX);
    }
    if (o->rows < 1 || o->ranks % o->rows != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: %d rows of %d ranks: want as many in each",
                       o->rows, o->ranks);
    }
    if (o->reshard_ranks < 0 ||
        (o->reshard_ranks > 0 && o->ranks / o->rows % o->reshard_ranks != 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sharded_plan: %d of %d ranks keep a unit: want a divisor of %d, or 0",
                       o->reshard_ranks, o->ranks / o->rows, o->ranks / o->rows);
    }
    if (o->reshard_ranks > 1 && o->keep_after_forward) {
        return TT_FAIL(
            TUTTI_ERR_ARG,
            "sharded_plan: %d ranks keep a unit, and keep_after_forward keeps it whole on "
            "each: take one of them",
            o->reshard_ranks);
    }
    if (o->units == NULL || o->unit_count < 1 || o->bucket_count < 0 || o->call_count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "sharded_plan: %d units, %d buckets, %d calls: want the root",
                       o->unit_count, o->bucket_count, o->call_count);
    }
    TT_TRY(check_units(o));
    return check_calls(o);
}

static tutti_sharded_options_t with_defaults(const tutti_sharded_options_t *options)
{
    tutti_sharded_options_t o = *options;
    o.ranks = o.ranks == 0 ? 1 : o.ranks;
    o.shards = o.shards == 0 ? o.ranks : o.shards;
    o.rows = o.rows == 0 ? 1 : o.rows;
    o.keep_after_forward |= o.reshard_ranks == 1;
    o.bucket_count = o.buckets == NULL ? 0 : o.bucket_count;
    o.call_count = o.calls == NULL ? 0 : o.call_count;
    return o;
}

/* ---- calls that nobody gave ------------------------------------------------------------------ */

static bool has_place(const tutti_sharded_options_t *o, int unit)
{
    return unit > 0 && !o->units[unit].is_kept;
}

/* As backward goes: the root's is the last. */
static void fill_buckets(const tutti_sharded_options_t *o, tutti_sharded_bucket_t *buckets,
                         int *count)
{
    *count = 0;
    for (int u = o->unit_count; u-- > 0;) {
        if (o->units[u].bytes > 0) {
            buckets[(*count)++] = (tutti_sharded_bucket_t){u, o->units[u].bytes};
        }
    }
}

typedef struct {
    const tutti_sharded_options_t *options;
    tt_sharded_list_t *calls;
    int next_bucket;
    tutti_status_t status;
} script_t;

static void call(script_t *script, tutti_sharded_kind_t kind, int index)
{
    if (script->status >= 0) {
        script->status =
            tt_sharded_put(script->calls, &(tutti_sharded_action_t){.kind = kind, .index = index});
    }
}

/* A bucket leaves when its unit's backward has ended, and those before it have left. */
static void leave_from(script_t *script, int unit)
{
    const tutti_sharded_options_t *o = script->options;
    while (script->next_bucket < o->bucket_count) {
        const int of = o->buckets[script->next_bucket].unit;
        if (unit > 0 && (!has_place(o, of) || of < unit)) {
            return;
        }
        call(script, TUTTI_SHARDED_SCATTER, script->next_bucket++);
    }
}

static tutti_status_t write_calls(const tutti_sharded_options_t *o, tt_sharded_list_t *calls)
{
    script_t script = {.options = o, .calls = calls};
    call(&script, TUTTI_SHARDED_FORWARD, 0);
    for (int u = 1; u < o->unit_count; u++) {
        if (has_place(o, u)) {
            call(&script, TUTTI_SHARDED_FORWARD, u);
            call(&script, TUTTI_SHARDED_FORWARD_END, u);
        }
    }
    call(&script, TUTTI_SHARDED_FORWARD_END, 0);
    call(&script, TUTTI_SHARDED_BACKWARD, 0);
    for (int u = o->unit_count; u-- > 1;) {
        if (has_place(o, u)) {
            call(&script, TUTTI_SHARDED_BACKWARD, u);
            call(&script, TUTTI_SHARDED_BACKWARD_END, u);
            leave_from(&script, u);
        }
    }
    leave_from(&script, 0);
    call(&script, TUTTI_SHARDED_END, 0);
    return script.status;
}

/* ---- a rank's row ---------------------------------------------------------------------------- */

typedef struct {
    const tutti_sharded_options_t *options;
    const tt_sharded_list_t *order; /* of the ranks with most shards; NULL: it follows nobody */
    tt_unit_turns_t turns;
    tt_sharded_list_t row;
    bool *is_there; /* [units] */
    bool *is_near;  /* [units] a part of it stays */
    int next_bucket;
} planner_t;

static tutti_status_t put(planner_t *p, tutti_sharded_kind_t kind, int index)
{
    return tt_sharded_put(&p->row, &(tutti_sharded_action_t){.kind = kind, .index = index});
}

static bool is_away(const void *user, int unit)
{
    const planner_t *p = user;
    return !p->is_there[unit];
}

static tutti_status_t start(void *user, int unit)
{
    planner_t *p = user;
    const bool is_near = p->is_near[unit];
    p->is_there[unit] = true;
    p->is_near[unit] = false;
    TT_TRY(
        tt_sharded_put(&p->row, &(tutti_sharded_action_t){.kind = TUTTI_SHARDED_GATHER,
                                                          .index = unit,
                                                          .is_early = p->turns.units[unit].is_ahead,
                                                          .is_near = is_near}));
    return p->turns.is_in_step ? tt_unit_turns_record(&p->turns, unit, is_near) : TUTTI_OK;
}

static tutti_status_t wait_for(void *user, int unit)
{
    (void)user, (void)unit;
    return TUTTI_OK;
}

static tutti_status_t leave(void *user, int unit)
{
    planner_t *p = user;
    if (!p->is_there[unit] && !p->is_near[unit]) {
        return TUTTI_OK;
    }
    p->is_there[unit] = p->is_near[unit] = false;
    return put(p, TUTTI_SHARDED_RELEASE, unit);
}

static tutti_status_t keep(void *user, int unit)
{
    planner_t *p = user;
    if (!p->is_there[unit]) {
        return TUTTI_OK;
    }
    p->is_there[unit] = false;
    p->is_near[unit] = true;
    return put(p, TUTTI_SHARDED_KEEP, unit);
}

static const tt_unit_actor_t actor = {
    .is_away = is_away, .start = start, .wait = wait_for, .leave = leave, .keep = keep};

/* What brings units stands behind them, what lets them go in front. */
static tutti_status_t take(planner_t *p, const tutti_sharded_action_t *one)
{
    const bool brings = one->kind == TUTTI_SHARDED_FORWARD || one->kind == TUTTI_SHARDED_BACKWARD ||
                        one->kind == TUTTI_SHARDED_UNSHARD;
    const bool has_units = p->options->stage == 3;
    TT_TRY(brings || !has_units ? TUTTI_OK : tt_sharded_put(&p->row, one));
    TT_TRY(has_units ? tt_unit_turns_take(&p->turns, one) : TUTTI_OK);
    return brings || !has_units ? tt_sharded_put(&p->row, one) : TUTTI_OK;
}

static tutti_status_t plan_shard(planner_t *p, int shard, bool is_last)
{
    const tutti_sharded_options_t *o = p->options;
    TT_TRY(put(p, TUTTI_SHARDED_SHARD, shard));
    for (int i = 0; i < o->call_count; i++) {
        const bool is_bucket = o->calls[i].kind == TUTTI_SHARDED_SCATTER;
        p->next_bucket += is_bucket && is_last;
        TT_TRY(is_bucket && !is_last ? TUTTI_OK : take(p, &o->calls[i]));
    }
    return TUTTI_OK;
}

/* This rank has nothing more to compute: it takes part in the others' starts. */
static tutti_status_t follow(planner_t *p)
{
    const int own = p->turns.now.count;
    if (p->order == NULL) {
        return TUTTI_OK;
    }
    for (int i = own; i < p->order->count; i++) {
        const int unit = p->order->actions[i].index;
        TT_TRY(p->order->actions[i].is_near ? keep(p, unit) : leave(p, unit));
        TT_TRY(start(p, unit));
        TT_TRY(p->turns.keeps_near ? keep(p, unit) : leave(p, unit));
    }
    return TUTTI_OK;
}

static tutti_status_t leave_all(planner_t *p, bool is_stepped)
{
    for (int u = 0; u < p->options->unit_count; u++) {
        const bool stays = p->options->units[u].is_kept
                               ? tt_sharded_is_resident(&p->options->units[u])
                               : tt_unit_turns_stays(&p->turns, u);
        TT_TRY(is_stepped || !stays ? leave(p, u) : TUTTI_OK);
    }
    return TUTTI_OK;
}

/* What is done behind the shards: buckets that have not left do so, averages are waited for. */
static tutti_status_t plan_end(planner_t *p)
{
    const tutti_sharded_options_t *o = p->options;
    while (p->next_bucket < o->bucket_count) {
        TT_TRY(put(p, TUTTI_SHARDED_SCATTER, p->next_bucket++));
    }
    TT_TRY(follow(p));
    if (p->order == NULL && p->turns.ahead > 0) {
        tt_unit_turns_forget(&p->turns);
    }
    tt_unit_turns_rest(&p->turns, false);
    TT_TRY(leave_all(p, false));
    TT_TRY(put(p, TUTTI_SHARDED_FINISH, 0));
    TT_TRY(put(p, TUTTI_SHARDED_STEP, 0));
    tt_unit_turns_let_go(&p->turns);
    TT_TRY(leave_all(p, true));
    TT_TRY(o->stage > 0 ? put(p, TUTTI_SHARDED_PUBLISH, 0) : TUTTI_OK);
    const int last = o->unit_count - 1;
    return o->stage == 3 && o->units[last].is_kept ? tt_unit_turns_want(&p->turns, last) : TUTTI_OK;
}

static tutti_status_t plan_step(planner_t *p, int shards)
{
    TT_TRY(p->options->stage == 3 ? tt_unit_turns_begin_step(&p->turns) : TUTTI_OK);
    for (int i = 0; i < shards; i++) {
        TT_TRY(plan_shard(p, i, i + 1 == shards));
    }
    return plan_end(p);
}

static tutti_status_t open_planner(planner_t *p, const tt_sharded_list_t *foreseen)
{
    const tutti_sharded_options_t *o = p->options;
    p->turns = (tt_unit_turns_t){.keeps_after_forward = o->keep_after_forward,
                                 .keeps_after_backward = o->keep_after_backward,
                                 .keeps_near = tt_sharded_keeps_near(o),
                                 .holds_all = o->holds_all,
                                 .most_ahead = tt_unit_most_ahead(o->prefetch),
                                 .actor = &actor,
                                 .user = p};
    TT_TRY(tt_unit_turns_open(&p->turns, o->unit_count));
    p->turns.units[o->unit_count - 1].is_kept = o->units[o->unit_count - 1].is_kept;
    p->is_there = tt_alloc_array((size_t)o->unit_count, sizeof(bool), "sharded plan");
    TT_TRY_ALLOC(p->is_there);
    p->is_near = tt_alloc_array((size_t)o->unit_count, sizeof(bool), "sharded plan");
    TT_TRY_ALLOC(p->is_near);
    p->is_there[o->unit_count - 1] = tt_sharded_is_resident(&o->units[o->unit_count - 1]);
    for (int i = 0; foreseen != NULL && i < foreseen->count; i++) {
        TT_TRY(tt_sharded_put(&p->turns.now, &foreseen->actions[i]));
    }
    return TUTTI_OK;
}

static void close_planner(planner_t *p)
{
    tt_unit_turns_close(&p->turns);
    tt_free(p->is_there);
    tt_free(p->is_near);
    tt_sharded_list_release(&p->row);
}

/* `foreseen`: starts of the step before. The row, and the starts, if they are wanted. */
static tutti_status_t plan_rank(planner_t *p, int shards, const tt_sharded_list_t *foreseen,
                                tt_sharded_list_t *row, tt_sharded_list_t *starts)
{
    tutti_status_t status = open_planner(p, foreseen);
    if (status >= 0) {
        status = plan_step(p, shards);
    }
    if (status >= 0 && row != NULL) {
        *row = p->row;
        p->row = (tt_sharded_list_t){0};
    }
    if (status >= 0 && starts != NULL) {
        *starts = p->turns.now;
        p->turns.now = (tt_sharded_list_t){0};
    }
    close_planner(p);
    return status;
}

/* ---- all rows -------------------------------------------------------------------------------- */

static int shards_of(const tutti_sharded_options_t *o, int rank)
{
    const tt_leaves_t share = tt_tree_share(o->shards, o->ranks, rank);
    return share.end - share.begin;
}

static tutti_status_t give(const tt_sharded_list_t *list, tutti_sharded_row_t *out)
{
    const size_t bytes = (size_t)list->count * sizeof *out->actions;
    out->actions = tt_alloc(bytes + 1, "sharded row");
    TT_TRY_ALLOC(out->actions);
    memcpy(out->actions, list->actions, bytes);
    out->count = list->count;
    return TUTTI_OK;
}

/* Those of all ranks with as many shards. */
static tutti_status_t give_all(tutti_sharded_plan_t *plan, int shards, const tt_sharded_list_t *row)
{
    for (int rank = 0; rank < plan->options.ranks; rank++) {
        if (shards_of(&plan->options, rank) == shards) {
            TT_TRY(give(row, &plan->rows[rank]));
        }
    }
    return TUTTI_OK;
}

/* Shares differ by one at most. Ranks that share parameters follow nobody: each foresees its own
 * starts. */
static tutti_status_t plan_rows(tutti_sharded_plan_t *plan, const tutti_sharded_options_t *o,
                                const tt_sharded_list_t *foreseen)
{
    const bool foresees_first = !o->is_first && foreseen == NULL;
    const int most = (o->shards + o->ranks - 1) / o->ranks, least = o->shards / o->ranks;
    tt_sharded_list_t first = {0}, starts = {0}, row = {0};
    tutti_status_t status = TUTTI_OK;
    if (foresees_first) {
        status = plan_rank(&(planner_t){.options = o}, most, NULL, NULL, &first);
    }
    foreseen = foreseen == NULL ? &first : foreseen;
    if (status >= 0) {
        status = plan_rank(&(planner_t){.options = o}, most, foreseen, &row, &starts);
    }
    if (status >= 0) {
        status = give_all(plan, most, &row);
    }
    if (status >= 0 && least < most) {
        tt_sharded_list_release(&row);
        if (foresees_first && o->is_shared) {
            tt_sharded_list_release(&first);
            status = plan_rank(&(planner_t){.options = o}, least, NULL, NULL, &first);
        }
        planner_t planner = {.options = o, .order = o->is_shared ? NULL : &starts};
        status = status < 0 ? status : plan_rank(&planner, least, foreseen, &row, NULL);
        status = status < 0 ? status : give_all(plan, least, &row);
    }
    tt_sharded_list_release(&first);
    tt_sharded_list_release(&starts);
    tt_sharded_list_release(&row);
    return status;
}

/* ---- what a plan has of its own -------------------------------------------------------------- */

static size_t bytes_of_names(const tutti_sharded_options_t *o)
{
    size_t bytes = 0;
    for (int u = 0; u < o->unit_count; u++) {
        bytes += o->units[u].name == NULL ? 0 : strlen(o->units[u].name) + 1;
    }
    return bytes;
}

/* Units, then buckets (there may be one for each unit), then names. */
static tutti_status_t copy_options(tutti_sharded_plan_t *plan, const tutti_sharded_options_t *o)
{
    const size_t units = (size_t)o->unit_count * sizeof *o->units,
                 most = (size_t)(o->buckets == NULL ? o->unit_count : o->bucket_count),
                 buckets = most * sizeof *o->buckets;
    char *memory = tt_alloc(units + buckets + bytes_of_names(o) + 1, "sharded plan");
    TT_TRY_ALLOC(memory);
    tutti_sharded_unit_t *copies = (void *)memory;
    tutti_sharded_bucket_t *own = (void *)(memory + units);
    char *names = memory + units + buckets;
    plan->options = *o;
    plan->memory = memory;
    memcpy(copies, o->units, units);
    for (int u = 0; u < o->unit_count; u++) {
        if (o->units[u].name != NULL) {
            const size_t length = strlen(o->units[u].name) + 1;
            copies[u].name = memcpy(names, o->units[u].name, length);
            names += length;
        }
    }
    if (o->buckets != NULL) {
        memcpy(own, o->buckets, buckets);
    } else {
        fill_buckets(o, own, &plan->options.bucket_count);
    }
    plan->options.units = copies;
    plan->options.buckets = own;
    plan->rows = tt_alloc_array((size_t)o->ranks, sizeof *plan->rows, "sharded plan");
    TT_TRY_ALLOC(plan->rows);
    return TUTTI_OK;
}

static tutti_status_t fill(tutti_sharded_plan_t *plan, const tutti_sharded_options_t *options,
                           const tt_sharded_list_t *foreseen)
{
    tt_sharded_list_t calls = {0};
    TT_TRY(copy_options(plan, options));
    tutti_status_t status = options->calls == NULL ? write_calls(&plan->options, &calls) : TUTTI_OK;
    tutti_sharded_options_t with_calls = plan->options;
    if (options->calls == NULL) {
        with_calls.calls = calls.actions;
        with_calls.call_count = calls.count;
    }
    if (status >= 0) {
        status = plan_rows(plan, &with_calls, foreseen);
    }
    tt_sharded_list_release(&calls);
    plan->options.calls = NULL;
    plan->options.call_count = 0;
    return status;
}

tutti_status_t tt_sharded_plan(const tutti_sharded_options_t *options,
                               const tt_sharded_list_t *foreseen, tutti_sharded_plan_t *out)
{
    const tutti_sharded_options_t o = with_defaults(options);
    tutti_sharded_plan_t plan = {0};
    TT_TRY(check_options(&o));
    const tutti_status_t status = fill(&plan, &o, foreseen);
    if (status < 0) {
        tutti_sharded_plan_release(&plan);
        return status;
    }
    *out = plan;
    return TUTTI_OK;
}

tutti_status_t tutti_sharded_plan(const tutti_sharded_options_t *options, tutti_sharded_plan_t *out)
{
    TT_WANT("sharded_plan", options);
    TT_WANT("sharded_plan", out);
    return tt_sharded_plan(options, NULL, out);
}

void tutti_sharded_plan_release(tutti_sharded_plan_t *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int rank = 0; plan->rows != NULL && rank < plan->options.ranks; rank++) {
        tt_free(plan->rows[rank].actions);
    }
    tt_free(plan->rows);
    tt_free(plan->memory);
    *plan = (tutti_sharded_plan_t){0};
}
