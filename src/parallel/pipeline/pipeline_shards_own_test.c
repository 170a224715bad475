/* Schedules of one's own in which the shards of a stage take turns by micro-batches: gradients and
 * running statistics of each are its own. And what is refused. */
#include "parallel/pipeline/pipeline_testing.h"

#include <tutti/ddp.h>
#include <tutti/sharded.h>

enum { SHARDS = 2, MICRO_BATCHES = 2, STEPS = 3, BUFFERS_MAX = 16 };

static const tt_training_t norm = {
    .model = "norm", .micro_batches = MICRO_BATCHES, .rows = 2 * MICRO_BATCHES + 1};

/* A row of both stages, and rows of one each. */
static const char *const own_rows[] = {
    "0F0,1F0,0F2,1F2,0F1,1F1,0F3,1F3,1B0,0B0,1B2,0B2,1B1,0B1,1B3,0B3\n",
    "0F2,0F0,0F3,0F1,0B2,0B0,0B3,0B1\n1F2,1F0,1B2,1F3,1B0,1F1,1B3,1B1\n"};

typedef struct {
    char name[40];
    float values[TT_PIPELINE_WIDTH];
} buffer_t;

typedef struct {
    char digest[TUTTI_DIGEST_BYTES];
    double losses[STEPS][SHARDS];
    int buffer_count;
    buffer_t buffers[BUFFERS_MAX];
} trained_t;

typedef struct {
    bool at_once, deferred, recompute;
    int empty; /* the shard without data in the second step; -1: none */
    trained_t wanted;
} job_t;

typedef struct {
    tt_trainer_t trainer;
    tutti_group_t *alone;
    tutti_pipeline_schedule_t own;
    tutti_ddp_t *ddp;
} set_t;

