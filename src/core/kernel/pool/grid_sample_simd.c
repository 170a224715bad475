/* Taps of points, in vectors of points: first those of each dimension, then all combinations, whose
 * weights are products. What depends on the mode is compiled once for each. A weight is a
 * polynomial of t, the place behind the first of the two elements around it; all modes, and all
 * derivatives, are tables of coefficients.
 *
 *     place u    ((c + 1) size - 1) / 2, or (c + 1) (size - 1) / 2 with align_corners
 *     padding    border: between the first and the last element; reflection: also mirrored at their
 *                outer edges (align_corners: their middles). Of bicubic it moves the taps, else u
 *     taps       elements outside have the weight 0; those of a NaN are NaN, to be shown
 */
#include "core/kernel/pool/grid_sample_ops.h"

#include "core/kernel/vmath.h"

enum { POINTS = TT_GRID_POINTS, AXIS_TAPS = 4, DEGREE = 3 };

/* ---- weights --------------------------------------------------------------------------------- */

/* Coefficients of 1, t, t², t³ of each tap. */
typedef struct {
    int taps, degree;
    tt_real_t of[AXIS_TAPS][DEGREE + 1];
} weights_t;

static const weights_t modes[] = {
    [TT_GRID_BILINEAR] = {2, 1, {{1, -1}, {0, 1}}},
    [TT_GRID_NEAREST] = {1, 0, {{1}}},
    [TT_GRID_BICUBIC] = {4,
                         3,
                         {{0, -0.75f, 1.5f, -0.75f},
                          {1, 0, -2.25f, 1.25f},
                          {0, 0.75f, 1.5f, -1.25f},
                          {0, 0, -0.75f, 0.75f}}},
};

TT_INLINE weights_t derived(weights_t w)
{
    for (int k = 0; k < w.taps; k++) {
        for (int i = 0; i < w.degree; i++) {
            w.of[k][i] = (tt_real_t)(i + 1) * w.of[k][i + 1];
        }
        w.of[k][w.degree] = 0;
    }
    return w;
}

TT_INLINE tt_vf polynomial(const tt_real_t *of, int degree, tt_vf t)
{
    tt_vf p = tt_vsplat(of[degree]);
    for (int i = degree - 1; i >= 0; i--) {
        p = p * t + of[i];
    }
    return p;
}

/* ---- one dimension --------------------------------------------------------------------------- */

typedef struct {
    const tt_grid_sample_t *t;
    tt_real_t size;
    weights_t weights, slopes; /* of the order, and of one more */
    int order;
} axis_t;

/* Indices of a vector's points. */
typedef int32_t index_t __attribute__((vector_size(TT_LANES * sizeof(int32_t))));

/* Taps of a vector's points. */
typedef struct {
    index_t index[AXIS_TAPS];
    tt_vf weight[AXIS_TAPS], slope[AXIS_TAPS];
} axis_taps_t;

/* What to find; constants where it is found. */
typedef struct {
    tt_grid_mode_t mode;
    bool has_slopes;
} aim_t;

/* A place, and how fast it moves with its coordinate. */
typedef struct {
    tt_vf at, speed;
} place_t;

TT_INLINE place_t clipped(const axis_t *a, place_t p)
{
    const tt_real_t last = a->size - 1;
    const tt_vi above = p.at > 0, below = p.at < last; /* neither, if NaN */
    const tt_vf at = tt_vsel(below, p.at, tt_vsplat(last));
    return (place_t){(tt_vf)((tt_vi)at & above), (tt_vf)((tt_vi)p.speed & above & below)};
}

/* Mirrored at the ends as often as it takes. */
TT_INLINE place_t reflected(const axis_t *a, place_t p)
{
    const tt_real_t low = a->t->align_corners ? 0 : -0.5f;
    const tt_real_t span = a->size - 1 - 2 * low, twice = 2 * span;
    if (!(span > 0)) {
        return (place_t){{0}, {0}};
    }
    const tt_vf distance = tt_vabs(p.at - low);
    const tt_vf rest = distance - tt_vfloor(distance / twice) * twice;
    const tt_vi turns = (p.at < low) ^ (rest > span);
    return (place_t){tt_vmin(rest, twice - rest) + low, tt_vsel(turns, -p.speed, p.speed)};
}

