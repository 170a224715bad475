/* Plans in time: for each rank a lane of what it computes, and one of what its wire carries. Ranks
 * that do the same at the same time stand in one line.
 *
 *     rank 0-3  .. F1 F2 F3 B3 -- B2 -- B1 --
 *     wire      G1 G2 G3 .. G2 R0 G1 R1 .. R2
 *     near      .. .. .. .. N3 .. N2 .. .. ..      where units stay near
 *
 *     F, B  a unit's forward and backward      G, N  its gather, from all, from near
 *     R     a bucket leaves
 *     S     the optimizer's step               P  parameters are published
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/fail.h"
#include "core/base/reals.h"
#include "parallel/ddp/sharded_row.h"
#include "parallel/timeline.h"

typedef struct {
    const tutti_sharded_plan_t *plan;
    const tutti_sharded_simulation_t *simulation;
} shown_t;

typedef enum { COMPUTE, WIRE, NEAR } lane_t;

typedef struct {
    char letter; /* 0: it is not drawn */
    lane_t lane;
    bool has_number;
    const char *colour, *about;
} look_t;

static const look_t looks[] = {
    [TUTTI_SHARDED_FORWARD_END] = {'F', COMPUTE, true, "#93c5fd", "F forward"},
    [TUTTI_SHARDED_BACKWARD] = {'B', COMPUTE, true, "#86efac", "B backward"},
    [TUTTI_SHARDED_GATHER] = {'G', WIRE, true, "#fdba74", "G a unit is gathered"},
    [TUTTI_SHARDED_SCATTER] = {'R', WIRE, true, "#5eead4", "R a bucket leaves"},
    [TUTTI_SHARDED_STEP] = {'S', COMPUTE, false, "#94a3b8", "S the optimizer's step"},
    [TUTTI_SHARDED_PUBLISH] = {'P', WIRE, false, "#c4b5fd", "P parameters are published"},
};

static const look_t from_near = {'N', NEAR, true, "#fcd34d", "N a unit is gathered near"};

enum { LOOKS = sizeof looks / sizeof looks[0] + 1, COLUMNS = 40 };

/* How an action is drawn on a lane; NULL: it is not. */
static const look_t *look_of(const tutti_sharded_action_t *action, const tutti_sharded_span_t *span,
                             lane_t lane)
{
    const look_t *look = action->is_near ? &from_near : &looks[action->kind];
    return look->letter != 0 && look->lane == lane && span->end > span->begin ? look : NULL;
}

/* How many lanes a rank has. */
static int lanes_of(const shown_t *shown)
{
    return tt_sharded_keeps_near(&shown->plan->options) ? NEAR + 1 : NEAR;
}

/* What is done with the boxes of a lane. */
typedef struct {
    void (*visit)(void *user, const tt_timeline_box_t *box);
    void *user;
} pen_t;

