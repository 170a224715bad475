/* What a row says of versions and updates, found once.
 *
 *     row       F0  F1  B0  STEP  F2  B1   STEP  B2   STEP     stage 0 of 2, pipedream
 *     version   0   0   0         1   0          1
 *     newest    0   0   0   1     1   1    2     2    3
 *     marks                 KEEP      END  KEEP  END           2 is wanted by nobody
 *     updates   0, 1, 2                                        of the micro-batches
 *
 * Which version an action wants is the row's affair (decision 0031); which numbers STEPs have is
 * counted here. Cost: linear in the row.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_versions.h"

static bool computes(tutti_pipeline_kind_t kind)
{
    return kind <= TUTTI_PIPELINE_W;
}

static int count_steps(const tutti_pipeline_row_t *row, int stage)
{
    int count = 0;
    for (int64_t i = 0; i < row->count; i++) {
        count += row->actions[i].kind == TUTTI_PIPELINE_STEP && row->actions[i].stage == stage;
    }
    return count;
}

/* ---- which schedules step inside a batch ----------------------------------------------------- */

static bool is_named_so(const char *name)
{
    tutti_pipeline_about_t about;
    for (size_t i = 0; name != NULL && tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        if (strcmp(about.name, name) == 0) {
            return about.is_asynchronous;
        }
    }
    return false;
}

/* The same on every rank, whatever its own row is. */
static bool is_asynchronous(const tutti_pipeline_t *p)
{
    const tutti_pipeline_schedule_t *own = p->options.plan.own;
    for (int stage = 0; own != NULL && stage < own->stages; stage++) {
        if (count_steps(&own->rows[own->rank_of_stage[stage]], stage) > 1) {
            return true;
        }
    }
    return own == NULL && is_named_so(p->options.plan.schedule);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static tutti_status_t check_stages(const tutti_pipeline_t *p)
{
    for (int rank = 0; rank < p->ranks; rank++) {
        int count = 0;
        for (int stage = 0; stage < p->stages; stage++) {
            count += p->rank_of_stage[stage] == rank;
        }
        if (count > 1) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "pipeline: rank %d has %d stages, which step inside a batch, and its "
                           "optimizer steps all that a rank has: give each rank one stage, or one "
                           "STEP at the end of each stage",
                           rank, count);
        }
    }
    return TUTTI_OK;
}

/* Its uses on other stages would want values, and give gradients, at other times. */
static tutti_status_t check_ties(const tutti_pipeline_t *p)
{
    for (int t = 0; t < p->tie_count; t++) {
        const tt_tie_t *tie = &p->ties[t];
        const int first = p->chain.parts[tie->uses[0].part].stage;
        for (int i = 1; i < tie->use_count; i++) {
            const int stage = p->chain.parts[tie->uses[i].part].stage;
            if (stage != first) {
                return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                               "pipeline: stages %d and %d have the tied weight %s, and step at "
                               "different times inside a batch: cut so that one stage has all its "
                               "parts, untie it, or take a schedule that steps at the end (flush)",
                               first, stage, tie->name);
            }
        }
    }
    return TUTTI_OK;
}

/* The other parts' optimizers would be waited for. */
static tutti_status_t check_whole(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    return x->spread == NULL
               ? TUTTI_OK
               : TT_FAIL(
                     TUTTI_ERR_UNSUPPORTED,
                     "pipeline: %s is a part by tensor parallelism, and stages that step inside "
                     "a batch step by themselves: take a schedule that steps at the end "
                     "(flush), or whole layers",
                     name);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Which STEP of a stage takes in a micro-batch. */
static void list_updates(const tutti_pipeline_row_t *row, int stage, int *updates)
{
    int update = 0;
    for (int64_t i = 0; i < row->count; i++) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        if (action->stage != stage) {
            continue;
        }
        if (action->kind == TUTTI_PIPELINE_B || action->kind == TUTTI_PIPELINE_W) {
            updates[action->micro_batch] = update;
        }
        update += action->kind == TUTTI_PIPELINE_STEP;
    }
}

/* Of a schedule of one's own: the loss of an update is weighed by its micro-batches, which must be
 * the same on all stages. */
