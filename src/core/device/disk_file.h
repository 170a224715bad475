/* A file without a name, as memory that is read and written in whole blocks: past the page cache
 * (O_DIRECT) where the file system can.
 *
 *     tt_disk_file_t file;
 *     TT_TRY(tt_disk_file_open("/scratch/offload", &file));
 *     TT_TRY(tt_disk_file_grow(&file, 1 << 20));       // there is room from now on
 *     TT_TRY(tt_disk_file_write(&file, 0, data, 1 << 20));
 *     tt_disk_file_close(&file);
 *
 * The name is gone as soon as the file is open: the system gives the room back when the process
 * ends, however it does, and nobody else can open it. Several threads may read and write at a time,
 * each other bytes.
 */
#ifndef TT_DISK_FILE_H
#define TT_DISK_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

/* Offsets, sizes and addresses are multiples of it. */
enum { TT_DISK_BLOCK = 4096 };

typedef struct {
    int fd;
    char *folder;           /* for messages */
    uint64_t bytes;         /* reserved */
    bool was_direct;        /* when it was opened */
    _Atomic bool is_direct; /* past the page cache */
} tt_disk_file_t;

/* Makes the folder where there is none. Errors: IO (names it), NOMEM. */
tutti_status_t tt_disk_file_open(const char *folder, tt_disk_file_t *out);

void tt_disk_file_close(tt_disk_file_t *file);

/* Room for so many bytes more, which read as zeros: where the file system cannot reserve it, they
 * are written. Errors: IO (the disk is full: names folder and bytes), NOMEM; the file is as before.
 */
tutti_status_t tt_disk_file_grow(tt_disk_file_t *file, uint64_t bytes);

/* Bytes [at, at + bytes) read as zeros again; false: the file system cannot, they are as before. */
bool tt_disk_file_clear(tt_disk_file_t *file, uint64_t at, uint64_t bytes);

/* All of it. What the system does not take, or give, at once it is asked for again. Errors: IO
 * (names folder and offset, says why). */
tutti_status_t tt_disk_file_read(tt_disk_file_t *file, uint64_t at, void *to, size_t bytes);
tutti_status_t tt_disk_file_write(tt_disk_file_t *file, uint64_t at, const void *from,
                                  size_t bytes);

#endif
