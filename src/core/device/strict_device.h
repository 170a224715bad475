/* The strict device: a virtual accelerator in this process, for finding on a laptop what a cluster
 * of GPUs would find.
 *
 *     addresses that it hands out | PROT_NONE: who touches one on the host crashes there |
 *                                    + a constant
 *     addresses that kernels get  | the same bytes, mapped to be read and written        |
 *
 * Kernels and copies run later, in order, on the device's stream. A launch refuses pointers that
 * are not memory of the device. Several may be open, each with its own index, memory and stream.
 *
 *     tt_device_t *device;
 *     TT_TRY(tt_device_open(&tt_device_strict, &(tt_strict_options_t){.index = 0}, &device));
 *     float *x = tt_device_alloc(device, bytes, "x");
 *     TT_TRY(tt_device_copy_in(device, x, values, bytes));
 *     TT_TRY(tt_launch(tt_device_exec(device), &kernel, &arguments));
 *     TT_TRY(tt_device_copy_out(device, values, x, bytes));
 *     TT_TRY(tt_device_synchronize(device, deadline));
 *
 * A freed block may be handed out again at once: what uses it next is launched behind what used it
 * last. A pointer into a freed block is not refused: it is memory of the device still.
 */
#ifndef TT_STRICT_DEVICE_H
#define TT_STRICT_DEVICE_H

#include "core/device/device.h"

typedef struct {
    int index;            /* of "strict:N" */
    size_t memory_bytes;  /* 0: 64 GiB, as far as the system has them */
    int64_t launch_ns;    /* a kernel takes at least so long; 0: as long as it does */
    int64_t copy_bytes_s; /* bytes that are copied in a second, at most; 0: as many as can be */
    int threads;          /* that kernels run with, the stream's with them; 0: 1 */
} tt_strict_options_t;

#endif
