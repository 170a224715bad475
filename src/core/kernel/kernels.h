/* Which kernels run: *_simd.c files are compiled once per instruction set, and a table of each is
 * chosen when the first kernel is asked for, by what the CPU has, or by TUTTI_ISA.
 *
 *     tt_kernels()->flat->axpy(y, x, n, factor);
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct tt_map_table tt_map_table_t;         /* map_table.h */
typedef struct tt_convert_table tt_convert_table_t; /* convert.h */
typedef struct tt_reduce_table tt_reduce_table_t;   /* reduce_table.h */
typedef struct tt_rows_table tt_rows_table_t;       /* rows_table.h */
typedef struct tt_random_table tt_random_table_t;   /* random_table.h */
typedef struct tt_flat_table tt_flat_table_t;       /* flat_table.h */

typedef struct {
    const char *isa; /* "baseline", "avx2", "avx512" */
    const tt_map_table_t *map;
    const tt_convert_table_t *convert;
    const tt_reduce_table_t *reduce;
    const tt_rows_table_t *rows;
    const tt_random_table_t *random;
    const tt_flat_table_t *flat;
} tt_kernels_t;

/* The table in use. */
const tt_kernels_t *tt_kernels(void);

/* Choose by name ("auto": the best that this CPU runs). ARG for an unknown name, UNSUPPORTED for
 * one that this CPU or build lacks. Not while other threads compute. */
tutti_status_t tt_kernels_choose(const char *isa);

/* The tables that this CPU can run, the simplest first; returns how many. */
size_t tt_kernels_list(const tt_kernels_t *list[4]);

/* What must be alike for bits to be alike: CPU family, kernels and build, such as
 * "AuthenticAMD 25.17 avx512, tutti 0.1.0, gcc 12.2.0". */
void tt_kernels_id(char *text, size_t text_bytes);

#endif
