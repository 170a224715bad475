/* Windows as columns, plane by plane. See patches.h. Of each kernel place the windows that lie
 * inside the plane are an interval, in either direction; with a stride of 1 it is copied at once.
 */
#include "core/kernel/index/patches.h"

#include <string.h>

/* Windows [from, to) of a direction have the kernel's place k inside the plane. */
typedef struct {
    int64_t from, to;
} span_t;

static span_t inside(const tt_patches_t *p, int d, int64_t k)
{
    const int64_t shift = k * p->dilation[d] - p->padding[d], stride = p->stride[d];
    int64_t from = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    int64_t to = p->size[d] <= shift ? 0 : (p->size[d] - 1 - shift) / stride + 1;
    from = from > p->windows[d] ? p->windows[d] : from;
    to = to > p->windows[d] ? p->windows[d] : to;
    return (span_t){from, to < from ? from : to};
}

static void take_strided(char *to, const char *from, int64_t step, int64_t n, int64_t bytes)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * bytes, from + i * step * bytes, (size_t)bytes);
    }
}

/* One line of windows, whose source is a row of the plane; NULL: all outside. */
static void take_line(const tt_patches_t *p, char *to, const char *row, int64_t kw)
{
    const int64_t bytes = (int64_t)tutti_dtype_bytes(p->dtype), windows = p->windows[1];
    const span_t span = row == NULL ? (span_t){0, 0} : inside(p, 1, kw);
    const int64_t n = span.to - span.from;
    memset(to, 0, (size_t)(span.from * bytes));
    if (n > 0) {
        const int64_t at = span.from * p->stride[1] + kw * p->dilation[1] - p->padding[1];
        char *first = to + span.from * bytes;
        if (p->stride[1] == 1) {
            memcpy(first, row + at * bytes, (size_t)(n * bytes));
        } else if (bytes == 4) {
            take_strided(first, row + at * 4, p->stride[1], n, 4);
        } else {
            take_strided(first, row + at * bytes, p->stride[1], n, bytes);
        }
    }
    memset(to + span.to * bytes, 0, (size_t)((windows - span.to) * bytes));
}

static void take_plane(void *arg, size_t plane)
{
    const tt_patches_t *p = arg;
    const int64_t bytes = (int64_t)tutti_dtype_bytes(p->dtype), line = p->windows[1] * bytes;
    const int64_t places = p->kernel[0] * p->kernel[1];
    const char *from = (const char *)p->planes + (int64_t)plane * p->size[0] * p->size[1] * bytes;
    char *to = (char *)p->columns + (int64_t)plane * places * p->windows[0] * line;
    for (int64_t place = 0; place < places; place++) {
        const int64_t kh = place / p->kernel[1], kw = place % p->kernel[1];
        const span_t span = inside(p, 0, kh);
        for (int64_t i = 0; i < p->windows[0]; i++, to += line) {
            const int64_t row = i * p->stride[0] + kh * p->dilation[0] - p->padding[0];
            take_line(p, to, i < span.from || i >= span.to ? NULL : from + row * p->size[1] * bytes,
                      kw);
        }
    }
}

static void add_f32(float *to, const float *from, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * step] += from[i];
    }
}

static void add_f64(double *to, const double *from, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i * step] += from[i];
    }
}

/* A line of windows is added to a row of the plane. Both are first elements' numbers. */
static void add_line(const tt_patches_t *p, int64_t row, int64_t line, int64_t kw)
{
    const span_t span = inside(p, 1, kw);
    const int64_t at = row + span.from * p->stride[1] + kw * p->dilation[1] - p->padding[1];
    const int64_t n = span.to - span.from;
    if (n > 0 && p->dtype == TUTTI_F32) {
        add_f32((float *)p->planes + at, (const float *)p->columns + line + span.from, p->stride[1],
                n);
    } else if (n > 0) {
        add_f64((double *)p->planes + at, (const double *)p->columns + line + span.from,
                p->stride[1], n);
    }
}

static void add_plane(void *arg, size_t plane)
{
    const tt_patches_t *p = arg;
    const int64_t places = p->kernel[0] * p->kernel[1], own = p->size[0] * p->size[1];
    const int64_t to = (int64_t)plane * own;
    int64_t line = (int64_t)plane * places * p->windows[0] * p->windows[1];
    const size_t bytes = tutti_dtype_bytes(p->dtype);
    memset((char *)p->planes + (size_t)to * bytes, 0, (size_t)own * bytes);
    for (int64_t place = 0; place < places; place++) {
        const int64_t kh = place / p->kernel[1], kw = place % p->kernel[1];
        const span_t span = inside(p, 0, kh);
        for (int64_t i = 0; i < p->windows[0]; i++, line += p->windows[1]) {
            const int64_t row = i * p->stride[0] + kh * p->dilation[0] - p->padding[0];
            if (i >= span.from && i < span.to) {
                add_line(p, to + row * p->size[1], line, kw);
            }
        }
    }
}

static tutti_status_t run_take(tt_threads_t *threads, const void *arguments)
{
    tt_patches_t patches = *(const tt_patches_t *)arguments;
    tt_threads_run(threads, (size_t)patches.count, take_plane, &patches);
    return TUTTI_OK;
}

static tutti_status_t run_add(tt_threads_t *threads, const void *arguments)
{
    tt_patches_t patches = *(const tt_patches_t *)arguments;
    TT_ASSERT(patches.dtype == TUTTI_F32 || patches.dtype == TUTTI_F64);
    tt_threads_run(threads, (size_t)patches.count, add_plane, &patches);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_patches_t, columns),
                                        TT_POINTER(tt_patches_t, planes), TT_NO_POINTER};

TT_LAUNCHER(tt_patches_take, "unfold", tt_patches_t, run_take, pointers)
TT_LAUNCHER(tt_patches_add, "fold", tt_patches_t, run_add, pointers)
