/* Lanes and boxes, as text and as pictures. */
#include "parallel/timeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

enum { COLUMNS_MAX = 400, WIDTH_MIN = 2, WIDTH_MAX = 24 };

void tt_timeline_measure(tt_timeline_columns_t *columns, const tt_timeline_box_t *box)
{
    const double length = box->end - box->begin;
    const int width = (int)strlen(box->label);
    columns->unit = columns->unit <= 0 || length < columns->unit ? length : columns->unit;
    columns->width = width > columns->width ? width : columns->width;
}

void tt_timeline_fit(tt_timeline_columns_t *columns, double least_unit)
{
    columns->unit = fmax(columns->unit, least_unit);
    columns->unit = columns->unit > 0 ? columns->unit : 1;
    columns->width = columns->width < WIDTH_MIN   ? WIDTH_MIN
                     : columns->width > WIDTH_MAX ? WIDTH_MAX
                                                  : columns->width;
}

static void put_columns(tt_timeline_columns_t *columns, int64_t count, char mark)
{
    char column[WIDTH_MAX + 1];
    memset(column, mark, sizeof column);
    for (int64_t i = 0; i < count; i++) {
        tt_pipeline_put_text(&columns->text, " %.*s", columns->width, column);
    }
}

/* The column where a time falls; none behind the last that is drawn. */
static int64_t column_of(const tt_timeline_columns_t *columns, double time)
{
    const double column = floor(time / columns->unit + 0.5);
    return column < COLUMNS_MAX ? (int64_t)column : COLUMNS_MAX;
}

void tt_timeline_lane(tt_timeline_columns_t *columns, const char *name)
{
    columns->at = 0;
    tt_pipeline_put_text(&columns->text, "%-8s ", name);
}

void tt_timeline_put(tt_timeline_columns_t *columns, const tt_timeline_box_t *box)
{
    const int64_t at = columns->at, wanted = column_of(columns, box->begin),
                  begin = wanted > at ? wanted : at, last = column_of(columns, box->end),
                  end = last > begin ? last : begin + 1;
    if (at >= COLUMNS_MAX) {
        return;
    }
    put_columns(columns, begin - at, '.');
    columns->at = begin;
    if (begin < COLUMNS_MAX) {
        tt_pipeline_put_text(&columns->text, " %-*s", columns->width, box->label);
        put_columns(columns, end - begin - 1, '-');
        columns->at = end;
    }
}

void tt_timeline_end_lane(tt_timeline_columns_t *columns, double time)
{
    put_columns(columns, column_of(columns, time) - columns->at, '.');
    while (columns->text.bytes > 0 && columns->text.data[columns->text.bytes - 1] == ' ') {
        columns->text.bytes--; /* behind a short label */
    }
    tt_pipeline_put_text(&columns->text, "%s\n", columns->at >= COLUMNS_MAX ? " ..." : "");
}

/* ---- pictures -------------------------------------------------------------------------------- */

enum { LEFT = 60, TOP = 40, ROW = 26, BOX = 22, WIDTH = 1200, LEGEND = 30, BOXES_MAX = 40000 };

void tt_timeline_open_picture(tt_timeline_picture_t *p, int lanes, double time, const char *title)
{
    *p = (tt_timeline_picture_t){.scale = time > 0 ? WIDTH / time : 0, .lanes = lanes};
    tt_pipeline_put_text(&p->text,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" ",
                         LEFT + WIDTH + 20, TOP + lanes * ROW + LEGEND);
    tt_pipeline_put_text(&p->text,
                         "font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n");
    tt_pipeline_put_text(&p->text, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    tt_pipeline_put_text(&p->text, "<text x=\"%d\" y=\"22\" text-anchor=\"start\">%s</text>\n",
                         LEFT, title);
}

void tt_timeline_name(tt_timeline_picture_t *p, int lane, const char *name)
{
    tt_pipeline_put_text(&p->text, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT / 2,
                         TOP + lane * ROW + 15, name);
}

void tt_timeline_draw(tt_timeline_picture_t *p, int lane, const tt_timeline_box_t *box)
{
    const double x = LEFT + box->begin * p->scale, width = (box->end - box->begin) * p->scale;
    const int y = TOP + lane * ROW;
    if (p->boxes >= BOXES_MAX) {
        return;
    }
    tt_pipeline_put_text(&p->text, "<g><title>%.100s: %.6g to %.6g</title>", box->title, box->begin,
                         box->end);
    tt_pipeline_put_text(&p->text,
                         "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>", x,
                         y, width, BOX, box->colour);
    if (width >= 12) {
        tt_pipeline_put_text(&p->text, "<text x=\"%.2f\" y=\"%d\" font-size=\"%d\">%.100s</text>",
                             x + width / 2, y + 15, width >= 22 ? 11 : 8, box->label);
    }
    tt_pipeline_put_text(&p->text, "</g>\n");
    p->boxes++;
}

tutti_status_t tt_timeline_close_picture(tt_timeline_picture_t *p,
                                         const tt_timeline_legend_t *legend, int count,
                                         tutti_buffer_t *out)
{
    const int y = TOP + p->lanes * ROW + 8;
    for (int i = 0; i < count; i++) {
        const int x = LEFT + i * (WIDTH - 250) / (count > 1 ? count - 1 : 1);
        tt_pipeline_put_text(&p->text,
                             "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                             "<text x=\"%d\" y=\"%d\" text-anchor=\"start\">%s</text>\n",
                             x, y, legend[i].colour, x + 20, y + 12, legend[i].about);
    }
    tt_pipeline_put_text(&p->text, "%s</svg>\n",
                         p->boxes >= BOXES_MAX ? "<!-- the rest is left out -->\n" : "");
    return tt_pipeline_give_text(&p->text, out);
}
