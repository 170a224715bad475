/* A plan runs with a clock: the rank whose clock is behind goes on until it has to wait.
 *
 *     computing  |── forward 1 ──|········|── forward 2 ──|      waits for the gather of unit 2
 *     wire            |──── gather 2 ────|── gather 3 ──|
 *
 * What wires carry, and who is behind, is sharded_wire.c's.
 *
 * As in the reducer (reducer_memory.c) who fills one bucket more than may be under way waits for
 * the oldest, but not for ever: ranks with fewer shards would wait for those that wait for them.
 */
#include <math.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "parallel/ddp/sharded_walk.h"
#include "parallel/reduce/reducer.h"

/* ---- gathers --------------------------------------------------------------------------------- */

static bool is_gathered(const tt_walk_t *w, int unit)
{
    return w->size > 1 && !w->o->is_shared && w->o->units[unit].bytes > 0;
}

/* Beside what is kept. */
static size_t memory_of(const tt_walk_t *w, const tt_walk_rank_t *rank, int unit)
{
    const tutti_sharded_unit_t *u = &w->o->units[unit];
    return is_gathered(w, unit) && !tt_sharded_is_resident(u) && !rank->has_stepped ? u->bytes : 0;
}

static size_t bytes_of(const tt_walk_t *w, const tt_walk_rank_t *rank, int unit)
{
    const tutti_sharded_unit_t *u = &w->o->units[unit];
    return rank->has_stepped && u->kept_bytes > 0 ? u->kept_bytes : u->bytes;
}

/* Of what stays near. */
static size_t part_of(const tt_walk_t *w, int unit)
{
    return is_gathered(w, unit) ? w->o->units[unit].bytes / (size_t)w->set : 0;
}

static void take_memory(tt_walk_rank_t *rank, size_t bytes)
{
    rank->unit_bytes += bytes;
    rank->peak_unit_bytes = tt_max_size(rank->peak_unit_bytes, rank->unit_bytes);
}

/* The next gather of a rank's row or set. */
static tt_walk_post_t next_gather(tt_walk_t *w, int index, int unit)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    const bool is_near = rank->is_near[unit];
    const int count = is_near ? w->set : w->size, group = index / count;
    tt_walk_transfer_t *all =
        (is_near ? w->nears : w->gathers) + (size_t)group * (size_t)w->gather_count;
    return (tt_walk_post_t){.transfer = &all[is_near ? rank->nears++ : rank->gathers++],
                            .first = group * count,
                            .count = count,
                            .bytes = (double)bytes_of(w, rank, unit),
                            .is_near = is_near};
}

static bool gather(tt_walk_t *w, int index, int unit)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    if (!is_gathered(w, unit)) {
        return true;
    }
    if (!rank->is_posted) {
        const tt_walk_post_t post = next_gather(w, index, unit);
        const tt_walk_transfer_t *t = post.transfer;
        rank->is_posted = true;
        rank->coming[unit] = post.transfer;
        take_memory(rank, memory_of(w, rank, unit));
        tt_walk_come(w, index, &post);
        if (w->announces) {
            rank->clock = t->is_done ? fmax(rank->clock, t->ready + w->costs.latency) : rank->clock;
            rank->waits = t->is_done ? NULL : t;
            rank->wants_start = true;
            rank->is_held_back = false;
        }
    }
    return rank->waits == NULL;
}

/* It has come, as a whole: the part is no longer wanted. */
static bool arrive(const tt_walk_t *w, tt_walk_rank_t *rank, int unit)
{
    if (!tt_walk_is_over(rank, rank->coming[unit])) {
        return false;
    }
    rank->unit_bytes -= rank->is_near[unit] ? part_of(w, unit) : 0;
    rank->is_near[unit] = false;
    return true;
}

/* What is coming ends first. Of what is not there a part may be. */
static bool release(const tt_walk_t *w, tt_walk_rank_t *rank, int unit, bool is_kept)
{
    const bool is_there = rank->coming[unit] != NULL;
    if (!arrive(w, rank, unit)) {
        return false;
    }
    rank->coming[unit] = NULL;
    take_memory(rank, is_kept ? part_of(w, unit) : 0);
    rank->unit_bytes -= is_there ? memory_of(w, rank, unit) : 0;
    rank->is_near[unit] = is_kept;
    return true;
}

/* ---- buckets --------------------------------------------------------------------------------- */

static bool is_under_way(const tt_walk_t *w, const tt_walk_rank_t *rank, int bucket)
{
    const tt_walk_transfer_t *t = &w->scatters[bucket];
    return bucket < rank->scatters && !(t->is_done && t->end <= rank->clock);
}

