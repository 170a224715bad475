/* Attention forward for one batch and head:
 *
 *     for each block of 512 keys: pack K^T and V
 *       for each panel of queries (14 with AVX-512): scores in a panel of A, in the L1 cache
 *         softmax of the rows; out = out · factor + weights · V
 *     out / sum
 *
 * Up to 512 keys there is one block and nothing is rescaled. Under causal, tiles that no query of
 * the panel sees are skipped: they would add exact zeros. Cost: 4·Tq·Tk·D operations (half of it
 * under causal), scratch Tq × D + 1024 × D floats. Source: attention.h.
 */
#include <math.h>
#include <string.h>

#include "core/kernel/attention/attention_ops.h"

typedef struct {
    const tt_head_t *head;
    float *keys, *values;    /* packed */
    float *queries, *scores; /* panels of A */
    float *weights;          /* the same of bf16, made of scores */
    float *product, *wide, *uniform;
    float *acc;            /* [Tq,D] */
    tt_max_sum_t *running; /* [Tq] */
    int64_t k, k_count;
} forward_t;

/* Scratch in the order in which it is cut; `at` NULL only counts. */
static int64_t cut_scratch(forward_t *f, const tt_attention_t *a, float *at)
{
    const int64_t keys = tt_min(TT_FORWARD_KEYS, tt_attention_padded(a->tk)),
                  d = tt_attention_padded(a->d);
    const struct {
        float **to;
        int64_t count;
    } parts[] = {
        {&f->keys, keys * d},
        {&f->values, keys * d},
        {&f->queries, TT_GEMM_A_PANEL},
        {&f->scores, TT_GEMM_A_PANEL},
        {&f->weights, TT_GEMM_A_PANEL},
        {&f->product, TT_GEMM_ROWS_MAX * d},
        {&f->wide, (keys > TT_GEMM_ROWS_MAX ? keys : TT_GEMM_ROWS_MAX) * d},
        {&f->uniform, keys},
        {&f->acc, tt_attention_padded(a->tq * a->d)},
    };
    int64_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].to = at == NULL ? NULL : at + total;
        total += parts[i].count;
    }
    return total;
}

int64_t tt_attention_forward_floats(const tt_attention_t *a)
{
    forward_t f;
    return cut_scratch(&f, a, NULL);
}

static void pack_keys(const forward_t *f)
{
    const tt_head_t *head = f->head, keys = tt_keys_of(head);
    const int64_t d = head->a->d;
    const tt_rows_view_t k = tt_head_rows(&keys, &head->a->k, f->k, f->k_count, f->wide);
    head->gemm->pack_b(k.data, k.ld, true, d, f->k_count, f->keys);
    const tt_rows_view_t v = tt_head_rows(&keys, &head->a->v, f->k, f->k_count, f->wide);
    head->gemm->pack_b(v.data, v.ld, false, f->k_count, d, f->values);
}

static void softmax_row(const forward_t *f, int64_t t, int64_t row, int64_t width)
{
    const tt_head_t *head = f->head;
    const tt_attention_t *a = head->a;
    const int64_t seen = a->causal ? t + 1 - f->k : f->k_count;
    const int64_t count = seen < 0 ? 0 : tt_min(seen, f->k_count);
    const tt_score_row_t r = {
        .row = f->scores + row * TT_GEMM_STRIDE,
        .count = count,
        .width = width,
        .scale = (float)a->scale,
        .ignored = a->key_padding == NULL ? NULL : a->key_padding + head->b * a->tk + f->k,
        .uniform = tt_head_uniform(head, t, f->k, count, f->uniform),
        .dropout = a->dropout,
    };
    const float factor = head->ops->softmax_row(&r, &f->running[t]);
    if (factor < 1) {
        head->ops->shrink(f->acc + t * a->d, factor, NULL, a->d);
    }
}

/* The scores as the panel of weights that the values' panel asks for. */
static const float *weights_of(const forward_t *f, int64_t rows, int64_t width)
{
    if (!f->head->is_short) {
        return f->scores;
    }
    const tt_gemm_ops_t *gemm = f->head->gemm;
    const int64_t whole = tt_gemm_steps(gemm, width) * gemm->k_per_step; /* zeros at the end */
    for (int64_t row = 0; row < rows; row++) {
        float *scores = f->scores + row * TT_GEMM_STRIDE;
        memset(scores + width, 0, (size_t)(whole - width) * sizeof *scores);
        f->head->from_f32(f->weights + row * TT_GEMM_STRIDE, scores, (size_t)whole);
    }
    return f->weights;
}

static void attend_panel(const forward_t *f, int64_t t, int64_t rows)
{
    const tt_head_t *head = f->head;
    const tt_attention_t *a = head->a;
    const int64_t width = a->causal ? tt_min(f->k_count, t + rows - f->k) : f->k_count;
    if (width <= 0) {
        return;
    }
    const tt_rows_view_t q = tt_head_rows(head, &a->q, t, rows, f->wide);
    head->gemm->pack_a(q.data, q.ld, false, rows, a->d, f->queries);
    tt_multiply_tiles(head->gemm, &(tt_tiles_t){.a = f->queries,
                                                .b = f->keys,
                                                .rows = rows,
                                                .columns = width,
                                                .whole = true,
                                                .k = a->d,
                                                .b_k = a->d,
                                                .out = f->scores,
                                                .ld = TT_GEMM_STRIDE});
    for (int64_t row = 0; row < rows; row++) {
        softmax_row(f, t + row, row, width);
    }
    tt_multiply_tiles(head->gemm, &(tt_tiles_t){.a = weights_of(f, rows, width),
                                                .b = f->values,
                                                .rows = rows,
                                                .columns = a->d,
                                                .k = width,
                                                .b_k = f->k_count,
                                                .add = true,
                                                .out = f->acc + t * a->d,
                                                .ld = a->d});
}

static void store_outputs(const forward_t *f)
{
    const tt_head_t *head = f->head;
    const tt_attention_t *a = head->a;
    for (int64_t t = 0; t < a->tq; t++) {
        float *acc = f->acc + t * a->d;
        const float sum = f->running[t].sum;
        head->ops->shrink(acc, sum == 0 ? 0 : 1 / sum, NULL, a->d);
        tt_head_store_row(head, &a->out, t, acc);
    }
}

void tt_attention_forward_head(const tt_head_t *head)
{
    const tt_attention_t *a = head->a;
    forward_t f;
    cut_scratch(&f, a, head->scratch);
    f.head = head;
    f.running = a->max_sum + head->bh * a->tq;
    memset(f.acc, 0, (size_t)(a->tq * a->d) * sizeof *f.acc);
    for (int64_t t = 0; t < a->tq; t++) {
        f.running[t] = (tt_max_sum_t){-INFINITY, 0};
    }
    for (f.k = 0; f.k < a->tk; f.k += TT_FORWARD_KEYS) {
        f.k_count = tt_min(TT_FORWARD_KEYS, a->tk - f.k);
        pack_keys(&f);
        for (int64_t t = 0; t < a->tq; t += head->gemm->rows) {
            attend_panel(&f, t, tt_min(head->gemm->rows, a->tq - t));
        }
    }
    store_outputs(&f);
}
