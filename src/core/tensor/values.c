/* Reading and writing elements, and tensors of given values. */
#include <tutti/tensor.h>

#include <math.h>
#include <string.h>

#include "core/kernel/half.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static double load(tutti_dtype_t dtype, const void *element)
{
    switch (dtype) {
    case TUTTI_F32:
        return *(const float *)element;
    case TUTTI_F64:
        return *(const double *)element;
    case TUTTI_BF16:
        return tt_bf16_to_f32(*(const uint16_t *)element);
    case TUTTI_F16:
        return tt_f16_to_f32(*(const uint16_t *)element);
    case TUTTI_I64:
        return (double)*(const int64_t *)element;
    case TUTTI_I32:
        return *(const int32_t *)element;
    case TUTTI_I8:
        return *(const int8_t *)element;
    case TUTTI_U8:
        return *(const uint8_t *)element;
    case TUTTI_BOOL:
        return *(const bool *)element;
    default:
        return NAN;
    }
}

double tutti_tensor_at(const tutti_tensor_t *x, int64_t index)
{
    if (tutti_tensor_data(x) == NULL || index < 0 || index >= x->numel) {
        return NAN;
    }
    int64_t position = 0;
    for (int i = x->shape.rank; i-- > 0; index /= x->shape.dims[i]) {
        position += index % x->shape.dims[i] * x->strides[i];
    }
    const char *base = tutti_tensor_data(x);
    return load(x->dtype, base + position * (int64_t)tutti_dtype_bytes(x->dtype));
}

double tutti_tensor_item(const tutti_tensor_t *x)
{
    return x->numel == 1 ? tutti_tensor_at(x, 0) : NAN;
}

tutti_status_t tt_tensor_convert(tt_exec_t *exec, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    TT_TRY(tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    tt_tensor_touch(to);
    return TUTTI_OK;
}

void tt_tensor_convert_now(tt_threads_t *threads, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    tt_map_now(threads, 1, TT_UNARY_COPY, (tt_map_params_t){0},
               (const tt_strided_t *[]){&out, &in});
    tt_tensor_touch(to);
}

tutti_status_t tutti_tensor_copy(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    TT_TRY(tt_tensor_check(to));
    TT_TRY(tt_tensor_check(from));
    if (!tutti_shape_equal(to->shape, from->shape)) {
        char a[192], b[192];
        return TT_FAIL(TUTTI_ERR_SHAPE, "copy: cannot copy %s into %s",
                       tutti_tensor_describe(from, a, sizeof a),
                       tutti_tensor_describe(to, b, sizeof b));
    }
    if (to->storage != from->storage) {
        return tt_tensor_convert(NULL, to, from);
    }
    tutti_tensor_t *apart; /* what is read may not be written meanwhile */
    TT_TRY(tt_tensor_new(NULL, from->dtype, from->shape, false, &apart));
    tutti_status_t status = tt_tensor_convert(NULL, apart, from);
    if (status >= 0) {
        status = tt_tensor_convert(NULL, to, apart);
    }
    tutti_tensor_release(apart);
    return status;
}

tutti_status_t tutti_tensor_fill(tutti_tensor_t *x, double value)
{
    TT_TRY(tt_tensor_check(x));
    const tt_strided_t out = tt_tensor_strided(x);
    TT_TRY(tt_fill(NULL, &out, value));
    tt_tensor_touch(x);
    return TUTTI_OK;
}

tutti_status_t tutti_tensor_copy_from(tutti_tensor_t *x, const void *data)
{
    TT_TRY(tt_tensor_check(x));
    tt_strided_t in = tt_tensor_strided(x);
    union {
        const void *borrowed;
        void *data;
    } source = {.borrowed = data}; /* a kernel's input is never written */
    in.data = source.data;
    tt_shape_strides(x->shape, in.strides);
    const tt_strided_t out = tt_tensor_strided(x);
    TT_TRY(tt_map_unary(NULL, TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    tt_tensor_touch(x);
    return TUTTI_OK;
}

static tutti_tensor_t *make(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, bool zeroed)
{
    tutti_tensor_t *x = NULL;
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = tt_tensor_new(s->ctx->device, dtype, shape, zeroed, &x);
    }
    return tt_scope_adopt(s, status, x);
}

tutti_tensor_t *tutti_empty(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return make(s, dtype, shape, false);
}

tutti_tensor_t *tutti_zeros(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return make(s, dtype, shape, true);
}

/* The tensor, or the scope's null tensor where writing it failed. */
static tutti_tensor_t *checked(tutti_scope_t *s, tutti_tensor_t *x, tutti_status_t status)
{
    return status < 0 ? tutti_scope_fail(s, status) : x;
}

tutti_tensor_t *tutti_full(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, double value)
{
    tutti_tensor_t *x = make(s, dtype, shape, false);
    return checked(s, x, tutti_tensor_fill(x, value));
}

tutti_tensor_t *tutti_ones(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return tutti_full(s, dtype, shape, 1.0);
}

tutti_tensor_t *tutti_from_data(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                const void *data)
{
    tutti_tensor_t *x = make(s, dtype, shape, false);
    return checked(s, x, tutti_tensor_copy_from(x, data));
}

tutti_tensor_t *tutti_arange(tutti_scope_t *s, tutti_dtype_t dtype, double start, double step,
                             int64_t n)
{
    tutti_tensor_t *x = make(s, dtype, TUTTI_SHAPE(n), false);
    for (int64_t i = 0; i < n && x->status >= 0; i++) {
        tt_strided_t element = tt_tensor_strided(x);
        element.data = (char *)element.data + i * (int64_t)tutti_dtype_bytes(dtype);
        element.rank = 0;
        const tutti_status_t status = tt_fill(NULL, &element, start + (double)i * step);
        if (status < 0) {
            return tutti_scope_fail(s, status);
        }
    }
    return x;
}