TT_INLINE place_t padded(const axis_t *a, place_t p)
{
    if (a->t->padding == TT_GRID_ZEROS) {
        return p;
    }
    return clipped(a, a->t->padding == TT_GRID_REFLECTION ? reflected(a, p) : p);
}

/* Of halves the even one. */
TT_INLINE tt_vf nearest(tt_vf x)
{
    const tt_vf lower = tt_vfloor(x), rest = x - lower;
    const tt_vi is_odd = lower - 2 * tt_vfloor(lower * 0.5f) > 0.5f;
    return lower + tt_vone_if((rest > 0.5f) | ((rest == 0.5f) & is_odd));
}

/* A place far outside as one that is less far: between infinite elements is no place. NaN stays. */
TT_INLINE tt_vf brought_near(const axis_t *a, tt_vf at)
{
    const tt_real_t far = a->size + AXIS_TAPS;
    at = tt_vsel(at > far, tt_vsplat(far), at);
    return tt_vsel(at < -far, tt_vsplat(-far), at);
}

TT_INLINE place_t place_of(const axis_t *a, aim_t aim, tt_vf c)
{
    const tt_real_t speed = (a->t->align_corners ? a->size - 1 : a->size) * 0.5f;
    const tt_vf at = (c + 1) * speed - (a->t->align_corners ? 0 : 0.5f);
    const bool is_mirrored = a->t->padding == TT_GRID_REFLECTION;
    const place_t p = {is_mirrored ? at : brought_near(a, at), tt_vsplat(speed)};
    return aim.mode == TT_GRID_BICUBIC ? p : padded(a, p);
}

/* The index of a tap at an element; `inside`: whether it is one of x. */
TT_INLINE index_t index_of(const axis_t *a, aim_t aim, tt_vf element, tt_vi *inside)
{
    const tt_vf to = aim.mode == TT_GRID_BICUBIC ? padded(a, (place_t){element, {0}}).at : element;
    *inside = (to >= 0) & (to < a->size);
    return __builtin_convertvector((tt_vf)((tt_vi)to & *inside), index_t);
}

TT_INLINE axis_taps_t find_axis(const axis_t *a, aim_t aim, tt_vf coordinate)
{
    const weights_t *mode = &modes[aim.mode];
    const bool is_nearest = aim.mode == TT_GRID_NEAREST;
    const place_t p = place_of(a, aim, coordinate);
    const tt_vf lower = is_nearest ? nearest(p.at) : tt_vfloor(p.at);
    const tt_vf t = is_nearest ? tt_vsplat(0) : p.at - lower;
    tt_vf power = tt_vsplat(1);
    for (int i = 0; i < a->order; i++) {
        power *= p.speed;
    }
    axis_taps_t out;
    for (int k = 0; k < mode->taps; k++) {
        tt_vi counts;
        const tt_vf element = lower + (tt_real_t)(mode->taps > 2 ? k - 1 : k);
        out.index[k] = index_of(a, aim, element, &counts);
        counts |= t != t; /* NaN is shown */
        const tt_vf weight = polynomial(a->weights.of[k], mode->degree, t) * power;
        out.weight[k] = (tt_vf)((tt_vi)weight & counts);
        if (aim.has_slopes) {
            const tt_vf slope = polynomial(a->slopes.of[k], mode->degree, t) * power * p.speed;
            out.slope[k] = (tt_vf)((tt_vi)slope & counts);
        }
    }
    return out;
}

/* Of a plane's depth: one tap. */
TT_INLINE axis_taps_t flat_axis(void)
{
    axis_taps_t out;
    out.index[0] = (index_t){0};
    out.weight[0] = tt_vsplat(1);
    out.slope[0] = (tt_vf){0};
    return out;
}

/* ---- combinations ---------------------------------------------------------------------------- */

