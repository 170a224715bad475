/* Windows of planes as columns, and columns summed back into planes (im2col, col2im).
 *
 *     columns[n, c, kh, kw, oh, ow] = planes[n, c, oh stride - padding + kh dilation, …]
 *
 * What lies outside the plane is 0 in the columns, and goes nowhere on the way back.
 */
#ifndef TT_PATCHES_H
#define TT_PATCHES_H

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

typedef struct {
    void *columns, *planes; /* contiguous, of one dtype */
    tutti_dtype_t dtype;
    int64_t count;   /* planes: N C */
    int64_t size[2]; /* of a plane */
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int64_t windows[2]; /* how many fit */
} tt_patches_t;

/* columns from planes; any dtype */
TT_LAUNCHES tutti_status_t tt_patches_take(tt_exec_t *exec, const tt_patches_t *patches);

/* planes = the sum of columns, in the order of kernel places; f32 and f64 */
TT_LAUNCHES tutti_status_t tt_patches_add(tt_exec_t *exec, const tt_patches_t *patches);

#endif
