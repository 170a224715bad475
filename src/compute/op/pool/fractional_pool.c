/* fractional_max_pool2d, fractional_max_pool3d: windows at places that are computed, gathered.
 *
 *     x [N, C, L...] -> planes [P, L];  of each dimension where its windows are, [P, size, kernel]
 *     places [P, H', W', kh, kw] = rows · W + columns -> windows of planes -> their maxima [P, L']
 *
 * Source: op_fractional.h. */
#include <tutti/op_fractional.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    const char *name;
    int dims;
    int64_t planes, line[3], size[3], kernel[3]; /* of each dimension: of x, of y, of a window */
} pool_t;

typedef struct {
    tutti_tensor_t *x, *samples;
    const tutti_fractional_pool_options_t *options;
} call_t;

static tutti_status_t find_size(pool_t *p, const tutti_fractional_pool_options_t *o, int i)
{
    const bool has_ratio = o->size[i] == 0;
    if (o->kernel[i] < 1 || o->size[i] < 0 ||
        (has_ratio && !(o->ratio[i] > 0 && o->ratio[i] < 1))) {
        return TT_FAIL(
            TUTTI_ERR_ARG,
            "%s: kernel %lld must be at least 1, size %lld not negative, or the ratio %g "
            "in (0, 1)",
            p->name, (long long)o->kernel[i], (long long)o->size[i], o->ratio[i]);
    }
    p->kernel[i] = o->kernel[i];
    p->size[i] = has_ratio ? (int64_t)((double)p->line[i] * o->ratio[i]) : o->size[i];
    return p->size[i] >= 1 && p->size[i] + p->kernel[i] - 1 <= p->line[i]
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE, "%s: %lld windows of %lld do not fit into %lld elements",
                         p->name, (long long)p->size[i], (long long)p->kernel[i],
                         (long long)p->line[i]);
}

