/* A disk for each host: ranks of one test have folders of their own, as those of several hosts. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/checkpoint_files.h>
#include <tutti/collectives.h>
#include <tutti/launch.h>

#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"
#include "runtime/checkpoint/layout_testing.h"
#include "runtime/checkpoint/manifest.h"

enum { RANKS_MAX = 4, TEXT_BYTES = 512 };

/* What the ranks do, and what they meet. */
typedef struct {
    char place[64];
    int hosts, copies;
    bool is_common;    /* all have one folder */
    bool is_whole;     /* each tensor in one file */
    bool has_saver;    /* saves go on in the background */
    bool is_counted;   /* several, with the keys that they leave in the store */
    size_t text_bytes; /* of a text of rank 0 */
    bool is_new;       /* a load is the beginning of a training that does not resume */
    tt_layout_t layout;
    int64_t step;
    int keep;
} job_t;

static job_t job;
static tutti_status_t met[RANKS_MAX];
static int64_t found[RANKS_MAX];
static char texts[RANKS_MAX][TEXT_BYTES];

static _Thread_local int own_host;

/* Takes the place of the C library's. */
int gethostname(char *name, size_t bytes)
{
    return snprintf(name, bytes, "node-%d", own_host) < 0 ? -1 : 0;
}

/* Takes the place of the C library's: a file of this name cannot be flushed. */
static const char *failing;

int fsync(int fd)
{
    char link[40], path[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (failing != NULL && readlink(link, path, sizeof path - 1) > 0 &&
        strstr(path, failing) != NULL) {
        errno = ENOSPC;
        return -1;
    }
    return 0; /* a disk would take most of the tests' time */
}

static void folder_of(int host, char folder[128])
{
    snprintf(folder, 128, "%s/%c", job.place, 'a' + host);
}

/* What was told of one has gone when the next has ended. */
static tutti_status_t save_on(const tutti_spawned_t *self, tutti_group_t *world,
                              tutti_saver_t *saver)
{
    size_t before = 0;
    for (int i = 0; i < 3; i++) {
        size_t now;
        TT_TRY(tutti_saver_save(saver, job.step + i));
        TT_TRY(tutti_saver_wait(saver));
        TT_TRY(tutti_barrier(world, NULL));
        TT_TRY(tutti_store_num_keys(self->store, &now));
        TT_TRY(tutti_barrier(world, NULL));
        if (i > 0 && now != before) {
            return TT_FAIL(TUTTI_ERR_STATE, "%zu keys, and before %zu", now, before);
        }
        before = now;
    }
    return TUTTI_OK;
}

/* Values change meanwhile. */
static tutti_status_t save_behind(const tutti_checkpoint_t *checkpoint, const tt_laid_t *laid)
{
    tutti_saver_t *saver;
    TT_TRY(tutti_saver_create(checkpoint, &saver));
    tutti_status_t status = tutti_saver_save(saver, job.step);
    for (size_t i = 0; i < laid->count; i++) {
        assert_int_equal(tutti_tensor_fill(laid->slices[i].tensor, 0), TUTTI_OK);
    }
    status = status < 0 ? status : tutti_saver_wait(saver);
    tutti_saver_release(saver);
    return status;
}

static tutti_status_t save_counted(const tutti_spawned_t *self,
                                   const tutti_checkpoint_t *checkpoint)
{
    tutti_saver_t *saver;
    TT_TRY(tutti_saver_create(checkpoint, &saver));
    const tutti_status_t status = save_on(self, checkpoint->group, saver);
    tutti_saver_release(saver);
    return status;
}

static char *notes;

static tutti_status_t run_rank(const tutti_spawned_t *self, bool is_save)
{
    tutti_group_t *world;
    tt_laid_t laid;
    char folder[128];
    const int rank = self->rank;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, job.layout, rank, self->size);
    own_host = rank * job.hosts / self->size;
    folder_of(job.is_common ? 0 : own_host, folder);
    tutti_checkpoint_text_t text = {.name = "notes", .saved = {notes, job.text_bytes}};
    tutti_checkpoint_t checkpoint = {.folder = folder,
                                     .texts = &text,
                                     .group = world,
                                     .slices = laid.slices,
                                     .slice_count = laid.count,
                                     .keep = job.keep,
                                     .whole = job.is_whole,
                                     .per_host = true,
                                     .host_copies = job.copies};
    found[rank] = -1;
    checkpoint.text_count = job.text_bytes > 0;
    if (is_save) {
        TT_TRY(tt_lay_all(&laid, tt_layout_set));
        met[rank] = job.is_counted  ? save_counted(self, &checkpoint)
                    : job.has_saver ? save_behind(&checkpoint, &laid)
                                    : tutti_checkpoint_save(&checkpoint, job.step);
    } else {
        met[rank] = job.is_new ? tutti_checkpoint_begin(&checkpoint, false, &found[rank])
                               : tutti_checkpoint_load(&checkpoint, &found[rank]);
    }
    snprintf(texts[rank], TEXT_BYTES, "%s", met[rank] < 0 ? tutti_last_error() : "");
    if (!is_save && met[rank] == TUTTI_OK) {
        met[rank] = tt_lay_all(&laid, tt_layout_expect);
    }
    if (!is_save && met[rank] == TUTTI_OK && job.text_bytes > 0) {
        assert_int_equal(text.loaded.bytes, job.text_bytes);
        assert_memory_equal(text.loaded.data, notes, job.text_bytes);
    }
    tutti_buffer_release(&text.loaded);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return TUTTI_OK;
}

