/* Copying elements of one dtype between any strides, bit for bit. */
#ifndef TT_COPY_H
#define TT_COPY_H

#include "core/exec/exec.h"
#include "core/kernel/elementwise/strided.h"

/* out and x: same shape and dtype; x may repeat (stride 0). */
TT_LAUNCHES tutti_status_t tt_copy(tt_exec_t *exec, const tt_strided_t *out, const tt_strided_t *x);

/* The same inside a kernel. */
void tt_copy_now(tt_threads_t *threads, const tt_strided_t *out, const tt_strided_t *x);

#endif
