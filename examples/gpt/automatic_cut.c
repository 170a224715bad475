/* --cut auto: where the stages of a pipeline begin, from measured times of the model's parts. */
#include "gpt.h"

#include <stdio.h>
#include <string.h>

/* Of a micro-batch of random tokens; rank 0 measures, and all are told: replicas are cut alike. */
static tutti_status_t measure(session_t *session, const tutti_pipeline_run_options_t *run,
                              tutti_layers_t *layers)
{
    const settings_t *settings = &session->settings;
    const int64_t parts = settings->micro_batches > 0 ? settings->micro_batches : 1;
    const tutti_shape_t shape =
        TUTTI_SHAPE((settings->batch + parts - 1) / parts, settings->context);
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
    tutti_tensor_t *tokens = tutti_randint(s, TUTTI_U8, shape, 0, VOCAB);
    tutti_tensor_t *targets = tutti_randint(s, TUTTI_U8, shape, 0, VOCAB);
    const tutti_measure_options_t options = {.inputs = &tokens,
                                             .input_count = 1,
                                             .targets = &targets,
                                             .target_count = 1,
                                             .loss = run->loss,
                                             .loss_user = run->loss_user};
    const tutti_status_t status =
        tutti_measure_layers(session->ctx, session->model, session->world, &options, layers);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static void write_names(const tutti_layers_t *layers, const tutti_pipeline_partition_t *cut,
                        char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 1; i < cut->count && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 1 ? "," : "",
                                 layers->layers[cut->stages[i].first].name);
    }
}

tutti_status_t gpt_choose_cut(session_t *session, const tutti_pipeline_run_options_t *run,
                              char *text, size_t bytes)
{
    const int ranks = tutti_group_size(session->pipe);
    tutti_layers_t layers;
    tutti_pipeline_partition_t cut;
    tutti_pipeline_partition_options_t where = {.ranks = ranks};
    tutti_pipeline_options_t plan = run->plan;
    plan.ranks = ranks;
    TUTTI_CHECK(tutti_pipeline_stages(&plan, &where.stages));
    TUTTI_CHECK(measure(session, run, &layers));
    const tutti_status_t status =
        tutti_pipeline_partition(layers.layers, layers.count, &where, &cut);
    if (status >= 0) {
        write_names(&layers, &cut, text, bytes);
        tutti_pipeline_partition_release(&cut);
    }
    tutti_layers_release(&layers);
    if (status >= 0 && session->rank == 0) {
        printf("cut %s\n", text);
    }
    return status;
}