static tutti_status_t save_rank(const tutti_spawned_t *self)
{
    return run_rank(self, true);
}

static tutti_status_t load_rank(const tutti_spawned_t *self)
{
    return run_rank(self, false);
}

static void run(tutti_spawn_fn_t rank, int ranks)
{
    if (tutti_spawn(rank, ranks, &(tutti_spawn_options_t){.threads = true}) < 0) {
        fail_msg("%s", tutti_last_error());
    }
}

static void save(int ranks, int64_t step)
{
    job.step = step;
    run(save_rank, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        assert_string_equal(texts[rank], "");
    }
}

/* On every rank. */
static void expect_load(int ranks, int64_t step)
{
    run(load_rank, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        assert_string_equal(texts[rank], "");
        assert_int_equal(met[rank], TUTTI_OK);
        assert_int_equal(found[rank], step);
    }
}

static void shell(const char *commands)
{
    char command[512];
    snprintf(command, sizeof command, "cd %s && set -e; %s", job.place, commands);
    assert_int_equal(system(command), 0);
}

static int begin(void **state)
{
    (void)state;
    job = (job_t){.place = "/tmp/tutti-hosts-XXXXXX", .hosts = 2, .layout = TT_LAYOUT_rows};
    assert_non_null(mkdtemp(job.place));
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", job.place);
    return system(command);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Kinds of a save, and of a load of what it wrote: the hosts stay. */
static void load_all(int hosts, int from, int *number)
{
    bool is_saved = false;
    for (int to = 0; to < TT_LAYOUT_COUNT * RANKS_MAX; to++) {
        const int ranks = to % RANKS_MAX + 1;
        if (ranks < hosts || !tt_test_takes((uint64_t)(*number)++)) {
            continue;
        }
        job.layout = (tt_layout_t)(from / RANKS_MAX);
        if (!is_saved) {
            job.is_whole = from % 2 != 0;
            save(from % RANKS_MAX + 1, 7);
            is_saved = true;
        }
        job.layout = (tt_layout_t)(to / RANKS_MAX);
        expect_load(ranks, 7);
    }
}

static void any_layout_loads_any(void **state)
{
    int number = 0;
    for (int from = 0; from < TT_LAYOUT_COUNT * RANKS_MAX; from++) {
        const int hosts = 2 + from / RANKS_MAX % 2;
        if (from % RANKS_MAX + 1 >= hosts) {
            begin(state);
            job.hosts = hosts;
            load_all(hosts, from, &number);
            end(state);
        }
    }
}

/* And older ones go on every host. */
static void a_saver_saves_on_every_host(void **state)
{
    (void)state;
    job.has_saver = true;
    job.keep = 2;
    for (int64_t step = 1; step <= 4; step++) {
        save(4, step);
    }
    shell("test \"$(ls a b | xargs)\" = "
          "'a: step-000000000003 step-000000000004 b: step-000000000003 step-000000000004'");
    job.layout = TT_LAYOUT_columns;
    expect_load(3, 4);
}

static void a_saver_leaves_no_keys_behind(void **state)
{
    (void)state;
    job.is_counted = true;
    for (job.hosts = 1; job.hosts <= 2; job.hosts++) {
        save(4, 1);
    }
}

/* The manifest is longer than any value of a store: seconds of JSON. */
static void a_saver_tells_long_manifests(void **state)
{
    (void)state;
    if (!tt_test_takes(0)) {
        return;
    }
    job.has_saver = true;
    job.text_bytes = 17 << 20;
    notes = tt_alloc_raw(job.text_bytes, "notes");
    assert_non_null(notes);
    for (size_t i = 0; i < job.text_bytes; i++) {
        notes[i] = (char)('a' + i % 26);
    }
    save(2, 1);
    expect_load(2, 1);
    tt_free(notes);
}

/* What a host's ranks write is there, and nothing else. */
static void a_host_has_what_its_ranks_write(void **state)
{
    (void)state;
    save(4, 1);
    shell(
        "test \"$(echo a/step*/rank-*0.safetensors b/step*/rank-*0.safetensors)\" = "
        "'a/step-000000000001/rank-00000-0.safetensors a/step-000000000001/rank-00001-0.safetensors"
        " b/step-000000000001/rank-00002-0.safetensors "
        "b/step-000000000001/rank-00003-0.safetensors'");
    shell("cmp a/step*1/manifest.json b/step*1/manifest.json; test \"$(ls -A a)\" = \"$(echo "
          ".lock; echo step-000000000001)\"");
}

/* As files that somebody has brought together. */
static void all_files_in_one_folder_are_a_checkpoint(void **state)
{
    tutti_saved_t *saved;
    char folder[160];
    (void)state;
    save(2, 3);
    shell("cp b/step-*3/rank-* a/step-*3/");
    snprintf(folder, sizeof folder, "%s/a", job.place);
    assert_int_equal(tutti_saved_open(folder, &saved), TUTTI_OK);
    assert_int_equal(tutti_saved_check(saved), TUTTI_OK);
    tutti_saved_close(saved);
    shell("rm -r b");
    expect_load(2, 3);
}

/* ---- crashes --------------------------------------------------------------------------------- */

/* A rename of one host has not been; the next save takes what there is of it away. */
static void a_step_of_one_host_is_none(void **state)
{
    (void)state;
    save(2, 1);
    save(2, 2);
    shell("mv b/step-000000000002 b/.half-000000000002");
    expect_load(2, 1);
    save(2, 3);
    shell("test ! -e a/step-000000000002 && test ! -e b/.half-000000000002 && "
          "test -e a/step-000000000001 && test -e b/step-000000000001");
    expect_load(2, 3);
}

/* Of two saves of one step; the older checkpoint is whole. */
static void manifests_that_differ_are_none(void **state)
{
    (void)state;
    save(2, 1);
    save(2, 2);
    shell("mv b/step-000000000002 old");
    job.layout = TT_LAYOUT_columns;
    save(2, 2);
    shell("rm -r b/step-000000000002; mv old b/step-000000000002");
    expect_load(2, 1);
}

/* Of which each is a checkpoint of the hosts that there were. */
static void steps_of_fewer_hosts_stay(void **state)
{
    (void)state;
    job.hosts = 3;
    save(3, 1);
    job.hosts = 2;
    save(2, 2);
    job.hosts = 3;
    failing = "/c/.half-000000000003/rank";
    job.step = 3;
    run(save_rank, 3);
    failing = NULL;
    assert_int_equal(met[0], TUTTI_ERR_IO);
    expect_load(3, 2);
}

static void a_lost_host_is_named(void **state)
{
    (void)state;
    save(4, 1);
    shell("rm -r b");
    run(load_rank, 4);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_IO);
        assert_non_null(strstr(texts[rank], "/rank-00002-0.safetensors of host node-1 is on none"));
    }
}

