/* Slurm's list of how many tasks each host has.
 *
 * Source: srun(1), SLURM_STEP_TASKS_PER_NODE.
 */
#include <string.h>

#include "core/base/core_share.h"

enum { COUNT_MAX = 1 << 16 };

static const char digits[] = "0123456789";

/* A number of at most 9 digits at *text, which moves behind it; -1: there is none. */
static long take_number(const char **text)
{
    const size_t count = strspn(*text, digits);
    long value = 0;
    if (count == 0 || count > 9) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        value = value * 10 + ((*text)[i] - '0');
    }
    *text += count;
    return value;
}

int tt_slurm_count_at(const char *list, int64_t index)
{
    for (;;) {
        const long count = take_number(&list);
        long hosts = 1;
        if (strncmp(list, "(x", 2) == 0) {
            list += 2;
            hosts = take_number(&list);
            if (hosts < 1 || *list++ != ')') {
                return 0;
            }
        }
        if (count < 0 || (*list != ',' && *list != 0)) {
            return 0;
        }
        if (index < hosts) {
            return index >= 0 && count <= COUNT_MAX ? (int)count : 0;
        }
        index -= hosts;
        if (*list++ == 0) {
            return 0;
        }
    }
}
