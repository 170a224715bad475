/* Ranks that save other things than they should: another step, a folder of their own host. */

#include <tutti/checkpoint.h>
#include <tutti/launch.h>

#include "core/base/folder.h"
#include "core/base/place_testing.h"

enum { RANKS = 2, TEXT_BYTES = 512 };

/* What rank 1 does differently, and what both meet. */
typedef struct {
    char folder[TT_PLACE_BYTES], own[96];
    bool has_own_folder, is_whole; /* all ranks have all of the tensor */
    int64_t steps[RANKS];
} job_t;

static job_t job;
static tutti_status_t met[RANKS];
static char texts[RANKS][TEXT_BYTES];

static tutti_status_t save_rank(const tutti_spawned_t *self)
{
    const int rank = self->rank;
    tutti_group_t *world;
    tutti_tensor_t *x;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(8), &x));
    const tutti_slice_t slice =
        job.is_whole ? tutti_slice_whole("w", x)
                     : tutti_slice_box("w", x, TUTTI_SHAPE(8 * RANKS), (int64_t[]){8 * rank});
    const tutti_checkpoint_t checkpoint = {.folder = job.has_own_folder && rank == 1 ? job.own
                                                                                     : job.folder,
                                           .group = world,
                                           .slices = &slice,
                                           .slice_count = 1,
                                           .keep = 1};
    met[rank] = tutti_checkpoint_save(&checkpoint, job.steps[rank]);
    snprintf(texts[rank], TEXT_BYTES, "%s", met[rank] < 0 ? tutti_last_error() : "");
    tutti_tensor_release(x);
    tutti_group_release(world);
    return TUTTI_OK;
}

static void save(void)
{
    assert_int_equal(tutti_spawn(save_rank, RANKS, &(tutti_spawn_options_t){.threads = true}),
                     TUTTI_OK);
}

static int begin(void **state)
{
    (void)state;
    job = (job_t){.steps = {1, 1}};
    tt_place_make(job.folder);
    snprintf(job.own, sizeof job.own, "%s/own", job.folder);
    save();
    assert_string_equal(texts[0], "");
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(job.folder);
    return 0;
}

static void expect_newest(int64_t want)
{
    int64_t step;
    assert_int_equal(tutti_checkpoint_newest(job.folder, &step), TUTTI_OK);
    assert_int_equal(step, want);
}

/* Also where a rank writes nothing, as all others have what it has. */
static void other_steps_are_told(void **state)
{
    (void)state;
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        job.is_whole = is_whole;
        job.steps[0] = 2;
        job.steps[1] = 3;
        save();
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(met[rank], TUTTI_ERR_MISMATCH);
            assert_non_null(strstr(texts[rank], "rank 1 saves step 3, rank 0 step 2"));
        }
        expect_newest(1);
    }
}

/* With what a crash has left there, so that it can write. */
static void another_hosts_folder_is_told(void **state)
{
    (void)state;
    char half[128];
    snprintf(half, sizeof half, "%s/.half-000000000002", job.own);
    assert_int_equal(tt_folder_make(half), TUTTI_OK);
    job.has_own_folder = true;
    job.steps[0] = job.steps[1] = 2;
    save();
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_IO);
        assert_non_null(strstr(texts[rank], "/rank-00001-0.safetensors: "));
        assert_non_null(strstr(texts[rank], "the folder must be the same on every host"));
    }
    expect_newest(1);
}

/* To the others by its rank, and to itself as its own. */
static void a_failure_is_of_one_rank(void **state)
{
    (void)state;
    job.has_own_folder = true;
    job.steps[0] = job.steps[1] = 2;
    save();
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_IO);
        assert_ptr_equal(strstr(texts[rank], rank == 0 ? "rank 1: /" : job.own), texts[rank]);
    }
    expect_newest(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_steps_are_told, begin, end),
        cmocka_unit_test_setup_teardown(another_hosts_folder_is_told, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_is_of_one_rank, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