/* Rank 0 asks for it, rank 1 reads it. */
static void damage_of_another_host_is_told(void **state)
{
    (void)state;
    save(2, 1);
    save(2, 2);
    shell("printf x | dd of=b/step-000000000002/rank-00001-0.safetensors bs=1 seek=20000 "
          "conv=notrunc 2>/dev/null");
    job.layout = TT_LAYOUT_columns;
    expect_load(2, 1);
    shell("rm -r a/step-000000000001 b/step-000000000001");
    run(load_rank, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_FORMAT);
        assert_non_null(
            strstr(texts[rank], "/b/step-000000000002/rank-00001-0.safetensors: damaged"));
    }
}

/* A copy that somebody made. */
static void damage_is_mended_from_a_copy(void **state)
{
    (void)state;
    save(2, 1);
    shell("cp b/step-*1/rank-* a/step-*1/");
    shell("printf x | dd of=a/step-000000000001/rank-00001-0.safetensors bs=1 seek=20000 "
          "conv=notrunc 2>/dev/null");
    job.layout = TT_LAYOUT_columns;
    expect_load(2, 1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void load_without(const char *host)
{
    char command[64];
    snprintf(command, sizeof command, "mv %s lost", host);
    shell(command);
    expect_load(4, 5);
    snprintf(command, sizeof command, "rm -rf %s; mv lost %s", host, host);
    shell(command);
}

/* Slices, whole tensors, and either from a thread. */
static void any_host_may_be_lost(void **state)
{
    static const tt_layout_t layouts[] = {TT_LAYOUT_rows, TT_LAYOUT_replicated, TT_LAYOUT_intervals,
                                          TT_LAYOUT_in_turn};
    for (int i = 0; i < 4; i++) {
        begin(state);
        job.hosts = 3;
        job.copies = 2;
        job.layout = layouts[i];
        job.is_whole = i % 2 != 0;
        job.has_saver = i / 2 != 0;
        save(4, 5);
        load_without("a");
        load_without("b");
        load_without("c");
        end(state);
    }
}

/* Of ranks 0 and 1 on host a, 2 on b, 3 on c. Where there are no more hosts, all have all. */
static void copies_are_the_same_files_on_the_next_host(void **state)
{
    (void)state;
    job.hosts = 3;
    job.copies = 2;
    save(4, 5);
    shell("cd a/step*; for f in rank-*; do test -e ../../b/step*/$f || test -e ../../c/step*/$f; "
          "done; for f in rank-0000[01]*; do cmp $f ../../b/step*/$f; done; "
          "for f in rank-00003*; do cmp $f ../../c/step*/$f; done; "
          "test $(ls ../../a/step* | wc -l) = 7 && test $(ls ../../b/step* | wc -l) = 7 && "
          "test $(ls ../../c/step* | wc -l) = 5");
    job.copies = 9;
    save(4, 6);
    shell("diff -r a/step*6 b/step*6; diff -r b/step*6 c/step*6");
}

static void copies_without_hosts_are_refused(void **state)
{
    (void)state;
    const tutti_checkpoint_t checkpoint = {.folder = job.place, .host_copies = 2};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "host_copies is 2"));
}

