/* Pooling by vectors of neighbouring windows (pooling_ops.h). Rows are written a vector at a time,
 * in order, so that each overwrites what the one before it wrote too much; only at the end of the
 * planes of a call is the rest cut off.
 * Cost: a plane is moved once more, in the cache, and then read once for each tap of a window. */
#include "core/kernel/pool/pooling_ops.h"

#include <math.h>

#include "core/kernel/vrow.h"

enum { BLOCK = 4096 };

/* ---- lines ----------------------------------------------------------------------------------- */

/* Elements 0, 2, 4, … of the two vectors at x. */
TT_INLINE tt_vf take_even(const float *x)
{
    const tt_vf a = tt_vload(x), b = tt_vload(x + TT_LANES);
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#elif defined(__AVX2__)
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
}

TT_INLINE void split_row(const tt_pooling_lines_t *l, const float *row, float *lines, float pad)
{
    const int64_t stride = l->p->stride[1];
    for (int64_t phase = 0; phase < stride; phase++, lines += l->line) {
        const tt_pooling_part_t part = l->parts[phase];
        const float *from = row + part.column;
        float *to = lines + part.first;
        const int64_t n = part.end - part.first;
        for (int64_t k = 0; k < part.first; k++) {
            lines[k] = pad;
        }
        if (stride == 1 || stride == 2) {
            for (int64_t k = 0; k < n; k += TT_LANES) {
                tt_vstore(to + k, stride == 1 ? tt_vload(from + k) : take_even(from + 2 * k));
            }
        } else {
            for (int64_t k = 0; k < n; k++) {
                to[k] = from[k * stride];
            }
        }
        for (int64_t k = part.end; k < l->reach; k++) {
            lines[k] = pad;
        }
    }
}

/* A row in f32 with room behind it: where it lies, if `left` elements from there on are enough. */
TT_INLINE const float *open_row(const void *x, int64_t n, int64_t left, float *row,
                                tutti_dtype_t dtype)
{
    if (dtype == TUTTI_F32 && left >= n + 2 * TT_POOLING_SLACK) {
        return x;
    }
    for (int64_t k = 0; k < n; k += TT_LANES) {
        tt_vstore(row + k, tt_vread(x, (size_t)k, (size_t)left, 0.0f, dtype));
    }
    return row;
}

TT_INLINE const void *element(const void *x, int64_t at, tutti_dtype_t dtype)
{
    return (const char *)x + at * (dtype == TUTTI_F32 ? 4 : 2);
}

TT_INLINE void *element_to(void *x, int64_t at, tutti_dtype_t dtype)
{
    return (char *)x + at * (dtype == TUTTI_F32 ? 4 : 2);
}

/* A plane of x; `left`: elements from its first one to the end of x. */
TT_INLINE float *split_plane(const tt_pooling_lines_t *l, const void *x, int64_t left,
                             float *scratch, float pad, tutti_dtype_t dtype)
{
    const int64_t *size = l->p->size;
    float *lines = scratch + l->row;
    for (int64_t h = 0; h < size[0]; h++) {
        const int64_t at = h * size[1];
        const float *row = open_row(element(x, at, dtype), size[1], left - at, scratch, dtype);
        split_row(l, row, lines + h * l->p->stride[1] * l->line, pad);
    }
    return lines;
}

/* ---- the largest ----------------------------------------------------------------------------- */

/* A vector of windows. */
typedef struct {
    tt_vf best;
    tt_vi at;
} largest_t;

TT_INLINE void keep_larger(largest_t *m, const float *from, tt_vi at)
{
    const tt_vf x = tt_vload(from);
    const tt_vi is_larger = (x > m->best) | (x != x);
    m->best = tt_vsel(is_larger, x, m->best);
    m->at = (at & is_larger) | (m->at & ~is_larger);
}

/* Windows j … j + TT_LANES - 1 of a row of y. rows: the span of these; kernel[1] as `width`. */
TT_INLINE largest_t find_largest(const tt_pooling_lines_t *l, const float *lines, tt_span_t rows,
                                 int64_t width, int64_t j)
{
    const tt_pooling_t *p = l->p;
    const int32_t columns = (int32_t)p->size[1];
    const int64_t stride = p->stride[1];
    largest_t m = {.best = tt_vsplat(-INFINITY)};
    tt_vi at;
    memcpy(&at, l->starts + j, sizeof at);
    memcpy(&m.at, l->columns + j, sizeof m.at);
    const tt_vi none = m.at < 0;
    m.at = (m.at + (int32_t)rows.first * columns) | none;
    for (int64_t a = 0; a < rows.count; a++) {
        const int64_t h = rows.first + a * rows.step;
        const float *row = lines + h * stride * l->line + j;
        for (int64_t b = 0; b < width; b++) {
            const int32_t more = (int32_t)(h * columns + b * p->dilation[1]);
            keep_larger(&m, row + l->taps[b], at + more);
        }
    }
    return m;
}

