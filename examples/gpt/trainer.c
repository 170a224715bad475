/* A step's forward and backward, whoever shares what: shards of the data one after the other, or
 * those of a pipeline's row in one schedule. For training and --bench. */
#include "gpt.h"

#include <stdlib.h>

/* What a shard of a row computes with. */
struct row_batch {
    tutti_tensor_t *tokens, *targets;
};

/* Shards of this rank: [0, count) are `first`, first + stride, … of all. */
typedef struct {
    int first, count, stride;
} place_t;

static place_t place_of(const trainer_t *t)
{
    place_t place = {.count = 1, .stride = 1};
    if (t->ddp != NULL) {
        tutti_ddp_local_shards(t->ddp, &place.first, &place.count);
        place.stride = tutti_ddp_shard_stride(t->ddp);
    }
    return place;
}

static tutti_status_t open_row(trainer_t *t)
{
    const size_t count = (size_t)place_of(t).count + 1;
    t->shards = calloc(count, sizeof *t->shards);
    t->batches = calloc(count, sizeof *t->batches);
    t->row_losses = calloc(count, sizeof *t->row_losses);
    return t->shards != NULL && t->batches != NULL && t->row_losses != NULL ? TUTTI_OK
                                                                            : TUTTI_ERR_NOMEM;
}

bool gpt_steps_itself(const settings_t *settings)
{
    return gpt_steps_inside(settings) || settings->post_validate;
}

tutti_status_t gpt_open_trainer(session_t *session, trainer_t *t)
{
    if (gpt_is_pipeline(&session->settings)) {
        TUTTI_CHECK(gpt_open_pipeline(session, &t->pipeline));
    }
    if (gpt_averages(&session->settings)) {
        TUTTI_CHECK(gpt_open_ddp(session, &t->ddp));
    }
    if (t->pipeline != NULL && t->ddp != NULL) {
        TUTTI_CHECK(tutti_pipeline_set_ddp(t->pipeline, t->ddp));
    }
    return t->pipeline != NULL ? open_row(t) : TUTTI_OK;
}

tutti_status_t gpt_set_optimizer(const session_t *session, trainer_t *t, tutti_optim_t *opt)
{
    const tutti_pipeline_validation_t options = {.max_norm = gpt_clip(&session->settings)};
    return gpt_steps_inside(&session->settings) ? tutti_pipeline_set_optimizer(t->pipeline, opt)
           : session->settings.post_validate
               ? tutti_pipeline_post_validate(t->pipeline, opt, &options)
               : TUTTI_OK;
}

void gpt_close_trainer(trainer_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_pipeline_release(t->pipeline);
    free(t->shards);
    free(t->row_losses);
    free(t->batches);
}

int gpt_shards_of(const trainer_t *t)
{
    return t->ddp == NULL ? 1 : tutti_ddp_shards(t->ddp);
}

/* ---- a step -------------------------------------------------------------------------------- */

/* Of a shard; the pipeline names random numbers itself. */
static void read_shard(const session_t *session, tutti_scope_t *s, int shard,
                       const gpt_source_t *source, struct row_batch *batch)
{
    const int64_t outside = tutti_context_shard(session->ctx);
    tutti_context_set_shard(session->ctx, shard);
    source->read(source->user, s, 0, &batch->tokens, &batch->targets);
    tutti_context_set_shard(session->ctx, outside);
}

static void give_losses(const place_t *place, const double *mine, double *losses)
{
    for (int i = 0; i < place->count; i++) {
        losses[place->first + i * place->stride] = mine[i];
    }
}

/* Of a step that may be undone losses come with its verdict. */
static tutti_status_t step_read(const session_t *session, trainer_t *t, const place_t *place,
                                double *losses)
{
    const bool is_told_later = session->settings.post_validate;
    double *mine = is_told_later ? NULL : t->row_losses;
    TUTTI_CHECK(t->ddp == NULL
                    ? tutti_pipeline_step(t->pipeline, &t->shards[0].batch, mine)
                    : tutti_pipeline_step_shards(t->pipeline, t->shards, place->count, mine));
    if (!is_told_later) {
        give_losses(place, mine, losses);
    }
    return TUTTI_OK;
}

/* All shards of this rank, in one schedule. */
static tutti_status_t step_row(const session_t *session, trainer_t *t, const gpt_source_t *source,
                               double *losses)
{
    tutti_scope_t *s;
    const place_t place = place_of(t);
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    for (int i = 0; i < place.count; i++) {
        struct row_batch *batch = &t->batches[i];
        read_shard(session, s, place.first + i * place.stride, source, batch);
        t->shards[i] = (tutti_pipeline_shard_t){
            .batch = {.inputs = &batch->tokens, 1, .targets = &batch->targets, 1}};
    }
    const tutti_status_t status = tutti_scope_status(s) < 0
                                      ? TUTTI_OK /* which closing the scope tells */
                                      : step_read(session, t, &place, losses);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

tutti_status_t gpt_step_shards(session_t *session, trainer_t *t, const gpt_source_t *source,
                               double *losses)
{
    TUTTI_CHECK(t->pipeline != NULL ? step_row(session, t, source, losses) : TUTTI_OK);
    while (t->pipeline == NULL && tutti_ddp_next_shard(t->ddp, session->ctx)) {
        TUTTI_CHECK(gpt_shard(session, t->ddp, source, &losses[tutti_context_shard(session->ctx)]));
    }
    return t->ddp != NULL ? tutti_ddp_finish(t->ddp) : TUTTI_OK;
}

tutti_status_t gpt_take_verdict(trainer_t *t, double *losses, double *norm)
{
    const place_t place = place_of(t);
    tutti_pipeline_verdict_t verdict;
    TUTTI_CHECK(tutti_pipeline_validate(t->pipeline, &verdict));
    give_losses(&place, verdict.losses, losses);
    *norm = verdict.norm;
    return TUTTI_OK;
}