/* A slice of rank 1 that nobody has written. */
static void forget_file(const char *host)
{
    char path[160];
    tt_manifest_t *manifest;
    snprintf(path, sizeof path, "%s/%s/step-000000000001/manifest.json", job.place, host);
    assert_int_equal(tt_manifest_read(path, &manifest), TUTTI_OK);
    tt_saved_tensor_t *first = &manifest->tensors[0];
    first->slices[first->slice_count - 1].file = TT_NO_FILE;
    assert_int_equal(tt_manifest_write(path, manifest), TUTTI_OK);
    tt_manifest_release(manifest);
}

static void a_slice_in_no_file_is_damage(void **state)
{
    (void)state;
    save(2, 1);
    forget_file("a");
    forget_file("b");
    run(load_rank, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_FORMAT);
        assert_non_null(strstr(texts[rank], "no host has a manifest of it that can be read"));
    }
}

/* ---- mistakes -------------------------------------------------------------------------------- */

/* Rank 0's host has none. */
static void a_checkpoint_of_any_host_is_anothers(void **state)
{
    (void)state;
    save(3, 1);
    shell("rm -r a");
    job.is_new = true;
    run(load_rank, 3);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_STATE);
        assert_non_null(strstr(texts[rank], "/b has a checkpoint of step 1: resume"));
    }
    shell("rm -r b");
    run(load_rank, 3);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(met[rank], TUTTI_END);
    }
}

