/* Sorting lines of a tensor, and choosing their first elements.
 *
 * The order is stable: of equal elements the earlier one comes first, in either direction. NaN
 * counts as larger than every number, all NaN are equal, and so are both zeros.
 */
#ifndef TT_SORTING_H
#define TT_SORTING_H

#include <stdbool.h>

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* Operands have x's shape, but at dim: there values and indices have the number of elements that
 * are wanted, which is at most x's. */
typedef struct {
    tt_strided_t values;  /* of x's dtype; data NULL: not wanted */
    tt_strided_t indices; /* i64 */
    tt_strided_t x;       /* any dtype */
    int dim;
    bool is_descending;
} tt_sort_t;

/* The first elements of each line in order, and their indices. Errors: NOMEM (scratch).
 * Cost: of n up to 1,024 elements n log n, of more a pass for 11 bits of the key; a few of many
 * elements: one pass with a heap. */
TT_LAUNCHES tutti_status_t tt_sort(tt_exec_t *exec, const tt_sort_t *sort);

#endif