/* All combinations of these taps of D, H and W, of the points from `at` on. */
TT_INLINE void combine(const tt_grid_sample_t *t, aim_t aim, const axis_taps_t axes[3], int64_t at,
                       const tt_taps_t *taps, void *const *slopes)
{
    const axis_taps_t *z = &axes[0], *y = &axes[1], *x = &axes[2];
    const int32_t height = (int32_t)t->size[1], width = (int32_t)t->size[2];
    const int each = modes[aim.mode].taps, deep = t->dims == 3 ? each : 1;
    for (int yz = 0; yz < deep * each; yz++) {
        const int i = yz / each, j = yz % each;
        const index_t row = (z->index[i] * height + y->index[j]) * width;
        for (int k = 0; k < each; k++, at += POINTS) {
            const index_t index = row + x->index[k];
            memcpy(taps->index + at, &index, sizeof index);
            tt_vstore((tt_real_t *)taps->weight + at, z->weight[i] * y->weight[j] * x->weight[k]);
            if (aim.has_slopes) {
                tt_vstore((tt_real_t *)slopes[0] + at, z->weight[i] * y->weight[j] * x->slope[k]);
                tt_vstore((tt_real_t *)slopes[1] + at, z->weight[i] * y->slope[j] * x->weight[k]);
            }
            if (aim.has_slopes && t->dims == 3) {
                tt_vstore((tt_real_t *)slopes[2] + at, z->slope[i] * y->weight[j] * x->weight[k]);
            }
        }
    }
}

/* to[i]: coordinate i of n points, as axes are numbered, and 0 behind them. */
static void deal(const tt_real_t *restrict grid, int64_t n, int dims, tt_real_t to[3][POINTS])
{
    tt_real_t *restrict z = to[0], *restrict y = to[1], *restrict x = to[2];
    if (n < POINTS) {
        memset(to, 0, 3 * sizeof *to);
    }
    for (int64_t i = 0; i < n && dims == 2; i++) {
        x[i] = grid[2 * i];
        y[i] = grid[2 * i + 1];
    }
    for (int64_t i = 0; i < n && dims == 3; i++) {
        x[i] = grid[3 * i];
        y[i] = grid[3 * i + 1];
        z[i] = grid[3 * i + 2];
    }
}

TT_INLINE axis_t axis_of(const tt_grid_sample_t *t, aim_t aim, int i)
{
    axis_t a = {.t = t, .size = (tt_real_t)t->size[i], .order = t->order[i]};
    a.weights = modes[aim.mode];
    for (int k = 0; k < t->order[i]; k++) {
        a.weights = derived(a.weights);
    }
    if (aim.has_slopes) {
        a.slopes = derived(a.weights);
    }
    return a;
}

TT_INLINE void find(const tt_grid_sample_t *t, aim_t aim, const tt_real_t *grid, tt_taps_t *taps,
                    void *const *slopes)
{
    const axis_t z = axis_of(t, aim, 0), y = axis_of(t, aim, 1), x = axis_of(t, aim, 2);
    tt_real_t coordinates[3][POINTS];
    deal(grid, taps->n, t->dims, coordinates);
    for (int64_t at = 0; at < taps->n; at += TT_LANES) {
        axis_taps_t found[3];
        found[0] = t->dims == 3 ? find_axis(&z, aim, tt_vload(coordinates[0] + at)) : flat_axis();
        found[1] = find_axis(&y, aim, tt_vload(coordinates[1] + at));
        found[2] = find_axis(&x, aim, tt_vload(coordinates[2] + at));
        combine(t, aim, found, at, taps, slopes);
    }
}

TT_INLINE void find_in_mode(const tt_grid_sample_t *t, tt_grid_mode_t mode, const tt_real_t *grid,
                            tt_taps_t *taps, void *const *slopes)
{
    if (slopes == NULL) {
        find(t, (aim_t){mode, false}, grid, taps, NULL);
    } else {
        find(t, (aim_t){mode, true}, grid, taps, slopes);
    }
}

