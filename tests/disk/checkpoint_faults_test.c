/* A disk that fails in each system call of a save or a load of two ranks, on either: all ranks get
 * the failure with its text, the folder is left clean, and what was saved before can be loaded. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "disk_faults.h"
#include "runtime/checkpoint/layout_testing.h"

enum { RANKS = 2, TENSORS = 3, TENSOR_FIRST = 1 };

typedef struct {
    char folder[TT_PLACE_BYTES];
    disk_plan_t plan;
    int victim; /* whose disk it is */
    int keep;
    int64_t step;
    bool is_loading;
} job_t;

/* What a rank met; of threads. */
typedef struct {
    tutti_status_t status;
    int64_t step;
    const char *failed; /* the call; NULL: none */
    bool is_right;      /* what was loaded */
    char text[512];
} met_t;

static job_t job;
static met_t met[RANKS];
static _Atomic int lines;

/* ---- a rank ---------------------------------------------------------------------------------- */

static tutti_status_t run_rank(const tutti_spawned_t *self)
{
    met_t *m = &met[self->rank];
    tt_laid_t laid = {0};
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    for (int i = TENSOR_FIRST; i < TENSOR_FIRST + TENSORS; i++) {
        tt_lay_tensor(&laid, i, TT_LAYOUT_rows, self->rank, self->size);
    }
    const tutti_checkpoint_t checkpoint = {.folder = job.folder,
                                           .group = world,
                                           .slices = laid.slices,
                                           .slice_count = laid.count,
                                           .keep = job.keep,
                                           .whole = job.step % 2 == 0};
    TT_TRY(job.is_loading ? TUTTI_OK : tt_lay_all(&laid, tt_layout_set));
    *m = (met_t){.step = job.step};
    if (job.victim == self->rank) {
        disk_fail(&job.plan);
    }
    m->status = job.is_loading ? tutti_checkpoint_load(&checkpoint, &m->step)
                               : tutti_checkpoint_save(&checkpoint, job.step);
    disk_heal();
    snprintf(m->text, sizeof m->text, "%s", m->status < 0 ? tutti_last_error() : "");
    m->failed = job.victim == self->rank ? disk_failed() : NULL;
    m->is_right = tt_lay_all(&laid, tt_layout_expect) >= 0;
    tt_lay_end(&laid);
    tutti_group_release(world);
    return TUTTI_OK;
}

static void run(bool is_loading, int64_t step)
{
    job.is_loading = is_loading;
    job.step = step;
    assert_int_equal(tutti_spawn(run_rank, RANKS, &(tutti_spawn_options_t){.threads = true}),
                     TUTTI_OK);
}

static void run_healthy(bool is_loading, int64_t step)
{
    const job_t before = job;
    job.plan.at = 0;
    run(is_loading, step);
    job = before;
    assert_string_equal(met[0].text, "");
    assert_int_equal(met[0].status, TUTTI_OK);
    assert_true(!is_loading || (met[0].is_right && met[1].is_right));
}

/* ---- the folder ------------------------------------------------------------------------------ */

static bool has_step(const char *prefix, int64_t step)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s-%012lld", job.folder, prefix, (long long)step);
    return access(path, F_OK) == 0;
}

static void count(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)user;
    lines += strstr(line, "checkpoint") != NULL;
}

