/* A schedule in time, as a picture (SVG): a row for each rank, a box for each computation, as wide
 * as its time. The mouse shows what it is and when. A rank's second stage is darker, its third is
 * light again.
 */
#include "parallel/pipeline/pipeline_draw.h"

enum { LEFT = 60, TOP = 40, ROW = 26, BOX = 22, WIDTH = 1200, LEGEND = 30, BOXES_MAX = 40000 };

typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    const tutti_pipeline_simulation_t *simulation;
    double scale; /* pixels for a unit of time */
    int boxes;
    tt_pipeline_text_t text;
} picture_t;

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

static void draw_box(picture_t *p, int rank, const tutti_pipeline_action_t *action,
                     const tutti_pipeline_span_t *span)
{
    const double x = LEFT + span->begin * p->scale, width = (span->end - span->begin) * p->scale;
    const int y = TOP + rank * ROW;
    const bool is_dark = action->stage / p->schedule->ranks % 2 == 1;
    tt_pipeline_put_text(&p->text,
                         "<g><title>%s: %.6g to %.6g</title><rect x=\"%.2f\" y=\"%d\" "
                         "width=\"%.2f\" height=\"%d\" fill=\"%s\"/>",
                         tt_pipeline_label(action).text, span->begin, span->end, x, y, width, BOX,
                         colour_of(action->kind, is_dark));
    if (width >= 12) {
        tt_pipeline_put_text(&p->text, "<text x=\"%.2f\" y=\"%d\" font-size=\"%d\">%d</text>",
                             x + width / 2, y + 15, width >= 22 ? 11 : 8, action->micro_batch);
    }
    tt_pipeline_put_text(&p->text, "</g>\n");
    p->boxes++;
}

static void draw_rank(picture_t *p, int rank)
{
    const tutti_pipeline_row_t *row = &p->schedule->rows[rank];
    tt_pipeline_put_text(&p->text, "<text x=\"%d\" y=\"%d\">rank %d</text>\n", LEFT / 2,
                         TOP + rank * ROW + 15, rank);
    for (int64_t i = 0; i < row->count && p->boxes < BOXES_MAX; i++) {
        const tutti_pipeline_span_t *span = &p->simulation->spans[rank][i];
        if (tt_pipeline_is_drawn(&row->actions[i], span)) {
            draw_box(p, rank, &row->actions[i], span);
        }
    }
}

static void draw_legend(picture_t *p, int y)
{
    static const struct {
        tutti_pipeline_kind_t kind;
        const char *about;
    } kinds[] = {{TUTTI_PIPELINE_F, "F forward"},
                 {TUTTI_PIPELINE_B, "B backward"},
                 {TUTTI_PIPELINE_I, "I gradients of inputs"},
                 {TUTTI_PIPELINE_W, "W gradients of weights"},
                 {TUTTI_PIPELINE_STEP, "STEP"}};
    for (int i = 0; i < (int)(sizeof kinds / sizeof kinds[0]); i++) {
        const int x = LEFT + i * 190;
        tt_pipeline_put_text(&p->text,
                             "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                             "<text x=\"%d\" y=\"%d\" text-anchor=\"start\">%s</text>\n",
                             x, y, colour_of(kinds[i].kind, false), x + 20, y + 12, kinds[i].about);
    }
}

tutti_status_t tt_pipeline_draw_svg(const tutti_pipeline_schedule_t *schedule,
                                    const tutti_pipeline_simulation_t *simulation,
                                    tutti_buffer_t *out)
{
    picture_t p = {.schedule = schedule,
                   .simulation = simulation,
                   .scale = simulation->time > 0 ? WIDTH / simulation->time : 0};
    const int height = TOP + schedule->ranks * ROW + LEGEND;
    tt_pipeline_put_text(&p.text,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" ",
                         LEFT + WIDTH + 20, height);
    tt_pipeline_put_text(&p.text,
                         "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n");
    tt_pipeline_put_text(&p.text, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    tt_pipeline_put_text(&p.text,
                         "<text x=\"%d\" y=\"22\" text-anchor=\"start\">%d stages, %d "
                         "micro-batches, time %.6g, bubble %.1f %%</text>\n",
                         LEFT, schedule->stages, schedule->micro_batches * schedule->shards,
                         simulation->time, 100 * simulation->bubble);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        draw_rank(&p, rank);
    }
    draw_legend(&p, height - LEGEND + 8);
    tt_pipeline_put_text(&p.text, "%s</svg>\n",
                         p.boxes >= BOXES_MAX ? "<!-- the rest is left out -->\n" : "");
    return tt_pipeline_give_text(&p.text, out);
}
