/**
 * @file metrics.h
 * Numbers of a training over its steps: into files for TensorBoard, as JSON lines, and as CSV.
 *
 * Example:
 *
 *     tutti_metrics_t *metrics;
 *     TUTTI_CHECK(tutti_metrics_open("runs/1", NULL, &metrics));
 *     for (int64_t step = 0; step < 100; step++) {
 *         tutti_metrics_scalar(metrics, "train/loss", step, 1.0 / (double)(step + 1));
 *     }
 *     tutti_metrics_text(metrics, "settings", 0, "lr 0.001");
 *     TUTTI_CHECK(tutti_metrics_close(metrics)); // IO: not all of it could be written
 *
 * The folder gets three files, each of which can be read while the training goes on:
 *
 *     events.out.tfevents.<seconds>.<host>.<process>   tensorboard --logdir runs
 *     metrics.jsonl   {"step":0,"time":1795895000.125,"name":"train/loss","value":1}
 *     metrics.csv     step,time,name,value; time is in seconds since 1970
 *
 * One rank writes, usually rank 0. What is told is held in memory for a second at most, then a
 * thread writes it; a crash leaves whole records of TensorBoard's, and whole lines but for the last
 * one. A training that goes on from a checkpoint of step N opens the same folder with
 * `is_continued` and `step` N: what was told of step N and later ones is cut away first, so that
 * each step stands there once. Events go on in a further file, which a TensorBoard that has the
 * folder open takes up, and which has it forget what it has read of step N and later ones.
 *
 * A failure to write does not stop a training: the calls in a loop return it, the first one for
 * ever, and tutti_metrics_close() does. In a forked child they are STATE: its parent writes.
 */
#ifndef TUTTI_METRICS_H
#define TUTTI_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/status.h>
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A folder that gets numbers. */
typedef struct tutti_metrics tutti_metrics_t;

/** Which files are written. */
typedef enum tutti_metrics_format {
    TUTTI_METRICS_EVENTS = 1, /**< of TensorBoard */
    TUTTI_METRICS_JSON = 2,
    TUTTI_METRICS_CSV = 4, /**< scalars alone */
} tutti_metrics_format_t;

/** Zero means default. */
typedef struct tutti_metrics_options {
    unsigned formats;  /**< any of tutti_metrics_format_t together; 0: all */
    bool is_continued; /**< the folder's files go on; else it must hold none */
    int64_t step;      /**< is_continued: what was told of this step and later ones is cut away */
} tutti_metrics_options_t;

/**
 * Open a folder, which is made if it is not there.
 *
 * @param folder   borrowed
 * @param options  borrowed; NULL for all defaults
 * @param out      owned by the caller, to be closed with tutti_metrics_close
 * @thread         any
 * @cost           is_continued: reads the files, and writes them anew if something is cut away
 * @errors         IO (names the file), STATE (there are files of metrics already: is_continued is
 *                 for going on), FORMAT (a file of events that is none), ARG, NOMEM
 * @source         torch.utils.tensorboard.SummaryWriter, with purge_step
 */
TUTTI_API tutti_status_t tutti_metrics_open(const char *folder,
                                            const tutti_metrics_options_t *options,
                                            tutti_metrics_t **out);

/** Write all that was told, and close; NULL does nothing. Gone in any case.
 *  @thread one at a time @errors IO, NOMEM: the first failure since it was opened */
TUTTI_API tutti_status_t tutti_metrics_close(tutti_metrics_t *metrics);

/** Write all that was told, now. @thread any @errors IO, NOMEM: as tutti_metrics_close() */
TUTTI_API tutti_status_t tutti_metrics_flush(tutti_metrics_t *metrics);

/**
 * Tell a number.
 *
 * @param name   such as "train/loss": TensorBoard groups by what stands before the slash; any text
 *               in UTF-8 but ""
 * @param step   at least 0
 * @param value  also not finite: JSON has null and "not_finite" then; TensorBoard has f32
 * @thread       any
 * @cost         below a microsecond; writes no file, but once for each MiB
 * @errors       ARG, STATE (a forked child), and a failure of the thread that writes
 * @source       SummaryWriter.add_scalar
 */
TUTTI_API tutti_status_t tutti_metrics_scalar(tutti_metrics_t *metrics, const char *name,
                                              int64_t step, double value);

/**
 * Tell how the values of a tensor are spread: in buckets whose limits grow by a tenth, as
 * TensorBoard's; JSON has count, smallest, largest, mean and standard deviation. Values that are
 * not finite are counted apart ("not_finite" in JSON).
 *
 * @param x  [any shape], any dtype, on any device
 * @thread   the tensor's
 * @cost     reads x once; of a device, copies it
 * @errors   as tutti_metrics_scalar, STATE (x has no values now)
 * @source   SummaryWriter.add_histogram
 */
TUTTI_API tutti_status_t tutti_metrics_histogram(tutti_metrics_t *metrics, const char *name,
                                                 int64_t step, const tutti_tensor_t *x);

/** Tell a text, which TensorBoard takes for Markdown; what is not UTF-8 in it becomes U+FFFD.
 * @thread any @errors as tutti_metrics_scalar
 *  @source SummaryWriter.add_text */
TUTTI_API tutti_status_t tutti_metrics_text(tutti_metrics_t *metrics, const char *name,
                                            int64_t step, const char *text);

/**
 * Tell a picture, which becomes a PNG among the events; JSON has its size alone.
 *
 * @param x  [H, W, C], C is 1 (gray), 3 (RGB) or 4 (RGBA); u8, or floating in [0, 1], which is
 *           clamped
 * @thread   the tensor's
 * @cost     compresses H W C bytes
 * @errors   as tutti_metrics_scalar, SHAPE, DTYPE, NOMEM
 * @source   SummaryWriter.add_image with dataformats="HWC"
 */
TUTTI_API tutti_status_t tutti_metrics_picture(tutti_metrics_t *metrics, const char *name,
                                               int64_t step, const tutti_tensor_t *x);

#ifdef __cplusplus
}
#endif

#endif
