/* Choosing the table of combining kernels, and what may be combined how. */
#include "core/kernel/combine.h"

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

tutti_status_t tt_combine_check(const char *call, tutti_dtype_t dtype, tutti_reduction_t reduction)
{
    if ((unsigned)dtype >= TUTTI_DTYPE_COUNT || (unsigned)reduction >= TUTTI_REDUCTION_COUNT) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: no dtype %d or no reduction %d", call, (int)dtype,
                       (int)reduction);
    }
    if (reduction == TUTTI_AVG && !tutti_dtype_is_float(dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE,
                       "%s: avg of %s; only floats have an average, use sum and divide", call,
                       tutti_dtype_name(dtype));
    }
    if (reduction == TUTTI_PREMUL_SUM) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: premul_sum needs a factor: pass it to tutti_%s_with",
                       call, call);
    }
    const tutti_reduction_t base = reduction == TUTTI_AVG ? TUTTI_SUM : reduction;
    if (tt_combine_kernels_baseline.combine[tt_combine_dtype(dtype)][base] == NULL) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: %s of %s makes no sense%s", call,
                       tutti_reduction_name(reduction), tutti_dtype_name(dtype),
                       dtype == TUTTI_BOOL ? "; use max for any, min for all" : "");
    }
    return TUTTI_OK;
}
