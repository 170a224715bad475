/* Units come in one order on all ranks.
 *
 * Each start is a call of the units' group, tagged with step, unit and kind, so that ranks that
 * come to other units are told so. Where all ranks have as many shards with data, a rank makes the
 * calls of its own program. Where some may have less to compute, each start is announced before:
 *
 *     computes    all_reduce [unit, −unit]      start
 *     follows     all_reduce [0, −∞]            start, and leave; or keep, where units stay near
 *     …
 *     all follow  the maximum is 0: the step has no more starts
 *
 * Where nothing is announced, and starts are calls of a group, a rank that has no more starts makes
 * a barrier of the group, which nobody waits for before the buckets are there: one that starts a
 * unit which others have not come to is told so by the calls, which differ.
 *
 * Where buckets leave in rounds (options.accumulate), all follow at the end of each of them, and
 * let go of all units: what a rank has kept or started early in a round in which others had no data
 * would be announced in the next one by those alone.
 *
 * Where a start is each rank's own business (unit_source.h), nothing is announced.
 *
 * Which units start, also early, unit_turns.h says. If what was started early was wanted by nobody,
 * nothing is started early in the next step.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "parallel/ddp/ddp_impl.h"

enum { LOOK_MS = 1 };    /* between looks at what comes meanwhile */
enum { FIRST_WORD = 2 }; /* of units; 0: none, 1: none, and something was wanted by nobody */

static int code_of(int unit, tt_unit_kind_t kind)
{
    return unit * TT_UNIT_KINDS + (int)kind;
}

static bool is_in_step(const tutti_ddp_t *ddp)
{
    return ddp->step.phase != TT_DDP_BETWEEN_STEPS;
}

/* ---- one order ------------------------------------------------------------------------------- */

/* Of which unit, in which kind, and whether of what is near. */
static int64_t word_of(int code, bool is_near)
{
    return FIRST_WORD + 2 * code + is_near;
}

static int code_in(int64_t word)
{
    return (int)(word - FIRST_WORD) / 2;
}

static bool is_word_near(int64_t word)
{
    return (word - FIRST_WORD) % 2 != 0;
}

static const char *name_of(const tutti_ddp_t *ddp, int64_t word)
{
    const tt_unit_t *unit = tt_ddp_unit(ddp, code_in(word) / TT_UNIT_KINDS);
    return unit->is_kept ? "the kept ones" : unit->name[0] == 0 ? "the root" : unit->name;
}

/* A rank that follows comes to it when it has had what was started before, for which it may need
 * this rank's part. */
static tutti_status_t reduce_words(tutti_ddp_t *ddp)
{
    tt_unit_source_t *source = &ddp->units.source;
    tutti_work_t *work;
    tutti_status_t status;
    if (source->ops->advance == NULL) {
        return tutti_all_reduce(ddp->units.group, ddp->order.word, TUTTI_MAX, NULL);
    }
    TT_TRY(tutti_all_reduce(ddp->units.group, ddp->order.word, TUTTI_MAX, &work));
    do {
        status = source->ops->advance(source);
        status = status < 0 ? status : tutti_work_wait(work, LOOK_MS);
    } while (status == TUTTI_PENDING);
    tutti_work_release(work);
    return status;
}

/* word: of a unit, or less than FIRST_WORD if this rank follows; becomes the one that all go by. */
static tutti_status_t announce(tutti_ddp_t *ddp, int64_t *word)
{
    int64_t *words = tutti_tensor_data(ddp->order.word);
    words[0] = *word;
    words[1] = *word >= FIRST_WORD ? -*word : INT64_MIN;
    TT_TRY(reduce_words(ddp));
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

static bool stays_near(const tutti_ddp_t *ddp, int code)
{
    return tt_ddp_unit(ddp, code / TT_UNIT_KINDS)->states[code % TT_UNIT_KINDS] == TT_UNIT_NEAR;
}

static tutti_status_t start_announced(tutti_ddp_t *ddp, int code)
{
    const int unit = code / TT_UNIT_KINDS;
    const bool was_near = stays_near(ddp, code);
    set_tag(ddp, code);
    TT_TRY(tt_ddp_unit_start(ddp, unit, (tt_unit_kind_t)(code % TT_UNIT_KINDS)));
    return is_in_step(ddp) ? tt_unit_turns_record(&ddp->order.turns, unit, was_near) : TUTTI_OK;
}

static tutti_status_t start(tutti_ddp_t *ddp, int code)
{
    if (is_in_step(ddp) && ddp->order.announces) {
        int64_t word = word_of(code, stays_near(ddp, code));
        set_tag(ddp, 0);
        TT_TRY(announce(ddp, &word));
    }
    return start_announced(ddp, code);
}

/* What is ahead here is wanted again there. */
static tutti_status_t make_way(tutti_ddp_t *ddp, int unit, tt_unit_kind_t kind, bool is_kept)
{
    if (!is_kept) {
        return tt_ddp_unit_leave(ddp, unit, kind);
    }
    TT_TRY(tt_ddp_unit_keep(ddp, unit, kind));
    return stays_near(ddp, code_of(unit, kind))
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH,
                         "ddp: another rank gathers %s of what has been kept of it, and this one "
                         "has kept nothing: every rank must call units in one order",
                         name_of(ddp, word_of(code_of(unit, kind), true)));
}