static int begin(void **state)
{
    (void)state;
    tt_place_make(job.folder);
    tt_log_set_sink(count, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_log_set_sink(NULL, NULL);
    tt_place_remove(job.folder);
    return 0;
}

static void come_back(void)
{
    char away[128];
    snprintf(away, sizeof away, "%s.away", job.folder);
    if (access(away, F_OK) == 0) {
        char command[320];
        snprintf(command, sizeof command, "rm -rf %s && mv %s %s", job.folder, away, job.folder);
        assert_int_equal(system(command), 0);
    }
}

/* ---- what all ranks must have met ------------------------------------------------------------ */

static void fail_at(const char *what)
{
    fail_msg("%s: call %lld of rank %d (%s), fault %d: %d \"%s\", %d \"%s\", step %lld", what,
             (long long)job.plan.at, job.victim, met[job.victim].failed, (int)job.plan.fault,
             (int)met[0].status, met[0].text, (int)met[1].status, met[1].text,
             (long long)met[0].step);
}

/* Every rank has the victim's text, which says the file and why. */
static void expect_told(void)
{
    char prefix[16];
    snprintf(prefix, sizeof prefix, "rank %d: ", job.victim);
    for (int i = 0; i < RANKS; i++) {
        const bool is_named = job.plan.fault == DISK_VANISHED ||
                              (strstr(met[i].text, strerror(job.plan.code)) != NULL &&
                               (strncmp(met[i].text, prefix, 8) == 0) == (i != job.victim));
        if (met[i].status != TUTTI_ERR_IO || !is_named || strstr(met[i].text, job.folder) == NULL) {
            fail_at("text");
        }
    }
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* What was written is on the disk by then. */
static bool is_harmless(const char *failed)
{
    return failed == NULL || strcmp(failed, "close") == 0;
}

/* A checkpoint is there, a second one fails. */
static bool save_with_fault(void)
{
    lines = 0;
    run(false, 2);
    const char *failed = met[job.victim].failed;
    come_back();
    if (met[0].status != TUTTI_OK || met[1].status != TUTTI_OK) {
        expect_told();
    } else if (!is_harmless(failed) && job.plan.fault != DISK_VANISHED && lines == 0) {
        fail_at("no failure, and no line in the log");
    }
    if (job.plan.fault == DISK_ONCE && met[0].status < 0 && has_step(".half", 2)) {
        fail_at("a half is left");
    }
    const bool is_new = met[0].status >= 0 && job.plan.fault != DISK_VANISHED;
    if (!has_step("step", is_new || has_step("step", 2) ? 2 : 1)) {
        fail_at("a checkpoint is lost");
    }
    /* Only that its name is on the disk may be in doubt. */
    if (met[0].status < 0 && has_step("step", 2) && strcmp(failed, "open") != 0 &&
        strcmp(failed, "fsync") != 0) {
        fail_at("published, and no success");
    }
    run_healthy(true, -1);
    assert_true(met[0].step == 2 || (!is_new && met[0].step == 1));
    run_healthy(false, 3);
    assert_false(has_step(".half", 2) || has_step(".half", 1));
    return failed != NULL;
}

/* It replaces one of the same step. */
static bool replace_with_fault(void)
{
    run(false, 1);
    const char *failed = met[job.victim].failed;
    come_back();
    if (met[0].status < 0) {
        expect_told();
    }
    run_healthy(true, -1);
    assert_int_equal(met[0].step, 1);
    run_healthy(false, 1);
    assert_false(has_step(".half", 1) || has_step(".old", 1));
    return failed != NULL;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Of two checkpoints. */
static bool load_with_fault(void)
{
    run_healthy(false, 2);
    lines = 0;
    run(true, -1);
    const char *failed = met[job.victim].failed;
    come_back();
    if (met[0].status != met[1].status || met[0].step != met[1].step) {
        fail_at("ranks differ");
    }
    if (met[0].status < 0) {
        expect_told();
    } else if (met[0].status == TUTTI_OK && !(met[0].is_right && met[1].is_right)) {
        fail_at("a wrong load");
    } else if (met[0].step != 2 && lines < RANKS && job.plan.fault != DISK_VANISHED) {
        fail_at("an older one, and no lines in the log");
    }
    run_healthy(true, -1);
    assert_int_equal(met[0].step, 2);
    return failed != NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void walk(bool (*with_fault)(void), disk_fault_t fault, int code)
{
    job.keep = with_fault == save_with_fault ? 1 : 2;
    for (job.victim = 0; job.victim < RANKS; job.victim++) {
        bool has_failed = true;
        for (int64_t n = 1; has_failed; n++) {
            job.plan = (disk_plan_t){.folder = job.folder, .fault = fault, .code = code, .at = n};
            if (n > 1 && !tt_test_takes((uint64_t)n * 2 + (uint64_t)job.victim)) {
                continue;
            }
            assert_int_equal(begin(NULL), 0);
            run_healthy(false, 1);
            has_failed = with_fault();
            assert_int_equal(end(NULL), 0);
        }
    }
}

static void a_full_disk_costs_no_checkpoint(void **state)
{
    (void)state;
    walk(save_with_fault, DISK_ONCE, ENOSPC);
}

static void a_dead_disk_costs_no_checkpoint(void **state)
{
    (void)state;
    walk(save_with_fault, DISK_LASTING, EIO);
}

static void a_folder_that_vanishes_is_told(void **state)
{
    (void)state;
    walk(save_with_fault, DISK_VANISHED, 0);
}

static void one_of_the_same_step_is_replaced_or_stays(void **state)
{
    (void)state;
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        disk_set_plain(is_plain);
        walk(replace_with_fault, DISK_ONCE, EDQUOT);
        walk(replace_with_fault, DISK_LASTING, EIO);
    }
    disk_set_plain(false);
}

static void a_load_from_a_disk_that_fails_once_is_an_older_one(void **state)
{
    (void)state;
    walk(load_with_fault, DISK_ONCE, EIO);
}

static void a_load_from_a_dead_disk_is_told(void **state)
{
    (void)state;
    walk(load_with_fault, DISK_LASTING, EIO);
}

static void a_load_from_a_folder_that_vanishes_is_not_wrong(void **state)
{
    (void)state;
    walk(load_with_fault, DISK_VANISHED, 0);
}

static void what_is_read_only_is_loaded(void **state)
{
    assert_int_equal(begin(state), 0);
    run_healthy(false, 1);
    job.plan = (disk_plan_t){.folder = job.folder, .fault = DISK_READ_ONLY, .code = EROFS, .at = 1};
    for (job.victim = 0; job.victim < RANKS; job.victim++) {
        run(true, -1);
        assert_true(met[0].status == TUTTI_OK && met[0].step == 1 && met[0].is_right);
        run(false, 2);
        expect_told();
        assert_false(has_step("step", 2));
    }
    run_healthy(false, 2);
    assert_false(has_step(".half", 2));
    assert_int_equal(end(state), 0);
}

static void a_disk_without_locks_is_told_once(void **state)
{
    assert_int_equal(begin(state), 0);
    disk_set_plain(true);
    lines = 0;
    run_healthy(false, 1);
    run_healthy(true, -1);
    disk_set_plain(false);
    assert_int_equal(lines, 1);
    assert_int_equal(end(state), 0);
}

int main(void)
{
    (void)tt_test_takes(0);
    unsetenv("TUTTI_TEST_SHARE"); /* which the library does not know */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_costs_no_checkpoint),
        cmocka_unit_test(a_dead_disk_costs_no_checkpoint),
        cmocka_unit_test(a_folder_that_vanishes_is_told),
        cmocka_unit_test(one_of_the_same_step_is_replaced_or_stays),
        cmocka_unit_test(a_load_from_a_disk_that_fails_once_is_an_older_one),
        cmocka_unit_test(a_load_from_a_dead_disk_is_told),
        cmocka_unit_test(a_load_from_a_folder_that_vanishes_is_not_wrong),
        cmocka_unit_test(what_is_read_only_is_loaded),
        cmocka_unit_test(a_disk_without_locks_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
