/* The key of a job: 32 random bytes that every process of the job has and no other. It travels
 * by an inherited descriptor or a file of mode 0600, never in a command line, and is in no log. */
#ifndef TT_JOB_KEY_H
#define TT_JOB_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/fail.h"

enum { TT_JOB_KEY_BYTES = 32, TT_JOB_KEY_TEXT_BYTES = 65 };

typedef struct {
    unsigned char bytes[TT_JOB_KEY_BYTES];
} tt_job_key_t;

/* A new one. Errors: IO. */
tutti_status_t tt_job_key_make(tt_job_key_t *out);

/* What the settings name: the descriptor TUTTI_KEY_FD, else the file TUTTI_KEY_FILE. *found (out)
 * is false when neither is set. The descriptor may be read again and again.
 * Errors: AUTH (a file that others may read, or of another user), FORMAT, IO. */
tutti_status_t tt_job_key_find(tt_job_key_t *out, bool *found);

/* 64 hexadecimal digits, or 32 bytes. Errors: as above. */
tutti_status_t tt_job_key_read_file(const char *path, tt_job_key_t *out);

/* The same out of a text of so many bytes, with room for TT_JOB_KEY_TEXT_BYTES, which is changed;
 * name: of it, for the error. */
tutti_status_t tt_job_key_parse(char *text, ssize_t bytes, const char *name, tt_job_key_t *out);

/* 64 hexadecimal digits. */
void tt_job_key_print(const tt_job_key_t *key, char text[TT_JOB_KEY_TEXT_BYTES]);

/* A new file of mode 0600. Errors: IO (it exists, …). */
tutti_status_t tt_job_key_write_file(const char *path, const tt_job_key_t *key);

/* A sealed descriptor (a memfd, closed on exec) that a child can inherit. Errors: IO. */
tutti_status_t tt_job_key_to_fd(const tt_job_key_t *key, int *out);

/* The key of one epoch: HKDF-SHA256(key, info = "tutti v1 epoch" and 4 bytes, little-endian), so
 * that a process of an earlier epoch cannot join a later one. Errors: IO. */
tutti_status_t tt_job_key_of_epoch(const tt_job_key_t *key, uint32_t epoch, tt_job_key_t *out);

/* The key of a job that a launcher has started again, attempt > 0: HKDF-SHA256(key, info =
 * "tutti v1 again" and 4 bytes, little-endian). The ranks of an attempt know no other: epochs
 * are counted from 0 again. Errors: IO. */
tutti_status_t tt_job_key_of_attempt(const tt_job_key_t *key, uint32_t attempt, tt_job_key_t *out);

#endif