/* Of a file system that all hosts share. */
static void a_common_folder_is_told(void **state)
{
    (void)state;
    job.is_common = true;
    job.step = 1;
    run(save_rank, 2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_ARG);
        assert_non_null(strstr(texts[rank], "is that of host node-"));
    }
    shell("test \"$(ls -A a)\" = .lock");
    run(load_rank, 2);
    assert_int_equal(met[0], TUTTI_END);
    assert_int_equal(met[1], TUTTI_END);
}

/* What all see can be loaded as if each had a copy. */
static void what_was_saved_together_is_loaded_per_host(void **state)
{
    (void)state;
    save(1, 4);
    job.is_common = true;
    expect_load(4, 4);
}

/* Whatever it is that it cannot write, and whose. */
static void a_full_disk_of_one_host_fails_all(void **state)
{
    static const char *const files[] = {
        "/b/.half-000000000002/rank-00002", "/b/.half-000000000002/rank-00003",
        "/a/.half-000000000002/rank-00000", "/b/.half-000000000002/m",
        "/a/.half-000000000002/m",          "/b/.host-1"};
    (void)state;
    save(4, 1);
    for (size_t i = 0; i < 2 * sizeof files / sizeof *files; i++) {
        failing = files[i / 2];
        job.has_saver = i % 2 != 0;
        job.step = 2;
        run(save_rank, 4);
        failing = NULL;
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(met[rank], TUTTI_ERR_IO);
            assert_non_null(strstr(texts[rank], "No space left on device"));
        }
        shell("test \"$(ls a b -A | grep -v lock | xargs)\" = "
              "'a: step-000000000001 b: step-000000000001'");
    }
    expect_load(4, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_loads_any),
        cmocka_unit_test_setup_teardown(a_saver_saves_on_every_host, begin, end),
        cmocka_unit_test_setup_teardown(a_saver_leaves_no_keys_behind, begin, end),
        cmocka_unit_test_setup_teardown(a_saver_tells_long_manifests, begin, end),
        cmocka_unit_test_setup_teardown(a_host_has_what_its_ranks_write, begin, end),
        cmocka_unit_test_setup_teardown(all_files_in_one_folder_are_a_checkpoint, begin, end),
        cmocka_unit_test_setup_teardown(a_step_of_one_host_is_none, begin, end),
        cmocka_unit_test_setup_teardown(manifests_that_differ_are_none, begin, end),
        cmocka_unit_test_setup_teardown(steps_of_fewer_hosts_stay, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_host_is_named, begin, end),
        cmocka_unit_test_setup_teardown(damage_of_another_host_is_told, begin, end),
        cmocka_unit_test_setup_teardown(damage_is_mended_from_a_copy, begin, end),
        cmocka_unit_test_setup_teardown(a_slice_in_no_file_is_damage, begin, end),
        cmocka_unit_test_setup_teardown(a_full_disk_of_one_host_fails_all, begin, end),
        cmocka_unit_test(any_host_may_be_lost),
        cmocka_unit_test_setup_teardown(copies_are_the_same_files_on_the_next_host, begin, end),
        cmocka_unit_test_setup_teardown(copies_without_hosts_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_checkpoint_of_any_host_is_anothers, begin, end),
        cmocka_unit_test_setup_teardown(a_common_folder_is_told, begin, end),
        cmocka_unit_test_setup_teardown(what_was_saved_together_is_loaded_per_host, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
