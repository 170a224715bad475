/* The table of all devices. It names their operations, which use device.c, so it is a file of its
 * own above both. */
#include "core/device/device.h"

const tt_device_ops_t *const tt_devices[] = {
#define X(name) &tt_device_##name,
#include "core/device/devices.def"
#undef X
    NULL,
};