static tutti_status_t open_set(set_t *set, const job_t *job, tutti_group_t *group)
{
    tt_trainer_t *t = &set->trainer;
    const int ranks = tutti_group_size(group), own = tutti_group_rank(group);
    *set = (set_t){0};
    TT_TRY(tutti_pipeline_read(own_rows[ranks - 1], strlen(own_rows[ranks - 1]), MICRO_BATCHES,
                               &set->own));
    tutti_pipeline_run_options_t run = tt_run_options(&norm);
    run.deferred_statistics = job->deferred;
    run.recompute = job->recompute;
    if (job->at_once) {
        run.plan = (tutti_pipeline_options_t){.own = &set->own};
    }
    const tutti_ddp_options_t average = {.shards = SHARDS, .uneven = TUTTI_DDP_WEIGHTED};
    TT_TRY(tt_open_contexts(t, &norm, 0));
    TT_TRY(tt_make_model(t->maker, norm.model, &t->net));
    TT_TRY(tutti_group_new(group, &own, 1, NULL, &set->alone));
    TT_TRY(tutti_pipeline_create(t->ctx, t->net, group, &run, &t->pipeline));
    TT_TRY(tutti_ddp_create(t->ctx, t->net, set->alone, &average, &set->ddp));
    TT_TRY(tutti_pipeline_set_ddp(t->pipeline, set->ddp));
    TT_TRY(tutti_optim_create(t->ctx, &tutti_sgd, NULL, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void close_set(set_t *set)
{
    tutti_optim_release(set->trainer.opt);
    set->trainer.opt = NULL;
    tutti_ddp_release(set->ddp);
    tt_trainer_close(&set->trainer);
    tutti_group_release(set->alone);
    tutti_pipeline_schedule_release(&set->own);
}

/* ---- training -------------------------------------------------------------------------------- */

static tutti_status_t run_loop(set_t *set, tutti_pipeline_shard_t *shards, double *losses)
{
    while (tutti_ddp_next_shard(set->ddp, set->trainer.ctx)) {
        const int64_t i = tutti_context_shard(set->trainer.ctx);
        TT_TRY(tutti_ddp_set_weight(set->ddp, shards[i].is_empty ? 0 : shards[i].weight));
        TT_TRY(shards[i].is_empty
                   ? TUTTI_OK
                   : tutti_pipeline_step(set->trainer.pipeline, &shards[i].batch, &losses[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t run_step(set_t *set, const job_t *job, int step, double *losses)
{
    tutti_scope_t *s;
    tutti_context_t *ctx = set->trainer.ctx;
    tutti_tensor_t *x[SHARDS], *y[SHARDS];
    tutti_pipeline_shard_t shards[SHARDS];
    TT_TRY(tutti_scope_open(ctx, &s));
    for (int i = 0; i < SHARDS; i++) {
        tt_make_batch(s, &norm, SHARDS * step + i, &x[i], &y[i]);
        shards[i] = (tutti_pipeline_shard_t){.batch = {&x[i], 1, &y[i], 1},
                                             .weight = 1 + i,
                                             .is_empty = step == 1 && i == job->empty};
    }
    tutti_context_set_step(ctx, step);
    tutti_status_t status =
        job->at_once ? tutti_pipeline_step_shards(set->trainer.pipeline, shards, SHARDS, losses)
                     : run_loop(set, shards, losses);
    status = status < 0 ? status : tutti_ddp_finish(set->ddp);
    const tutti_status_t closed = tutti_scope_close(s);
    TT_TRY(status < 0 ? status : closed);
    return tutti_optim_step(set->trainer.opt);
}

static tutti_status_t read_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    trained_t *out = user;
    if (x->dtype == TUTTI_F32 && tt_device_has_values(x->storage->device)) {
        buffer_t *buffer = &out->buffers[out->buffer_count++];
        snprintf(buffer->name, sizeof buffer->name, "%s", name);
        return tt_tensor_read(x, buffer->values);
    }
    return TUTTI_OK;
}

static tutti_status_t train(set_t *set, const job_t *job, trained_t *out)
{
    *out = (trained_t){0};
    for (int i = 0; i < STEPS; i++) {
        TT_TRY(run_step(set, job, i, out->losses[i]));
    }
    TT_TRY(tutti_module_each_buffer(set->trainer.net, read_buffer, out));
    return tutti_pipeline_digest(set->trainer.pipeline, out->digest);
}

static void train_alone(tt_member_t *m)
{
    set_t set;
    job_t *job = m->user;
    TT_EXPECT(m, open_set(&set, job, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, job, &job->wanted) == TUTTI_OK);
    TT_EXPECT(m, job->wanted.buffer_count == 8);
    close_set(&set);
}

static bool has_buffer(const trained_t *trained, const buffer_t *buffer)
{
    int i = 0;
    while (i < trained->buffer_count && memcmp(&trained->buffers[i], buffer, sizeof *buffer) != 0) {
        i++;
    }
    return i < trained->buffer_count;
}

static void train_member(tt_member_t *m)
{
    set_t set;
    trained_t got;
    const job_t *job = m->user;
    TT_EXPECT(m, open_set(&set, job, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&set, job, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, job->wanted.digest) == 0);
    TT_EXPECT(m, memcmp(got.losses, job->wanted.losses, sizeof got.losses) == 0);
    TT_EXPECT(m, got.buffer_count == 8 / tutti_group_size(m->group));
    for (int i = 0; i < got.buffer_count; i++) {
        TT_EXPECT(m, has_buffer(&job->wanted, &got.buffers[i]));
    }
    TT_EXPECT(m, tutti_pipeline_stats(set.trainer.pipeline).accumulators_max ==
                     4 / tutti_group_size(m->group));
    close_set(&set);
}

static void each_shard_has_gradients_and_statistics_of_its_own(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        for (int k = 0; k < 6; k++) {
            job_t job = {.deferred = k >= 3, .recompute = k % 2 == 1, .empty = k % 3 - 1};
            tt_team_expect(1, 0, train_alone, &job);
            job.at_once = true;
            tt_team_expect(ranks, 0, train_member, &job);
        }
    }
}

static void the_rows_are_canonical(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti_pipeline_schedule_t own;
        tutti_pipeline_report_t report;
        tutti_pipeline_simulation_t s;
        assert_int_equal(tutti_pipeline_read(own_rows[i], strlen(own_rows[i]), MICRO_BATCHES, &own),
                         TUTTI_OK);
        assert_int_equal(tutti_pipeline_check(&own, &report, NULL), TUTTI_OK);
        assert_true(report.is_canonical);
        assert_int_equal(report.open_shards_max, 2);
        assert_int_equal(tutti_pipeline_simulate(&own, NULL, 1, &s), TUTTI_OK);
        assert_int_equal(s.loads[0].accumulators_max, i == 0 ? 4 : 2);
        tutti_pipeline_simulation_release(&s);
        tutti_pipeline_schedule_release(&own);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define EXPECT_TEXT(m, status, want, says)                                                         \
    do {                                                                                           \
        TT_EXPECT(m, (status) == (want));                                                          \
        TT_EXPECT(m, strstr(tutti_last_error(), (says)) != NULL);                                  \
    } while (0)

static void be_refused(tt_member_t *m)
{
    set_t set;
    tutti_tensor_t *none = NULL;
    const job_t job = {.at_once = true, .empty = -1};
    tutti_pipeline_shard_t shards[SHARDS] = {0};
    const tutti_ddp_options_t three = {.shards = 3}, even = {.shards = SHARDS};
    const tutti_pipeline_batch_t batch = {&none, 1, &none, 1};
    TT_EXPECT(m, open_set(&set, &job, m->group) == TUTTI_OK);
    tutti_pipeline_t *p = set.trainer.pipeline;
    EXPECT_TEXT(m, tutti_pipeline_step(p, &batch, NULL), TUTTI_ERR_STATE,
                "the plan has 2 shards: call tutti_pipeline_step_shards()");
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 1, NULL), TUTTI_ERR_ARG,
                "1 shards; the ddp has 2 on this rank, and plan.shards is 2");
    shards[1].weight = -1;
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 2, NULL), TUTTI_ERR_ARG, "-1; want 0 to");
    tutti_ddp_no_sync(set.ddp, true);
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 2, NULL), TUTTI_ERR_STATE,
                "tutti_ddp_no_sync() is on");
    tutti_ddp_no_sync(set.ddp, false);
    tutti_ddp_release(set.ddp);
    set.ddp = NULL;
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 2, NULL), TUTTI_ERR_STATE,
                "tutti_pipeline_set_ddp() comes first");
    TT_EXPECT(m, tutti_ddp_create(set.trainer.ctx, set.trainer.net, set.alone, &three, &set.ddp) ==
                     TUTTI_OK);
    EXPECT_TEXT(m, tutti_pipeline_set_ddp(p, set.ddp), TUTTI_ERR_ARG,
                "plan.shards is 2, and this rank has 3 of the ddp's 3 shards");
    tutti_ddp_release(set.ddp);
    set.ddp = NULL;
    TT_EXPECT(m, tutti_ddp_create(set.trainer.ctx, set.trainer.net, set.alone, &even, &set.ddp) ==
                     TUTTI_OK);
    TT_EXPECT(m, tutti_pipeline_set_ddp(p, set.ddp) == TUTTI_OK);
    shards[1] = (tutti_pipeline_shard_t){.is_empty = true};
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 2, NULL), TUTTI_ERR_STATE,
                "options.uneven is TUTTI_DDP_EVEN");
    TT_EXPECT(m, tutti_ddp_next_shard(set.ddp, set.trainer.ctx));
    EXPECT_TEXT(m, tutti_pipeline_step_shards(p, shards, 2, NULL), TUTTI_ERR_STATE,
                "the ddp is in a step");
    close_set(&set);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    tt_team_expect(1, 0, be_refused, NULL);
}

