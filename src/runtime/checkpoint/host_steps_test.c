/* A step that is saved again on a disk for each host, and hosts that end at different moments: what
 * was there stays until all have renamed. Two ranks are threads, each with a folder of its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tutti/checkpoint.h>
#include <tutti/devices.h>
#include <tutti/launch.h>

#include "comm/store/store_ops.h"
#include "core/base/place_testing.h"

enum { RANKS = 2, ROWS = 3, TEXT_BYTES = 512 };

static char place[TT_PLACE_BYTES];

/* What the ranks do, and what they meet. */
static struct {
    bool is_save, has_saver;
    int64_t step;
    float value;                 /* of all elements, to be saved */
    bool is_not_per_host[RANKS]; /* the option of a rank */
    int copies[RANKS], keep[RANKS];
    int64_t named[RANKS]; /* a step that a rank keeps; 0: none */
    tutti_status_t met[RANKS];
    char texts[RANKS][TEXT_BYTES];
    int64_t found[RANKS]; /* the step that was loaded */
    float loaded[RANKS];  /* and its value */
} job;

/* Takes the place of the C library's: of renames to a path with this text the first fails. */
static const char *_Atomic failing;

int rename(const char *from, const char *to)
{
    const char *text = failing;
    if (text != NULL && strstr(from, "/.half-") != NULL && strstr(to, text) != NULL) {
        failing = NULL;
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ---- a store that refuses -------------------------------------------------------------------- */

/* The end of a key that rank 0 cannot set, once; NULL: all can be. */
static const char *_Atomic refused;

static bool is_refused(const tt_store_request_t *request)
{
    const char *end = refused;
    const tutti_bytes_t key = request->keys[0];
    const size_t bytes = end == NULL ? 0 : strlen(end);
    return request->op == TT_STORE_SET && end != NULL && key.bytes >= bytes &&
           memcmp((const char *)key.data + key.bytes - bytes, end, bytes) == 0;
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    const tutti_store_t *base = *(tutti_store_t **)state;
    if (request->key_count > 0 && is_refused(request)) {
        refused = NULL;
        return TT_FAIL(TUTTI_ERR_IO, "the store is full");
    }
    return base->ops->perform(base->state, request, deadline, reply);
}

static void abort_base(void *state)
{
    const tutti_store_t *base = *(tutti_store_t **)state;
    base->ops->abort(base->state);
}

static void close_base(void *state)
{
    tutti_store_release(*(tutti_store_t **)state);
}

static tutti_store_t *make_store(tutti_store_t *base)
{
    static const tt_store_ops_t ops = {.name = "refusing",
                                       .about = "of a test",
                                       .state_bytes = sizeof base,
                                       .perform = perform,
                                       .abort = abort_base,
                                       .close = close_base};
    tutti_store_t *store;
    assert_int_equal(tt_store_create(&ops, &store), TUTTI_OK);
    *(tutti_store_t **)store->state = tutti_store_retain(base);
    return store;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static tutti_status_t save_behind(const tutti_checkpoint_t *checkpoint)
{
    tutti_saver_t *saver;
    TT_TRY(tutti_saver_create(checkpoint, &saver));
    tutti_status_t status = tutti_saver_save(saver, job.step);
    status = status < 0 ? status : tutti_saver_wait(saver);
    tutti_saver_release(saver);
    return status;
}

static void meet(const tutti_checkpoint_t *checkpoint, int rank)
{
    tutti_tensor_t *x = checkpoint->slices[0].tensor;
    job.found[rank] = -1;
    if (job.is_save) {
        assert_int_equal(tutti_tensor_fill(x, job.value), TUTTI_OK);
        job.met[rank] =
            job.has_saver ? save_behind(checkpoint) : tutti_checkpoint_save(checkpoint, job.step);
    } else {
        job.met[rank] = tutti_checkpoint_load(checkpoint, &job.found[rank]);
    }
    snprintf(job.texts[rank], TEXT_BYTES, "%s", job.met[rank] < 0 ? tutti_last_error() : "");
    job.loaded[rank] = (float)tutti_tensor_at(x, 0);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(tutti_tensor_at(x, i) == job.loaded[rank]);
    }
}

static tutti_status_t run_rank(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_tensor_t *x;
    char folder[TT_PLACE_BYTES + 8];
    const int rank = self->rank;
    tutti_store_t *store = make_store(self->store);
    TT_TRY(tutti_init(&(tutti_init_options_t){.store = rank == 0 ? store : self->store,
                                              .rank = rank,
                                              .world_size = self->size},
                      &world));
    snprintf(folder, sizeof folder, "%s/%c", place, 'a' + rank);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS, 2), &x), TUTTI_OK);
    const tutti_slice_t slice =
        tutti_slice_box("x", x, TUTTI_SHAPE(RANKS * ROWS, 2), (int64_t[]){rank * ROWS, 0});
    const tutti_checkpoint_t checkpoint = {.folder = folder,
                                           .group = world,
                                           .slices = &slice,
                                           .slice_count = 1,
                                           .keep = job.keep[rank],
                                           .keep_steps = &job.named[rank],
                                           .keep_step_count = job.named[rank] > 0,
                                           .per_host = !job.is_not_per_host[rank],
                                           .host_copies = job.copies[rank]};
    meet(&checkpoint, rank);
    tutti_tensor_release(x);
    tutti_group_release(world);
    tutti_store_release(store);
    return TUTTI_OK;
}

