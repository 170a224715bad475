/* What the files of a profile say (docs/formats/profile.md), for those that show it. */
#ifndef TT_PROFILE_PARTS_H
#define TT_PROFILE_PARTS_H

#include <tutti/profile.h>

#include "core/base/fail.h"
#include "core/base/profiler.h"
#include "runtime/metrics/byte_row.h"

/* Numbers of a row, or of several together. */
typedef struct {
    uint64_t calls, bytes;
    int64_t total_ns, own_ns, longest_ns;
    double flops, own_flops;
} tt_amount_t;

typedef struct {
    tt_profile_kind_t kind;
    char *name;
    uint32_t module; /* of the process's, from 1 on; 0: none */
    tt_amount_t amount;
} tt_told_row_t;

typedef struct {
    uint32_t row;
    int64_t begin_ns, end_ns; /* since the process's begin */
    uint64_t live_bytes;
} tt_told_event_t;

typedef struct {
    uint32_t row;
    int64_t begin_ns, end_ns;
    uint64_t number, bytes; /* number of a message: its tag */
    int rank, size, peer;
    bool is_symmetric;
    char *group;
} tt_told_call_t;

typedef struct {
    char *name;
    int rank;
    uint64_t lost;
    tt_told_row_t *rows;
    tt_told_event_t *events;
    tt_told_call_t *calls;
    size_t row_count, event_count, call_count;
} tt_told_lane_t;

typedef struct {
    char *name;
    uint64_t blocks, bytes;
} tt_told_memory_t;

/* A process: a rank, but for ranks that are threads of one. */
typedef struct {
    char *path; /* of its file */
    int rank, world_size, threads;
    double peak_gflops;                /* of one core */
    int64_t begin_ns, end_ns, wall_ns; /* on its own clock; of the wall at its begin */
    char *host, *boot, *program;
    uint64_t peak_bytes;
    tt_told_memory_t *alive;
    char **modules;
    tt_told_lane_t *lanes;
    size_t alive_count, module_count, lane_count;

    int host_index;    /* processes of one host have one clock */
    int64_t offset_ns; /* added to its clock, it is that of the first process */
} tt_told_process_t;

struct tutti_profile {
    tt_told_process_t *processes; /* by rank */
    int count;
    int host_count;
    int64_t doubt_ns; /* by so much clocks of two hosts may still differ; -1: not known */
};

/* One file into an empty process, which tt_told_free() empties again, also after a failure. */
tutti_status_t tt_told_read(const char *path, tt_told_process_t *out);
void tt_told_free(tt_told_process_t *process);

/* Sets host_index and offset_ns of all. Errors: NOMEM. */
tutti_status_t tt_told_align(tutti_profile_t *profile);

/* The path of a module; "" for none. */
const char *tt_told_module(const tt_told_process_t *process, uint32_t module);

/* ---- sums over all ranks --------------------------------------------------------------------- */

/* A line of a table. */
typedef struct {
    const char *name; /* borrowed of the profile */
    tt_profile_kind_t kind;
    const char *module;
    tt_amount_t amount, waits; /* waits: of calls */
    int64_t module_ns;         /* of a module: in its forward, and in no operation */
} tt_line_t;

typedef struct {
    tt_line_t *lines; /* by own time, the longest first */
    size_t count;
    int64_t own_ns; /* of all lines */
} tt_lines_t;

/* By what rows are put together. A module's line is all that ran in itself, and not in those below
 * it. */
typedef enum {
    TT_LINES_OPERATIONS,
    TT_LINES_MODULES,
    TT_LINES_REGIONS,
    TT_LINES_CALLS,
    TT_LINES_KINDS
} tt_lines_by_t;

/* How many ranks there are; how many of them the profiles are of, some of which may be threads of
 * one process; ns from the first begin to the last end, of all ranks together. */
int tt_profile_ranks(const tutti_profile_t *profile);
int tt_profile_ranks_shown(const tutti_profile_t *profile);
int64_t tt_profile_length(const tutti_profile_t *profile);

/* GFLOP/s that a rank's cores do at best together; 0: not known. */
double tt_profile_peak(const tutti_profile_t *profile);

/* ns in what was measured, of all threads together. */
int64_t tt_lines_measured(const tt_lines_t lines[TT_LINES_KINDS]);

/* Adds up by all kinds, prints, and hands the text over. */
typedef tutti_status_t (*tt_lines_print_fn_t)(tt_byte_row_t *out, const tutti_profile_t *profile,
                                              const tt_lines_t lines[TT_LINES_KINDS]);
tutti_status_t tt_lines_print(const tutti_profile_t *profile, tt_lines_print_fn_t print,
                              tutti_buffer_t *text);

/* ---- calls of a group put together ----------------------------------------------------------- */

/* The same call on all ranks of a group. */
typedef struct {
    const tt_told_call_t *call;
    const tt_told_process_t *process;
    const tt_told_lane_t *lane;
    const char *name;
    int64_t begin_ns, end_ns; /* on the first process's clock */
    uint64_t key;             /* alike for calls that belong together; 0: alone */
} tt_joint_t;

typedef struct {
    tt_joint_t *joints; /* by key, then by rank */
    size_t count;
} tt_joints_t;

tutti_status_t tt_joints_find(const tutti_profile_t *profile, tt_joints_t *out);
void tt_joints_free(tt_joints_t *joints);

/* Which ranks came last into calls that no rank can end before, and how long the others were there
 * before them, added up over those others. */
typedef struct {
    int rank;
    uint64_t last;
    int64_t kept_ns;
} tt_late_rank_t;

typedef struct {
    tt_late_rank_t *ranks; /* who kept others longest first */
    int count;
} tt_late_t;

tutti_status_t tt_late_find(const tutti_profile_t *profile, tt_late_t *out);
void tt_late_free(tt_late_t *late);

/* One past the last joint that belongs to that at `begin`. */
size_t tt_joints_end(const tt_joints_t *joints, size_t begin);

#endif
