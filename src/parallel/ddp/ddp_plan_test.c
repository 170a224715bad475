/* What a step of DDP at stage 3 did is what its plan says: units in their order and when they go,
 * buckets, bytes, the peak, and the events of a trace. */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/autograd.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>
#include <tutti/sharded_plan.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_layers_testing.h"

enum { WHOLE = SIDE * SIDE * (int)sizeof(float), STEPS = 4, RANKS = 2 };

static tutti_status_t step(const tt_layers_job_t *job)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
        x = tutti_forward(s, job->net, x);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(job->ddp));
    return tutti_optim_step(job->opt);
}

/* ---- the plan and the step ------------------------------------------------------------------- */

/* The index-th gather of a step; those behind the optimizer's are of no step. */
static int gathers_of(const tutti_sharded_row_t *row, tutti_sharded_action_t *units)
{
    int count = 0;
    for (int i = 0; i < row->count && row->actions[i].kind != TUTTI_SHARDED_FINISH; i++) {
        if (row->actions[i].kind == TUTTI_SHARDED_GATHER) {
            units[count++] = row->actions[i];
        }
    }
    return count;
}

static void expect_starts(tt_member_t *m, const tt_layers_job_t *job,
                          const tutti_sharded_plan_t *plan)
{
    tutti_sharded_action_t units[256];
    const tt_sharded_list_t *starts = &job->ddp->order.turns.now;
    const int count = gathers_of(&plan->rows[m->rank], units);
    TT_EXPECT(m, starts->count == count);
    for (int i = 0; i < count && i < starts->count; i++) {
        TT_EXPECT(m, starts->actions[i].index == units[i].index);
        TT_EXPECT(m, starts->actions[i].is_near == units[i].is_near);
    }
}

/* Calls of the last shard, buckets among them. */
static void expect_calls(tt_member_t *m, const tt_layers_job_t *job,
                         const tutti_sharded_plan_t *plan)
{
    const tutti_sharded_row_t *row = &plan->rows[m->rank];
    const tt_sharded_list_t *calls = &job->ddp->order.before;
    int at = 0, found = 0;
    for (int i = 0; i < row->count; i++) {
        at = row->actions[i].kind == TUTTI_SHARDED_SHARD ? i : at;
    }
    for (; at < row->count && row->actions[at].kind != TUTTI_SHARDED_FINISH; at++) {
        const tutti_sharded_action_t *action = &row->actions[at];
        if (action->kind <= TUTTI_SHARDED_RESHARD) {
            TT_EXPECT(m, found < calls->count && calls->actions[found].kind == action->kind &&
                             calls->actions[found].index == action->index);
            found++;
        }
    }
    TT_EXPECT(m, found == calls->count && found > 0);
}

/* What the others' slices bring, and, of what is near, their parts, of ranks that have equal ones.
 */
static int64_t gathered_by(const tutti_sharded_plan_t *plan, int rank, bool is_near)
{
    const tutti_sharded_options_t *o = &plan->options;
    const tutti_sharded_row_t *row = &plan->rows[rank];
    const int64_t ranks = is_near ? o->reshard_ranks : o->ranks;
    int64_t bytes = 0;
    for (int i = 0; i < row->count; i++) {
        const tutti_sharded_action_t *action = &row->actions[i];
        bytes += action->kind == TUTTI_SHARDED_GATHER && action->is_near == is_near
                     ? (int64_t)o->units[action->index].bytes * (ranks - 1) / ranks
                     : 0;
    }
    return bytes;
}

static void expect_bytes(tt_member_t *m, const tutti_ddp_memory_t *before,
                         const tutti_ddp_memory_t *after, const tutti_sharded_plan_t *plan)
{
    const int64_t far = gathered_by(plan, m->rank, false), near = gathered_by(plan, m->rank, true);
    TT_EXPECT(m, after->gathered_bytes - before->gathered_bytes == far + near);
    TT_EXPECT(m, after->near_bytes - before->near_bytes == near);
}

typedef struct {
    tutti_ddp_options_t options;
    bool has_bias; /* small parameters, too */
    int early;     /* of a rank's row in a step */
    int ranks;     /* 0: 2 */
} case_t;

