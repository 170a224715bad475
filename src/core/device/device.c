/* Devices as reference-counted objects: a header, and behind it the state that the device's own
 * file knows. Cost: one allocation per device, an atomic addition per block. */
#include "core/device/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/ref.h"

struct tutti_device {
    tt_ref_t ref;
    const tt_device_ops_t *ops;
    char name[32];
    tutti_device_options_t options; /* of one that can be found */
    tt_device_t *next;              /* of those */
    bool is_listed;
    _Alignas(TT_ALIGN) unsigned char state[];
};

tutti_status_t tt_device_open(const tt_device_ops_t *ops, const void *options, tt_device_t **out)
{
    tt_device_t *device = tt_alloc(sizeof *device + ops->state_bytes, "device");
    TT_TRY_ALLOC(device);
    tt_ref_init(&device->ref);
    device->ops = ops;
    snprintf(device->name, sizeof device->name, "%s", ops->name);
    const tutti_status_t status = ops->open(device->state, options);
    if (status < 0) {
        tt_free(device);
        return status;
    }
    *out = device;
    return TUTTI_OK;
}

void *tt_device_state(tt_device_t *device)
{
    return device->state;
}

/* ---- those that have a name ------------------------------------------------------------------ */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_device_t *list;

static void forget(tt_device_t *device)
{
    pthread_mutex_lock(&list_lock);
    tt_device_t **link = &list;
    while (*link != device) {
        link = &(*link)->next;
    }
    *link = device->next;
    pthread_mutex_unlock(&list_lock);
}

static tt_device_t *find(const char *name)
{
    tt_device_t *device = list;
    while (device != NULL &&
           (strcmp(device->name, name) != 0 || !tt_ref_try_retain(&device->ref))) {
        device = device->next;
    }
    return device;
}

static bool is_same(const tutti_device_options_t *a, const tutti_device_options_t *b)
{
    return a->memory_bytes == b->memory_bytes && a->launch_ns == b->launch_ns &&
           a->copy_bytes_per_s == b->copy_bytes_per_s && a->threads == b->threads;
}

static tutti_status_t open_listed(const tt_device_ops_t *ops, int index, const char *name,
                                  const tutti_device_options_t *options, tt_device_t **out)
{
    TT_TRY(ops->open_named(index, options, out));
    tt_device_t *device = *out;
    snprintf(device->name, sizeof device->name, "%s", name);
    device->options = options == NULL ? (tutti_device_options_t){0} : *options;
    device->is_listed = true;
    device->next = list;
    list = device;
    return TUTTI_OK;
}

tutti_status_t tt_device_share(const tt_device_ops_t *ops, int index,
                               const tutti_device_options_t *options, tt_device_t **out)
{
    char name[32];
    snprintf(name, sizeof name, ops->is_numbered ? "%s:%d" : "%s", ops->name, index);
    pthread_mutex_lock(&list_lock);
    tt_device_t *device = find(name);
    const tutti_status_t status =
        device == NULL ? open_listed(ops, index, name, options, &device) : TUTTI_OK;
    pthread_mutex_unlock(&list_lock);
    if (status >= 0 && options != NULL && !is_same(options, &device->options)) {
        tutti_device_release(device);
        return TT_FAIL(TUTTI_ERR_STATE, "device_open: %s is open with other options", name);
    }
    *out = device;
    return status;
}

tutti_device_t *tutti_device_retain(tt_device_t *device)
{
    tt_ref_retain(&device->ref);
    return device;
}

void tutti_device_release(tt_device_t *device)
{
    if (device != NULL && tt_ref_release(&device->ref)) {
        if (device->is_listed) {
            forget(device);
        }
        device->ops->close(device->state);
        tt_free(device);
    }
}

const char *tutti_device_name(const tutti_device_t *device)
{
    return device->name;
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
        tutti_device_release(device);
    }
}

tt_device_stats_t tt_device_stats(tt_device_t *device)
{
    return device->ops->stats(device->state);
}

void tt_device_keep(tt_device_t *device, int64_t bytes)
{
    if (device->ops->keep != NULL) {
        device->ops->keep(device->state, bytes);
    }
}

/* ---- accelerators ---------------------------------------------------------------------------- */

bool tt_device_is_accelerator(const tt_device_t *device)
{
    return device->ops->accelerator != NULL;
}

bool tt_device_has_values(const tt_device_t *device)
{
    return device == NULL || !tt_device_is_accelerator(device) ||
           device->ops->accelerator->streams != NULL || device->ops->accelerator->is_store;
}

bool tt_device_is_store(const tt_device_t *device)
{
    return device != NULL && tt_device_is_accelerator(device) && device->ops->accelerator->is_store;
}

tt_exec_t *tt_device_exec(tt_device_t *device)
{
    return !tt_device_is_accelerator(device) ? NULL : device->ops->accelerator->exec(device->state);
}

tutti_status_t tt_device_copy_in(tt_device_t *device, void *to, const void *host, size_t bytes)
{
    if (!tt_device_is_accelerator(device)) {
        memcpy(to, host, bytes);
        return TUTTI_OK;
    }
    return device->ops->accelerator->copy_in(device->state, to, host, bytes);
}

tutti_status_t tt_device_copy_out(tt_device_t *device, void *host, const void *from, size_t bytes)
{
    if (!tt_device_is_accelerator(device)) {
        memcpy(host, from, bytes);
        return TUTTI_OK;
    }
    return device->ops->accelerator->copy_out(device->state, host, from, bytes);
}

