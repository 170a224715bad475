/* Sizes of caches, from sysfs (Documentation/ABI/testing/sysfs-devices-system-cpu of Linux). */
#include "core/base/cache_size.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CACHES = 16, DEFAULT_BYTES = 32 << 20 };

/* "32768K" */
static size_t read_size(const char *folder, int index)
{
    char path[256], unit = 0;
    unsigned long long value = 0;
    snprintf(path, sizeof path, "%s/index%d/size", folder, index);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    const int found = fscanf(file, "%10llu%c", &value, &unit);
    (void)fclose(file); /* only read */
    if (found < 1) {
        return 0;
    }
    return (size_t)value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

size_t tt_last_cache_bytes_in(const char *folder)
{
    size_t largest = 0;
    for (int i = 0; i < CACHES; i++) {
        const size_t bytes = read_size(folder, i);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

size_t tt_last_cache_bytes(void)
{
    const size_t bytes = tt_last_cache_bytes_in("/sys/devices/system/cpu/cpu0/cache");
    const long told = bytes == 0 ? sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
    return bytes > 0 ? bytes : told > 0 ? (size_t)told : DEFAULT_BYTES;
}
