/* The only allocator: everything is counted by name, can be made to fail on demand, and must be
 * back to zero when a test ends.
 *
 * A block is 64-byte aligned. `what` is a string literal that names the kind of thing allocated
 * ("tensor", "graph node"); it appears in tt_alloc_report() and in the text of TUTTI_ERR_NOMEM.
 */
#ifndef TT_ALLOC_H
#define TT_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

enum { TT_ALIGN = 64 };

/* Zeroed memory, or NULL with the error recorded. Zero bytes give a valid pointer. */
__attribute__((malloc, alloc_size(1))) void *tt_alloc(size_t bytes, const char *what);

/* The same without zeroing, for buffers that are written before they are read. */
__attribute__((malloc, alloc_size(1))) void *tt_alloc_raw(size_t bytes, const char *what);

/* count × size without overflow, zeroed. */
void *tt_alloc_array(size_t count, size_t size, const char *what);

/* Grow or shrink, content kept, what grows is zeroed; NULL leaves the old block as it was. */
void *tt_realloc(void *block, size_t bytes, const char *what);

/* A copy of a string, or of its first `length` bytes. */
char *tt_strdup(const char *text, const char *what);
char *tt_strndup(const char *text, size_t length, const char *what);

/* NULL is fine. */
void tt_free(void *block);

/* Status for a NULL from above: the text is recorded already. */
#define TT_TRY_ALLOC(pointer)                                                                      \
    do {                                                                                           \
        if ((pointer) == NULL) {                                                                   \
            return TUTTI_ERR_NOMEM;                                                                \
        }                                                                                          \
    } while (0)

/* Blocks and bytes that live now, and allocations made since the start. */
typedef struct {
    size_t blocks, bytes, allocations;
} tt_alloc_stats_t;

tt_alloc_stats_t tt_alloc_stats(void);

/* Memory that is not a block counts against TUTTI_MEMORY_LIMIT, too: as of `what`. Errors: NOMEM,
 * which names the limit and the largest users. */
tutti_status_t tt_alloc_take(size_t bytes, const char *what);
void tt_alloc_give(size_t bytes);

/* What lives under a name. */
typedef struct {
    const char *what;
    size_t blocks, bytes;
} tt_alloc_name_t;

/* ---- the peak: for profiles ---- */

enum { TT_ALLOC_NAMES_MAX = 513 };

/* From now on bytes are added up and the names of the highest sum kept; or not any more. Cost: an
 * atomic addition per call, and a copy of the counts when the sum falls from a new height. */
void tt_alloc_watch(bool is_watched);

/* Not any more, in a forked child: what was kept stays as it is. */
void tt_alloc_unwatch(void);

/* What lives, while it is watched. */
size_t tt_alloc_live(void);

/* The highest sum since it is watched, and what lived then; returns how many names. */
size_t tt_alloc_peak(size_t *bytes, tt_alloc_name_t *out, size_t capacity);

/* Writes a line for each name that has live blocks into text, and returns how many live. */
size_t tt_alloc_report(char *text, size_t text_bytes);

/* Torture: the nth allocation from now (1 is the next one) fails, once; 0 switches it off. */
void tt_alloc_fail_at(size_t nth);

/* Whether the failure armed above has happened. */
int tt_alloc_has_failed(void);

#endif
