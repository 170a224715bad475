/* Checks of plans: each row by itself, then rows side by side; whether ranks wait for each other
 * for ever, a simulation without costs finds. */
#include <stdarg.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"
#include "parallel/ddp/unit_turns.h"

typedef struct {
    bool is_there, is_early; /* it has come, and nobody has used it yet */
    bool is_near;            /* a part of it was kept */
    int used;                /* forwards and backwards under way */
    bool has_backward;       /* one of them is a backward, which may end with the whole */
    bool is_held;
} look_t;

typedef struct {
    const tutti_sharded_plan_t *plan;
    look_t *looks; /* [units] */
    int rank, at;
    int early, buckets;
} check_t;

__attribute__((format(printf, 2, 3))) static tutti_status_t blame(const check_t *check,
                                                                  const char *format, ...)
{
    char text[128], why[160];
    va_list args;
    va_start(args, format);
    tt_format_list(why, sizeof why, format, args);
    va_end(args);
    (void)tutti_sharded_action_text(check->plan, &check->plan->rows[check->rank].actions[check->at],
                                    text, sizeof text);
    return TT_FAIL(TUTTI_ERR_ARG, "sharded_check: rank %d, action %d (%s): %s", check->rank,
                   check->at, text, why);
}

static bool is_use(const tutti_sharded_action_t *action)
{
    return action->kind == TUTTI_SHARDED_FORWARD || action->kind == TUTTI_SHARDED_BACKWARD ||
           action->kind == TUTTI_SHARDED_UNSHARD;
}

/* Whether what stands behind the gathers from here on uses a unit that was early until now: who
 * wants a unit first starts those behind it. */
static bool is_wanted_next(const check_t *check)
{
    const tutti_sharded_row_t *row = &check->plan->rows[check->rank];
    int at = check->at;
    while (at < row->count && row->actions[at].kind == TUTTI_SHARDED_GATHER) {
        at++;
    }
    return at < row->count && is_use(&row->actions[at]) && row->actions[at].index >= 0 &&
           row->actions[at].index < check->plan->options.unit_count &&
           check->looks[row->actions[at].index].is_early;
}

static tutti_status_t gather(check_t *check, look_t *look, const tutti_sharded_action_t *action)
{
    const bool is_early = action->is_early;
    const tutti_sharded_options_t *o = &check->plan->options;
    const int most = o->holds_all ? o->unit_count : tt_unit_most_ahead(o->prefetch);
    if (look->is_there) {
        return blame(check, "the unit is there");
    }
    if (look->is_near != action->is_near) {
        return blame(check,
                     look->is_near ? "what was kept of it is not used" : "nothing was kept of it");
    }
    const int early = check->early - is_wanted_next(check) + is_early;
    *look = (look_t){.is_there = true, .is_early = is_early};
    check->early += is_early;
    return early <= most
               ? TUTTI_OK
               : blame(check, "%d units are gathered early; prefetch allows %d", early, most);
}

/* It goes, or a part of it stays near. */
static tutti_status_t release(check_t *check, look_t *look, bool is_kept)
{
    if (!look->is_there && (is_kept || !look->is_near)) {
        return blame(check, "the unit is not there");
    }
    if (look->used > 0 || look->is_held) {
        return blame(check, "the unit is in use");
    }
    check->early -= look->is_early;
    *look = (look_t){.is_near = is_kept};
    return TUTTI_OK;
}

static tutti_status_t use(check_t *check, look_t *look)
{
    if (check->plan->options.stage == 3 && !look->is_there) {
        return blame(check, "the unit is not there");
    }
    check->early -= look->is_early;
    look->is_early = false;
    return TUTTI_OK;
}

static tutti_status_t begin(check_t *check, look_t *look, bool is_backward)
{
    TT_TRY(use(check, look));
    look->used++;
    look->has_backward |= is_backward;
    return TUTTI_OK;
}

static tutti_status_t end(const check_t *check, look_t *look)
{
    if (look->used == 0) {
        return blame(check, "it has not begun");
    }
    look->used--;
    return check->plan->options.stage < 3 || look->is_there ? TUTTI_OK
                                                            : blame(check, "the unit has gone");
}

static void end_whole(const check_t *check)
{
    for (int u = 0; u < check->plan->options.unit_count; u++) {
        look_t *look = &check->looks[u];
        look->used = look->has_backward ? 0 : look->used;
        look->has_backward = false;
    }
}

static tutti_status_t leave(check_t *check, int bucket)
{
    return bucket == check->buckets++
               ? TUTTI_OK
               : blame(check, "buckets leave in their order, and the next one is %d",
                       check->buckets - 1);
}

static tutti_status_t finish(const check_t *check)
{
    return check->buckets == check->plan->options.bucket_count
               ? TUTTI_OK
               : blame(check, "%d of %d buckets have left", check->buckets,
                       check->plan->options.bucket_count);
}

