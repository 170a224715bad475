/* Schedules that step inside a batch: what does not go with them is refused on all ranks, with the
 * reason; their memory; their checkpoints; a step that fails. */
#include <tutti/checkpoint.h>
#include <tutti/offload.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "parallel/pipeline/pipeline_versions_testing.h"

static const tt_async_t plain = {
    .model = "mlp", .optimizer = "adamw", .ranks = 2, .micro_batches = 4, .rows = 8};

/* ---- what create refuses --------------------------------------------------------------------- */

typedef struct {
    const char *rows, *model, *says;
} refusal_t;

static const refusal_t refusals[] = {
    {"0F0,0F1,2F0,2B0,2STEP,2F1,2B1,2STEP,0B0,0STEP,0B1,0STEP\n"
     "1F0,1F1,1B0,1STEP,1B1,1STEP\n",
     "mlp",
     "rank 0 has 2 stages, which step inside a batch, and its optimizer steps all that a rank has: "
     "give each rank one stage"},
    {"0F0,0B0,0STEP,0F1,0B1,0STEP\n1F0,1B0,1STEP,1F1,1B1,1STEP\n", "tied",
     "stages 0 and 1 have the tied weight 0.weight, and step at different times inside a batch: "
     "cut so that one stage has all its parts"},
    {"0F0,0B0,0STEP,0F1,0B1,0STEP\n1F0,1B0,1F1,1B1,1STEP\n", "mlp",
     "update 1 of stage 0 takes in micro-batch 1, and update 0 of stage 1 does: let all stages "
     "STEP behind the same micro-batches"},
};

static void be_refused(tt_member_t *m)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_pipeline_schedule_t own;
    tutti_pipeline_t *pipeline = NULL;
    const refusal_t *r = m->user;
    TT_EXPECT(m, tutti_pipeline_read(r->rows, strlen(r->rows), 0, &own) == 0);
    const tutti_pipeline_run_options_t options = {.plan = {.own = &own}, .loss = tt_pipeline_loss};
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == 0);
    TT_EXPECT(m, tt_make_model(ctx, r->model, &net) == 0);
    TT_EXPECT(m, tutti_pipeline_create(ctx, net, m->group, &options, &pipeline) < 0);
    TT_EXPECT(m, strstr(tutti_last_error(), r->says) != NULL);
    TT_EXPECT(m, pipeline == NULL);
    tutti_pipeline_schedule_release(&own);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        tt_team_expect(2, 0, be_refused, (void *)(uintptr_t)&refusals[i]);
    }
}

/* One micro-batch after the other, each a batch. */
static void train_singly(char digest[TUTTI_DIGEST_BYTES])
{
    tt_trainer_t t;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    const tt_training_t training = {.model = "tied", .micro_batches = 1, .rows = 8};
    assert_int_equal(tt_trainer_open(&t, &training, NULL), 0);
    assert_int_equal(tutti_scope_open(t.ctx, &s), 0);
    tt_make_batch(s, &training, 0, &x, &y);
    for (int64_t b = 0; b < 4; b++) {
        tutti_tensor_t *rows = tutti_narrow(s, x, 0, 2 * b, 2),
                       *target = tutti_narrow(s, y, 0, 2 * b, 2);
        const tutti_pipeline_batch_t batch = {&rows, 1, &target, 1};
        assert_int_equal(tt_train_on(&t, &training, &batch, NULL), 0);
    }
    assert_int_equal(tutti_scope_close(s), 0);
    assert_int_equal(tutti_pipeline_digest(t.pipeline, digest), 0);
    tt_trainer_close(&t);
}

/* One stage has all uses of the weight: they are added up before each step. */
static void a_tied_weight_of_one_stage_is_taken(void **state)
{
    (void)state;
    tt_trainer_t t;
    double loss;
    char got[TUTTI_DIGEST_BYTES], want[TUTTI_DIGEST_BYTES];
    const tt_async_t a = {
        .model = "tied", .optimizer = "adamw", .ranks = 1, .micro_batches = 4, .rows = 8};
    const tt_training_t training = tt_training_of(&a);
    assert_int_equal(tt_async_open(&t, &a, &training, NULL), 0);
    assert_int_equal(tt_async_batch(&t, &a, 0, &loss), 0);
    assert_int_equal(tutti_pipeline_digest(t.pipeline, got), 0);
    tt_trainer_close(&t);
    train_singly(want);
    assert_string_equal(got, want);
}

