/* Events of TensorBoard's. Numbers of fields are those of TensorFlow's event.proto, summary.proto,
 * histogram.proto and tensor.proto.
 */
#include <string.h>

#include "runtime/metrics/metrics_impl.h"

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { EVENT_SESSION_LOG = 7, SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_IMAGE = 4, VALUE_HISTOGRAM = 5, VALUE_TENSOR = 8 };
enum { VALUE_METADATA = 9 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH = 2, IMAGE_CHANNELS = 3, IMAGE_BYTES = 4 };
enum { HISTOGRAM_MIN = 1, HISTOGRAM_MAX = 2, HISTOGRAM_COUNT = 3, HISTOGRAM_SUM = 4 };
enum { HISTOGRAM_SQUARES = 5, HISTOGRAM_LIMITS = 6, HISTOGRAM_BUCKETS = 7 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8, DTYPE_STRING = 7 };
enum { SHAPE_DIM = 2, DIM_SIZE = 1, METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };

/* A record of the version, and one of a session that starts: behind another such, TensorBoard
 * forgets what it has read of that step and later ones. */
void tt_event_begin(tt_byte_row_t *records, double time, int64_t step)
{
    tt_byte_row_t version = {0}, session = {0}, start = {0};
    tt_row_double(&version, EVENT_TIME, time);
    tt_row_text(&version, EVENT_FILE_VERSION, "brain.Event:2");
    tt_row_number(&session, SESSION_STATUS, SESSION_START);
    tt_row_double(&start, EVENT_TIME, time);
    tt_row_number(&start, EVENT_STEP, (uint64_t)step);
    tt_row_message(&start, EVENT_SESSION_LOG, &session);
    tt_row_record(records, &version);
    tt_row_record(records, &start);
    tt_row_free(&version);
    tt_row_free(&session);
    tt_row_free(&start);
}

/* `value` has all but its name. */
static void add_event(tt_byte_row_t *records, const tt_metric_t *metric, tt_byte_row_t *value)
{
    tt_byte_row_t summary = {0}, event = {0};
    tt_row_text(value, VALUE_TAG, metric->name);
    tt_row_message(&summary, SUMMARY_VALUE, value);
    tt_row_double(&event, EVENT_TIME, metric->time);
    tt_row_number(&event, EVENT_STEP, (uint64_t)metric->step);
    tt_row_message(&event, EVENT_SUMMARY, &summary);
    tt_row_record(records, &event);
    tt_row_free(&event);
    tt_row_free(&summary);
    tt_row_free(value);
}

void tt_event_scalar(tt_byte_row_t *records, const tt_metric_t *metric, double value)
{
    tt_byte_row_t message = {0};
    tt_row_float(&message, VALUE_SIMPLE, (float)value);
    add_event(records, metric, &message);
}

/* Empty buckets before the first value and behind the last one are left out, but for one before,
 * whose limit is where the first begins. */
void tt_event_spread(tt_byte_row_t *records, const tt_metric_t *metric,
                     const tt_metric_spread_t *spread)
{
    size_t begin = 0, end = TT_SPREAD_BUCKETS;
    while (begin + 1 < end && spread->counts[begin + 1] == 0 && spread->counts[begin] == 0) {
        begin++;
    }
    while (end > begin + 1 && spread->counts[end - 1] == 0) {
        end--;
    }
    tt_byte_row_t histogram = {0}, message = {0};
    tt_row_double(&histogram, HISTOGRAM_MIN, spread->smallest);
    tt_row_double(&histogram, HISTOGRAM_MAX, spread->largest);
    tt_row_double(&histogram, HISTOGRAM_COUNT, (double)spread->count);
    tt_row_double(&histogram, HISTOGRAM_SUM, spread->sum);
    tt_row_double(&histogram, HISTOGRAM_SQUARES, spread->squares);
    tt_row_doubles(&histogram, HISTOGRAM_LIMITS, spread->limits + begin, end - begin);
    tt_row_doubles(&histogram, HISTOGRAM_BUCKETS, spread->counts + begin, end - begin);
    tt_row_message(&message, VALUE_HISTOGRAM, &histogram);
    add_event(records, metric, &message);
    tt_row_free(&histogram);
}

void tt_event_text(tt_byte_row_t *records, const tt_metric_t *metric, const char *text)
{
    tt_byte_row_t dim = {0}, shape = {0}, tensor = {0}, plugin = {0}, metadata = {0}, message = {0};
    tt_byte_row_t repaired = {
        0}; /* TensorBoard shows no text that is not UTF-8, nor those beside it */
    tt_utf8_repair(&repaired, text);
    tt_row_number(&dim, DIM_SIZE, 1);
    tt_row_message(&shape, SHAPE_DIM, &dim);
    tt_row_number(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    tt_row_message(&tensor, TENSOR_SHAPE, &shape);
    tt_row_message(&tensor, TENSOR_STRINGS, &repaired);
    tt_row_text(&plugin, PLUGIN_NAME, "text");
    tt_row_message(&metadata, METADATA_PLUGIN, &plugin);
    tt_row_message(&message, VALUE_TENSOR, &tensor);
    tt_row_message(&message, VALUE_METADATA, &metadata);
    add_event(records, metric, &message);
    tt_byte_row_t *const rows[] = {&dim, &shape, &tensor, &plugin, &metadata, &repaired};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tt_row_free(rows[i]);
    }
}

void tt_event_picture(tt_byte_row_t *records, const tt_metric_t *metric,
                      const tt_picture_t *picture)
{
    tt_byte_row_t image = {0}, message = {0};
    tt_row_number(&image, IMAGE_HEIGHT, (uint64_t)picture->height);
    tt_row_number(&image, IMAGE_WIDTH, (uint64_t)picture->width);
    tt_row_number(&image, IMAGE_CHANNELS, (uint64_t)picture->channels);
    tt_row_bytes(&image, IMAGE_BYTES, picture->png.bytes, picture->png.count);
    tt_row_message(&message, VALUE_IMAGE, &image);
    add_event(records, metric, &message);
    tt_row_free(&image);
}
