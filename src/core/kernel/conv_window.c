/* Images in planes (conv_window.h). Cost: one pass over the image. */
#include "core/kernel/conv_window.h"

#include "core/kernel/conv_ops.h"

static int64_t element_bytes(const tt_window_t *w)
{
    return w->in_pairs ? 4 : (int64_t)w->element_bytes;
}

static int64_t plane_bytes(const tt_window_t *w)
{
    return w->plane_size[0] * w->plane_size[1] * element_bytes(w);
}

int64_t tt_window_units(const tt_window_t *w)
{
    return w->in_pairs ? (w->channels + 1) / 2 : w->channels;
}

int64_t tt_window_unit_bytes(const tt_window_t *w)
{
    return w->phases[0] * w->phases[1] * plane_bytes(w);
}

int64_t tt_window_bytes(const tt_window_t *w)
{
    return tt_window_units(w) * tt_window_unit_bytes(w);
}

int64_t tt_window_at(const tt_window_t *w, int64_t h, int64_t v)
{
    const int64_t plane = h % w->stride[0] * w->phases[1] + v % w->stride[1];
    const int64_t at = h / w->stride[0] * w->plane_size[1] + v / w->stride[1];
    return plane * plane_bytes(w) + at * element_bytes(w);
}

/* A plane's elements along a dimension that the image has, and the first one's place there. */
typedef struct {
    int64_t first, count, from;
} extent_t;

static extent_t extent(const tt_window_t *w, int dim, int64_t phase)
{
    const int64_t stride = w->stride[dim], in_front = w->before[dim] - phase;
    const int64_t first = in_front > 0 ? (in_front + stride - 1) / stride : 0;
    const int64_t room = w->size[dim] + in_front;
    int64_t end = room > 0 ? (room + stride - 1) / stride : 0;
    end = end < w->plane_size[dim] ? end : w->plane_size[dim];
    return (extent_t){first, end > first ? end - first : 0, first * stride - in_front};
}

/* A phase of a unit, whose second channel may be NULL. */
static void arrange_plane(const tt_conv_ops_t *ops, const tt_window_t *w, const char *image,
                          const char *second, const int64_t phase[2], char *to)
{
    const extent_t rows = extent(w, 0, phase[0]), columns = extent(w, 1, phase[1]);
    const int64_t from = (rows.from * w->size[1] + columns.from) * (int64_t)w->element_bytes;
    const tt_conv_copy_t copy = {
        .rows = rows.count,
        .count = columns.count,
        .from = image + from,
        .second = second == NULL ? NULL : second + from,
        .step = w->stride[1],
        .from_pitch = w->stride[0] * w->size[1],
        .to = to + (rows.first * w->plane_size[1] + columns.first) * element_bytes(w),
        .to_pitch = w->plane_size[1],
    };
    if (columns.count > 0) {
        (w->in_pairs             ? ops->pair_bf16
         : w->element_bytes == 2 ? ops->copy_bf16
                                 : ops->copy_f32)(&copy);
    }
}

void tt_window_arrange(const tt_window_t *w, const void *image, void *planes)
{
    const int64_t bytes = w->size[0] * w->size[1] * (int64_t)w->element_bytes;
    const int64_t step = w->in_pairs ? 2 : 1;
    const tt_conv_ops_t *ops = tt_kernels()->conv;
    char *to = planes;
    for (int64_t channel = 0; channel < w->channels; channel += step) {
        const char *from = (const char *)image + channel * bytes;
        const char *second = w->in_pairs && channel + 1 < w->channels ? from + bytes : NULL;
        for (int64_t h = 0; h < w->phases[0]; h++) {
            for (int64_t v = 0; v < w->phases[1]; v++) {
                arrange_plane(ops, w, from, second, (const int64_t[]){h, v}, to);
                to += plane_bytes(w);
            }
        }
    }
}
