/* Settings from the environment. */
#include "core/base/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

const tt_config_entry_t tt_config_table[TT_CONFIG_COUNT] = {
#define X(key, variable, fallback, about) [TT_CONFIG_##key] = {variable, fallback, about},
#include "core/base/config.def"
#undef X
};

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
        return TT_FAIL(TUTTI_ERR_ARG, "%s=%s: want a whole number from %lld to %lld",
                       tt_config_table[key].variable, text, (long long)min, (long long)max);
    }
    *out = value;
    return TUTTI_OK;
}
