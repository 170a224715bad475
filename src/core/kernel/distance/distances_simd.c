/* Distances and their gradients in one tile. A distance is a fold over 16 fixed lanes, four of them
 * at a time: four sums that do not wait for each other. Each norm is a function of its own, made of
 * one text whose norm is constant. */
#include <math.h>

#include "core/kernel/distance/distances.h"
#include "core/kernel/vmath.h"

enum { WIDTH = 16, GROUP = 4 };

typedef enum { COUNT, ONE, TWO, LARGEST, ANY, NORMS } norm_t;

static norm_t norm_of(double p)
{
    return p == 0 ? COUNT : p == 1 ? ONE : p == 2 ? TWO : isinf(p) ? LARGEST : ANY;
}

/* Up to 16 elements; the others are 0, so that they differ by nothing. */
TT_INLINE tt_v16_t load(const tt_real_t *x, size_t n)
{
    tt_real_t room[WIDTH] = {0};
    tt_v16_t v;
    memcpy(room, x, n * sizeof *x);
    memcpy(&v, room, sizeof v);
    return v;
}

TT_INLINE tt_v16_t load_all(const tt_real_t *x)
{
    tt_v16_t v;
    memcpy(&v, x, sizeof v);
    return v;
}

TT_INLINE tt_vf sign_of(tt_vf t)
{
    return tt_vone_if(t > 0.0f) - tt_vone_if(t < 0.0f);
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

TT_INLINE void add(norm_t norm, tt_v16_t *sum, const tt_v16_t *a, const tt_v16_t *b, tt_vf p)
{
    for (int i = 0; i < TT_PARTS; i++) {
        sum->part[i] = with(norm, sum->part[i], a->part[i] - b->part[i], p);
    }
}

TT_INLINE tt_real_t finish(norm_t norm, tt_v16_t sum, double p)
{
    const tt_real_t folded = norm == LARGEST ? tt_v16_max(sum) : tt_v16_sum(sum);
    return norm == TWO   ? tt_root(folded)
           : norm == ANY ? (tt_real_t)pow((double)folded, 1 / p)
                         : folded;
}

/* From one row to `count` others. */
TT_INLINE void measure(norm_t norm, tt_real_t *d, const tt_real_t *a, const tt_real_t *b,
                       size_t count, const tt_distances_t *job)
{
    const tt_vf p = tt_vsplat((tt_real_t)job->p);
    const size_t n = job->n, whole = n - n % WIDTH;
    tt_v16_t sums[GROUP];
    for (size_t k = 0; k < count; k++) {
        sums[k] = tt_v16_splat(0.0f);
    }
    for (size_t at = 0; at < whole; at += WIDTH) {
        const tt_v16_t row = load_all(a + at);
        for (size_t k = 0; k < count; k++) {
            const tt_v16_t other = load_all(b + k * n + at);
            add(norm, &sums[k], &row, &other, p);
        }
    }
    for (size_t k = 0; k < count; k++) {
        if (whole < n) {
            const tt_v16_t row = load(a + whole, n - whole);
            const tt_v16_t other = load(b + k * n + whole, n - whole);
            add(norm, &sums[k], &row, &other, p);
        }
        d[k] = finish(norm, sums[k], job->p);
    }
}

/* Where d has row i's distance to other 0, if there were all. */
static size_t place(const tt_distances_t *job, size_t matrix, size_t i)
{
    return job->is_own ? i * job->rows - i * (i + 1) / 2 - i - 1
                       : (matrix * job->rows + i) * job->others;
}

TT_INLINE void forward_by(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    const size_t n = job->n;
    const tt_real_t *x = (const tt_real_t *)job->x + tile->matrix * job->rows * n;
    const tt_real_t *y = (const tt_real_t *)job->y + tile->matrix * job->others * n;
    for (size_t i = tile->first; i < tile->end; i++) {
        const size_t at = place(job, tile->matrix, i);
        tt_real_t *d = job->d;
        size_t j = job->is_own && i >= tile->from ? i + 1 : tile->from;
        for (; j + GROUP <= tile->to; j += GROUP) {
            measure(norm, d + (at + j), x + i * n, y + j * n, GROUP, job);
        }
        for (; j < tile->to; j++) {
            measure(norm, d + (at + j), x + i * n, y + j * n, 1, job);
        }
    }
}

static void forward_count(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    forward_by(COUNT, job, tile);
}

static void forward_one(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    forward_by(ONE, job, tile);
}

static void forward_two(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    forward_by(TWO, job, tile);
}

static void forward_largest(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    forward_by(LARGEST, job, tile);
}

static void forward_any(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    forward_by(ANY, job, tile);
}

static void forward(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    static void (*const by_norm[NORMS])(const tt_distances_t *, const tt_distance_tile_t *) = {
        forward_count, forward_one, forward_two, forward_largest, forward_any};
    by_norm[norm_of(job->p)](job, tile);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A pair's distance, its gradient, and what is the same for all of its elements. */
typedef struct {
    tt_vf d, factor, power;
} pair_t;

TT_INLINE tt_vf slope(norm_t norm, tt_vf t, const pair_t *pair)
{
    switch (norm) {
    case ONE:
        return pair->factor * sign_of(t);
    case TWO:
        return pair->factor * t;
    case LARGEST:
        return pair->factor * tt_vsel(tt_vabs(t) == pair->d, sign_of(t), tt_vsplat(0.0f));
    default:
        return tt_vsel(t == 0.0f, tt_vsplat(0.0f),
                       pair->factor * sign_of(t) * tt_vpow(tt_vabs(t) / pair->d, pair->power));
    }
}

/* sum += the gradient of a row by its distance to another. */
TT_INLINE void add_slope(norm_t norm, tt_real_t *sum, const tt_real_t *a, const tt_real_t *b,
                         size_t n, const pair_t *pair)
{
    size_t at = 0;
    for (; at + TT_LANES <= n; at += TT_LANES) {
        const tt_vf t = tt_vload(a + at) - tt_vload(b + at);
        tt_vstore(sum + at, tt_vload(sum + at) + slope(norm, t, pair));
    }
    if (at < n) {
        const tt_vf t = tt_vload_n(a + at, n - at) - tt_vload_n(b + at, n - at);
        tt_vstore_n(sum + at, tt_vload_n(sum + at, n - at) + slope(norm, t, pair), n - at);
    }
}

/* The rows of a tile against its others; `at` tells where d has a pair. */
typedef size_t (*place_fn_t)(const tt_distances_t *job, size_t matrix, size_t i, size_t j);

typedef struct {
    const tt_real_t *a, *b;
    tt_real_t *sum;
    place_fn_t at;
} sides_t;

static pair_t pair_of(const tt_distances_t *job, norm_t norm, size_t at)
{
    const tt_real_t d = ((const tt_real_t *)job->d)[at], dd = ((const tt_real_t *)job->dd)[at];
    return (pair_t){.d = tt_vsplat(d),
                    .factor = tt_vsplat(norm == TWO ? dd / d : dd),
                    .power = tt_vsplat((tt_real_t)(job->p - 1))};
}

TT_INLINE void backward_by(norm_t norm, const tt_distances_t *job, const tt_distance_tile_t *tile,
                           const sides_t *sides)
{
    const size_t n = job->n;
    for (size_t i = tile->first; i < tile->end; i++) {
        for (size_t j = tile->from; j < tile->to; j++) {
            if (job->is_own && i == j) {
                continue;
            }
            const size_t at = sides->at(job, tile->matrix, i, j);
            if (((const tt_real_t *)job->d)[at] != 0.0f) {
                const pair_t pair = pair_of(job, norm, at);
                add_slope(norm, sides->sum + i * n, sides->a + i * n, sides->b + j * n, n, &pair);
            }
        }
    }
}

static void backward_of(const tt_distances_t *job, const tt_distance_tile_t *tile,
                        const sides_t *sides)
{
    switch (norm_of(job->p)) {
    case ONE:
        backward_by(ONE, job, tile, sides);
        return;
    case TWO:
        backward_by(TWO, job, tile, sides);
        return;
    case LARGEST:
        backward_by(LARGEST, job, tile, sides);
        return;
    case ANY:
        backward_by(ANY, job, tile, sides);
        return;
    default: /* a count has no slope */
        return;
    }
}

/* Of a pair of own rows the lower one comes first. */
static size_t place_of(const tt_distances_t *job, size_t matrix, size_t i, size_t j)
{
    return job->is_own && j < i ? place(job, matrix, j) + i : place(job, matrix, i) + j;
}

static size_t place_turned(const tt_distances_t *job, size_t matrix, size_t j, size_t i)
{
    return place(job, matrix, i) + j;
}

static void backward(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    const size_t x = tile->matrix * job->rows * job->n, y = tile->matrix * job->others * job->n;
    const sides_t sides = {(const tt_real_t *)job->x + x, (const tt_real_t *)job->y + y,
                           (tt_real_t *)job->dx + x, place_of};
    backward_of(job, tile, &sides);
}

static void backward_others(const tt_distances_t *job, const tt_distance_tile_t *tile)
{
    const size_t x = tile->matrix * job->rows * job->n, y = tile->matrix * job->others * job->n;
    const sides_t sides = {(const tt_real_t *)job->y + y, (const tt_real_t *)job->x + x,
                           (tt_real_t *)job->dy + y, place_turned};
    backward_of(job, tile, &sides);
}

extern const tt_distances_ops_t TT_ISA_NAME(tt_distances_ops);

const tt_distances_ops_t TT_ISA_NAME(tt_distances_ops) = {forward, backward, backward_others};
