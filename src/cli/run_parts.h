/* The hosts of `tutti run`. */
#ifndef TT_RUN_PARTS_H
#define TT_RUN_PARTS_H

#include <tutti/launch.h>

typedef struct {
    tutti_launch_host_t *all;
    int count;
} tt_run_hosts_t;

/* "a:4,b:4", or NULL; the lines of a file, or NULL. `ranks` is of a host that has no number. The
 * exit code when it cannot be understood, which is said on stderr; 0: fine, with the hosts to be
 * freed. */
int tt_run_hosts_read(const char *list, const char *file, int ranks, tt_run_hosts_t *out);
void tt_run_hosts_free(tt_run_hosts_t *hosts);

#endif
