/**
 * @file status.h
 * What every call that can fail returns, and where the text of the last failure is.
 *
 * Example:
 *
 *     tutti_status_t train(tutti_group_t *world)
 *     {
 *         TUTTI_CHECK(tutti_barrier(world, NULL));
 *         return TUTTI_OK;
 *     }
 *
 *     if (train(world) < 0) {
 *         fprintf(stderr, "%s\n", tutti_last_error());
 *     }
 *
 * A call without the object that it is of (a module, an optimizer, a data loader, DDP, a group) is
 * TUTTI_ERR_ARG and says which argument is NULL.
 */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/** Marks what the shared library exports. Only `tutti_` symbols carry it. */
#define TUTTI_API __attribute__((visibility("default")))

/** Every status: X(name, value, text). Negative is a failure, positive is "not an error". */
#define TUTTI_STATUS_LIST(X)                                                                       \
    X(TUTTI_OK, 0, "done")                                                                         \
    X(TUTTI_END, 1, "nothing left")                                                                \
    X(TUTTI_PENDING, 2, "still under way")                                                         \
    X(TUTTI_NONMEMBER, 3, "not a member of the group")                                             \
    X(TUTTI_ERR_ARG, -1, "invalid argument")                                                       \
    X(TUTTI_ERR_SHAPE, -2, "shapes do not fit")                                                    \
    X(TUTTI_ERR_DTYPE, -3, "dtype does not fit")                                                   \
    X(TUTTI_ERR_UNSUPPORTED, -4, "not supported")                                                  \
    X(TUTTI_ERR_NOMEM, -5, "out of memory")                                                        \
    X(TUTTI_ERR_IO, -6, "input or output failed")                                                  \
    X(TUTTI_ERR_FORMAT, -7, "malformed data")                                                      \
    X(TUTTI_ERR_TIMEOUT, -8, "deadline passed")                                                    \
    X(TUTTI_ERR_PEER, -9, "a peer failed")                                                         \
    X(TUTTI_ERR_ABORTED, -10, "aborted")                                                           \
    X(TUTTI_ERR_MISMATCH, -11, "ranks are in different calls")                                     \
    X(TUTTI_ERR_AUTH, -12, "not authenticated")                                                    \
    X(TUTTI_ERR_STATE, -13, "not possible in this state")                                          \
    X(TUTTI_ERR_NOT_FOUND, -14, "not found")                                                       \
    X(TUTTI_ERR_NUMERIC, -15, "a number is NaN or infinite")

/** 0 done, negative failed, positive "not an error". */
typedef enum tutti_status {
#define X(name, value, text) name = (value),
    TUTTI_STATUS_LIST(X)
#undef X
} tutti_status_t;

/** Return from the enclosing function (which returns tutti_status_t or int) if `call` failed. */
#define TUTTI_CHECK(call)                                                                          \
    do {                                                                                           \
        const tutti_status_t tutti_check_status = (call);                                          \
        if (tutti_check_status < 0) {                                                              \
            return tutti_check_status;                                                             \
        }                                                                                          \
    } while (0)

/**
 * The identifier of a status, such as "TUTTI_ERR_PEER"; "TUTTI_ERR_?" for an unknown value.
 *
 * @thread  any
 * @errors  none
 */
TUTTI_API const char *tutti_status_name(tutti_status_t status);

/**
 * A few words on a status, such as "a peer failed".
 *
 * @thread  any
 * @errors  none
 */
TUTTI_API const char *tutti_status_text(tutti_status_t status);

/**
 * The text of the last failure in the calling thread: what failed, with which values, and what to
 * do about it. Valid until the next failure in this thread; "" if there was none.
 *
 * @thread  any; each thread has its own
 * @errors  none
 */
TUTTI_API const char *tutti_last_error(void);

/**
 * Record the text of a failure of yours, in a function that the library calls: a transform, a data
 * set, a sampler. Name what failed, with which values, and what to do about it.
 *
 * @param status  negative
 * @param format  as printf's; the text is cut at 1023 bytes
 * @return        status, so that `return tutti_fail(TUTTI_ERR_FORMAT, "…", …);` reads well
 * @thread        any; the text is the calling thread's
 * @errors        none
 */
TUTTI_API tutti_status_t tutti_fail(tutti_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

#endif