TT_INLINE void max_row(const tt_pooling_lines_t *l, const float *lines, tt_span_t rows, void *y,
                       int32_t *at, int64_t left, tutti_dtype_t dtype)
{
    const int64_t n = l->p->out_size[1], width = l->p->kernel[1];
    for (int64_t j = 0; j < n; j += TT_LANES) {
        const tt_span_t two = {rows.first, 2, rows.step, 0};
        const largest_t m = rows.count == 2 && width == 2 ? find_largest(l, lines, two, 2, j)
                                                          : find_largest(l, lines, rows, width, j);
        const tt_vi where = rows.count == 0 ? m.at | -1 : m.at;
        tt_vwrite(y, (size_t)j, (size_t)left, m.best, dtype);
        if (at != NULL) {
            tt_vwrite(at, (size_t)j, (size_t)left, (tt_vf)where, TUTTI_F32);
        }
    }
}

TT_INLINE void max_of(const tt_pooling_lines_t *l, float *scratch, int64_t first, int64_t count,
                      tutti_dtype_t dtype)
{
    const tt_pooling_t *p = l->p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    for (int64_t plane = first; plane < first + count; plane++) {
        const float *lines = split_plane(l, element(l->from, plane * size, dtype),
                                         (p->planes - plane) * size, scratch, -INFINITY, dtype);
        for (int64_t i = 0; i < p->out_size[0]; i++) {
            const int64_t at = plane * out + i * p->out_size[1];
            max_row(l, lines, l->spans[i], element_to(l->to, at, dtype),
                    l->at == NULL ? NULL : l->at + at, (first + count) * out - at, dtype);
        }
    }
}

/* ---- averages -------------------------------------------------------------------------------- */

/* What the windows j … j + TT_LANES - 1 are divided by. */
TT_INLINE tt_vf divisors(const tt_pooling_lines_t *l, tt_span_t rows, int64_t j)
{
    const int64_t divisor = l->p->divisor;
    return divisor != 0 ? tt_vsplat((float)divisor) : tt_vload(l->extents + j) * (float)rows.extent;
}

TT_INLINE tt_vf add_up(const tt_pooling_lines_t *l, const float *lines, int64_t height,
                       int64_t width)
{
    tt_vf sum = tt_vsplat(0.0f);
    for (int64_t a = 0; a < height; a++, lines += l->p->stride[1] * l->line) {
        for (int64_t b = 0; b < width; b++) {
            sum += tt_vload(lines + l->taps[b]);
        }
    }
    return sum;
}

TT_INLINE void average_row(const tt_pooling_lines_t *l, const float *lines, tt_span_t rows, void *y,
                           int64_t left, tutti_dtype_t dtype)
{
    const tt_pooling_t *p = l->p;
    const float *from = lines + rows.first * p->stride[1] * l->line;
    for (int64_t j = 0; j < p->out_size[1]; j += TT_LANES) {
        const tt_vf sum = rows.count == 2 && p->kernel[1] == 2
                              ? add_up(l, from + j, 2, 2)
                              : add_up(l, from + j, rows.count, p->kernel[1]);
        tt_vwrite(y, (size_t)j, (size_t)left, sum / divisors(l, rows, j), dtype);
    }
}

TT_INLINE void average_of(const tt_pooling_lines_t *l, float *scratch, int64_t first, int64_t count,
                          tutti_dtype_t dtype)
{
    const tt_pooling_t *p = l->p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    for (int64_t plane = first; plane < first + count; plane++) {
        const float *lines = split_plane(l, element(l->from, plane * size, dtype),
                                         (p->planes - plane) * size, scratch, 0.0f, dtype);
        for (int64_t i = 0; i < p->out_size[0]; i++) {
            const int64_t at = plane * out + i * p->out_size[1];
            average_row(l, lines, l->spans[i], element_to(l->to, at, dtype),
                        (first + count) * out - at, dtype);
        }
    }
}

