/* How much memory the system can still give, so that asking for more is a status. Asking the kernel
 * alone is not enough: it grants what it does not have, and then kills a process. */
#ifndef TT_HEAP_MEMORY_H
#define TT_HEAP_MEMORY_H

#include <stdint.h>

#include "core/base/fail.h"

typedef struct {
    uint64_t bytes;   /* that can be had */
    uint64_t total;   /* of which they are */
    char source[256]; /* the file that says so */
} tt_memory_t;

/* The least of /proc/meminfo's MemAvailable and what the limits of this process's control groups
 * (version 1 or 2, with all groups above) leave; UINT64_MAX where nothing says. `root` is put
 * before each path; NULL: nothing. */
void tt_memory_available(const char *root, tt_memory_t *out);

/* NOMEM unless `bytes` can be had and a margin stays: 64 MiB, or 1/32 of the total if less. */
tutti_status_t tt_memory_check(const char *root, uint64_t bytes, const char *what);

#endif
