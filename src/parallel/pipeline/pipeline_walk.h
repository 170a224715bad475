/* All ranks of a schedule run with a clock: each goes through its row as far as it can, and waits
 * for what others have not done yet. Checks and simulations are such walks.
 *
 *     rank 0   0F0 0SEND_F0 ─┐        0B0 waits until 1SEND_B0 has been reached, and then until
 *     rank 1        1RECV_F0 └─ 1F0   its message has arrived
 *
 * A send and a receive take no time of their rank; a message takes the cost `message`. Without
 * messages in the schedule the end of the neighbour's computation takes their place.
 *
 * Cost: linear in the actions; bytes for each micro-batch of each stage.
 */
#ifndef TT_PIPELINE_WALK_H
#define TT_PIPELINE_WALK_H

#include "parallel/pipeline/pipeline_text.h"

/* What has happened to a micro-batch on a stage. */
typedef struct {
    double outputs, gradients; /* when they are there, for the next stage, for the one before */
    int version;               /* that F used */
    unsigned done;             /* bit of each kind */
} tt_pipeline_cell_t;

/* A place in a row, and why a walk stops there. */
typedef struct {
    int rank;
    int64_t index;
} tt_pipeline_place_t;

typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    const tutti_pipeline_costs_t *costs; /* [1] or [stages], without defaults */
    bool is_cost_of_stage;               /* [stages] */
    bool has_messages;
    int total;
    tt_pipeline_cell_t *cells; /* [stages][total] */
    int *steps;                /* [stages] so far */
    int64_t *at;               /* [ranks] the next action */
    double *clocks;            /* [ranks] */
    bool *is_waiting;          /* [ranks] */
    int *ready;                /* [ranks] a stack */
    int ready_count;
    tutti_pipeline_span_t **spans; /* [ranks] borrowed; NULL: times are not wanted */
    bool has_failed;
    tt_pipeline_place_t failure; /* behind an error that is one action's */
} tt_pipeline_walk_t;

/* Zeroed costs are free of charge; everything is released by tt_pipeline_walk_fini(). */
tutti_status_t tt_pipeline_walk_init(tt_pipeline_walk_t *walk,
                                     const tutti_pipeline_schedule_t *schedule);
void tt_pipeline_walk_fini(tt_pipeline_walk_t *walk);

/* To the end. ARG: an action is wrong, or (without has_failed) some ranks cannot go on. */
tutti_status_t tt_pipeline_walk_run(tt_pipeline_walk_t *walk);

/* What a rank's next action waits for; false where it waits for nothing. */
bool tt_pipeline_awaited(const tt_pipeline_walk_t *walk, int rank,
                         tutti_pipeline_action_t *awaited);

tt_pipeline_cell_t *tt_pipeline_cell(const tt_pipeline_walk_t *walk, int stage, int micro_batch);

/* Record an error of an action. */
__attribute__((format(printf, 3, 4))) tutti_status_t
tt_pipeline_blame(tt_pipeline_walk_t *walk, tt_pipeline_place_t place, const char *format, ...);

#endif
