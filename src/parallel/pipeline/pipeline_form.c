/* Schedules of one's own may be anything: numbers are looked at before memory is sized by them, and
 * ranks and rows before they are an index or are read. Stages and micro-batches of actions are for
 * the walk, which names the action.
 */
#include "parallel/pipeline/pipeline_form.h"

#include "core/base/fail.h"

static tutti_status_t want_range(const char *name, int value, int most)
{
    return value >= 1 && value <= most
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "pipeline: the schedule's %s is %d; want 1 to %d", name,
                         value, most);
}

static tutti_status_t check_numbers(const tutti_pipeline_schedule_t *schedule)
{
    TT_TRY(want_range("ranks", schedule->ranks, TT_PIPELINE_STAGES_MAX));
    TT_TRY(want_range("stages", schedule->stages, TT_PIPELINE_STAGES_MAX));
    const int total_max = TT_PIPELINE_COMPUTATIONS_MAX / schedule->stages;
    TT_TRY(want_range("shards", schedule->shards, total_max));
    return want_range("micro_batches", schedule->micro_batches, total_max / schedule->shards);
}

static tutti_status_t check_stages(const tutti_pipeline_schedule_t *schedule)
{
    if (schedule->rank_of_stage == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: the schedule's rank_of_stage is NULL");
    }
    for (int stage = 0; stage < schedule->stages; stage++) {
        const int rank = schedule->rank_of_stage[stage];
        if (rank < -1 || rank >= schedule->ranks) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: the schedule's rank_of_stage[%d] is %d; there are %d ranks",
                           stage, rank, schedule->ranks);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_rows(const tutti_pipeline_schedule_t *schedule)
{
    if (schedule->rows == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: the schedule's rows are NULL");
    }
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        if (row->count < 0 || row->count > INT32_MAX || (row->count > 0 && row->actions == NULL)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: the schedule's row of rank %d has %lld actions%s", rank,
                           (long long)row->count, row->actions == NULL ? ", which are NULL" : "");
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_pipeline_check_form(const tutti_pipeline_schedule_t *schedule)
{
    TT_TRY(check_numbers(schedule));
    TT_TRY(check_stages(schedule));
    return check_rows(schedule);
}