static void each_box(const shown_t *shown, int rank, lane_t lane, const pen_t *pen)
{
    const tutti_sharded_row_t *row = &shown->plan->rows[rank];
    for (int i = 0; i < row->count; i++) {
        const tutti_sharded_action_t *action = &row->actions[i];
        const tutti_sharded_span_t *span = &shown->simulation->spans[rank][i];
        const look_t *look = look_of(action, span, lane);
        char label[16], title[128];
        if (look == NULL) {
            continue;
        }
        (void)snprintf(label, sizeof label, "%c", look->letter);
        if (look->has_number) {
            (void)snprintf(label, sizeof label, "%c%d", look->letter, action->index);
        }
        (void)tutti_sharded_action_text(shown->plan, action, title, sizeof title);
        pen->visit(pen->user, &(tt_timeline_box_t){.begin = span->begin,
                                                   .end = span->end,
                                                   .label = label,
                                                   .title = title,
                                                   .colour = look->colour});
    }
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

static bool is_alike(const shown_t *shown, int a, int b)
{
    const tutti_sharded_row_t *x = &shown->plan->rows[a], *y = &shown->plan->rows[b];
    if (x->count != y->count) {
        return false;
    }
    for (int i = 0; i < x->count; i++) {
        const tutti_sharded_span_t *s = &shown->simulation->spans[a][i],
                                   *t = &shown->simulation->spans[b][i];
        const bool is_same = s->begin >= t->begin && s->begin <= t->begin && s->end >= t->end &&
                             s->end <= t->end && x->actions[i].kind == y->actions[i].kind &&
                             x->actions[i].index == y->actions[i].index;
        if (!is_same) {
            return false;
        }
    }
    return true;
}

enum { NAME_BYTES = 32 };

/* The first rank behind those that are as `rank`. */
static int end_of(const shown_t *shown, int rank)
{
    int end = rank + 1;
    while (end < shown->plan->options.ranks && is_alike(shown, rank, end)) {
        end++;
    }
    return end;
}

static void write_name(const shown_t *shown, int rank, lane_t lane, char text[NAME_BYTES])
{
    const int end = end_of(shown, rank);
    const size_t bytes = NAME_BYTES;
    if (lane != COMPUTE) {
        (void)snprintf(text, bytes, "%s", lane == WIRE ? "wire" : "near");
    } else if (end == rank + 1) {
        (void)snprintf(text, bytes, "rank %d", rank);
    } else {
        (void)snprintf(text, bytes, "%d-%d", rank, end - 1);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static void measure(void *user, const tt_timeline_box_t *box)
{
    tt_timeline_measure(user, box);
}

static void put(void *user, const tt_timeline_box_t *box)
{
    tt_timeline_put(user, box);
}

static void put_lane(const shown_t *shown, int rank, lane_t lane, tt_timeline_columns_t *columns)
{
    char name[NAME_BYTES];
    write_name(shown, rank, lane, name);
    tt_timeline_lane(columns, name);
    each_box(shown, rank, lane, &(pen_t){put, columns});
    tt_timeline_end_lane(columns, shown->simulation->time);
}

static void put_sums(const shown_t *shown, tt_pipeline_text_t *text)
{
    const tutti_sharded_simulation_t *s = shown->simulation;
    tt_pipeline_put_text(text,
                         "\ntime %.6g s: computes %.6g, waits %.6g (%.1f %%); the wire is busy for "
                         "%.6g\n",
                         s->time, s->compute, s->exposed,
                         s->time > 0 ? 100 * s->exposed / s->time : 0, s->wire);
    if (s->near_bytes > 0) {
        tt_pipeline_put_text(text, "a rank sends %" PRId64 " bytes near\n", s->near_bytes);
    }
    tt_pipeline_put_text(text,
                         "a rank sends %" PRId64 " bytes, and has at most %zu bytes of units and "
                         "%zu of gradients under way\n",
                         s->sent_bytes, s->peak_unit_bytes, s->peak_gradient_bytes);
}

static tutti_status_t draw_text(const shown_t *shown, tutti_buffer_t *out)
{
    tt_timeline_columns_t columns = {0};
    const int ranks = shown->plan->options.ranks;
    for (int rank = 0; rank < ranks; rank = end_of(shown, rank)) {
        for (int lane = 0; lane < lanes_of(shown); lane++) {
            each_box(shown, rank, (lane_t)lane, &(pen_t){measure, &columns});
        }
    }
    tt_timeline_fit(&columns, shown->simulation->time / COLUMNS);
    for (int rank = 0; rank < ranks; rank = end_of(shown, rank)) {
        for (int lane = 0; lane < lanes_of(shown); lane++) {
            put_lane(shown, rank, (lane_t)lane, &columns);
        }
    }
    put_sums(shown, &columns.text);
    return tt_pipeline_give_text(&columns.text, out);
}

/* ---- pictures -------------------------------------------------------------------------------- */

typedef struct {
    tt_timeline_picture_t picture;
    int lane;
} canvas_t;

static void draw(void *user, const tt_timeline_box_t *box)
{
    canvas_t *canvas = user;
    tt_timeline_draw(&canvas->picture, canvas->lane, box);
}

static void draw_lane(const shown_t *shown, int rank, lane_t lane, canvas_t *canvas)
{
    char name[NAME_BYTES];
    write_name(shown, rank, lane, name);
    tt_timeline_name(&canvas->picture, canvas->lane, name);
    each_box(shown, rank, lane, &(pen_t){draw, canvas});
    canvas->lane++;
}

static tutti_status_t draw_svg(const shown_t *shown, tutti_buffer_t *out)
{
    const tutti_sharded_simulation_t *s = shown->simulation;
    tt_timeline_legend_t legend[LOOKS];
    canvas_t canvas = {0};
    char title[160];
    int lanes = 0, count = 0;
    for (int rank = 0; rank < s->ranks; rank = end_of(shown, rank)) {
        lanes += lanes_of(shown);
    }
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (looks[i].letter != 0) {
            legend[count++] = (tt_timeline_legend_t){looks[i].colour, looks[i].about};
        }
    }
    if (lanes_of(shown) > NEAR) {
        legend[count++] = (tt_timeline_legend_t){from_near.colour, from_near.about};
    }
    (void)tt_format(title, sizeof title, "stage %d, %d ranks, %d units, time %.6g s, waits %.1f %%",
                    shown->plan->options.stage, s->ranks, shown->plan->options.unit_count, s->time,
                    s->time > 0 ? 100 * s->exposed / s->time : 0);
    tt_timeline_open_picture(&canvas.picture, lanes, s->time, title);
    for (int rank = 0; rank < s->ranks; rank = end_of(shown, rank)) {
        for (int lane = 0; lane < lanes_of(shown); lane++) {
            draw_lane(shown, rank, (lane_t)lane, &canvas);
        }
    }
    return tt_timeline_close_picture(&canvas.picture, legend, count, out);
}

tutti_status_t tutti_sharded_draw(const tutti_sharded_plan_t *plan,
                                  const tutti_sharded_simulation_t *simulation, bool is_svg,
                                  tutti_buffer_t *out)
{
    TT_WANT("sharded_draw", plan);
    TT_WANT("sharded_draw", simulation);
    TT_WANT("sharded_draw", out);
    if (simulation->ranks != plan->options.ranks) {
        return TT_FAIL(TUTTI_ERR_ARG, "sharded_draw: a simulation of %d ranks, a plan of %d",
                       simulation->ranks, plan->options.ranks);
    }
    const shown_t shown = {plan, simulation};
    return is_svg ? draw_svg(&shown, out) : draw_text(&shown, out);
}
