/* What a group costs each of its ranks while it is idle: anonymous memory of the process, which
 * leaves out the heap that ranks share and the program itself.
 *
 *     build/bin/tutti run -n 256 build/bench/group_memory        a JSON line, of the largest rank
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/collectives.h>
#include <tutti/tutti.h>

/* RssAnon of this process, in bytes; -1: not known. */
static double anonymous_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    double kib = -1;
    for (char line[256]; file != NULL && fgets(line, sizeof line, file) != NULL;) {
        if (strncmp(line, "RssAnon:", 8) == 0) {
            kib = strtod(line + 8, NULL);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib < 0 ? -1 : kib * 1024;
}

static tutti_status_t measure(tutti_group_t *world, double before)
{
    tutti_tensor_t *cell;
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1), &cell));
    double *value = tutti_tensor_data(cell);
    *value = anonymous_bytes() - before;
    const tutti_status_t status = tutti_all_reduce(world, cell, TUTTI_MAX, NULL);
    if (status >= 0 && tutti_group_rank(world) == 0) {
        printf("{\"ranks\":%d,\"bytes_per_rank\":%.0f}\n", tutti_group_size(world), *value);
    }
    tutti_tensor_release(cell);
    return status;
}

int main(void)
{
    const double before = anonymous_bytes();
    tutti_group_t *world;
    if (before < 0 || tutti_init(NULL, &world) < 0) {
        fprintf(stderr, "group_memory: %s\n", before < 0 ? "no RssAnon" : tutti_last_error());
        return 1;
    }
    const tutti_status_t status = measure(world, before);
    if (status < 0) {
        fprintf(stderr, "group_memory: %s\n", tutti_last_error());
    }
    tutti_group_release(world);
    return status < 0;
}
