/* What op_strange_test.c draws: numbers, shapes, tensors, mostly small and sometimes absurd. */
#ifndef TT_OP_STRANGE_DRAW_H
#define TT_OP_STRANGE_DRAW_H

#include <math.h>
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/op_shape.h>

#include "core/base/rng.h"
#include "core/tensor/device_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tt_rng_t rng;
    uint64_t drawn;
} draw_t;

static int64_t below(draw_t *d, int64_t bound)
{
    return (int64_t)tt_rng_below(d->rng, d->drawn++, (uint64_t)bound);
}

static bool one_in(draw_t *d, int64_t n)
{
    return below(d, n) == 0;
}

#define PICK(d, ...)                                                                               \
    (((const int64_t[]){                                                                           \
        __VA_ARGS__})[below(d, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))])

static int any_dim(draw_t *d)
{
    return (int)PICK(d, -1, -1, 0, 0, 1, 1, 2, 3, -2, -3, 7, 8, -8, -9, 9, INT32_MAX, INT32_MIN);
}

static int64_t any_index(draw_t *d)
{
    return PICK(d, 0, 0, 1, 1, 2, 3, 4, 17, -1, -2, -18, INT32_MAX, INT64_MAX, INT64_MIN,
                INT64_MAX - 1);
}

static double any_number(draw_t *d)
{
    const double numbers[] = {0, 1, -1, 0.5, 2, 3, -0.5, NAN, INFINITY, -INFINITY, 1e300, 1e-300};
    return numbers[below(d, (int64_t)(sizeof numbers / sizeof numbers[0]))];
}

static tutti_dtype_t any_dtype(draw_t *d)
{
    return one_in(d, 2) ? TUTTI_F32 : (tutti_dtype_t)below(d, TUTTI_DTYPE_COUNT);
}

/* Mostly small. With a zero among the sizes, others may be such that products overflow. */
static tutti_shape_t any_shape(draw_t *d)
{
    tutti_shape_t shape = {.rank = (int)PICK(d, 0, 1, 1, 2, 2, 2, 3, 3, 4, 8)};
    const bool is_empty = shape.rank > 0 && one_in(d, 4);
    for (int i = 0; i < shape.rank; i++) {
        shape.dims[i] = shape.rank == 8 ? PICK(d, 0, 1, 2) : PICK(d, 1, 1, 2, 2, 3, 3, 4, 17);
    }
    if (is_empty) {
        shape.dims[below(d, shape.rank)] = one_in(d, 4) ? INT64_C(1) << (47 + below(d, 16)) : 2;
        shape.dims[below(d, shape.rank)] = 0;
    }
    return shape;
}

static tutti_dims_t any_dims(draw_t *d)
{
    tutti_dims_t dims = {.count = (int)PICK(d, 0, 1, 1, 1, 2, 2, 3, 8, 9, -1, INT32_MAX)};
    for (int i = 0; i < TUTTI_RANK_MAX; i++) {
        dims.dims[i] = any_dim(d);
    }
    return dims;
}

/* Values of a sort; whole ones for indices and targets. */
static void fill(draw_t *d, tutti_tensor_t *x)
{
    const bool is_strange = one_in(d, 8);
    const int64_t count = tutti_tensor_numel(x);
    double *values = calloc((size_t)count + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        values[i] = is_strange ? any_number(d) : (double)PICK(d, 0, 1, 2, 3, -1);
    }
    tutti_tensor_t *wide = tutti_from_data(d->s, TUTTI_F64, tutti_tensor_shape(x), values);
    free(values);
    if (tutti_tensor_status(wide) >= 0) {
        (void)tutti_tensor_copy(x, tutti_cast(d->s, wide, tutti_tensor_dtype(x)));
    }
}

static tutti_tensor_t *make(draw_t *d, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x = tutti_empty(d->s, dtype, shape);
    if (tutti_tensor_status(x) < 0) {
        return x;
    }
    fill(d, x);
    if (tutti_dtype_is_float(dtype) && !one_in(d, 4)) {
        (void)tutti_tensor_set_requires_grad(x, true);
    }
    if (shape.rank >= 2 && one_in(d, 4)) {
        x = tutti_transpose(d->s, x, 0, -1);
    }
    if (shape.rank >= 1 && one_in(d, 6)) {
        x = tutti_slice(d->s, x, -1, (tutti_range_t){below(d, 2), 100, 1 + below(d, 2)});
    }
    return x;
}

static tutti_tensor_t *any_tensor(draw_t *d)
{
    return make(d, any_dtype(d), any_shape(d));
}

/* A tensor that often goes with x. */
static tutti_tensor_t *beside(draw_t *d, tutti_tensor_t *x)
{
    tutti_shape_t shape = tutti_tensor_shape(x);
    if (one_in(d, 8)) {
        return any_tensor(d);
    }
    if (shape.rank > 0 && one_in(d, 3)) {
        shape.dims[below(d, shape.rank)] = 1;
    }
    if (shape.rank > 0 && one_in(d, 3)) {
        shape.dims[0] = shape.dims[shape.rank - 1];
        shape.rank = 1;
    }
    return make(d, one_in(d, 4) ? any_dtype(d) : tutti_tensor_dtype(x), shape);
}

static tutti_tensor_t *indices(draw_t *d, tutti_tensor_t *x, bool drops_last)
{
    tutti_shape_t shape = tutti_tensor_shape(x);
    shape.rank -= drops_last && shape.rank > 0;
    return make(d, one_in(d, 6) ? any_dtype(d) : TUTTI_I64, one_in(d, 6) ? any_shape(d) : shape);
}

#endif
