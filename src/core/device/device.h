/* Where bytes live. A device hands out memory and takes it back; a tensor's storage keeps a
 * reference to the device its memory came from, so that a device outlives what it gave.
 *
 *     tt_device_t *cpu;
 *     TT_TRY(tt_device_open(&tt_device_cpu, NULL, &cpu));
 *     void *memory = tt_device_alloc(cpu, bytes, "activation");
 *     …
 *     tt_device_free(cpu, memory, bytes);
 *     tutti_device_release(cpu);
 *
 * Adding a device: one file with a tt_device_ops_t, one line in devices.def.
 */
#ifndef TT_DEVICE_H
#define TT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/devices.h>

#include "core/base/fail.h"
#include "core/exec/exec.h"
#include "core/device/streams.h"
#include "core/exec/stream.h"

typedef struct tutti_device tt_device_t;

typedef struct {
    size_t live_bytes;               /* handed out now, rounded up as the device rounds */
    size_t cached_bytes;             /* kept for reuse */
    size_t peak_bytes;               /* the most that was live at once */
    size_t requests;                 /* calls of alloc */
    size_t misses;                   /* those that had to ask the system */
    uint64_t launches, copied_bytes; /* of an accelerator, since it was opened */
} tt_device_stats_t;

/* What a device adds whose memory the host does not read and write itself, and which runs kernels
 * later. The host's side of a copy stays as it is, and is not freed, until an event behind it is
 * done. Errors: ARG (not memory of the device), STATE (forked). */
typedef struct {
    tt_exec_t *(*exec)(void *state); /* borrowed: where its kernels are launched */
    /* Borrowed: they and the copies run on the caller's current one. NULL: nothing runs, for its
     * memory has no values, copies to it do nothing, and those from it fail. */
    tt_streams_t *(*streams)(void *state);
    tutti_status_t (*copy_in)(void *state, void *to, const void *host, size_t bytes);
    tutti_status_t (*copy_out)(void *state, void *host, const void *from, size_t bytes);
    /* From another device of the same kind, whose memory is not used again before. */
    tutti_status_t (*copy_across)(void *state, void *to, void *other, const void *from,
                                  size_t bytes);
    /* Where the host may use it as work of a stream that waits for the device's; NULL: nowhere. */
    void *(*host_view)(void *state, void *memory);
    /* Nothing is computed there, and copies are done when they return: it has values and no
     * streams. New memory is zeros. */
    bool is_store;
} tt_accelerator_ops_t;

/* The contract. The core allocates `state_bytes` of zeroed state. All functions but open and close
 * may be called by any thread; none blocks on anything but a short lock. */
typedef struct {
    const char *name, *about;
    size_t state_bytes;

    /* `options` belongs to the device's own header; NULL means defaults. On failure nothing is
     * left to close. */
    tutti_status_t (*open)(void *state, const void *options);

    /* Everything handed out has come back. */
    void (*close)(void *state);

    /* At least `bytes` (0 is allowed), 64-byte aligned, not zeroed. NULL: out of memory, the error
     * is recorded. `what` is a literal that names the use. */
    void *(*alloc)(void *state, size_t bytes, const char *what);

    /* `bytes` as given to alloc. */
    void (*free)(void *state, void *memory, size_t bytes);

    tt_device_stats_t (*stats)(void *state);

    /* So many bytes more (negative: less) of what is freed stay here, for they will be asked for
     * again. NULL: the device goes by what it sees. */
    void (*keep)(void *state, int64_t bytes);

    const tt_accelerator_ops_t *accelerator; /* NULL: its memory is the host's */

    /* For tutti_device_open(): "name:index". NULL: the library alone opens it. */
    tutti_status_t (*open_named)(int index, const tutti_device_options_t *options,
                                 tt_device_t **out);
    bool is_numbered; /* there may be several: "name:0", "name:1" */
} tt_device_ops_t;

/* Every device there is, from devices.def; the end is NULL. */
extern const tt_device_ops_t *const tt_devices[];

#define X(name) extern const tt_device_ops_t tt_device_##name;
#include "core/device/devices.def"
#undef X

tutti_status_t tt_device_open(const tt_device_ops_t *ops, const void *options, tt_device_t **out);

void *tt_device_state(tt_device_t *device);

/* The one of that name which is open in this process, or a new one. Its name is "kind:index", or
 * that of its kind. Errors: as tutti_device_open(). */
tutti_status_t tt_device_share(const tt_device_ops_t *ops, int index,
                               const tutti_device_options_t *options, tt_device_t **out);

/* As in the contract; alloc retains the device and free releases it. */
void *tt_device_alloc(tt_device_t *device, size_t bytes, const char *what);
void tt_device_free(tt_device_t *device, void *memory, size_t bytes);

tt_device_stats_t tt_device_stats(tt_device_t *device);

/* As in the contract, for blocks that come and go: until the same bytes are taken back. */
void tt_device_keep(tt_device_t *device, int64_t bytes);

/* Whether the host does not use its memory itself. */
bool tt_device_is_accelerator(const tt_device_t *device);

/* Whether its memory holds values: all but meta's. NULL: the host's does. */
bool tt_device_has_values(const tt_device_t *device);

/* Whether its memory only keeps values, and new memory is zeros. NULL: it is the host's. */
bool tt_device_is_store(const tt_device_t *device);

/* Where kernels on its memory are launched. NULL, which tt_launch() takes: in the caller. */
tt_exec_t *tt_device_exec(tt_device_t *device);

/* NULL: everything is done at once, as by the host (device NULL). */
tt_streams_t *tt_device_streams(tt_device_t *device);

/* Of an accelerator: the calling thread's stream, and as in the contract. */
tt_stream_t *tt_device_stream(tt_device_t *device);
void *tt_device_host_view(tt_device_t *device, void *memory);

/* In the order of launches; at once where the memory is the host's. Errors as in the contract. */
tutti_status_t tt_device_copy_in(tt_device_t *device, void *to, const void *host, size_t bytes);
tutti_status_t tt_device_copy_out(tt_device_t *device, void *host, const void *from, size_t bytes);

/* Bytes from one device to another; NULL: the host's memory. Waits where the host is one of them:
 * the caller may use and free its memory then. Errors: TIMEOUT (TUTTI_TIMEOUT_MS); the failure for
 * which what it waited for is lost, which stays until somebody synchronizes; STATE (forked);
 * UNSUPPORTED (two kinds of accelerators). */
tutti_status_t tt_device_move(tt_device_t *device, void *to, tt_device_t *other, const void *from,
                              size_t bytes);

/* Calls release(object) behind all that the caller's stream was given, also where that failed.
 * Errors: STATE (forked); it is not called then. */
tutti_status_t tt_device_push_release(tt_device_t *device, void (*release)(void *object),
                                      void *object);

/* What the caller's stream was given until now; without a stream, where nothing runs later. NULL:
 * the host. */
tt_event_t tt_device_event(tt_device_t *device);

/* Until all that its stream was given since an event is done. A failure stays. Errors: TIMEOUT; the
 * failure for which some of it was not. */
tutti_status_t tt_device_check_since(tt_event_t before);

/* 0: TUTTI_TIMEOUT_MS. Errors: ARG (it is negative: names the call). */
tutti_status_t tt_device_deadline(const char *call, int64_t timeout_ms, tt_deadline_t *out);

/* Until all that was launched is done, on all streams. It alone ends the skipping behind a failure.
 * Errors: those of tt_event_wait(). */
tutti_status_t tt_device_synchronize(tt_device_t *device, tt_deadline_t deadline);

#endif