/* Another rank wants it. Until the next start of slices it may want it again of what is near. */
static tutti_status_t follow_start(tutti_ddp_t *ddp, int64_t word)
{
    const int code = code_in(word), unit = code / TT_UNIT_KINDS;
    const tt_unit_kind_t kind = (tt_unit_kind_t)(code % TT_UNIT_KINDS);
    TT_TRY(make_way(ddp, unit, kind, is_word_near(word)));
    TT_TRY(start_announced(ddp, code));
    TT_TRY(tt_ddp_unit_wait(ddp, unit, kind));
    return ddp->order.turns.keeps_near ? tt_ddp_unit_keep(ddp, unit, kind)
                                       : tt_ddp_unit_leave(ddp, unit, kind);
}

static tutti_status_t follow(tutti_ddp_t *ddp)
{
    bool has_followed = false;
    for (;;) {
        int64_t word = ddp->order.turns.ahead > 0 && !has_followed;
        set_tag(ddp, 0);
        TT_TRY(announce(ddp, &word));
        if (word < FIRST_WORD) {
            if (word != 0) {
                tt_unit_turns_forget(&ddp->order.turns);
            }
            return TUTTI_OK;
        }
        TT_TRY(follow_start(ddp, word));
        has_followed = true;
    }
}

static void drop_end(tutti_ddp_t *ddp, int index)
{
    tutti_work_release(ddp->order.ends[index]);
    ddp->order.ends[index] = NULL;
}

