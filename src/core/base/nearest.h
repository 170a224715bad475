/* How far apart two names are, so that a message can say what was probably meant; and patterns of
 * names. */
#ifndef TT_NEAREST_H
#define TT_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

enum { TT_NAME_BYTES_MAX = 64 };

/* Letters to insert, delete or change; 1 where `known` starts with `name`. Dashes and underscores
 * are alike; of each name only the first TT_NAME_BYTES_MAX - 1 bytes count. */
size_t tt_name_distance(const char *name, const char *known);

/* Whether `known` is name[0 … length), dashes and underscores being the same. */
bool tt_name_is(const char *name, size_t length, const char *known);

/* Whether a pattern is that of a whole name: * stands for any letters but a dot, ? for one. */
bool tt_name_matches(const char *pattern, const char *name);

#endif
