/**
 * @file devices.h
 * Devices: where tensors lie and operations are computed. Several may be open in a process.
 *
 *     cpu        the host's memory and threads
 *     strict:N   a virtual accelerator of this process, for finding on a laptop what a cluster of
 *                GPUs would find: memory that the host may not touch, kernels and copies that run
 *                later, in order, on a stream
 *     meta       no memory at all: shapes and dtypes of whatever is computed, at no cost
 *
 * An operation is computed where its inputs lie; inputs on two devices are an error that names
 * both. What has no inputs (tutti_zeros(), parameters) lies on the context's device. Launching does
 * not wait, unless 1 MiB of launches is not done (TIMEOUT, where it stays so); reading to the host
 * does (tutti_tensor_item(), tutti_tensor_copy() to the host). What an operation's values decide,
 * such as an index outside, is told by each read of what is lost by it, on any thread; the work
 * behind it is skipped until tutti_device_synchronize() has told it.
 *
 * Example:
 *
 *     tutti_device_t *device;
 *     TUTTI_CHECK(tutti_device_open("strict:0", NULL, &device));
 *     tutti_context_t *ctx;
 *     TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.device = device}, &ctx));
 *     tutti_scope_t *s;
 *     TUTTI_CHECK(tutti_scope_open(ctx, &s));
 *     tutti_tensor_t *y = tutti_exp(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3)));
 *     tutti_tensor_t *host = tutti_tensor_to(s, y, NULL);            // waits
 *     printf("%g\n", ((const float *)tutti_tensor_data(host))[0]);
 *     TUTTI_CHECK(tutti_scope_close(s));
 *     tutti_context_release(ctx);
 *     tutti_device_release(device);
 */
#ifndef TUTTI_DEVICES_H
#define TUTTI_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/context.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a virtual device has and costs; zeros are defaults. */
typedef struct tutti_device_options {
    int64_t memory_bytes;     /**< strict: 0: 64 GiB, as far as the system has them */
    int64_t launch_ns;        /**< strict: a kernel takes at least so long; 0: as long as it does */
    int64_t copy_bytes_per_s; /**< strict: of copies; 0: as many as the host copies */
    int threads;              /**< strict: that kernels run with; 0: those of a context */
} tutti_device_options_t;

/**
 * Open a device, or share the one of that name that is open in this process.
 *
 * @param name     "cpu", "strict:0" ("strict" is the same), "meta"
 * @param options  borrowed; NULL: defaults, or whatever the open one has
 * @param out      owned by the caller, to be released with tutti_device_release
 * @thread         any
 * @errors         ARG (there is no such device: names those that there are), STATE (it is open with
 *                 other options), NOMEM, IO (a thread cannot be started)
 * @source         torch.device
 */
TUTTI_API tutti_status_t tutti_device_open(const char *name, const tutti_device_options_t *options,
                                           tutti_device_t **out);

/** Share a device. @thread any @errors none */
TUTTI_API tutti_device_t *tutti_device_retain(tutti_device_t *device);

/** Give a device back; NULL does nothing. It closes, when its tensors are gone, too. @thread any
 *  @errors none (a failure of its work that nobody was told of is logged) */
TUTTI_API void tutti_device_release(tutti_device_t *device);

/** "strict:0". @return borrowed @thread any @errors none */
TUTTI_API const char *tutti_device_name(const tutti_device_t *device);

typedef struct {
    uint64_t launches;     /**< kernels, since it was opened */
    uint64_t copied_bytes; /**< to it, from it and within pairs of devices */
    size_t live_bytes;     /**< of tensors now, as the device rounds them */
    size_t peak_bytes;     /**< the most that were live at once */
} tutti_device_stats_t;

/** What was done on it. @thread any @errors none @source torch.cuda.memory_stats */
TUTTI_API tutti_device_stats_t tutti_device_stats(tutti_device_t *device);

/** Wait until all that was launched on it is done. It alone ends what a failure began: the work
 *  behind that is skipped until then, and what is launched from now on is done. A group whose call
 *  failed with it stays given up (group.h). @thread any
 *  @param timeout_ms  0: TUTTI_TIMEOUT_MS; of all its streams
 *  @errors  ARG (timeout_ms), TIMEOUT; the first failure of its work since it was synchronized
 *           last, with the operation, once, to all that wait at that time; STATE (it was opened
 *           before fork())
 *  @source torch.cuda.synchronize */
TUTTI_API tutti_status_t tutti_device_synchronize(tutti_device_t *device, int64_t timeout_ms);

/* ---- streams and events -------------------------------------------------------------------- */

