/* The largest unit of which there is at least one. */
#include "core/base/units.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/reals.h"

char *tt_units_bytes(uint64_t bytes, char text[TT_UNITS_TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(text, TT_UNITS_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1023.95; unit++) { /* 2^64 bytes are 16 EiB */
        value /= 1024;
    }
    tt_format(text, TT_UNITS_TEXT_BYTES, "%.1f %s", value, units[unit]);
    return text;
}

/* Two digits, where they are not all before the point. */
static int decimals(double value)
{
    return value < 0.995 ? 2 : value < 9.95 ? 1 : 0;
}

char *tt_units_percent(double share, char text[TT_UNITS_TEXT_BYTES])
{
    tt_format(text, TT_UNITS_TEXT_BYTES, "%.*f %%", decimals(100 * share), 100 * share);
    return text;
}

char *tt_units_seconds(double seconds, char text[TT_UNITS_TEXT_BYTES])
{
    static const struct {
        double seconds, least; /* of one; from so many seconds on it is taken */
        const char *name;
    } units[] = {{86400, 172800, "days"},
                 {3600, 5400, "h"},
                 {60, 90, "min"},
                 {1, 0.1, "s"},
                 {1e-3, 0, "ms"}};
    size_t i = 0;
    while (seconds < units[i].least) {
        i++;
    }
    const double value = seconds / units[i].seconds;
    tt_format(text, TT_UNITS_TEXT_BYTES, "%.*f %s", decimals(value), value, units[i].name);
    return text;
}