static int early_of(const tutti_sharded_row_t *row)
{
    int count = 0;
    for (int i = 0; i < row->count; i++) {
        count += row->actions[i].kind == TUTTI_SHARDED_GATHER && row->actions[i].is_early;
    }
    return count;
}

static void step_as_planned(tt_member_t *m)
{
    const case_t *c = m->user;
    tt_layers_job_t job;
    tutti_sharded_plan_t plan;
    size_t peak = 0;
    tt_layers_open(m, &c->options, (tutti_linear_options_t){.no_bias = !c->has_bias}, &job);
    TT_EXPECT(m, tutti_ddp_plan(job.ddp, &plan) == TUTTI_ERR_STATE);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    for (int i = 1; i < STEPS; i++) {
        tutti_sharded_simulation_t s;
        TT_EXPECT(m, tutti_ddp_plan(job.ddp, &plan) == TUTTI_OK);
        TT_EXPECT(m, tutti_sharded_check(&plan) == TUTTI_OK);
        TT_EXPECT(m, tutti_sharded_simulate(&plan, NULL, &s) == TUTTI_OK);
        TT_EXPECT(m, early_of(&plan.rows[m->rank]) == c->early);
        peak = s.peak_unit_bytes > peak ? s.peak_unit_bytes : peak;
        const tutti_ddp_memory_t before = tutti_ddp_memory(job.ddp, NULL);
        TT_EXPECT(m, step(&job) == TUTTI_OK);
        const tutti_ddp_memory_t after = tutti_ddp_memory(job.ddp, NULL);
        expect_starts(m, &job, &plan);
        expect_calls(m, &job, &plan);
        if (!c->has_bias) {
            expect_bytes(m, &before, &after, &plan);
        }
        TT_EXPECT(m, after.peak_unit_bytes == peak);
        tutti_sharded_simulation_release(&s);
        tutti_sharded_plan_release(&plan);
    }
    tt_layers_close(&job);
}

static void run_on(int ranks, void (*body)(tt_member_t *m), void *user)
{
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    tt_team_expect_quietly(ranks, 20000, body, user);
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void run(void (*body)(tt_member_t *m), void *user)
{
    run_on(RANKS, body, user);
}

static void a_step_does_what_its_plan_says(void **state)
{
    (void)state;
    const tutti_ddp_units_t units = {.kind = "linear"};
    case_t cases[] = {
        {{.stage = 3, .units = units}, .early = 6},
        {{.stage = 3, .units = units, .prefetch = -1}, .early = 0},
        {{.stage = 3, .units = units, .prefetch = 3}, .early = 6},
        {{.stage = 3, .units = units, .accumulate = TUTTI_DDP_SHARDED}, .early = 6},
        {{.stage = 3, .units = units, .keep_after_forward = true}, .early = 3},
        {{.stage = 3, .units = units, .shards = 4}, .early = 12},
        {{.stage = 3, .units = units, .shards = 4, .keep_after_backward = true}, .early = 6},
        {{.stage = 3, .units = units, .persistence_bytes = 4096}, .has_bias = true, .early = 7},
        {{.stage = 3, .units = units, .persistence_bytes = 4096, .param_dtype = TUTTI_BF16},
         .has_bias = true,
         .early = 7},
        {{.stage = 3, .units = units, .param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16},
         .early = 6},
        {{.stage = 3, .units = units, .reshard_ranks = 2}, .early = 6, .ranks = 4},
        {{.stage = 3, .units = units, .reshard_ranks = 2, .prefetch = -1}, .ranks = 4},
        {{.stage = 3, .units = units, .reshard_ranks = 2, .prefetch = 3, .shards = 8},
         .early = 12,
         .ranks = 4},
        {{.stage = 3,
          .units = units,
          .reshard_ranks = 2,
          .keep_after_backward = true,
          .param_dtype = TUTTI_BF16},
         .early = 6,
         .ranks = 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_on(cases[i].ranks == 0 ? RANKS : cases[i].ranks, step_as_planned, &cases[i]);
    }
}

/* ---- fewer shards on one of them ------------------------------------------------------------- */

/* The last rank has two shards, all others one. What a rank has noted is its own; all have the same
 * starts. */
static void follow_as_planned(tt_member_t *m)
{
    const int *reshard_ranks = m->user;
    const tutti_ddp_options_t options = {.stage = 3,
                                         .units = {.kind = "linear"},
                                         .shards = m->size + 1,
                                         .reshard_ranks = *reshard_ranks};
    tt_layers_job_t job;
    tutti_sharded_plan_t plan;
    tutti_sharded_simulation_t s;
    tt_layers_open(m, &options, (tutti_linear_options_t){.no_bias = true}, &job);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_plan(job.ddp, &plan) == TUTTI_OK);
    TT_EXPECT(m, tutti_sharded_check(&plan) == TUTTI_OK);
    TT_EXPECT(m, tutti_sharded_simulate(&plan, NULL, &s) == TUTTI_OK);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    expect_starts(m, &job, &plan);
    TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).peak_unit_bytes == s.peak_unit_bytes);
    tutti_sharded_simulation_release(&s);
    tutti_sharded_plan_release(&plan);
    tt_layers_close(&job);
}

