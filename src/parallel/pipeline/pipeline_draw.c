/* A schedule in time, as text: a line for each rank, a column for the shortest computation.
 *
 *     rank 0   F0 F1 F2 .. .. B0 -- B1 -- B2 --
 *     rank 1   .. F0 F1 F2 B0 -- B1 -- B2 -- ..
 *
 * Where ranks have several stages, a computation has its stage in front: 3F0. Long schedules end
 * with dots behind a few hundred columns.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_draw.h"
#include "parallel/pipeline/pipeline_form.h"

enum { COLUMNS_MAX = 400, WIDTH_MAX = 24 };

typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    const tutti_pipeline_simulation_t *simulation;
    double unit; /* of time for a column */
    int width;   /* of a column, without the blank behind it */
    tt_pipeline_text_t text;
} picture_t;

/* "F3", and "2F3" where ranks have several stages. */
static tt_pipeline_label_t short_label(const tutti_pipeline_schedule_t *schedule,
                                       const tutti_pipeline_action_t *action)
{
    tt_pipeline_label_t label;
    const char *kind =
        action->kind == TUTTI_PIPELINE_STEP ? "S" : tt_pipeline_kind_name(action->kind);
    if (schedule->stages > schedule->ranks) {
        (void)snprintf(label.text, sizeof label.text, "%d%s%d", action->stage, kind,
                       action->micro_batch);
    } else {
        (void)snprintf(label.text, sizeof label.text, "%s%d", kind, action->micro_batch);
    }
    return label;
}

static void measure(picture_t *p)
{
    for (int rank = 0; rank < p->schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &p->schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            const tutti_pipeline_span_t *span = &p->simulation->spans[rank][i];
            if (!tt_pipeline_is_drawn(&row->actions[i], span)) {
                continue;
            }
            const double length = span->end - span->begin;
            const int width = (int)strlen(short_label(p->schedule, &row->actions[i]).text);
            p->unit = p->unit <= 0 || length < p->unit ? length : p->unit;
            p->width = width > p->width ? width : p->width;
        }
    }
}

static void put_columns(picture_t *p, int64_t count, char mark)
{
    char column[WIDTH_MAX + 1];
    memset(column, mark, sizeof column);
    for (int64_t i = 0; i < count; i++) {
        tt_pipeline_put_text(&p->text, " %.*s", p->width, column);
    }
}

/* The column where a time falls; none behind the last that is drawn. */
static int64_t column_of(const picture_t *p, double time)
{
    const double column = floor(time / p->unit + 0.5);
    return column < COLUMNS_MAX ? (int64_t)column : COLUMNS_MAX;
}

/* An action from column `at`; returns the first column behind it. */
static int64_t draw_action(picture_t *p, int64_t at, const tutti_pipeline_action_t *action,
                           const tutti_pipeline_span_t *span)
{
    const int64_t wanted = column_of(p, span->begin), begin = wanted > at ? wanted : at;
    const int64_t last = column_of(p, span->end), end = last > begin ? last : begin + 1;
    put_columns(p, begin - at, '.');
    if (begin >= COLUMNS_MAX) {
        return begin;
    }
    tt_pipeline_put_text(&p->text, " %-*s", p->width, short_label(p->schedule, action).text);
    put_columns(p, end - begin - 1, '-');
    return end;
}

static void draw_rank(picture_t *p, int rank)
{
    const tutti_pipeline_row_t *row = &p->schedule->rows[rank];
    int64_t at = 0;
    tt_pipeline_put_text(&p->text, "rank %-3d ", rank);
    for (int64_t i = 0; i < row->count && at < COLUMNS_MAX; i++) {
        const tutti_pipeline_span_t *span = &p->simulation->spans[rank][i];
        if (tt_pipeline_is_drawn(&row->actions[i], span)) {
            at = draw_action(p, at, &row->actions[i], span);
        }
    }
    put_columns(p, column_of(p, p->simulation->time) - at, '.');
    tt_pipeline_put_text(&p->text, "%s\n", at >= COLUMNS_MAX ? " ..." : "");
}

static void draw_loads(picture_t *p)
{
    const tutti_pipeline_simulation_t *s = p->simulation;
    tt_pipeline_put_text(&p->text, "\ntime %.6g, work of the busiest rank %.6g, bubble %.1f %%\n",
                         s->time, s->work, 100 * s->bubble);
    for (int rank = 0; rank < s->ranks; rank++) {
        const tutti_pipeline_load_t *load = &s->loads[rank];
        tt_pipeline_put_text(&p->text,
                             "rank %-3d works %.6g, waits %.6g between its first and last "
                             "action, holds %.6g\n",
                             rank, load->busy, load->idle, load->activations_max);
    }
}

static tutti_status_t draw_text(const tutti_pipeline_schedule_t *schedule,
                                const tutti_pipeline_simulation_t *simulation, tutti_buffer_t *out)
{
    picture_t p = {.schedule = schedule, .simulation = simulation, .width = 2};
    measure(&p);
    p.unit = p.unit > 0 ? p.unit : 1;
    p.width = p.width < WIDTH_MAX ? p.width : WIDTH_MAX;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        draw_rank(&p, rank);
    }
    draw_loads(&p);
    return tt_pipeline_give_text(&p.text, out);
}

tutti_status_t tutti_pipeline_draw(const tutti_pipeline_schedule_t *schedule,
                                   const tutti_pipeline_simulation_t *simulation, bool is_svg,
                                   tutti_buffer_t *out)
{
    TT_WANT("pipeline_draw", schedule);
    TT_WANT("pipeline_draw", simulation);
    TT_WANT("pipeline_draw", out);
    TT_TRY(tt_pipeline_check_form(schedule));
    if (simulation->ranks != schedule->ranks) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: a simulation of %d ranks, a schedule of %d",
                       simulation->ranks, schedule->ranks);
    }
    return is_svg ? tt_pipeline_draw_svg(schedule, simulation, out)
                  : draw_text(schedule, simulation, out);
}