static tutti_status_t check_action(check_t *check, const tutti_sharded_action_t *action)
{
    const tutti_sharded_options_t *o = &check->plan->options;
    const bool is_bucket = action->kind == TUTTI_SHARDED_SCATTER,
               is_free =
                   action->kind >= TUTTI_SHARDED_SHARD && action->kind != TUTTI_SHARDED_GATHER &&
                   action->kind != TUTTI_SHARDED_RELEASE && action->kind != TUTTI_SHARDED_KEEP;
    const int count = is_bucket ? o->bucket_count : o->unit_count;
    if (action->kind > TUTTI_SHARDED_PUBLISH || action->index < 0 ||
        (!is_free && action->index >= count)) {
        return blame(check, "there is no such %s", is_bucket ? "bucket" : "unit");
    }
    look_t *look = &check->looks[is_free || is_bucket ? 0 : action->index];
    switch (action->kind) {
    case TUTTI_SHARDED_GATHER:
        return gather(check, look, action);
    case TUTTI_SHARDED_RELEASE:
    case TUTTI_SHARDED_KEEP:
        return release(check, look, action->kind == TUTTI_SHARDED_KEEP);
    case TUTTI_SHARDED_FORWARD:
    case TUTTI_SHARDED_BACKWARD:
        return begin(check, look, action->kind == TUTTI_SHARDED_BACKWARD);
    case TUTTI_SHARDED_FORWARD_END:
    case TUTTI_SHARDED_BACKWARD_END:
        return end(check, look);
    case TUTTI_SHARDED_UNSHARD:
        look->is_held = true;
        return use(check, look);
    case TUTTI_SHARDED_RESHARD:
        look->is_held = false;
        return TUTTI_OK;
    case TUTTI_SHARDED_END:
        end_whole(check);
        return TUTTI_OK;
    case TUTTI_SHARDED_SCATTER:
        return leave(check, action->index);
    case TUTTI_SHARDED_FINISH:
        return finish(check);
    case TUTTI_SHARDED_STEP: /* ends what is held */
        for (int u = 0; u < o->unit_count; u++) {
            check->looks[u].is_held = false;
        }
        return TUTTI_OK;
    default:
        return TUTTI_OK;
    }
}

static tutti_status_t check_row(const tutti_sharded_plan_t *plan, int rank, look_t *looks)
{
    const tutti_sharded_row_t *row = &plan->rows[rank];
    const int units = plan->options.unit_count;
    check_t check = {.plan = plan, .looks = looks, .rank = rank};
    for (int u = 0; u < units; u++) {
        looks[u] = (look_t){.is_there = plan->options.stage == 3 &&
                                        tt_sharded_is_resident(&plan->options.units[u])};
    }
    for (check.at = 0; check.at < row->count; check.at++) {
        TT_TRY(check_action(&check, &row->actions[check.at]));
    }
    for (int u = 0; u < units; u++) {
        if (looks[u].is_near || (looks[u].is_there && !plan->options.units[u].is_kept)) {
            return TT_FAIL(TUTTI_ERR_ARG, "sharded_check: rank %d: unit %d (%s) does not go", rank,
                           u,
                           plan->options.units[u].name != NULL ? plan->options.units[u].name : "");
        }
    }
    return TUTTI_OK;
}

/* The next gather of a row from `at` on; its end. */
static int next_gather(const tutti_sharded_row_t *row, int at)
{
    while (at < row->count && row->actions[at].kind != TUTTI_SHARDED_GATHER) {
        at++;
    }
    return at;
}

/* A rank's gathers against those of rank 0. */
static tutti_status_t check_order(const tutti_sharded_plan_t *plan, int rank)
{
    const tutti_sharded_row_t *a = &plan->rows[0], *b = &plan->rows[rank];
    int i = next_gather(a, 0), j = next_gather(b, 0);
    while (i < a->count && j < b->count && a->actions[i].index == b->actions[j].index &&
           a->actions[i].is_near == b->actions[j].is_near) {
        i = next_gather(a, i + 1);
        j = next_gather(b, j + 1);
    }
    if (i == a->count && j == b->count) {
        return TUTTI_OK;
    }
    const bool is_longer = j < b->count;
    const check_t check = {.plan = plan, .rank = is_longer ? rank : 0, .at = is_longer ? j : i};
    return blame(&check, "rank %d gathers %s in this place", is_longer ? 0 : rank,
                 i < a->count && is_longer ? "another unit" : "nothing more");
}

tutti_status_t tutti_sharded_check(const tutti_sharded_plan_t *plan)
{
    TT_WANT("sharded_check", plan);
    tutti_sharded_simulation_t simulation;
    look_t *looks =
        tt_alloc_array((size_t)plan->options.unit_count, sizeof *looks, "sharded check");
    TT_TRY_ALLOC(looks);
    tutti_status_t status = TUTTI_OK;
    for (int rank = 0; rank < plan->options.ranks && status >= 0; rank++) {
        status = check_row(plan, rank, looks);
    }
    const int ordered = plan->options.is_shared ? 0 : plan->options.ranks;
    for (int rank = 1; rank < ordered && status >= 0; rank++) {
        status = check_order(plan, rank);
    }
    tt_free(looks);
    TT_TRY(status);
    TT_TRY(tutti_sharded_simulate(plan, NULL, &simulation));
    tutti_sharded_simulation_release(&simulation);
    return TUTTI_OK;
}
