/* Settings from the environment. config.def is the one table; getenv is called here only. */
#ifndef TT_CONFIG_H
#define TT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef enum {
#define X(key, variable, fallback, about) TT_CONFIG_##key,
#include "core/base/config.def"
#undef X
    TT_CONFIG_COUNT
} tt_config_key_t;

typedef struct {
    const char *variable, *fallback, *about;
} tt_config_entry_t;

extern const tt_config_entry_t tt_config_table[TT_CONFIG_COUNT];

/* The variable's text, or the default. */
const char *tt_config_text(tt_config_key_t key);

/* Whether the environment sets it. */
bool tt_config_is_set(tt_config_key_t key);

/* The value as a whole number within [min, max]; ARG names the variable otherwise. */
tutti_status_t tt_config_int(tt_config_key_t key, int64_t min, int64_t max, int64_t *out);

/* A whole number out of a text, strictly (no blanks, nothing behind it). */
bool tt_parse_int(const char *text, int64_t *out);

#endif
