/* Rows of attention scores, 16 fixed lanes at a time.
 * Source: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). */
#include "core/kernel/attention/attention_ops.h"

#include "core/kernel/vmath.h"

static int64_t up_to_16(int64_t count)
{
    return (count + 15) & ~(int64_t)15;
}

/* Whatever is not seen gets `value`; the rest of the row is cleared. */
static void mask_row(const tt_score_row_t *r, float *row, float value)
{
    for (int64_t j = 0; r->ignored != NULL && j < r->count; j++) {
        row[j] = r->ignored[j] ? value : row[j];
    }
    const int64_t end = up_to_16(r->count);
    for (int64_t j = r->count; j < end; j++) {
        row[j] = value;
    }
    for (int64_t j = end; j < r->width; j++) {
        row[j] = 0;
    }
}

static void scale_row(const tt_score_row_t *r)
{
    for (int64_t j = 0; j < r->count; j += TT_LANES) {
        tt_vstore(r->row + j, tt_vload(r->row + j) * r->scale);
    }
}

static float max_of_row(const tt_score_row_t *r)
{
    tt_vf most = tt_vsplat(-__builtin_inff());
    for (int64_t j = 0; j < r->count; j += TT_LANES) {
        most = tt_vmax(tt_vload(r->row + j), most);
    }
    float max = most[0];
    for (int i = 1; i < TT_LANES; i++) {
        max = max > most[i] || max != max ? max : most[i];
    }
    return max;
}

static float exp_row(const tt_score_row_t *r, float max)
{
    tt_v16_t sum = tt_v16_splat(0);
    for (int64_t j = 0; j < r->count; j += 16) {
        for (int part = 0; part < TT_PARTS; part++) {
            float *x = r->row + j + part * TT_LANES;
            const tt_vf e = tt_vexp(tt_vload(x) - max);
            sum.part[part] += e;
            tt_vstore(x, e);
        }
    }
    return tt_v16_sum(sum);
}

static void drop_row(const tt_score_row_t *r, float *row, float kept)
{
    for (int64_t j = 0; r->uniform != NULL && j < r->count; j++) {
        row[j] = r->uniform[j] < r->dropout ? 0 : row[j] * kept;
    }
}

static void clear_row(float *row, int64_t width)
{
    for (int64_t j = 0; j < width; j++) {
        row[j] = 0;
    }
}

static float exp_one(float x)
{
    return tt_vexp(tt_vsplat(x))[0];
}

static float softmax_row(const tt_score_row_t *r, tt_max_sum_t *running)
{
    scale_row(r);
    mask_row(r, r->row, -__builtin_inff());
    const float old = running->max, here = max_of_row(r);
    const float most = old > here ? old : here;
    if (most == -__builtin_inff()) { /* nothing seen so far */
        clear_row(r->row, r->width);
        return 1;
    }
    const float factor = old == most || old == -__builtin_inff() ? 1 : exp_one(old - most);
    running->max = most;
    running->sum = running->sum * factor + exp_row(r, most);
    drop_row(r, r->row, 1 / (1 - r->dropout));
    return factor;
}

static void softmax_grad_row(const tt_score_row_t *r, float *dp, tt_max_sum_t of, float delta)
{
    if (r->count <= 0 || of.sum == 0) {
        clear_row(r->row, r->width);
        clear_row(dp, r->width);
        return;
    }
    const float kept = r->uniform == NULL ? 1 : 1 / (1 - r->dropout), inverse = 1 / of.sum;
    drop_row(r, dp, kept);
    for (int64_t j = 0; j < r->count; j += TT_LANES) {
        const tt_vf p = tt_vexp(tt_vload(r->row + j) * r->scale - of.max) * inverse;
        tt_vstore(dp + j, p * (tt_vload(dp + j) - delta) * r->scale);
        tt_vstore(r->row + j, p);
    }
    mask_row(r, r->row, 0);
    mask_row(r, dp, 0);
    drop_row(r, r->row, kept);
}

static float dot(const float *x, const float *y, int64_t count)
{
    tt_v16_t sum = tt_v16_splat(0);
    int64_t j = 0;
    for (; j + 16 <= count; j += 16) {
        for (int part = 0; part < TT_PARTS; part++) {
            const int64_t at = j + part * TT_LANES;
            sum.part[part] = tt_vfma(tt_vload(x + at), tt_vload(y + at), sum.part[part]);
        }
    }
    float rest = 0;
    for (; j < count; j++) {
        rest += x[j] * y[j];
    }
    return tt_v16_sum(sum) + rest;
}

static void shrink(float *acc, float factor, const float *add, int64_t count)
{
    for (int64_t j = 0; j < count; j++) {
        acc[j] = acc[j] * factor + (add == NULL ? 0 : add[j]);
    }
}

const tt_attention_ops_t TT_ISA_NAME(tt_attention_ops) = {
    .softmax_row = softmax_row,
    .softmax_grad_row = softmax_grad_row,
    .dot = dot,
    .shrink = shrink,
};
