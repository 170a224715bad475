/* Saves in the background: what was copied is what is saved, failures are told once. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/devices.h>
#include <tutti/launch.h>

#include "comm/group/group_impl.h"
#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "runtime/checkpoint/layout_testing.h"
#include "runtime/checkpoint/step_folders.h"

enum { NO_NICE = -100 };

static _Atomic int failing = -1; /* the rank whose files cannot be flushed; -1: none */

static _Atomic int writer_nice; /* of the thread that has flushed last */
static _Atomic int holding;     /* a flush does not return */
static _Atomic bool is_slow;    /* one of rank 0's does not */

/* Takes the place of the C library's: the disk of a rank fails, in whatever thread. */
int fsync(int fd)
{
    char link[40], path[256] = "", name[24];
    const int rank = failing;
    writer_nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    while (holding) {
        sched_yield();
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(name, sizeof name, "rank-%05d-", rank);
    while (is_slow && readlink(link, path, sizeof path - 1) > 0 &&
           strstr(path, "rank-00000-") != NULL) {
        sched_yield();
    }
    if (rank >= 0 && readlink(link, path, sizeof path - 1) > 0 && strstr(path, name) != NULL) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static _Atomic size_t direct,
    cached; /* bytes that were written past the page cache, and through it */

/* Takes the place of the C library's. */
ssize_t write(int fd, const void *data, size_t bytes)
{
    const bool is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    const ssize_t n = syscall(SYS_write, fd, data, bytes);
    *(is_direct ? &direct : &cached) += n > 0 ? (size_t)n : 0;
    return n;
}

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static bool has_half(const char *folder, int step)
{
    char path[128];
    snprintf(path, sizeof path, "%s/.half-%012d", folder, step);
    return access(path, F_OK) == 0;
}

static void forget(const tt_laid_t *laid)
{
    for (size_t i = 0; i < laid->count; i++) {
        assert_int_equal(tutti_tensor_fill(laid->slices[i].tensor, 0), TUTTI_OK);
    }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Three saves, each with other values, which change as soon as the call has returned; steps of the
 * training's group go on meanwhile. */
static tutti_status_t save_thrice(tutti_saver_t *saver, tt_laid_t *laid, tutti_group_t *world)
{
    for (int64_t step = 1; step <= 3; step++) {
        TT_TRY(tt_lay_all(laid, tt_layout_set));
        TT_TRY(tutti_saver_save(saver, step));
        forget(laid);
        TT_TRY(tutti_barrier(world, NULL));
    }
    return tutti_saver_wait(saver);
}

static tutti_status_t save_and_load(const tutti_spawned_t *self)
{
    static const tt_layout_t layouts[] = {TT_LAYOUT_rows, TT_LAYOUT_replicated,
                                          TT_LAYOUT_intervals};
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && status >= 0; i++) {
        tt_laid_t laid;
        tutti_saver_t *saver;
        int64_t step = 0;
        tt_lay(&laid, layouts[i], self->rank, self->size);
        const tutti_checkpoint_t checkpoint = {.folder = self->argument.data,
                                               .group = world,
                                               .slices = laid.slices,
                                               .slice_count = laid.count};
        status = tutti_saver_create(&checkpoint, &saver);
        if (status >= 0) {
            status = save_thrice(saver, &laid, world);
            status = status < 0 ? status : tutti_checkpoint_load(&checkpoint, &step);
            status = status < 0 ? status : tt_lay_all(&laid, tt_layout_expect);
            tutti_saver_release(saver);
        }
        if (status >= 0 && step != 3) {
            status = TT_FAIL(TUTTI_ERR_STATE, "step %d", (int)step);
        }
        tt_lay_end(&laid);
    }
    tutti_group_release(world);
    return status;
}

static void what_was_copied_is_saved(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        char folder[TT_PLACE_BYTES];
        tt_place_make(folder);
        assert_int_equal(
            tutti_spawn(save_and_load, ranks,
                        &(tutti_spawn_options_t){.argument = tutti_text(folder), .threads = true}),
            TUTTI_OK);
        tt_place_remove(folder);
    }
}

/* All get the failure of rank 1, from the next call, and what was saved before stays. */
static tutti_status_t fail_once(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_saver_t *saver;
    tt_laid_t laid;
    int64_t step = 0;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, TT_LAYOUT_rows, self->rank, self->size);
    const tutti_checkpoint_t checkpoint = {.folder = self->argument.data,
                                           .group = world,
                                           .slices = laid.slices,
                                           .slice_count = laid.count};
    TT_TRY(tutti_saver_create(&checkpoint, &saver));
    TT_TRY(tutti_saver_save(saver, 1));
    TT_TRY(tutti_saver_wait(saver));
    TT_TRY(tutti_barrier(world, NULL));
    failing = 1;
    TT_TRY(tutti_saver_save(saver, 2));
    const tutti_status_t status =
        self->rank == 0 ? tutti_saver_wait(saver) : tutti_saver_save(saver, 3);
    failing = -1;
    if (status != TUTTI_ERR_IO || strstr(tutti_last_error(), "rank-00001-0") == NULL ||
        !ends_with(tutti_last_error(), strerror(EIO)) || has_half(checkpoint.folder, 2) ||
        (strncmp(tutti_last_error(), "rank 1: ", 8) == 0) != (self->rank != 1)) {
        return TT_FAIL(TUTTI_ERR_STATE, "rank %d got %s", self->rank, tutti_last_error());
    }
    TT_TRY(tutti_checkpoint_newest(checkpoint.folder, &step));
    TT_TRY(tutti_barrier(world, NULL));
    if (step != 1) {
        return TT_FAIL(TUTTI_ERR_STATE, "step %d", (int)step);
    }
    TT_TRY(tutti_saver_save(saver, 4));
    TT_TRY(tutti_saver_wait(saver));
    TT_TRY(tutti_checkpoint_newest(checkpoint.folder, &step));
    tutti_saver_release(saver);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return step == 4 ? TUTTI_OK : TT_FAIL(TUTTI_ERR_STATE, "step %d", (int)step);
}

