/* Schedules that step inside a batch have the bits of a plain loop with copies of the weights, and
 * keep as many versions as the papers say. A random share of the cases is quick, all of them are
 * full (TUTTI_TEST_SHARE, TUTTI_SEED). */
#include "parallel/pipeline/pipeline_versions_testing.h"

#include <math.h>

typedef struct {
    tt_async_t async;
    tt_trained_t want;
    int versions[4]; /* that ranks should have held */
} case_t;

static void train_member(tt_member_t *m)
{
    const case_t *c = m->user;
    tt_trained_t got = {{0}, {0}, 0, {0}};
    TT_EXPECT(m, tt_train_async(&c->async, m->group, &got) == TUTTI_OK);
    TT_EXPECT(m, strcmp(got.digest, c->want.digest) == 0);
    TT_EXPECT(m, memcmp(got.losses, c->want.losses, sizeof got.losses) == 0);
    TT_EXPECT(m, memcmp(&got.evaluated, &c->want.evaluated, sizeof got.evaluated) == 0);
    TT_EXPECT(m, got.stats.versions_max == c->versions[m->rank]);
}

/* Of a stage, from 1, by the definition. */
static int versions_of(const tt_async_t *a, int stage)
{
    int most = 1;
    const int updates = a->micro_batches / tt_per_update(a);
    for (int t = 0; t < updates; t++) { /* behind update t: the newest, and what is used later */
        int held = 1;
        for (int version = 0; version <= t; version++) {
            bool is_used = false;
            for (int later = t + 1; later < updates; later++) {
                is_used |= tt_version_of(a, later, stage) == version;
            }
            held += is_used;
        }
        most = held > most ? held : most;
    }
    return most;
}

/* versions: that ranks hold, NULL: those of the papers. */
static void expect_emulated(const tt_async_t *a, const int *versions)
{
    case_t c = {.async = *a};
    tt_emulate(a, &c.want);
    assert_true(isfinite(c.want.losses[TT_PIPELINE_STEPS - 1]));
    for (int rank = 0; rank < a->ranks; rank++) {
        c.versions[rank] = versions != NULL ? versions[rank] : versions_of(a, rank + 1);
    }
    const tt_team_result_t result = tt_team_run(a->ranks, 0, train_member, &c);
    if (result.text[0] != 0) {
        fail_msg("%s, %s, delay %d, %d ranks, %d micro-batches, %d an update, sums %d, recompute "
                 "%d, devices %d, bf16 %d: %s",
                 a->model, a->optimizer, (int)a->delay, a->ranks, a->micro_batches,
                 tt_per_update(a), a->sums, a->recompute, a->on_devices, a->is_bf16, result.text);
    }
}

static const char *const models[] = {"mlp", "norm", "skip"};
static const char *const optimizers[] = {"sgd", "adamw", "lamb"};

/* What else there is comes and goes from case to case. */
static tt_async_t case_of(tt_delay_t delay, int ranks, int updates, uint64_t number)
{
    tt_async_t a = {.model = models[number % 3],
                    .optimizer = optimizers[number / 3 % 3],
                    .delay = delay,
                    .ranks = ranks,
                    .sums = number % 5 == 0,
                    .recompute = number % 4 == 1,
                    .on_devices = number % 7 == 3 && number / 3 % 3 != 2, /* lamb: host alone */
                    .is_bf16 = number % 6 == 4};
    a.per_update = delay == TT_2BW && number % 2 == 0 ? ranks + 1 : 0;
    a.micro_batches = updates * tt_per_update(&a);
    a.rows = 2 * a.micro_batches + (int64_t)(number % 3);
    return a;
}

static void all_have_the_bits_of_a_plain_loop(void **state)
{
    (void)state;
    static const int updates[] = {1, 2, 3, 5, 8};
    uint64_t number = 0;
    for (int delay = TT_STASHING; delay <= TT_2BW; delay++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
                for (int again = 0; again < 6; again++, number++) {
                    if (tt_test_takes(number)) {
                        const tt_async_t a = case_of((tt_delay_t)delay, ranks, updates[i], number);
                        expect_emulated(&a, NULL);
                    }
                }
            }
        }
    }
    assert_true(number > 300);
}

/* These are always run: p - s + 1 versions, p, 2. */
static void the_papers_versions_are_kept_and_no_more(void **state)
{
    (void)state;
    static const int versions[][3] = {{3, 2, 1}, {3, 3, 3}, {2, 2, 2}};
    for (int delay = TT_STASHING; delay <= TT_2BW; delay++) {
        const tt_async_t a = {.model = "mlp",
                              .optimizer = delay == TT_2BW ? "adamw" : "sgd",
                              .delay = (tt_delay_t)delay,
                              .ranks = 3,
                              .micro_batches = delay == TT_2BW ? 9 : 5,
                              .rows = 20};
        expect_emulated(&a, versions[delay]);
    }
}

/* ---- of one's own ---------------------------------------------------------------------------- */

/* Written to CSV and read again it is pipedream still; so is 2bw, whose versions the text says. */
static void a_schedule_from_csv_has_the_same_bits(void **state)
{
    (void)state;
    for (int delay = TT_STASHING; delay <= TT_2BW; delay++) {
        tutti_buffer_t text;
        tutti_pipeline_schedule_t planned, read;
        tt_async_t a = {.model = "mlp",
                        .optimizer = "sgd",
                        .delay = (tt_delay_t)delay,
                        .ranks = 3,
                        .micro_batches = 6,
                        .rows = 13};
        const tutti_pipeline_options_t options = {.schedule = delay == TT_2BW ? "2bw" : "pipedream",
                                                  .ranks = 3,
                                                  .micro_batches = 6,
                                                  .compute_only = delay == TT_2BW,
                                                  .vertical_sync = delay == TT_VERTICAL_SYNC};
        assert_int_equal(tutti_pipeline_plan(&options, &planned), 0);
        assert_int_equal(tutti_pipeline_write(&planned, &text), 0);
        assert_int_equal(tutti_pipeline_read(text.data, text.bytes, 0, &read), 0);
        a.own = &read;
        expect_emulated(&a, NULL);
        tutti_buffer_release(&text);
        tutti_pipeline_schedule_release(&planned);
        tutti_pipeline_schedule_release(&read);
    }
}

/* I of micro-batch 1 stands before a STEP, its W behind it: both at the version of its F. */
static void a_split_backward_has_one_version(void **state)
{
    (void)state;
    static const char rows[] = "0F0,0F1,0I0,0W0,0I1,0STEP,0F2,0W1,0STEP,0I2,0W2,0STEP\n"
                               "1F0,1F1,1I0,1W0,1I1,1STEP,1W1,1STEP,1F2@1,1I2,1W2,1STEP\n";
    tutti_pipeline_schedule_t own;
    assert_int_equal(tutti_pipeline_read(rows, sizeof rows - 1, 0, &own), 0);
    const tt_async_t a = {.model = "norm",
                          .optimizer = "adamw",
                          .delay = TT_VERTICAL_SYNC,
                          .ranks = 2,
                          .micro_batches = 3,
                          .rows = 7,
                          .own = &own};
    expect_emulated(&a, (int[]){2, 2});
    tutti_pipeline_schedule_release(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_have_the_bits_of_a_plain_loop),
        cmocka_unit_test(the_papers_versions_are_kept_and_no_more),
        cmocka_unit_test(a_schedule_from_csv_has_the_same_bits),
        cmocka_unit_test(a_split_backward_has_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
