/* Sizes on the command line of `tutti bench`: FIRST[:LAST[:xFACTOR or +STEP]], with k, M and G. */
#include <stdlib.h>

#include "cli/bench_parts.h"

/* A number with a unit, up to one of `ends` or the end; *text moves behind it. */
static bool read_bytes(const char **text, size_t *out)
{
    if (**text < '0' || **text > '9') {
        return false;
    }
    char *end;
    const unsigned long long value = strtoull(*text, &end, 10);
    int shift = 0;
    if (*end == 'k' || *end == 'K' || *end == 'M' || *end == 'G') {
        shift = *end == 'M' ? 20 : *end == 'G' ? 30 : 10;
        end++;
    }
    *text = end;
    *out = (size_t)value << shift;
    return value <= (SIZE_MAX >> 1) >> shift;
}

static bool read_step(const char *text, tt_sizes_t *out)
{
    if (*text == '+') {
        text++;
        return read_bytes(&text, &out->step) && *text == 0 && out->step > 0;
    }
    text += *text == 'x';
    return read_bytes(&text, &out->factor) && *text == 0 && out->factor > 1;
}

bool tt_sizes_parse(const char *text, tt_sizes_t *out)
{
    *out = (tt_sizes_t){.factor = 4};
    if (!read_bytes(&text, &out->first) || out->first == 0) {
        return false;
    }
    out->last = out->first;
    if (*text == ':') {
        text++;
        if (!read_bytes(&text, &out->last) || out->last < out->first) {
            return false;
        }
    }
    return *text == ':' ? read_step(text + 1, out) : *text == 0;
}

size_t tt_sizes_next(const tt_sizes_t *sizes, size_t bytes)
{
    if (sizes->step == 0 && bytes > sizes->last / sizes->factor) {
        return 0;
    }
    const size_t next = sizes->step > 0 ? bytes + sizes->step : bytes * sizes->factor;
    return next <= sizes->last ? next : 0;
}
