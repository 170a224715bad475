/* Averages that move towards values: a = a + (x - a) share, element by element. */
#ifndef TT_WEIGHT_AVERAGE_H
#define TT_WEIGHT_AVERAGE_H

#include <stddef.h>

#include <tutti/dtype.h>

#include "core/exec/exec.h"

typedef struct {
    float *average; /* [n] */
    const void *x;  /* [n], f32, bf16 or f16 */
    tutti_dtype_t dtype;
    size_t n;
    double share; /* in [0, 1]; 1: the average becomes x, whatever it was */
} tt_average_t;

/* Both lie where exec runs. */
TT_LAUNCHES tutti_status_t tt_average(tt_exec_t *exec, const tt_average_t *average);

#endif
