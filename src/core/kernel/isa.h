/* Which variant of the kernels runs: what the CPU has, lowered by TUTTI_ISA. "amx" is AVX-512, with
 * products of bf16 in AMX's tiles. On 64-bit ARM there are "baseline", and "bf16": with products of
 * pairs of bf16 (BFDOT).
 *
 * Files named *_simd.c are compiled once per variant, with TT_ISA naming it; each exports a table
 * tt_<kind>_ops_baseline, …_avx2, …_avx512, which kernels.def lists.
 */
#ifndef TT_ISA_H
#define TT_ISA_H

#include <stdbool.h>

#include "core/base/fail.h"

typedef enum {
    TT_VARIANT_BASELINE,
    TT_VARIANT_AVX2,   /* x86-64-v3: AVX2, FMA */
    TT_VARIANT_AVX512, /* x86-64-v4: AVX-512 F BW CD DQ VL */
    TT_VARIANT_COUNT
} tt_variant_t;

/* TT_ISA_NAME(tt_gemm_ops) in a *_simd.c is tt_gemm_ops_avx2, and so on. */
#define TT_ISA_PASTE(name, isa) name##_##isa
#define TT_ISA_EXPAND(name, isa) TT_ISA_PASTE(name, isa)
#define TT_ISA_NAME(name) TT_ISA_EXPAND(name, TT_ISA)

/* The variant to run. A TUTTI_ISA that tt_isa_check refuses counts as auto. */
tt_variant_t tt_isa(void);

/* Whether the CPU multiplies bf16, and TUTTI_ISA allows it: AVX512_BF16 beside the variant AVX-512,
 * BF16 of ARM. */
bool tt_isa_has_bf16(void);

/* The same, and it has tiles for it (AMX), which TUTTI_ISA allows. */
bool tt_isa_has_amx(void);

const char *tt_isa_variant_name(tt_variant_t variant);

/* What TUTTI_ISA calls that which runs: "avx512", "amx". */
const char *tt_isa_name(void);

/* Errors: ARG when TUTTI_ISA names no variant, UNSUPPORTED when the CPU lacks it. */
tutti_status_t tt_isa_check(void);

#endif
