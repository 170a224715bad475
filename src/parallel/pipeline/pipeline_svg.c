/* A schedule in time, as a picture (SVG): a row for each rank, a box for each computation, as wide
 * as its time. The mouse shows what it is and when. A rank's second stage is darker, its third is
 * light again.
 */
#include <stdio.h>

#include "parallel/pipeline/pipeline_draw.h"
#include "core/base/reals.h"
#include "parallel/timeline.h"

bool tt_pipeline_is_drawn(const tutti_pipeline_action_t *action, const tutti_pipeline_span_t *span)
{
    return (tt_pipeline_computes(action->kind) || action->kind == TUTTI_PIPELINE_STEP) &&
           span->end > span->begin;
}

static const char *colour_of(tutti_pipeline_kind_t kind, bool is_dark)
{
    static const char *const colours[][2] = {[TUTTI_PIPELINE_F] = {"#93c5fd", "#3b82f6"},
                                             [TUTTI_PIPELINE_B] = {"#86efac", "#22c55e"},
                                             [TUTTI_PIPELINE_I] = {"#5eead4", "#14b8a6"},
                                             [TUTTI_PIPELINE_W] = {"#fdba74", "#f97316"}};
    return kind <= TUTTI_PIPELINE_W ? colours[kind][is_dark] : "#64748b";
}

static void draw_rank(tt_timeline_picture_t *picture, const tutti_pipeline_schedule_t *schedule,
                      const tutti_pipeline_span_t *spans, int rank)
{
    const tutti_pipeline_row_t *row = &schedule->rows[rank];
    char text[32];
    (void)snprintf(text, sizeof text, "rank %d", rank);
    tt_timeline_name(picture, rank, text);
    for (int64_t i = 0; i < row->count; i++) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        if (tt_pipeline_is_drawn(action, &spans[i])) {
            const bool is_dark = action->stage / schedule->ranks % 2 == 1;
            const tt_pipeline_label_t label = tt_pipeline_label(action);
            (void)snprintf(text, sizeof text, "%d", action->micro_batch);
            tt_timeline_draw(picture, rank,
                             &(tt_timeline_box_t){.begin = spans[i].begin,
                                                  .end = spans[i].end,
                                                  .label = text,
                                                  .title = label.text,
                                                  .colour = colour_of(action->kind, is_dark)});
        }
    }
}

tutti_status_t tt_pipeline_draw_svg(const tutti_pipeline_schedule_t *schedule,
                                    const tutti_pipeline_simulation_t *simulation,
                                    tutti_buffer_t *out)
{
    const tt_timeline_legend_t legend[] = {
        {colour_of(TUTTI_PIPELINE_F, false), "F forward"},
        {colour_of(TUTTI_PIPELINE_B, false), "B backward"},
        {colour_of(TUTTI_PIPELINE_I, false), "I gradients of inputs"},
        {colour_of(TUTTI_PIPELINE_W, false), "W gradients of weights"},
        {colour_of(TUTTI_PIPELINE_STEP, false), "STEP"}};
    tt_timeline_picture_t picture;
    char title[128];
    (void)tt_format(title, sizeof title, "%d stages, %d micro-batches, time %.6g, bubble %.1f %%",
                    schedule->stages, schedule->micro_batches * schedule->shards, simulation->time,
                    100 * simulation->bubble);
    tt_timeline_open_picture(&picture, schedule->ranks, simulation->time, title);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        draw_rank(&picture, schedule, simulation->spans[rank], rank);
    }
    return tt_timeline_close_picture(&picture, legend, sizeof legend / sizeof legend[0], out);
}
