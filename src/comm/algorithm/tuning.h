/* The tuning file: which algorithm was fastest on this machine, as `tutti bench --tune` found.
 *
 *     # ranks wire rule
 *     2 shm all_reduce:0-2k:flag
 *     2 shm all_reduce:2k-:direct
 *
 * docs/formats/tune.md says the same.
 */
#ifndef TT_TUNING_H
#define TT_TUNING_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/fail.h"

enum { TT_TUNING_BYTES = 4096, TT_TUNING_PATH_BYTES = 1024, TT_TUNING_FILE_BYTES_MAX = 1 << 18 };

/* One line; its texts point into the file's and are not ended by 0. */
typedef struct {
    int ranks;
    const char *wire, *rule, *collective; /* collective: the rule's first word */
    size_t wire_bytes, rule_bytes, collective_bytes;
} tt_tuning_line_t;

/* The next line with a rule, and *at moves behind it; END behind the last one. ARG names the line
 * that is none. */
tutti_status_t tt_tuning_next(const char **at, tt_tuning_line_t *out);

/* Where the file is; *is_asked (may be NULL): TUTTI_TUNE says so. Errors: NOT_FOUND: nowhere. */
tutti_status_t tt_tuning_path(char path[TT_TUNING_PATH_BYTES], bool *is_asked);

/* The whole file, ended by 0, to be freed with tt_free; "" if there is none. */
tutti_status_t tt_tuning_read(const char *path, char **out);

/* The rules for groups of so many ranks over these wires, as tt_coll_rules_add takes them; "" if
 * there are none. A file that TUTTI_TUNE names must be there and right; the user's own is left
 * aside, with a warning, if it is not right. Errors: ARG, IO, NOMEM. */
tutti_status_t tt_tuning_load(int ranks, const char *wire, char rules[TT_TUNING_BYTES]);

#endif