/* ---- whose step it is ------------------------------------------------------------------------ */

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *says)
{
    if (m->failure[0] == 0 && (status != want || strstr(tutti_last_error(), says) == NULL)) {
        snprintf(m->failure, sizeof m->failure, "rank %d: %d, %s; want %d, %s", m->rank,
                 (int)status, tutti_last_error(), (int)want, says);
    }
}

static void refuse_steps(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    tutti_scaler_t *scaler;
    const tt_training_t training = tt_training_of(&plain);
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    TT_EXPECT(m, tutti_scaler_create(&(tutti_scaler_options_t){.group = m->group}, &scaler) == 0);
    expect_text(m, tutti_clip_grad_norm(t.opt, 1, 2, NULL), TUTTI_ERR_STATE,
                "clip_grad_norm: an asynchronous pipeline steps this optimizer inside backward");
    expect_text(m, tutti_clip_grad_value(t.opt, 1), TUTTI_ERR_STATE, "a synchronous schedule of a");
    expect_text(m, tutti_optim_step(t.opt), TUTTI_ERR_STATE, "optim_step: an asynchronous");
    expect_text(m, tutti_scaler_unscale(scaler, t.opt), TUTTI_ERR_STATE, "scaler: unscale: an asy");
    TT_EXPECT(m, tt_async_batch(&t, &plain, 0, &loss) == 0);
    TT_EXPECT(m, tutti_pipeline_set_optimizer(t.pipeline, t.opt) == 0); /* again */
    TT_EXPECT(m, tutti_pipeline_set_optimizer(t.pipeline, NULL) == 0);
    TT_EXPECT(m, tutti_optim_step(t.opt) == 0); /* without gradients */
    expect_text(m, tt_async_batch(&t, &plain, 1, &loss), TUTTI_ERR_STATE,
                "there is no optimizer: call tutti_pipeline_set_optimizer() before");
    TT_EXPECT(m, tutti_pipeline_set_optimizer(t.pipeline, t.opt) == 0);
    TT_EXPECT(m, tt_async_batch(&t, &plain, 1, &loss) == 0);
    tutti_scaler_release(scaler);
    tt_trainer_close(&t);
}

static void the_callers_steps_are_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 0, refuse_steps, NULL);
}

/* Nobody has one then, whatever it had. */
static void differ(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    const tt_training_t training = tt_training_of(&plain);
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    tutti_optim_t *mine = m->rank == 0 ? t.opt : NULL;
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, mine), TUTTI_ERR_MISMATCH,
                "this rank gives one, and another rank takes it away (NULL)");
    TT_EXPECT(m, t.opt->driver == NULL);
    TT_EXPECT(m, tutti_pipeline_set_optimizer(t.pipeline, t.opt) == 0);
    TT_EXPECT(m, tt_async_batch(&t, &plain, 0, &loss) == 0);
    tt_trainer_close(&t);
}

static void an_optimizer_on_some_ranks_is_told_at_once(void **state)
{
    (void)state;
    tt_team_expect(2, 0, differ, NULL);
}

/* Every optimizer that is given is refused, and the pipeline goes on with its own. */
static void refuse_optimizers(tt_member_t *m)
{
    tt_trainer_t t, other;
    double loss;
    tutti_module_t *net;
    const tt_training_t training = tt_training_of(&plain),
                        sync = {.model = "mlp", .micro_batches = 4};
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    TT_EXPECT(m, tt_trainer_open(&other, &sync, m->group) == 0);
    expect_text(m, tutti_pipeline_set_optimizer(other.pipeline, other.opt), TUTTI_ERR_STATE,
                "the schedule steps at the end of a batch, which is the caller's");
    TT_EXPECT(m, tutti_pipeline_set_optimizer(other.pipeline, NULL) == 0);
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, other.opt), TUTTI_ERR_ARG,
                "has a parameter \"0.weight\" that is none of the module");
    TT_EXPECT(m, tt_make_model(t.ctx, "short", &net) == 0);
    tutti_optim_t *opt = NULL;
    TT_EXPECT(m, tt_make_optimizer(t.ctx, &plain, t.net, &opt) == 0);
    opt->driver = "ddp";
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, opt), TUTTI_ERR_STATE,
                "the optimizer is stepped by ddp already");
    opt->driver = NULL;
    TT_EXPECT(m, tutti_optim_offload(opt, m->user) == 0);
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, opt), TUTTI_ERR_UNSUPPORTED,
                "the optimizer's state is on a disk");
    TT_EXPECT(m, tt_async_batch(&t, &plain, 0, &loss) == 0);
    tutti_optim_release(opt);
    tutti_module_release(net);
    tt_trainer_close(&other);
    tt_trainer_close(&t);
}