static void who_follows_does_what_the_plan_says(void **state)
{
    (void)state;
    int reshard_ranks = 0;
    run(follow_as_planned, &reshard_ranks);
    reshard_ranks = 2;
    run_on(4, follow_as_planned, &reshard_ranks);
}

/* Nobody follows: units are there. */
static void who_shares_a_host_does_what_the_plan_says(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share parameters");
    tt_team_expect_quietly(RANKS, 20000, follow_as_planned, &(int){0});
    tt_team_expect_quietly(4, 20000, follow_as_planned, &(int){2});
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* A bucket leaves twice, which no plan says. */
static void be_refused(tt_member_t *m)
{
    const tutti_ddp_options_t options = {
        .stage = 3, .units = {.kind = "linear"}, .shards = 4, .accumulate = TUTTI_DDP_SHARDED};
    tt_layers_job_t job;
    tutti_sharded_plan_t plan;
    tt_layers_open(m, &options, (tutti_linear_options_t){.no_bias = true}, &job);
    TT_EXPECT(m, step(&job) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_plan(job.ddp, &plan) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, strstr(tutti_last_error(), "and 4 shards on 2 ranks have buckets leave") != NULL);
    tt_layers_close(&job);
}

static void sums_that_stay_sharded_have_a_plan_for_one_shard_alone(void **state)
{
    (void)state;
    run(be_refused, NULL);
}

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct {
    const char *path; /* rank 0's */
} log_t;

static void trace_steps(tt_member_t *m)
{
    const log_t *log = m->user;
    tutti_trace_t *trace = NULL;
    tt_layers_job_t job;
    TT_EXPECT(m, m->rank > 0 || tutti_trace_create(log->path, 0, &trace) == TUTTI_OK);
    const tutti_ddp_options_t options = {.stage = 3, .units = {.kind = "linear"}, .trace = trace};
    tt_layers_open(m, &options, (tutti_linear_options_t){.no_bias = true}, &job);
    TT_EXPECT(m, tutti_trace_release(trace) == TUTTI_OK);
    TT_EXPECT(m, step(&job) == TUTTI_OK && step(&job) == TUTTI_OK);
    tt_layers_close(&job);
}

/* Names of events, each as far as its last digit, in the order in which they ended. */
static void read_events(const char *path, const char *begin, char *out)
{
    char line[512];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *name = strstr(line, begin);
        if (name != NULL && strstr(line, "\"ph\":\"X\"") != NULL) {
            (void)snprintf(out, 3, "%c ", name[strlen(begin)]);
            out += 2;
        }
    }
    *out = 0;
    (void)fclose(file);
}

static void events_come_in_the_order_of_the_plan(void **state)
{
    (void)state;
    char path[] = "/tmp/ddp_plan_test_XXXXXX", events[256];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    run(trace_steps, &(log_t){path});
    read_events(path, "\"name\":\"unit ", events);
    assert_string_equal(events, "0 1 2 3 3 2 1 0 0 1 2 3 3 2 1 0 ");
    read_events(path, "\"name\":\"bucket ", events);
    assert_string_equal(events, "0 1 2 3 0 1 2 3 ");
    (void)close(file);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_does_what_its_plan_says),
        cmocka_unit_test(who_follows_does_what_the_plan_says),
        cmocka_unit_test(who_shares_a_host_does_what_the_plan_says),
        cmocka_unit_test(sums_that_stay_sharded_have_a_plan_for_one_shard_alone),
        cmocka_unit_test(events_come_in_the_order_of_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
