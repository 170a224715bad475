/* Things in time, drawn: lanes, one below the other, with boxes from a begin to an end. As text, a
 * column for the shortest, or as a picture (SVG), in which the mouse shows what a box is.
 *
 *     rank 0   F0 F1 F2 .. .. B0 -- B1 -- B2 --
 *     rank 1   .. F0 F1 F2 B0 -- B1 -- B2 -- ..
 *
 * Long ones end with dots behind a few hundred columns.
 */
#ifndef TT_TIMELINE_H
#define TT_TIMELINE_H

#include "parallel/pipeline/pipeline_text.h"

typedef struct {
    double begin, end;
    const char *label;          /* in it, if there is room */
    const char *title, *colour; /* of pictures; the title is followed by the times */
} tt_timeline_box_t;

/* ---- text ---- */

typedef struct {
    double unit; /* of time for a column */
    int width;   /* of a column, without the blank before it */
    int64_t at;  /* the next column of the lane */
    tt_pipeline_text_t text;
} tt_timeline_columns_t;

/* Every box, before any is drawn; then how much time a column has, and its width. */
void tt_timeline_measure(tt_timeline_columns_t *columns, const tt_timeline_box_t *box);
void tt_timeline_fit(tt_timeline_columns_t *columns, double least_unit);

/* A lane begins; boxes in the order of time; it ends at the whole's end. */
void tt_timeline_lane(tt_timeline_columns_t *columns, const char *name);
void tt_timeline_put(tt_timeline_columns_t *columns, const tt_timeline_box_t *box);
void tt_timeline_end_lane(tt_timeline_columns_t *columns, double time);

/* ---- pictures ---- */

typedef struct {
    double scale; /* pixels for a unit of time */
    int lanes, boxes;
    tt_pipeline_text_t text;
} tt_timeline_picture_t;

typedef struct {
    const char *colour, *about;
} tt_timeline_legend_t;

void tt_timeline_open_picture(tt_timeline_picture_t *picture, int lanes, double time,
                              const char *title);
void tt_timeline_name(tt_timeline_picture_t *picture, int lane, const char *name);
void tt_timeline_draw(tt_timeline_picture_t *picture, int lane, const tt_timeline_box_t *box);
tutti_status_t tt_timeline_close_picture(tt_timeline_picture_t *picture,
                                         const tt_timeline_legend_t *legend, int count,
                                         tutti_buffer_t *out);

#endif
