/* Slurm's two list notations, as far as they are needed: the first host, and how many tasks a host
 * has. Source: srun(1), SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
 */
#include <stdio.h>
#include <string.h>

#include "comm/group/rendezvous.h"

static const char digits[] = "0123456789";

/* Of "node[07-12,20]" only "node", "07", and what stands behind the bracket count. */
bool tt_slurm_first_host(const char *list, char *host, size_t host_bytes)
{
    const size_t stem = strcspn(list, ",[");
    size_t number = 0, tail = 0;
    const char *behind = "";
    if (list[stem] == '[') {
        const char *first = list + stem + 1;
        number = strspn(first, digits);
        const char *close = strchr(first, ']');
        if (number == 0 || close == NULL || strchr("-,]", first[number]) == NULL) {
            return false;
        }
        behind = close + 1;
        tail = strcspn(behind, ",[");
        if (behind[tail] == '[') {
            return false; /* several dimensions */
        }
    }
    if (stem + number + tail == 0 || stem + number + tail >= host_bytes) {
        return false;
    }
    snprintf(host, host_bytes, "%.*s%.*s%.*s", (int)stem, list, (int)number,
             list + stem + (number > 0), (int)tail, behind);
    return true;
}

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
            return index >= 0 && count <= TT_WORLD_SIZE_MAX ? (int)count : 0;
        }
        index -= hosts;
        if (*list++ == 0) {
            return 0;
        }
    }
}
