/* Status names, and the text of each thread's last failure. */
#include "core/base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/reals.h"

static _Thread_local char last_error[TT_ERROR_TEXT_BYTES];

const char *tutti_status_name(tutti_status_t status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return #name;
        TUTTI_STATUS_LIST(X)
#undef X
    }
    return "TUTTI_ERR_?";
}

const char *tutti_status_text(tutti_status_t status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        TUTTI_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *tutti_last_error(void)
{
    return last_error;
}

/* Formats into a buffer of its own first: an argument may be the last error itself. */
__attribute__((format(printf, 2, 0))) static void record(const char *suffix, const char *format,
                                                         va_list args)
{
    char text[TT_ERROR_TEXT_BYTES];
    const int written = tt_format_list(text, sizeof text, format, args);
    const size_t length = written < 0 ? 0 : (size_t)written;
    if (length < sizeof text - 1) {
        snprintf(text + length, sizeof text - length, "%s%s", *suffix ? ": " : "", suffix);
    }
    memcpy(last_error, text, sizeof text);
}

tutti_status_t tutti_fail(tutti_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record("", format, args);
    va_end(args);
    return status;
}

tutti_status_t tt_fail(tutti_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record("", format, args);
    va_end(args);
    return status;
}

tutti_status_t tt_fail_errno(tutti_status_t status, const char *format, ...)
{
    char room[128];
    const char *cause = strerror_r(errno, room, sizeof room); /* GNU's, which returns the text */
    va_list args;
    va_start(args, format);
    record(cause, format, args);
    va_end(args);
    return status;
}

tutti_status_t tt_fail_again(tutti_status_t status, const char *text)
{
    return tt_fail(status, "%s", text);
}

void tt_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "tutti: broken invariant: %s (%s:%d)\n", condition, file, line);
    abort();
}
