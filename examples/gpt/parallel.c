/* How the model is trained by several ranks: DDP, what it does with buckets, its timeline. */
#include "gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "none", or the name of a hook; "powersgd:4" for its rank. */
static tutti_status_t set_hook(const settings_t *settings, tutti_ddp_t *ddp)
{
    tutti_powersgd_options_t thin = {.start_step = 2};
    int used = 0;
    if (settings->hook == NULL || strcmp(settings->hook, "none") == 0) {
        return TUTTI_OK;
    }
    if (sscanf(settings->hook, "powersgd:%d%n", &thin.rank, &used) == 1 &&
        settings->hook[used] == 0) {
        return tutti_ddp_set_hook(ddp, &tutti_powersgd_hook, &thin);
    }
    const tutti_ddp_hook_ops_t *hook = tutti_ddp_hook_find(settings->hook);
    if (hook == NULL) {
        fprintf(stderr, "gpt: --hook %s: want none, powersgd:RANK", settings->hook);
        for (int i = 0; tutti_ddp_hooks()[i] != NULL; i++) {
            fprintf(stderr, ", %s", tutti_ddp_hooks()[i]->name);
        }
        fprintf(stderr, "\n");
        return TUTTI_ERR_ARG;
    }
    return tutti_ddp_set_hook(ddp, hook, NULL);
}

/* MiB, or "auto". */
static tutti_status_t bucket_bytes(const settings_t *settings, size_t *out)
{
    if (settings->bucket_mb == NULL) {
        return TUTTI_OK;
    }
    if (strcmp(settings->bucket_mb, "auto") == 0) {
        *out = TUTTI_DDP_BUCKET_AUTO;
        return TUTTI_OK;
    }
    char *end;
    const double mib = strtod(settings->bucket_mb, &end);
    if (*end != 0 || !(mib > 0 && mib <= 1e6)) {
        fprintf(stderr, "gpt: --bucket-mb %s: want a number of MiB above 0, or auto\n",
                settings->bucket_mb);
        return TUTTI_ERR_ARG;
    }
    *out = (size_t)(mib * (1 << 20));
    return TUTTI_OK;
}

/* Rank 0 writes FILE, the others FILE.RANK. */
static tutti_status_t open_trace(session_t *session)
{
    const char *file = session->settings.trace;
    char path[4096];
    if (file == NULL) {
        return TUTTI_OK;
    }
    snprintf(path, sizeof path, session->rank == 0 ? "%s" : "%s.%d", file, session->rank);
    return tutti_trace_create(path, session->rank, &session->trace);
}

tutti_status_t gpt_open_ddp(session_t *session, tutti_ddp_t **out)
{
    const settings_t *settings = &session->settings;
    tutti_ddp_options_t options = {.shards = (int)settings->shards,
                                   .stage = (int)settings->stage,
                                   .units = {.kind = settings->stage == 3 ? settings->unit : NULL},
                                   .reshard_ranks = (int)settings->reshard_ranks,
                                   .accumulate = (tutti_ddp_accumulate_t)settings->accumulation,
                                   .mesh = session->rows,
                                   .offload = settings->offload_parameters,
                                   .no_overlap = settings->no_overlap};
    TUTTI_CHECK(bucket_bytes(settings, &options.bucket_bytes));
    TUTTI_CHECK(open_trace(session));
    options.trace = session->trace;
    TUTTI_CHECK(tutti_ddp_create(session->ctx, session->model, session->data, &options, out));
    return set_hook(settings, *out);
}

tutti_status_t gpt_offload(const session_t *session, tutti_optim_t *opt)
{
    const char *folder = session->settings.offload;
    return folder == NULL ? TUTTI_OK : tutti_optim_offload(opt, folder);
}

tutti_status_t gpt_shard(session_t *session, tutti_ddp_t *ddp, const gpt_source_t *source,
                         double *loss)
{
    const int64_t count = session->settings.accumulate;
    *loss = 0;
    for (int64_t i = 0; i < count; i++) {
        tutti_scope_t *s;
        tutti_tensor_t *tokens, *targets;
        tutti_ddp_no_sync(ddp, i + 1 < count);
        TUTTI_CHECK(tutti_scope_open(session->ctx, &s));
        source->read(source->user, s, i, &tokens, &targets);
        const int64_t begin = tutti_trace_now();
        tutti_tensor_t *mean = gpt_loss(s, session, tokens, targets);
        const int64_t middle = tutti_trace_now();
        mean = count > 1 ? tutti_mul_scalar(s, mean, 1.0 / (double)count) : mean;
        (void)tutti_backward(s, mean);
        tutti_trace_event(session->trace, "compute", "forward", begin, middle);
        tutti_trace_event(session->trace, "compute", "backward", middle, tutti_trace_now());
        *loss += tutti_tensor_item(mean);
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return TUTTI_OK;
}