static void count_gradients(const tt_walk_t *w, tt_walk_rank_t *rank)
{
    size_t bytes = 0;
    for (int b = 0; b < w->o->bucket_count; b++) {
        const bool is_there =
            rank->is_wanted[b] && (b >= rank->scatters || is_under_way(w, rank, b));
        bytes += is_there || w->o->stage < 2 ? w->o->buckets[b].bytes : 0;
    }
    rank->peak_gradient_bytes = tt_max_size(rank->peak_gradient_bytes, bytes);
}

static bool hold_back(const tt_walk_t *w, tt_walk_rank_t *rank)
{
    while (!rank->is_impatient && w->o->stage >= 2) {
        int count = 0, oldest = -1;
        for (int b = rank->scatters; b-- > 0;) {
            if (is_under_way(w, rank, b)) {
                oldest = b;
                count++;
            }
        }
        if (count < TT_REDUCER_UNDER_WAY_MAX) {
            return true;
        }
        if (!tt_walk_is_over(rank, &w->scatters[oldest])) {
            rank->is_held_back = true;
            return false;
        }
    }
    return true;
}

static bool want(const tt_walk_t *w, tt_walk_rank_t *rank, int bucket)
{
    if (!rank->is_wanted[bucket]) {
        if (!hold_back(w, rank)) {
            return false;
        }
        rank->is_wanted[bucket] = true;
        count_gradients(w, rank);
    }
    return true;
}

static bool want_all_of(const tt_walk_t *w, tt_walk_rank_t *rank, int unit)
{
    for (int b = 0; b < w->o->bucket_count; b++) {
        if (w->o->buckets[b].unit == unit && !want(w, rank, b)) {
            return false;
        }
    }
    return true;
}

static bool scatter(tt_walk_t *w, int index, int bucket)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    const double bytes = (double)w->o->buckets[bucket].bytes;
    if (rank->has_shard && !want(w, rank, bucket)) {
        return false;
    }
    rank->scatters++;
    tt_walk_come(w, index,
                 &(tt_walk_post_t){.transfer = &w->scatters[bucket],
                                   .count = w->o->ranks,
                                   .bytes = w->o->stage == 0 ? 2 * bytes : bytes});
    return true;
}

static bool finish(const tt_walk_t *w, tt_walk_rank_t *rank)
{
    for (int b = 0; b < w->o->bucket_count; b++) {
        if (!tt_walk_is_over(rank, &w->scatters[b])) {
            return false;
        }
    }
    return true;
}

/* Of all parameters, or of what other rows have of a rank's slices. */
static double published_bytes(const tutti_sharded_options_t *o)
{
    double bytes = 0;
    for (int u = 0; u < o->unit_count; u++) {
        bytes += (double)o->units[u].bytes;
    }
    return o->stage == 1 || o->stage == 2 ? bytes
           : o->rows > 1                  ? bytes * (o->rows - 1) / (o->ranks - 1)
                                          : 0;
}

static bool publish(tt_walk_t *w, int index)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    const double bytes = published_bytes(w->o);
    rank->has_stepped = true;
    if (bytes > 0 && !rank->is_posted) {
        rank->is_posted = true;
        tt_walk_come(
            w, index,
            &(tt_walk_post_t){.transfer = &w->publish, .count = w->o->ranks, .bytes = bytes});
    }
    return bytes <= 0 || tt_walk_is_over(rank, &w->publish);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static bool compute(tt_walk_rank_t *rank, double seconds, tutti_sharded_span_t *span)
{
    span->begin = rank->clock;
    rank->clock += seconds;
    rank->compute += seconds;
    span->end = rank->clock;
    return true;
}

/* The next action; false: the rank waits, and comes back to it. */
static bool act(tt_walk_t *w, int index)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    const tutti_sharded_action_t *action = &w->plan->rows[index].actions[rank->at];
    tutti_sharded_span_t *span = &w->spans[index][rank->at];
    const tutti_sharded_unit_t *unit = &w->o->units[action->index];
    switch (action->kind) {
    case TUTTI_SHARDED_SHARD:
        return rank->has_shard = true;
    case TUTTI_SHARDED_GATHER:
        return gather(w, index, action->index);
    case TUTTI_SHARDED_RELEASE:
    case TUTTI_SHARDED_KEEP:
        return release(w, rank, action->index, action->kind == TUTTI_SHARDED_KEEP);
    case TUTTI_SHARDED_FORWARD:
    case TUTTI_SHARDED_UNSHARD:
        return arrive(w, rank, action->index);
    case TUTTI_SHARDED_FORWARD_END:
        return compute(rank, unit->forward, span);
    case TUTTI_SHARDED_BACKWARD:
        return arrive(w, rank, action->index) && want_all_of(w, rank, action->index) &&
               compute(rank, unit->backward, span);
    case TUTTI_SHARDED_SCATTER:
        return scatter(w, index, action->index);
    case TUTTI_SHARDED_FINISH:
        return finish(w, rank);
    case TUTTI_SHARDED_STEP:
        return compute(rank, w->costs.step, span);
    case TUTTI_SHARDED_PUBLISH:
        return publish(w, index);
    default:
        return true;
    }
}

