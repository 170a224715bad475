/* What both directions of attention share: rows of a head as f32 or as panels are packed from,
 * numbers of the dropout, products in tiles. Source: attention.h.
 */
#include "core/kernel/attention/attention_ops.h"
#include "core/kernel/random/random.h"

/* The index of element (t, 0) of this batch and head. */
static int64_t row_at(const tt_head_t *head, const tt_heads_t *x, int64_t t)
{
    return head->b * x->stride_b + head->h * x->stride_h + t * x->stride_t;
}

static char *address(const tt_head_t *head, const tt_heads_t *x, int64_t index)
{
    return (char *)x->data + index * (int64_t)tutti_dtype_bytes(head->a->dtype);
}

const float *tt_head_row(const tt_head_t *head, const tt_heads_t *x, int64_t t, float *buffer)
{
    const void *row = address(head, x, row_at(head, x, t));
    if (head->a->dtype == TUTTI_F32) {
        return row;
    }
    head->to_f32(buffer, row, (size_t)head->a->d);
    return buffer;
}

const void *tt_rows_at(const tt_head_t *head, tt_rows_view_t x, int64_t row, int64_t at)
{
    const size_t bytes = head->is_short ? sizeof(uint16_t) : sizeof(float);
    return (const char *)x.data + (row * x.ld + at) * (int64_t)bytes;
}

tt_rows_view_t tt_head_rows(const tt_head_t *head, const tt_heads_t *x, int64_t t, int64_t count,
                            float *buffer)
{
    const tt_attention_t *a = head->a;
    if (head->is_short || a->dtype == TUTTI_F32) {
        return (tt_rows_view_t){address(head, x, row_at(head, x, t)), x->stride_t};
    }
    for (int64_t i = 0; i < count; i++) {
        head->to_f32(buffer + i * a->d, address(head, x, row_at(head, x, t + i)), (size_t)a->d);
    }
    return (tt_rows_view_t){buffer, a->d};
}

void tt_head_store_row(const tt_head_t *head, const tt_heads_t *x, int64_t t, const float *row)
{
    head->from_f32(address(head, x, row_at(head, x, t)), row, (size_t)head->a->d);
}

const float *tt_head_uniform(const tt_head_t *head, int64_t t, int64_t k, int64_t count,
                             float *buffer)
{
    const tt_attention_t *a = head->a;
    if (!(a->dropout > 0) || count <= 0) {
        return NULL;
    }
    const tt_random_t at = {a->rng, tt_dropout_index(a, head->bh, t, k)};
    tt_fill_uniform_now(NULL, at, TUTTI_F32, buffer, (size_t)count, 0, 1);
    return buffer;
}

void tt_multiply_tiles(const tt_gemm_ops_t *gemm, const tt_tiles_t *t)
{
    _Alignas(64) float tile[TT_GEMM_ROWS_MAX * TT_GEMM_COLUMNS_MAX];
    const int64_t steps = tt_gemm_steps(gemm, t->k), depth = tt_gemm_depth(gemm, t->b_k);
    for (int64_t column = 0; column < t->columns; column += gemm->columns) {
        const int64_t left = t->columns - column;
        gemm->multiply((int)t->rows, steps, t->a, t->transposed, t->b + column * depth, tile, NULL);
        gemm->finish(&(tt_gemm_finish_t){
            .rows = (int)t->rows,
            .columns = t->whole || left > gemm->columns ? gemm->columns : (int)left,
            .tile = tile,
            .add = t->add ? t->out + column : NULL,
            .add_ld = t->ld,
            .out = t->out + column,
            .ld = t->ld,
        });
    }
}
