/* Panels out of planes (conv_ops.h): runs of neighbours, copied a cache line at a time, in order,
 * so that each run overwrites what the one before it wrote too much. Cost: two vectors moved for
 * each run of up to 16 f32; a tenth of the product that reads them for 64 channels. Source:
 * Chellapilla et al., "High Performance Convolutional Neural Networks for Document Processing"
 * (2006), in panels. */
#include "core/kernel/conv_ops.h"

#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vmath.h"

enum { LINE_F32 = TT_CONV_SLACK / 4, LINE_BF16 = TT_CONV_SLACK / 2 };

TT_INLINE void copy_f32(const float *from, float *to, int count)
{
    for (int i = 0; i < count; i += LINE_F32) {
        memcpy(to + i, from + i, TT_CONV_SLACK);
    }
}

static void pack_taps_f32(const tt_conv_panel_t *p, int columns, float *to)
{
    for (int64_t tap = 0; tap < p->tap_count; tap++, to += columns) {
        const float *from = (const float *)p->planes + p->taps[tap];
        for (int i = 0; i < p->run_count; i++) {
            copy_f32(from + p->runs[i].from, to + p->runs[i].to, p->runs[i].count);
        }
    }
}

TT_INLINE void interleave(const uint16_t *a, const uint16_t *b, uint32_t *to, int count)
{
    for (int done = 0; done < count; done += LINE_F32) {
        uint16_t x[LINE_F32], y[LINE_F32];
        uint32_t pairs[LINE_F32];
        memcpy(x, a + done, sizeof x);
        memcpy(y, b + done, sizeof y);
        for (int i = 0; i < LINE_F32; i++) {
            pairs[i] = (uint32_t)x[i] | (uint32_t)y[i] << 16;
        }
        memcpy(to + done, pairs, sizeof pairs);
    }
}

static void pack_taps_bf16(const tt_conv_panel_t *p, int columns, float *to)
{
    for (int64_t tap = 0; tap < p->tap_count; tap += 2, to += columns) {
        const uint16_t *a = (const uint16_t *)p->planes + p->taps[tap];
        const uint16_t *b = (const uint16_t *)p->planes + p->taps[tap + 1];
        for (int i = 0; i < p->run_count; i++) {
            const int64_t from = p->runs[i].from;
            interleave(a + from, b + from, (uint32_t *)(void *)to + p->runs[i].to,
                       p->runs[i].count);
        }
    }
}

static void pack_rows_f32(const tt_conv_panel_t *p, float *to)
{
    for (int64_t tap = 0; tap < p->tap_count; tap++, to += TT_GEMM_STRIDE) {
        const float *from = (const float *)p->planes + p->taps[tap];
        for (int i = 0; i < p->run_count; i++) {
            copy_f32(from + p->runs[i].from, to + p->runs[i].to, p->runs[i].count);
        }
    }
}

/* The last pair may be half: zero, so that nothing strange is multiplied by B's zero. */
static void pack_rows_bf16(const tt_conv_panel_t *p, float *to)
{
    const tt_window_run_t *last = &p->runs[p->run_count - 1];
    for (int64_t tap = 0; tap < p->tap_count; tap++, to += TT_GEMM_STRIDE) {
        const uint16_t *planes = (const uint16_t *)p->planes + p->taps[tap];
        uint16_t *row = (uint16_t *)(void *)to;
        for (int i = 0; i < p->run_count; i++) {
            const uint16_t *from = planes + p->runs[i].from;
            for (int at = 0; at < p->runs[i].count; at += LINE_BF16) {
                memcpy(row + p->runs[i].to + at, from + at, TT_CONV_SLACK);
            }
        }
        row[last->to + last->count] = 0;
    }
}

const tt_conv_ops_t TT_ISA_NAME(tt_conv_ops) = {
    .pack_taps_f32 = pack_taps_f32,
    .pack_taps_bf16 = pack_taps_bf16,
    .pack_rows_f32 = pack_rows_f32,
    .pack_rows_bf16 = pack_rows_bf16,
};
