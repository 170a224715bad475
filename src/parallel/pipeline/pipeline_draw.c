/* A schedule in time, as text: a line for each rank (timeline.h). Where ranks have several stages,
 * a computation has its stage in front: 3F0.
 */
#include <stdio.h>

#include "core/base/fail.h"
#include "parallel/pipeline/pipeline_draw.h"
#include "parallel/pipeline/pipeline_form.h"
#include "parallel/timeline.h"

typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    const tutti_pipeline_simulation_t *simulation;
    tt_timeline_columns_t columns;
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

/* What is done with the computations of a rank. */
static void each_box(picture_t *p, int rank,
                     void (*visit)(tt_timeline_columns_t *columns, const tt_timeline_box_t *box))
{
    const tutti_pipeline_row_t *row = &p->schedule->rows[rank];
    for (int64_t i = 0; i < row->count; i++) {
        const tutti_pipeline_span_t *span = &p->simulation->spans[rank][i];
        if (tt_pipeline_is_drawn(&row->actions[i], span)) {
            const tt_pipeline_label_t label = short_label(p->schedule, &row->actions[i]);
            visit(&p->columns, &(tt_timeline_box_t){
                                   .begin = span->begin, .end = span->end, .label = label.text});
        }
    }
}

static void draw_rank(picture_t *p, int rank)
{
    char name[32];
    (void)snprintf(name, sizeof name, "rank %-3d", rank);
    tt_timeline_lane(&p->columns, name);
    each_box(p, rank, tt_timeline_put);
    tt_timeline_end_lane(&p->columns, p->simulation->time);
}

static void draw_loads(picture_t *p)
{
    tt_pipeline_text_t *text = &p->columns.text;
    const tutti_pipeline_simulation_t *s = p->simulation;
    tt_pipeline_put_text(text, "\ntime %.6g, work of the busiest rank %.6g, bubble %.1f %%\n",
                         s->time, s->work, 100 * s->bubble);
    for (int rank = 0; rank < s->ranks; rank++) {
        const tutti_pipeline_load_t *load = &s->loads[rank];
        tt_pipeline_put_text(text,
                             "rank %-3d works %.6g, waits %.6g between its first and last "
                             "action, holds %.6g\n",
                             rank, load->busy, load->idle, load->activations_max);
    }
}

static tutti_status_t draw_text(const tutti_pipeline_schedule_t *schedule,
                                const tutti_pipeline_simulation_t *simulation, tutti_buffer_t *out)
{
    picture_t p = {.schedule = schedule, .simulation = simulation};
    for (int rank = 0; rank < schedule->ranks; rank++) {
        each_box(&p, rank, tt_timeline_measure);
    }
    tt_timeline_fit(&p.columns, 0);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        draw_rank(&p, rank);
    }
    draw_loads(&p);
    return tt_pipeline_give_text(&p.columns.text, out);
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
