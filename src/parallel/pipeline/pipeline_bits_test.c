/* A training has the same bits for every schedule and any number of ranks: losses, weights, and the
 * loss of an evaluation. A random share of the cases is quick, all of them are full
 * (TUTTI_TEST_SHARE, TUTTI_SEED). */
#include "parallel/pipeline/pipeline_testing.h"

#include <math.h>

typedef struct {
    tt_training_t training;
    tt_trained_t alone; /* by one rank */
} case_t;

static void train_member(tt_member_t *m)
{
    const case_t *c = m->user;
    tt_trained_t got = {0};
    TT_EXPECT(m, tt_train(&c->training, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, c->alone.digest) == 0);
    TT_EXPECT(m, memcmp(got.losses, c->alone.losses, sizeof got.losses) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &c->alone.evaluated, sizeof got.evaluated) == 0);
}

/* One rank that has all stages is what others are compared with. */
static void expect_same(int ranks, tt_training_t training)
{
    case_t c = {.training = training};
    tt_training_t whole = training;
    whole.schedule = "1f1b";
    whole.stages_per_rank = 1;
    whole.cut = NULL;
    whole.recompute = whole.on_meta = whole.on_devices = false;
    if (tt_train(&whole, NULL, &c.alone) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_true(isfinite(c.alone.losses[TT_PIPELINE_STEPS - 1]));
    const tt_team_result_t result = tt_team_run(ranks, 0, train_member, &c);
    if (result.text[0] != 0) {
        fail_msg("%s, %s, %d ranks, %d micro-batches, recompute %d, clips %d, accumulates %d, "
                 "meta %d, devices %d: %s",
                 training.model, training.schedule, ranks, training.micro_batches,
                 training.recompute, training.clips, training.accumulates, training.on_meta,
                 training.on_devices, result.text);
    }
}

static const char *const models[] = {"mlp", "dropout", "norm", "tied", "gpt", "skip"};
enum { MODELS = sizeof models / sizeof models[0] };

/* What else there is comes and goes from case to case. */
static tt_training_t training_of(const tutti_pipeline_about_t *about, const char *model,
                                 uint64_t number)
{
    return (tt_training_t){.model = model,
                           .schedule = about->name,
                           .micro_batches = 8,
                           .recompute = number % 3 == 0,
                           .clips = number % 2 == 0,
                           .accumulates = number % 5 == 0,
                           .sums = number % 7 == 0,
                           .on_meta = number % 4 == 1};
}

static void every_schedule_has_one_ranks_bits(void **state)
{
    (void)state;
    tutti_pipeline_about_t about;
    uint64_t number = 0;
    for (size_t k = 0; tutti_pipeline_describe(k, &about) == TUTTI_OK; k++) {
        const int ranks_max = 5 / about.stages_per_rank_min;
        for (int ranks = 2; ranks <= ranks_max && !about.is_asynchronous; ranks++) {
            for (int i = 0; i < MODELS; i++, number++) {
                if (tt_test_takes(number)) {
                    expect_same(ranks, training_of(&about, models[i], number));
                }
            }
        }
    }
    assert_true(number > 100);
}

/* These are always run: a whole and a split backward, one and two stages a rank. */
static void ties_and_skips_have_one_ranks_bits(void **state)
{
    (void)state;
    const char *const cut[] = {"1"};
    expect_same(2, (tt_training_t){
                       .model = "tied", .schedule = "zb-h1", .micro_batches = 4, .clips = true});
    expect_same(2, (tt_training_t){.model = "tied",
                                   .schedule = "1f1b",
                                   .micro_batches = 2,
                                   .cut = cut,
                                   .cut_count = 1,
                                   .accumulates = true});
    expect_same(2, (tt_training_t){.model = "skip", .schedule = "zb-v", .micro_batches = 4});
    expect_same(3, (tt_training_t){
                       .model = "gpt", .schedule = "gpipe", .micro_batches = 3, .on_meta = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_has_one_ranks_bits),
        cmocka_unit_test(ties_and_skips_have_one_ranks_bits),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