static void run(bool is_save)
{
    job.is_save = is_save;
    if (tutti_spawn(run_rank, RANKS, &(tutti_spawn_options_t){.threads = true}) < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

static void save(int64_t step, float value)
{
    job.step = step;
    job.value = value;
    run(true);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(job.texts[rank], "");
    }
}

static void expect_failure(tutti_status_t status, const char *text)
{
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job.met[rank], status);
        assert_non_null(strstr(job.texts[rank], text));
    }
}

static void expect_load(int64_t step, float value)
{
    run(false);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(job.texts[rank], "");
        assert_int_equal(job.found[rank], step);
        assert_true(job.loaded[rank] == value);
    }
}

static void shell(const char *commands)
{
    char command[512];
    snprintf(command, sizeof command, "cd %s && set -e; %s", place, commands);
    assert_int_equal(system(command), 0);
}

/* Nothing but steps under their names, on either host. */
static void expect_steps(const char *names)
{
    char command[256];
    snprintf(command, sizeof command,
             "for h in a b; do test \"$(ls -A $h | grep -v lock | xargs)\" = '%s'; done", names);
    shell(command);
}

static int begin(void **state)
{
    (void)state;
    memset(&job, 0, sizeof job);
    tt_place_make(place);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_place_remove(place);
    return 0;
}

/* ---- the same step again --------------------------------------------------------------------- */

static void a_step_that_is_saved_again_is_replaced(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        job.has_saver = i == 1;
        save(1, 10);
        save(1, 11);
        expect_steps("step-000000000001");
        expect_load(1, 11);
    }
}

/* Whichever it is, and whoever writes. Both hosts look at what is there when they load. */
static void a_host_that_cannot_rename_costs_no_step(void **state)
{
    static const char *const hosts[] = {"/a/step-", "/b/step-"};
    for (int i = 0; i < 4; i++) {
        begin(state);
        job.has_saver = i % 2 == 1;
        save(1, 10);
        failing = hosts[i / 2];
        job.value = 11;
        run(true);
        expect_failure(TUTTI_ERR_IO, "cannot rename it to ");
        assert_null(failing);
        expect_load(1, 10);
        expect_steps("step-000000000001");
        save(1, 12);
        expect_load(1, 12);
        end(state);
    }
}

/* As a crash leaves it: `new` has value 11 on both hosts, `old` 10. */
static void keep_both(void)
{
    save(1, 10);
    shell("cp -r a/step-000000000001 a-old; cp -r b/step-000000000001 b-old");
    save(1, 11);
    shell(
        "cp -r a/step-000000000001 a-new; cp -r b/step-000000000001 b-new; rm -r a/step* b/step*");
}

