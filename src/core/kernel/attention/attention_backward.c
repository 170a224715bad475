/* Attention backward for one batch and head, in blocks of 128 queries by 128 keys:
 *
 *     s  = q·k,   p = e^(scale·s - max) / sum   weights again, from what was saved
 *     dp = dout·v, ds = p (dp - delta) scale    delta = dout·out, per query
 *     dv += p^T·dout,  dk += ds^T·q             per block of keys, over the blocks of queries
 *     dq += ds·k                                over the blocks of keys
 *
 * Heads that share keys come one behind the other: each one's dk and dv are sums over its own
 * blocks, which are added up in the heads' order and rounded once. Sums run over blocks in order.
 * Under causal, blocks, columns and steps that hold exact zeros only are skipped. Cost: 10·Tq·Tk·D
 * operations (half of it under causal), scratch about Tq × D + 1400 × D + 37,000 floats, and 2 Tk ×
 * D where keys are shared. Source: attention.h.
 */
#include <string.h>

#include "core/kernel/attention/attention_ops.h"

typedef struct {
    const tt_head_t *head;
    float *keys, *values, *keys_rows;    /* packed: k^T, v^T, k */
    float *queries_rows, *douts_rows;    /* packed: q, dout */
    float *panel;                        /* of A */
    float *weights, *scores;             /* [queries, LD]: p, and dp, then ds */
    float *short_weights, *short_scores; /* the same as bf16, where panels are of that */
    float *wide_k, *wide_v, *wide_q, *wide_dout;
    float *uniform, *delta;
    float *dq, *dk, *dv;          /* [Tq,D], [keys,D], [keys,D] */
    float *shared_dk, *shared_dv; /* [Tk,D], of the heads so far; where keys are shared */
    tt_rows_view_t q, dout;
    int64_t k, k_count, t, t_count;
} backward_t;

static int64_t cut_scratch(backward_t *w, const tt_attention_t *a, float *at)
{
    const int64_t keys = tt_min(TT_BACKWARD_KEYS, tt_attention_padded(a->tk)),
                  d = tt_attention_padded(a->d);
    const int64_t queries = tt_min(TT_BACKWARD_QUERIES, tt_attention_padded(a->tq));
    const int64_t shared = tt_attention_group(a) > 1 ? tt_attention_padded(a->tk * a->d) : 0;
    const struct {
        float **to;
        int64_t count;
    } parts[] = {
        {&w->keys, keys * d},
        {&w->values, keys * d},
        {&w->keys_rows, keys * d},
        {&w->queries_rows, queries * d},
        {&w->douts_rows, queries * d},
        {&w->panel, TT_GEMM_A_PANEL},
        {&w->weights, queries * TT_BACKWARD_LD},
        {&w->scores, queries * TT_BACKWARD_LD},
        {&w->short_weights, queries * TT_BACKWARD_LD / 2},
        {&w->short_scores, queries * TT_BACKWARD_LD / 2},
        {&w->wide_k, keys * d},
        {&w->wide_v, keys * d},
        {&w->wide_q, queries * d},
        {&w->wide_dout, queries * d},
        {&w->uniform, keys},
        {&w->delta, tt_attention_padded(a->tq)},
        {&w->dq, tt_attention_padded(a->tq * a->d)},
        {&w->dk, keys * d},
        {&w->dv, keys * d},
        {&w->shared_dk, shared},
        {&w->shared_dv, shared},
    };
    int64_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].to = at == NULL ? NULL : at + total;
        total += parts[i].count;
    }
    return total;
}

int64_t tt_attention_backward_floats(const tt_attention_t *a)
{
    backward_t w;
    return cut_scratch(&w, a, NULL);
}

static void find_deltas(const backward_t *w)
{
    const tt_head_t *head = w->head;
    const tt_attention_t *a = head->a;
    for (int64_t t = 0; t < a->tq; t++) {
        const float *dout = tt_head_row(head, &a->dout, t, w->wide_q);
        const float *out = tt_head_row(head, &a->out, t, w->wide_dout);
        w->delta[t] = head->ops->dot(dout, out, a->d);
    }
}

