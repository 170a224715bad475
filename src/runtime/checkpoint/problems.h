/* All that does not fit, on all ranks, in one failure.
 *
 *     tt_problems_t problems = {0};
 *     tt_problems_add(&problems, "\"%s\" is not in it", name);
 *     TT_TRY(tt_problems_fail(&problems, "checkpoint"));   // OK: there is none
 *     tt_problems_release(&problems);
 */
#ifndef TT_PROBLEMS_H
#define TT_PROBLEMS_H

#include <stddef.h>

#include "core/base/fail.h"

typedef struct {
    char *text; /* a line for each; NULL: none */
    size_t bytes, room;
    tutti_status_t status; /* NOMEM: some are not in it */
} tt_problems_t;

void tt_problems_release(tt_problems_t *problems);

/* One more. A line that is there already, as of another rank, counts once. */
__attribute__((format(printf, 2, 3))) void tt_problems_add(tt_problems_t *problems,
                                                           const char *format, ...);

/* The lines of others: `bytes` of their text. */
void tt_problems_take(tt_problems_t *problems, const char *text, size_t bytes);

/* MISMATCH with all of them, up to a length, and how many more there are; OK if there is none.
 * Changes the text. Errors: also NOMEM. */
tutti_status_t tt_problems_fail(tt_problems_t *problems, const char *what);

#endif