/* Work of a device is done in the order in which its stream was given it. A device has a stream
 * of its own; others beside it let a copy and a kernel, or two kernels, overlap. Who uses on
 * one stream what another one makes puts an event between them; reads to the host wait for this
 * thread's stream alone. Memory needs no care: what is released while a device has several
 * streams is used again when all of them are past what they had been given by then.
 *
 * The host's stream, and those of "cpu" and "meta", is NULL: what is launched there is done at
 * once, and so are its events. A stream whose device has closed takes no more work: STATE.
 *
 * Example:
 *
 *     static tutti_status_t fetch(tutti_device_t *device, tutti_stream_t *copies,
 *                                 tutti_event_t *here, tutti_tensor_t *to, tutti_tensor_t *pinned)
 *     {
 *         TUTTI_CHECK(tutti_device_set_stream(device, copies));
 *         tutti_status_t status = tutti_tensor_copy(to, pinned); // while the other stream computes
 *         if (status >= 0) {
 *             status = tutti_event_record(here, copies);
 *         }
 *         TUTTI_CHECK(tutti_device_set_stream(device, NULL));
 *         TUTTI_CHECK(status);
 *         return tutti_stream_wait_event(tutti_device_stream(device), here);
 *     }
 */

/** An order of work on a device. */
typedef struct tutti_stream tutti_stream_t;

/** A point in a stream, and when it was passed. */
typedef struct tutti_event tutti_event_t;

/** A stream beside the device's own: it begins behind what that one has been given, with threads of
 *  its own for kernels and the device's costs. It does not keep the device open.
 *  @param device  NULL: the host
 *  @param out     owned by the caller, to be released with tutti_stream_release; NULL where
 *                 everything is done at once
 *  @thread any @errors NOMEM, IO (a thread cannot be started), UNSUPPORTED (31 are in use), STATE
 *  (the device was opened before fork()) @source torch.cuda.Stream */
TUTTI_API tutti_status_t tutti_stream_create(tutti_device_t *device, tutti_stream_t **out);

/** Give a stream back; NULL does nothing. Its work is done still; then it may be given to who
 *  creates one. @thread any @errors none */
TUTTI_API void tutti_stream_release(tutti_stream_t *stream);

/** Where the calling thread's work on a device goes from now on: operations, copies, backward,
 *  collectives. Each thread begins with the device's own stream. DataParallel wants that one in the
 *  caller, too.
 *  @param stream  of that device; NULL: its own
 *  @thread any @errors ARG (it is another device's), STATE (its device has closed)
 *  @source torch.cuda.set_stream */
TUTTI_API tutti_status_t tutti_device_set_stream(tutti_device_t *device, tutti_stream_t *stream);

/** The stream of the calling thread. @return borrowed; NULL where everything is done at once
 *  @thread any @errors none @source torch.cuda.current_stream */
TUTTI_API tutti_stream_t *tutti_device_stream(tutti_device_t *device);

/** What the stream is given from now on begins when an event of any stream has been passed. The
 *  caller does not wait, unless the stream is NULL. What failed before the event fails here, too.
 *  @param event  one that was not recorded: nothing happens
 *  @thread any
 *  @errors  STATE (the stream's device has closed; fork()), TIMEOUT (as of a launch); where the
 *           stream is NULL those of tutti_event_synchronize()
 *  @source  torch.cuda.Stream.wait_event */
TUTTI_API tutti_status_t tutti_stream_wait_event(tutti_stream_t *stream, tutti_event_t *event);

/** Wait until all that a stream was given is done. @param timeout_ms 0: TUTTI_TIMEOUT_MS
 *  @thread any @errors those of tutti_event_synchronize(); STATE (its device has closed)
 *  @source torch.cuda.Stream.synchronize */
TUTTI_API tutti_status_t tutti_stream_synchronize(tutti_stream_t *stream, int64_t timeout_ms);

/** An event that is recorded nowhere. @param out owned by the caller, to be released with
 *  tutti_event_release @thread any @errors NOMEM @source torch.cuda.Event */
TUTTI_API tutti_status_t tutti_event_create(tutti_event_t **out);

/** Share an event. @thread any @errors none */
TUTTI_API tutti_event_t *tutti_event_retain(tutti_event_t *event);

/** Give an event back; NULL does nothing. @thread any @errors none */
TUTTI_API void tutti_event_release(tutti_event_t *event);

/** Put the event behind all that a stream was given. Those who wait for it where it was recorded
 *  before go on to wait for that. @param stream NULL: it is passed at once @thread any
 *  @errors NOMEM, STATE (the stream's device has closed; fork()), TIMEOUT (as of a launch)
 *  @source torch.cuda.Event.record */
TUTTI_API tutti_status_t tutti_event_record(tutti_event_t *event, tutti_stream_t *stream);

/** Whether it has been passed, or was not recorded. @thread any @errors none
 *  @source torch.cuda.Event.query */
TUTTI_API bool tutti_event_is_done(tutti_event_t *event);