static tutti_status_t compare_updates(const tutti_pipeline_t *p, int *updates)
{
    const tutti_pipeline_schedule_t *own = p->options.plan.own;
    list_updates(&own->rows[own->rank_of_stage[0]], 0, p->versions->updates);
    for (int stage = 1; stage < own->stages; stage++) {
        list_updates(&own->rows[own->rank_of_stage[stage]], stage, updates);
        for (int b = 0; b < p->micro_batches; b++) {
            if (updates[b] != p->versions->updates[b]) {
                return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                               "pipeline: update %d of stage 0 takes in micro-batch %d, and update "
                               "%d of stage %d does: let all stages STEP behind the same "
                               "micro-batches",
                               p->versions->updates[b], b, updates[b], stage);
            }
        }
    }
    return TUTTI_OK;
}

static tutti_status_t find_updates(tutti_pipeline_t *p)
{
    const size_t count = (size_t)p->micro_batches;
    p->versions->updates = tt_alloc_array(count, sizeof(int), "pipeline updates");
    TT_TRY_ALLOC(p->versions->updates);
    if (p->options.plan.own == NULL) {
        for (int i = 0; i < p->own_count; i++) {
            list_updates(&p->row, p->own[i].index, p->versions->updates);
        }
        return TUTTI_OK;
    }
    int *updates = tt_alloc_array(count, sizeof *updates, "pipeline updates");
    TT_TRY_ALLOC(updates);
    const tutti_status_t status = compare_updates(p, updates);
    tt_free(updates);
    return status;
}

int64_t tt_update_rows(const tutti_pipeline_t *p, int64_t total, int micro_batch)
{
    if (p->versions == NULL) {
        return total;
    }
    int64_t rows = 0;
    const int *updates = p->versions->updates;
    for (int b = 0; b < p->micro_batches; b++) {
        rows += updates[b] == updates[micro_batch] ? tt_micro_batch_rows(p, total, b) : 0;
    }
    return rows;
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* From the last action to the first: is_wanted says which versions are, behind the action. */
static void mark_row(const tutti_pipeline_row_t *row, int steps, bool *is_wanted, uint8_t *marks)
{
    int newest = steps;
    for (int64_t i = row->count - 1; i >= 0; i--) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        if (action->kind == TUTTI_PIPELINE_STEP) {
            newest--;
            marks[i] = is_wanted[newest] ? TT_VERSION_KEEP : 0;
        } else if (computes(action->kind)) {
            marks[i] = is_wanted[action->version] ? 0 : TT_VERSION_END;
            is_wanted[action->version] = true;
        }
    }
}

static tutti_status_t mark_versions(tutti_pipeline_t *p)
{
    tt_versions_t *v = p->versions;
    const int steps = p->own_count == 0 ? 0 : count_steps(&p->row, p->own[0].index);
    const size_t versions = (size_t)steps + 1;
    v->marks = tt_alloc_array((size_t)p->row.count, sizeof *v->marks, "pipeline versions");
    TT_TRY_ALLOC(v->marks);
    v->kept = tt_alloc_array(versions, sizeof *v->kept, "pipeline versions");
    TT_TRY_ALLOC(v->kept);
    bool *is_wanted = tt_alloc_array(versions, sizeof *is_wanted, "pipeline versions");
    TT_TRY_ALLOC(is_wanted);
    mark_row(&p->row, steps, is_wanted, v->marks);
    tt_free(is_wanted);
    return TUTTI_OK;
}

tutti_status_t tt_updates_open(tutti_pipeline_t *p)
{
    if (!is_asynchronous(p)) {
        return TUTTI_OK;
    }
    if (p->shards > 1) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "pipeline: %d shards, and stages of this schedule step inside a batch: take "
                       "a schedule that steps at the end (flush), or one shard",
                       p->shards);
    }
    TT_TRY(check_stages(p));
    TT_TRY(check_ties(p));
    TT_TRY(tutti_module_each_parameter(p->module, check_whole, NULL));
    p->versions = tt_alloc(sizeof *p->versions, "pipeline versions");
    TT_TRY_ALLOC(p->versions);
    TT_TRY(find_updates(p));
    return mark_versions(p);
}
