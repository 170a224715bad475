/* Settings from the environment. */
#include "core/base/config.h"

#include <tutti/options.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS(list) .words = (list)
#define WHOLE(least, most) .is_whole = true, .min = (least), .max = (most)
#define TEXT(what) .form = (what)
#define BYTES .is_bytes = true
const tt_config_entry_t tt_config_table[TT_CONFIG_COUNT] = {
#define X(key, name, kind, preset, what)                                                           \
    [TT_CONFIG_##key] = {.variable = (name), .fallback = (preset), .about = (what), kind},
#include "core/base/config.def"
#undef X
};
#undef WORDS
#undef WHOLE
#undef TEXT
#undef BYTES

static const char prefix[] = "TUTTI_";

const char *tt_config_text(tt_config_key_t key)
{
    const char *text = getenv(tt_config_table[key].variable);
    return text != NULL && *text != 0 ? text : tt_config_table[key].fallback;
}

bool tt_config_is_set(tt_config_key_t key)
{
    const char *text = getenv(tt_config_table[key].variable);
    return text != NULL && *text != 0;
}

bool tt_parse_int(const char *text, int64_t *out)
{
    if (!isdigit((unsigned char)text[0]) && text[0] != '-') {
        return false;
    }
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != 0) {
        return false;
    }
    *out = value;
    return true;
}

tutti_status_t tt_config_int(tt_config_key_t key, int64_t min, int64_t max, int64_t *out)
{
    const char *text = tt_config_text(key);
    int64_t value;
    if (!tt_parse_int(text, &value) || value < min || value > max) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s=%s: want an integer from %lld to %lld",
                       tt_config_table[key].variable, text, (long long)min, (long long)max);
    }
    *out = value;
    return TUTTI_OK;
}

bool tt_parse_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *unit = *end == 0 ? NULL : strchr(units, *end);
    const int shift = unit == NULL ? 0 : 10 * (int)(unit - units + 1);
    end += unit != NULL;
    if (errno != 0 || *end != 0 || value == 0 || value > UINT64_MAX >> shift) {
        return false;
    }
    *out = value << shift;
    return true;
}

/* ---- checking all of them -------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0;
}

static bool is_word(const char *words, const char *text)
{
    const size_t bytes = strlen(text);
    for (const char *at = words;; at++) {
        const size_t word = strcspn(at, "|");
        if (word == bytes && memcmp(at, text, word) == 0) {
            return true;
        }
        at += word;
        if (*at == 0) {
            return false;
        }
    }
}

/* "off, error or warn", out of "off|error|warn". */
static void list_words(const char *words, char *text, size_t bytes)
{
    size_t length = 0;
    for (const char *at = words; *at != 0 && length + 1 < bytes;) {
        const size_t word = strcspn(at, "|");
        const bool is_last = at[word] == 0;
        const char *before = at == words ? "" : is_last ? " or " : ", ";
        const int n = snprintf(text + length, bytes - length, "%s%.*s", before, (int)word, at);
        length += n > 0 ? (size_t)n : 0;
        at += word + !is_last;
    }
}

void tt_config_allowed(tt_config_key_t key, char *text, size_t bytes)
{
    const tt_config_entry_t *entry = &tt_config_table[key];
    if (entry->words != NULL) {
        list_words(entry->words, text, bytes);
    } else if (entry->is_whole) {
        snprintf(text, bytes, "an integer from %" PRId64 " to %" PRId64, entry->min, entry->max);
    } else if (entry->is_bytes) {
        snprintf(text, bytes, "a size above 0, such as 900M or 4G");
    } else {
        snprintf(text, bytes, "%s", entry->form);
    }
}

static bool is_allowed(const tt_config_entry_t *entry, const char *text)
{
    int64_t value;
    uint64_t bytes;
    if (entry->is_bytes) {
        return tt_parse_bytes(text, &bytes);
    }
    if (entry->is_whole) {
        return tt_parse_int(text, &value) && value >= entry->min && value <= entry->max;
    }
    return entry->words == NULL || is_word(entry->words, text);
}

tutti_status_t tt_config_check(void)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        const tt_config_key_t key = (tt_config_key_t)i;
        if (!is_ours(tt_config_table[i].variable) || !tt_config_is_set(key) ||
            is_allowed(&tt_config_table[i], tt_config_text(key))) {
            continue;
        }
        char allowed[160];
        tt_config_allowed(key, allowed, sizeof allowed);
        return TT_FAIL(TUTTI_ERR_ARG, "%s=%.80s: want %s", tt_config_table[i].variable,
                       tt_config_text(key), allowed);
    }
    return TUTTI_OK;
}

static bool is_known(const char *name, size_t bytes)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        const char *variable = tt_config_table[i].variable;
        if (strlen(variable) == bytes && memcmp(variable, name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static const char *nearest(const char *name)
{
    const char *names[TT_CONFIG_COUNT + 1];
    int count = 0;
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        if (is_ours(tt_config_table[i].variable)) {
            names[count++] = tt_config_table[i].variable;
        }
    }
    names[count] = NULL;
    return tutti_nearest_name(name, names);
}

bool tt_config_next_unknown(size_t *at, char *text, size_t bytes)
{
    for (; environ != NULL && environ[*at] != NULL; ++*at) {
        const size_t length = strcspn(environ[*at], "=");
        char name[64];
        if (!is_ours(environ[*at]) || is_known(environ[*at], length)) {
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)(length < 63 ? length : 63), environ[*at]);
        snprintf(text, bytes,
                 "%s is set, but Tutti knows no such variable; did you mean %s? `tutti info "
                 "--environment` lists all",
                 name, nearest(name));
        ++*at;
        return true;
    }
    return false;
}