static void optimizers_that_it_cannot_step_are_refused(void **state)
{
    (void)state;
    char place[TT_PLACE_BYTES];
    tt_place_make(place);
    tt_team_expect_quietly(2, 0, refuse_optimizers, place);
    tt_place_remove(place);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { WIDE = 256, WEIGHT_BYTES = WIDE * WIDE * (int)sizeof(float) };

static tutti_tensor_t *square_loss(tutti_scope_t *s, tutti_tensor_t *const *outputs,
                                   int output_count, tutti_tensor_t *const *targets,
                                   int target_count, void *user)
{
    (void)output_count, (void)targets, (void)target_count, (void)user;
    return tutti_mean(s, tutti_square(s, outputs[0]));
}

/* What a rank's device held at most: one wide linear for each of three ranks, few rows. */
static void train_wide(tt_member_t *m, const tutti_pipeline_options_t *plan, size_t *peak,
                       tutti_pipeline_stats_t *stats)
{
    char name[24];
    tt_trainer_t t = {0};
    tutti_scope_t *s;
    tutti_device_t *device = NULL;
    const bool steps_inside = plan->schedule[0] != '1';
    const tutti_pipeline_run_options_t options = {.plan = *plan, .loss = square_loss};
    const tutti_linear_options_t o = {.in = WIDE, .out = WIDE, .no_bias = true};
    snprintf(name, sizeof name, "strict:%d", m->rank);
    TT_EXPECT(m, tutti_device_open(name, NULL, &device) == 0);
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1, .device = device},
                                      &t.ctx) == 0);
    t.maker = tutti_context_retain(t.ctx);
    TT_EXPECT(m, tutti_module_create(t.ctx, &tutti_sequential_layer, NULL, &t.net) == 0);
    for (int i = 0; i < m->size; i++) {
        TT_EXPECT(m, tutti_sequential_add(t.net, &tutti_linear_layer, &o, NULL) == 0);
    }
    TT_EXPECT(m, tutti_pipeline_create(t.ctx, t.net, m->group, &options, &t.pipeline) == 0);
    TT_EXPECT(m, tutti_optim_create(t.ctx, &tutti_sgd, NULL, &t.opt) == 0);
    TT_EXPECT(m, tutti_optim_add_module(t.opt, t.net, NULL, NULL) == 0);
    TT_EXPECT(m, !steps_inside || tutti_pipeline_set_optimizer(t.pipeline, t.opt) == 0);
    for (int step = 0; step < 2; step++) {
        TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == 0);
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(plan->micro_batches, WIDE));
        const tutti_pipeline_batch_t batch = {.inputs = &x, .input_count = 1};
        TT_EXPECT(m, tutti_pipeline_step(t.pipeline, &batch, NULL) == 0);
        TT_EXPECT(m, tutti_scope_close(s) == 0);
        TT_EXPECT(m, steps_inside || tutti_optim_step(t.opt) == 0);
        tutti_optim_zero_grad(t.opt);
    }
    *stats = tutti_pipeline_stats(t.pipeline);
    tt_trainer_close(&t);
    *peak = tutti_device_stats(device).peak_bytes;
    tutti_device_release(device);
}

