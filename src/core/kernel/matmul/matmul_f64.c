/* The f64 product: a row of C at a time, to which the rows of B are added one after the other.
 * Cost: 2·M·N·K operations at a few GFLOP/s. Source: textbook. */
#include "core/kernel/matmul/matmul_f64.h"

#include <math.h>

typedef struct {
    const tt_matmul_t *m;
    const double *b; /* [K,N], rows packed, of each batch that differs */
    int64_t ldb, b_batch_stride;
} job_t;

static double activate(double x, tt_epilogue_t epilogue)
{
    switch (epilogue) {
    case TT_EPILOGUE_GELU_ERF:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case TT_EPILOGUE_GELU_TANH:
        return 0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    default:
        return x;
    }
}

static void add_products(const job_t *job, int64_t batch, int64_t row, double *c)
{
    const tt_matmul_t *m = job->m;
    const int64_t step = m->a.transposed ? m->a.ld : 1;
    const double *a = (const double *)m->a.data + batch * m->a.batch_stride;
    a += m->a.transposed ? row : row * m->a.ld;
    const double *b = job->b + batch * job->b_batch_stride;
    for (int64_t k = 0; k < m->k; k++, a += step, b += job->ldb) {
        for (int64_t column = 0; column < m->n; column++) {
            c[column] += *a * b[column];
        }
    }
}

static void multiply_row(void *arg, size_t piece)
{
    const job_t *job = arg;
    const tt_matmul_t *m = job->m;
    const int64_t batch = (int64_t)piece / m->m, row = (int64_t)piece % m->m;
    const int64_t at = batch * m->c_batch_stride + row * m->c_ld;
    double *c = (double *)m->c + at, *pre = m->pre == NULL ? NULL : (double *)m->pre + at;
    for (int64_t column = 0; column < m->n && !m->accumulate; column++) {
        c[column] = 0;
    }
    add_products(job, batch, row, c);
    for (int64_t column = 0; column < m->n; column++) {
        c[column] += m->bias == NULL ? 0 : ((const double *)m->bias)[column];
        if (pre != NULL) {
            pre[column] = c[column];
        }
        c[column] = activate(c[column], m->epilogue);
    }
}

static void transpose(const tt_matmul_t *m, int64_t batch, double *to)
{
    const double *b = (const double *)m->b.data + batch * m->b.batch_stride;
    for (int64_t column = 0; column < m->n; column++) {
        for (int64_t k = 0; k < m->k; k++) {
            to[k * m->n + column] = b[column * m->b.ld + k];
        }
    }
}

tutti_status_t tt_matmul_f64(tt_pool_t *pool, const tt_matmul_t *m)
{
    job_t job = {.m = m, .b = m->b.data, .ldb = m->b.ld, .b_batch_stride = m->b.batch_stride};
    double *turned = NULL;
    if (m->b.transposed) {
        const int64_t matrices = m->b.batch_stride == 0 ? 1 : m->batch;
        turned = tt_pool_borrow(pool, (size_t)(matrices * m->k * m->n) * sizeof *turned);
        if (turned == NULL) {
            return TUTTI_ERR_NOMEM;
        }
        for (int64_t batch = 0; batch < matrices; batch++) {
            transpose(m, batch, turned + batch * m->k * m->n);
        }
        job.b = turned;
        job.ldb = m->n;
        job.b_batch_stride = matrices == 1 ? 0 : m->k * m->n;
    }
    tt_pool_run(pool, (size_t)(m->batch * m->m), multiply_row, &job);
    if (turned != NULL) {
        tt_pool_give_back(pool, turned);
    }
    return TUTTI_OK;
}
