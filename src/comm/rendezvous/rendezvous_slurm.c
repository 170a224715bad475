/* Slurm's list of hosts, as far as it is needed: the first host.
 *
 * Source: srun(1), SLURM_STEP_NODELIST.
 */
#include <stdio.h>
#include <string.h>

#include "comm/rendezvous/rendezvous.h"

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