/** Wait until the event has been passed; also when its device has closed.
 *  @param timeout_ms  0: TUTTI_TIMEOUT_MS
 *  @thread any
 *  @errors  ARG (timeout_ms), TIMEOUT, STATE (fork()); the failure for which what is before the
 *           event was not done, which tutti_device_synchronize() ends
 *  @source torch.cuda.Event.synchronize */
TUTTI_API tutti_status_t tutti_event_synchronize(tutti_event_t *event, int64_t timeout_ms);

/** Nanoseconds from when a stream passed an event to when one passed another.
 *  @param out  negative where the end came first
 *  @thread any @errors STATE (one has not been recorded, or not been passed)
 *  @source torch.cuda.Event.elapsed_time */
TUTTI_API tutti_status_t tutti_event_elapsed_ns(tutti_event_t *begin, tutti_event_t *end,
                                                int64_t *out);

/* ---- tensors and modules --------------------------------------------------------------------- */

typedef struct tutti_module tutti_module_t; /* nn.h */

/** Where a tensor lies. @return borrowed; NULL: the host's memory @thread any @errors none */
TUTTI_API tutti_device_t *tutti_tensor_device(const tutti_tensor_t *x);

/** The tensor on a device (NULL: the host): x itself if it lies there. Copies to the host wait, and
 *  so do those of memory of the host that is not pinned. Its gradient is copied back.
 *  @thread the scope's @errors NOMEM; those that wait: TIMEOUT, STATE, a failure of the device's
 *  work, which tutti_device_synchronize() ends
 *  @source torch.Tensor.to */
TUTTI_API tutti_tensor_t *tutti_tensor_to(tutti_scope_t *s, tutti_tensor_t *x,
                                          tutti_device_t *device);

/**
 * Pin the memory under a tensor of the host: copies between it and a device return at once from now
 * on, and who reads or writes it on the host calls tutti_device_synchronize() before. Memory that
 * the tensor owns stays until such copies are done, also where the tensor is released; what
 * tutti_tensor_wrap() was given must stay, too. A copy to a pinned tensor waits if that is not
 * contiguous.
 *
 * @param x  all tensors over its memory are pinned with it
 * @thread   one at a time per tensor
 * @errors   ARG (it lies on a device), STATE, NOMEM
 * @source   torch.Tensor.pin_memory, with non_blocking=True; cudaHostRegister
 */
TUTTI_API tutti_status_t tutti_tensor_pin(tutti_tensor_t *x);

/** Whether it is pinned. @thread any @errors none @source torch.Tensor.is_pinned */
TUTTI_API bool tutti_tensor_is_pinned(const tutti_tensor_t *x);

/**
 * Move the parameters, their gradients and the buffers of a module to a device, in place: tensors
 * stay themselves, with their names, hooks and marks, also where one has two names.
 *
 * An optimizer's moments stay where they were: make it behind the move, or load into it what it
 * saved before. Move before DDP wraps the module, and not between a forward and its backward.
 *
 * @param device  retained by the tensors; NULL: the host
 * @thread        the context's
 * @errors        NOMEM, STATE (a parameter is not in memory), those of tutti_tensor_to();
 *                nothing is changed then
 * @source        torch.nn.Module.to
 */
TUTTI_API tutti_status_t tutti_module_to(tutti_module_t *m, tutti_device_t *device);

/**
 * Give a tensor on meta memory, and the values that its initializer makes: those that it would have
 * had, to the bit, if it had been made on a device that has memory. For a parameter this is the
 * initial value with which it was made, or the last tutti_init_*() call on it; for other tensors
 * zeros and constants. The tensor stays the same one; its gradient is forgotten. One that does not
 * lie on meta is left as it is.
 *
 * @param x       contiguous, and no part of another tensor
 * @param device  NULL: the host's memory
 * @thread        the context's
 * @cost          the tensor's memory; where it was cast, that of both dtypes for a moment; as a
 *                f64 copy for tutti_init_orthogonal()
 * @errors        ARG (a part; the device is meta), STATE (no initializer is known, or it was
 *                written since), NOMEM; the tensor stays on meta then
 * @source        torch.Tensor.to_empty, torchdistx's materialize_tensor
 */
TUTTI_API tutti_status_t tutti_tensor_materialize(tutti_context_t *ctx, tutti_tensor_t *x,
                                                  tutti_device_t *device);

/** The address of the first element in its device's memory, for work that runs there. On a strict
 *  device the host crashes (SIGSEGV) where it uses it. @thread any @errors none
 *  @source torch.Tensor.data_ptr */
TUTTI_API void *tutti_tensor_device_data(const tutti_tensor_t *x);

/** The device where tensors without inputs are made. @return borrowed; NULL: the host's memory
 *  @thread owner @errors none */
TUTTI_API tutti_device_t *tutti_context_device(const tutti_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
