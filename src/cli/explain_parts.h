/* What the parts of `tutti explain` share. */
#ifndef TT_EXPLAIN_PARTS_H
#define TT_EXPLAIN_PARTS_H

#include <stddef.h>

#include <jansson.h>

#include <tutti/objects.h>

#include "cli/cli.h"

/* Rows of a table of options whose values are fields of a flags_t of the file's own. */
#define FIELD(name) .offset = offsetof(flags_t, name)
#define NUMBER(field, word, least, most, help)                                                     \
    .kind = TUTTI_OPTION_INT, FIELD(field), .argument = (word), .min = (least), .max = (most),     \
    .about = (help)
#define TEXT(field, word, help)                                                                    \
    .kind = TUTTI_OPTION_TEXT, FIELD(field), .argument = (word), .about = (help)

/* argv[0] is "pipeline", "partition", "sharded"; the result is the exit code. */
int tt_explain_pipeline(int argc, char **argv);
int tt_explain_sharded(int argc, char **argv);
int tt_explain_partition(int argc, char **argv);

/* The whole of a file, with a 0 behind it; the caller frees it. Returns -1, or the exit code,
 * behind a mistake that has been printed. */
int tt_explain_read(const char *flag, const char *path, char **text, size_t *bytes);

/* 0, or the exit code, behind a mistake that has been printed. */
int tt_explain_write(const char *flag, const char *path, const tutti_buffer_t *content);

/* Prints it and a newline, and drops it; NULL: out of memory. Returns the exit code. */
int tt_explain_print_json(json_t *json);

#endif
