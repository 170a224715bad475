/* Taps of points: first those of each dimension, in vectors of points; then all combinations, whose
 * weights are products. A weight is a polynomial of t, the place behind the first of the two
 * elements around it; all modes, and all derivatives, are tables of coefficients.
 *
 *     place u    ((c + 1) size - 1) / 2, or (c + 1) (size - 1) / 2 with align_corners
 *     padding    border: between the first and the last element; reflection: also mirrored at their
 *                outer edges (align_corners: their middles). Of bicubic it moves the taps, else u
 *     taps       elements outside have the weight 0; those of a NaN are NaN, to be shown
 */
#include "core/kernel/pool/interpolate_ops.h"

#include "core/kernel/vmath.h"

enum { POINTS = TT_GRID_POINTS, AXIS_TAPS = 4, DEGREE = 3 };

/* ---- weights --------------------------------------------------------------------------------- */

/* Coefficients of 1, t, t², t³ of each tap. */
typedef struct {
    int taps;
    tt_real_t of[AXIS_TAPS][DEGREE + 1];
} weights_t;

static const weights_t modes[] = {
    [TT_GRID_BILINEAR] = {2, {{1, -1}, {0, 1}}},
    [TT_GRID_NEAREST] = {1, {{1}}},
    [TT_GRID_BICUBIC] = {4,
                         {{0, -0.75f, 1.5f, -0.75f},
                          {1, 0, -2.25f, 1.25f},
                          {0, 0.75f, 1.5f, -1.25f},
                          {0, 0, -0.75f, 0.75f}}},
};

static weights_t derived(weights_t w)
{
    for (int k = 0; k < w.taps; k++) {
        for (int i = 0; i < DEGREE; i++) {
            w.of[k][i] = (tt_real_t)(i + 1) * w.of[k][i + 1];
        }
        w.of[k][DEGREE] = 0;
    }
    return w;
}

TT_INLINE tt_vf polynomial(const tt_real_t *of, tt_vf t)
{
    return ((tt_vsplat(of[3]) * t + of[2]) * t + of[1]) * t + of[0];
}

/* ---- one dimension --------------------------------------------------------------------------- */

typedef struct {
    const tt_grid_sample_t *t;
    tt_real_t size;
    weights_t weights, slopes; /* of the order, and of one more */
    int order;
    bool has_slopes;
} axis_t;

/* Indices of a vector's points. */
typedef int32_t index_t __attribute__((vector_size(TT_LANES * sizeof(int32_t))));

typedef struct {
    int taps;
    int32_t index[AXIS_TAPS][POINTS];
    tt_real_t weight[AXIS_TAPS][POINTS], slope[AXIS_TAPS][POINTS];
} axis_taps_t;

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

TT_INLINE place_t place_of(const axis_t *a, tt_vf c)
{
    const tt_real_t speed = (a->t->align_corners ? a->size - 1 : a->size) * 0.5f;
    const tt_vf at = (c + 1) * speed - (a->t->align_corners ? 0 : 0.5f);
    const bool is_mirrored = a->t->padding == TT_GRID_REFLECTION;
    const place_t p = {is_mirrored ? at : brought_near(a, at), tt_vsplat(speed)};
    return a->t->mode == TT_GRID_BICUBIC ? p : padded(a, p);
}

/* The index of a tap at an element; `inside`: whether it is one of x. */
TT_INLINE index_t index_of(const axis_t *a, tt_vf element, tt_vi *inside)
{
    const tt_vf to =
        a->t->mode == TT_GRID_BICUBIC ? padded(a, (place_t){element, {0}}).at : element;
    *inside = (to >= 0) & (to < a->size);
    return __builtin_convertvector((tt_vf)((tt_vi)to & *inside), index_t);
}

TT_INLINE void find_vector(const axis_t *a, tt_vf coordinate, int64_t at, axis_taps_t *out)
{
    const place_t p = place_of(a, coordinate);
    const bool is_nearest = a->t->mode == TT_GRID_NEAREST;
    const tt_vf lower = is_nearest ? nearest(p.at) : tt_vfloor(p.at);
    const tt_vf t = is_nearest ? tt_vsplat(0) : p.at - lower;
    tt_vf power = tt_vsplat(1);
    for (int i = 0; i < a->order; i++) {
        power *= p.speed;
    }
    for (int k = 0; k < a->weights.taps; k++) {
        tt_vi counts;
        const tt_vf element = lower + (tt_real_t)(a->weights.taps > 2 ? k - 1 : k);
        const index_t index = index_of(a, element, &counts);
        memcpy(&out->index[k][at], &index, sizeof index);
        counts |= t != t; /* NaN is shown */
        const tt_vf weight = polynomial(a->weights.of[k], t) * power;
        tt_vstore(&out->weight[k][at], (tt_vf)((tt_vi)weight & counts));
        if (a->has_slopes) {
            const tt_vf slope = polynomial(a->slopes.of[k], t) * power * p.speed;
            tt_vstore(&out->slope[k][at], (tt_vf)((tt_vi)slope & counts));
        }
    }
}

/* grid: the coordinate of the first point; `dims` to that of the next. */
static void find_axis(const axis_t *a, const tt_real_t *grid, int64_t n, axis_taps_t *out)
{
    const int64_t dims = a->t->dims;
    out->taps = a->weights.taps;
    for (int64_t at = 0; at < POINTS; at += TT_LANES) {
        tt_vf c = {0};
        for (int l = 0; l < TT_LANES; l++) {
            c[l] = grid[(at + l < n ? at + l : 0) * dims];
        }
        find_vector(a, c, at, out);
    }
}