static void measure_memory(tt_member_t *m)
{
    size_t whole, peak;
    tutti_pipeline_stats_t stats;
    tutti_pipeline_options_t plan = {.schedule = "1f1b", .micro_batches = 8};
    train_wide(m, &plan, &whole, &stats);
    TT_EXPECT(m, stats.versions_max == 1 && stats.stash_bytes_max == 0);
    for (int delay = TT_STASHING; delay <= TT_2BW; delay++) {
        plan = (tutti_pipeline_options_t){.schedule = delay == TT_2BW ? "2bw" : "pipedream",
                                          .micro_batches = 9,
                                          .vertical_sync = delay == TT_VERTICAL_SYNC};
        const int versions = delay == TT_STASHING        ? m->size - m->rank
                             : delay == TT_VERTICAL_SYNC ? m->size
                                                         : 2;
        train_wide(m, &plan, &peak, &stats);
        TT_EXPECT(m, stats.versions_max == versions);
        TT_EXPECT(m, stats.stash_bytes_max == (versions - 1) * (int64_t)WEIGHT_BYTES);
        /* versions, a gradient, perhaps the one before, which the stream uses still, and few rows;
         * at least the whole module, which was there before it was cut */
        const size_t least = (size_t)(versions + 1) * WEIGHT_BYTES,
                     most = least + WEIGHT_BYTES > whole ? least + WEIGHT_BYTES : whole;
        TT_EXPECT(m, peak >= least && peak < most + WEIGHT_BYTES / 2);
    }
}

static void memory_is_that_of_the_versions(void **state)
{
    (void)state;
    tt_team_expect(3, 0, measure_memory, NULL);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

typedef struct {
    const char *folder;
    int from, to;
    char digest[TUTTI_DIGEST_BYTES];
} job_t;

static void train_job(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    job_t *job = m->user;
    int64_t step = job->from;
    char digest[TUTTI_DIGEST_BYTES];
    const tt_training_t training = tt_training_of(&plain);
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    const tutti_checkpoint_t checkpoint = {
        .folder = job->folder, .group = m->group, .module = t.net, .optim = t.opt};
    TT_EXPECT(m, job->from == 0 || tutti_checkpoint_load(&checkpoint, &step) == 0);
    for (; step < job->to; step++) {
        TT_EXPECT(m, tt_async_batch(&t, &plain, (int)step, &loss) == 0);
    }
    TT_EXPECT(m, job->folder == NULL || job->from > 0 ||
                     tutti_checkpoint_save(&checkpoint, step) == 0);
    TT_EXPECT(m, tutti_pipeline_digest(t.pipeline, digest) == 0);
    tt_trainer_close(&t);
    if (m->rank == 0) {
        memcpy(job->digest, digest, sizeof digest);
    }
}

/* One rank goes on where two stopped: it has their weights, moments and counts of steps. */
static void load_alone(const char *folder, int64_t steps)
{
    tt_trainer_t t;
    int64_t step = 0;
    const tt_training_t training = {.model = "mlp", .micro_batches = 4};
    assert_int_equal(tt_trainer_open(&t, &training, NULL), 0);
    const tutti_checkpoint_t checkpoint = {.folder = folder, .module = t.net, .optim = t.opt};
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), 0);
    assert_int_equal(step, 2);
    for (size_t i = 0; i < t.opt->slot_count; i++) {
        assert_int_equal(t.opt->slots[i].step, steps);
    }
    tt_trainer_close(&t);
}

static void a_batch_ends_where_a_checkpoint_may_be(void **state)
{
    (void)state;
    char place[TT_PLACE_BYTES];
    tt_place_make(place);
    job_t whole = {.to = 4}, first = {.folder = place, .to = 2},
          second = {.folder = place, .from = 2, .to = 4};
    tt_team_expect_quietly(2, 20000, train_job, &whole);
    tt_team_expect_quietly(2, 20000, train_job, &first);
    tt_team_expect_quietly(2, 20000, train_job, &second);
    assert_string_equal(second.digest, whole.digest);
    load_alone(place, 2 * (int64_t)plain.micro_batches);
    tt_place_remove(place);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void fail_to_step(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    const tt_training_t training = tt_training_of(&plain);
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    TT_EXPECT(m, tt_async_batch(&t, &plain, 0, &loss) == 0);
    if (m->rank == 1) {
        tutti_optim_set_lr(t.opt, (double)INFINITY);
    }
    TT_EXPECT(m, tt_async_batch(&t, &plain, 1, &loss) < 0);
    if (m->rank == 1) {
        expect_text(m, tt_async_batch(&t, &plain, 2, &loss), TUTTI_ERR_ARG,
                    "rank 1, step 1, STEP of stage 1, micro-batch 0: adamw: the learning rate");
    }
    TT_EXPECT(m, tutti_pipeline_set_optimizer(t.pipeline, NULL) == TUTTI_OK);
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, t.opt),
                m->rank == 1 ? TUTTI_ERR_ARG : TUTTI_ERR_ABORTED, ", step 1, ");
    tutti_pipeline_release(t.pipeline);
    t.pipeline = NULL;
    tutti_optim_set_lr(t.opt, 1e-2);
    TT_EXPECT(m, tutti_optim_step(t.opt) == TUTTI_OK); /* it is its owner's again */
    tt_trainer_close(&t);
}

