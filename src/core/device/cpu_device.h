/* The CPU's memory, cached by size class so that a training step reuses what the step before it
 * freed instead of faulting pages in again. */
#ifndef TT_CPU_DEVICE_H
#define TT_CPU_DEVICE_H

#include "core/device/device.h"

typedef struct {
    int cache_off; /* nonzero: every block goes back to the system at once */
} tt_cpu_options_t;

/* The size that a request is rounded up to: at most one eighth more, at least 512. 0: too large. */
size_t tt_cpu_class_bytes(size_t bytes);

#endif
