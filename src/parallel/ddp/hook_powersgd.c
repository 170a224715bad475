/* powersgd: matrices of gradients travel as products of two thin ones.
 *
 *     start    M = gradient + what was lost last time       [n, m]
 *              P = M Q                                      [n, r], summed over the ranks
 *     finish   P = its orthonormal basis
 *              Q = Mᵀ P                                     [m, r], averaged over the ranks
 *              gradient = P Qᵀ;  what is lost: M - P Qᵀ
 *
 * What is no matrix, or would not get smaller, travels whole beside P. r (n + m) numbers travel
 * instead of n m. Until start_step everything does.
 *
 * Source: Vogels et al., "PowerSGD", NeurIPS 2019; torch's powerSGD_hook.
 */
#include <tutti/ddp.h>

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/base/rng.h"
#include "core/kernel/elementwise/combine.h"
#include "core/kernel/matmul/matmul.h"

typedef struct {
    tutti_powersgd_options_t options;
} powersgd_t;

/* A gradient that is compressed: [n, m] at `at` in the bucket. Without r it travels whole. */
typedef struct {
    float *grad;
    int64_t count, n, m;
    int64_t p_at, q_at; /* in the tensors that travel */
    float *lost;        /* [n, m] or NULL */
} piece_t;

/* What is kept of a bucket. */
typedef struct {
    piece_t *pieces;
    int count;
    tutti_tensor_t *first;  /* whole gradients, then P of each matrix */
    tutti_tensor_t *second; /* Q of each matrix; NULL: there is none */
    bool has_q;
    bool is_under_way; /* compressed in this step */
} kept_t;

static tutti_status_t init(void *state, const void *options, tutti_group_t *group)
{
    (void)group;
    powersgd_t *sgd = state;
    if (options != NULL) {
        sgd->options = *(const tutti_powersgd_options_t *)options;
    }
    tutti_powersgd_options_t *o = &sgd->options;
    o->rank = o->rank == 0 ? 1 : o->rank;
    o->start_step = o->start_step == 0 ? 1000 : o->start_step;
    o->min_compression = tt_or_default(o->min_compression, 2);
    if (o->rank < 1 || o->rank > 64) {
        return TT_FAIL(TUTTI_ERR_ARG, "powersgd: rank %d; want 1 to 64", o->rank);
    }
    if (o->start_step < 2) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "powersgd: start_step %lld; want 2 at least, as buckets are rebuilt "
                       "before the second step",
                       (long long)o->start_step);
    }
    if (!(o->min_compression >= 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "powersgd: min_compression %g; want 1 at least",
                       o->min_compression);
    }
    return TUTTI_OK;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void drop(void *state, void *data)
{
    (void)state;
    kept_t *kept = data;
    for (int i = 0; kept->pieces != NULL && i < kept->count; i++) {
        tt_free(kept->pieces[i].lost);
    }
    tt_free(kept->pieces);
    tutti_tensor_release(kept->first);
    tutti_tensor_release(kept->second);
    tt_free(kept);
}

static bool gets_smaller(const tutti_powersgd_options_t *o, int64_t n, int64_t m)
{
    return (double)(n + m) * o->rank * o->min_compression < (double)n * (double)m;
}

/* Rows are the first dimension, columns all others, as torch does. */
static piece_t piece_of(const tutti_powersgd_options_t *o, const tutti_tensor_t *x)
{
    piece_t piece = {.grad = tutti_tensor_data(x), .count = tutti_tensor_numel(x)};
    const int64_t n = tutti_tensor_rank(x) > 1 ? tutti_tensor_dim(x, 0) : 0;
    if (n > 0 && gets_smaller(o, n, piece.count / n)) {
        piece.n = n;
        piece.m = piece.count / n;
    }
    return piece;
}

