/* Taps of interpolation. An element of y sees a window of x, whose elements count by a filter of
 * their distance; all modes are such windows. Elements of the window beyond an end of x are the
 * last ones there. Taps are a list first, (i, j, weight) in the order of i; with i and j exchanged
 * it is that of the gradient.
 *
 *     mode              window of element i, r = size / out_size or 1 / scale
 *     nearest           floor(i r)
 *     nearest-exact     floor((i + 0.5) r)
 *     linear, cubic     2 or 4 around c = (i + 0.5) r - 0.5, or i (size - 1) / (out_size - 1)
 *     antialias         those nearer to c than 1 or 2 (lanczos: 3) times max(r, 1), divided by
 *                       their sum
 *     area              floor(i size / out_size) to ceil((i + 1) size / out_size)
 *
 * Cost: one pass over the taps, by the caller. Source: PyTorch's UpSample.h; Keys, "Cubic
 * convolution interpolation for digital image processing", 1981; Pillow's Resample.c for antialias;
 * Duchon, "Lanczos filtering in one and two dimensions", 1979.
 */
#include "core/kernel/pool/taps.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"

#define ALMOST (1 + 0x1p-50)

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct {
    double center, stretch; /* distances are (j - center) / stretch */
    int64_t begin, end;
} window_t;

/* How far the filter reaches, in elements. */
static int radius_of(tt_filter_t filter)
{
    return filter == TT_FILTER_LANCZOS ? 3 : filter == TT_FILTER_CUBIC ? 2 : 1;
}

/* sin(πx) / (πx) for 0 <= x < 2^52. libm's sine has other last bits elsewhere; with n the nearest
 * whole number and f = x - n, which is exact, it is ± sin(πf) / (πf) × f / x, the first factor by
 * Taylor's series Σ ± (πf)²ⁱ / (2i + 1)!, whose rest is below 2^-59 of it. */
static double sinc(double x)
{
    static const double of[] = {
        0x1.0000000000000p+0,   -0x1.a51a6625307d3p+0,  0x1.9f9cb402bc46cp-1,
        -0x1.86a8e4720db67p-3,  0x1.ac6805cf350a6p-6,   -0x1.33816aa4607abp-9,
        0x1.374719fab3915p-13,  -0x1.d42498d1ce099p-18, 0x1.0fc992ff39e13p-22,
        -0x1.f5f9d970ca6dfp-28, 0x1.79788684225eap-33};
    const int64_t n = (int64_t)(x + 0.5);
    const double f = x - (double)n;
    double sum = 0;
    for (int i = sizeof of / sizeof *of - 1; i >= 0; i--) {
        sum = sum * (f * f) + of[i];
    }
    return n == 0 ? sum : (n % 2 == 0 ? sum : -sum) * f / x;
}

static double filter_at(const tt_line_t *l, double distance)
{
    const double x = fabs(distance), a = l->antialias ? -0.5 : -0.75;
    switch (l->filter) {
    case TT_FILTER_LINEAR:
        return x < 1 ? 1 - x : 0;
    case TT_FILTER_CUBIC:
        return x <= 1  ? ((a + 2) * x - (a + 3)) * x * x + 1
               : x < 2 ? (((x - 5) * x + 8) * x - 4) * a
                       : 0;
    case TT_FILTER_LANCZOS:
        return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    default:
        return 1;
    }
}

static double step_of(const tt_line_t *l)
{
    if (l->align_corners) {
        return l->out_size == 1 ? 0 : (double)(l->size - 1) / (double)(l->out_size - 1);
    }
    return l->scale > 0 ? 1 / l->scale : (double)l->size / (double)l->out_size;
}

/* floor((i + shift / 2) r), at most the last: without a scale in integers, which round nothing. Of
 * a scale that stands for a fraction, what rounding leaves below an integer is one: 3 / 0.2 is 15.
 */
static int64_t nearest_to(const tt_line_t *l, int64_t i, int shift)
{
    const int64_t last = l->size - 1;
    const double place = l->scale > 0 ? ((double)i + 0.5 * shift) / l->scale * ALMOST : 0;
    return l->scale <= 0          ? (2 * i + shift) * l->size / (2 * l->out_size)
           : place < (double)last ? (int64_t)place
                                  : last;
}

static window_t window_around(const tt_line_t *l, int64_t i)
{
    const double step = step_of(l), half = (double)i + 0.5, radius = radius_of(l->filter);
    if (!l->antialias) {
        const double center = l->align_corners ? step * (double)i : step * half - 0.5;
        const int64_t first = (int64_t)floor(center) - radius_of(l->filter) + 1;
        return (window_t){center, 1, first, first + 2 * radius_of(l->filter)};
    }
    const double stretch = step > 1 ? step : 1, middle = step * half;
    const double begin = middle - radius * stretch + 0.5, end = middle + radius * stretch + 0.5;
    return (window_t){middle - 0.5, stretch, begin > 0 ? (int64_t)begin : 0,
                      end < (double)l->size ? (int64_t)end : l->size};
}

