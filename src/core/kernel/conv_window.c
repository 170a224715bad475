/* Images in planes (conv_window.h). Cost: one pass over the planes; rows are copied whole where
 * stride and spread are 1. */
#include "core/kernel/conv_window.h"

#include <stdbool.h>
#include <string.h>

void tt_window_init(tt_window_t *w)
{
    for (int i = 0; i < 2; i++) {
        w->plane_size[i] = w->out_size[i] + (w->kernel[i] - 1) * w->dilation[i] / w->stride[i];
    }
    w->plane = w->plane_size[0] * w->plane_size[1];
}

int64_t tt_window_taps(const tt_window_t *w)
{
    return w->channels * w->kernel[0] * w->kernel[1];
}

int64_t tt_window_elements(const tt_window_t *w)
{
    return w->channels * w->stride[0] * w->stride[1] * w->plane;
}

void tt_window_list_taps(const tt_window_t *w, int64_t *taps)
{
    for (int64_t channel = 0; channel < w->channels; channel++) {
        for (int64_t i = 0; i < w->kernel[0]; i++) {
            for (int64_t j = 0; j < w->kernel[1]; j++) {
                const int64_t h = i * w->dilation[0], v = j * w->dilation[1];
                const int64_t plane =
                    (channel * w->stride[0] + h % w->stride[0]) * w->stride[1] + v % w->stride[1];
                *taps++ = plane * w->plane + h / w->stride[0] * w->plane_size[1] + v / w->stride[1];
            }
        }
    }
}

int tt_window_list_runs(const tt_window_t *w, int64_t first, int64_t count, tt_window_run_t *runs)
{
    int found = 0;
    int64_t row = first / w->out_size[1], column = first % w->out_size[1];
    for (int64_t done = 0; done < count; row++, column = 0) {
        const int64_t left = w->out_size[1] - column;
        const int64_t length = left < count - done ? left : count - done;
        runs[found++] = (tt_window_run_t){
            .to = (int32_t)done, .count = (int32_t)length, .from = row * w->plane_size[1] + column};
        done += length;
    }
    return found;
}

/* Which element of the image is at a place along a dimension: -1 for a zero. */
static int64_t source(const tt_window_t *w, int dim, int64_t place)
{
    const int64_t at = place - w->before[dim];
    const int64_t index = at / w->spread[dim];
    return at >= 0 && at % w->spread[dim] == 0 && index < w->size[dim] ? index : -1;
}

/* A plane's row whose places are `phase`, phase + stride, … */
static void gather_row(const tt_window_t *w, const char *row, int64_t phase, char *to)
{
    const size_t bytes = w->element_bytes;
    for (int64_t i = 0; i < w->plane_size[1]; i++, to += bytes) {
        const int64_t from = source(w, 1, i * w->stride[1] + phase);
        if (from < 0) {
            memset(to, 0, bytes);
        } else if (bytes == 4) {
            memcpy(to, row + from * 4, 4);
        } else {
            memcpy(to, row + from * 2, 2);
        }
    }
}

static void copy_row(const tt_window_t *w, const char *row, char *to)
{
    const int64_t bytes = (int64_t)w->element_bytes, width = w->plane_size[1];
    const int64_t before = w->before[1], skip = before < 0 ? -before : 0;
    const int64_t start = before < 0 ? 0 : before < width ? before : width;
    int64_t count = w->size[1] - skip;
    count = count < 0 ? 0 : count < width - start ? count : width - start;
    memset(to, 0, (size_t)(start * bytes));
    if (count > 0) {
        memcpy(to + start * bytes, row + skip * bytes, (size_t)(count * bytes));
    }
    memset(to + (start + count) * bytes, 0, (size_t)((width - start - count) * bytes));
}

static void arrange_plane(const tt_window_t *w, const char *image, const int64_t phase[2], char *to)
{
    const int64_t bytes = (int64_t)w->element_bytes;
    const bool is_plain = w->stride[1] == 1 && w->spread[1] == 1;
    for (int64_t i = 0; i < w->plane_size[0]; i++, to += w->plane_size[1] * bytes) {
        const int64_t from = source(w, 0, i * w->stride[0] + phase[0]);
        if (from < 0) {
            memset(to, 0, (size_t)(w->plane_size[1] * bytes));
        } else if (is_plain) {
            copy_row(w, image + from * w->size[1] * bytes, to);
        } else {
            gather_row(w, image + from * w->size[1] * bytes, phase[1], to);
        }
    }
}

void tt_window_arrange(const tt_window_t *w, const void *image, void *planes)
{
    const int64_t bytes = (int64_t)w->element_bytes;
    const char *from = image;
    char *to = planes;
    for (int64_t channel = 0; channel < w->channels; channel++) {
        for (int64_t h = 0; h < w->stride[0]; h++) {
            for (int64_t v = 0; v < w->stride[1]; v++) {
                arrange_plane(w, from, (const int64_t[]){h, v}, to);
                to += w->plane * bytes;
            }
        }
        from += w->size[0] * w->size[1] * bytes;
    }
}
