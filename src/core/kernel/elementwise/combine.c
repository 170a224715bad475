/* Choosing the table of combining kernels, and what may be combined how. */
#include "core/kernel/elementwise/combine.h"

#include <string.h>

#include "core/base/fail.h"
#include "core/kernel/isa.h"

extern const tt_combine_kernels_t tt_combine_kernels_baseline;
#if defined(__x86_64__)
extern const tt_combine_kernels_t tt_combine_kernels_avx2;
extern const tt_combine_kernels_t tt_combine_kernels_avx512;
#endif

const char *tutti_reduction_name(tutti_reduction_t reduction)
{
    switch (reduction) {
#define X(identifier, name, about)                                                                 \
    case identifier:                                                                               \
        return name;
        TUTTI_REDUCTION_LIST(X)
#undef X
    case TUTTI_REDUCTION_COUNT:
        break;
    }
    return "?";
}

const tt_combine_kernels_t *tt_combine_kernels(void)
{
#if defined(__x86_64__)
    static const tt_combine_kernels_t *const tables[TT_VARIANT_COUNT] = {
        [TT_VARIANT_BASELINE] = &tt_combine_kernels_baseline,
        [TT_VARIANT_AVX2] = &tt_combine_kernels_avx2,
        [TT_VARIANT_AVX512] = &tt_combine_kernels_avx512,
    };
    return tables[tt_isa()];
#else
    return &tt_combine_kernels_baseline;
#endif
}

void tt_combine_scale(void *dst, const void *src, tutti_dtype_t dtype, double factor, size_t count)
{
    const tt_combine_kernels_t *kernels = tt_combine_kernels();
    if (dtype == TUTTI_F64) {
        kernels->scale_f64(dst, src, factor, count);
    } else if (dtype == TUTTI_F32) {
        kernels->scale_f32(dst, src, (float)factor, count);
    } else {
        kernels->widen(dst, src, dtype, count);
        kernels->scale_f32(dst, dst, (float)factor, count);
    }
}

/* 16-bit floats are combined in f32, an average is a sum; combine.def has neither. */
#define AVERAGED(dtype) [dtype][TUTTI_AVG] = 1
#define WIDENED(dtype)                                                                             \
    AVERAGED(dtype), [dtype][TUTTI_SUM] = 1, [dtype][TUTTI_PRODUCT] = 1, [dtype][TUTTI_MIN] = 1,   \
                     [dtype][TUTTI_MAX] = 1, [dtype][TUTTI_MINLOC] = 2, [dtype][TUTTI_MAXLOC] = 2

const unsigned char tt_combine_widths[TUTTI_DTYPE_COUNT][TUTTI_REDUCTION_COUNT] = {
#define X(dtype, type, reduction, value)                                                           \
    [TUTTI_##dtype][TUTTI_##reduction] = TT_COMBINE_WIDTH(TUTTI_##reduction),
#include "core/kernel/elementwise/combine.def"
#undef X
    AVERAGED(TUTTI_F32),
    AVERAGED(TUTTI_F64),
    WIDENED(TUTTI_BF16),
    WIDENED(TUTTI_F16),
};

tutti_status_t tt_combine_check(const char *call, tutti_dtype_t dtype, tutti_reduction_t reduction)
{
    if ((unsigned)dtype >= TUTTI_DTYPE_COUNT || (unsigned)reduction >= TUTTI_REDUCTION_COUNT) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: no dtype %d or no reduction %d", call, (int)dtype,
                       (int)reduction);
    }
    if (tt_combine_widths[dtype][reduction] != 0) {
        return TUTTI_OK;
    }
    if (reduction == TUTTI_AVG) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "%s: avg of %s; only floats have an average, use sum and divide", call,
                       tutti_dtype_name(dtype));
    }
    if (reduction == TUTTI_PREMUL_SUM || reduction == TUTTI_CUSTOM) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s needs a %s: pass it to tutti_%s_with", call,
                       tutti_reduction_name(reduction),
                       reduction == TUTTI_CUSTOM ? "function" : "factor", call);
    }
    return TT_FAIL(TUTTI_ERR_DTYPE, "%s: %s of %s makes no sense%s", call,
                   tutti_reduction_name(reduction), tutti_dtype_name(dtype),
                   dtype == TUTTI_BOOL ? "; use max for any, min for all" : "");
}

tutti_status_t tt_combine_check_whole(const char *call, const char *reduction, int width,
                                      size_t count)
{
    return count % (size_t)width == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_SHAPE,
                         "%s: %s combines elements of %d numbers; %zu numbers are not whole ones",
                         call, reduction, width, count);
}

tutti_status_t tt_custom_check(const char *call, tutti_dtype_t dtype,
                               const tutti_custom_reduction_t *custom)
{
    const size_t length = custom->name != NULL ? strlen(custom->name) : 0;
    const int width = tt_custom_width(custom);
    if (length == 0 || length > TT_CUSTOM_NAME_BYTES) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: the name of a custom reduction, \"%s\", has %zu bytes; want 1 to %d",
                       call, custom->name != NULL ? custom->name : "", length,
                       TT_CUSTOM_NAME_BYTES);
    }
    if (custom->combine == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s has no function: combine is NULL", call,
                       custom->name);
    }
    if (custom->width < 0 || width > TT_COMBINE_GRAIN || (width & (width - 1)) != 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s has elements of %d numbers; want 1, 2, 4, ... %d",
                       call, custom->name, custom->width, TT_COMBINE_GRAIN);
    }
    if (custom->dtypes != 0 && (custom->dtypes >> dtype & 1) == 0) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: %s does not take %s", call, custom->name,
                       tutti_dtype_name(dtype));
    }
    return TUTTI_OK;
}
