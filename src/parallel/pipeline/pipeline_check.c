/* Checks of a schedule: a walk without costs finds what cannot run, and a look at the rows what is
 * held, how many versions there are, and whether the sums have one process's order.
 */
#include <stdio.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_form.h"
#include "parallel/pipeline/pipeline_grid.h"
#include "parallel/pipeline/pipeline_own.h"

/* ---- is everything done? ---- */

static tutti_status_t check_cell(tt_pipeline_walk_t *walk, int stage, int micro_batch)
{
    const unsigned done = tt_pipeline_cell(walk, stage, micro_batch)->done;
    const unsigned f = 1u << TUTTI_PIPELINE_F, b = 1u << TUTTI_PIPELINE_B;
    const unsigned split = 1u << TUTTI_PIPELINE_I | 1u << TUTTI_PIPELINE_W;
    if ((done & f) != 0 && ((done & b) != 0 || (done & split) == split)) {
        return TUTTI_OK;
    }
    const int rank = walk->schedule->rank_of_stage[stage];
    const char *missing = (done & f) == 0 ? "F" : (done & 1u << TUTTI_PIPELINE_I) != 0 ? "W" : "B";
    if (rank < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: no rank has stage %d", stage);
    }
    return tt_pipeline_blame(walk, (tt_pipeline_place_t){rank, walk->schedule->rows[rank].count},
                             "%d%s%d is missing", stage, missing, micro_batch);
}

static bool has_done(const tt_pipeline_walk_t *walk, int stage, int micro_batch,
                     tutti_pipeline_kind_t kind)
{
    return (tt_pipeline_cell(walk, stage, micro_batch)->done & 1u << kind) != 0;
}

/* A message has both ends or none. */
static tutti_status_t check_message(tt_pipeline_walk_t *walk, const tutti_pipeline_action_t *send,
                                    const tutti_pipeline_action_t *receive)
{
    const tutti_pipeline_action_t *ends[] = {send, receive};
    const tutti_pipeline_action_t *missing = NULL;
    int count = 0;
    for (int i = 0; i < 2; i++) {
        if (has_done(walk, ends[i]->stage, ends[i]->micro_batch, ends[i]->kind)) {
            count++;
        } else {
            missing = ends[i];
        }
    }
    if (count != 1) {
        return TUTTI_OK;
    }
    const int rank = walk->schedule->rank_of_stage[missing->stage];
    return tt_pipeline_blame(walk, (tt_pipeline_place_t){rank, walk->schedule->rows[rank].count},
                             "%s is missing", tt_pipeline_label(missing).text);
}

/* Between a stage and the next one. */
static tutti_status_t check_messages(tt_pipeline_walk_t *walk, int stage, int micro_batch)
{
    const tutti_pipeline_action_t ends[] = {{TUTTI_PIPELINE_SEND_F, stage, micro_batch, 0},
                                            {TUTTI_PIPELINE_RECV_F, stage + 1, micro_batch, 0},
                                            {TUTTI_PIPELINE_SEND_B, stage + 1, micro_batch, 0},
                                            {TUTTI_PIPELINE_RECV_B, stage, micro_batch, 0}};
    TT_TRY(check_message(walk, &ends[0], &ends[1]));
    return check_message(walk, &ends[2], &ends[3]);
}

static tutti_status_t check_completeness(tt_pipeline_walk_t *walk)
{
    for (int stage = 0; stage < walk->schedule->stages; stage++) {
        for (int b = 0; b < walk->total; b++) {
            TT_TRY(check_cell(walk, stage, b));
        }
    }
    for (int stage = 0; stage + 1 < walk->schedule->stages; stage++) {
        for (int b = 0; b < walk->total; b++) {
            TT_TRY(check_messages(walk, stage, b));
        }
    }
    return TUTTI_OK;
}

/* ---- what rows hold ---- */

