/* Where kernels run: in the caller, with the threads of its context, or later, on a stream of a
 * device.
 *
 *     typedef struct {
 *         tt_strided_t out, x;
 *         double factor;
 *     } scale_t;
 *
 *     static tutti_status_t run_scale(tt_threads_t *threads, const void *arguments) { … }
 *
 *     static const tt_pointer_t pointers[] = {TT_POINTER(scale_t, out.data),
 *                                             TT_POINTER(scale_t, x.data), TT_NO_POINTER};
 *     static const tt_kernel_t scale = TT_KERNEL("scale", scale_t, run_scale, pointers);
 *
 *     TT_TRY(tt_launch(exec, &scale, &(scale_t){*out, *x, factor}));
 *
 * Arguments are one struct: operands and numbers by value, pointers to memory of the device, and
 * nothing else that points anywhere. So a device can copy them and run the kernel later, see
 * whether the memory is its own, and give the kernel other addresses of it.
 */
#ifndef TT_EXEC_H
#define TT_EXEC_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/fail.h"
#include "core/base/threads.h"

/* Which of a kernel's arguments is a pointer to memory of the device. It may be NULL. */
typedef struct {
    const char *name; /* NULL: the list ends */
    size_t offset;
} tt_pointer_t;

#define TT_POINTER(type, member)                                                                   \
    {                                                                                              \
        .name = #member, .offset = offsetof(type, member)                                          \
    }
#define TT_NO_POINTER                                                                              \
    {                                                                                              \
        .name = NULL                                                                               \
    }

typedef struct {
    const char *name; /* in failures and counts */
    size_t bytes;     /* of the arguments */

    /* What it does on a CPU: with the threads, or in the caller alone (NULL). Its failures are
     * those that the operands' values decide, and lack of scratch memory: what shapes and dtypes
     * decide has been checked by who launches it. */
    tutti_status_t (*run)(tt_threads_t *threads, const void *arguments);

    const tt_pointer_t *pointers; /* ended by TT_NO_POINTER */

    /* It is not skipped behind a failure: what it makes does not depend on what was lost, and lasts
     * longer than the skipping (the first value of a state). */
    bool is_always;
} tt_kernel_t;

#define TT_KERNEL(title, type, does, list)                                                         \
    {                                                                                              \
        .name = title, .bytes = sizeof(type), .run = does, .pointers = list                        \
    }

/* One that is not skipped. */
#define TT_KERNEL_ALWAYS(title, type, does, list)                                                  \
    {                                                                                              \
        .name = title, .bytes = sizeof(type), .run = does, .pointers = list, .is_always = true     \
    }

typedef struct tt_exec {
    tt_threads_t *threads; /* NULL: the caller alone */

    /* Of a device that runs kernels later. NULL: they run in the caller, at once. */
    tutti_status_t (*launch)(struct tt_exec *exec, const tt_kernel_t *kernel,
                             const void *arguments);
    void *device; /* whose launch it is */
} tt_exec_t;

/* Run a kernel, or hand it over to be run: in the order of launches. The arguments are copied where
 * it runs later. exec NULL: in the caller, at once.
 * Errors: those of run, if it runs at once; of the device (ARG: a pointer is not its memory). Cost:
 * that of run; on a stream about 0.2 us. */
static inline tutti_status_t tt_launch(tt_exec_t *exec, const tt_kernel_t *kernel,
                                       const void *arguments)
{
    if (exec != NULL && exec->launch != NULL) {
        return exec->launch(exec, kernel, arguments);
    }
    return kernel->run(exec == NULL ? NULL : exec->threads, arguments);
}

/* The entry of a kernel that takes no more than its arguments. */
#define TT_LAUNCHER(entry, title, type, does, list)                                                \
    tutti_status_t entry(tt_exec_t *exec, const type *arguments)                                   \
    {                                                                                              \
        static const tt_kernel_t kernel = TT_KERNEL(title, type, does, list);                      \
        return tt_launch(exec, &kernel, arguments);                                                \
    }

/* A kernel's entry: its launch must not be forgotten. */
#define TT_LAUNCHES __attribute__((warn_unused_result))

#endif