static window_t window_of(const tt_line_t *l, int64_t i)
{
    if (l->filter == TT_FILTER_AREA) {
        return (window_t){0, 1, i * l->size / l->out_size,
                          tt_pieces_of((i + 1) * l->size, l->out_size)};
    }
    if (l->filter == TT_FILTER_NEAREST || l->filter == TT_FILTER_NEAREST_EXACT) {
        const int64_t at = nearest_to(l, i, l->filter == TT_FILTER_NEAREST_EXACT);
        return (window_t){0, 1, at, at + 1};
    }
    return window_around(l, i);
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct {
    int32_t to, from;
    double weight;
} tap_t;

/* The taps of element i, not more than its window has: how many. */
static int64_t list_window(const tt_line_t *l, int64_t i, window_t w, tap_t *list)
{
    int64_t n = 0;
    double sum = 0;
    for (int64_t j = w.begin; j < w.end; j++) {
        const int32_t from = (int32_t)tt_min(tt_max(j, 0), l->size - 1);
        const double weight = filter_at(l, ((double)j - w.center) / w.stretch);
        sum += weight;
        if (n > 0 && list[n - 1].from == from) {
            list[n - 1].weight += weight;
        } else {
            list[n++] = (tap_t){(int32_t)i, from, weight};
        }
    }
    int64_t kept = 0;
    for (int64_t k = 0; k < n; k++) {
        if (list[k].weight != 0) {
            list[kept] = list[k];
            list[kept++].weight /= sum;
        }
    }
    return kept;
}

static tutti_status_t list_taps(const tt_line_t *l, tap_t **out, int64_t *count)
{
    int64_t room = 0;
    for (int64_t i = 0; i < l->out_size; i++) {
        const window_t w = window_of(l, i);
        room += w.end - w.begin;
    }
    tap_t *list = tt_alloc_array((size_t)room, sizeof *list, "taps");
    TT_TRY_ALLOC(list);
    int64_t n = 0;
    for (int64_t i = 0; i < l->out_size; i++) {
        n += list_window(l, i, window_of(l, i), list + n);
    }
    *out = list;
    *count = n;
    return TUTTI_OK;
}

static void exchange(tap_t *list, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        list[k] = (tap_t){list[k].from, list[k].to, list[k].weight};
    }
}

/* ---- the matrix ------------------------------------------------------------------------------ */

static void set_weight(const tt_taps_t *t, int64_t at, double weight, tutti_dtype_t dtype)
{
    if (dtype == TUTTI_F64) {
        ((double *)t->weight)[at] = weight;
    } else {
        ((float *)t->weight)[at] = (float)weight;
    }
}

/* seen: [n], zeros. */
static void count_taps(tt_taps_t *t, const tap_t *list, int64_t count, int32_t *seen)
{
    t->most = 1;
    for (int64_t k = 0; k < count; k++) {
        t->most = tt_max(t->most, ++seen[list[k].to]);
    }
}

static tutti_status_t lay_taps(tt_taps_t *t, const tap_t *list, int64_t count, int32_t *seen,
                               tutti_dtype_t dtype)
{
    const size_t wide = dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    count_taps(t, list, count, seen);
    const size_t cells = (size_t)(t->most * t->stride);
    t->weight = tt_alloc_array(cells, wide + sizeof *t->index, "taps");
    TT_TRY_ALLOC(t->weight);
    t->index = (int32_t *)(void *)((char *)t->weight + cells * wide);
    for (int64_t k = count - 1; k >= 0; k--) {
        const int64_t at = --seen[list[k].to] * t->stride + list[k].to;
        t->index[at] = list[k].from;
        set_weight(t, at, list[k].weight, dtype);
    }
    return TUTTI_OK;
}

tutti_status_t tt_taps_of_line(const tt_line_t *line, bool is_backward, tutti_dtype_t dtype,
                               tt_taps_t *out)
{
    const int64_t n = is_backward ? line->size : line->out_size;
    tt_taps_t t = {.n = n, .stride = tt_pieces_of(n, TT_TAPS_BLOCK) * TT_TAPS_BLOCK};
    tap_t *list;
    int64_t count;
    TT_TRY(list_taps(line, &list, &count));
    if (is_backward) {
        exchange(list, count);
    }
    int32_t *seen = tt_alloc_array((size_t)n, sizeof *seen, "taps");
    tutti_status_t status = seen == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    if (status >= 0) {
        status = lay_taps(&t, list, count, seen, dtype);
    }
    tt_free(seen);
    tt_free(list);
    *out = t;
    return status;
}

void tt_taps_free(tt_taps_t *taps)
{
    tt_free(taps->weight);
    taps->weight = NULL;
}

/* ---- what they are like ---------------------------------------------------------------------- */

static double weight_of(const tt_taps_t *t, int64_t at, tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 ? ((const double *)t->weight)[at]
                              : (double)((const float *)t->weight)[at];
}

bool tt_taps_pick(const tt_taps_t *taps, tutti_dtype_t dtype)
{
    for (int64_t i = 0; i < taps->n; i++) {
        const double weight = weight_of(taps, i, dtype);
        if (weight != 1) {
            return false;
        }
    }
    return taps->most == 1;
}

bool tt_taps_are_identity(const tt_taps_t *taps, tutti_dtype_t dtype)
{
    for (int64_t i = 0; i < taps->n; i++) {
        if (taps->index[i] != i) {
            return false;
        }
    }
    return tt_taps_pick(taps, dtype);
}

tt_range_t tt_taps_range(const tt_taps_t *taps, tutti_dtype_t dtype, int64_t first, int64_t end)
{
    tt_range_t range = {INT32_MAX, 0};
    for (int64_t i = first; i < end; i++) {
        for (int64_t at = i; at < taps->most * taps->stride; at += taps->stride) {
            const double weight = weight_of(taps, at, dtype);
            if (weight != 0) {
                range.first = tt_min(range.first, taps->index[at]);
                range.end = tt_max(range.end, taps->index[at] + 1);
            }
        }
    }
    return range.end == 0 ? (tt_range_t){0, 0} : range;
}
