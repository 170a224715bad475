/* Which kernels run: *_simd.c files are compiled once per variant (isa.h), and each exports a
 * const table; here the tables of a variant stand together.
 *
 *     tt_kernels()->flat->axpy(y, x, n, factor);
 */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include <stddef.h>

#include "core/kernel/isa.h"

typedef struct tt_map_ops tt_map_ops_t;                 /* map_ops.h */
typedef struct tt_convert_ops tt_convert_ops_t;         /* convert.h */
typedef struct tt_reduce_ops tt_reduce_ops_t;           /* reduce_ops.h */
typedef struct tt_softmax_ops tt_softmax_ops_t;         /* rows_ops.h */
typedef struct tt_norm_ops tt_norm_ops_t;               /* rows_ops.h */
typedef struct tt_channels_ops tt_channels_ops_t;       /* channels_ops.h */
typedef struct tt_recurrent_ops tt_recurrent_ops_t;     /* recurrent_ops.h */
typedef struct tt_conv_ops tt_conv_ops_t;               /* conv_ops.h */
typedef struct tt_interpolate_ops tt_interpolate_ops_t; /* interpolate_ops.h */
typedef struct tt_pooling_ops tt_pooling_ops_t;         /* pooling_ops.h */
typedef struct tt_random_ops tt_random_ops_t;           /* random_ops.h */
typedef struct tt_flat_ops tt_flat_ops_t;               /* flat.h */
typedef struct tt_optim_steps_ops tt_optim_steps_ops_t; /* optim_steps.h */
typedef struct tt_attention_ops tt_attention_ops_t;     /* attention_ops.h */

typedef struct {
    const tt_map_ops_t *map;
    const tt_convert_ops_t *convert;
    const tt_reduce_ops_t *reduce;
    const tt_softmax_ops_t *softmax;
    const tt_norm_ops_t *norm;
    const tt_channels_ops_t *channels;
    const tt_recurrent_ops_t *recurrent;
    const tt_conv_ops_t *conv;
    const tt_interpolate_ops_t *interpolate;
    const tt_pooling_ops_t *pooling;
    const tt_random_ops_t *random;
    const tt_flat_ops_t *flat;
    const tt_optim_steps_ops_t *optim_steps;
    const tt_attention_ops_t *attention;
} tt_kernels_t;

/* The tables of the variant in use, tt_isa(). Cost: about 100 ns. */
const tt_kernels_t *tt_kernels(void);

/* What must be alike for bits to be alike: CPU family, variant and build, such as
 * "AuthenticAMD 25.17 avx512, tutti 0.1.0, gcc 12.2.0". */
void tt_kernels_id(char *text, size_t text_bytes);

#endif
