/* The parts of attention: rows of scores (compiled once per variant, attention_simd.c), tiles of
 * products, and the two directions for one pair of batch and head. */
#ifndef TT_ATTENTION_OPS_H
#define TT_ATTENTION_OPS_H

#include <stdint.h>

#include "core/base/integers.h"
#include "core/kernel/attention/attention.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/matmul/gemm.h"
#include "core/kernel/kernels.h"

enum {
    TT_FORWARD_KEYS = 512,                  /* of a block; they set the bits */
    TT_BACKWARD_KEYS = 128,                 /* the same, backward */
    TT_BACKWARD_QUERIES = 128,              /* the same */
    TT_BACKWARD_LD = TT_BACKWARD_KEYS + 16, /* between rows of a block of scores */
    TT_HEAD_MAX = TT_GEMM_DEPTH,            /* of D */
};

/* Floats of a row in scratch. */
static inline int64_t tt_attention_padded(int64_t count)
{
    return tt_pieces_of(count, 32) * 32;
}

/* The number of the weight of query t and key k in its stream. */
static inline uint64_t tt_dropout_index(const tt_attention_t *a, int64_t bh, int64_t t, int64_t k)
{
    if (a->all_heads > 0) {
        bh = bh / a->heads * a->all_heads + a->first_head + bh % a->heads;
    }
    return (uint64_t)((bh * a->tq + t) * a->tk + k);
}

/* A row of scores: `count` keys are seen, the row is `width` long and stands on 16 more floats. */
typedef struct {
    float *row;
    int64_t count, width;
    float scale;
    const uint8_t *ignored; /* [count] or NULL */
    const float *uniform;   /* [count] or NULL: weights with a number below `dropout` are dropped */
    float dropout;
} tt_score_row_t;

struct tt_attention_ops {
    /* Scores to e^(scale·s - max), for the new running maximum; gives the factor by which all
     * before must shrink. The sum is of the weights before dropout. */
    float (*softmax_row)(const tt_score_row_t *r, tt_max_sum_t *running);
    /* Scores to dropped weights p, and dp, the row of dout·v, to the scores' gradient:
     * p = e^(scale·s - max) / sum, ds = p (kept·dp - delta) scale. */
    void (*softmax_grad_row)(const tt_score_row_t *r, float *dp, tt_max_sum_t of, float delta);
    float (*dot)(const float *x, const float *y, int64_t count);
    /* acc = acc · factor + add, or without add. */
    void (*shrink)(float *acc, float factor, const float *add, int64_t count);
};

/* Rows of one batch and head in the elements that panels are packed from, `ld` of them apart. */
typedef struct {
    const void *data;
    int64_t ld;
} tt_rows_view_t;

typedef struct {
    const tt_attention_t *a;
    const tt_gemm_ops_t *gemm; /* for bf16 that of bf16, where the CPU multiplies it */
    const tt_attention_ops_t *ops;
    bool is_short;                    /* panels are packed from bf16, not f32 */
    tt_convert_fn_t to_f32, from_f32; /* of the tensors' dtype, which is_short has panels in */
    int64_t bh, b, h;                 /* of queries */
    float *scratch;                   /* tt_attention_forward_floats or …_backward_floats */
} tt_head_t;

int64_t tt_attention_forward_floats(const tt_attention_t *a);
int64_t tt_attention_backward_floats(const tt_attention_t *a);
void tt_attention_forward_head(const tt_head_t *head);

/* Of the heads that share keys and values one after the other, with one scratch: the last one
 * writes their gradients. */
void tt_attention_backward_head(const tt_head_t *head);

/* The same in f64, plainly; backward, the first of the heads that share keys clears their
 * gradients, and all add to them. */
void tt_attention_forward_f64(const tt_attention_t *a, int64_t bh);
void tt_attention_backward_f64(const tt_attention_t *a, int64_t bh);

static inline int64_t tt_attention_group(const tt_attention_t *a)
{
    return a->group > 0 ? a->group : 1;
}

/* The head with the keys and values of this one, for rows of them. */
static inline tt_head_t tt_keys_of(const tt_head_t *head)
{
    tt_head_t keys = *head;
    keys.h = head->h / tt_attention_group(head->a);
    return keys;
}

/* count rows from t on, for panels: in place, or converted to f32 into buffer. */
tt_rows_view_t tt_head_rows(const tt_head_t *head, const tt_heads_t *x, int64_t t, int64_t count,
                            float *buffer);

/* Where row `row`, element `at` of such rows lies. */
const void *tt_rows_at(const tt_head_t *head, tt_rows_view_t x, int64_t row, int64_t at);

/* Row t as f32: in place, or converted into buffer. */
const float *tt_head_row(const tt_head_t *head, const tt_heads_t *x, int64_t t, float *buffer);
void tt_head_store_row(const tt_head_t *head, const tt_heads_t *x, int64_t t, const float *row);

/* Numbers of the dropout for keys from k on of query t, or NULL without dropout. */
const float *tt_head_uniform(const tt_head_t *head, int64_t t, int64_t k, int64_t count,
                             float *buffer);

/* out[rows, columns] (+)= panel of A · packed B, over the first k of the b_k elements that B's
 * panels were packed from. */
typedef struct {
    const float *a, *b;
    int64_t rows, columns, k, b_k;
    bool transposed, add;
    bool whole; /* out has room for whole tiles */
    float *out;
    int64_t ld;
} tt_tiles_t;

void tt_multiply_tiles(const tt_gemm_ops_t *gemm, const tt_tiles_t *t);

#endif
