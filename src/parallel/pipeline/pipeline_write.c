/* A schedule as CSV: a line for each rank, a cell for each action. */
#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_form.h"
#include "parallel/pipeline/pipeline_text.h"

static void write_action(tt_pipeline_text_t *text, const tutti_pipeline_action_t *action,
                         int *steps)
{
    tt_pipeline_put_text(text, "%s", tt_pipeline_label(action).text);
    if (action->kind == TUTTI_PIPELINE_F && action->version != steps[action->stage]) {
        tt_pipeline_put_text(text, "@%d", action->version);
    }
    steps[action->stage] += action->kind == TUTTI_PIPELINE_STEP;
}

static tutti_status_t check_stages(const tutti_pipeline_schedule_t *schedule)
{
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            if (row->actions[i].stage < 0 || row->actions[i].stage >= schedule->stages) {
                return TT_FAIL(TUTTI_ERR_ARG, "pipeline: rank %d, action %lld: stage %d of %d",
                               rank, (long long)i, row->actions[i].stage, schedule->stages);
            }
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_pipeline_write(const tutti_pipeline_schedule_t *schedule, tutti_buffer_t *text)
{
    TT_WANT("pipeline_write", schedule);
    TT_WANT("pipeline_write", text);
    TT_TRY(tt_pipeline_check_form(schedule));
    TT_TRY(check_stages(schedule));
    int *steps = tt_alloc_array((size_t)schedule->stages, sizeof *steps, "pipeline steps");
    TT_TRY_ALLOC(steps);
    tt_pipeline_text_t csv = {0};
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            write_action(&csv, &row->actions[i], steps);
            tt_pipeline_put_text(&csv, "%s", i + 1 < row->count ? "," : "");
        }
        tt_pipeline_put_text(&csv, "\n");
    }
    tt_free(steps);
    return tt_pipeline_give_text(&csv, text);
}
