/* Images in planes (conv_window.h). Cost: one pass over the image. */
#include "core/kernel/conv/conv_window.h"

#include "core/kernel/conv/conv_ops.h"

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

/* Some rows of all units; `odd`: the phase of the columns between, or -1. */
static void copy_phase(const tt_window_t *w, const char *image, int64_t h, int64_t v, int64_t odd,
                       char *planes)
{
    const int64_t bytes = element_bytes(w), image_plane = w->size[0] * w->size[1];
    const extent_t rows = extent(w, 0, h), columns = extent(w, 1, v);
    const extent_t between = odd < 0 ? (extent_t){0} : extent(w, 1, odd);
    const int64_t plane = h * w->phases[1], top = rows.first * w->plane_size[1];
    const int64_t whole = w->in_pairs ? w->channels / 2 : w->channels;
    const int64_t from = (rows.from * w->size[1] + columns.from) * (int64_t)w->element_bytes;
    tt_conv_copy_t copy = {
        .units = whole,
        .rows = rows.count,
        .count = columns.count,
        .from = image + from,
        .second = w->in_pairs ? image_plane : 0,
        .step = w->stride[1],
        .from_pitch = w->stride[0] * w->size[1],
        .from_unit = w->in_pairs ? 2 * image_plane : image_plane,
        .to = planes + (plane + v) * plane_bytes(w) + (top + columns.first) * bytes,
        .odd = odd < 0 ? NULL
                       : planes + (plane + odd) * plane_bytes(w) + (top + between.first) * bytes,
        .odd_count = between.count,
        .to_pitch = w->plane_size[1],
        .to_unit = tt_window_unit_bytes(w) / bytes,
    };
    const tt_conv_ops_t *ops = tt_kernels()->conv;
    if (rows.count == 0 || columns.count == 0) {
        return;
    }
    if (!w->in_pairs) {
        (w->element_bytes == 2 ? ops->copy_bf16 : ops->copy_f32)(&copy);
        return;
    }
    ops->pair_bf16(&copy);
    if (whole < tt_window_units(w)) {
        copy.units = 1;
        copy.second = 0;
        copy.from = image + from + 2 * whole * image_plane * (int64_t)w->element_bytes;
        copy.to = (char *)copy.to + whole * tt_window_unit_bytes(w);
        ops->pair_bf16(&copy);
    }
}

void tt_window_arrange(const tt_window_t *w, const void *image, void *planes)
{
    const bool is_split = w->stride[1] == 2 && w->phases[1] == 2 && w->element_bytes == 4;
    const int64_t first = w->before[1] % 2; /* the phase that column 0 is of */
    for (int64_t h = 0; h < w->phases[0]; h++) {
        if (is_split) {
            copy_phase(w, image, h, first, 1 - first, planes);
            continue;
        }
        for (int64_t v = 0; v < w->phases[1]; v++) {
            copy_phase(w, image, h, v, -1, planes);
        }
    }
}

bool tt_window_is_image(const tt_window_t *w)
{
    bool is_image = !w->in_pairs && w->element_bytes == 4;
    for (int i = 0; i < 2; i++) {
        is_image = is_image && w->before[i] == 0 && w->stride[i] == 1 && w->phases[i] == 1 &&
                   w->plane_size[i] == w->size[i];
    }
    return is_image;
}
