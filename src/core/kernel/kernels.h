/* Which kernels run: *_simd.c files are compiled once per variant (isa.h) and class (vector.h), and
 * each exports a const table (kernels.def); here the tables of a variant stand together.
 *
 *     tt_kernels()->flat->axpy(y, x, n, factor);
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stddef.h>

#include <tutti/dtype.h>

#include "core/kernel/isa.h"

#define TT_KERNELS(kind, classes) typedef struct tt_##kind##_ops tt_##kind##_ops_t;
#include "core/kernel/kernels.def"
#undef TT_KERNELS

typedef struct {
#define TT_KERNELS(kind, classes) const tt_##kind##_ops_t *kind;
#include "core/kernel/kernels.def"
#undef TT_KERNELS
} tt_kernels_t;

/* The tables of the variant in use, tt_isa(). Cost: about 100 ns. */
const tt_kernels_t *tt_kernels(void);

/* Those that compute in the class of a floating dtype: for f64 those of f64, NULL where kernels.def
 * has none; for any other tt_kernels(). */
const tt_kernels_t *tt_kernels_of(tutti_dtype_t dtype);

/* What must be alike for bits to be alike: CPU family, variant and build, such as
 * "AuthenticAMD 25.17 avx512, tutti 0.1.0, gcc 12.2.0". */
void tt_kernels_id(char *text, size_t text_bytes);

#endif
