/* Files: reading at offsets, and writing so that a reader finds the old content or the new one,
 * never a half.
 *
 *     tt_new_file_t f;
 *     TT_TRY(tt_new_file_begin("model.safetensors", &f));
 *     tutti_status_t status = tt_new_file_write(&f, data, bytes);
 *     status = tt_new_file_end(&f, status);  // under its name, on the disk; or as if never begun
 */
#ifndef TT_FILE_H
#define TT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

/* A file that is read, on disk or in memory. */
typedef struct {
    int fd;             /* -1: in memory */
    const char *memory; /* borrowed */
    char *path;         /* for messages */
    uint64_t bytes;
} tt_file_t;

/* Open a regular file. IO names the path; NOMEM. */
tutti_status_t tt_file_open(const char *path, tt_file_t *out);

/* The same over borrowed memory; `name` stands for the path. */
tutti_status_t tt_file_open_memory(const char *name, const void *data, size_t bytes,
                                   tt_file_t *out);

void tt_file_close(tt_file_t *file);

/* Exactly `bytes` from `offset`. FORMAT names path, offset, and what was there, if it is cut. */
tutti_status_t tt_file_read_at(const tt_file_t *file, uint64_t offset, void *to, size_t bytes);

/* What can be read of a small file, such as those of /proc, with a 0 behind it, in `bytes`. Returns
 * its length; 0: it cannot be read. */
size_t tt_file_text(const char *path, char *text, size_t bytes);

/* A new descriptor where no standard stream is, even if the program has closed those: they are
 * replaced in children. -1, and errno, if `fd` is -1 or there is no other; `fd` is then closed. */
int tt_file_lift(int fd);

/* ftruncate. Above the process's limit it is EFBIG, and no signal. */
int tt_file_resize(int fd, size_t bytes);

/* fallocate: the disk has room for bytes [from, to) from now on. Above the process's limit it is
 * EFBIG, and no signal; EOPNOTSUPP: the file system cannot. */
int tt_file_reserve(int fd, uint64_t from, uint64_t to);

/* A file being written beside its final name. */
typedef struct {
    int fd;
    char *path, *temporary;
    uint64_t written, begun; /* bytes; of these so many are on their way to the disk */

    /* Past the page cache. */
    char *room;     /* NULL: not */
    char *block;    /* the aligned part of it, of which … */
    size_t filled;  /* … so many bytes are to be written */
    bool is_direct; /* the file system takes it so */
} tt_new_file_t;

/* Where `path` is a symbolic link, the file that it leads to is written, beside that, and made if
 * it is not there. IO: it cannot be created, is no regular file, or a link that cannot be followed.
 */
tutti_status_t tt_new_file_begin(const char *path, tt_new_file_t *out);

/* The same, but what is written goes past the system's cache of pages (O_DIRECT), which spares a
 * core the copy into it, and other files their place there. Where the file system refuses that, it
 * is as the other one. Cost: 1 MiB; writing waits for the disk. */
tutti_status_t tt_new_file_begin_direct(const char *path, tt_new_file_t *out);

tutti_status_t tt_new_file_write(tt_new_file_t *file, const void *data, size_t bytes);

/* If `status` is not negative: flush to the disk and rename over `path`. Otherwise, or if that
 * fails: remove. Returns the first failure. */
tutti_status_t tt_new_file_end(tt_new_file_t *file, tutti_status_t status);

#endif
