/* Distances and their gradients in one tile. Every sum lies in one of 16 lanes and takes one number
 * after the other, so that no sum is folded, and the width of a vector changes no bit:
 *
 *     forward    lanes: 16 others, transposed a chunk of elements at a time     sums over elements
 *     backward   lanes: 16 elements of a row, or, of short rows, 16 rows    sums over others
 *
 * Four sums at a time do not wait for each other. Each norm is a function of its own, made of one
 * text whose norm is constant. Products are rounded before they are added: with an fma AVX2 would
 * take 0.7 of the time, and a CPU that has none 40 times as long. */
#include <math.h>

#include "core/kernel/distance/distances.h"
#include "core/kernel/vmath.h"

enum { WIDTH = 16, GROUP = 4, CHUNK = 64 };

#define NORM_LIST(X) X(COUNT) X(ONE) X(TWO) X(LARGEST) X(ANY)

typedef enum {
#define X(NORM) NORM,
    NORM_LIST(X)
#undef X
} norm_t;

static norm_t norm_of(double p)
{
    return p == 0 ? COUNT : p == 1 ? ONE : p == 2 ? TWO : isinf(p) ? LARGEST : ANY;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Part by part: gcc copies 64 bytes at once through the stack. */
TT_INLINE tt_v16_t load(const tt_real_t *x)
{
    tt_v16_t v;
    for (int i = 0; i < TT_PARTS; i++) {
        v.part[i] = tt_vload(x + i * TT_LANES);
    }
    return v;
}

TT_INLINE void store(tt_real_t *x, tt_v16_t v)
{
    for (int i = 0; i < TT_PARTS; i++) {
        tt_vstore(x + i * TT_LANES, v.part[i]);
    }
}

TT_INLINE tt_vf sign_of(tt_vf t)
{
    return tt_vone_if(t > 0.0f) - tt_vone_if(t < 0.0f);
}

/* `count` elements of `rows` rows, n apart; the other lanes are 0. */
static void transpose(tt_real_t out[][WIDTH], const tt_real_t *x, size_t n, size_t rows,
                      size_t count)
{
    if (rows < WIDTH) {
        memset(out, 0, count * sizeof *out);
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t k = 0; k < count; k++) {
            out[k][r] = x[r * n + k];
        }
    }
}

