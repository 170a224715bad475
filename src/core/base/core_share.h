/* What started this rank, and what that says of the cores that it may use. */
#ifndef TT_CORE_SHARE_H
#define TT_CORE_SHARE_H

#include <stdint.h>

typedef struct {
    long pid;
    unsigned long long started; /* in the system's ticks: with the pid, a name for the process */
} tt_launcher_t;

/* The first ancestor that does not have the variable, which each rank has. */
tt_launcher_t tt_launcher_find(const char *variable);

/* How many of the cores that this process may use are for this rank: all, if the launcher has bound
 * it to them; else they are shared with the other ranks of the host. At least 1. */
int tt_core_share(void);

/* The count of a host in Slurm's list of counts: "4(x2),3" has 4, 4, 3. A plain number is a list.
 * 0: it is no such list, or has no such host. */
int tt_slurm_count_at(const char *list, int64_t index);

#endif
