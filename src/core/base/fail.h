/* Failing: the function that first knows an error records its text; all others pass the status on.
 *
 *     if (rank >= size) {
 *         return TT_FAIL(TUTTI_ERR_ARG, "rank %d is outside a group of %d", rank, size);
 *     }
 *     TT_TRY(open_store(path));
 */
#ifndef TT_FAIL_H
#define TT_FAIL_H

#include <tutti/status.h>

/* Record a text for this thread and yield `status` (evaluated twice), in a way that tells compiler
 * and analyzer which value it is: no warnings about outputs that only success writes. */
#define TT_FAIL(status, ...) tt_fail_status((status), tt_fail((status), __VA_ARGS__))

/* Like TT_FAIL, with ": <strerror(errno)>" appended. */
#define TT_FAIL_ERRNO(status, ...) tt_fail_status((status), tt_fail_errno((status), __VA_ARGS__))

/* Out of a public call without a handle, or without a place for its result: ARG says which. */
#define TT_WANT(call, argument)                                                                    \
    do {                                                                                           \
        if ((argument) == NULL) {                                                                  \
            return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is NULL", (call), #argument);                    \
        }                                                                                          \
    } while (0)

/* Pass a failure on. */
#define TT_TRY(call)                                                                               \
    do {                                                                                           \
        const tutti_status_t tt_try_status = (call);                                               \
        if (tt_try_status < 0) {                                                                   \
            return tt_try_status;                                                                  \
        }                                                                                          \
    } while (0)

/* Pass a failure on through the cleanup ladder: stores it in `var` and jumps. */
#define TT_TRY_GOTO(var, call, label)                                                              \
    do {                                                                                           \
        (var) = (call);                                                                            \
        if ((var) < 0) {                                                                           \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* Broken invariants of our own, and nothing else: prints and aborts. */
#define TT_ASSERT(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tt_assert_failed(#condition, __FILE__, __LINE__);                                      \
        }                                                                                          \
    } while (0)

enum { TT_ERROR_TEXT_BYTES = 1024 };

__attribute__((format(printf, 2, 3))) tutti_status_t tt_fail(tutti_status_t status,
                                                             const char *format, ...);
__attribute__((format(printf, 2, 3))) tutti_status_t tt_fail_errno(tutti_status_t status,
                                                                   const char *format, ...);
__attribute__((noreturn)) void tt_assert_failed(const char *condition, const char *file, int line);

static inline tutti_status_t tt_fail_status(tutti_status_t status, tutti_status_t recorded)
{
    (void)recorded;
    return status;
}

/* Carry a failure from one thread (or an object that kept it) to the calling thread. */
tutti_status_t tt_fail_again(tutti_status_t status, const char *text);

#endif
