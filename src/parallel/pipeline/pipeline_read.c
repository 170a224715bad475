/* A schedule from CSV: the cells are read twice, to count actions and to keep them; then versions
 * and what STEP and REDUCE_GRAD take in are found from the order.
 */
#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_cells.h"

typedef struct {
    tutti_pipeline_schedule_t schedule;
    int64_t *counts; /* [rows there is room for] */
    int room;
    int stages, total; /* the largest numbers, and 1 */
    int64_t forwards;
} reader_t;

static void most(int *maximum, int value)
{
    *maximum = value > *maximum ? value : *maximum;
}

/* ---- counting ---- */

static tutti_status_t count_action(void *user, int line, const tutti_pipeline_action_t *action)
{
    reader_t *reader = user;
    if (line >= reader->room) {
        const int room = 2 * (line + 8);
        int64_t *counts =
            tt_realloc(reader->counts, (size_t)room * sizeof *counts, "pipeline lines");
        TT_TRY_ALLOC(counts);
        reader->counts = counts;
        reader->room = room;
    }
    reader->counts[line]++;
    most(&reader->stages, action->stage + 1);
    most(&reader->total, action->micro_batch + 1);
    reader->forwards += action->kind == TUTTI_PIPELINE_F;
    return TUTTI_OK;
}

static tutti_status_t check_counts(const reader_t *reader, int micro_batches)
{
    const int64_t wanted = (int64_t)reader->stages * reader->total;
    if (wanted == 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "pipeline: there is no action of a micro-batch");
    }
    if (wanted > reader->forwards) {
        return TT_FAIL(
            TUTTI_ERR_FORMAT, "pipeline: %lld forwards; %d stages of %d micro-batches want %lld",
            (long long)reader->forwards, reader->stages, reader->total, (long long)wanted);
    }
    if (micro_batches != 0 && (micro_batches < 0 || reader->total % micro_batches != 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: %d micro-batches are not shards of %d micro-batches each",
                       reader->total, micro_batches);
    }
    return TUTTI_OK;
}

static tutti_status_t make_rows(reader_t *reader, int micro_batches)
{
    tutti_pipeline_schedule_t *schedule = &reader->schedule;
    schedule->stages = reader->stages;
    schedule->micro_batches = micro_batches != 0 ? micro_batches : reader->total;
    schedule->shards = reader->total / schedule->micro_batches;
    schedule->rank_of_stage =
        tt_alloc_array((size_t)schedule->stages, sizeof(int), "pipeline stages");
    schedule->rows =
        tt_alloc_array((size_t)schedule->ranks, sizeof *schedule->rows, "pipeline rows");
    TT_TRY_ALLOC(schedule->rank_of_stage);
    TT_TRY_ALLOC(schedule->rows);
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const size_t count = rank < reader->room ? (size_t)reader->counts[rank] : 0;
        tutti_pipeline_row_t *row = &schedule->rows[rank];
        row->actions = tt_alloc_array(count, sizeof *row->actions, "pipeline row");
        TT_TRY_ALLOC(row->actions);
    }
    for (int stage = 0; stage < schedule->stages; stage++) {
        schedule->rank_of_stage[stage] = -1;
    }
    return TUTTI_OK;
}

/* ---- keeping ---- */

static tutti_status_t keep_action(void *user, int line, const tutti_pipeline_action_t *action)
{
    reader_t *reader = user;
    tutti_pipeline_row_t *row = &reader->schedule.rows[line];
    row->actions[row->count++] = *action;
    int *rank = &reader->schedule.rank_of_stage[action->stage];
    if (*rank < 0 && tt_pipeline_computes(action->kind)) {
        *rank = line;
    }
    return TUTTI_OK;
}

/* What is known of a stage while its row is read. */
typedef struct {
    int steps, last; /* STEPs so far; the micro-batch of the last B or W */
} stage_t;

static void complete_action(tutti_pipeline_action_t *action, stage_t *stage, int *versions)
{
    switch (action->kind) {
    case TUTTI_PIPELINE_F:
        action->version = action->version >= 0 ? action->version : stage->steps;
        versions[action->micro_batch] = action->version;
        break;
    case TUTTI_PIPELINE_B:
    case TUTTI_PIPELINE_I:
    case TUTTI_PIPELINE_W:
        action->version = versions[action->micro_batch];
        stage->last = action->kind == TUTTI_PIPELINE_I ? stage->last : action->micro_batch;
        break;
    case TUTTI_PIPELINE_STEP:
        action->version = ++stage->steps;
        action->micro_batch = action->micro_batch >= 0 ? action->micro_batch : stage->last;
        break;
    case TUTTI_PIPELINE_REDUCE:
        action->version = 0;
        action->micro_batch = action->micro_batch >= 0 ? action->micro_batch : stage->last;
        break;
    default:
        action->version = 0;
    }
}

static tutti_status_t complete(tutti_pipeline_schedule_t *schedule)
{
    const size_t total = (size_t)schedule->micro_batches * (size_t)schedule->shards;
    const size_t stages = (size_t)schedule->stages;
    stage_t *all = tt_alloc_array(stages, sizeof *all, "pipeline stages");
    int *versions = tt_alloc_array(stages * total, sizeof *versions, "pipeline versions");
    const bool is_whole = all != NULL && versions != NULL;
    for (int rank = 0; is_whole && rank < schedule->ranks; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        for (int64_t i = 0; i < row->count; i++) {
            const size_t stage = (size_t)row->actions[i].stage;
            complete_action(&row->actions[i], &all[stage], versions + stage * total);
        }
    }
    tt_free(all);
    tt_free(versions);
    return is_whole ? TUTTI_OK : TUTTI_ERR_NOMEM;
}

/* ---- both ---- */

static tutti_status_t read_all(reader_t *reader, const char *text, size_t bytes, int micro_batches)
{
    int lines = 0;
    TT_TRY(tt_pipeline_read_cells(text, bytes, count_action, reader, &lines));
    TT_TRY(check_counts(reader, micro_batches));
    reader->schedule.ranks = lines;
    TT_TRY(make_rows(reader, micro_batches));
    TT_TRY(tt_pipeline_read_cells(text, bytes, keep_action, reader, &lines));
    return complete(&reader->schedule);
}

tutti_status_t tutti_pipeline_read(const void *text, size_t bytes, int micro_batches,
                                   tutti_pipeline_schedule_t *out)
{
    TT_WANT("pipeline_read", out);
    if (text == NULL && bytes > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline_read: text is NULL");
    }
    reader_t reader = {0};
    const tutti_status_t status = read_all(&reader, text != NULL ? text : "", bytes, micro_batches);
    tt_free(reader.counts);
    if (status < 0) {
        tutti_pipeline_schedule_release(&reader.schedule);
        return status;
    }
    *out = reader.schedule;
    return TUTTI_OK;
}
