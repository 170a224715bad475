/* What the process that calls tutti_spawn() shares with those that it starts: a memfd, mapped by
 * all, whose descriptor is inherited. All are the same program, so it has no format of its own.
 *
 *     block | a slot for each rank | the argument, and a 0
 */
#ifndef TT_SPAWN_BLOCK_H
#define TT_SPAWN_BLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include <tutti/launch.h>

#include "core/base/fail.h"

typedef enum { TT_SLOT_NEW, TT_SLOT_RUNS, TT_SLOT_RETURNED } tt_slot_state_t;

/* How far a rank is. Its owner writes it; the others read what stands before `state`. */
typedef struct {
    int32_t attempt;
    tutti_status_t status;
    int64_t returned_ns; /* on the clock that all processes of a host share */
    char text[TT_ERROR_TEXT_BYTES];
    _Atomic int32_t state;
} tt_spawn_slot_t;

typedef struct {
    uint64_t bytes; /* of the whole */
    int32_t rank_count, max_restarts;
    int64_t grace_ms;
    bool is_plain, has_log_dir;
    char entry[64], log_dir[512];
    uint64_t argument_bytes;

    _Atomic uint32_t caused; /* attempt + 1 in which a rank failed by itself; a futex */

    /* The launcher's answer. */
    tutti_launch_report_t report;
    tutti_status_t status;
    char text[TT_ERROR_TEXT_BYTES];
    _Atomic int32_t is_answered;
} tt_spawn_block_t;

/* For n ranks, with the options; *fd is closed on exec. Errors: ARG, IO. */
tutti_status_t tt_spawn_block_create(const char *entry, int n, const tutti_spawn_options_t *options,
                                     tt_spawn_block_t **out, int *fd);

/* Another process's. Errors: IO, FORMAT. */
tutti_status_t tt_spawn_block_open(int fd, tt_spawn_block_t **out);
void tt_spawn_block_close(tt_spawn_block_t *block);

tt_spawn_slot_t *tt_spawn_slot(tt_spawn_block_t *block, int rank);

/* Calls the entry as a rank, and writes down in its slot how that went. */
tutti_status_t tt_spawn_run(tt_spawn_block_t *block, tutti_spawn_fn_t run, tutti_spawned_t *self);

/* The rank whose failure explains the others': in this attempt, the first that did not merely
 * notice that another one had gone. -1: none returned a failure. */
int tt_spawn_find_failure(tt_spawn_block_t *block, int attempt);

#endif