static void pack_keys(const backward_t *w)
{
    const tt_head_t *head = w->head, keys = tt_keys_of(head);
    const int64_t d = head->a->d;
    const tt_rows_view_t k = tt_head_rows(&keys, &head->a->k, w->k, w->k_count, w->wide_k);
    const tt_rows_view_t v = tt_head_rows(&keys, &head->a->v, w->k, w->k_count, w->wide_v);
    head->gemm->pack_b(k.data, k.ld, true, d, w->k_count, w->keys);
    head->gemm->pack_b(k.data, k.ld, false, w->k_count, d, w->keys_rows);
    head->gemm->pack_b(v.data, v.ld, true, d, w->k_count, w->values);
}

static void pack_queries(backward_t *w)
{
    const tt_head_t *head = w->head;
    const int64_t d = head->a->d;
    w->q = tt_head_rows(head, &head->a->q, w->t, w->t_count, w->wide_q);
    w->dout = tt_head_rows(head, &head->a->dout, w->t, w->t_count, w->wide_dout);
    head->gemm->pack_b(w->q.data, w->q.ld, false, w->t_count, d, w->queries_rows);
    head->gemm->pack_b(w->dout.data, w->dout.ld, false, w->t_count, d, w->douts_rows);
}

/* A block of weights or scores for panels, whose rows are there. */
static tt_rows_view_t block_of(const backward_t *w, const float *block)
{
    const float *shorter = block == w->weights ? w->short_weights : w->short_scores;
    return (tt_rows_view_t){w->head->is_short ? shorter : block, TT_BACKWARD_LD};
}

static void shorten_row(const backward_t *w, int64_t row)
{
    const int64_t at = row * TT_BACKWARD_LD;
    const size_t count = (size_t)w->k_count;
    w->head->from_f32((uint16_t *)w->short_weights + at, w->weights + at, count);
    w->head->from_f32((uint16_t *)w->short_scores + at, w->scores + at, count);
}

/* Row `row` of the block: scores and dout·v become weights and gradients of scores. */
static void softmax_grad_row(const backward_t *w, int64_t row)
{
    const tt_head_t *head = w->head;
    const tt_attention_t *a = head->a;
    const int64_t t = w->t + row;
    const int64_t seen = a->causal ? t + 1 - w->k : w->k_count;
    const int64_t count = seen < 0 ? 0 : tt_min(seen, w->k_count);
    const tt_score_row_t r = {
        .row = w->weights + row * TT_BACKWARD_LD,
        .count = count,
        .width = w->k_count,
        .scale = (float)a->scale,
        .ignored = a->key_padding == NULL ? NULL : a->key_padding + head->b * a->tk + w->k,
        .uniform = tt_head_uniform(head, t, w->k, count, w->uniform),
        .dropout = a->dropout,
    };
    head->ops->softmax_grad_row(&r, w->scores + row * TT_BACKWARD_LD,
                                a->max_sum[head->bh * a->tq + t], w->delta[t]);
    if (head->is_short) {
        shorten_row(w, row);
    }
}

/* out[row.., :columns] = rows of x · packed b^T. */
static void multiply_rows(const backward_t *w, tt_rows_view_t x, int64_t row, int64_t rows,
                          const tt_tiles_t *like)
{
    const tt_head_t *head = w->head;
    head->gemm->pack_a(tt_rows_at(head, x, row, 0), x.ld, false, rows, like->k, w->panel);
    tt_tiles_t tiles = *like;
    tiles.a = w->panel;
    tiles.rows = rows;
    tiles.out += row * tiles.ld;
    tt_multiply_tiles(head->gemm, &tiles);
}

static void backward_panel(const backward_t *w, int64_t row, int64_t rows)
{
    const tt_attention_t *a = w->head->a;
    const int64_t last = w->t + row + rows;
    const int64_t width = a->causal ? tt_min(w->k_count, last - w->k) : w->k_count;
    if (width > 0) {
        tt_tiles_t tiles = {.b = w->keys,
                            .columns = width,
                            .whole = true,
                            .k = a->d,
                            .b_k = a->d,
                            .out = w->weights,
                            .ld = TT_BACKWARD_LD};
        multiply_rows(w, w->q, row, rows, &tiles);
        tiles.b = w->values;
        tiles.out = w->scores;
        multiply_rows(w, w->dout, row, rows, &tiles);
    }
    for (int64_t i = row; i < row + rows; i++) {
        softmax_grad_row(w, i);
    }
    if (width > 0) {
        const tt_tiles_t tiles = {.b = w->keys_rows,
                                  .columns = a->d,
                                  .k = width,
                                  .b_k = w->k_count,
                                  .add = true,
                                  .out = w->dq + w->t * a->d,
                                  .ld = a->d};
        multiply_rows(w, block_of(w, w->scores), row, rows, &tiles);
    }
}

