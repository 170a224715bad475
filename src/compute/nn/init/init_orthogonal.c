/* Orthonormal vectors: normal numbers, then Gram and Schmidt's process, each vector twice, which is
 * as good as Householder's for vectors that are far from dependent. In f64, sums in four lanes, on
 * one thread. The vectors are x's rows if they are the fewer, else its columns. */
#include <tutti/nn.h>

#include <math.h>

#include "compute/nn/init/initializers.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/tensor/tensor_impl.h"

enum { PASSES = 2 };

/* `count` vectors of `length`, one after the other. */
typedef struct {
    double *data;
    int64_t count, length;
    int64_t columns; /* of x */
    bool are_rows;
} vectors_t;

static double dot(const double *a, const double *b, int64_t n)
{
    double sums[4] = {0};
    for (int64_t i = 0; i < n; i++) {
        sums[i % 4] += a[i] * b[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void take_away(double *a, const double *b, int64_t n)
{
    const double share = dot(a, b, n);
    for (int64_t i = 0; i < n; i++) {
        a[i] -= share * b[i];
    }
}

static void orthonormalize(const vectors_t *v)
{
    for (int64_t i = 0; i < v->count; i++) {
        double *own = v->data + i * v->length;
        for (int pass = 0; pass < PASSES; pass++) {
            for (int64_t k = 0; k < i; k++) {
                take_away(own, v->data + k * v->length, v->length);
            }
        }
        const double length = sqrt(dot(own, own, v->length));
        for (int64_t k = 0; k < v->length; k++) {
            own[k] /= length;
        }
    }
}

/* Where element i of x, row-major, is among the vectors. */
static double *place_of(const vectors_t *v, int64_t i)
{
    const int64_t row = i / v->columns, column = i % v->columns;
    return v->data + (v->are_rows ? row * v->length + column : column * v->length + row);
}

static tutti_status_t make(tutti_context_t *ctx, tutti_tensor_t *values,
                           const tt_initializer_t *init)
{
    const int64_t rows = values->shape.dims[0], columns = values->numel / rows;
    const bool are_rows = rows < columns;
    const vectors_t v = {
        .data = tt_alloc_array((size_t)values->numel, sizeof(double), "orthogonal vectors"),
        .count = are_rows ? rows : columns,
        .length = are_rows ? columns : rows,
        .columns = columns,
        .are_rows = are_rows};
    TT_TRY_ALLOC(v.data);
    float *data = tutti_tensor_data(values);
    const tutti_status_t status = tt_init_fill(ctx, values, init);
    for (int64_t i = 0; i < values->numel; i++) {
        *place_of(&v, i) = (double)data[i];
    }
    orthonormalize(&v);
    const double gain = init->numbers[3];
    for (int64_t i = 0; i < values->numel; i++) {
        data[i] = (float)(gain * *place_of(&v, i));
    }
    tt_free(v.data);
    return status;
}

static tutti_status_t make_orthogonal(tutti_context_t *ctx, tutti_tensor_t *x,
                                      const tt_initializer_t *init)
{
    tutti_tensor_t *values;
    TT_TRY(tt_init_borrow(x, &values));
    const tutti_status_t status = make(ctx, values, init);
    if (status < 0) {
        tutti_tensor_release(values);
        return status;
    }
    return tt_init_give_back(x, values);
}

tutti_status_t tutti_init_orthogonal(tutti_context_t *ctx, tutti_tensor_t *x, double gain)
{
    TT_TRY(tt_init_check(x, "init_orthogonal", 2));
    if (x->numel == 0) {
        return TUTTI_OK;
    }
    tt_initializer_t init = tt_init_filler(ctx, (tutti_init_t){TUTTI_INIT_NORMAL, 0, 1});
    init.run = make_orthogonal;
    init.numbers[3] = tt_or_default(gain, 1);
    return tt_init_run(ctx, x, init);
}
