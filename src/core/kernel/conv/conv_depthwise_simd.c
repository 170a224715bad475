/* Channels by themselves (conv_depthwise.h). Rows that fill vectors go straight to where they
 * belong; short ones, and such that are not side by side there, together to the stack first, as
 * they lie in the planes. Cost: a load and a multiplication for each vector and tap. */
#include "core/kernel/conv/conv_depthwise.h"

#include "core/kernel/vmath.h"

enum { STACK = 1024, AT_ONCE = 8, TAPS_AT_ONCE = TT_PARTS == 1 ? 8 : 4 };

/* A channel's taps. */
typedef struct {
    int64_t count;
    const int64_t *at;
    float weight[TT_DEPTHWISE_TAPS_MAX], bias;
} taps_t;

/* So many vectors of positions. */
TT_INLINE void add_taps(const taps_t *t, const float *x, tt_vf *sum, int vectors)
{
    for (int v = 0; v < vectors; v++) {
        sum[v] = tt_vsplat(t->bias);
    }
    for (int64_t k = 0; k < t->count; k++) {
        const tt_vf weight = tt_vsplat(t->weight[k]);
        const float *from = x + t->at[k];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            sum[v] = tt_vfma(tt_vload(from + v * TT_LANES), weight, sum[v]);
        }
    }
}

TT_INLINE void add_vectors(const taps_t *t, const float *x, float *to, int vectors)
{
    tt_vf sum[AT_ONCE];
    add_taps(t, x, sum, vectors);
    for (int v = 0; v < vectors; v++) {
        tt_vstore(to + v * TT_LANES, sum[v]);
    }
}

/* `count` positions side by side; nothing is written behind them. */
static void add_row(const taps_t *t, const float *x, float *to, int64_t count)
{
    int64_t at = 0;
    for (; at + AT_ONCE * TT_LANES <= count; at += AT_ONCE * TT_LANES) {
        add_vectors(t, x + at, to + at, AT_ONCE);
    }
    for (; at + 4 * TT_LANES <= count; at += 4 * TT_LANES) {
        add_vectors(t, x + at, to + at, 4);
    }
    for (; at + TT_LANES <= count; at += TT_LANES) {
        add_vectors(t, x + at, to + at, 1);
    }
    if (at < count) {
        tt_vf sum;
        add_taps(t, x + at, &sum, 1);
        tt_vstore_n(to + at, sum, (size_t)(count - at));
    }
}

/* From the stack to where the positions belong. */
static void put_row(const float *from, float *to, int64_t step, int64_t count)
{
    if (step == 1) {
        int64_t at = 0;
        for (; at + TT_LANES <= count; at += TT_LANES) {
            tt_vstore(to + at, tt_vload(from + at));
        }
        if (at < count) {
            tt_vstore_n(to + at, tt_vload_n(from + at, (size_t)(count - at)), (size_t)(count - at));
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        to[i * step] = from[i];
    }
}

/* Rows together, or a long row part by part. */
static void correlate_short(const tt_depthwise_t *d, const taps_t *t, const float *x, float *out)
{
    float sums[STACK];
    const int64_t rows = d->pitch < STACK ? STACK / d->pitch : 1;
    const int64_t part = d->width < STACK ? d->width : STACK;
    for (int64_t row = 0; row < d->rows; row += rows) {
        const int64_t count = d->rows - row < rows ? d->rows - row : rows;
        for (int64_t at = 0; at < d->width; at += part) {
            const int64_t width = d->width - at < part ? d->width - at : part;
            add_row(t, x + row * d->pitch + at, sums, (count - 1) * d->pitch + width);
            for (int64_t i = 0; i < count; i++) {
                put_row(sums + i * d->pitch, out + (row + i) * d->out_row + at * d->out_step,
                        d->out_step, width);
            }
        }
    }
}

static void correlate(const tt_depthwise_t *d)
{
    taps_t t = {.count = d->taps, .at = d->tap_at};
    for (int64_t u = 0; u < d->units; u++) {
        const int64_t group = (d->first + u) % d->groups;
        const float *x = d->planes + u * d->unit, *weight = d->weight + group * d->kernel;
        float *out = d->out + u * d->out_unit;
        for (int64_t k = 0; k < d->taps; k++) {
            t.weight[k] = weight[d->tap[k]];
        }
        t.bias = d->bias == NULL ? 0 : d->bias[group];
        if (d->out_step > 1 || d->width < 32) {
            correlate_short(d, &t, x, out);
            continue;
        }
        for (int64_t row = 0; row < d->rows; row++) {
            add_row(&t, x + row * d->pitch, out + row * d->out_row, d->width);
        }
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

TT_INLINE void add_products(const tt_depthwise_weight_t *w, const float *x, const float *dy,
                            int64_t tap, int taps, float *sums)
{
    tt_v16_t sum[TAPS_AT_ONCE];
    for (int k = 0; k < taps; k++) {
        memcpy(&sum[k], sums + k * TT_DEPTHWISE_LANES, sizeof sum[k]);
    }
    for (int64_t at = 0; at < w->count; at += TT_DEPTHWISE_LANES) {
        for (int part = 0; part < TT_PARTS; part++) {
            const tt_vf g = tt_vload(dy + at + part * TT_LANES);
#pragma GCC unroll 8
            for (int k = 0; k < taps; k++) {
                const tt_vf v = tt_vload(x + w->tap_at[tap + k] + at + part * TT_LANES);
                sum[k].part[part] = tt_vfma(g, v, sum[k].part[part]);
            }
        }
    }
    for (int k = 0; k < taps; k++) {
        memcpy(sums + k * TT_DEPTHWISE_LANES, &sum[k], sizeof sum[k]);
    }
}

static void add_weights(const tt_depthwise_weight_t *w)
{
    for (int64_t u = 0; u < w->units; u++) {
        const float *x = w->planes + u * w->unit, *dy = w->dy + u * w->dy_unit;
        float *sums = w->sums + u * w->taps * TT_DEPTHWISE_LANES;
        int64_t tap = 0;
        for (; tap + TAPS_AT_ONCE <= w->taps; tap += TAPS_AT_ONCE) {
            add_products(w, x, dy, tap, TAPS_AT_ONCE, sums + tap * TT_DEPTHWISE_LANES);
        }
        for (; tap < w->taps; tap++) {
            add_products(w, x, dy, tap, 1, sums + tap * TT_DEPTHWISE_LANES);
        }
    }
}

static void fold(const float *sums, int64_t taps, float *dw)
{
    for (int64_t k = 0; k < taps; k++) {
        tt_v16_t sum;
        memcpy(&sum, sums + k * TT_DEPTHWISE_LANES, sizeof sum);
        dw[k] = tt_v16_sum(sum);
    }
}

const tt_depthwise_ops_t TT_ISA_NAME(tt_depthwise_ops) = {
    .correlate = correlate,
    .add_weights = add_weights,
    .fold = fold,
};