/* Of each stage, while its rank's row is read. */
typedef struct {
    int activations, open_shards;
    int newest;    /* version */
    int oldest;    /* version that is still needed */
    bool has_sums; /* B or W behind the last STEP */
} stage_t;

typedef struct {
    const tutti_pipeline_schedule_t *schedule;
    tutti_pipeline_report_t report;
    stage_t *stages; /* [stages] */
    int *closed;     /* [stages][shards] B or W so far */
    int *last;       /* [stages][shards] the micro-batch of the last one, from 1 */
    int *forward;    /* [stages][shards] the same of F */
    int *oldest;     /* [actions of the longest row] the oldest version that is still used */
    bool steps;      /* there are STEPs */
    int activations; /* of a rank */
} rows_t;

static size_t shard_index(const rows_t *rows, const tutti_pipeline_action_t *action)
{
    return (size_t)action->stage * (size_t)rows->schedule->shards +
           (size_t)(action->micro_batch / rows->schedule->micro_batches);
}

static void most(int *maximum, int value)
{
    *maximum = value > *maximum ? value : *maximum;
}

/* Sums come in the order of B or W, running statistics in that of F. */
static void note_order(rows_t *rows, const tutti_pipeline_action_t *action, int *last)
{
    int *before = &last[shard_index(rows, action)];
    rows->report.is_canonical &= action->micro_batch + 1 > *before;
    *before = action->micro_batch + 1;
}

static void close_micro_batch(rows_t *rows, const tutti_pipeline_action_t *action)
{
    const size_t shard = shard_index(rows, action);
    stage_t *stage = &rows->stages[action->stage];
    stage->open_shards += rows->closed[shard]++ == 0;
    most(&rows->report.open_shards_max, stage->open_shards);
    stage->open_shards -= rows->closed[shard] == rows->schedule->micro_batches;
    note_order(rows, action, rows->last);
    stage->has_sums = true;
}

static void look_at_action(rows_t *rows, const tutti_pipeline_action_t *action, int oldest)
{
    stage_t *stage = &rows->stages[action->stage];
    switch (action->kind) {
    case TUTTI_PIPELINE_F:
        most(&rows->report.activations_max, ++rows->activations);
        note_order(rows, action, rows->forward);
        break;
    case TUTTI_PIPELINE_B:
    case TUTTI_PIPELINE_W:
        rows->activations--;
        close_micro_batch(rows, action);
        break;
    case TUTTI_PIPELINE_SEND_F:
    case TUTTI_PIPELINE_SEND_B:
        rows->report.messages++;
        break;
    case TUTTI_PIPELINE_STEP:
        stage->newest++;
        stage->has_sums = false;
        break;
    default:
        break;
    }
    const int versions = stage->newest - oldest + 1;
    most(&rows->report.versions_max, versions);
}

/* From the last action to the first: which version of its stage is still needed behind it. */
static void find_oldest(rows_t *rows, const tutti_pipeline_row_t *row)
{
    for (int64_t i = 0; i < row->count; i++) {
        rows->stages[row->actions[i].stage].oldest += row->actions[i].kind == TUTTI_PIPELINE_STEP;
    }
    for (int64_t i = row->count - 1; i >= 0; i--) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        int *needed = &rows->stages[action->stage].oldest;
        rows->oldest[i] = *needed;
        if (tt_pipeline_computes(action->kind) && action->version < *needed) {
            *needed = action->version;
        }
    }
}

static void look_at_row(rows_t *rows, const tutti_pipeline_row_t *row)
{
    rows->activations = 0;
    find_oldest(rows, row);
    for (int64_t i = 0; i < row->count; i++) {
        look_at_action(rows, &row->actions[i], rows->oldest[i]);
    }
}