/* Also of the set, whose ranks gather what is near. */
static tutti_status_t say_end(tutti_ddp_t *ddp)
{
    const tt_unit_source_t *source = &ddp->units.source;
    tutti_group_t *groups[] = {ddp->units.group, source->near};
    for (int i = 0; i < 2; i++) {
        drop_end(ddp, i);
        if (tutti_group_size(groups[i]) > 1) {
            tutti_group_set_tag(groups[i], ddp->step.number << 24);
            TT_TRY(tutti_barrier(groups[i], &ddp->order.ends[i]));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_order_follow(tutti_ddp_t *ddp)
{
    const tt_unit_source_ops_t *ops = ddp->units.source.ops;
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    if (ddp->order.announces) {
        return follow(ddp);
    }
    if (ddp->order.turns.ahead > 0) {
        tt_unit_turns_forget(&ddp->order.turns);
    }
    return ops->is_local || ops->advance != NULL ? TUTTI_OK : say_end(ddp);
}

tutti_status_t tt_ddp_order_await_others(tutti_ddp_t *ddp)
{
    for (int i = 0; i < 2; i++) {
        if (ddp->order.ends[i] != NULL) {
            TT_TRY(tutti_work_wait(ddp->order.ends[i], 0));
            drop_end(ddp, i);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_order_end_round(tutti_ddp_t *ddp)
{
    tt_unit_turns_t *turns = &ddp->order.turns;
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
        tt_unit_turns_pass(turns, code_in(word) / TT_UNIT_KINDS);
        TT_TRY(follow_start(ddp, word));
    }
    tt_unit_turns_pass(turns, TT_UNIT_ROUND_END);
    return tt_unit_turns_record(turns, TT_UNIT_ROUND_END, false);
}

/* ---- what becomes of a unit ------------------------------------------------------------------ */

static bool is_away(const void *user, int unit)
{
    const tutti_ddp_t *ddp = user;
    const tt_unit_state_t state = tt_ddp_unit(ddp, unit)->states[tt_ddp_unit_kind(ddp)];
    return state == TT_UNIT_AWAY || state == TT_UNIT_NEAR;
}

/* The first failure is for good, and is what every other call says. */
static tutti_status_t settle(tutti_ddp_t *ddp, tutti_status_t status)
{
    return status < 0 ? tt_ddp_fail(ddp, status) : TUTTI_OK;
}

/* Ranks that do not announce starts see by their tags, which are no names, that they differ. */
static tutti_status_t settle_gather(tutti_ddp_t *ddp, int unit, tutti_status_t status)
{
    char cause[TT_ERROR_TEXT_BYTES];
    if (status != TUTTI_ERR_MISMATCH || ddp->order.announces) {
        return settle(ddp, status);
    }
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    return settle(ddp, TT_FAIL(status,
                               "ddp: rank %d came to %s, and another rank to another unit, or to "
                               "its step's end: every rank must call them in one order: %s",
                               tutti_group_rank(ddp->group),
                               name_of(ddp, word_of(code_of(unit, TT_UNIT_FULL), false)), cause));
}

static tutti_status_t start_unit(void *user, int unit)
{
    tutti_ddp_t *ddp = user;
    if (ddp->step.status < 0) {
        return tt_fail_again(ddp->step.status, ddp->step.error);
    }
    return settle_gather(ddp, unit, start(ddp, code_of(unit, tt_ddp_unit_kind(ddp))));
}

static tutti_status_t wait_for_unit(void *user, int unit)
{
    tutti_ddp_t *ddp = user;
    if (ddp->step.status < 0) {
        return tt_fail_again(ddp->step.status, ddp->step.error);
    }
    return settle_gather(ddp, unit, tt_ddp_unit_wait(ddp, unit, tt_ddp_unit_kind(ddp)));
}

static tutti_status_t leave_unit(void *user, int unit)
{
    tutti_ddp_t *ddp = user;
    return tt_ddp_unit_leave(ddp, unit, tt_ddp_unit_kind(ddp));
}

/* What was written is this rank's own affair; of anything else the others must hear. Behind a
 * failure nothing is kept: of what was to come some may not have started. */
static tutti_status_t keep_unit(void *user, int unit)
{
    tutti_ddp_t *ddp = user;
    if (ddp->step.status < 0) {
        return leave_unit(user, unit);
    }
    const tutti_status_t status = tt_ddp_unit_keep(ddp, unit, tt_ddp_unit_kind(ddp));
    return status == TUTTI_ERR_STATE ? status : settle(ddp, status);
}

static void tell_of_change(void *user, int unit)
{
    tutti_ddp_t *ddp = user;
    if (!ddp->order.has_told && tutti_group_rank(ddp->group) == 0) {
        ddp->order.has_told = true;
        tt_log(TT_LOG_INFO,
               "ddp: units come in another order than in the step before, first %s: nothing is "
               "gathered early in such a step",
               unit == TT_UNIT_ROUND_END
                   ? "the end of a round"
                   : name_of(ddp, word_of(code_of(unit, TT_UNIT_FULL), false)));
    }
}

static const tt_unit_actor_t actor = {.is_away = is_away,
                                      .start = start_unit,
                                      .wait = wait_for_unit,
                                      .leave = leave_unit,
                                      .keep = keep_unit,
                                      .tell = tell_of_change};

tutti_status_t tt_ddp_open_order(tutti_ddp_t *ddp, const tt_unit_source_ops_t *ops)
{
    const int size = tutti_group_size(ddp->group);
    tt_unit_turns_t *turns = &ddp->order.turns;
    ddp->order.announces =
        tutti_group_size(ddp->units.group) > 1 && !ops->is_local &&
        (ddp->options.uneven != TUTTI_DDP_EVEN || ddp->options.shards % size != 0);
    *turns = (tt_unit_turns_t){.keeps_after_forward = ddp->options.keep_after_forward,
                               .keeps_after_backward = ddp->options.keep_after_backward,
                               .keeps_near = ddp->units.near_ranks > 0 && ops->keep != NULL,
                               .most_ahead = tt_unit_most_ahead(ddp->options.prefetch),
                               .actor = &actor,
                               .user = ddp};
    TT_TRY(tt_unit_turns_open(turns, ddp->units.count));
    for (int u = 0; u < ddp->units.count; u++) {
        turns->units[u].is_kept = tt_ddp_unit(ddp, u)->is_kept;
    }
    return tutti_group_tensor(ddp->group, TUTTI_I64, TUTTI_SHAPE(2), &ddp->order.word);
}

void tt_ddp_close_order(tutti_ddp_t *ddp)
{
    for (int i = 0; i < 2; i++) {
        drop_end(ddp, i);
    }
    tutti_tensor_release(ddp->order.word);
    tt_unit_turns_close(&ddp->order.turns);
    tt_sharded_list_release(&ddp->order.calls);
    tt_sharded_list_release(&ddp->order.before);
}

tutti_status_t tt_ddp_unit_want(tutti_ddp_t *ddp, int unit)
{
    return tt_unit_turns_want(&ddp->order.turns, unit);
}

/* ---- what a program does --------------------------------------------------------------------- */

tutti_status_t tt_ddp_order_note(tutti_ddp_t *ddp, const tutti_sharded_action_t *call)
{
    const bool is_last =
        ddp->step.next_shard > 0 && ddp->step.next_shard == tt_ddp_shard_count(ddp);
    return is_in_step(ddp) && is_last && tt_ddp_has_units(ddp)
               ? tt_sharded_put(&ddp->order.calls, call)
               : TUTTI_OK;
}

tutti_status_t tt_ddp_order_take(tutti_ddp_t *ddp, const tutti_sharded_action_t *call)
{
    const tutti_status_t noted = tt_ddp_order_note(ddp, call);
    const tutti_status_t status = tt_unit_turns_take(&ddp->order.turns, call);
    return status < 0 ? status : settle(ddp, noted);
}

tutti_status_t tt_ddp_units_begin_step(tutti_ddp_t *ddp)
{
    ddp->order.calls.count = 0;
    if (!tt_ddp_has_units(ddp)) {
        return TUTTI_OK;
    }
    TT_TRY(tt_ddp_store_begin_step(ddp));
    ddp->order.turns.holds_all = ddp->driver != NULL;
    return tt_unit_turns_begin_step(&ddp->order.turns);
}

void tt_ddp_order_end_step(tutti_ddp_t *ddp)
{
    const tt_sharded_list_t before = ddp->order.before;
    ddp->order.before = ddp->order.calls;
    ddp->order.calls = before;
}
