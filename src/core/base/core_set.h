/* Sets of cores, for every machine that Linux runs on: the C library's cpu_set_t ends at 1,024, and
 * on a machine with more the system refuses to say anything to who asks with so few.
 *
 * Source: sched_setaffinity(2), CPU_SET(3).
 */
#ifndef TT_CORE_SET_H
#define TT_CORE_SET_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TT_CORES_MAX = 8192 }; /* of Linux */

typedef struct {
    cpu_set_t words[TT_CORES_MAX / CPU_SETSIZE];
} tt_core_set_t;

static inline bool tt_core_set_has(const tt_core_set_t *set, int core)
{
    return CPU_ISSET_S((size_t)core, sizeof *set, set->words);
}

static inline void tt_core_set_add(tt_core_set_t *set, int core)
{
    CPU_SET_S((size_t)core, sizeof *set, set->words);
}

/* Those that a process may use, 0 being this one; returns how many, 0 where it cannot be told. */
static inline int tt_core_set_of(pid_t pid, tt_core_set_t *out)
{
    *out = (tt_core_set_t){0};
    return sched_getaffinity(pid, sizeof *out, out->words) == 0
               ? CPU_COUNT_S(sizeof *out, out->words)
               : 0;
}

/* The cores [first, first + count) of a set, counted from its lowest one. */
static inline tt_core_set_t tt_core_set_part(const tt_core_set_t *set, int first, int count)
{
    tt_core_set_t part = {0};
    for (int core = 0, seen = 0; core < TT_CORES_MAX && seen < first + count; core++) {
        if (tt_core_set_has(set, core) && seen++ >= first) {
            tt_core_set_add(&part, core);
        }
    }
    return part;
}

#endif
