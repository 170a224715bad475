/* Writes the folder that metrics_format_test.py reads:
 *
 *     metrics_files FOLDER         numbers of ten steps, a histogram, a text, two pictures
 *     metrics_files FOLDER STEP    goes on from that step: one number of it
 */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { STEPS = 10 };

static tutti_status_t tell_tensors(tutti_metrics_t *metrics)
{
    tutti_context_t *ctx;
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_context_create(NULL, &ctx));
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, -2, 1, 5); /* -2 … 2 */
    static const unsigned char colors[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 1, 2, 3};
    static const float grays[] = {-1, 0, 0.5F, 2};
    tutti_tensor_t *rgb = tutti_from_data(s, TUTTI_U8, TUTTI_SHAPE(2, 2, 3), colors);
    tutti_tensor_t *gray = tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(1, 4, 1), grays);
    tutti_status_t status = tutti_metrics_histogram(metrics, "weights", 3, x);
    status = status < 0 ? status : tutti_metrics_picture(metrics, "rgb", 4, rgb);
    status = status < 0 ? status : tutti_metrics_picture(metrics, "gray", 5, gray);
    TUTTI_CHECK(tutti_scope_close(s));
    tutti_context_release(ctx);
    return status;
}

static tutti_status_t tell_all(tutti_metrics_t *metrics)
{
    for (int64_t step = 0; step < STEPS; step++) {
        TUTTI_CHECK(tutti_metrics_scalar(metrics, "train/loss", step, 1.0 / (double)(step + 1)));
        TUTTI_CHECK(tutti_metrics_scalar(metrics, "lr", step, 0.5 * (double)step));
    }
    TUTTI_CHECK(tutti_metrics_text(metrics, "settings", 2, "--lr 0.5"));
    return tell_tensors(metrics);
}

int main(int argc, char **argv)
{
    tutti_metrics_t *metrics;
    const bool is_continued = argc > 2;
    const int64_t from = is_continued ? strtoll(argv[2], NULL, 10) : 0;
    const tutti_metrics_options_t options = {.is_continued = is_continued, .step = from};
    tutti_status_t status = tutti_metrics_open(argv[1], &options, &metrics);
    if (status >= 0) {
        status =
            is_continued ? tutti_metrics_scalar(metrics, "train/loss", from, 7) : tell_all(metrics);
        const tutti_status_t closed = tutti_metrics_close(metrics);
        status = status < 0 ? status : closed;
    }
    if (status < 0) {
        fprintf(stderr, "metrics_files: %s\n", tutti_last_error());
    }
    return status < 0;
}