static void a_rank_that_cannot_write_is_named_by_all(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    assert_int_equal(
        tutti_spawn(fail_once, 3,
                    &(tutti_spawn_options_t){.argument = tutti_text(folder), .threads = true}),
        TUTTI_OK);
    tt_place_remove(folder);
}

/* The saver's group of this rank. */
static void be_impatient(tutti_group_t *world)
{
    tutti_group_t *each;
    LIST_FOREACH(each, &world->family->groups, of_family)
    {
        each->timeout_ms = each == world ? each->timeout_ms : 1;
    }
}

/* Rank 1 gives up while rank 0 still writes. */
static tutti_status_t save_slowly(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_saver_t *saver;
    tt_laid_t laid;
    tutti_save_progress_t progress;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, TT_LAYOUT_rows, self->rank, self->size);
    const tutti_checkpoint_t checkpoint = {.folder = self->argument.data,
                                           .group = world,
                                           .slices = laid.slices,
                                           .slice_count = laid.count};
    TT_TRY(tutti_saver_create(&checkpoint, &saver));
    is_slow = true;
    if (self->rank == 1) {
        be_impatient(world);
    }
    TT_TRY(tutti_saver_save(saver, 1));
    while (self->rank == 1 && !tutti_saver_is_done(saver)) {
        sched_yield();
    }
    is_slow = is_slow && self->rank != 1;
    TT_TRY(tutti_saver_wait(saver));
    tutti_saver_progress(saver, &progress);
    tutti_saver_release(saver);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return progress.state == TUTTI_SAVE_PUBLISHED ? TUTTI_OK
                                                  : TT_FAIL(TUTTI_ERR_STATE, "it has failed");
}

static void what_is_published_has_failed_nowhere(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    assert_int_equal(
        tutti_spawn(save_slowly, 2,
                    &(tutti_spawn_options_t){.argument = tutti_text(folder), .threads = true}),
        TUTTI_OK);
    tt_place_remove(folder);
}

/* ---- alone ----------------------------------------------------------------------------------- */

typedef struct {
    char place[TT_PLACE_BYTES], folder[80];
    tutti_tensor_t *x;
    tutti_slice_t slice;
    tutti_checkpoint_t checkpoint;
    tutti_saver_t *saver;
} alone_t;

static void begin(alone_t *a)
{
    tt_place_make(a->place);
    snprintf(a->folder, sizeof a->folder, "%s", a->place);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(5), &a->x), TUTTI_OK);
    a->slice = tutti_slice_whole("x", a->x);
    a->checkpoint =
        (tutti_checkpoint_t){.folder = a->folder, .slices = &a->slice, .slice_count = 1};
    assert_int_equal(tutti_saver_create(&a->checkpoint, &a->saver), TUTTI_OK);
}

static void end(alone_t *a)
{
    tutti_saver_release(a->saver);
    tutti_tensor_release(a->x);
    tt_place_remove(a->place);
}

static void a_failure_is_told_by_the_next_call_and_then_over(void **state)
{
    (void)state;
    static alone_t a;
    int64_t step = 0;
    begin(&a);
    failing = 0;
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_OK);
    assert_int_equal(tutti_saver_save(a.saver, 2), TUTTI_ERR_IO);
    tt_expect_error("rank-00000-0.safetensors");
    assert_false(has_half(a.folder, 1));
    failing = -1;
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_newest(a.folder, &step), TUTTI_END); /* 2 was not begun */
    assert_int_equal(tutti_saver_save(a.saver, 3), TUTTI_OK);
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_newest(a.folder, &step), TUTTI_OK);
    assert_int_equal(step, 3);
    end(&a);
}

