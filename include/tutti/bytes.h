/**
 * @file bytes.h
 * Bytes that another object owns (a view), and bytes that you own (a buffer).
 *
 * Example:
 *
 *     tutti_buffer_t name;
 *     TUTTI_CHECK(tutti_store_get(store, tutti_text("name"), 0, &name));
 *     printf("%.*s\n", (int)name.bytes, (const char *)name.data);
 *     tutti_buffer_release(&name);
 */
#ifndef TUTTI_BYTES_H
#define TUTTI_BYTES_H

#include <stddef.h>
#include <string.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A view; borrowed. `data` may be NULL when `bytes` is 0. */
typedef struct tutti_bytes {
    const void *data;
    size_t bytes;
} tutti_bytes_t;

/**
 * Owned by the receiver. A zero byte follows the `bytes` bytes, so that a text can be used as a C
 * string.
 */
typedef struct tutti_buffer {
    void *data;
    size_t bytes;
} tutti_buffer_t;

/** A view of a C string, without its closing 0. @thread any @errors none */
static inline tutti_bytes_t tutti_text(const char *text)
{
    const tutti_bytes_t view = {text, strlen(text)};
    return view;
}

/** A view of any memory. @thread any @errors none */
static inline tutti_bytes_t tutti_bytes_of(const void *data, size_t bytes)
{
    const tutti_bytes_t view = {data, bytes};
    return view;
}

/** Free what the buffer owns and leave it empty; an empty one or NULL is fine. @thread any @errors
 * none */
TUTTI_API void tutti_buffer_release(tutti_buffer_t *buffer);

#ifdef __cplusplus
}
#endif

#endif
