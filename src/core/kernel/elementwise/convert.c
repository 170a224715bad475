/* Conversions by class: f32 through the variant's table, f64 and i64 by plain loops (they serve
 * gradient checks and indices, not the hot path), and moving elements over strides by their size.
 */
#include "core/kernel/elementwise/convert.h"

#include <string.h>

#include "core/base/fail.h"
#include "core/kernel/half.h"
#include "core/kernel/kernels.h"
#include "core/kernel/elementwise/saturate.h"

#define TT_CONVERT(DTYPE, suffix, type, number, from_float, from_double)                           \
    static void f64_from_##suffix(void *out, const void *in, size_t n)                             \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const type v = ((const type *)in)[i];                                                  \
            ((double *)out)[i] = (double)(number);                                                 \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void f64_to_##suffix(void *out, const void *in, size_t n)                               \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const double d = ((const double *)in)[i];                                              \
            ((type *)out)[i] = (type)(from_double);                                                \
        }                                                                                          \
    }
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT

static void i64_from_i64(void *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof(int64_t));
}

static void i64_from_i32(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((int64_t *)out)[i] = ((const int32_t *)in)[i];
    }
}

static void i64_to_i32(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((int32_t *)out)[i] = (int32_t)((const int64_t *)in)[i];
    }
}

static void i64_from_i8(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((int64_t *)out)[i] = ((const int8_t *)in)[i];
    }
}

static void i64_from_u8(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((int64_t *)out)[i] = ((const uint8_t *)in)[i];
    }
}

static void i64_to_byte(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)out)[i] = (uint8_t)((const int64_t *)in)[i];
    }
}

static void i64_from_bool(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((int64_t *)out)[i] = ((const uint8_t *)in)[i] != 0;
    }
}

static void i64_to_bool(void *out, const void *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)out)[i] = ((const int64_t *)in)[i] != 0;
    }
}

static const tt_convert_fn_t to_f64[TUTTI_DTYPE_COUNT] = {
#define TT_CONVERT(DTYPE, suffix, ...) [TUTTI_##DTYPE] = f64_from_##suffix,
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT
};

static const tt_convert_fn_t from_f64[TUTTI_DTYPE_COUNT] = {
#define TT_CONVERT(DTYPE, suffix, ...) [TUTTI_##DTYPE] = f64_to_##suffix,
#include "core/kernel/elementwise/convert.def"
#undef TT_CONVERT
};

static const tt_convert_fn_t to_i64[TUTTI_DTYPE_COUNT] = {
    [TUTTI_I64] = i64_from_i64, [TUTTI_I32] = i64_from_i32,   [TUTTI_I8] = i64_from_i8,
    [TUTTI_U8] = i64_from_u8,   [TUTTI_BOOL] = i64_from_bool,
};

static const tt_convert_fn_t from_i64[TUTTI_DTYPE_COUNT] = {
    [TUTTI_I64] = i64_from_i64, [TUTTI_I32] = i64_to_i32,   [TUTTI_I8] = i64_to_byte,
    [TUTTI_U8] = i64_to_byte,   [TUTTI_BOOL] = i64_to_bool,
};

tt_class_t tt_class_of(tutti_dtype_t dtype)
{
    if (dtype == TUTTI_F64) {
        return TT_CLASS_F64;
    }
    return tutti_dtype_is_float(dtype) ? TT_CLASS_F32 : TT_CLASS_I64;
}

tutti_dtype_t tt_class_dtype(tt_class_t class)
{
    static const tutti_dtype_t dtypes[TT_CLASS_COUNT] = {
        [TT_CLASS_I64] = TUTTI_I64, [TT_CLASS_F32] = TUTTI_F32, [TT_CLASS_F64] = TUTTI_F64};
    return dtypes[class];
}

tt_convert_fn_t tt_convert_to(tt_class_t class, tutti_dtype_t dtype)
{
    const tt_convert_fn_t fn = class == TT_CLASS_F64   ? to_f64[dtype]
                               : class == TT_CLASS_F32 ? tt_kernels()->convert->to_f32[dtype]
                                                       : to_i64[dtype];
    TT_ASSERT(fn != NULL);
    return fn;
}

tt_convert_fn_t tt_convert_from(tt_class_t class, tutti_dtype_t dtype)
{
    const tt_convert_fn_t fn = class == TT_CLASS_F64   ? from_f64[dtype]
                               : class == TT_CLASS_F32 ? tt_kernels()->convert->from_f32[dtype]
                                                       : from_i64[dtype];
    TT_ASSERT(fn != NULL);
    return fn;
}

void tt_gather_bytes(void *out, const void *in, int64_t stride, size_t n, size_t bytes)
{
    const int64_t count = (int64_t)n;
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < count; i++) {
            ((uint8_t *)out)[i] = ((const uint8_t *)in)[i * stride];
        }
        return;
    case 2:
        for (int64_t i = 0; i < count; i++) {
            ((uint16_t *)out)[i] = ((const uint16_t *)in)[i * stride];
        }
        return;
    case 4:
        for (int64_t i = 0; i < count; i++) {
            ((uint32_t *)out)[i] = ((const uint32_t *)in)[i * stride];
        }
        return;
    default:
        for (int64_t i = 0; i < count; i++) {
            ((uint64_t *)out)[i] = ((const uint64_t *)in)[i * stride];
        }
    }
}

void tt_scatter_bytes(void *out, int64_t stride, const void *in, size_t n, size_t bytes)
{
    const int64_t count = (int64_t)n;
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < count; i++) {
            ((uint8_t *)out)[i * stride] = ((const uint8_t *)in)[i];
        }
        return;
    case 2:
        for (int64_t i = 0; i < count; i++) {
            ((uint16_t *)out)[i * stride] = ((const uint16_t *)in)[i];
        }
        return;
    case 4:
        for (int64_t i = 0; i < count; i++) {
            ((uint32_t *)out)[i * stride] = ((const uint32_t *)in)[i];
        }
        return;
    default:
        for (int64_t i = 0; i < count; i++) {
            ((uint64_t *)out)[i * stride] = ((const uint64_t *)in)[i];
        }
    }
}