static void what_can_be_seen_at_once_is_told_at_once(void **state)
{
    (void)state;
    static alone_t a;
    begin(&a);
    assert_int_equal(tutti_saver_save(a.saver, -1), TUTTI_ERR_ARG);
    snprintf(a.folder, sizeof a.folder, "/proc/none");
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_ERR_IO);
    tt_expect_error("/proc/none");
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    end(&a);
}

static void count_lines(tt_log_level_t level, const char *line, void *user)
{
    *(int *)user += level == TT_LOG_ERROR && strstr(line, "rank-00000-0") != NULL;
}

static void a_failure_that_nobody_asked_for_is_logged(void **state)
{
    (void)state;
    static alone_t a;
    int lines = 0;
    begin(&a);
    failing = 0;
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_OK);
    tt_log_set_sink(count_lines, &lines);
    end(&a);
    tt_log_set_sink(NULL, NULL);
    failing = -1;
    assert_int_equal(lines, 1);
}

static bool is_there(const char *folder, const char *name)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* As of a process that was stopped while it wrote: meanwhile others have begun the same step again,
 * and written some of it. */
static void a_save_that_wakes_too_late_touches_nothing(void **state)
{
    (void)state;
    static alone_t a;
    char command[192];
    for (int half = 0; half < 2; half++) { /* or have published it */
        begin(&a);
        writer_nice = NO_NICE;
        holding = 1;
        assert_int_equal(tutti_saver_save(a.saver, 7), TUTTI_OK);
        while (writer_nice == NO_NICE) {
            sched_yield();
        }
        assert_int_equal(tt_steps_begin(a.folder, 7), TUTTI_OK);
        snprintf(command, sizeof command, "touch %s/.half-000000000007/rank-00000-0.digests",
                 a.folder);
        assert_int_equal(system(command), 0);
        if (half == 1) {
            snprintf(command, sizeof command, "cd %s && mv .half-000000000007 step-000000000007",
                     a.folder);
            assert_int_equal(system(command), 0);
        }
        holding = 0;
        assert_true(tutti_saver_wait(a.saver) < 0);
        snprintf(command, sizeof command,
                 "cd %s/%s && test \"$(ls -A)\" = rank-00000-0.digests && test ! -s $(ls)",
                 a.folder, half == 0 ? ".half-000000000007" : "step-000000000007");
        assert_int_equal(system(command), 0);
        assert_int_equal(is_there(a.folder, "step-000000000007"), half);
        end(&a);
    }
}

/* ---- progress -------------------------------------------------------------------------------- */

static tutti_save_progress_t progress_of(const alone_t *a)
{
    tutti_save_progress_t progress;
    tutti_saver_progress(a->saver, &progress);
    return progress;
}

static void how_far_it_is_can_be_asked_at_any_time(void **state)
{
    (void)state;
    static alone_t a;
    begin(&a);
    assert_int_equal(progress_of(&a).state, TUTTI_SAVE_NONE);
    assert_int_equal(progress_of(&a).step, -1);
    assert_true(progress_of(&a).seconds == 0);
    assert_true(tutti_saver_is_done(a.saver));
    assert_true(tutti_saver_is_done(NULL));
    writer_nice = NO_NICE;
    holding = 1;
    assert_int_equal(tutti_saver_save(a.saver, 4), TUTTI_OK);
    while (progress_of(&a).bytes < 20 ||
           writer_nice == NO_NICE) { /* it stands in the flush behind them */
        sched_yield();
    }
    assert_int_equal(progress_of(&a).state, TUTTI_SAVE_WRITING);
    assert_int_equal(progress_of(&a).step, 4);
    assert_int_equal(progress_of(&a).bytes, 20);
    assert_int_equal(progress_of(&a).all, 20);
    assert_false(tutti_saver_is_done(a.saver));
    holding = 0;
    assert_true(writer_nice > getpriority(PRIO_PROCESS, 0) || writer_nice == 19); /* stands back */
    while (!tutti_saver_is_done(a.saver)) {
        sched_yield();
    }
    assert_int_equal(progress_of(&a).state, TUTTI_SAVE_PUBLISHED);
    assert_true(progress_of(&a).held_seconds > 0);
    assert_true(progress_of(&a).seconds > progress_of(&a).held_seconds);
    assert_true(progress_of(&a).seconds == progress_of(&a).seconds); /* the clock stands */
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    failing = 0;
    assert_int_equal(tutti_saver_save(a.saver, 5), TUTTI_OK);
    while (!tutti_saver_is_done(a.saver)) {
        sched_yield();
    }
    failing = -1;
    assert_int_equal(progress_of(&a).state, TUTTI_SAVE_FAILED);
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_ERR_IO);
    assert_int_equal(progress_of(&a).state, TUTTI_SAVE_FAILED);
    assert_int_equal(progress_of(&a).step, 5);
    assert_int_equal(tutti_saver_save(a.saver, -1), TUTTI_ERR_ARG); /* was not begun */
    assert_int_equal(progress_of(&a).step, 5);
    end(&a);
}