static tutti_status_t lay_out(const powersgd_t *sgd, const tutti_bucket_t *bucket, kept_t *kept)
{
    const tutti_powersgd_options_t *o = &sgd->options;
    int64_t first = 0, second = 0;
    for (int i = 0; i < kept->count; i++) {
        piece_t *piece = &kept->pieces[i];
        *piece = piece_of(o, bucket->gradients[i]);
        piece->p_at = first;
        piece->q_at = second;
        first += piece->n > 0 ? piece->n * o->rank : piece->count;
        second += piece->m * o->rank;
        if (piece->n > 0 && !o->no_error_feedback) {
            piece->lost = tt_alloc_array((size_t)piece->count, sizeof(float), "powersgd");
            TT_TRY_ALLOC(piece->lost);
        }
    }
    TT_TRY(tutti_group_tensor(bucket->group, TUTTI_F32, TUTTI_SHAPE(first), &kept->first));
    return second == 0
               ? TUTTI_OK
               : tutti_group_tensor(bucket->group, TUTTI_F32, TUTTI_SHAPE(second), &kept->second);
}

static tutti_status_t keep(const powersgd_t *sgd, const tutti_bucket_t *bucket, kept_t **out)
{
    kept_t *kept = tt_alloc(sizeof *kept, "powersgd");
    TT_TRY_ALLOC(kept);
    *bucket->data = *out = kept; /* from now on drop() sees to it */
    kept->pieces =
        tt_alloc_array((size_t)bucket->parameter_count, sizeof *kept->pieces, "powersgd");
    TT_TRY_ALLOC(kept->pieces);
    kept->count = bucket->parameter_count;
    return lay_out(sgd, bucket, kept);
}

/* ---- thin matrices --------------------------------------------------------------------------- */

/* The r columns of x [n, r] become an orthonormal basis of what they span (Gram-Schmidt). */
static void orthonormalise(float *x, int64_t n, int r, double epsilon)
{
    for (int k = 0; k < r; k++) {
        for (int j = 0; j < k; j++) {
            double dot = 0;
            for (int64_t i = 0; i < n; i++) {
                dot += (double)x[i * r + j] * x[i * r + k];
            }
            for (int64_t i = 0; i < n; i++) {
                x[i * r + k] -= (float)dot * x[i * r + j];
            }
        }
        double norm = 0;
        for (int64_t i = 0; i < n; i++) {
            norm += (double)x[i * r + k] * x[i * r + k];
        }
        norm = sqrt(norm) + epsilon;
        const float scale = norm > 0 ? (float)(1 / norm) : 0;
        for (int64_t i = 0; i < n; i++) {
            x[i * r + k] *= scale;
        }
    }
}

/* Alike on every rank. */
static void fill_randomly(float *q, const piece_t *piece, int r, const tutti_bucket_t *bucket,
                          int index, uint64_t seed)
{
    const tt_rng_t rng = tt_rng_stream(seed, (uint64_t)bucket->step, (uint64_t)bucket->index,
                                       (uint64_t)index, UINT64_C(0x9d5c));
    for (int64_t i = 0; i < piece->m * r; i++) {
        q[i] = tt_rng_normal(rng, (uint64_t)i);
    }
}

static tutti_status_t multiply(int64_t m, int64_t n, int64_t k, tt_matmul_in_t a, tt_matmul_in_t b,
                               float *c)
{
    return tt_matmul(NULL, &(tt_matmul_t){.batch = 1,
                                          .m = m,
                                          .n = n,
                                          .k = k,
                                          .dtype = TUTTI_F32,
                                          .out_dtype = TUTTI_F32,
                                          .a = a,
                                          .b = b,
                                          .c = c});
}

/* ---- a step ---------------------------------------------------------------------------------- */

static tutti_status_t compress(const powersgd_t *sgd, const tutti_bucket_t *bucket, kept_t *kept)
{
    const tutti_powersgd_options_t *o = &sgd->options;
    float *first = tutti_tensor_data(kept->first);
    for (int i = 0; i < kept->count; i++) {
        piece_t *piece = &kept->pieces[i];
        if (piece->n == 0) {
            memcpy(first + piece->p_at, piece->grad, (size_t)piece->count * sizeof(float));
            continue;
        }
        float *q = (float *)tutti_tensor_data(kept->second) + piece->q_at;
        if (piece->lost != NULL) {
            tt_combine_kernels()->combine[TUTTI_F32][TUTTI_SUM](piece->grad, piece->grad,
                                                                piece->lost, (size_t)piece->count);
        }
        if (!kept->has_q || o->no_warm_start) {
            fill_randomly(q, piece, o->rank, bucket, i, o->seed);
        }
        orthonormalise(q, piece->m, o->rank, o->epsilon);
        TT_TRY(multiply(piece->n, o->rank, piece->m, (tt_matmul_in_t){.data = piece->grad},
                        (tt_matmul_in_t){.data = q}, first + piece->p_at));
    }
    kept->has_q = true;
    return TUTTI_OK;
}