static void what_all_have_renamed_is_the_new_one(void **state)
{
    (void)state;
    keep_both();
    shell("for h in a b; do cp -r $h-new $h/step-000000000001; "
          "cp -r $h-old $h/.old-000000000001; done");
    expect_load(1, 11);
    expect_steps("step-000000000001");
}

/* Of a host that renames, beside one that has not begun. */
static void what_some_have_renamed_is_the_old_one(void **state)
{
    static const char *const moments[] = {
        "cp -r a-new a/.half-000000000001; cp -r a-old a/step-000000000001",
        "cp -r a-new a/.half-000000000001; cp -r a-old a/.old-000000000001",
        "cp -r a-new a/step-000000000001; cp -r a-old a/.old-000000000001"};
    for (int i = 0; i < 6; i++) {
        begin(state);
        keep_both();
        shell(moments[i / 2]);
        shell("cp -r b-new b/.half-000000000001; cp -r b-old b/step-000000000001");
        if (i % 2 == 1) { /* the next call is a save */
            save(2, 20);
            expect_steps("step-000000000001 step-000000000002");
            shell("rm -r a/step-000000000002 b/step-000000000002");
        }
        expect_load(1, 10);
        end(state);
    }
}

/* Who is not there may come back with either. */
static void what_nobody_can_tell_stays(void **state)
{
    (void)state;
    keep_both();
    shell("cp -r a-new a/step-000000000001; cp -r a-old a/.old-000000000001");
    run(false);
    expect_failure(TUTTI_ERR_IO, "rank-00001-0.safetensors of host ");
    shell("test -e a/.old-000000000001; cp -r b-old b/step-000000000001");
    expect_load(1, 10);
}

/* ---- the saver's talk ------------------------------------------------------------------------ */

/* Nobody waits for what rank 0 cannot tell. */
static void a_store_that_refuses_is_told(void **state)
{
    static const char *const keys[] = {"/complete", "/rename", "/outcome"};
    for (int i = 0; i < 3; i++) {
        begin(state);
        save(1, 10);
        job.has_saver = true;
        job.step = 2;
        refused = keys[i];
        run(true);
        assert_null(refused);
        expect_failure(TUTTI_ERR_IO, "the store is full");
        job.has_saver = false;
        save(3, 30);
        expect_load(3, 30);
        end(state);
    }
}

/* ---- options --------------------------------------------------------------------------------- */

static void options_that_differ_are_named(void **state)
{
    (void)state;
    job.step = 1;
    job.is_not_per_host[1] = true;
    for (int i = 0; i < 3; i++) {
        job.has_saver = i == 2;
        run(i > 0);
        expect_failure(TUTTI_ERR_MISMATCH, "per_host is false on rank 1, true on rank 0");
    }
    job.is_not_per_host[1] = false;
    job.copies[1] = 2;
    run(true);
    expect_failure(TUTTI_ERR_MISMATCH, "host_copies is 2 on rank 1, 0 on rank 0");
    job.copies[1] = 0;
    job.keep[0] = 4;
    run(true);
    expect_failure(TUTTI_ERR_MISMATCH, "keep is 0 on rank 1, 4 on rank 0");
    job.keep[0] = 0;
    job.named[0] = 300;
    job.named[1] = 200;
    run(true);
    expect_failure(TUTTI_ERR_MISMATCH, "keep_steps of rank 1 are not those of rank 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_that_is_saved_again_is_replaced, begin, end),
        cmocka_unit_test(a_host_that_cannot_rename_costs_no_step),
        cmocka_unit_test_setup_teardown(what_all_have_renamed_is_the_new_one, begin, end),
        cmocka_unit_test(what_some_have_renamed_is_the_old_one),
        cmocka_unit_test_setup_teardown(what_nobody_can_tell_stays, begin, end),
        cmocka_unit_test(a_store_that_refuses_is_told),
        cmocka_unit_test_setup_teardown(options_that_differ_are_named, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
