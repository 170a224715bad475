/* A training by a pipeline, saved on so many ranks, goes on on others, and ends with the bits of
 * one that nobody stopped: parameters, optimizer and running statistics. */
#include <tutti/checkpoint.h>

#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "parallel/pipeline/pipeline_testing.h"

enum { STEPS = 4, HALF = 2 };

typedef struct {
    const char *model, *folder;
    int ranks;
    int from, to; /* steps; a checkpoint is loaded where it does not begin at 0, and saved where it
                     does not end at the last one */
    tt_trained_t got;
} job_t;

static tutti_status_t train(tt_trainer_t *t, tutti_group_t *group, const job_t *job,
                            tt_trained_t *out)
{
    double loss;
    int64_t step = job->from;
    const tt_training_t training = {.model = job->model, .micro_batches = 4};
    const tutti_checkpoint_t checkpoint = {
        .folder = job->folder, .group = group, .module = t->net, .optim = t->opt};
    if (job->from > 0) {
        TT_TRY(tutti_checkpoint_load(&checkpoint, &step));
    }
    for (; step < job->to; step++) {
        TT_TRY(tt_train_step(t, &training, (int)step, &loss));
    }
    if (job->to < STEPS) {
        TT_TRY(tutti_checkpoint_save(&checkpoint, step));
    }
    TT_TRY(tt_evaluate(t, &training, &out->evaluated));
    return tutti_pipeline_digest(t->pipeline, out->digest);
}

static void train_member(tt_member_t *m)
{
    job_t *job = m->user;
    tt_trainer_t t;
    tt_trained_t got = {{0}, {0}, 0, {0}};
    const tt_training_t training = {.model = job->model, .micro_batches = 4};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, train(&t, m->group, job, &got) == TUTTI_OK);
    tt_trainer_close(&t);
    if (m->rank == m->size - 1) {
        job->got = got;
    }
}

static void run(job_t *job)
{
    tt_team_expect_quietly(job->ranks, 20000, train_member, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void change_ranks(const char *model, int most)
{
    job_t whole = {.model = model, .ranks = 1, .to = STEPS};
    run(&whole);
    for (int i = 1; i <= most; i++) {
        char place[TT_PLACE_BYTES];
        tt_place_make(place);
        job_t first = {.model = model, .ranks = i, .folder = place, .to = HALF};
        run(&first);
        for (int k = 1; k <= most; k++) {
            job_t second = {.model = model, .ranks = k, .folder = place, .from = HALF, .to = STEPS};
            run(&second);
            if (strcmp(second.got.digest, whole.got.digest) != 0 ||
                second.got.evaluated != whole.got.evaluated) {
                fail_msg("%s on %d ranks, then on %d: %s, %.17g; want %s, %.17g", model, i, k,
                         second.got.digest, second.got.evaluated, whole.got.digest,
                         whole.got.evaluated);
            }
        }
        tt_place_remove(place);
    }
}

static void any_number_of_ranks_goes_on(void **state)
{
    (void)state;
    change_ranks("mlp", 3);
}

/* Running statistics are of the stage that moves them. */
static void statistics_travel_with_their_stage(void **state)
{
    (void)state;
    change_ranks("norm", 3);
}

/* Ranks that compute with a parameter and do not step it get what was loaded. */
static void tied_parameters_travel(void **state)
{
    (void)state;
    change_ranks("tied", 3);
}

/* One rank has all parameters: the others read nothing, and wait as it does. */
static void a_stage_may_have_no_parameters(void **state)
{
    (void)state;
    change_ranks("short", 2);
}

/* ---- a load that fails ----------------------------------------------------------------------- */

static void fail_to_load(tt_member_t *m)
{
    tt_trainer_t t;
    double loss;
    int64_t step = 0;
    job_t *job = m->user;
    const tt_training_t training = {.model = job->model, .micro_batches = 4};
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {
        .folder = job->folder, .group = m->group, .module = t.net, .optim = t.opt};
    TT_EXPECT(m, tutti_checkpoint_load(&checkpoint, &step) == TUTTI_ERR_MISMATCH);
    TT_EXPECT(m, strstr(tutti_last_error(), "checkpoint of step 2") != NULL);
    TT_EXPECT(m, tt_train_step(&t, &training, 0, &loss) == TUTTI_OK); /* nobody is left behind */
    tt_trainer_close(&t);
}

static void ranks_go_on_behind_a_load_that_failed(void **state)
{
    (void)state;
    char place[TT_PLACE_BYTES];
    tt_place_make(place);
    job_t other = {.model = "short", .ranks = 2, .folder = place, .to = HALF};
    run(&other);
    other.model = "norm";
    tt_team_expect_quietly(2, 20000, fail_to_load, &other);
    tt_place_remove(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_goes_on),
        cmocka_unit_test(statistics_travel_with_their_stage),
        cmocka_unit_test(tied_parameters_travel),
        cmocka_unit_test(a_stage_may_have_no_parameters),
        cmocka_unit_test(ranks_go_on_behind_a_load_that_failed),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