static void find_taps(const tt_grid_sample_t *t, const void *grid, int64_t n, tt_taps_t *taps,
                      void *const *slopes)
{
    const int each = modes[t->mode].taps;
    taps->n = n;
    taps->most = each * each * (t->dims == 3 ? each : 1);
    switch (t->mode) {
    case TT_GRID_BILINEAR:
        find_in_mode(t, TT_GRID_BILINEAR, grid, taps, slopes);
        break;
    case TT_GRID_NEAREST:
        find_in_mode(t, TT_GRID_NEAREST, grid, taps, slopes);
        break;
    case TT_GRID_BICUBIC:
        find_in_mode(t, TT_GRID_BICUBIC, grid, taps, slopes);
        break;
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A vector of points' products first; those of weight 0 add a zero, which changes no sum. */
static void spread(void *x, const void *y, const tt_taps_t *taps)
{
    tt_real_t from[POINTS] = {0}, products[POINTS];
    memcpy(from, y, (size_t)taps->n * sizeof *from);
    for (int64_t k = 0; k < taps->most * POINTS; k += POINTS) {
        const int32_t *index = taps->index + k;
        for (int64_t i = 0; i < taps->n; i += TT_LANES) {
            const tt_vf weight = tt_vload((const tt_real_t *)taps->weight + k + i);
            const tt_vi is_some = (weight > 0) | (weight < 0); /* NaN is of no element */
            const tt_vf product = weight * tt_vload(from + i);
            tt_vstore(products + i, (tt_vf)((tt_vi)product & is_some));
        }
        for (int64_t i = 0; i < taps->n; i++) {
            ((tt_real_t *)x)[index[i]] += products[i];
        }
    }
}

static void add_dots(void *dots, const void *y, const void *x, const tt_taps_t *taps)
{
    tt_real_t from[POINTS] = {0};
    memcpy(from, y, (size_t)taps->n * sizeof *from);
    for (int64_t k = 0; k < taps->most * POINTS; k += POINTS) {
        for (int64_t i = k; i < k + taps->n; i += TT_LANES) {
            tt_real_t *to = (tt_real_t *)dots + i;
            tt_vstore(to, tt_vload(to) + tt_vload(from + (i - k)) * tt_vgather(x, taps->index + i));
        }
    }
}

/* Of a vector of points, from point i on. */
TT_INLINE tt_vf sum_slope(const tt_real_t *dots, const tt_real_t *slope, const tt_taps_t *taps,
                          int64_t i)
{
    tt_vf sum = {0};
    for (int64_t k = i; k < taps->most * POINTS; k += POINTS) {
        const tt_vf s = tt_vload(slope + k);
        sum = tt_vsel(s != 0, sum + s * tt_vload(dots + k), sum);
    }
    return sum;
}

/* to[i][d] = sums[d][i] */
static void interleave(tt_real_t *restrict to, int dims, tt_real_t sums[3][POINTS], int64_t n)
{
    for (int64_t i = 0; i < n && dims == 2; i++) {
        to[2 * i] = sums[0][i];
        to[2 * i + 1] = sums[1][i];
    }
    for (int64_t i = 0; i < n && dims == 3; i++) {
        to[3 * i] = sums[0][i];
        to[3 * i + 1] = sums[1][i];
        to[3 * i + 2] = sums[2][i];
    }
}

static void sum_slopes(void *to, int dims, const void *dots, void *const *slopes,
                       const tt_taps_t *taps)
{
    tt_real_t sums[3][POINTS];
    for (int d = 0; d < dims; d++) {
        for (int64_t i = 0; i < taps->n; i += TT_LANES) {
            tt_vstore(sums[d] + i, sum_slope(dots, slopes[d], taps, i));
        }
    }
    interleave(to, dims, sums, taps->n);
}

extern const tt_grid_sample_ops_t TT_ISA_NAME(tt_grid_sample_ops);

const tt_grid_sample_ops_t TT_ISA_NAME(tt_grid_sample_ops) = {find_taps, spread, add_dots,
                                                              sum_slopes};
