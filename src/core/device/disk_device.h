/* A file as the memory of a device: tensors lie in it, are copied to the host and from it, and that
 * is all. Its addresses are numbers that no program can use. New memory is zeros.
 *
 * What is used again and again, in an order that repeats, comes and goes through the device's ring
 * (disk_ring.h), by the place of a tensor in the file; copies wait until the ring has settled.
 */
#ifndef TT_DISK_DEVICE_H
#define TT_DISK_DEVICE_H

#include "core/device/device.h"
#include "core/device/disk_ring.h"

typedef struct {
    const char *folder; /* borrowed */
} tt_disk_options_t;

/* Borrowed. */
tt_disk_ring_t *tt_disk_ring_of(tt_device_t *disk);
const tt_disk_file_t *tt_disk_file_of(tt_device_t *disk);

/* Another ring over its file, whose user sees to it that no block is in both at a time. The device
 * must outlive it. Errors: as tt_disk_ring_open(). */
tutti_status_t tt_disk_open_ring(tt_device_t *disk, tt_disk_ring_t **out);

/* All of its memory will go back: none is given out again. */
void tt_disk_leave(tt_device_t *disk);

/* Where memory of such a device is in its file. */
uint64_t tt_disk_place(const void *memory);

#endif
