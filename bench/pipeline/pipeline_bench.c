/* The program: which part, and what it prints. */
#include "pipeline_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tutti_status_t (*make_t)(bench_t *b, tutti_scope_t *s, trial_t *t);

/* ---- one schedule after the other ------------------------------------------------------------ */

static double busy_of_all(const tutti_pipeline_simulation_t *s)
{
    double busy = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        busy += s->loads[rank].busy;
    }
    return busy;
}

static void print_ranks(const char *name, const double *numbers, int count)
{
    printf(",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        printf("%s%g", i > 0 ? "," : "", numbers[i]);
    }
    printf("]");
}

static tutti_status_t print_trial(const bench_t *b, const trial_t *t, const outcome_t *out)
{
    tutti_pipeline_simulation_t real, unit;
    double held[STAGES_MAX];
    TUTTI_CHECK(simulate(b, t, false, &real));
    TUTTI_CHECK(simulate(b, t, true, &unit));
    for (int rank = 0; rank < b->ranks; rank++) {
        held[rank] = unit.loads[rank].activations_max;
    }
    const double work = busy_of_all(&real);
    printf("{\"schedule\":\"%s\",\"step_ms\":%.3f,\"work_ms\":%.3f,\"bubble\":%.4f,"
           "\"planned_ms\":%.3f,\"simulated_ms\":%.3f",
           t->schedule, out->step_s * 1e3, work * 1e3, unit.bubble,
           work * 1e3 / b->ranks / (1 - unit.bubble), real.time * 1e3);
    print_ranks("live_max", out->live_max, b->ranks);
    print_ranks("activations_max", held, b->ranks);
    printf("}\n");
    fflush(stdout);
    tutti_pipeline_simulation_release(&unit);
    tutti_pipeline_simulation_release(&real);
    return TUTTI_OK;
}

static tutti_status_t run_made(bench_t *b, trial_t *t)
{
    outcome_t out;
    tutti_layers_t layers = {0};
    tutti_status_t status = b->sleep_ms > 0 ? TUTTI_OK : measure_stages(b, t, &layers);
    if (status >= 0) {
        status = run_trial(b, t, &out);
    }
    if (status >= 0 && b->rank == 0) {
        status = print_trial(b, t, &out);
    }
    tutti_layers_release(&layers);
    return status;
}

static tutti_status_t run_schedule(bench_t *b, make_t make, const char *schedule)
{
    tutti_scope_t *s;
    trial_t t = {.schedule = schedule};
    const tutti_pipeline_options_t plan = {
        .schedule = schedule, .ranks = b->ranks, .micro_batches = (int)b->micro_batches};
    TUTTI_CHECK(tutti_pipeline_stages(&plan, &t.stages));
    TUTTI_CHECK(tutti_scope_open(b->ctx, &s));
    tutti_status_t status = make(b, s, &t);
    if (status >= 0) {
        status = run_made(b, &t);
    }
    tutti_module_release(t.net);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* All: those that step behind their batch, not within it. */
static tutti_status_t run_schedules(bench_t *b, make_t make, char *names)
{
    tutti_pipeline_about_t about;
    if (strcmp(names, "all") != 0) {
        for (char *rest = names, *name; (name = strtok_r(rest, ",", &rest)) != NULL;) {
            TUTTI_CHECK(run_schedule(b, make, name));
        }
        return TUTTI_OK;
    }
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        TUTTI_CHECK(about.is_asynchronous ? TUTTI_OK : run_schedule(b, make, about.name));
    }
    return TUTTI_OK;
}

/* ---- every cut ------------------------------------------------------------------------------- */