/* Of a plane's depth: one tap. */
static void find_flat(axis_taps_t *out)
{
    out->taps = 1;
    for (int64_t i = 0; i < POINTS; i++) {
        out->index[0][i] = 0;
        out->weight[0][i] = 1;
    }
}

static void find_all(const tt_grid_sample_t *t, const tt_real_t *grid, int64_t n, bool has_slopes,
                     axis_taps_t axes[3])
{
    for (int i = 0; i < 3; i++) {
        axis_t a = {
            .t = t, .size = (tt_real_t)t->size[i], .order = t->order[i], .has_slopes = has_slopes};
        a.weights = modes[t->mode];
        for (int k = 0; k < t->order[i]; k++) {
            a.weights = derived(a.weights);
        }
        a.slopes = derived(a.weights);
        if (i < 3 - t->dims) {
            find_flat(&axes[i]);
        } else {
            find_axis(&a, grid + 2 - i, n, &axes[i]);
        }
    }
}

/* ---- combinations ---------------------------------------------------------------------------- */

/* to[i] = a b c */
static void multiply(tt_real_t *to, const tt_real_t *a, const tt_real_t *b, const tt_real_t *c)
{
    for (int64_t i = 0; i < POINTS; i++) {
        to[i] = a[i] * b[i] * c[i];
    }
}

/* Tap number k of all, of these taps of D, H and W. */
static void combine(const tt_grid_sample_t *t, const axis_taps_t axes[3], const int of[3],
                    const tt_taps_t *to, void *const *slopes)
{
    const int64_t k = to->most * to->stride;
    const axis_taps_t *z = &axes[0], *y = &axes[1], *x = &axes[2];
    const int32_t height = (int32_t)t->size[1], width = (int32_t)t->size[2];
    for (int64_t i = 0; i < POINTS; i++) {
        to->index[k + i] =
            (z->index[of[0]][i] * height + y->index[of[1]][i]) * width + x->index[of[2]][i];
    }
    const tt_real_t *wz = z->weight[of[0]], *wy = y->weight[of[1]], *wx = x->weight[of[2]];
    multiply((tt_real_t *)to->weight + k, wz, wy, wx);
    if (slopes != NULL) {
        multiply((tt_real_t *)slopes[0] + k, wz, wy, x->slope[of[2]]);
        multiply((tt_real_t *)slopes[1] + k, wz, y->slope[of[1]], wx);
    }
    if (slopes != NULL && t->dims == 3) {
        multiply((tt_real_t *)slopes[2] + k, z->slope[of[0]], wy, wx);
    }
}

static void find_taps(const tt_grid_sample_t *t, const void *grid, int64_t n, tt_taps_t *taps,
                      void *const *slopes)
{
    axis_taps_t axes[3];
    int of[3];
    find_all(t, grid, n, slopes != NULL, axes);
    taps->n = n;
    taps->most = 0;
    for (of[0] = 0; of[0] < axes[0].taps; of[0]++) {
        for (of[1] = 0; of[1] < axes[1].taps; of[1]++) {
            for (of[2] = 0; of[2] < axes[2].taps; of[2]++) {
                combine(t, axes, of, taps, slopes);
                taps->most++;
            }
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void spread(void *x, const void *y, const tt_taps_t *taps)
{
    const tt_real_t *from = y;
    for (int64_t k = 0; k < taps->most; k++) {
        const tt_real_t *weight = (const tt_real_t *)taps->weight + k * taps->stride;
        const int32_t *index = taps->index + k * taps->stride;
        for (int64_t i = 0; i < taps->n; i++) {
            if (weight[i] > 0 || weight[i] < 0) { /* NaN is of no element */
                ((tt_real_t *)x)[index[i]] += weight[i] * from[i];
            }
        }
    }
}

static void add_dots(void *dots, const void *y, const void *x, const tt_taps_t *taps)
{
    const tt_real_t *plane = x;
    tt_real_t from[POINTS] = {0};
    memcpy(from, y, (size_t)taps->n * sizeof *from);
    for (int64_t k = 0; k < taps->most; k++) {
        const int32_t *index = taps->index + k * taps->stride;
        tt_real_t *restrict to = (tt_real_t *)dots + k * taps->stride;
        for (int64_t i = 0; i < POINTS; i++) {
            to[i] += from[i] * plane[index[i]];
        }
    }
}

static void sum_slopes(void *to, int dims, const void *dots, const void *slope,
                       const tt_taps_t *taps)
{
    tt_real_t sums[POINTS];
    for (int64_t i = 0; i < POINTS; i += TT_LANES) {
        tt_vf sum = {0};
        for (int64_t k = i; k < taps->most * taps->stride; k += taps->stride) {
            const tt_vf s = tt_vload((const tt_real_t *)slope + k);
            sum = tt_vsel(s != 0, sum + s * tt_vload((const tt_real_t *)dots + k), sum);
        }
        tt_vstore(sums + i, sum);
    }
    for (int64_t i = 0; i < taps->n; i++) {
        ((tt_real_t *)to)[i * dims] = sums[i];
    }
}

extern const tt_grid_ops_t TT_ISA_NAME(tt_grid_ops);

const tt_grid_ops_t TT_ISA_NAME(tt_grid_ops) = {find_taps, spread, add_dots, sum_slopes};
