/* Running sums and products along a dimension.
 *
 * Floats are summed and multiplied in f64 and rounded once for each element, integers in i64, in
 * the order of the line: neither threads nor strides change a bit.
 */
#ifndef TT_SCAN_H
#define TT_SCAN_H

#include <stdbool.h>

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

typedef enum { TT_SCAN_SUM, TT_SCAN_PRODUCT } tt_scan_kind_t;

typedef struct {
    tt_strided_t out; /* a floating dtype, if x has one; else i64 */
    tt_strided_t x;
    int dim;
    tt_scan_kind_t kind;
    bool is_reverse; /* from the end of each line */
} tt_scan_t;

TT_LAUNCHES tutti_status_t tt_scan(tt_exec_t *exec, const tt_scan_t *scan);

/* The gradient of a running product: dx[i] = Σ g[j] Π x[k], over j >= i, and k <= j but i. It
 * divides by nothing, and no partial product over- or underflows. */
typedef struct {
    tt_strided_t dx, g, x; /* floats */
    int dim;
} tt_product_backward_t;

TT_LAUNCHES tutti_status_t tt_scan_product_backward(tt_exec_t *exec,
                                                    const tt_product_backward_t *backward);

#endif
