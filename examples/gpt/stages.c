/* The model as a pipeline: --mesh pp=P cuts it into stages, on P ranks. With --micro-batches alone
 * one rank has all of them, and the same bits. */
#include "gpt.h"

#include <stdio.h>
#include <string.h>

enum { CUTS_MAX = 256 };

bool gpt_is_pipeline(const settings_t *settings)
{
    return settings->micro_batches > 0 ||
           (settings->mesh != NULL && strstr(settings->mesh, "pp=") != NULL);
}

static bool has_tensor_parallelism(const settings_t *settings)
{
    return settings->tp_shards > 0 ||
           (settings->mesh != NULL && strstr(settings->mesh, "tp=") != NULL);
}

bool gpt_steps_inside(const settings_t *settings)
{
    tutti_pipeline_about_t about;
    for (size_t i = 0; gpt_is_pipeline(settings) && settings->pipeline != NULL &&
                       tutti_pipeline_describe(i, &about) == TUTTI_OK;
         i++) {
        if (strcmp(about.name, settings->pipeline) == 0) {
            return about.is_asynchronous;
        }
    }
    return false;
}

/* Whether there are shards whose gradients are averaged. */
static bool has_shards(const settings_t *settings)
{
    return settings->shards > 1 || settings->stage > 0 ||
           (settings->mesh != NULL && strstr(settings->mesh, "dp=") != NULL);
}

bool gpt_averages(const settings_t *settings)
{
    return !gpt_steps_inside(settings) && (!settings->post_validate || has_shards(settings));
}

double gpt_clip(const settings_t *settings)
{
    return settings->clip >= 0                             ? settings->clip
           : gpt_steps_inside(settings) || settings->bench ? 0
                                                           : 1;
}

const char *gpt_check_pipeline(const settings_t *settings)
{
    if (gpt_steps_inside(settings) && settings->clip > 0) {
        return "gpt: --clip needs all gradients at once, and pipedream and 2bw step each stage by "
               "itself: give --clip 0, or --pipeline flush";
    }
    if (settings->sequence_parallel && !has_tensor_parallelism(settings)) {
        return "gpt: --sequence-parallel cuts sequences between ranks of tensor parallelism: it "
               "needs --mesh tp=P or --tp-shards T";
    }
    if (!gpt_is_pipeline(settings)) {
        return settings->pipeline == NULL && settings->cut == NULL &&
                       settings->stages_per_rank == 0 && !settings->vertical_sync &&
                       !settings->post_validate
                   ? NULL
                   : "gpt: --pipeline, --vertical-sync, --post-validate, --cut and "
                     "--stages-per-rank need --mesh pp=P or --micro-batches M";
    }
    if (settings->accumulate > 1) {
        return "gpt: --micro-batches cuts a batch, --accumulate adds batches up: give one of them";
    }
    if (settings->post_validate && gpt_steps_inside(settings)) {
        return "gpt: --post-validate is for stages that step behind their row: no pipedream or "
               "2bw";
    }
    if (settings->post_validate && settings->on_nan == ON_NAN_SKIP) {
        return "gpt: --on-nan skip leaves out a whole step, and with --post-validate stages have "
               "stepped when the loss is known: give stop or warn";
    }
    if (gpt_steps_inside(settings) && (has_shards(settings) || has_tensor_parallelism(settings))) {
        return "gpt: pipedream and 2bw step each stage by itself, so there are no replicas and no "
               "parts of layers: no --shards, --stage, --tp-shards, dp, tp";
    }
    if (settings->cut != NULL && strcmp(settings->cut, "auto") == 0 &&
        has_tensor_parallelism(settings)) {
        return "gpt: --cut auto measures whole layers: give names, or no tensor parallelism";
    }
    if (gpt_steps_inside(settings) && settings->on_nan == ON_NAN_SKIP) {
        return "gpt: --on-nan skip leaves out a whole step, and pipedream and 2bw have stepped "
               "when the loss is known: give stop or warn, or --pipeline flush";
    }
    if (settings->hook != NULL) {
        return "gpt: gradients of a pipeline's replicas are averaged as they are: no --hook";
    }
    return NULL;
}

/* "blocks.2,ln" in place. */
static int split_names(char *text, const char *names[CUTS_MAX])
{
    int count = 0;
    for (char *name = text; name != NULL && count < CUTS_MAX;) {
        char *comma = strchr(name, ',');
        names[count++] = name;
        if (comma != NULL) {
            *comma = 0;
        }
        name = comma == NULL ? NULL : comma + 1;
    }
    return count;
}

/* logits [B, T, V], targets [B, T] */
static tutti_tensor_t *loss_of_logits(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                      int output_count, tutti_tensor_t *const *targets,
                                      int target_count, void *user)
{
    (void)output_count, (void)target_count;
    return gpt_loss_of(s, user, outputs[0], targets[0]);
}

/* A row without any has a plan of one, which it does not use. */
static int shards_of_row(const session_t *session)
{
    const int rank = tutti_group_rank(session->data), ranks = tutti_group_size(session->data),
              shards = session->settings.shards > 0 ? (int)session->settings.shards : ranks;
    const int count = session->settings.accumulation == TUTTI_DDP_SHARDED
                          ? (shards - rank + ranks - 1) / ranks /* in turn */
                          : tutti_ddp_first_shard(shards, ranks, rank + 1) -
                                tutti_ddp_first_shard(shards, ranks, rank);
    return gpt_steps_inside(&session->settings) || count == 0 ? 1 : count;
}

tutti_status_t gpt_open_pipeline(session_t *session, tutti_pipeline_t **out)
{
    char text[4096];
    const char *names[CUTS_MAX];
    const settings_t *settings = &session->settings;
    tutti_pipeline_run_options_t options = {
        .plan = {.schedule = settings->pipeline,
                 .stages_per_rank = (int)settings->stages_per_rank,
                 .micro_batches = (int)settings->micro_batches,
                 .shards = shards_of_row(session),
                 .vertical_sync = settings->vertical_sync},
        .loss = loss_of_logits,
        .loss_user = session};
    if (settings->cut != NULL) {
        snprintf(text, sizeof text, "%s", settings->cut);
        if (strcmp(text, "auto") == 0) {
            TUTTI_CHECK(gpt_choose_cut(session, &options, text, sizeof text));
        }
    }
    if (settings->cut != NULL && text[0] != 0) { /* of one stage there are no names */
        options.cut = names;
        options.cut_count = split_names(text, names);
    }
    return tutti_pipeline_create(session->ctx, session->model, session->pipe, &options, out);
}
