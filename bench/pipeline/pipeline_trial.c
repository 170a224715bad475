/* A pipeline of one schedule: its costs measured, its plan simulated, its steps timed. */
#include "pipeline_bench.h"

#include <string.h>
#include <time.h>

enum { WARM_STEPS = 1 };

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static tutti_pipeline_options_t plan_of(const bench_t *b, const trial_t *t)
{
    return (tutti_pipeline_options_t){
        .schedule = t->schedule, .ranks = b->ranks, .micro_batches = (int)b->micro_batches};
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Numbers of all ranks added up: each has zeros where others measure. */
static tutti_status_t add_ranks(bench_t *b, double *numbers, int64_t count)
{
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(count), &x));
    memcpy(tutti_tensor_data(x), numbers, (size_t)count * sizeof *numbers);
    const tutti_status_t status = tutti_all_reduce(b->world, x, TUTTI_SUM, NULL);
    memcpy(numbers, tutti_tensor_data(x), (size_t)count * sizeof *numbers);
    tutti_tensor_release(x);
    return status;
}

/* There and back again, of what goes from stage to stage; half of it. */
static tutti_status_t time_message(bench_t *b, double bytes, double *seconds)
{
    enum { TIMES = 10, TAG = 7 };
    tutti_tensor_t *x;
    *seconds = 1;
    if (b->ranks == 1) {
        return TUTTI_OK;
    }
    TUTTI_CHECK(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE((int64_t)bytes), &x));
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < TIMES && status >= 0 && b->rank < 2; i++) {
        const double begin = seconds_now();
        if (b->rank == 0) {
            status = tutti_send(b->world, x, 1, TAG, NULL);
        }
        status = status < 0 ? status : tutti_recv(b->world, x, 1 - b->rank, TAG, NULL);
        if (b->rank == 1 && status >= 0) {
            status = tutti_send(b->world, x, 0, TAG, NULL);
        }
        const double took = (seconds_now() - begin) / 2;
        *seconds = took < *seconds ? took : *seconds;
    }
    tutti_tensor_release(x);
    return status;
}

/* To the last stage; its own layers' results are another thing, such as a loss. */
static double bytes_between(const tutti_layers_t *layers, const tutti_pipeline_partition_t *cut)
{
    const int first = cut->stages[cut->count - 1].first;
    return first > 0 ? layers->layers[first - 1].output_bytes : 0;
}

static tutti_measure_options_t measure_options(const bench_t *b, const trial_t *t,
                                               tutti_tensor_t *micro_batch[2])
{
    return (tutti_measure_options_t){.inputs = &micro_batch[0],
                                     .input_count = 1,
                                     .targets = &micro_batch[1],
                                     .target_count = 1,
                                     .loss = class_loss,
                                     .loss_user = (void *)(uintptr_t)b,
                                     .repeats = t->stages > 0 ? 7 : 0};
}

static tutti_status_t cut_and_measure(bench_t *b, trial_t *t, const tutti_measure_options_t *o,
                                      tutti_layers_t *layers)
{
    enum { FIELDS = 4 };
    double numbers[STAGES_MAX][FIELDS] = {{0}}, message;
    tutti_pipeline_partition_t cut;
    tutti_pipeline_costs_t own[STAGES_MAX];
    tutti_layers_t mine;
    const tutti_pipeline_partition_options_t where = {.ranks = b->ranks, .stages = t->stages};
    const tutti_pipeline_options_t plan = plan_of(b, t);
    TUTTI_CHECK(tutti_pipeline_partition(layers->layers, layers->count, &where, &cut));
    TUTTI_CHECK(tutti_barrier(b->world, NULL)); /* all at the same time */
    TUTTI_CHECK(tutti_measure_layers(b->ctx, t->net, NULL, o, &mine));
    TUTTI_CHECK(tutti_layers_stage_costs(&mine, &cut, own));
    TUTTI_CHECK(time_message(b, bytes_between(layers, &cut), &message));
    for (int s = 0; s < t->stages; s++) {
        if (tutti_pipeline_rank_of(&plan, s) == b->rank) {
            const double row[FIELDS] = {own[s].forward, own[s].input, own[s].weight,
                                        own[s].backward};
            memcpy(numbers[s], row, sizeof row);
        }
    }
    message = b->rank == 0 ? message : 0;
    TUTTI_CHECK(add_ranks(b, &numbers[0][0], (int64_t)t->stages * FIELDS));
    TUTTI_CHECK(add_ranks(b, &message, 1));
    for (int s = 0; s < t->stages; s++) {
        t->costs[s] = (tutti_pipeline_costs_t){.forward = numbers[s][0],
                                               .input = numbers[s][1],
                                               .weight = numbers[s][2],
                                               .backward = numbers[s][3],
                                               .message = b->ranks > 1 ? message : 0};
        if (s > 0) {
            t->cut[s - 1] = layers->layers[cut.stages[s].first].name;
        }
    }
    tutti_layers_release(&mine);
    tutti_pipeline_partition_release(&cut);
    return TUTTI_OK;
}

