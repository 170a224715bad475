/* Windows of files that hold elements of one size behind each other: bytes of text, tokens. A
 * window is `length` elements, its target the same one element further on; windows begin every
 * `stride` elements and do not cross from file to file. They are read when they are asked for.
 */
#ifndef TT_WINDOWS_H
#define TT_WINDOWS_H

#include <tutti/data.h>

#include "core/base/file.h"

typedef struct {
    tt_file_t file;
    uint64_t offset;        /* of the first element, bytes */
    int64_t windows, first; /* first: the number of its first window among all */
} tt_window_file_t;

typedef struct {
    tt_window_file_t *files;
    int file_count;
    int64_t length, stride;
    size_t element_bytes;
} tt_windows_t;

/* `length` at least 1, `stride` at least 0; 0 becomes the length. `kind` stands in messages. */
tutti_status_t tt_windows_begin(tt_windows_t *w, const char *kind, int64_t length, int64_t stride);

/* Add a file, which is taken over in any case, whose `count` elements begin at `offset`. */
tutti_status_t tt_windows_add(tt_windows_t *w, tt_file_t *file, uint64_t offset, int64_t count);

/* All windows of all files. ARG if there is none: says how much was there and what is needed. */
tutti_status_t tt_windows_count(const tt_windows_t *w, const char *kind, int64_t *out);

/* The length + 1 elements of a window, in the file's own form. */
tutti_status_t tt_windows_read(const tt_windows_t *w, int64_t index, void *to);

void tt_windows_end(tt_windows_t *w);

#endif
