/* Evaluation: the forwards of a row, without a graph.
 *
 *     evaluate            one batch, cut into micro-batches       number b: rows of the batch
 *     evaluate_batches    many, none of which is cut, in rounds   number b: batch first + b
 *
 * At DDP's stage 3 parameters are here meanwhile. Cost: pipeline_run.h.
 */
#include <tutti/modes.h>

#include <string.h>

#include "core/base/alloc.h"
#include "parallel/pipeline/pipeline_impl.h"

/* Runs the row, once or more. */
typedef tutti_status_t (*rounds_t)(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batches,
                                   int count, double *losses);

static tutti_status_t run_one(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batches, int count,
                              double *losses)
{
    const tutti_pipeline_shard_t one = {.batch = batches[0]};
    return tt_pipeline_run(p, &one, count, losses);
}

/* As many at once as the row has numbers. losses: [count]. */
static tutti_status_t run_rounds(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batches,
                                 int count, tutti_pipeline_shard_t *round, double *losses)
{
    for (int first = 0; first < count; first += p->slots) {
        const int size = count - first < p->slots ? count - first : p->slots;
        for (int i = 0; i < size; i++) {
            round[i] = (tutti_pipeline_shard_t){.batch = batches[first + i]};
        }
        p->first_batch = first;
        TT_TRY(tt_pipeline_run(p, round, size, losses + first));
    }
    return TUTTI_OK;
}

static tutti_status_t run_many(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batches,
                               int count, double *losses)
{
    tutti_pipeline_shard_t *round =
        tt_alloc_array((size_t)p->slots, sizeof *round, "batches of a round");
    double *found = tt_alloc_array((size_t)count, sizeof *found, "losses of batches");
    p->place = (tt_pipeline_place_t){.peer = -1}; /* none yet */
    p->cut_into = 1;
    const tutti_status_t status = round == NULL || found == NULL
                                      ? tt_pipeline_fail(p, TUTTI_ERR_NOMEM)
                                      : run_rounds(p, batches, count, round, found);
    p->cut_into = p->micro_batches;
    if (status >= 0 && losses != NULL) {
        memcpy(losses, found, (size_t)count * sizeof *losses);
    }
    tt_free(round);
    tt_free(found);
    return status;
}

static tutti_status_t run_summoned(tutti_pipeline_t *p, rounds_t rounds,
                                   const tutti_pipeline_batch_t *batches, int count, double *losses)
{
    TT_TRY(tt_pipeline_summon(p));
    return tt_pipeline_dismiss(p, rounds(p, batches, count, losses));
}

static tutti_status_t evaluate(tutti_pipeline_t *p, rounds_t rounds,
                               const tutti_pipeline_batch_t *batches, int count, double *losses)
{
    TT_TRY(tt_pipeline_fail(p, TUTTI_OK)); /* what failed before */
    TT_TRY(tt_validation_settle(p));
    const bool was_training = tutti_context_is_training(p->ctx),
               was_recording = tutti_context_set_grad_enabled(p->ctx, false);
    tutti_context_set_training(p->ctx, false);
    p->trains = false;
    p->call = rounds == run_one ? TT_CALL_EVALUATE : TT_CALL_EVALUATE_BATCHES;
    p->call_batches = count;
    const tutti_status_t status = run_summoned(p, rounds, batches, count, losses);
    tutti_context_set_training(p->ctx, was_training);
    (void)tutti_context_set_grad_enabled(p->ctx, was_recording);
    return status;
}

tutti_status_t tutti_pipeline_evaluate(tutti_pipeline_t *p, const tutti_pipeline_batch_t *batch,
                                       double *loss)
{
    TT_WANT("pipeline_evaluate", p);
    TT_WANT("pipeline_evaluate", batch);
    return evaluate(p, run_one, batch, 1, loss);
}

tutti_status_t tutti_pipeline_evaluate_batches(tutti_pipeline_t *p,
                                               const tutti_pipeline_batch_t *batches, int count,
                                               double *losses)
{
    TT_WANT("pipeline_evaluate_batches", p);
    if (batches == NULL || count < 1) {
        p->place = (tt_pipeline_place_t){.peer = -1}; /* between steps */
        return tt_pipeline_fail(
            p, TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline_evaluate_batches: %d batches%s: every rank gives at least one",
                       count, batches == NULL ? ", and no array" : ""));
    }
    return evaluate(p, run_many, batches, count, losses);
}
