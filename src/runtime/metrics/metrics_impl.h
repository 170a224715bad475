/* The inside of metrics. What is told goes through these files:
 *
 *     metrics.c          what is told, and the thread that writes
 *     metrics_folder.c   the folder and its files
 *     metric_values.c    values of a tensor: how they are spread; as a picture
 *     metric_events.c    as an event of TensorBoard's; byte_row.h: as bytes
 *     metric_lines.c     as a line of JSON or CSV
 *     metrics_cut.c      a training that goes on: what is cut away from files
 */
#ifndef TT_METRICS_IMPL_H
#define TT_METRICS_IMPL_H

#include <tutti/metrics.h>

#include "runtime/metrics/byte_row.h"

/* What is told, whatever of it. */
typedef struct {
    double time; /* seconds since 1970 */
    int64_t step;
    const char *name;
    char step_text[24], time_text[24]; /* for lines */
} tt_metric_t;

/* Limits of buckets grow by a tenth from 1e-12 to 1e20, on both sides of 0. */
enum { TT_SPREAD_SIDE = 774, TT_SPREAD_BUCKETS = 2 * TT_SPREAD_SIDE + 1 };

/* How values are spread. Bucket i holds those up to limit i, the last one all that is larger. */
typedef struct {
    int64_t count, not_finite; /* count: finite ones */
    double smallest, largest, sum, squares;
    double mean;       /* of the finite ones */
    double deviations; /* the sum of the squares of what they differ from it */
    double limits[TT_SPREAD_BUCKETS], counts[TT_SPREAD_BUCKETS];
} tt_metric_spread_t;

typedef struct {
    int64_t width, height, channels;
    tt_byte_row_t png;
} tt_picture_t;

/* metric_values.c. Errors: STATE, NOMEM; of pictures SHAPE, DTYPE. */
tutti_status_t tt_metric_spread_take(const tutti_tensor_t *x, tt_metric_spread_t *out);
tutti_status_t tt_picture_take(const tutti_tensor_t *x, tt_picture_t *out);

/* metric_events.c: what a file begins with, whose events are of `step` and later; a record each. */
void tt_event_begin(tt_byte_row_t *records, double time, int64_t step);
void tt_event_scalar(tt_byte_row_t *records, const tt_metric_t *metric, double value);
void tt_event_spread(tt_byte_row_t *records, const tt_metric_t *metric,
                     const tt_metric_spread_t *spread);
void tt_event_text(tt_byte_row_t *records, const tt_metric_t *metric, const char *text);
void tt_event_picture(tt_byte_row_t *records, const tt_metric_t *metric,
                      const tt_picture_t *picture);

/* A number, and the shortest of 15 to 17 digits that read back as the same, or its name. */
enum { TT_NUMBER_TEXT = 32 };
typedef struct {
    double value;
    char text[TT_NUMBER_TEXT];
} tt_metric_number_t;

/* metric_lines.c: texts that several lines have, and a line each. Numbers have a point, whatever
 * the locale of the thread. */
void tt_metric_begin(tt_metric_t *metric, const char *name, int64_t step, double time);
void tt_metric_number(double value, tt_metric_number_t *out);
#define TT_CSV_HEAD "step,time,name,value\n"
void tt_json_scalar(tt_byte_row_t *lines, const tt_metric_t *metric,
                    const tt_metric_number_t *number);
void tt_json_spread(tt_byte_row_t *lines, const tt_metric_t *metric,
                    const tt_metric_spread_t *spread);
void tt_json_text(tt_byte_row_t *lines, const tt_metric_t *metric, const char *text);
void tt_json_picture(tt_byte_row_t *lines, const tt_metric_t *metric, const tt_picture_t *picture);
void tt_utf8_repair(tt_byte_row_t *row, const char *text); /* what is not UTF-8 becomes U+FFFD */
size_t tt_utf8_text_bytes(const char *text);               /* that are UTF-8 from its begin on */
void tt_csv_scalar(tt_byte_row_t *lines, const tt_metric_t *metric,
                   const tt_metric_number_t *number);

/* metrics_cut.c: what was told of that step and later ones, and a half record or line at the end,
 * goes from a file; one that is not there stays so. Errors: IO, FORMAT, NOMEM. */
tutti_status_t tt_cut_events(const char *path, int64_t step);
tutti_status_t tt_cut_lines(const char *path, const char *before_step, int64_t step);

/* metrics_folder.c */
enum { TT_METRICS_EVENTS_FILE, TT_METRICS_JSON_FILE, TT_METRICS_CSV_FILE, TT_METRICS_FILES };

typedef struct {
    int fd; /* -1: it is not wanted */
    char *path;
    tt_byte_row_t told, written; /* metrics.c's */
} tt_metrics_file_t;

double tt_metrics_now(void); /* seconds since 1970 */

/* Those that options want; what a new one begins with is told. What was opened is to be closed,
 * also behind a failure. Errors: as tutti_metrics_open(). */
tutti_status_t tt_metrics_open_files(tt_metrics_file_t files[TT_METRICS_FILES], const char *folder,
                                     const tutti_metrics_options_t *options);
tutti_status_t tt_metrics_close_files(tt_metrics_file_t files[TT_METRICS_FILES]);

#endif