/* Where d has row i's distance to other 0, if there were all. */
static size_t place(const tt_distances_t *job, size_t matrix, size_t i)
{
    return job->is_own ? i * job->rows - i * (i + 1) / 2 - i - 1
                       : (matrix * job->rows + i) * job->others;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A sum with a difference more; NaN stays. */
TT_INLINE tt_vf with(norm_t norm, tt_vf sum, tt_vf t, tt_vf p)
{
    switch (norm) {
    case COUNT:
        return sum + tt_vsel(t != t, t, tt_vone_if(t != 0.0f));
    case ONE:
        return sum + tt_vabs(t);
    case TWO:
        return sum + t * t;
    case LARGEST:
        return tt_vmax(sum, tt_vabs(t));
    default:
        return sum + tt_vpow(tt_vabs(t), p);
    }
}

typedef tt_real_t sums_t[WIDTH];

/* Up to CHUNK elements of some rows against 16 others. */
typedef struct {
    const tt_real_t *a, *b; /* b is transposed */
    size_t n, count;
    double p;
} chunk_t;

TT_INLINE void add_chunk(norm_t norm, sums_t *sums, const chunk_t *chunk, int rows)
{
    const tt_vf p = tt_vsplat((tt_real_t)chunk->p);
    tt_v16_t part[GROUP];
    for (int r = 0; r < rows; r++) {
        part[r] = tt_v16_splat(0.0f);
    }
    for (size_t k = 0; k < chunk->count; k++) {
        const tt_v16_t b = load(chunk->b + k * WIDTH);
        for (int r = 0; r < rows; r++) {
            const tt_vf a = tt_vsplat(chunk->a[(size_t)r * chunk->n + k]);
            for (int i = 0; i < TT_PARTS; i++) {
                part[r].part[i] = with(norm, part[r].part[i], a - b.part[i], p);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        tt_v16_t sum = load(sums[r]);
        for (int i = 0; i < TT_PARTS; i++) {
            sum.part[i] = norm == LARGEST ? tt_vmax(sum.part[i], part[r].part[i])
                                          : sum.part[i] + part[r].part[i];
        }
        store(sums[r], sum);
    }
}

/* Lanes [begin, end) become distances; d is where the first of all lanes would go. */
TT_INLINE void finish(norm_t norm, tt_real_t *d, const sums_t sums, size_t begin, size_t end,
                      double p)
{
    tt_real_t roots[WIDTH];
    tt_v16_t sum = load(sums);
    for (int i = 0; i < TT_PARTS; i++) {
        sum.part[i] = norm == TWO ? tt_vsqrt(sum.part[i]) : sum.part[i];
    }
    store(roots, sum);
    for (size_t l = begin; l < end && norm == ANY; l++) {
        roots[l] = (tt_real_t)pow((double)roots[l], 1 / p);
    }
    if (end - begin == WIDTH) {
        store(d, load(roots));
    } else {
        memcpy(d + begin, roots + begin, (end - begin) * sizeof *roots);
    }
}

/* Rows [first, end) against `count` others from j on; of own pairs those to others behind a row. */
TT_INLINE void measure(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile,
                       size_t j, size_t count)
{
    const size_t n = job->n, x = tile->matrix * job->rows, y = tile->matrix * job->others;
    const size_t end = job->is_own ? least(tile->end, j + count - 1) : tile->end;
    sums_t sums[TT_DISTANCE_ROWS] = {{0}}, transposed[CHUNK];
    for (size_t k = 0; k < n && tile->first < end; k += CHUNK) {
        chunk_t chunk = {.b = transposed[0], .n = n, .count = least(CHUNK, n - k), .p = job->p};
        transpose(transposed, (const tt_real_t *)job->y + (y + j) * n + k, n, count, chunk.count);
        size_t i = tile->first;
        for (; i < end; i += i + GROUP <= end ? GROUP : 1) {
            chunk.a = (const tt_real_t *)job->x + (x + i) * n + k;
            if (i + GROUP <= end) {
                add_chunk(norm, &sums[i - tile->first], &chunk, GROUP);
            } else {
                add_chunk(norm, &sums[i - tile->first], &chunk, 1);
            }
        }
    }
    for (size_t i = tile->first; i < end; i++) {
        finish(norm, (tt_real_t *)job->d + (place(job, tile->matrix, i) + j), sums[i - tile->first],
               job->is_own && i >= j ? i - j + 1 : 0, count, job->p);
    }
}

TT_INLINE void forward_by(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    for (size_t j = tile->from; j < tile->to; j += WIDTH) {
        measure(norm, job, tile, j, least(WIDTH, tile->to - j));
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of 16 rows, with one other after another: distances, and what all of a pair's slopes are
 * multiplied by; 1 and 0 where there is no slope. */
typedef struct {
    tt_real_t d[TT_DISTANCE_OTHERS][WIDTH], factor[TT_DISTANCE_OTHERS][WIDTH];
} pairs_t;

typedef struct {
    size_t others;
    pairs_t pairs;
} block_t;

/* Rows, others, and what becomes the gradient of the rows. */
typedef struct {
    const tt_real_t *a, *b;
    tt_real_t *sum;
} sides_t;

TT_INLINE bool wants_distances(norm_t norm)
{
    return norm == LARGEST || norm == ANY;
}

/* Lanes [begin, end), whose first lies at `at` in the arrays; the others have no slope. */
TT_INLINE void weigh(norm_t norm, const tt_distances_t *job, size_t at, size_t begin, size_t end,
                     tt_real_t *d, tt_real_t *factor)
{
    const tt_real_t *from_d = (const tt_real_t *)job->d + at;
    const tt_real_t *from_dd = (const tt_real_t *)job->dd + at;
    tt_v16_t distance, slope;
    if (end - begin == WIDTH) {
        distance = load(from_d);
        slope = load(from_dd);
    } else {
        memset(d, 0, WIDTH * sizeof *d);
        memset(factor, 0, WIDTH * sizeof *d);
        memcpy(d + begin, from_d, (end - begin) * sizeof *d);
        memcpy(factor + begin, from_dd, (end - begin) * sizeof *d);
        distance = load(d);
        slope = load(factor);
    }
    for (int i = 0; i < TT_PARTS; i++) {
        const tt_vi is_none = distance.part[i] == 0.0f;
        distance.part[i] = tt_vsel(is_none, tt_vsplat(1.0f), distance.part[i]);
        slope.part[i] = norm == TWO ? slope.part[i] / distance.part[i] : slope.part[i];
        slope.part[i] = tt_vsel(is_none, tt_vsplat(0.0f), slope.part[i]);
    }
    store(d, distance);
    store(factor, slope);
}

/* Pairs that lie behind each other in d's row of an other. */
TT_INLINE void weigh_as_they_lie(norm_t norm, const tt_distances_t *job,
                                 const tt_distance_tile_t *tile, pairs_t *pairs)
{
    const size_t rows = tile->end - tile->first;
    for (size_t k = 0; k < tile->to - tile->from; k++) {
        const size_t j = tile->from + k, at = place(job, tile->matrix, j) + tile->first;
        const size_t before = job->is_own && j >= tile->first ? j - tile->first + 1 : 0;
        const size_t begin = least(before, rows);
        weigh(norm, job, begin < rows ? at + begin : 0, begin, rows, pairs->d[k], pairs->factor[k]);
    }
}

/* Pairs of d's rows of the rows themselves. */
TT_INLINE void weigh_transposed(norm_t norm, const tt_distances_t *job,
                                const tt_distance_tile_t *tile, pairs_t *pairs)
{
    tt_real_t d[WIDTH], factor[WIDTH];
    const size_t others = tile->to - tile->from;
    for (size_t r = 0; r < tile->end - tile->first; r++) {
        const size_t i = tile->first + r, at = place(job, tile->matrix, i) + tile->from;
        size_t k = job->is_own && i >= tile->from ? i - tile->from + 1 : 0;
        for (; k < others; k += WIDTH) {
            const size_t count = least(WIDTH, others - k);
            weigh(norm, job, at + k, 0, count, d, factor);
            for (size_t l = 0; l < count; l++) {
                pairs->factor[k + l][r] = factor[l];
            }
            for (size_t l = 0; l < count && wants_distances(norm); l++) {
                pairs->d[k + l][r] = d[l];
            }
        }
    }
}

/* Transposed, d has a row for each other. Of a pair of own rows the lower one has it; a row has no
 * pair with itself. */
TT_INLINE void weigh_pairs(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile,
                           bool is_transposed, pairs_t *pairs)
{
    if (is_transposed || job->is_own) {
        weigh_as_they_lie(norm, job, tile, pairs);
    } else if (tile->end - tile->first < WIDTH) {
        memset(pairs->d, 0, (tile->to - tile->from) * sizeof *pairs->d);
        memset(pairs->factor, 0, (tile->to - tile->from) * sizeof *pairs->factor);
    }
    if (!is_transposed) {
        weigh_transposed(norm, job, tile, pairs);
    }
}

/* A sum with the slope of a difference more. */
TT_INLINE tt_vf with_slope(norm_t norm, tt_vf sum, tt_vf t, tt_vf d, tt_vf factor, tt_vf power)
{
    const tt_vf none = tt_vsplat(0.0f);
    switch (norm) {
    case ONE:
        return sum + factor * sign_of(t);
    case TWO:
        return sum + factor * t;
    case LARGEST:
        return sum + factor * tt_vsel(tt_vabs(t) == d, sign_of(t), none);
    default:
        return sum + tt_vsel(t == 0.0f, none, factor * sign_of(t) * tt_vpow(tt_vabs(t) / d, power));
    }
}

/* 16 elements, from k on, of up to 4 rows, whose pairs begin at a lane, and of the others, packed;
 * the last `stored` sums are kept. */
TT_INLINE void slope_elements(norm_t norm, const tt_distances_t *job, const sides_t *at,
                              const block_t *block, size_t lane, int rows, size_t stored)
{
    const size_t n = job->n, kept = WIDTH - stored;
    const tt_vf power = tt_vsplat((tt_real_t)(job->p - 1));
    tt_v16_t a[GROUP], sum[GROUP];
    for (int r = 0; r < rows; r++) {
        a[r] = load(at->a + (size_t)r * n);
        sum[r] = load(at->sum + (size_t)r * n);
    }
    for (size_t k = 0; k < block->others; k++) {
        const tt_v16_t b = load(at->b + k * WIDTH);
        for (int r = 0; r < rows; r++) {
            const tt_vf d = tt_vsplat(block->pairs.d[k][lane + (size_t)r]);
            const tt_vf factor = tt_vsplat(block->pairs.factor[k][lane + (size_t)r]);
            for (int i = 0; i < TT_PARTS; i++) {
                sum[r].part[i] =
                    with_slope(norm, sum[r].part[i], a[r].part[i] - b.part[i], d, factor, power);
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        tt_real_t last[WIDTH];
        store(last, sum[r]);
        memcpy(at->sum + (size_t)r * n + kept, last + kept, stored * sizeof *last);
    }
}

/* Of n ≥ 16; the last 16 elements begin before a rest, whose sums alone are stored. Elements of
 * others that lie far apart would push each other out of the cache: they are packed. */
TT_INLINE void slope_long(norm_t norm, const tt_distances_t *job, const sides_t *at,
                          const block_t *block, size_t rows)
{
    tt_real_t packed[TT_DISTANCE_OTHERS][WIDTH];
    const size_t n = job->n;
    for (size_t k = 0; k < n; k += WIDTH) {
        const size_t begin = least(k, n - WIDTH), stored = least(WIDTH, n - k);
        for (size_t j = 0; j < block->others; j++) {
            memcpy(packed[j], at->b + j * n + begin, sizeof *packed);
        }
        for (size_t r = 0; r < rows; r += r + GROUP <= rows ? GROUP : 1) {
            const sides_t here = {at->a + r * n + begin, packed[0], at->sum + r * n + begin};
            if (r + GROUP <= rows) {
                slope_elements(norm, job, &here, block, r, GROUP, stored);
            } else {
                slope_elements(norm, job, &here, block, r, 1, stored);
            }
        }
    }
}

/* Short rows, 16 of them in lanes. */
typedef struct {
    tt_real_t a[WIDTH][WIDTH], sum[WIDTH][WIDTH];
} transposed_t;

/* `count` elements, from k on, of 16 rows. */
TT_INLINE void slope_rows(norm_t norm, const tt_distances_t *job, const tt_real_t *b,
                          const block_t *block, transposed_t *transposed, size_t k, int count)
{
    const tt_vf power = tt_vsplat((tt_real_t)(job->p - 1));
    tt_v16_t a[GROUP], sum[GROUP];
    for (int c = 0; c < count; c++) {
        a[c] = load(transposed->a[k + (size_t)c]);
        sum[c] = load(transposed->sum[k + (size_t)c]);
    }
    for (size_t j = 0; j < block->others; j++) {
        const tt_v16_t d = load(block->pairs.d[j]), factor = load(block->pairs.factor[j]);
        for (int c = 0; c < count; c++) {
            const tt_vf other = tt_vsplat(b[j * job->n + k + (size_t)c]);
            for (int i = 0; i < TT_PARTS; i++) {
                sum[c].part[i] = with_slope(norm, sum[c].part[i], a[c].part[i] - other, d.part[i],
                                            factor.part[i], power);
            }
        }
    }
    for (int c = 0; c < count; c++) {
        store(transposed->sum[k + (size_t)c], sum[c]);
    }
}

/* Of n < 16. */
TT_INLINE void slope_short(norm_t norm, const tt_distances_t *job, const sides_t *at,
                           const block_t *block, size_t rows)
{
    const size_t n = job->n;
    transposed_t transposed;
    transpose(transposed.a, at->a, n, rows, n);
    transpose(transposed.sum, at->sum, n, rows, n);
    size_t k = 0;
    for (; k + GROUP <= n; k += GROUP) {
        slope_rows(norm, job, at->b, block, &transposed, k, GROUP);
    }
    for (; k < n; k++) {
        slope_rows(norm, job, at->b, block, &transposed, k, 1);
    }
    for (size_t r = 0; r < rows; r++) {
        for (k = 0; k < n; k++) {
            at->sum[r * n + k] = transposed.sum[k][r];
        }
    }
}

/* Up to 16 rows. */
TT_INLINE void backward_block(norm_t norm, const tt_distances_t *job,
                              const tt_distance_tile_t *tile, const sides_t *sides,
                              bool is_transposed)
{
    const size_t n = job->n, rows = tile->end - tile->first;
    const sides_t at = {sides->a + tile->first * n, sides->b + tile->from * n,
                        sides->sum + tile->first * n};
    block_t block;
    block.others = tile->to - tile->from;
    weigh_pairs(norm, job, tile, is_transposed, &block.pairs);
    if (n < WIDTH) {
        slope_short(norm, job, &at, &block, rows);
    } else {
        slope_long(norm, job, &at, &block, rows);
    }
}

TT_INLINE void backward_by(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile,
                           const sides_t *sides, bool is_transposed)
{
    tt_distance_tile_t block = *tile;
    if (norm == COUNT) { /* it has no slope */
        return;
    }
    for (size_t i = tile->first; i < tile->end; i += WIDTH) {
        block.first = i;
        block.end = least(i + WIDTH, tile->end);
        backward_block(norm, job, &block, sides, is_transposed);
    }
}

/* ---- each norm ------------------------------------------------------------------------------- */

#define X(NORM)                                                                                    \
    static void forward_##NORM(const tt_distances_t *job, const tt_distance_tile_t *tile)          \
    {                                                                                              \
        forward_by(NORM, job, tile);                                                               \
    }                                                                                              \
                                                                                                   \
    static void backward_##NORM(const tt_distances_t *job, const tt_distance_tile_t *tile,         \
                                const sides_t *sides, bool is_transposed)                          \
    {                                                                                              \
        backward_by(NORM, job, tile, sides, is_transposed);                                        \
    }
NORM_LIST(X)
#undef X

static const struct {
    void (*forward)(const tt_distances_t *, const tt_distance_tile_t *);
    void (*backward)(const tt_distances_t *, const tt_distance_tile_t *, const sides_t *, bool);
} by_norm[] = {
#define X(NORM) {forward_##NORM, backward_##NORM},
    NORM_LIST(X)
#undef X
};

static void forward(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    by_norm[norm_of(job->p)].forward(job, tile);
}

static void backward(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    const size_t x = tile->matrix * job->rows * job->n, y = tile->matrix * job->others * job->n;
    const sides_t sides = {(const tt_real_t *)job->x + x, (const tt_real_t *)job->y + y,
                           (tt_real_t *)job->dx + x};
    by_norm[norm_of(job->p)].backward(job, tile, &sides, false);
}

static void backward_others(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    const size_t x = tile->matrix * job->rows * job->n, y = tile->matrix * job->others * job->n;
    const sides_t sides = {(const tt_real_t *)job->y + y, (const tt_real_t *)job->x + x,
                           (tt_real_t *)job->dy + y};
    by_norm[norm_of(job->p)].backward(job, tile, &sides, true);
}

extern const tt_distances_ops_t TT_ISA_NAME(tt_distances_ops);

const tt_distances_ops_t TT_ISA_NAME(tt_distances_ops) = {forward, backward, backward_others};
