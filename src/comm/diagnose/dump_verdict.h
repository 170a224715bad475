/* Dumps of several ranks, merged: which rank keeps which waiting. */
#ifndef TT_DUMP_VERDICT_H
#define TT_DUMP_VERDICT_H

#include <stdbool.h>

#include <tutti/objects.h>

enum { TT_VERDICT_DUMPS = 4096, TT_VERDICT_RANKS = 4096, TT_VERDICT_TEXT_BYTES = 1 << 16 };

typedef struct tt_dump_verdict tt_dump_verdict_t;

tutti_status_t tt_dump_verdict_create(tt_dump_verdict_t **out);
void tt_dump_verdict_release(tt_dump_verdict_t *verdict);

/* The content of a file; `name` is for messages. Errors: FORMAT, NOMEM, ARG (too many). */
tutti_status_t tt_dump_verdict_add(tt_dump_verdict_t *verdict, const char *name, const void *data,
                                   size_t bytes);

/* *text is the caller's. */
tutti_status_t tt_dump_verdict_say(const tt_dump_verdict_t *verdict, tutti_buffer_t *text,
                                   bool *is_guilty);

#endif