static tutti_status_t check_steps(const rows_t *rows, tt_pipeline_walk_t *walk)
{
    for (int stage = 0; rows->steps && stage < rows->schedule->stages; stage++) {
        if (rows->stages[stage].has_sums) {
            const int rank = rows->schedule->rank_of_stage[stage];
            return tt_pipeline_blame(walk,
                                     (tt_pipeline_place_t){rank, rows->schedule->rows[rank].count},
                                     "stage %d has gradients that no STEP takes in", stage);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t make_rows(rows_t *rows)
{
    const tutti_pipeline_schedule_t *schedule = rows->schedule;
    const size_t stages = (size_t)schedule->stages, shards = (size_t)schedule->shards;
    int64_t longest = 1;
    for (int rank = 0; rank < schedule->ranks; rank++) {
        longest = schedule->rows[rank].count > longest ? schedule->rows[rank].count : longest;
    }
    rows->stages = tt_alloc_array(stages, sizeof *rows->stages, "checked stages");
    rows->closed = tt_alloc_array(stages * shards, sizeof *rows->closed, "checked shards");
    rows->last = tt_alloc_array(stages * shards, sizeof *rows->last, "checked shards");
    rows->forward = tt_alloc_array(stages * shards, sizeof *rows->forward, "checked shards");
    rows->oldest = tt_alloc_array((size_t)longest, sizeof *rows->oldest, "checked versions");
    return rows->stages != NULL && rows->closed != NULL && rows->last != NULL &&
                   rows->forward != NULL && rows->oldest != NULL
               ? TUTTI_OK
               : TUTTI_ERR_NOMEM;
}

static tutti_status_t look_at_rows(tt_pipeline_walk_t *walk, tutti_pipeline_report_t *report)
{
    rows_t rows = {.schedule = walk->schedule,
                   .report = {.is_canonical = true, .versions_max = 1},
                   .steps = tt_pipeline_has(walk->schedule, TUTTI_PIPELINE_STEP)};
    tutti_status_t status = make_rows(&rows);
    for (int rank = 0; status >= 0 && rank < walk->schedule->ranks; rank++) {
        look_at_row(&rows, &walk->schedule->rows[rank]);
    }
    status = status >= 0 ? check_steps(&rows, walk) : status;
    tt_free(rows.stages);
    tt_free(rows.closed);
    tt_free(rows.last);
    tt_free(rows.forward);
    tt_free(rows.oldest);
    *report = rows.report;
    return status;
}

/* ---- all of it ---- */

static tutti_status_t check_walk(tt_pipeline_walk_t *walk, tutti_pipeline_report_t *report)
{
    const tutti_status_t status = tt_pipeline_walk_run(walk);
    if (status < 0) {
        return walk->has_failed ? status : tt_pipeline_explain_stop(walk);
    }
    TT_TRY(check_completeness(walk));
    return look_at_rows(walk, report);
}

static tutti_status_t check(const tutti_pipeline_schedule_t *schedule, tt_pipeline_walk_t *walk,
                            tutti_pipeline_report_t *report, tutti_buffer_t *grid)
{
    TT_TRY(tt_pipeline_walk_init(walk, schedule));
    walk->has_messages = tt_pipeline_has_messages(schedule);
    const tutti_status_t status = check_walk(walk, report);
    if (status != TUTTI_ERR_ARG || grid == NULL) {
        return status;
    }
    char text[TT_ERROR_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "%s", tutti_last_error());
    TT_TRY(tt_pipeline_print_grid(walk, grid));
    return tt_fail_again(status, text);
}

tutti_status_t tutti_pipeline_check(const tutti_pipeline_schedule_t *schedule,
                                    tutti_pipeline_report_t *report, tutti_buffer_t *grid)
{
    TT_WANT("pipeline_check", schedule);
    TT_WANT("pipeline_check", report);
    if (grid != NULL) {
        *grid = (tutti_buffer_t){0};
    }
    TT_TRY(tt_pipeline_check_form(schedule));
    tt_pipeline_walk_t walk;
    tutti_pipeline_report_t found;
    const tutti_status_t status = check(schedule, &walk, &found, grid);
    tt_pipeline_walk_fini(&walk);
    if (status >= 0) {
        *report = found;
    }
    return status;
}
