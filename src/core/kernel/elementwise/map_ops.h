/* What map_simd.c exports per variant, and the i64 loops, which exist once. */
#ifndef TT_MAP_OPS_H
#define TT_MAP_OPS_H

#include "core/kernel/elementwise/map.h"

/* out[i] = kind(in[0][i], …) for contiguous operands of one type; in holds the kind's arity. */
typedef void (*tt_map_fn_t)(void *out, const void *const *in, size_t n, tt_map_params_t params);

struct tt_map_ops {
    tt_map_fn_t unary[TT_UNARY_COUNT], binary[TT_BINARY_COUNT], ternary[TT_TERNARY_COUNT];
};

extern const struct tt_map_ops tt_map_ops_i64;

#endif
