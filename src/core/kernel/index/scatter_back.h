/* The gradient of writing by index, where of elements with one place the last one stands. */
#ifndef TT_SCATTER_BACK_H
#define TT_SCATTER_BACK_H

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* g's elements at the places index names along dim: to dsource of the last element that has a
 * place, 0 of the others; and dx = 0 there. Indices are in range. All are of one dtype, dx and
 * dsource may have NULL as their data: they are not wanted. */
typedef struct {
    tt_strided_t dx, g;          /* as long as the index but at dim */
    tt_strided_t dsource, index; /* of one shape; i64 */
    int dim;
} tt_scatter_back_t;

/* Errors: those of a launch; NOMEM (scratch), when it runs. */
TT_LAUNCHES tutti_status_t tt_scatter_back(tt_exec_t *exec, const tt_scatter_back_t *back);

#endif