static void a_step_that_fails_ends_the_batch_on_all(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, fail_to_step, NULL);
}

/* One batch by one rank. */
static tutti_status_t train_once(const tt_async_t *a, double *loss)
{
    tt_trainer_t t;
    const tt_training_t training = tt_training_of(a);
    tutti_status_t status = tt_async_open(&t, a, &training, NULL);
    status = status < 0 ? status : tt_async_batch(&t, a, 0, loss);
    tt_trainer_close(&t);
    return status;
}

/* Who takes the optimizer back has it, and hears of another rank's mistake in the same call. */
static void take_back_while_another_errs(tt_member_t *m)
{
    tt_trainer_t t;
    tutti_optim_t *empty;
    const tt_training_t training = tt_training_of(&plain);
    TT_EXPECT(m, tt_async_open(&t, &plain, &training, m->group) == 0);
    TT_EXPECT(m, tutti_optim_create(t.ctx, &tutti_sgd, NULL, &empty) == 0);
    empty->driver = "ddp";
    expect_text(m, tutti_pipeline_set_optimizer(t.pipeline, m->rank == 1 ? empty : NULL),
                TUTTI_ERR_STATE, "the optimizer is stepped by ddp already");
    TT_EXPECT(m, (t.opt->driver == NULL) == (m->rank == 0));
    empty->driver = NULL;
    tutti_optim_release(empty);
    tt_trainer_close(&t);
}

static void who_takes_an_optimizer_back_hears_of_the_others(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, take_back_while_another_errs, NULL);
}

/* Whatever allocation fails; a random share of them (TUTTI_TEST_SHARE, TUTTI_SEED). */
static void memory_that_is_missing_is_told(void **state)
{
    (void)state;
    double want, loss;
    const tt_async_t a = {.model = "tied",
                          .optimizer = "sgd",
                          .delay = TT_2BW,
                          .ranks = 1,
                          .micro_batches = 3,
                          .rows = 6};
    const size_t before = tt_alloc_stats().allocations;
    assert_int_equal(train_once(&a, &want), 0);
    const size_t count = tt_alloc_stats().allocations - before;
    for (size_t n = 1; n <= count; n++) {
        if (tt_test_takes(n)) {
            tt_alloc_fail_at(n);
            const tutti_status_t status = train_once(&a, &loss);
            const bool has_failed = tt_alloc_has_failed();
            tt_alloc_fail_at(0);
            if (has_failed ? status != TUTTI_ERR_NOMEM : status < 0) {
                fail_msg("allocation %zu: %d, %s", n, (int)status, tutti_last_error());
            }
        }
    }
    assert_int_equal(train_once(&a, &loss), 0);
    assert_true(loss == want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_go_with_it_is_refused),
        cmocka_unit_test(a_tied_weight_of_one_stage_is_taken),
        cmocka_unit_test(an_optimizer_on_some_ranks_is_told_at_once),
        cmocka_unit_test(the_callers_steps_are_refused),
        cmocka_unit_test(optimizers_that_it_cannot_step_are_refused),
        cmocka_unit_test(memory_is_that_of_the_versions),
        cmocka_unit_test(a_batch_ends_where_a_checkpoint_may_be),
        cmocka_unit_test(a_step_that_fails_ends_the_batch_on_all),
        cmocka_unit_test(who_takes_an_optimizer_back_hears_of_the_others),
        cmocka_unit_test(memory_that_is_missing_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