/* first: the layer with which stage 1 begins; 0: the one that is found, which is returned. */
static tutti_status_t run_cut(bench_t *b, int *first, int *layers_out, double *step_s)
{
    char name[8];
    tutti_scope_t *s;
    outcome_t out = {0};
    tutti_layers_t layers = {0};
    trial_t t = {.schedule = "1f1b", .stages = 2};
    TUTTI_CHECK(tutti_scope_open(b->ctx, &s));
    TUTTI_CHECK(make_uneven(b, s, &t));
    tutti_status_t status = TUTTI_OK;
    if (*first == 0) {
        status = measure_stages(b, &t, &layers);
        *first = status < 0 ? 0 : (int)strtol(t.cut[0], NULL, 10);
        *layers_out = layers.count;
    }
    snprintf(name, sizeof name, "%d", *first);
    t.cut[0] = name;
    if (status >= 0) {
        status = run_trial(b, &t, &out);
    }
    *step_s = out.step_s;
    tutti_layers_release(&layers);
    tutti_module_release(t.net);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

static tutti_status_t run_cuts(bench_t *b)
{
    int found = 0, count = 0;
    double took, at_found = 1e9, best = 1e9;
    TUTTI_CHECK(run_cut(b, &found, &count, &took)); /* which has not the turn of the others */
    for (int first = 1; first < count; first++) {
        int at = first;
        TUTTI_CHECK(run_cut(b, &at, &count, &took));
        best = took < best ? took : best;
        at_found = first == found ? took : at_found;
    }
    if (b->rank == 0) {
        printf("{\"cut\":%d,\"layers\":%d,\"step_ms\":%.3f,\"best_ms\":%.3f}\n", found, count,
               at_found * 1e3, best * 1e3);
    }
    return TUTTI_OK;
}

/* ---- planning -------------------------------------------------------------------------------- */

static tutti_status_t plan_rows(int stages, int micro_batches)
{
    tutti_pipeline_about_t about;
    for (size_t i = 0; tutti_pipeline_describe(i, &about) == TUTTI_OK; i++) {
        tutti_pipeline_row_t row;
        const tutti_pipeline_options_t plan = {.schedule = about.name,
                                               .ranks = stages / about.stages_per_rank_min,
                                               .micro_batches = micro_batches};
        const double begin = seconds_now();
        TUTTI_CHECK(tutti_pipeline_plan_row(&plan, plan.ranks / 3, &row));
        printf("{\"schedule\":\"%s\",\"ms\":%.3f,\"actions\":%lld}\n", about.name,
               (seconds_now() - begin) * 1e3, (long long)row.count);
        tutti_pipeline_row_release(&row);
    }
    return TUTTI_OK;
}

/* ---- main ------------------------------------------------------------------------------------ */

static int64_t number(int argc, char **argv, int i)
{
    return i < argc ? strtol(argv[i], NULL, 10) : 0;
}

static tutti_status_t run_part(bench_t *b, int argc, char **argv)
{
    if (strcmp(b->part, "step") == 0 && argc == 8) {
        b->blocks = number(argc, argv, 3);
        b->width = number(argc, argv, 4);
        b->batch = number(argc, argv, 5);
        b->micro_batches = number(argc, argv, 6);
        b->steps = number(argc, argv, 7);
        return run_schedules(b, make_gpt, argv[2]);
    }
    if (strcmp(b->part, "sleep") == 0 && argc == 6) {
        b->sleep_ms = strtod(argv[3], NULL);
        b->micro_batches = number(argc, argv, 4);
        b->steps = number(argc, argv, 5);
        return run_schedules(b, make_sleepers, argv[2]);
    }
    if (strcmp(b->part, "cuts") == 0 && argc == 4) {
        b->micro_batches = number(argc, argv, 2);
        b->steps = number(argc, argv, 3);
        return run_cuts(b);
    }
    fprintf(stderr, "pipeline: no such part, or another number of arguments: pipeline_bench.h\n");
    return TUTTI_ERR_ARG;
}

static tutti_status_t run(int argc, char **argv)
{
    bench_t b = {.part = argv[1]};
    if (strcmp(argv[1], "rows") == 0) {
        return plan_rows((int)number(argc, argv, 2), (int)number(argc, argv, 3));
    }
    TUTTI_CHECK(tutti_init(NULL, &b.world));
    b.rank = tutti_group_rank(b.world);
    b.ranks = tutti_group_size(b.world);
    tutti_status_t status =
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 1}, &b.ctx);
    if (status >= 0) {
        status = run_part(&b, argc, argv);
    }
    tutti_context_release(b.ctx);
    tutti_group_release(b.world);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: pipeline step|sleep|cuts|rows …\n");
        return 2;
    }
    const tutti_status_t status = run(argc, argv);
    if (status < 0) {
        fprintf(stderr, "pipeline: %s\n", tutti_last_error());
    }
    return status < 0;
}
