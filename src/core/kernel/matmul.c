/* Matrix products: rows of C over the pool, each element a plain sum.
 * Source: textbook. */
#include "core/kernel/matmul.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/kernel/half.h"

static double load(const void *data, tutti_dtype_t dtype, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return ((const float *)data)[i];
    case TUTTI_F64:
        return ((const double *)data)[i];
    case TUTTI_BF16:
        return tt_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return tt_f16_to_f32(((const uint16_t *)data)[i]);
    }
}

static void store(void *data, tutti_dtype_t dtype, int64_t i, double value)
{
    switch (dtype) {
    case TUTTI_F32:
        ((float *)data)[i] = (float)value;
        return;
    case TUTTI_F64:
        ((double *)data)[i] = value;
        return;
    case TUTTI_BF16:
        ((uint16_t *)data)[i] = tt_bf16_from_f32((float)value);
        return;
    default:
        ((uint16_t *)data)[i] = tt_f16_from_f32((float)value);
        return;
    }
}

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

static double dot(const tt_matmul_t *m, int64_t batch, int64_t row, int64_t column)
{
    const int64_t lda = m->a.ld ? m->a.ld : (m->a.transposed ? m->m : m->k);
    const int64_t ldb = m->b.ld ? m->b.ld : (m->b.transposed ? m->k : m->n);
    const int64_t a = batch * m->a.batch_stride, b = batch * m->b.batch_stride;
    double sum = 0;
    for (int64_t k = 0; k < m->k; k++) {
        sum +=
            load(m->a.data, m->dtype, a + (m->a.transposed ? k * lda + row : row * lda + k)) *
            load(m->b.data, m->dtype, b + (m->b.transposed ? column * ldb + k : k * ldb + column));
    }
    return sum;
}

static void multiply_row(void *arg, size_t piece)
{
    const tt_matmul_t *m = arg;
    const int64_t batch = (int64_t)piece / m->m, row = (int64_t)piece % m->m;
    const int64_t c = batch * m->c_batch_stride + row * (m->c_ld ? m->c_ld : m->n);
    for (int64_t column = 0; column < m->n; column++) {
        double sum = dot(m, batch, row, column);
        sum += m->accumulate ? load(m->c, m->out_dtype, c + column) : 0;
        sum += m->bias ? load(m->bias, m->bias_dtype, column) : 0;
        if (m->pre) {
            store(m->pre, m->out_dtype, c + column, sum);
        }
        store(m->c, m->out_dtype, c + column, activate(sum, m->epilogue));
    }
}

tutti_status_t tt_matmul(tt_pool_t *pool, const tt_matmul_t *m)
{
    if (!tutti_dtype_is_float(m->dtype) ||
        (m->out_dtype != m->dtype && m->out_dtype != TUTTI_F32)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "matmul cannot multiply %s into %s",
                       tutti_dtype_name(m->dtype), tutti_dtype_name(m->out_dtype));
    }
    tt_pool_run(pool, (size_t)(m->batch * m->m), multiply_row, (void *)(uintptr_t)m);
    return TUTTI_OK;
}
