/* Replicas of a pipeline, each with shards of its own, whose gradients DDP averages.
 *
 *     next_shard       the row, for the shard's micro-batches; DDP is told of each stage's last
 *     pipeline_step    backward, so that buckets leave while others go on; ties are added up. Or
 *                      pipeline_step_shards, for all of them (pipeline_shards.c)
 *     …
 *     ddp_finish       averages; then the ranks of a row tell each other which parameters have one
 *
 * A failure of either is one of both: the ranks that share a stage, a layer or a row stop waiting.
 */
#include <tutti/sharded.h>

#include <stddef.h>
#include <stdio.h>

#include "comm/group/agree.h"
#include "parallel/pipeline/pipeline_impl.h"

static tutti_pipeline_t *pipeline_of(tt_ddp_driver_t *driver)
{
    return (tutti_pipeline_t *)(void *)((char *)driver - offsetof(tutti_pipeline_t, driver));
}

/* The step before is what it should be: DDP forgets its gradients, and copies parameters. */
static tutti_status_t begin(tt_ddp_driver_t *driver)
{
    return tt_validation_settle(pipeline_of(driver));
}

/* Behind averages; there are none in a step that has ended for all. */
static tutti_status_t step_early(tutti_pipeline_t *p, tutti_status_t status)
{
    if (status == TUTTI_END) {
        tt_validation_drop(p);
        return TUTTI_OK;
    }
    return tt_validation_step(p);
}

static tutti_status_t finish(tt_ddp_driver_t *driver, tutti_status_t status)
{
    tutti_pipeline_t *p = pipeline_of(driver);
    driver->moves_buffers = false;
    p->batch_count = 0; /* losses are known */
    const tutti_status_t told = status < 0 || p->status < 0 ? status
                                : p->validation != NULL     ? step_early(p, status)
                                                            : tt_slices_end_step(p, true, NULL);
    return told < 0 ? tt_pipeline_fail(p, told) : status;
}

/* Its ranks are not asked any more, so that a step that waits for its verdict has none: nobody
 * waits for this one. The ddp's release has no failure, and the last one's text stays. */
static void forget(tt_ddp_driver_t *driver)
{
    char text[TT_ERROR_TEXT_BYTES];
    tutti_pipeline_t *p = pipeline_of(driver);
    p->ddp = NULL;
    if (p->is_undecided) {
        snprintf(text, sizeof text, "%s", tutti_last_error());
        p->place = (tt_pipeline_place_t){.peer = -1}; /* between steps */
        (void)tt_pipeline_fail(p, TT_FAIL(TUTTI_ERR_STATE,
                                          "the ddp was released before the last step was validated "
                                          "(tutti_pipeline_validate())"));
        (void)tt_fail_again(TUTTI_OK, text);
    }
}

void tt_pipeline_leave_ddp(tutti_pipeline_t *p)
{
    if (p->ddp != NULL) {
        (void)tt_ddp_set_driver(p->ddp, NULL); /* which has no way to fail */
        p->ddp = NULL;
    }
}

tutti_status_t tt_pipeline_summon(tutti_pipeline_t *p)
{
    if (p->ddp == NULL) {
        return TUTTI_OK;
    }
    const tutti_status_t mine = tutti_ddp_summon(p->ddp, NULL, false),
                         agreed = tt_group_agree(p->group, mine);
    return mine >= 0 && agreed < 0 ? tt_pipeline_dismiss(p, agreed) : agreed;
}

tutti_status_t tt_pipeline_dismiss(tutti_pipeline_t *p, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    const tutti_status_t dismissed = p->ddp == NULL ? TUTTI_OK : tutti_ddp_dismiss(p->ddp);
    return status < 0 ? tt_fail_again(status, text) : dismissed;
}

/* The rank that steps it has it in the ddp, which would round it there alone. */
static tutti_status_t check_rounding(const tutti_pipeline_t *p, const tutti_ddp_t *ddp)
{
    for (int t = 0; t < p->tie_count; t++) {
        const tt_tie_t *tie = &p->ties[t];
        if (tt_tie_spans_ranks(p, tie) && tt_ddp_rounds(ddp, tie->tensor)) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "pipeline_set_ddp: the tied weight %s is of stages on several ranks, "
                           "and options.param_dtype would round it on one of them: cut so that one "
                           "rank has all its parts, untie it, or name their modules in f32_kinds",
                           tie->name);
        }
    }
    return TUTTI_OK;
}

/* A plan of one goes through them one at a time. */
static tutti_status_t check_shards(const tutti_pipeline_t *p, const tutti_ddp_t *ddp)
{
    int first, here;
    tutti_ddp_local_shards(ddp, &first, &here);
    return p->shards == 1 || p->shards == here
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "pipeline_set_ddp: plan.shards is %d, and this rank has %d of the ddp's "
                         "%d shards: plan as many, or one, which goes through the pipeline alone",
                         p->shards, here, tutti_ddp_shards(ddp));
}

tutti_status_t tutti_pipeline_set_ddp(tutti_pipeline_t *p, tutti_ddp_t *ddp)
{
    TT_WANT("pipeline_set_ddp", p);
    TT_WANT("pipeline_set_ddp", ddp);
    if (tutti_ddp_module(ddp) != p->module) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline_set_ddp: the ddp is of another module");
    }
    if (p->ddp != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_set_ddp: it has one already");
    }
    if (p->validation != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "pipeline_set_ddp: this rank steps behind its row already: take "
                       "tutti_pipeline_post_validate() away, and call it behind this");
    }
    if (p->versions != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "pipeline_set_ddp: stages of this schedule step inside a batch, each by "
                       "itself, and replicas average behind one: take a synchronous one, such as "
                       "flush");
    }
    TT_TRY(check_shards(p, ddp));
    TT_TRY(check_rounding(p, ddp));
    p->driver = (tt_ddp_driver_t){.begin = begin, .finish = finish, .forget = forget};
    TT_TRY(tt_ddp_set_driver(ddp, &p->driver));
    p->ddp = ddp;
    for (int t = 0; t < p->tie_count; t++) {
        tt_ddp_gather_elsewhere(ddp, p->ties[t].tensor);
    }
    return TUTTI_OK;
}
