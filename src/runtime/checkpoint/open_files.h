/* The files of a manifest, open while they are read: of many of them so many at once at most, the
 * least recently used one makes room.
 *
 *     tt_open_files_t files;
 *     tt_open_files_init(&files, folder, manifest);
 *     const tt_file_t *data;
 *     TT_TRY(tt_open_files_get(&files, slice->file, TT_FILE_DATA, &data));
 *     tt_open_files_close(&files);
 */
#ifndef TT_OPEN_FILES_H
#define TT_OPEN_FILES_H

#include "core/base/file.h"
#include "runtime/checkpoint/manifest.h"

enum { TT_OPEN_FILES_MAX = 64 };

typedef enum { TT_FILE_DATA, TT_FILE_DIGESTS } tt_file_role_t;

typedef struct {
    tt_file_t file;
    int number; /* in the manifest */
    tt_file_role_t role;
    uint64_t used; /* when: a count of calls */
} tt_open_file_t;

typedef struct {
    const char *folder; /* borrowed, as the manifest is */
    const tt_manifest_t *manifest;
    tt_open_file_t files[TT_OPEN_FILES_MAX];
    int count;
    uint64_t calls, opened; /* how often a file was asked for, and opened */
} tt_open_files_t;

/* Of the first bytes of a file. Errors: IO, FORMAT (it has not so many), NOMEM. */
tutti_status_t tt_file_head(const tt_file_t *file, uint64_t bytes, tt_digest_t *out);

void tt_open_files_init(tt_open_files_t *files, const char *folder, const tt_manifest_t *manifest);
void tt_open_files_close(tt_open_files_t *files);

/* A file of the manifest, opened if need be. Valid until the next call but one. Errors: IO, NOMEM,
 * FORMAT (the manifest has no such file; its head is another one). */
tutti_status_t tt_open_files_get(tt_open_files_t *files, int number, tt_file_role_t role,
                                 const tt_file_t **out);

#endif
