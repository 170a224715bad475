/* The table of product kernels for this CPU. */
#include "core/kernel/matmul/gemm.h"

#include "core/kernel/kernels.h"

const tt_gemm_ops_t *tt_gemm_ops(tutti_dtype_t dtype)
{
    if (dtype != TUTTI_BF16) {
        return tt_kernels_of(dtype)->gemm;
    }
#if defined(__x86_64__)
    return tt_isa_has_amx()    ? &tt_gemm_amx_avx512
           : tt_isa_has_bf16() ? &tt_gemm_pairs_avx512
                               : NULL;
#elif defined(__aarch64__)
    return tt_isa_has_bf16() ? &tt_gemm_dot_baseline : NULL;
#else
    return NULL;
#endif
}
