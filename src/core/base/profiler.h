/* What runs, and for how long: operations, modules, regions of a program's own, work of streams,
 * waits and calls of groups. `tutti/profile.h` starts and stops it; here is what those that run
 * say.
 *
 *     const bool is_profiled = tt_profile_begin(TT_PROFILE_FORWARD, op->name, module);
 *     …
 *     if (is_profiled) {
 *         tt_profile_end((tt_profile_end_t){.elements = numel, .bytes = bytes});
 *     }
 *
 * Each thread has a lane of its own: a stack of what is under way, a row for each (kind, name,
 * module), which adds up, and a list of what has ended, for timelines. A row's own time is that of
 * what runs inside of it taken off, so that own times of all rows are the time of the lane.
 *
 * Cost when off: a load and a branch that is never taken. On: two looks at the clock, a lock that
 * nobody else wants, and a look into a table.
 */
#ifndef TT_PROFILER_H
#define TT_PROFILER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"

typedef enum {
    TT_PROFILE_FORWARD,
    TT_PROFILE_BACKWARD,
    TT_PROFILE_MODULE,
    TT_PROFILE_REGION,
    TT_PROFILE_WAIT,
    TT_PROFILE_KERNEL,
    TT_PROFILE_CALL,
    TT_PROFILE_KINDS
} tt_profile_kind_t;

/* "forward", "backward", … */
const char *tt_profile_kind_name(tt_profile_kind_t kind);

/* So many want to know: a profile, and those who count (tt_profile_flops). */
extern atomic_int tt_profile_users;

static inline bool tt_profile_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&tt_profile_users, memory_order_relaxed) != 0,
                            false);
}

/* Starts if TUTTI_PROFILE says so and nothing has started, and stops when the process ends. Errors:
 * NOMEM, IO (nothing can be written there). */
tutti_status_t tt_profile_follow_environment(void);

/* Of this thread from now on, and of this process's file: it is called after the first of its
 * ranks. */
void tt_profile_set_rank(int rank, int world_size);

/* A context has so many threads; and what measures a core, in GFLOP/s of f32 (peak.h), which is
 * called when a profile is written. */
void tt_profile_note_threads(int threads, double (*core_peak)(void));

/* This thread's name in timelines, as long as it lives. */
void tt_profile_name_thread(const char *name);

/* ---- what runs ------------------------------------------------------------------------------- */

/* The number of a module's path; 0: no module. In a later run it is that of none. */
uint32_t tt_profile_module(const char *path);
bool tt_profile_has_module(uint32_t module); /* of this run */

/* False: it is off, and nothing is to be ended. */
bool tt_profile_begin_on(tt_profile_kind_t kind, const char *name, uint32_t module);
static inline bool tt_profile_begin(tt_profile_kind_t kind, const char *name, uint32_t module)
{
    return tt_profile_is_on() && tt_profile_begin_on(kind, name, module);
}

typedef struct {
    double elements; /* made; they stand for operations where none were counted */
    uint64_t bytes;  /* read and written */
} tt_profile_end_t;

/* Of what this thread began last. */
void tt_profile_end(tt_profile_end_t end);

/* Floating-point operations of what is under way in this thread. */
void tt_profile_count_on(double flops);
static inline void tt_profile_count(double flops)
{
    if (tt_profile_is_on()) {
        tt_profile_count_on(flops);
    }
}

/* What this thread has counted since it began to ask: of each operation what its kernels count, or
 * else its elements. Calls of start and end come in pairs. */
void tt_profile_start_counting(void);
double tt_profile_flops(void);
void tt_profile_end_counting(void);

/* ---- calls of groups ------------------------------------------------------------------------- */

enum { TT_PROFILE_GROUP_BYTES = 32 };

/* A call, from its start to its end. Calls of a group have the same number on all its ranks;
 * messages have the tag instead. Waiting for one is a TT_PROFILE_WAIT of its name. */
typedef struct {
    const char *name;
    int64_t begin_ns; /* 0: nobody asks */
    uint64_t number, bytes;
    int rank, size;    /* in the group */
    int peer;          /* of a message; -1: it is none */
    bool is_symmetric; /* no rank ends before all have begun */
    char group[TT_PROFILE_GROUP_BYTES];
} tt_profile_call_t;

void tt_profile_end_call(const tt_profile_call_t *call);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Blocks came or went. */
void tt_profile_move_memory(int64_t bytes);

#endif