tutti_status_t measure_stages(bench_t *b, trial_t *t, tutti_layers_t *layers)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(b->ctx, &s));
    const int64_t rows = tutti_tensor_dim(t->x, 0) / b->micro_batches;
    tutti_tensor_t *micro_batch[] = {tutti_narrow(s, t->x, 0, 0, rows),
                                     tutti_narrow(s, t->y, 0, 0, rows)};
    const tutti_measure_options_t o = measure_options(b, t, micro_batch);
    tutti_status_t status = tutti_measure_layers(b->ctx, t->net, b->world, &o, layers);
    if (status >= 0) {
        status = cut_and_measure(b, t, &o, layers);
    }
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* ---- the plan -------------------------------------------------------------------------------- */

tutti_status_t simulate(const bench_t *b, const trial_t *t, bool unit,
                        tutti_pipeline_simulation_t *out)
{
    tutti_pipeline_schedule_t schedule;
    const tutti_pipeline_options_t plan = plan_of(b, t);
    TUTTI_CHECK(tutti_pipeline_plan(&plan, &schedule));
    const tutti_status_t status =
        tutti_pipeline_simulate(&schedule, unit ? NULL : t->costs, unit ? 1 : t->stages, out);
    tutti_pipeline_schedule_release(&schedule);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static tutti_status_t run_steps(bench_t *b, const trial_t *t, tutti_pipeline_t *pipeline,
                                outcome_t *out)
{
    const tutti_pipeline_batch_t batch = {&t->x, 1, &t->y, 1};
    out->step_s = 1e9;
    for (int64_t i = 0; i < WARM_STEPS + b->steps; i++) {
        TUTTI_CHECK(tutti_barrier(b->world, NULL));
        const double begin = seconds_now();
        TUTTI_CHECK(tutti_pipeline_step(pipeline, &batch, NULL));
        const double took = seconds_now() - begin;
        if (i >= WARM_STEPS) {
            out->step_s = took < out->step_s ? took : out->step_s;
        }
    }
    memset(out->live_max, 0, sizeof out->live_max);
    out->live_max[b->rank] = tutti_pipeline_stats(pipeline).live_max;
    return add_ranks(b, out->live_max, b->ranks);
}

tutti_status_t run_trial(bench_t *b, trial_t *t, outcome_t *out)
{
    tutti_pipeline_t *pipeline;
    const bool sleeps = b->sleep_ms > 0;
    const tutti_pipeline_run_options_t options = {.plan = plan_of(b, t),
                                                  .cut = sleeps || t->stages == 1 ? NULL : t->cut,
                                                  .cut_count = t->stages - 1,
                                                  .loss = sleeps ? mean_loss : class_loss};
    TUTTI_CHECK(tutti_pipeline_create(b->ctx, t->net, b->world, &options, &pipeline));
    const tutti_status_t status = run_steps(b, t, pipeline, out);
    tutti_pipeline_release(pipeline);
    return status;
}