static void find_line(tt_log_level_t level, const char *line, void *user)
{
    *(int *)user += level == TT_LOG_INFO && strstr(line, "checkpoint of step ") != NULL &&
                    strstr(line, ": 20 B in ") != NULL &&
                    (strstr(line, " of it in the step") != NULL) == (strstr(line, " 1: ") != NULL);
}

static void a_save_is_told_in_the_log(void **state)
{
    (void)state;
    static alone_t a;
    int lines = 0;
    setenv("TUTTI_LOG", "info", 1);
    begin(&a);
    tt_log_set_sink(find_line, &lines);
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_OK);
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    assert_int_equal(lines, 1);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 2), TUTTI_OK);
    assert_int_equal(lines, 2);
    tt_log_set_sink(NULL, NULL);
    unsetenv("TUTTI_LOG");
    end(&a);
}

static bool can_go_past_the_cache(const char *place)
{
    const int fd = open(place, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    const bool can = fd >= 0 && fcntl(fd, F_SETFL, O_DIRECT) == 0;
    close(fd);
    return can;
}

/* Steps go on beside it; who waits for a save is served faster by the cache. */
static void a_save_beside_steps_goes_past_the_page_cache(void **state)
{
    enum { BYTES = 3 << 20 };
    (void)state;
    static alone_t a;
    begin(&a);
    if (!can_go_past_the_cache(a.place)) {
        print_message("skipped: no O_DIRECT on the file system of %s\n", a.place);
        end(&a);
        return;
    }
    tutti_tensor_release(a.x);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(BYTES / 4), &a.x), TUTTI_OK);
    a.slice.tensor = a.x;
    direct = cached = 0;
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_OK);
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    assert_true(direct >= BYTES && cached < BYTES / 4);
    direct = 0;
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 2), TUTTI_OK);
    assert_true(direct == 0 && cached >= BYTES);
    end(&a);
}

/* ---- where it fails -------------------------------------------------------------------------- */

/* The copy is made of what the device's stream has by then. */
static void tensors_of_a_device_are_copied(void **state)
{
    (void)state;
    static alone_t a;
    tutti_device_t *strict;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    int64_t step;
    begin(&a);
    assert_int_equal(tutti_device_open("strict:0", NULL, &strict), TUTTI_OK);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = strict}, &ctx), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    a.slice.tensor = tutti_full(s, TUTTI_F32, TUTTI_SHAPE(5), 2.5);
    assert_int_equal(tutti_saver_save(a.saver, 1), TUTTI_OK);
    assert_int_equal(tutti_tensor_fill(a.slice.tensor, 7), TUTTI_OK);
    assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    a.slice.tensor = a.x;
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_OK);
    assert_true(tutti_tensor_at(a.x, 4) == 2.5);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_context_release(ctx);
    tutti_device_release(strict);
    end(&a);
}

/* The nth allocation of the caller's part fails, for every n. */
static void memory_that_runs_out_leaves_the_saver_usable(void **state)
{
    (void)state;
    static alone_t a;
    bool has_failed = true;
    begin(&a);
    const tutti_slice_t both[] = {a.slice, tutti_slice_whole("y", a.x)};
    tutti_saver_release(a.saver);
    a.checkpoint.slices = both;
    a.checkpoint.slice_count = 2;
    assert_int_equal(tutti_saver_create(&a.checkpoint, &a.saver), TUTTI_OK);
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        tutti_status_t status = tutti_saver_save(a.saver, 1);
        status = status < 0 ? status : tutti_saver_wait(a.saver);
        has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tutti_saver_wait(a.saver), TUTTI_OK);
    }
    end(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_copied_is_saved),
        cmocka_unit_test(a_rank_that_cannot_write_is_named_by_all),
        cmocka_unit_test(what_is_published_has_failed_nowhere),
        cmocka_unit_test(a_failure_is_told_by_the_next_call_and_then_over),
        cmocka_unit_test(what_can_be_seen_at_once_is_told_at_once),
        cmocka_unit_test(a_failure_that_nobody_asked_for_is_logged),
        cmocka_unit_test(a_save_that_wakes_too_late_touches_nothing),
        cmocka_unit_test(how_far_it_is_can_be_asked_at_any_time),
        cmocka_unit_test(a_save_is_told_in_the_log),
        cmocka_unit_test(a_save_beside_steps_goes_past_the_page_cache),
        cmocka_unit_test(tensors_of_a_device_are_copied),
        cmocka_unit_test(memory_that_runs_out_leaves_the_saver_usable),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
