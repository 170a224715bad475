/* --bench: the time of a training step on random tokens, of all ranks together, in the units of
 * bench/peers. Gradients are not clipped, but with --post-validate by --clip, if that is given. */
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

static tutti_status_t step(session_t *session, trainer_t *trainer, tutti_optim_t *opt,
                           double *losses)
{
    const gpt_source_t source = {random_tokens, &session->settings};
    TUTTI_CHECK(gpt_step_shards(session, trainer, &source, losses));
    if (gpt_steps_itself(&session->settings)) {
        return TUTTI_OK;
    }
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

static tutti_status_t time_step(session_t *session, trainer_t *trainer, tutti_optim_t *opt,
                                double *losses, double *seconds)
{
    const double begin = seconds_now();
    TUTTI_CHECK(step(session, trainer, opt, losses));
    TUTTI_CHECK(session->device != NULL ? tutti_device_synchronize(session->device, 0) : TUTTI_OK);
    *seconds = seconds_now() - begin;
    return TUTTI_OK;
}

/* seconds: [steps]. The first step makes memory and moments. */
static tutti_status_t time_steps(session_t *session, trainer_t *trainer, tutti_optim_t *opt,
                                 double *seconds, int64_t steps)
{
    double *losses = calloc((size_t)gpt_shards_of(trainer), sizeof *losses);
    tutti_status_t status = losses == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (int64_t i = 0; i < steps && status >= 0; i++) {
        tutti_context_set_step(session->ctx, i);
        status = time_step(session, trainer, opt, losses, &seconds[i]);
    }
    free(losses);
    TUTTI_CHECK(status);
    return session->settings.post_validate ? tutti_pipeline_validate(trainer->pipeline, NULL)
                                           : TUTTI_OK;
}

static tutti_status_t measure(session_t *session, trainer_t *trainer, tutti_optim_t *opt)
{
    const int64_t steps = session->settings.steps > 1 ? session->settings.steps : 2;
    double *seconds = calloc((size_t)steps, sizeof *seconds);
    const tutti_status_t status =
        seconds == NULL ? TUTTI_ERR_NOMEM : time_steps(session, trainer, opt, seconds, steps);
    if (status >= 0 && session->rank == 0) {
        qsort(seconds + 1, (size_t)(steps - 1), sizeof *seconds, compare_doubles);
        print_result(session, seconds[1 + (steps - 1) / 2], gpt_shards_of(trainer));
    }
    free(seconds);
    return status;
}

static tutti_status_t open_optimizer(const session_t *session, trainer_t *trainer,
                                     tutti_optim_t **opt)
{
    const tutti_adamw_options_t adamw = {.lr = 3e-4};
    TUTTI_CHECK(tutti_optim_create(session->ctx, &tutti_adamw, &adamw, opt));
    TUTTI_CHECK(tutti_optim_add_module(*opt, session->model, NULL, NULL));
    TUTTI_CHECK(gpt_offload(session, *opt));
    return gpt_set_optimizer(session, trainer, *opt);
}

tutti_status_t gpt_measure(session_t *session)
{
    trainer_t trainer = {0};
    tutti_optim_t *opt = NULL;
    tutti_status_t status = gpt_open_trainer(session, &trainer);
    status = status < 0 ? status : open_optimizer(session, &trainer, &opt);
    status = status < 0 ? status : measure(session, &trainer, opt);
    tutti_optim_release(opt);
    gpt_close_trainer(&trainer);
    return status;
}
