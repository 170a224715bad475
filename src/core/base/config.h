/* Settings from the environment. config.def is the one table; getenv is called here only. */
#ifndef TT_CONFIG_H
#define TT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef enum {
#define X(key, variable, kind, fallback, about) TT_CONFIG_##key,
#include "core/base/config.def"
#undef X
    TT_CONFIG_COUNT
} tt_config_key_t;

typedef struct {
    const char *variable, *fallback, *about;
    const char *words; /* allowed ones, with | between; NULL: any text */
    bool is_whole;     /* an integer from min to max */
    bool is_bytes;     /* a size: digits, and K, M, G or T behind them */
    int64_t min, max;
    const char *form; /* of any other text: what it is, in words; "" for what launchers set */
} tt_config_entry_t;

extern const tt_config_entry_t tt_config_table[TT_CONFIG_COUNT];

/* The variable's text, or the default. */
const char *tt_config_text(tt_config_key_t key);

/* Whether the environment sets it. */
bool tt_config_is_set(tt_config_key_t key);

/* The value as an integer within [min, max]; ARG names the variable otherwise. */
tutti_status_t tt_config_int(tt_config_key_t key, int64_t min, int64_t max, int64_t *out);

/* What the variable may hold, in words; cut to the room in text. */
void tt_config_allowed(tt_config_key_t key, char *text, size_t bytes);

/* ARG names the first TUTTI_ variable whose value is not allowed, the value, and what is. Others'
 * variables are checked when they are read: they may be about another job. */
tutti_status_t tt_config_check(void);

/* A sentence about the next variable at *at, from 0 on, that begins with TUTTI_ and is not in the
 * table; false when there is none left. */
bool tt_config_next_unknown(size_t *at, char *text, size_t bytes);

/* An integer out of a text, strictly (no blanks, nothing behind it). */
bool tt_parse_int(const char *text, int64_t *out);

/* A size above 0 out of a text, strictly: "4096", "900M". */
bool tt_parse_bytes(const char *text, uint64_t *out);

#endif
