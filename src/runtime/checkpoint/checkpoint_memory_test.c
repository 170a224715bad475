/* Memory that runs out once, in any allocation that three ranks make in a save or a load: no rank
 * waits for one that has failed, and what was saved before can be loaded. */
#include <pthread.h>
#include <stdlib.h>

#include <tutti/launch.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "runtime/checkpoint/layout_testing.h"

enum { RANKS = 3, TENSORS = 3, TENSOR_FIRST = 1 };

typedef enum { SAVE, LOAD, LOAD_FROM } call_t;

typedef struct {
    tutti_status_t status;
    int64_t step;
    bool is_right; /* what is in memory */
    char text[512];
} met_t;

static char folder[TT_PLACE_BYTES];
static pthread_barrier_t together;
static call_t call;
static size_t failing; /* the number of the allocation; 0: none */
static bool has_failed;
static met_t met[RANKS];

/* ---- a rank ---------------------------------------------------------------------------------- */

static tutti_status_t run_call(const tutti_checkpoint_t *checkpoint, int64_t *step)
{
    return call == SAVE   ? tutti_checkpoint_save(checkpoint, 2)
           : call == LOAD ? tutti_checkpoint_load(checkpoint, step)
                          : tutti_checkpoint_load_from(checkpoint, folder, NULL);
}

/* Between barriers, so that it is the call that runs out of memory. */
static void run_short(int rank, const tutti_checkpoint_t *checkpoint, met_t *m)
{
    pthread_barrier_wait(&together);
    if (rank == 0) {
        tt_alloc_fail_at(failing);
    }
    pthread_barrier_wait(&together);
    m->status = run_call(checkpoint, &m->step);
    snprintf(m->text, sizeof m->text, "%s", m->status < 0 ? tutti_last_error() : "");
    pthread_barrier_wait(&together);
    if (rank == 0) {
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(&together);
}

static tutti_status_t run_rank(const tutti_spawned_t *self)
{
    met_t *m = &met[self->rank];
    tt_laid_t laid = {0};
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    for (int i = TENSOR_FIRST; i < TENSOR_FIRST + TENSORS; i++) {
        tt_lay_tensor(&laid, i, TT_LAYOUT_rows, self->rank, self->size);
    }
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .group = world, .slices = laid.slices, .slice_count = laid.count};
    *m = (met_t){.step = -1};
    const tutti_status_t set = call == SAVE ? tt_lay_all(&laid, tt_layout_set) : TUTTI_OK;
    run_short(self->rank, &checkpoint, m);
    m->is_right = tt_lay_all(&laid, tt_layout_expect) >= 0;
    tt_lay_end(&laid);
    tutti_group_release(world);
    return set;
}

static void run(call_t which, size_t nth)
{
    call = which;
    failing = nth;
    assert_int_equal(tutti_spawn(run_rank, RANKS, &(tutti_spawn_options_t){.threads = true}),
                     TUTTI_OK);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void expect_loaded(int64_t step)
{
    run(LOAD, 0);
    for (int i = 0; i < RANKS; i++) {
        assert_string_equal(met[i].text, "");
        assert_int_equal(met[i].step, step);
        assert_true(met[i].is_right);
    }
}

/* All fail, one of them for want of memory; or none did, for it could do without. */
static void expect_no_wait(size_t nth)
{
    int bad = 0, short_of_memory = 0, waited = 0;
    for (int i = 0; i < RANKS; i++) {
        bad += met[i].status < 0;
        short_of_memory += met[i].status == TUTTI_ERR_NOMEM;
        waited += met[i].status == TUTTI_ERR_TIMEOUT || met[i].status == TUTTI_ERR_MISMATCH;
    }
    if (waited > 0 || (bad > 0 && (bad < RANKS || short_of_memory == 0))) {
        fail_msg("call %d, allocation %zu: %d \"%s\", %d \"%s\", %d \"%s\"", (int)call, nth,
                 (int)met[0].status, met[0].text, (int)met[1].status, met[1].text,
                 (int)met[2].status, met[2].text);
    }
}

static void walk(call_t which)
{
    for (size_t n = 1;; n++) {
        if (!tt_test_takes(n)) {
            continue;
        }
        run(which, n);
        if (!has_failed) {
            return;
        }
        expect_no_wait(n);
        expect_loaded(which == SAVE && met[0].status >= 0 ? 2 : 1);
    }
}

static void nobody_waits_in_a_save(void **state)
{
    (void)state;
    walk(SAVE);
}

static void nobody_waits_in_a_load(void **state)
{
    (void)state;
    walk(LOAD);
}

static void nobody_waits_in_a_load_of_a_path(void **state)
{
    (void)state;
    walk(LOAD_FROM);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void drop(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

static int begin(void **state)
{
    (void)state;
    tt_laid_t laid;
    tt_lay(&laid, TT_LAYOUT_replicated, 0, 1);
    tt_place_make(folder);
    assert_int_equal(pthread_barrier_init(&together, NULL, RANKS), 0);
    assert_int_equal(tt_lay_all(&laid, tt_layout_set), TUTTI_OK);
    assert_int_equal(
        tutti_checkpoint_save(&(tutti_checkpoint_t){.folder = folder,
                                                    .slices = laid.slices + TENSOR_FIRST,
                                                    .slice_count = TENSORS},
                              1),
        TUTTI_OK);
    tt_lay_end(&laid);
    tt_log_set_sink(drop, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_log_set_sink(NULL, NULL);
    pthread_barrier_destroy(&together);
    tt_place_remove(folder);
    return 0;
}

int main(void)
{
    (void)tt_test_takes(0);
    unsetenv("TUTTI_TEST_SHARE");           /* which the library does not know */
    setenv("TUTTI_TIMEOUT_MS", "20000", 1); /* who waits is told before the test ends */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_in_a_save, begin, end),
        cmocka_unit_test_setup_teardown(nobody_waits_in_a_load, begin, end),
        cmocka_unit_test_setup_teardown(nobody_waits_in_a_load_of_a_path, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
