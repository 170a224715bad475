/* One triangle of matrices: the other one becomes 0. */
#ifndef TT_TRIANGLE_H
#define TT_TRIANGLE_H

#include <stdbool.h>

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* Of the last two dimensions: elements with column - row at most `diagonal` are kept, or at least.
 */
typedef struct {
    tt_strided_t out, x; /* of one shape and dtype, rank at least 2 */
    int64_t diagonal;
    bool is_upper;
} tt_triangle_t;

TT_LAUNCHES tutti_status_t tt_triangle(tt_exec_t *exec, const tt_triangle_t *triangle);

#endif
