/* Copying elements of one dtype between any strides, bit for bit. */
#ifndef TT_COPY_H
#define TT_COPY_H

#include "core/base/threads.h"
#include "core/kernel/elementwise/strided.h"

/* out and x: same shape and dtype; x may repeat (stride 0). */
void tt_copy(tt_threads_t *threads, const tt_strided_t *out, const tt_strided_t *x);

#endif
