/* What the parts of `tutti explain` share. */
#ifndef TT_EXPLAIN_PARTS_H
#define TT_EXPLAIN_PARTS_H

#include <jansson.h>

#include <tutti/objects.h>

#include "cli/cli.h"

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