static tutti_status_t describe(pool_t *p, const tutti_tensor_t *x,
                               const tutti_fractional_pool_options_t *o)
{
    char text[160];
    const int rank = x->shape.rank;
    if ((rank != p->dims + 1 && rank != p->dims + 2) || o == NULL) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: want options, and x of %d or %d dimensions: %s",
                       p->name, p->dims + 1, p->dims + 2,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (!tutti_dtype_is_float(x->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: x must be of a floating dtype: %s", p->name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    p->planes = 1;
    for (int i = 0; i < rank - p->dims; i++) {
        p->planes *= x->shape.dims[i];
    }
    for (int i = 0; i < p->dims; i++) {
        p->line[i] = x->shape.dims[rank - p->dims + i];
        TT_TRY(find_size(p, o, i));
    }
    return TUTTI_OK;
}

static tutti_status_t check_samples(const pool_t *p, const tutti_tensor_t *samples)
{
    char text[160];
    TT_TRY(tt_tensor_status(samples));
    return tutti_dtype_is_float(samples->dtype) && samples->numel == p->planes * p->dims
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "%s: want %d floating samples for each of %lld planes: %s", p->name,
                         p->dims, (long long)p->planes,
                         tutti_tensor_describe(samples, text, sizeof text));
}

/* Where the windows of a dimension begin, [P, size]; samples [P, 1]. */
static tutti_tensor_t *find_begins(tutti_scope_t *s, const pool_t *p, int i,
                                   tutti_tensor_t *samples)
{
    const int64_t last = p->line[i] - p->kernel[i], count = p->size[i] - 1;
    tutti_tensor_t *end = tutti_full(s, TUTTI_I64, TUTTI_SHAPE(p->planes, 1), (double)last);
    if (count == 0) {
        return end;
    }
    const double step = (double)last / (double)count;
    tutti_tensor_t *number = tutti_arange(s, tutti_tensor_dtype(samples), 0, 1, count);
    tutti_tensor_t *at = tutti_mul_scalar(s, tutti_add(s, samples, number), step);
    tutti_tensor_t *from = tutti_mul_scalar(s, samples, step);
    at = tutti_sub(s, tutti_cast(s, at, TUTTI_I64), tutti_cast(s, from, TUTTI_I64));
    return tutti_cat(s, (tutti_tensor_t *[]){at, end}, 2, 1);
}

/* Places of a dimension, [P, 1, ..., size, ..., 1, ..., kernel, ..., 1]. */
static tutti_tensor_t *find_places(tutti_scope_t *s, const pool_t *p, int i,
                                   tutti_tensor_t *samples)
{
    tutti_shape_t shape = {.rank = 1 + 2 * p->dims, .dims = {p->planes, 1, 1, 1, 1, 1, 1}};
    tutti_tensor_t *begins = tutti_unsqueeze(s, find_begins(s, p, i, samples), -1);
    tutti_tensor_t *places = tutti_add(s, begins, tutti_arange(s, TUTTI_I64, 0, 1, p->kernel[i]));
    shape.dims[1 + i] = p->size[i];
    shape.dims[1 + p->dims + i] = p->kernel[i];
    return tutti_reshape(s, places, shape);
}

/* Places in a plane of all elements of all windows, [P, windows, elements]. */
static tutti_tensor_t *find_windows(tutti_scope_t *s, const pool_t *p, tutti_tensor_t *samples)
{
    const bool is_plane = p->dims == 2; /* whose samples are of the width first */
    int64_t windows = 1, elements = 1;
    tutti_tensor_t *all = NULL;
    samples = tutti_reshape(s, samples, TUTTI_SHAPE(p->planes, p->dims));
    for (int i = 0; i < p->dims; i++) {
        tutti_tensor_t *own = tutti_narrow(s, samples, 1, is_plane ? 1 - i : i, 1);
        tutti_tensor_t *places = find_places(s, p, i, own);
        all = all == NULL ? places
                          : tutti_add(s, tutti_mul_scalar(s, all, (double)p->line[i]), places);
        windows *= p->size[i];
        elements *= p->kernel[i];
    }
    return tutti_reshape(s, all, TUTTI_SHAPE(p->planes, windows, elements));
}

static tutti_tensor_t *pool(tutti_scope_t *s, const pool_t *p, tutti_tensor_t *x,
                            tutti_tensor_t *samples, tutti_tensor_t **indices)
{
    tutti_shape_t shape = x->shape;
    const int64_t length = p->line[0] * p->line[1] * (p->dims == 3 ? p->line[2] : 1);
    tutti_tensor_t *at, *places = find_windows(s, p, samples);
    for (int i = 0; i < p->dims; i++) {
        shape.dims[shape.rank - p->dims + i] = p->size[i];
    }
    if (tutti_tensor_status(places) < 0) {
        return *indices = places;
    }
    tutti_tensor_t *planes = tutti_reshape(s, x, TUTTI_SHAPE(p->planes, length));
    tutti_tensor_t *windows = tutti_gather_along(s, planes, 1, tutti_flatten(s, places, 1, 2));
    windows = tutti_reshape(s, windows, places->shape);
    tutti_tensor_t *y = tutti_max_along(s, windows, 2, false, &at);
    at = tutti_gather_along(s, places, 2, tutti_unsqueeze(s, at, -1));
    *indices = tutti_reshape(s, at, shape);
    return tutti_reshape(s, y, shape);
}

/* p: its name and its dimensions. */
static tutti_tensor_t *run(tutti_scope_t *s, pool_t p, const call_t *call, tutti_tensor_t **indices)
{
    tutti_tensor_t *samples = call->samples, *at = NULL;
    tutti_status_t status = tt_tensor_status(call->x);
    if (status >= 0) {
        status = describe(&p, call->x, call->options);
    }
    if (status >= 0 && samples != NULL) {
        status = check_samples(&p, samples);
    }
    if (status < 0) {
        at = tutti_scope_fail(s, status);
    } else {
        const tutti_dtype_t wide = call->x->dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32;
        samples = samples == NULL ? tutti_uniform(s, wide, TUTTI_SHAPE(p.planes, p.dims), 0, 1)
                                  : tutti_cast(s, samples, wide);
    }
    tutti_tensor_t *y = status < 0 ? at : pool(s, &p, call->x, samples, &at);
    if (indices != NULL) {
        *indices = at;
    }
    return y;
}

tutti_tensor_t *tutti_fractional_max_pool2d(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *samples,
                                            const tutti_fractional_pool_options_t *options,
                                            tutti_tensor_t **indices)
{
    return run(s, (pool_t){.name = "fractional_max_pool2d", .dims = 2},
               &(call_t){x, samples, options}, indices);
}

tutti_tensor_t *tutti_fractional_max_pool3d(tutti_scope_t *s, tutti_tensor_t *x,
                                            tutti_tensor_t *samples,
                                            const tutti_fractional_pool_options_t *options,
                                            tutti_tensor_t **indices)
{
    return run(s, (pool_t){.name = "fractional_max_pool3d", .dims = 3},
               &(call_t){x, samples, options}, indices);
}
