/* Element-wise operations on operands of any strides, broadcasts and dtypes.
 *
 *     tt_map_unary(exec, TT_UNARY_GELU, (tt_map_params_t){0}, out, x);
 *     tt_map_binary(exec, TT_BINARY_ADD, (tt_map_params_t){0}, out, a, b);
 *     tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, out, x);  // cast, gather strides
 *
 * All operands have the output's rank and shape (stride 0 where they repeat). It computes in f64
 * if any operand is f64, else in f32 if any is f32, bf16 or f16, else in i64; the result is
 * converted to the output's dtype (to nearest even; to integers by truncation; to bool as
 * != 0). The output may be an operand, at the same strides; other overlap is not allowed.
 * maps.def lists the kinds. Cost: contiguous f32 runs at memory speed.
 */
#ifndef TT_MAP_H
#define TT_MAP_H

#include <stdbool.h>

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

typedef enum {
#define TT_UNARY(kind, ...) TT_UNARY_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_UNARY
    TT_UNARY_COUNT
} tt_unary_t;

typedef enum {
#define TT_BINARY(kind, ...) TT_BINARY_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_BINARY
    TT_BINARY_COUNT
} tt_binary_t;

typedef enum {
#define TT_TERNARY(kind, ...) TT_TERNARY_##kind,
#include "core/kernel/elementwise/maps.def"
#undef TT_TERNARY
    TT_TERNARY_COUNT
} tt_ternary_t;

/* The numbers that some kinds take; maps.def says which. */
typedef struct {
    double p, q;
} tt_map_params_t;

TT_LAUNCHES tutti_status_t tt_map_unary(tt_exec_t *exec, tt_unary_t kind, tt_map_params_t params,
                                        const tt_strided_t *out, const tt_strided_t *x);

TT_LAUNCHES tutti_status_t tt_map_binary(tt_exec_t *exec, tt_binary_t kind, tt_map_params_t params,
                                         const tt_strided_t *out, const tt_strided_t *a,
                                         const tt_strided_t *b);

TT_LAUNCHES tutti_status_t tt_map_ternary(tt_exec_t *exec, tt_ternary_t kind,
                                          tt_map_params_t params, const tt_strided_t *out,
                                          const tt_strided_t *a, const tt_strided_t *b,
                                          const tt_strided_t *c);

/* The same inside a kernel: operands[0] is the output, of the others there are `arity`. */
void tt_map_now(tt_threads_t *threads, int arity, int kind, tt_map_params_t params,
                const tt_strided_t *const *operands);

/* Every element becomes `value`; tt_fill_int is exact for 64-bit integers. */
TT_LAUNCHES tutti_status_t tt_fill(tt_exec_t *exec, const tt_strided_t *out, double value);
TT_LAUNCHES tutti_status_t tt_fill_int(tt_exec_t *exec, const tt_strided_t *out, int64_t value);

/* Whether a kind computes on integers (when no operand and not the output is a float). */
bool tt_unary_takes_ints(tt_unary_t kind);
bool tt_binary_takes_ints(tt_binary_t kind);
bool tt_ternary_takes_ints(tt_ternary_t kind);

/* For lists and messages: a kind's name and formula. */
typedef struct {
    const char *name, *about, *int_formula;
} tt_map_entry_t;

extern const tt_map_entry_t tt_unary_table[TT_UNARY_COUNT];
extern const tt_map_entry_t tt_binary_table[TT_BINARY_COUNT];
extern const tt_map_entry_t tt_ternary_table[TT_TERNARY_COUNT];

#endif
