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
 * not wait; reading to the host does (tutti_tensor_item(), tutti_tensor_copy() to the host). What
 * an operation's values decide, such as an index outside, is told by each read of what is lost by
 * it, on any thread; the work behind it is skipped until tutti_device_synchronize() has told it.
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
 *  behind that is skipped until then, and what is launched from now on is done. @thread any
 *  @param timeout_ms  0: TUTTI_TIMEOUT_MS
 *  @errors  TIMEOUT; the first failure of its work since it was synchronized last, with the
 *           operation, once, to all that wait at that time; STATE (it was opened before fork())
 *  @source torch.cuda.synchronize */
TUTTI_API tutti_status_t tutti_device_synchronize(tutti_device_t *device, int64_t timeout_ms);

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
 * @errors   ARG (it lies on a device), STATE
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
