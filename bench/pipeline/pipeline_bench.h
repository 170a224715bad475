/* Pipelines, measured beside their plans: what `bench/run parallel` runs. Under `tutti run`, each
 * rank a stage or more; rank 0 prints a line of JSON for each schedule.
 *
 *     pipeline step  SCHEDULES BLOCKS WIDTH BATCH MICRO_BATCHES STEPS    a gpt
 *     pipeline sleep SCHEDULES MS MICRO_BATCHES STEPS                    parts that sleep
 *     pipeline cuts  MICRO_BATCHES STEPS                                 every cut of uneven layers
 *     pipeline rows  STAGES MICRO_BATCHES                                planning alone
 *
 * SCHEDULES: names with commas between, or all.
 */
#ifndef TT_PIPELINE_BENCH_H
#define TT_PIPELINE_BENCH_H

#include <tutti/tutti.h>

enum { STAGES_MAX = 64 };

/* What a pipeline is made of, again for each schedule. */
typedef struct {
    const char *part;
    int64_t blocks, width, batch, micro_batches, steps;
    double sleep_ms;
    tutti_group_t *world;
    tutti_context_t *ctx;
    int rank, ranks;
} bench_t;

/* Of one schedule. */
typedef struct {
    const char *schedule;
    int stages;
    tutti_module_t *net;
    tutti_tensor_t *x, *y;                    /* the batch */
    tutti_pipeline_costs_t costs[STAGES_MAX]; /* of stages, in seconds */
    const char *cut[STAGES_MAX];              /* [stages - 1] names */
} trial_t;

/* What came of it. */
typedef struct {
    double step_s;               /* the least of the steps */
    double live_max[STAGES_MAX]; /* of ranks: micro-batches of stages held at once */
} outcome_t;

/* ---- pipeline_models.c ----------------------------------------------------------------------- */

/* Makes the module and the batch. */
tutti_status_t make_gpt(bench_t *b, tutti_scope_t *s, trial_t *t);
tutti_status_t make_sleepers(bench_t *b, tutti_scope_t *s, trial_t *t);
tutti_status_t make_uneven(bench_t *b, tutti_scope_t *s, trial_t *t);
tutti_tensor_t *class_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                           tutti_tensor_t *const *targets, int target_count, void *user);
tutti_tensor_t *mean_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs, int output_count,
                          tutti_tensor_t *const *targets, int target_count, void *user);

/* ---- pipeline_trial.c ------------------------------------------------------------------------ */

double seconds_now(void);

/* Steps of a pipeline of a schedule, with t's cut. */
tutti_status_t run_trial(bench_t *b, trial_t *t, outcome_t *out);

/* The schedule's plan in time. unit: F = I = W = 1 for all stages. */
tutti_status_t simulate(const bench_t *b, const trial_t *t, bool unit,
                        tutti_pipeline_simulation_t *out);

/* t's cut, and the costs of its stages: each by the rank that has it, all at the same time. */
tutti_status_t measure_stages(bench_t *b, trial_t *t, tutti_layers_t *layers);

#endif
