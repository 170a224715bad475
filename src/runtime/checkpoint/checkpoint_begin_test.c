/* Where a training begins: at the newest checkpoint, at 0, or nowhere in a folder of another. */
#include <tutti/checkpoint.h>
#include <tutti/launch.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"

enum { RANKS = 2, TEXT_BYTES = 512 };

static char place[TT_PLACE_BYTES];
static bool resumes;
static tutti_status_t met[RANKS];
static int64_t steps[RANKS];
static float values[RANKS];
static char texts[RANKS][TEXT_BYTES], last_line[TEXT_BYTES];

/* A training of 3 steps, of which each adds 1, saved at its end. */
static tutti_status_t train(const tutti_spawned_t *self)
{
    const int rank = self->rank;
    tutti_group_t *world;
    tutti_tensor_t *x;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4), &x));
    const tutti_slice_t slice = tutti_slice_whole("w", x);
    const tutti_checkpoint_t checkpoint = {
        .folder = place, .group = world, .slices = &slice, .slice_count = 1};
    steps[rank] = 77;
    texts[rank][0] = 0;
    met[rank] = tutti_checkpoint_begin(&checkpoint, resumes, &steps[rank]);
    if (met[rank] < 0) {
        snprintf(texts[rank], TEXT_BYTES, "%s", tutti_last_error());
    }
    tutti_status_t status = TUTTI_OK;
    if (met[rank] >= 0) {
        values[rank] = (float)tutti_tensor_at(x, 3);
        status = tutti_tensor_fill(x, values[rank] + 3);
        status = status < 0 ? status : tutti_checkpoint_save(&checkpoint, steps[rank] + 3);
    }
    tutti_tensor_release(x);
    tutti_group_release(world);
    return status;
}

static void run(bool resume)
{
    resumes = resume;
    assert_int_equal(tutti_spawn(train, RANKS, &(tutti_spawn_options_t){.threads = true}),
                     TUTTI_OK);
}

static void expect_begun(tutti_status_t status, int64_t step)
{
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(met[rank], status);
        assert_int_equal(steps[rank], step);
        assert_true(values[rank] == (float)step);
    }
}

static int begin(void **state)
{
    (void)state;
    tt_place_make(place);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(place);
    return 0;
}

static void a_folder_without_any_begins_at_0(void **state)
{
    (void)state;
    run(false);
    expect_begun(TUTTI_END, 0);
    end(NULL); /* also one that is not there */
    run(true);
    expect_begun(TUTTI_END, 0);
}

static void a_training_goes_on(void **state)
{
    (void)state;
    for (int64_t step = 0; step < 9; step += 3) {
        run(true);
        expect_begun(step == 0 ? TUTTI_END : TUTTI_OK, step);
    }
}

static void a_folder_that_is_used_is_refused(void **state)
{
    (void)state;
    char want[TEXT_BYTES];
    run(false);
    run(false);
    snprintf(want, sizeof want,
             "checkpoint: folder %s has a checkpoint of step 3: resume, to go on from it, or give "
             "another folder",
             place);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_STATE);
        assert_int_equal(steps[rank], 77);
        assert_string_equal(texts[rank] + (rank == 0 ? 0 : strlen("rank 0: ")), want);
    }
}

/* The only one that a crash has left while it was replaced. */
static void one_that_lost_its_name_counts(void **state)
{
    (void)state;
    char from[96], to[96];
    run(false);
    snprintf(from, sizeof from, "%s/step-000000000003", place);
    snprintf(to, sizeof to, "%s/.old-000000000003", place);
    assert_int_equal(rename(from, to), 0);
    run(false);
    assert_int_equal(met[0], TUTTI_ERR_STATE);
    assert_int_equal(met[1], TUTTI_ERR_STATE);
}

static void note_line(tt_log_level_t level, const char *line, void *user)
{
    (void)user;
    if (level == TT_LOG_INFO) {
        snprintf(last_line, sizeof last_line, "%s", line);
    }
}

static void the_log_says_where_it_begins(void **state)
{
    (void)state;
    int64_t step;
    char want[TEXT_BYTES];
    const tutti_checkpoint_t checkpoint = {.folder = place};
    tt_log_set_sink(note_line, NULL);
    assert_int_equal(tutti_checkpoint_begin(&checkpoint, true, &step), TUTTI_END);
    snprintf(want, sizeof want, "checkpoint: folder %s has none: begins at step 0", place);
    assert_non_null(strstr(last_line, want));
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 5), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_begin(&checkpoint, true, &step), TUTTI_OK);
    snprintf(want, sizeof want, "checkpoint: goes on from step 5 of folder %s", place);
    assert_non_null(strstr(last_line, want));
    tt_log_set_sink(NULL, NULL);
}

int main(void)
{
    setenv("TUTTI_LOG", "info", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_without_any_begins_at_0, begin, end),
        cmocka_unit_test_setup_teardown(a_training_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(a_folder_that_is_used_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(one_that_lost_its_name_counts, begin, end),
        cmocka_unit_test_setup_teardown(the_log_says_where_it_begins, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