static tutti_status_t start(void *state, tutti_bucket_t *bucket, tutti_work_t **work)
{
    const powersgd_t *sgd = state;
    kept_t *kept = *bucket->data;
    if (kept != NULL) {
        kept->is_under_way = false;
    }
    if (bucket->step < sgd->options.start_step || tutti_tensor_dtype(bucket->grad) != TUTTI_F32) {
        return tutti_all_reduce(bucket->group, bucket->grad, TUTTI_SUM, work);
    }
    if (kept == NULL) {
        TT_TRY(keep(sgd, bucket, &kept));
    }
    /* so that the average over ranks is that over shards */
    const float factor = (float)tutti_group_size(bucket->group) / (float)bucket->shards;
    float *grad = tutti_tensor_data(bucket->grad);
    tt_combine_kernels()->scale_f32(grad, grad, factor, (size_t)tutti_tensor_numel(bucket->grad));
    bucket->divisor = 1;
    kept->is_under_way = true;
    TT_TRY(compress(sgd, bucket, kept));
    return tutti_all_reduce(bucket->group, kept->first, TUTTI_AVG, work);
}

/* Q = Mᵀ P of all matrices, averaged over the ranks. */
static tutti_status_t share_second(const powersgd_t *sgd, const tutti_bucket_t *bucket,
                                   kept_t *kept)
{
    const tutti_powersgd_options_t *o = &sgd->options;
    float *first = tutti_tensor_data(kept->first), *second = tutti_tensor_data(kept->second);
    for (int i = 0; i < kept->count; i++) {
        const piece_t *piece = &kept->pieces[i];
        if (piece->n > 0) {
            float *p = first + piece->p_at;
            orthonormalise(p, piece->n, o->rank, o->epsilon);
            TT_TRY(multiply(piece->m, o->rank, piece->n,
                            (tt_matmul_in_t){.data = piece->grad, .transposed = true},
                            (tt_matmul_in_t){.data = p}, second + piece->q_at));
        }
    }
    return tutti_all_reduce(bucket->group, kept->second, TUTTI_AVG, NULL);
}

static tutti_status_t decompress(const powersgd_t *sgd, const kept_t *kept)
{
    const int r = sgd->options.rank;
    const float *first = tutti_tensor_data(kept->first);
    for (int i = 0; i < kept->count; i++) {
        const piece_t *piece = &kept->pieces[i];
        const size_t bytes = (size_t)piece->count * sizeof(float);
        if (piece->n == 0) {
            memcpy(piece->grad, first + piece->p_at, bytes);
            continue;
        }
        const float *q = (const float *)tutti_tensor_data(kept->second) + piece->q_at;
        if (piece->lost != NULL) {
            memcpy(piece->lost, piece->grad, bytes);
        }
        TT_TRY(multiply(piece->n, piece->m, r, (tt_matmul_in_t){.data = first + piece->p_at},
                        (tt_matmul_in_t){.data = q, .transposed = true}, piece->grad));
        for (int64_t k = 0; piece->lost != NULL && k < piece->count; k++) {
            piece->lost[k] -= piece->grad[k];
        }
    }
    return TUTTI_OK;
}

static tutti_status_t finish(void *state, tutti_bucket_t *bucket)
{
    const powersgd_t *sgd = state;
    kept_t *kept = *bucket->data;
    if (kept == NULL || !kept->is_under_way) {
        return TUTTI_OK;
    }
    if (kept->second != NULL) {
        TT_TRY(share_second(sgd, bucket, kept));
    }
    return decompress(sgd, kept);
}

const tutti_ddp_hook_ops_t tutti_powersgd_hook = {
    .name = "powersgd",
    .about = "matrices travel as products of two thin ones",
    .state_bytes = sizeof(powersgd_t),
    .init = init,
    .start = start,
    .finish = finish,
    .drop = drop,
};