/* The first half of a and b in turn, and the second. */
TT_INLINE void store_in_turn(float *to, tt_vf a, tt_vf b)
{
#if defined(__AVX512F__)
    tt_vstore(
        to, __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
    tt_vstore(to + TT_LANES, __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                     29, 14, 30, 15, 31));
#elif defined(__AVX2__)
    tt_vstore(to, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    tt_vstore(to + TT_LANES, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
#else
    tt_vstore(to, __builtin_shufflevector(a, b, 0, 4, 1, 5));
    tt_vstore(to + TT_LANES, __builtin_shufflevector(a, b, 2, 6, 3, 7));
#endif
}

/* A row out of its lines: what split_row() does, backwards. Columns that no window sees are zero,
 * as the lines are there. */
TT_INLINE void join_row(const tt_pooling_lines_t *l, const float *lines, float *row)
{
    const int64_t stride = l->p->stride[1], n = l->p->size[1], before = l->p->padding[1];
    if (stride == 1) {
        for (int64_t w = 0; w < n; w += TT_LANES) {
            tt_vstore(row + w, tt_vload(lines + before + w));
        }
    } else if (stride == 2) {
        const float *even = lines + before % 2 * l->line + before / 2;
        const float *odd = lines + (before + 1) % 2 * l->line + (before + 1) / 2;
        for (int64_t k = 0; 2 * k < n; k += TT_LANES) {
            store_in_turn(row + 2 * k, tt_vload(even + k), tt_vload(odd + k));
        }
    } else {
        for (int64_t w = 0; w < n; w++) {
            row[w] = lines[(w + before) % stride * l->line + (w + before) / stride];
        }
    }
}

/* Windows j … j + 15 of a row of dy, divided; beyond the last one zero. */
TT_INLINE void divide(const tt_pooling_lines_t *l, tt_span_t rows, const void *dy, int64_t j,
                      int64_t left, tt_vf share[TT_PARTS], tutti_dtype_t dtype)
{
    tt_vi lane;
    for (int i = 0; i < TT_LANES; i++) {
        lane[i] = i;
    }
    for (int part = 0; part < TT_PARTS; part++, j += TT_LANES) {
        const tt_vf g = tt_vread(dy, (size_t)j, (size_t)left, 0.0f, dtype) / divisors(l, rows, j);
        share[part] = tt_vsel(lane < (int32_t)(l->p->out_size[1] - j), g, tt_vsplat(0.0f));
    }
}

/* A row of dy to all taps of its windows, 16 of them at a time: so the order in which an element's
 * windows are added is the same for every width of vectors. */
TT_INLINE void spread_row(const tt_pooling_lines_t *l, float *lines, tt_span_t rows, const void *dy,
                          int64_t left, tutti_dtype_t dtype)
{
    const tt_pooling_t *p = l->p;
    float *to = lines + rows.first * p->stride[1] * l->line;
    for (int64_t j = 0; j < p->out_size[1]; j += 16) {
        tt_vf share[TT_PARTS];
        divide(l, rows, dy, j, left, share, dtype);
        for (int64_t a = 0; a < rows.count; a++) {
            float *row = to + a * p->stride[1] * l->line + j;
            for (int64_t b = 0; b < p->kernel[1]; b++) {
                for (int part = 0; part < TT_PARTS; part++) {
                    float *at = row + l->taps[b] + (ptrdiff_t)part * TT_LANES;
                    tt_vstore(at, tt_vload(at) + share[part]);
                }
            }
        }
    }
}

TT_INLINE void join_plane(const tt_pooling_lines_t *l, const float *lines, float *row, void *dx,
                          int64_t left, tutti_dtype_t dtype)
{
    const int64_t *size = l->p->size;
    for (int64_t h = 0; h < size[0]; h++) {
        join_row(l, lines + h * l->p->stride[1] * l->line, row);
        for (int64_t w = 0; w < size[1]; w += TT_LANES) {
            tt_vwrite(element_to(dx, h * size[1], dtype), (size_t)w, (size_t)(left - h * size[1]),
                      tt_vload(row + w), dtype);
        }
    }
}

TT_INLINE void average_backward_of(const tt_pooling_lines_t *l, float *scratch, int64_t first,
                                   int64_t count, tutti_dtype_t dtype)
{
    const tt_pooling_t *p = l->p;
    const int64_t size = p->size[0] * p->size[1], out = p->out_size[0] * p->out_size[1];
    float *lines = scratch + l->row;
    for (int64_t plane = first; plane < first + count; plane++) {
        memset(lines, 0, (size_t)(p->size[0] * p->stride[1] * l->line) * sizeof *lines);
        for (int64_t i = 0; i < p->out_size[0]; i++) {
            const int64_t at = plane * out + i * p->out_size[1];
            spread_row(l, lines, l->spans[i], element(l->from, at, dtype), p->planes * out - at,
                       dtype);
        }
        join_plane(l, lines, scratch, element_to(l->to, plane * size, dtype),
                   (first + count - plane) * size, dtype);
    }
}

/* ---- averages of whole planes ---------------------------------------------------------------- */

/* Ones in front of zeros: from TT_LANES - n on, n ones. */
typedef struct {
    int32_t lanes[2 * TT_LANES];
} first_lanes_t;

TT_INLINE first_lanes_t first_lanes(void)
{
    first_lanes_t first;
    for (int i = 0; i < 2 * TT_LANES; i++) {
        first.lanes[i] = i < TT_LANES ? -1 : 0;
    }
    return first;
}

/* In 16 lanes over blocks, which are added in double. Behind the n elements are more of the
 * tensor's, up to `end`: lanes are read whole and then masked. */
TT_INLINE double sum_of(const void *x, size_t n, size_t end_of_all, const first_lanes_t *ones,
                        tutti_dtype_t dtype)
{
    double total = 0;
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t end = n - first < BLOCK ? n : first + BLOCK;
        tt_v16_t v = tt_v16_splat(0.0f);
        for (size_t from = first; from < end; from += 16) {
            for (size_t part = 0; part < TT_PARTS; part++) {
                const size_t at = from + part * TT_LANES;
                const size_t left = at >= end ? 0 : end - at < TT_LANES ? end - at : TT_LANES;
                tt_vi mask;
                memcpy(&mask, ones->lanes + TT_LANES - left, sizeof mask);
                v.part[part] += (tt_vf)((tt_vi)tt_vread(x, at, end_of_all, 0.0f, dtype) & mask);
            }
        }
        total += (double)tt_v16_sum(v);
    }
    return total;
}

TT_INLINE void whole_of(const tt_pooling_lines_t *l, int64_t first, int64_t count,
                        tutti_dtype_t dtype)
{
    const int64_t size = l->p->size[0] * l->p->size[1];
    const double divisor = (double)(l->p->divisor != 0 ? l->p->divisor : size);
    const first_lanes_t ones = first_lanes();
    for (int64_t plane = first; plane < first + count; plane++) {
        const double sum = sum_of(element(l->from, plane * size, dtype), (size_t)size,
                                  (size_t)((first + count - plane) * size), &ones, dtype);
        tt_vwrite(l->to, (size_t)plane, (size_t)(first + count), /* the next overwrites the rest */
                  tt_vsplat((float)(sum / divisor)), dtype);
    }
}

TT_INLINE void whole_backward_of(const tt_pooling_lines_t *l, int64_t first, int64_t count,
                                 tutti_dtype_t dtype)
{
    const int64_t size = l->p->size[0] * l->p->size[1];
    const double divisor = (double)(l->p->divisor != 0 ? l->p->divisor : size);
    for (int64_t plane = first; plane < first + count; plane++) {
        const tt_vf g = tt_vread(l->from, (size_t)plane, (size_t)(first + count), 0.0f, dtype);
        const tt_vf share = tt_vsplat((float)((double)g[0] / divisor));
        for (int64_t k = 0; k < size; k += TT_LANES) {
            tt_vwrite(element_to(l->to, plane * size, dtype), (size_t)k,
                      (size_t)((first + count - plane) * size), share, dtype);
        }
    }
}

/* ---- by step and dtype ----------------------------------------------------------------------- */

TT_INLINE void run_of(const tt_pooling_lines_t *l, float *scratch, int64_t first, int64_t count,
                      tutti_dtype_t dtype)
{
    switch (l->step) {
    case TT_POOLING_MAX:
        max_of(l, scratch, first, count, dtype);
        break;
    case TT_POOLING_AVERAGE:
        average_of(l, scratch, first, count, dtype);
        break;
    case TT_POOLING_AVERAGE_BACKWARD:
        average_backward_of(l, scratch, first, count, dtype);
        break;
    case TT_POOLING_WHOLE:
        whole_of(l, first, count, dtype);
        break;
    case TT_POOLING_WHOLE_BACKWARD:
        whole_backward_of(l, first, count, dtype);
        break;
    }
}

/* One function for each dtype. */
#define TT_DTYPE(suffix, dtype)                                                                    \
    static void run_##suffix(const tt_pooling_lines_t *l, float *scratch, int64_t first,           \
                             int64_t count)                                                        \
    {                                                                                              \
        run_of(l, scratch, first, count, dtype);                                                   \
    }
#include "core/kernel/dtypes.def"
#undef TT_DTYPE

extern const tt_pooling_ops_t TT_ISA_NAME(tt_pooling_ops);

const tt_pooling_ops_t TT_ISA_NAME(tt_pooling_ops) = {.run = {
#define TT_DTYPE(suffix, dtype) [dtype] = run_##suffix,
#include "core/kernel/dtypes.def"
#undef TT_DTYPE
                                                      }};
