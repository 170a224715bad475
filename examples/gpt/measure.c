/* --bench: the time of a training step on random tokens, in the units of bench/peers. */
#include "gpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void random_tokens(void *user, tutti_scope_t *s, int64_t micro_batch,
                          tutti_tensor_t **tokens, tutti_tensor_t **targets)
{
    (void)micro_batch;
    const settings_t *settings = user;
    const tutti_shape_t shape = TUTTI_SHAPE(settings->batch, settings->context);
    *tokens = tutti_randint(s, TUTTI_U8, shape, 0, VOCAB);
    *targets = tutti_randint(s, TUTTI_U8, shape, 0, VOCAB);
}

static tutti_status_t step(session_t *session, tutti_ddp_t *ddp, tutti_optim_t *opt)
{
    double loss;
    while (tutti_ddp_next_shard(ddp, session->ctx)) {
        TUTTI_CHECK(gpt_shard(session, ddp, random_tokens, &session->settings, &loss));
    }
    TUTTI_CHECK(tutti_ddp_finish(ddp));
    const int64_t begin = tutti_trace_now();
    const tutti_status_t status = tutti_optim_step(opt);
    tutti_trace_event(session->trace, "compute", "optimizer", begin, tutti_trace_now());
    return status;
}

/* Of this program. ru_maxrss survives an exec, so it may be the launcher's. */
static long peak_rss_kib(void)
{
    static const char name[] = "VmHWM:";
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && kib == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, sizeof name - 1) == 0) {
            kib = strtol(line + sizeof name - 1, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* only read */
    }
    return kib;
}

static void print_result(const session_t *session, double seconds, int shards)
{
    const settings_t *settings = &session->settings;
    const double params = (double)session->params;
    const double tokens =
        (double)(settings->batch * settings->context * settings->accumulate) * shards;
    const double flops =
        6 * params + 12.0 * (double)(settings->layers * settings->width * settings->context);
    printf("{\"params\":%.0f,\"ranks\":%d,\"threads\":%d,\"dtype\":\"%s\",\"step_ms\":%.2f,"
           "\"tokens_per_second\":%.1f,\"gflops\":%.1f,\"peak_rss_mib\":%ld}\n",
           params, session->ranks, tutti_context_threads(session->ctx),
           settings->dtype == DTYPE_BF16 ? "bf16" : "f32", seconds * 1e3, tokens / seconds,
           flops * tokens / seconds * 1e-9, peak_rss_kib() / 1024);
}

static tutti_status_t measure(session_t *session, tutti_ddp_t *ddp, tutti_optim_t *opt)
{
    const int64_t steps = session->settings.steps > 1 ? session->settings.steps : 2;
    double *seconds = calloc((size_t)steps, sizeof *seconds);
    tutti_status_t status = seconds == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (int64_t i = 0; i < steps && status >= 0; i++) {
        const double begin = seconds_now();
        tutti_context_set_step(session->ctx, i);
        status = step(session, ddp, opt);
        if (status >= 0 && session->device != NULL) {
            status = tutti_device_synchronize(session->device, 0);
        }
        seconds[i] = seconds_now() - begin;
    }
    if (status >= 0 && session->rank == 0) {
        /* the first step makes memory and moments */
        qsort(seconds + 1, (size_t)(steps - 1), sizeof *seconds, compare_doubles);
        print_result(session, seconds[1 + (steps - 1) / 2], tutti_ddp_shards(ddp));
    }
    free(seconds);
    return status;
}

tutti_status_t gpt_measure(session_t *session)
{
    const tutti_adamw_options_t adamw = {.lr = 3e-4};
    tutti_ddp_t *ddp = NULL;
    tutti_optim_t *opt = NULL;
    tutti_status_t status = gpt_open_ddp(session, &ddp);
    if (status >= 0) {
        status = tutti_optim_create(session->ctx, &tutti_adamw, &adamw, &opt);
    }
    if (status >= 0) {
        status = tutti_optim_add_module(opt, session->model, NULL, NULL);
    }
    if (status >= 0) {
        status = gpt_offload(session, opt);
    }
    if (status >= 0) {
        status = measure(session, ddp, opt);
    }
    tutti_optim_release(opt);
    tutti_ddp_release(ddp);
    return status;
}
