/* Contexts: what one model computes with. */
#include <tutti/context.h>
#include <tutti/modes.h>

#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/core_share.h"
#include "core/base/profiler.h"
#include "core/kernel/peak/peak.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t default_threads(int *out)
{
    int64_t asked;
    TT_TRY(tt_config_int(TT_CONFIG_THREADS, 0, 256, &asked));
    *out = asked > 0 ? (int)asked : tt_core_share();
    return TUTTI_OK;
}

tutti_status_t tutti_context_create(const tutti_context_options_t *options, tutti_context_t **out)
{
    int count = options == NULL ? 0 : options->threads;
    int64_t detects_anomaly;
    TT_TRY(tt_config_check());
    TT_TRY(tt_profile_follow_environment());
    TT_TRY(tt_config_int(TT_CONFIG_DETECT_ANOMALY, 0, 1, &detects_anomaly));
    if (count == 0) {
        TT_TRY(default_threads(&count));
    }
    tutti_context_t *ctx = tt_alloc(sizeof *ctx, "context");
    TT_TRY_ALLOC(ctx);
    tt_ref_init(&ctx->ref);
    ctx->seed = options == NULL ? 0 : options->seed;
    ctx->is_training = true;
    ctx->is_grad_enabled = true;
    ctx->autocast = TUTTI_F32;
    ctx->detects_anomaly = detects_anomaly != 0;
    tutti_status_t status = tt_device_open(&tt_device_cpu, NULL, &ctx->cpu);
    if (status >= 0) {
        status = tt_threads_create(count, &ctx->exec.threads);
    }
    if (status < 0) {
        tutti_context_release(ctx);
        return status;
    }
    ctx->place = (tt_place_t){ctx->cpu, NULL, &ctx->exec};
    tt_profile_note_threads(count, tt_core_peak);
    if (options != NULL && options->device != NULL && tt_device_is_accelerator(options->device)) {
        ctx->home = tutti_device_retain(options->device);
        (void)tt_context_enter(ctx, ctx->home);
    }
    *out = ctx;
    return TUTTI_OK;
}

tutti_device_t *tutti_context_device(const tutti_context_t *ctx)
{
    return ctx->home;
}

tutti_context_t *tutti_context_retain(tutti_context_t *ctx)
{
    tt_ref_retain(&ctx->ref);
    return ctx;
}

void tutti_context_release(tutti_context_t *ctx)
{
    if (ctx != NULL && tt_ref_release(&ctx->ref)) {
        tt_threads_release(ctx->exec.threads);
        tutti_device_release(ctx->home);
        tutti_device_release(ctx->cpu);
        tt_free(ctx);
    }
}

tutti_status_t tutti_parallel_for(tutti_context_t *ctx, size_t count,
                                  void (*piece)(void *arg, size_t index), void *arg)
{
    if (ctx == NULL || piece == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "parallel_for: %s is NULL", ctx == NULL ? "ctx" : "piece");
    }
    tt_threads_run(ctx->exec.threads, count, piece, arg);
    return TUTTI_OK;
}

int tutti_context_threads(const tutti_context_t *ctx)
{
    return tt_threads_count(ctx->exec.threads);
}

uint64_t tutti_context_seed(const tutti_context_t *ctx)
{
    return ctx->seed;
}

int64_t tutti_context_step(const tutti_context_t *ctx)
{
    return ctx->step;
}

void tutti_context_set_step(tutti_context_t *ctx, int64_t step)
{
    ctx->step = step;
    ctx->random_calls = 0;
}

int64_t tutti_context_shard(const tutti_context_t *ctx)
{
    return ctx->shard;
}

void tutti_context_set_shard(tutti_context_t *ctx, int64_t shard)
{
    ctx->shard = shard;
    ctx->random_calls = 0;
}

bool tutti_context_detects_anomaly(const tutti_context_t *ctx)
{
    return ctx->detects_anomaly;
}

bool tutti_context_set_detect_anomaly(tutti_context_t *ctx, bool detects)
{
    const bool before = ctx->detects_anomaly;
    ctx->detects_anomaly = detects;
    return before;
}

bool tutti_context_is_training(const tutti_context_t *ctx)
{
    return ctx->is_training;
}

void tutti_context_set_training(tutti_context_t *ctx, bool is_training)
{
    ctx->is_training = is_training;
}

bool tutti_context_is_grad_enabled(const tutti_context_t *ctx)
{
    return ctx->is_grad_enabled;
}

bool tutti_context_set_grad_enabled(tutti_context_t *ctx, bool is_enabled)
{
    const bool before = ctx->is_grad_enabled;
    ctx->is_grad_enabled = is_enabled;
    return before;
}

bool tutti_context_is_recomputing(const tutti_context_t *ctx)
{
    return ctx->is_recomputing;
}

tutti_dtype_t tutti_context_autocast(const tutti_context_t *ctx)
{
    return ctx->autocast;
}

tutti_dtype_t tutti_context_set_autocast(tutti_context_t *ctx, tutti_dtype_t dtype)
{
    const tutti_dtype_t before = ctx->autocast;
    ctx->autocast = dtype;
    return before;
}

static void move_all(void *user)
{
    const tutti_context_t *ctx = user;
    for (const tutti_idle_t *idle = ctx->idle; idle != NULL; idle = idle->next) {
        if (idle->move != NULL) {
            idle->move(idle->user);
        }
    }
}

void tutti_context_add_idle(tutti_context_t *ctx, tutti_idle_t *idle)
{
    tutti_context_remove_idle(ctx, idle); /* twice in a list it would have no end */
    idle->next = ctx->idle;
    ctx->idle = idle;
    tt_threads_set_idle(ctx->exec.threads, move_all, ctx);
}

void tutti_context_remove_idle(tutti_context_t *ctx, tutti_idle_t *idle)
{
    for (tutti_idle_t **link = &ctx->idle; *link != NULL; link = &(*link)->next) {
        if (*link == idle) {
            *link = idle->next;
            break;
        }
    }
    if (ctx->idle == NULL) {
        tt_threads_set_idle(ctx->exec.threads, NULL, NULL);
    }
}
