/* What DDP tells of its steps: times, events of a timeline, and what the log has when a timeline
 * cannot be written. */
#include "core/base/testing.h"

#include <jansson.h>
#include <unistd.h>

#include <tutti/ddp.h>
#include <tutti/diagnose.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "comm/group/group_team.h"
#include "core/base/clock.h"

enum { SHARDS = 3, STEPS = 2, BUCKETS = 2 };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
} setting_t;

static tutti_status_t open_setting(tutti_group_t *world, tutti_trace_t *trace, bool no_overlap,
                                   setting_t *set)
{
    const tutti_linear_options_t linear = {.in = 40, .out = 30};
    const tutti_ddp_options_t options = {.shards = SHARDS,
                                         .bucket_bytes = 64,
                                         .first_bucket_bytes = 64,
                                         .no_overlap = no_overlap,
                                         .trace = trace};
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &set->ctx));
    TUTTI_CHECK(tutti_module_create(set->ctx, &tutti_linear_layer, &linear, &set->model));
    return tutti_ddp_create(set->ctx, set->model, world, &options, &set->ddp);
}

static void close_setting(setting_t *set)
{
    tutti_ddp_release(set->ddp);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* The bias, whose bucket leaves first, gets its gradient before the weight. */
static tutti_status_t run_shard(setting_t *set)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(set->ctx, &s));
    tutti_tensor_t *w = tutti_module_find(set->model, "weight");
    tutti_tensor_t *b = tutti_module_find(set->model, "bias");
    tutti_tensor_t *first = tutti_sum(s, tutti_mul(s, w, w));
    (void)tutti_backward(s, tutti_add(s, first, tutti_sum(s, tutti_mul(s, b, b))));
    return tutti_scope_close(s);
}

static void run_step(tt_member_t *m, setting_t *set)
{
    while (tutti_ddp_next_shard(set->ddp, set->ctx)) {
        TT_EXPECT(m, run_shard(set) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(set->ddp) == TUTTI_OK);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Forward, backward and waiting follow each other; buckets travel one after the other. */
static void expect_times(tt_member_t *m, const tutti_ddp_stats_t *stats, double all_ms,
                         bool no_overlap)
{
    const double rounding = 1e-6;
    TT_EXPECT(m, stats->forward_ms > 0 && stats->backward_ms > 0 && stats->wait_ms > 0);
    TT_EXPECT(m, stats->forward_ms + stats->backward_ms + stats->wait_ms <= all_ms + rounding);
    TT_EXPECT(m, stats->comm_ms > 0 && stats->comm_ms <= all_ms + rounding);
    TT_EXPECT(m, no_overlap ? stats->overlap_ms == 0 : stats->overlap_ms > 0);
    TT_EXPECT(m, stats->overlap_ms <= stats->comm_ms);
}

static void time_steps(tt_member_t *m)
{
    const bool no_overlap = *(const bool *)m->user;
    setting_t set = {0};
    TT_EXPECT(m, open_setting(m->group, NULL, no_overlap, &set) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        const int64_t begin = tt_clock_ns();
        run_step(m, &set);
        const double all_ms = (double)(tt_clock_ns() - begin) * 1e-6;
        const tutti_ddp_stats_t stats = tutti_ddp_stats(set.ddp);
        TT_EXPECT(m, stats.steps == step + 1 && stats.buckets == BUCKETS);
        expect_times(m, &stats, all_ms, no_overlap);
    }
    close_setting(&set);
}

static void times_are_parts_of_the_step(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= SHARDS; ranks++) {
        for (int no_overlap = 0; no_overlap < 2; no_overlap++) {
            tt_team_expect_quietly(ranks, 60000, time_steps, &(bool){no_overlap != 0});
        }
    }
}

/* ---- a timeline ------------------------------------------------------------------------------ */

/* Events whose name begins with this. */
static int count_events(const json_t *all, const char *begin)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(all, i), "name"));
        count += name != NULL && strncmp(name, begin, strlen(begin)) == 0;
    }
    return count;
}

static void draw_steps(tt_member_t *m)
{
    char path[64];
    setting_t set = {0};
    tutti_trace_t *trace;
    snprintf(path, sizeof path, "ddp_stats_test.%d.%d.json", (int)getpid(), m->rank);
    TT_EXPECT(m, tutti_trace_create(path, m->rank, &trace) == TUTTI_OK);
    TT_EXPECT(m, open_setting(m->group, trace, false, &set) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        run_step(m, &set);
    }
    close_setting(&set);
    TT_EXPECT(m, tutti_trace_release(trace) == TUTTI_OK);
    json_t *all = json_load_file(path, 0, NULL);
    TT_EXPECT(m, count_events(all, "bucket 0, 0 KiB") == STEPS);
    TT_EXPECT(m, count_events(all, "bucket 1, 4 KiB") == STEPS);
    TT_EXPECT(m, count_events(all, "bucket") == STEPS * BUCKETS);
    json_decref(all);
    (void)unlink(path);
}

static void every_bucket_of_every_step_is_in_the_timeline(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= SHARDS; ranks++) {
        tt_team_expect_quietly(ranks, 60000, draw_steps, NULL);
    }
}

typedef struct {
    const char *path; /* of the timeline; NULL: there is none */
    int errors;       /* in the log */
    char line[256];
} log_t;

static void note_line(tt_log_level_t level, const char *line, void *user)
{
    log_t *log = user;
    if (level == TT_LOG_ERROR) {
        log->errors++;
        snprintf(log->line, sizeof log->line, "%s", line);
    }
}

static void release_with_a_timeline(tt_member_t *m)
{
    const log_t *log = m->user;
    setting_t set = {0};
    tutti_trace_t *trace = NULL;
    TT_EXPECT(m, log->path == NULL || tutti_trace_create(log->path, 0, &trace) == TUTTI_OK);
    TT_EXPECT(m, open_setting(m->group, trace, false, &set) == TUTTI_OK);
    (void)tutti_trace_release(trace); /* what is wrong shows when DDP gives it back */
    run_step(m, &set);
    close_setting(&set);
}

static void a_timeline_that_cannot_be_written_is_in_the_log_and_no_other(void **state)
{
    (void)state;
    log_t logs[] = {{.path = NULL}, {.path = "/dev/null"}, {.path = "/dev/full"}};
    for (int i = 0; i < 3; i++) {
        tt_log_set_sink(note_line, &logs[i]);
        tt_team_expect(1, 60000, release_with_a_timeline, &logs[i]);
        tt_log_set_sink(NULL, NULL);
        assert_int_equal(logs[i].errors, i == 2);
    }
    assert_non_null(strstr(logs[2].line, "trace /dev/full"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_parts_of_the_step),
        cmocka_unit_test(every_bucket_of_every_step_is_in_the_timeline),
        cmocka_unit_test(a_timeline_that_cannot_be_written_is_in_the_log_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
