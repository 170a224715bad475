/* Devices as reference-counted objects: a header, and behind it the state that the device's own
 * file knows. Cost: one allocation per device, an atomic addition per block. */
#include "core/device/device.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/ref.h"

struct tt_device {
    tt_ref_t ref;
    const tt_device_ops_t *ops;
    _Alignas(TT_ALIGN) unsigned char state[];
};

tutti_status_t tt_device_open(const tt_device_ops_t *ops, const void *options, tt_device_t **out)
{
    tt_device_t *device = tt_alloc(sizeof *device + ops->state_bytes, "device");
    TT_TRY_ALLOC(device);
    tt_ref_init(&device->ref);
    device->ops = ops;
    const tutti_status_t status = ops->open(device->state, options);
    if (status < 0) {
        tt_free(device);
        return status;
    }
    *out = device;
    return TUTTI_OK;
}

tt_device_t *tt_device_retain(tt_device_t *device)
{
    tt_ref_retain(&device->ref);
    return device;
}

void tt_device_release(tt_device_t *device)
{
    if (device != NULL && tt_ref_release(&device->ref)) {
        device->ops->close(device->state);
        tt_free(device);
    }
}

void *tt_device_state(tt_device_t *device)
{
    return device->state;
}

void *tt_device_alloc(tt_device_t *device, size_t bytes, const char *what)
{
    void *memory = device->ops->alloc(device->state, bytes, what);
    if (memory != NULL) {
        tt_ref_retain(&device->ref);
    }
    return memory;
}

void tt_device_free(tt_device_t *device, void *memory, size_t bytes)
{
    if (memory != NULL) {
        device->ops->free(device->state, memory, bytes);
        tt_device_release(device);
    }
}

tt_device_stats_t tt_device_stats(tt_device_t *device)
{
    return device->ops->stats(device->state);
}

/* ---- accelerators ---------------------------------------------------------------------------- */

/* Whether the host reads and writes its memory itself. */
static bool is_host(const tt_device_t *device)
{
    return device->ops->accelerator == NULL;
}

tt_exec_t *tt_device_exec(tt_device_t *device)
{
    return is_host(device) ? NULL : device->ops->accelerator->exec(device->state);
}

tutti_status_t tt_device_copy_in(tt_device_t *device, void *to, const void *host, size_t bytes)
{
    if (is_host(device)) {
        memcpy(to, host, bytes);
        return TUTTI_OK;
    }
    return device->ops->accelerator->copy_in(device->state, to, host, bytes);
}

tutti_status_t tt_device_copy_out(tt_device_t *device, void *host, const void *from, size_t bytes)
{
    if (is_host(device)) {
        memcpy(host, from, bytes);
        return TUTTI_OK;
    }
    return device->ops->accelerator->copy_out(device->state, host, from, bytes);
}

tutti_status_t tt_device_synchronize(tt_device_t *device, tt_deadline_t deadline)
{
    if (is_host(device)) {
        return TUTTI_OK;
    }
    tt_stream_t *stream = device->ops->accelerator->stream(device->state);
    return tt_event_wait(tt_stream_event(stream), deadline);
}