/* out[keys, D] += x^T · packed rows, for x [queries, keys]. */
static void multiply_columns(const backward_t *w, tt_rows_view_t x, const float *packed, float *out)
{
    const tt_gemm_ops_t *gemm = w->head->gemm;
    const tt_attention_t *a = w->head->a;
    for (int64_t key = 0; key < w->k_count; key += gemm->rows) {
        const int64_t rows = tt_min(gemm->rows, w->k_count - key);
        const int64_t first = a->causal ? w->k + key - w->t : 0; /* query that sees a key */
        const int64_t unseen = first < 0 ? 0 : tt_min(first, w->t_count);
        const int64_t skipped = unseen / gemm->k_per_step, skip = skipped * gemm->k_per_step;
        gemm->pack_a(tt_rows_at(w->head, x, skip, key), x.ld, true, rows, w->t_count - skip,
                     w->panel);
        tt_multiply_tiles(
            gemm, &(tt_tiles_t){.a = w->panel,
                                .b = packed + skipped * gemm->floats_per_step * gemm->columns,
                                .rows = rows,
                                .columns = a->d,
                                .k = w->t_count - skip,
                                .b_k = w->t_count,
                                .transposed = true,
                                .add = true,
                                .out = out + key * a->d,
                                .ld = a->d});
    }
}

static void backward_block(backward_t *w)
{
    const int64_t panel = w->head->gemm->rows;
    pack_queries(w);
    for (int64_t row = 0; row < w->t_count; row += panel) {
        backward_panel(w, row, tt_min(panel, w->t_count - row));
    }
    multiply_columns(w, block_of(w, w->weights), w->douts_rows, w->dv);
    multiply_columns(w, block_of(w, w->scores), w->queries_rows, w->dk);
}

/* The block's rows of x, a gradient of this head, are added to those of the heads before it, in
 * `shared`. Gives what all have together so far. */
static const float *add_shared(const backward_t *w, const float *x, float *shared)
{
    const tt_head_t *head = w->head;
    const int64_t count = w->k_count * head->a->d, group = tt_attention_group(head->a);
    if (group == 1) {
        return x;
    }
    float *sum = shared + w->k * head->a->d;
    if (head->h % group == 0) {
        memcpy(sum, x, (size_t)count * sizeof *sum);
    } else {
        head->ops->shrink(sum, 1, x, count);
    }
    return sum;
}

static void store_keys(const backward_t *w, const tt_heads_t *to, const float *x, float *shared)
{
    const int64_t d = w->head->a->d, group = tt_attention_group(w->head->a);
    const tt_head_t keys = tt_keys_of(w->head);
    const float *rows = add_shared(w, x, shared);
    const bool is_last = w->head->h % group == group - 1;
    for (int64_t key = 0; is_last && key < w->k_count; key++) {
        tt_head_store_row(&keys, to, w->k + key, rows + key * d);
    }
}

static void backward_keys(backward_t *w)
{
    const tt_attention_t *a = w->head->a;
    memset(w->dk, 0, (size_t)(w->k_count * a->d) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(w->k_count * a->d) * sizeof *w->dv);
    pack_keys(w);
    for (w->t = 0; w->t < a->tq; w->t += TT_BACKWARD_QUERIES) {
        w->t_count = tt_min(TT_BACKWARD_QUERIES, a->tq - w->t);
        if (!a->causal || w->t + w->t_count > w->k) {
            backward_block(w);
        }
    }
    store_keys(w, &a->dk, w->dk, w->shared_dk);
    store_keys(w, &a->dv, w->dv, w->shared_dv);
}

void tt_attention_backward_head(const tt_head_t *head)
{
    const tt_attention_t *a = head->a;
    backward_t w;
    cut_scratch(&w, a, head->scratch);
    w.head = head;
    memset(w.dq, 0, (size_t)(a->tq * a->d) * sizeof *w.dq);
    find_deltas(&w);
    for (w.k = 0; w.k < a->tk; w.k += TT_BACKWARD_KEYS) {
        w.k_count = tt_min(TT_BACKWARD_KEYS, a->tk - w.k);
        backward_keys(&w);
    }
    for (int64_t t = 0; t < a->tq; t++) {
        tt_head_store_row(head, &a->dq, t, w.dq + t * a->d);
    }
}
