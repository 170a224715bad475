/* What is kept of a profile: written by profiler.c, read by profile_file.c when it has stopped. */
#ifndef TT_PROFILE_IMPL_H
#define TT_PROFILE_IMPL_H

#include <pthread.h>

#include "core/base/profiler.h"

enum {
    TT_PROFILE_NAME_BYTES = 48,
    TT_PROFILE_LANE_BYTES = 32,
    TT_PROFILE_DEPTH = 64,
    TT_PROFILE_EVENTS_MAX = 1 << 18, /* of a thread: 8 MiB */
    TT_PROFILE_CALLS_MAX = 1 << 16
};

/* All that one name did in one module, in one lane. */
typedef struct {
    char name[TT_PROFILE_NAME_BYTES];
    tt_profile_kind_t kind;
    uint32_t module;
    uint64_t calls, bytes;
    int64_t total_ns, own_ns, longest_ns;
    double flops, own_flops;
} tt_profile_row_t;

typedef struct {
    int64_t begin_ns, end_ns;
    uint64_t live_bytes; /* of memory, at its end */
    uint32_t row;
} tt_profile_event_t;

typedef struct {
    tt_profile_call_t call;
    int64_t end_ns;
    uint32_t row;
} tt_profile_ended_t;

typedef struct {
    uint32_t row;
    int64_t begin_ns, inside_ns;
    double flops, inside_flops;
} tt_profile_frame_t;

typedef struct tt_profile_lane {
    struct tt_profile_lane *next;
    pthread_mutex_t lock;
    char name[TT_PROFILE_LANE_BYTES];
    int rank;
    tt_profile_row_t *rows;
    uint32_t row_count, row_capacity;
    uint32_t *places; /* [place_count] a hash table of rows + 1; 0: free */
    uint32_t place_count;
    tt_profile_event_t *events;
    size_t event_count, event_capacity;
    tt_profile_ended_t *calls;
    size_t call_count, call_capacity;
    uint64_t lost; /* events and calls that had no room, or no memory */
    tt_profile_frame_t frames[TT_PROFILE_DEPTH];
    int depth; /* may be more than there is room for: those are not looked at */
} tt_profile_lane_t;

/* Of the process. */
typedef struct {
    pthread_mutex_t lock; /* of all below */
    tt_profile_lane_t *lanes;
    char **modules; /* [module_count] paths; module m is modules[m - 1] */
    uint32_t module_count, module_capacity;
    uint32_t *places; /* [place_count] a hash table of modules; 0: free */
    uint32_t place_count;
    char *path;
    int rank, world_size, threads;
    double (*core_peak)(void); /* NULL: there was no context */
    int64_t begin_ns, wall_ns; /* the same moment on the clock of the wall */
    size_t events_max;
    unsigned forks;
    bool has_followed; /* the environment, once */
} tt_profile_t;

extern tt_profile_t tt_profile;

/* Whether a profile is being recorded. */
extern atomic_bool tt_profile_records;

/* A fork waits until it is free: a child would have it held for ever by a thread that it lacks. */
void tt_profile_lock(void);
void tt_profile_unlock(void);

/* A new run: lanes that threads still know are not theirs any more. */
void tt_profile_renew(void);

/* All lanes and modules, which nobody writes any more. */
void tt_profile_free(void);

#endif