tt_streams_t *tt_device_streams(tt_device_t *device)
{
    return device == NULL || !tt_device_is_accelerator(device) ||
                   device->ops->accelerator->streams == NULL
               ? NULL
               : device->ops->accelerator->streams(device->state);
}

tt_stream_t *tt_device_stream(tt_device_t *device)
{
    return tt_streams_current(device->ops->accelerator->streams(device->state));
}

void *tt_device_host_view(tt_device_t *device, void *memory)
{
    const tt_accelerator_ops_t *ops = device->ops->accelerator;
    return ops->host_view == NULL ? NULL : ops->host_view(device->state, memory);
}

tutti_status_t tt_device_synchronize(tt_device_t *device, tt_deadline_t deadline)
{
    tt_streams_t *streams = tt_device_streams(device);
    return streams == NULL ? TUTTI_OK : tt_streams_wait(streams, deadline);
}

tutti_device_stats_t tutti_device_stats(tutti_device_t *device)
{
    const tt_device_stats_t stats = tt_device_stats(device);
    return (tutti_device_stats_t){.launches = stats.launches,
                                  .copied_bytes = stats.copied_bytes,
                                  .live_bytes = stats.live_bytes,
                                  .peak_bytes = stats.peak_bytes};
}

tutti_status_t tt_device_deadline(const char *call, int64_t timeout_ms, tt_deadline_t *out)
{
    int64_t limit = timeout_ms;
    if (limit < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: timeout_ms is %" PRId64 ": want at least 0", call,
                       timeout_ms);
    }
    if (limit == 0) {
        TT_TRY(tt_config_int(TT_CONFIG_TIMEOUT_MS, 1, INT32_MAX, &limit));
    }
    *out = tt_deadline_in_ms(limit);
    return TUTTI_OK;
}

tt_event_t tt_device_event(tt_device_t *device)
{
    tt_streams_t *streams = tt_device_streams(device);
    return streams == NULL ? (tt_event_t){0} : tt_stream_event(tt_streams_current(streams));
}

tutti_status_t tt_device_check_since(tt_event_t before)
{
    tt_deadline_t deadline;
    if (before.stream == NULL) {
        return TUTTI_OK;
    }
    const tt_event_t now = tt_stream_event(before.stream);
    TT_TRY(tt_device_deadline("copy", 0, &deadline));
    TT_TRY(tt_event_pass(now, deadline));
    return tt_stream_check(before, now);
}

tutti_status_t tutti_device_synchronize(tutti_device_t *device, int64_t timeout_ms)
{
    tt_deadline_t deadline;
    TT_TRY(tt_device_deadline("device_synchronize", timeout_ms, &deadline));
    return tt_device_synchronize(device, deadline);
}

tutti_status_t tt_device_push_release(tt_device_t *device, void (*release)(void *object),
                                      void *object)
{
    return tt_stream_push_release(tt_device_stream(device), release, object);
}

/* Both streams wait: this one for the values, the other one before it uses the memory again. */
static tutti_status_t copy_across(tt_device_t *device, void *to, tt_device_t *other,
                                  const void *from, size_t bytes)
{
    if (!tt_device_has_values(device)) {
        return tt_device_copy_in(device, to, from, bytes);
    }
    if (!tt_device_has_values(other)) {
        return tt_device_copy_out(other, to, from, bytes);
    }
    if (device->ops != other->ops || tt_device_is_store(device)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "copy: from %s to %s there is no way but the host",
                       other->name, device->name);
    }
    tt_stream_t *stream = tt_device_stream(device), *others = tt_device_stream(other);
    TT_TRY(tt_stream_wait_event(stream, tt_stream_event(others)));
    TT_TRY(device->ops->accelerator->copy_across(device->state, to, other->state, from, bytes));
    return tt_stream_stay_behind(others, tt_stream_event(stream));
}

static tutti_status_t push_with_host(tt_device_t *device, void *to, tt_device_t *other,
                                     const void *from, size_t bytes)
{
    return device != NULL ? tt_device_copy_in(device, to, from, bytes)
                          : tt_device_copy_out(other, to, from, bytes);
}

/* One of the devices is NULL: the host. What is launched already is passed before the copy is:
 * where that takes too long, nothing uses the memory of the host. */
static tutti_status_t copy_with_host(tt_device_t *device, void *to, tt_device_t *other,
                                     const void *from, size_t bytes)
{
    tt_device_t *accelerator = device != NULL ? device : other;
    if (tt_device_streams(accelerator) == NULL) {
        return push_with_host(device, to, other, from, bytes);
    }
    tt_deadline_t deadline;
    const tt_event_t before = tt_stream_event(tt_device_stream(accelerator));
    TT_TRY(tt_device_deadline("copy", 0, &deadline));
    TT_TRY(tt_event_pass(before, deadline));
    TT_TRY(push_with_host(device, to, other, from, bytes));
    const tt_event_t after = tt_stream_event(before.stream);
    const tutti_status_t status = tt_event_pass(after, deadline);
    if (status < 0) {
        (void)tt_event_pass(after, TT_NEVER); /* behind another thread's work: it is in use */
        return status;
    }
    return tt_stream_check(before, after);
}

tutti_status_t tt_device_move(tt_device_t *device, void *to, tt_device_t *other, const void *from,
                              size_t bytes)
{
    if (device == NULL && other == NULL) {
        memcpy(to, from, bytes);
        return TUTTI_OK;
    }
    if (device != NULL && other != NULL) {
        return copy_across(device, to, other, from, bytes);
    }
    return copy_with_host(device, to, other, from, bytes);
}
