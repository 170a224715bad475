/* Where a test's tensors lie. TUTTI_TEST_DEVICE names it ("strict:0"); unset: on the host. CMake
 * runs the conformance suites twice, the second time on the strict device (cmake/tests.cmake).
 *
 *     assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
 *     …
 *     const float *values = tt_test_host(x);
 *
 * For *_test.c only.
 */
#ifndef TT_DEVICE_TESTING_H
#define TT_DEVICE_TESTING_H

#include <stdlib.h>

#include <tutti/context.h>
#include <tutti/devices.h>
#include <tutti/tensor.h>

#include "core/base/draw_testing.h"
#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"

/* The device's name; NULL: the host. */
static inline const char *tt_test_device(void)
{
    return getenv("TUTTI_TEST_DEVICE");
}

/* A context whose home is a device of that name; NULL: the host. It alone keeps the device open. */
static inline tutti_status_t tt_test_context_on(const char *device,
                                                const tutti_context_options_t *options,
                                                tutti_context_t **out)
{
    tutti_context_options_t own = options == NULL ? (tutti_context_options_t){0} : *options;
    if (device != NULL) {
        TT_TRY(tutti_device_open(device, NULL, &own.device));
    }
    const tutti_status_t status = tutti_context_create(&own, out);
    tutti_device_release(own.device);
    return status;
}

static inline tutti_status_t tt_test_context(const tutti_context_options_t *options,
                                             tutti_context_t **out)
{
    return tt_test_context_on(tt_test_device(), options, out);
}

/* A tensor that the caller owns, of zeros. */
static inline tutti_status_t tt_test_tensor(tutti_dtype_t dtype, tutti_shape_t shape,
                                            tutti_tensor_t **out)
{
    tutti_device_t *device = NULL;
    if (tt_test_device() == NULL) {
        return tutti_tensor_create(dtype, shape, out);
    }
    TT_TRY(tutti_device_open(tt_test_device(), NULL, &device));
    const tutti_status_t status = tt_tensor_new(device, dtype, shape, true, out);
    tutti_device_release(device);
    return status;
}

/* The tensor itself, or a copy on the host that belongs to the scope. */
static inline tutti_tensor_t *tt_test_read(tutti_scope_t *s, tutti_tensor_t *x)
{
    return x == NULL ? NULL : tutti_tensor_to(s, x, NULL);
}

/* A tensor's values, to be read: on the host where they lie, else a contiguous copy, of which the
 * last 8 are kept. */
static inline const void *tt_test_host(const tutti_tensor_t *x)
{
    static void *copies[8];
    static size_t next;
    if (x == NULL || x->storage == NULL || x->storage->device == NULL) {
        return tutti_tensor_data(x);
    }
    void **copy = &copies[next++ % 8];
    *copy = realloc(*copy, tutti_tensor_bytes(x) + 1);
    assert_non_null(*copy);
    assert_int_equal(tt_tensor_read(x, *copy), TUTTI_OK);
    return *copy;
}

/* For a test whose claim is about the host: it counts allocations, or lets each fail in turn, and
 * on a device a kernel's fails later. */
static inline void tt_test_host_only(void)
{
    if (tt_test_device() != NULL) {
        skip();
    }
}

/* What data decide is told by the one who waits: OK, or a failure of work under way. */
static inline tutti_status_t tt_test_wait(const tutti_context_t *ctx)
{
    tutti_device_t *device = tutti_context_device(ctx);
    return device == NULL ? TUTTI_OK : tutti_device_synchronize(device, 0);
}

static inline tutti_status_t tt_test_run_failure(tt_threads_t *threads, const void *arguments)
{
    (void)threads;
    (void)arguments;
    return TT_FAIL(TUTTI_ERR_ARG, "it fails");
}

/* A kernel that fails, "strict:0: failure: it fails": what is launched behind it is skipped. */
static inline void tt_test_fail_on(tutti_device_t *device)
{
    static const tt_pointer_t pointers[] = {TT_NO_POINTER};
    static const tt_kernel_t failure = TT_KERNEL("failure", int, tt_test_run_failure, pointers);
    assert_int_equal(tt_launch(tt_device_exec(device), &failure, &(int){0}), TUTTI_OK);
}

#endif
