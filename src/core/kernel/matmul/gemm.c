/* The table of product kernels for this CPU. */
#include "core/kernel/matmul/gemm.h"

#include "core/kernel/isa.h"

const tt_gemm_ops_t *tt_gemm_pair_ops(tutti_dtype_t dtype)
{
#if defined(__x86_64__)
    static const tt_gemm_ops_t *const f32[TT_VARIANT_COUNT] = {
        &tt_gemm_f32_baseline, &tt_gemm_f32_avx2, &tt_gemm_f32_avx512};
    if (dtype == TUTTI_BF16) {
        return tt_isa_has_bf16() ? &tt_gemm_pairs_avx512 : NULL;
    }
    return f32[tt_isa()];
#else
    return dtype == TUTTI_BF16 ? NULL : &tt_gemm_f32_baseline;
#endif
}

const tt_gemm_ops_t *tt_gemm_ops(tutti_dtype_t dtype)
{
#if defined(__x86_64__)
    if (dtype == TUTTI_BF16 && tt_isa_has_amx()) {
        return &tt_gemm_amx_avx512;
    }
#endif
    return tt_gemm_pair_ops(dtype);
}