/* Until it waits, has ended, or is no longer the one that is behind. */
static void go_on(tt_walk_t *w, int index)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    const tutti_sharded_row_t *row = &w->plan->rows[index];
    while (rank->at < row->count) {
        if (w->heap_count > 0 && tt_walk_is_before(w, w->heap[0], index)) {
            tt_walk_push(w, index);
            return;
        }
        if (!act(w, index)) {
            return;
        }
        rank->at++;
        rank->is_posted = false;
    }
}

/* Nobody can go on: somebody waits for a bucket no longer. */
static bool lose_patience(tt_walk_t *w)
{
    for (int r = 0; r < w->o->ranks; r++) {
        tt_walk_rank_t *rank = &w->ranks[r];
        if (rank->waits != NULL && rank->is_held_back) {
            rank->waits = NULL;
            rank->is_impatient = true;
            rank->clock += 1e-3 * TT_REDUCER_PATIENCE_MS;
            tt_walk_push(w, r);
            return true;
        }
    }
    return false;
}

static tutti_status_t check_ended(const tt_walk_t *w)
{
    for (int r = 0; r < w->o->ranks; r++) {
        const tutti_sharded_row_t *row = &w->plan->rows[r];
        char text[128];
        if (w->ranks[r].at < row->count) {
            (void)tutti_sharded_action_text(w->plan, &row->actions[w->ranks[r].at], text,
                                            sizeof text);
            return TT_FAIL(TUTTI_ERR_ARG,
                           "sharded_plan: rank %d waits for ever in action %d (%s): other ranks do "
                           "not come to what it waits for",
                           r, w->ranks[r].at, text);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t run(tt_walk_t *w)
{
    for (int r = 0; r < w->o->ranks; r++) {
        tt_walk_push(w, r);
    }
    do {
        while (w->heap_count > 0) {
            go_on(w, tt_walk_pop(w));
        }
    } while (lose_patience(w));
    return check_ended(w);
}

/* ---- what is found --------------------------------------------------------------------------- */

static int count_of(const tutti_sharded_row_t *row, tutti_sharded_kind_t kind)
{
    int count = 0;
    for (int i = 0; i < row->count; i++) {
        count += row->actions[i].kind == kind;
    }
    return count;
}

/* When collectives were on the wire. */
static void mark_collectives(const tt_walk_t *w, int index)
{
    const tutti_sharded_row_t *row = &w->plan->rows[index];
    const size_t count = (size_t)w->gather_count;
    const tt_walk_transfer_t *gathers = w->gathers + (size_t)(index / w->size) * count,
                             *nears = w->nears + (size_t)(index / w->set) * count;
    for (int i = 0; i < row->count; i++) {
        const tutti_sharded_kind_t kind = row->actions[i].kind;
        const int of = row->actions[i].index;
        const bool is_gather = kind == TUTTI_SHARDED_GATHER && is_gathered(w, of);
        const tt_walk_transfer_t *t = is_gather && row->actions[i].is_near ? nears++
                                      : is_gather                          ? gathers++
                                      : kind == TUTTI_SHARDED_SCATTER      ? &w->scatters[of]
                                      : kind == TUTTI_SHARDED_PUBLISH      ? &w->publish
                                                                           : NULL;
        if (t != NULL) {
            w->spans[index][i] = (tutti_sharded_span_t){t->begin, t->end};
        }
    }
}

static void sum_up(const tt_walk_t *w, tutti_sharded_simulation_t *out)
{
    double sent = 0, near = 0;
    out->ranks = w->o->ranks;
    out->spans = w->spans;
    for (int r = 0; r < w->o->ranks; r++) {
        const tt_walk_rank_t *rank = &w->ranks[r];
        mark_collectives(w, r);
        out->time = fmax(out->time, rank->clock);
        out->compute = fmax(out->compute, rank->compute);
        out->wire = fmax(out->wire, rank->wire);
        out->peak_unit_bytes = tt_max_size(out->peak_unit_bytes, rank->peak_unit_bytes);
        out->peak_gradient_bytes = tt_max_size(out->peak_gradient_bytes, rank->peak_gradient_bytes);
        sent += rank->sent_bytes;
        near += rank->near_bytes;
    }
    out->exposed = out->time - out->compute;
    out->sent_bytes = (int64_t)llround(sent / w->o->ranks);
    out->near_bytes = (int64_t)llround(near / w->o->ranks);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static tutti_status_t open_spans(tt_walk_t *w)
{
    const size_t ranks = (size_t)w->o->ranks;
    size_t actions = 0;
    for (size_t r = 0; r < ranks; r++) {
        actions += (size_t)w->plan->rows[r].count;
    }
    w->spans =
        tt_alloc(ranks * sizeof *w->spans + actions * sizeof **w->spans + 1, "sharded spans");
    TT_TRY_ALLOC(w->spans);
    tutti_sharded_span_t *next = (void *)(w->spans + ranks);
    for (size_t r = 0; r < ranks; r++) {
        w->spans[r] = next;
        next += w->plan->rows[r].count;
    }
    return TUTTI_OK;
}

static tutti_status_t open_walk(tt_walk_t *w)
{
    const size_t ranks = (size_t)w->o->ranks, units = (size_t)w->o->unit_count,
                 buckets = (size_t)w->o->bucket_count, rows = ranks / (size_t)w->size,
                 sets = ranks / (size_t)w->set;
    TT_TRY(open_spans(w));
    w->gathers = tt_alloc_array(rows * (size_t)w->gather_count + 1, sizeof *w->gathers, "sharded");
    TT_TRY_ALLOC(w->gathers);
    w->nears = tt_alloc_array(sets * (size_t)w->gather_count + 1, sizeof *w->nears, "sharded");
    TT_TRY_ALLOC(w->nears);
    w->scatters = tt_alloc_array(buckets + 1, sizeof *w->scatters, "sharded");
    TT_TRY_ALLOC(w->scatters);
    w->heap = tt_alloc_array(ranks, sizeof *w->heap, "sharded");
    TT_TRY_ALLOC(w->heap);
    w->ranks = tt_alloc_array(ranks, sizeof *w->ranks, "sharded");
    TT_TRY_ALLOC(w->ranks);
    for (size_t r = 0; r < ranks; r++) {
        w->ranks[r].coming = tt_alloc_array(units, sizeof(tt_walk_transfer_t *), "sharded");
        TT_TRY_ALLOC(w->ranks[r].coming);
        w->ranks[r].is_near = tt_alloc_array(units, sizeof(bool), "sharded");
        TT_TRY_ALLOC(w->ranks[r].is_near);
        w->ranks[r].is_wanted = tt_alloc_array(buckets + 1, sizeof(bool), "sharded");
        TT_TRY_ALLOC(w->ranks[r].is_wanted);
    }
    return TUTTI_OK;
}

static void close_walk(tt_walk_t *w)
{
    for (int r = 0; w->ranks != NULL && r < w->o->ranks; r++) {
        tt_free(w->ranks[r].coming);
        tt_free(w->ranks[r].is_near);
        tt_free(w->ranks[r].is_wanted);
    }
    tt_free(w->ranks);
    tt_free(w->heap);
    tt_free(w->scatters);
    tt_free(w->nears);
    tt_free(w->gathers);
}

static tutti_status_t check_costs(const tutti_sharded_costs_t *costs)
{
    const double all[] = {costs->bytes_per_second, costs->latency, costs->near_bytes_per_second,
                          costs->near_latency, costs->step};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!isfinite(all[i]) || all[i] < 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "sharded_simulate: a cost of %g: want 0 or more", all[i]);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_sharded_simulate(const tutti_sharded_plan_t *plan,
                                      const tutti_sharded_costs_t *costs,
                                      tutti_sharded_simulation_t *out)
{
    TT_WANT("sharded_simulate", plan);
    TT_WANT("sharded_simulate", out);
    const tutti_sharded_options_t *o = &plan->options;
    tt_walk_t w = {.plan = plan, .o = o, .size = o->ranks / o->rows};
    w.set = tt_sharded_keeps_near(o) ? o->reshard_ranks : w.size;
    w.costs = costs != NULL ? *costs : w.costs;
    w.announces = w.size > 1 && o->stage == 3 && !o->is_shared && o->shards % o->ranks != 0;
    TT_TRY(check_costs(&w.costs));
    for (int r = 0; r < o->ranks; r++) {
        const int gathers = count_of(&plan->rows[r], TUTTI_SHARDED_GATHER);
        w.gather_count = gathers > w.gather_count ? gathers : w.gather_count;
    }
    tutti_status_t status = open_walk(&w);
    if (status >= 0) {
        status = run(&w);
    }
    if (status >= 0) {
        *out = (tutti_sharded_simulation_t){0};
        sum_up(&w, out);
    } else {
        tt_free(w.spans);
    }
    close_walk(&w);
    return status;
}

void tutti_sharded_simulation_release(tutti_sharded_simulation_t *simulation)
{
    if (simulation != NULL) {
        tt_free(simulation->spans);
        *simulation = (tutti_sharded_simulation_t){0};
    }
}
