/* The first failure of a pipeline is kept with the place where it happened, and ends it on all
 * ranks.
 */
#include <stdio.h>

#include "comm/group/agree.h"
#include "comm/group/root_rank.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

enum { PLACE_BYTES = 320, NUMBER_BYTES = 32 };

static const char *name_of(tutti_pipeline_kind_t kind)
{
    static const char *const names[] = {[TUTTI_PIPELINE_F] = "F",
                                        [TUTTI_PIPELINE_B] = "B",
                                        [TUTTI_PIPELINE_I] = "I",
                                        [TUTTI_PIPELINE_W] = "W"};
    return kind <= TUTTI_PIPELINE_W      ? names[kind]
           : kind == TUTTI_PIPELINE_STEP ? "STEP"
                                         : "a message";
}

/* As users number them: the stages may be ranks of a mesh. */
static int world_rank(const tutti_pipeline_t *p, int rank)
{
    return p->group == NULL ? p->world_rank : tt_group_root_rank(p->group, rank);
}

/* Which of the row's numbers it is: "micro-batch 3"; of batches that are not cut "batch 3". */
static char *describe_number(const tutti_pipeline_t *p, char text[NUMBER_BYTES])
{
    const int slot = p->place.action.micro_batch;
    const bool is_whole = p->call == TT_CALL_EVALUATE_BATCHES;
    snprintf(text, NUMBER_BYTES, is_whole ? "batch %d" : "micro-batch %d",
             is_whole ? p->first_batch + slot : slot % p->micro_batches);
    return text;
}

/* "rank 1, step 7, F of stage 2, micro-batch 3, waiting for rank 0 (F of stage 1, micro-batch 3)"
 */
static char *describe_place(const tutti_pipeline_t *p, char text[PLACE_BYTES])
{
    const tutti_pipeline_action_t *at = &p->place.action;
    const bool is_forward = at->kind == TUTTI_PIPELINE_F;
    char number[NUMBER_BYTES];
    int used = snprintf(text, PLACE_BYTES, "rank %d, step %lld", world_rank(p, p->rank),
                        (long long)p->step);
    if (p->ddp != NULL) {
        used +=
            snprintf(text + used, PLACE_BYTES - (size_t)used, ", shard %lld", (long long)p->shard);
    }
    if (p->place.is_begun) {
        used += snprintf(text + used, PLACE_BYTES - (size_t)used, ", %s%s of stage %d, %s",
                         p->place.is_behind ? "behind " : "", name_of(at->kind), at->stage,
                         describe_number(p, number));
    }
    if (p->place.peer >= 0 && p->place.is_begun) {
        snprintf(text + used, PLACE_BYTES - (size_t)used, ", with rank %d (%s of stage %d, %s)",
                 world_rank(p, p->place.peer), is_forward ? "F" : "backward",
                 at->stage + (is_forward ? -1 : 1), describe_number(p, number));
    }
    return text;
}

/* Nobody waits for this rank any more: stages, parts of a layer, replicas. */
static void give_up(tutti_pipeline_t *p)
{
    (void)tt_group_give_up(p->group, p->status);
    for (int i = 0; i < p->tensor_count; i++) {
        tt_spread_t *spread = p->params[i].tensor->spread;
        if (spread != NULL) {
            spread->ops->give_up(spread);
        }
    }
    if (p->ddp != NULL) {
        (void)tt_ddp_fail(p->ddp, tt_fail_again(p->status, p->error));
    }
}

tutti_status_t tt_pipeline_fail(tutti_pipeline_t *p, tutti_status_t status)
{
    char place[PLACE_BYTES];
    if (p->status >= 0 && status < 0) {
        char cause[TT_ERROR_TEXT_BYTES];
        snprintf(cause, sizeof cause, "%s", tutti_last_error());
        p->status = status;
        (void)TT_FAIL(status, "pipeline: %s: %s", describe_place(p, place), cause);
        snprintf(p->error, sizeof p->error, "%s", tutti_last_error());
        give_up(p);
    }
    return p->status < 0 ? tt_fail_again(p->status, p->error) : TUTTI_OK;
}