static void step_inside(tt_member_t *m)
{
    static const char rows[] = "0F0,0B0,0STEP0,0F1,0B1,0STEP1\n";
    tt_trainer_t t = {0};
    tutti_pipeline_schedule_t own;
    TT_EXPECT(m, tutti_pipeline_read(rows, strlen(rows), 1, &own) == TUTTI_OK);
    tutti_pipeline_run_options_t run = tt_run_options(&norm);
    run.plan = (tutti_pipeline_options_t){.own = &own};
    TT_EXPECT(m, tt_open_contexts(&t, &norm, 0) == TUTTI_OK);
    TT_EXPECT(m, tt_make_model(t.maker, norm.model, &t.net) == TUTTI_OK);
    EXPECT_TEXT(m, tutti_pipeline_create(t.ctx, t.net, m->group, &run, &t.pipeline),
                TUTTI_ERR_UNSUPPORTED, "2 shards, and stages of this schedule step inside a batch");
    tt_trainer_close(&t);
    tutti_pipeline_schedule_release(&own);
}

static void shards_have_no_steps_inside(void **state)
{
    (void)state;
    tt_team_expect(1, 0, step_inside, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shard_has_gradients_and_statistics_of_its_own),
        cmocka_unit_test(the_rows_are_canonical),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(shards_have_no_steps_inside),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
