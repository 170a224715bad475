/* Checkpoints: any layout loads any, damage is found wherever it is, mistakes are told. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/launch.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "runtime/checkpoint/layout_testing.h"

typedef struct {
    char folder[TT_PLACE_BYTES];
    tt_layout_t layout;
    int64_t step; /* to be saved, or found */
} job_t;

typedef struct {
    job_t job;
    tutti_group_t *world;
    tt_laid_t laid;
    tutti_checkpoint_t checkpoint;
} rank_t;

static tutti_status_t begin_rank(const tutti_spawned_t *self, rank_t *r)
{
    memcpy(&r->job, self->argument.data, sizeof r->job);
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &r->world));
    tt_lay(&r->laid, r->job.layout, self->rank, self->size);
    r->checkpoint = (tutti_checkpoint_t){.folder = r->job.folder,
                                         .group = r->world,
                                         .slices = r->laid.slices,
                                         .slice_count = r->laid.count};
    return TUTTI_OK;
}

static void end_rank(rank_t *r)
{
    tt_lay_end(&r->laid);
    tutti_group_release(r->world);
}

static tutti_status_t save_rank(const tutti_spawned_t *self)
{
    rank_t r;
    TT_TRY(begin_rank(self, &r));
    tutti_status_t status = tt_lay_all(&r.laid, tt_layout_set);
    status = status < 0 ? status : tutti_checkpoint_save(&r.checkpoint, r.job.step);
    end_rank(&r);
    return status;
}

static tutti_status_t load_rank(const tutti_spawned_t *self)
{
    rank_t r;
    int64_t step = -1;
    TT_TRY(begin_rank(self, &r));
    tutti_status_t status = tutti_checkpoint_load(&r.checkpoint, &step);
    if (status == TUTTI_OK) {
        status = tt_lay_all(&r.laid, tt_layout_expect);
    }
    if (status == TUTTI_OK && step != r.job.step) {
        status = TT_FAIL(TUTTI_ERR_STATE, "step %lld", (long long)step);
    }
    end_rank(&r);
    return status;
}

static tutti_status_t run(tutti_spawn_fn_t rank, int ranks, const job_t *job)
{
    return tutti_spawn(
        rank, ranks,
        &(tutti_spawn_options_t){.argument = tutti_bytes_of(job, sizeof *job), .threads = true});
}

static void any_layout_loads_any(void **state)
{
    (void)state;
    enum { RANKS_MAX = 4, KINDS = TT_LAYOUT_COUNT * RANKS_MAX };
    for (int from = 0; from < KINDS; from++) {
        job_t job = {.layout = (tt_layout_t)(from / RANKS_MAX), .step = from};
        bool is_saved = false;
        tt_place_make(job.folder);
        for (int to = 0; to < KINDS; to++) {
            if (!tt_test_takes((uint64_t)(from * KINDS + to))) {
                continue;
            }
            job.layout = (tt_layout_t)(from / RANKS_MAX);
            if (!is_saved) {
                assert_int_equal(run(save_rank, from % RANKS_MAX + 1, &job), TUTTI_OK);
                is_saved = true;
            }
            job.layout = (tt_layout_t)(to / RANKS_MAX);
            if (run(load_rank, to % RANKS_MAX + 1, &job) != TUTTI_OK) {
                fail_msg("%s of %d ranks loaded as %s of %d: %s", tt_layout_names[from / RANKS_MAX],
                         from % RANKS_MAX + 1, tt_layout_names[to / RANKS_MAX], to % RANKS_MAX + 1,
                         tutti_last_error());
            }
        }
        tt_place_remove(job.folder);
    }
}

/* A slice too many on rank 1. */
static tutti_status_t fail_rank(const tutti_spawned_t *self)
{
    rank_t r;
    int64_t step = 77;
    TT_TRY(begin_rank(self, &r));
    r.laid.slices[0].offset[0] += self->rank == 1 ? 1000 : 0;
    const tutti_status_t saved = tutti_checkpoint_save(&r.checkpoint, r.job.step);
    const bool is_told = strstr(tutti_last_error(), "slice of \"embedding\"") != NULL &&
                         (strstr(tutti_last_error(), "rank 1: ") != NULL) == (self->rank != 1);
    r.laid.slices[0].offset[0] -= self->rank == 1 ? 1000 : 0;
    r.checkpoint.keep = self->rank == 2 ? -1 : 0;
    const tutti_status_t loaded = tutti_checkpoint_load(&r.checkpoint, &step);
    end_rank(&r);
    return saved == TUTTI_ERR_ARG && is_told && loaded == TUTTI_ERR_ARG && step == 77
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "saved %d, told %d, loaded %d", (int)saved, is_told,
                         (int)loaded);
}

static void all_ranks_learn_of_a_mistake(void **state)
{
    (void)state;
    job_t job = {.layout = TT_LAYOUT_rows};
    tt_place_make(job.folder);
    assert_int_equal(run(fail_rank, 3, &job), TUTTI_OK);
    assert_int_equal(rmdir(job.folder), 0); /* nothing was begun */
}

/* What several have is written once, and each rank writes as much as the others. */
static void copies_are_dealt_out(void **state)
{
    (void)state;
    job_t job = {.layout = TT_LAYOUT_replicated, .step = 1};
    static const int blocks[] = {6, 1, 3}; /* the embedding; counts; cube, row and scalar */
    tt_place_make(job.folder);
    assert_int_equal(run(save_rank, 3, &job), TUTTI_OK);
    for (int rank = 0; rank < 3; rank++) {
        char path[160];
        struct stat about;
        snprintf(path, sizeof path, "%s/step-000000000001/rank-%05d-0.digests", job.folder, rank);
        assert_int_equal(stat(path, &about), 0);
        assert_int_equal(about.st_size, 16 * blocks[rank]);
    }
    tt_place_remove(job.folder);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Of one rank, with what is in its folder. */
typedef struct {
    job_t job;
    tt_laid_t laid;
    tutti_checkpoint_t checkpoint;
} alone_t;

static void begin_alone(alone_t *a, tt_layout_t layout)
{
    tt_place_make(a->job.folder);
    tt_lay(&a->laid, layout, 0, 1);
    assert_int_equal(tt_lay_all(&a->laid, tt_layout_set), TUTTI_OK);
    a->checkpoint = (tutti_checkpoint_t){
        .folder = a->job.folder, .slices = a->laid.slices, .slice_count = a->laid.count};
}

static void end_alone(alone_t *a)
{
    tt_lay_end(&a->laid);
    tt_place_remove(a->job.folder);
}

/* The small ones of the tensors, to be quick. */
static void begin_small(alone_t *a)
{
    begin_alone(a, TT_LAYOUT_replicated);
    a->checkpoint.slices++;
    a->checkpoint.slice_count--;
}

static void forget(const alone_t *a)
{
    for (size_t i = 0; i < a->laid.count; i++) {
        assert_int_equal(tutti_tensor_fill(a->laid.slices[i].tensor, 0), TUTTI_OK);
    }
}

static void flip_bit(const char *path, off_t at, int bit)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static off_t bytes_of(const char *path)
{
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    return about.st_size;
}

static void name_of(const alone_t *a, int64_t step, const char *file, char path[160])
{
    snprintf(path, 160, "%s/step-%012lld/%s", a->job.folder, (long long)step, file);
}

/* Instead of a line for each byte. */
static void count_lines(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    *(int64_t *)user += strstr(line, "checkpoint of step 3 is passed over: ") != NULL;
}

/* The headers of safetensors are for others: what is loaded is right without them. */
static void one_flipped_bit_anywhere_is_found(void **state)
{
    (void)state;
    static const char *const files[] = {"manifest.json", "rank-00000-0.digests",
                                        "rank-00000-0.safetensors"};
    alone_t a;
    int64_t step, passed = 0, damaged = 0, lines = 0;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 3), TUTTI_OK);
    tt_log_set_sink(count_lines, &lines);
    for (int i = 0; i < 3; i++) {
        char path[160];
        name_of(&a, 3, files[i], path);
        for (off_t at = 0; at < bytes_of(path); at++) {
            flip_bit(path, at, (int)(at % 8));
            forget(&a);
            const tutti_status_t status = tutti_checkpoint_load(&a.checkpoint, &step);
            flip_bit(path, at, (int)(at % 8));
            if (status >= 0 && i == 2) {
                passed++;
                for (size_t k = 0; k < a.checkpoint.slice_count; k++) {
                    assert_int_equal(tt_lay_each(&a.checkpoint.slices[k], tt_layout_expect), 0);
                }
                continue;
            }
            assert_int_equal(status, TUTTI_ERR_FORMAT);
            tt_expect_error(path);
            damaged++;
        }
    }
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(lines, damaged);
    assert_true(passed > 0);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_OK);
    end_alone(&a);
}

static void what_is_damaged_is_named(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    char path[160];
    begin_alone(&a, TT_LAYOUT_replicated);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 3), TUTTI_OK);
    name_of(&a, 3, "rank-00000-0.safetensors", path);
    const off_t end = bytes_of(path);
    flip_bit(path, end - 1, 0);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_FORMAT);
    tt_expect_error("rank-00000-0.safetensors: damaged: tensor \"cube\", 144 bytes at offset ");
    flip_bit(path, end - 1, 0);
    assert_int_equal(truncate(path, end - 100), 0);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_FORMAT);
    tt_expect_error("rank-00000-0.safetensors");
    assert_int_equal(remove(path), 0);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_IO);
    end_alone(&a);
}

static void an_older_one_is_loaded_where_the_newest_is_damaged(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    char path[160];
    begin_alone(&a, TT_LAYOUT_intervals);
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(tutti_checkpoint_save(&a.checkpoint, i), TUTTI_OK);
    }
    name_of(&a, 4, "manifest.json", path);
    assert_int_equal(truncate(path, 7), 0);
    name_of(&a, 3, "rank-00000-0.digests", path);
    flip_bit(path, 0, 0);
    forget(&a);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 2);
    assert_int_equal(tt_lay_all(&a.laid, tt_layout_expect), TUTTI_OK);
    name_of(&a, 1, "manifest.json", path);
    assert_int_equal(access(path, F_OK), -1); /* three are kept */
    end_alone(&a);
}

/* The newest may be damaged, or of another run: what goes on from an older one is not pruned. */
static void what_was_just_saved_stays(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    char path[160];
    begin_small(&a);
    a.checkpoint.keep = 1;
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 9), TUTTI_OK);
    name_of(&a, 9, "manifest.json", path);
    flip_bit(path, 0, 0);
    for (int64_t i = 3; i < 5; i++) {
        assert_int_equal(tutti_checkpoint_save(&a.checkpoint, i), TUTTI_OK);
        assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_OK);
        assert_int_equal(step, i);
    }
    name_of(&a, 3, "manifest.json", path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 10), TUTTI_OK);
    name_of(&a, 9, "manifest.json", path);
    assert_int_equal(access(path, F_OK), -1);
    end_alone(&a);
}

static void named_steps_stay(void **state)
{
    (void)state;
    alone_t a;
    char path[160];
    const int64_t named[] = {0, 2};
    begin_small(&a);
    a.checkpoint.keep = 1;
    a.checkpoint.keep_steps = named;
    a.checkpoint.keep_step_count = 2;
    for (int64_t step = 0; step < 5; step++) {
        assert_int_equal(tutti_checkpoint_save(&a.checkpoint, step), TUTTI_OK);
    }
    for (int64_t step = 0; step < 5; step++) {
        name_of(&a, step, "manifest.json", path);
        assert_int_equal(access(path, F_OK), step == 0 || step == 2 || step == 4 ? 0 : -1);
    }
    end_alone(&a);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void no_checkpoint_is_no_failure(void **state)
{
    (void)state;
    alone_t a;
    int64_t step = 77;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_END);
    tt_place_remove(a.job.folder);
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_END);
    assert_int_equal(step, 77);
    assert_int_equal(mkdir(a.job.folder, 0700), 0);
    end_alone(&a);
}

static void what_does_not_fit_is_listed(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    tutti_tensor_t *x;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 3), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3, 4), &x), TUTTI_OK);
    const tutti_slice_t slices[] = {tutti_slice_whole("cube", x), tutti_slice_whole("bias", x),
                                    tutti_slice_whole("counts", x)};
    a.checkpoint.slices = slices;
    a.checkpoint.slice_count = 3;
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_MISMATCH);
    assert_string_equal(
        tutti_last_error(),
        "checkpoint of step 3: 6 tensors do not fit; \"cube\" is bf16[3, 4, 6], not f32[3, 4]; "
        "\"bias\" is not in it; \"counts\" is i64[101], not f32[3, 4]; "
        "\"row\" is in it, but not here; \"scalar\" is in it, but not here; "
        "\"empty\" is in it, but not here");
    tutti_tensor_release(x);
    end_alone(&a);
}

/* Of more tensors than a byte has bits: each is missed alone. */
static void whichever_is_left_out_is_named(void **state)
{
    (void)state;
    enum { COUNT = 18 };
    alone_t a;
    int64_t step;
    char names[COUNT][8], text[64];
    tutti_slice_t slices[COUNT];
    tutti_tensor_t *x;
    begin_small(&a);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1), &x), TUTTI_OK);
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        slices[i] = tutti_slice_whole(names[i], x);
    }
    a.checkpoint.slices = slices;
    a.checkpoint.slice_count = COUNT;
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 3), TUTTI_OK);
    a.checkpoint.slice_count = COUNT - 1;
    for (int i = COUNT - 1; i >= 0; i--) { /* behind the others is what is left out */
        const tutti_slice_t out = slices[i];
        slices[i] = slices[COUNT - 1];
        assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_MISMATCH);
        snprintf(text, sizeof text, "1 tensor does not fit; \"t%d\" is in it, but not here", i);
        tt_expect_error(text);
        slices[i] = out;
    }
    tutti_tensor_release(x);
    end_alone(&a);
}

static void expect_refused(const alone_t *a, const tutti_slice_t *slices, size_t count,
                           const char *text)
{
    tutti_checkpoint_t checkpoint = a->checkpoint;
    checkpoint.slices = slices;
    checkpoint.slice_count = count;
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_ERR_ARG);
    tt_expect_error(text);
    assert_int_equal(rmdir(a->job.folder), 0); /* nothing was begun */
    assert_int_equal(mkdir(a->job.folder, 0700), 0);
}

static void slices_that_are_not_all_of_it_are_refused(void **state)
{
    (void)state;
    alone_t a;
    tutti_tensor_t *x;
    const tutti_shape_t whole = TUTTI_SHAPE(4, 6);
    begin_small(&a);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2, 6), &x), TUTTI_OK);
    const tutti_slice_t top = tutti_slice_box("w", x, whole, (int64_t[]){0, 0});
    const tutti_slice_t middle = tutti_slice_box("w", x, whole, (int64_t[]){1, 0});
    const tutti_slice_t below = tutti_slice_box("w", x, whole, (int64_t[]){3, 0});
    expect_refused(&a, &top, 1, "tensor \"w\": 12 of 24 elements are in no rank's slice");
    expect_refused(&a, (tutti_slice_t[]){top, middle}, 2,
                   "tensor \"w\": [0:2, 0:6] of rank 0 and [1:3, 0:6] of rank 0 overlap");
    expect_refused(&a, (tutti_slice_t[]){top, top}, 2, "overlap");
    expect_refused(&a, &below, 1, "slice of \"w\": f32[2, 6] is no part, at its offset, of [4, 6]");
    const tutti_slice_t late = tutti_slice_interval("w", x, whole, 13);
    expect_refused(&a, &late, 1, "is no part, from its first element on, of [4, 6]");
    expect_refused(&a, &(tutti_slice_t){.tensor = x}, 1, "a slice has no name");
    expect_refused(&a, &(tutti_slice_t){.name = "w"}, 1, "a slice has no tensor");
    expect_refused(&a, &(tutti_slice_t){.name = "w\xff", .tensor = x}, 1,
                   "the name of a slice is not UTF-8: w\\xff");
    tutti_tensor_release(x);
    end_alone(&a);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, -1), TUTTI_ERR_ARG);
    tt_expect_error("checkpoint: step -1; want 0 to 999999999999");
    a.checkpoint.keep = -1;
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 1), TUTTI_ERR_ARG);
    tt_expect_error("checkpoint: keep is -1: want 0 or more");
    a.checkpoint.keep = 0;
    a.checkpoint.keep_step_count = 2;
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 1), TUTTI_ERR_ARG);
    tt_expect_error("checkpoint: keep_steps is NULL: want 2 of them");
    a.checkpoint.keep_step_count = 0;
    a.checkpoint.folder = "";
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_ARG);
    a.checkpoint.folder = "/proc/none";
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 1), TUTTI_ERR_IO);
    tt_expect_error("/proc/none");
    end_alone(&a);
}

/* Nothing could come of a load into it. */
static void a_slice_on_meta_is_named(void **state)
{
    (void)state;
    alone_t a;
    int64_t step = 77;
    tutti_device_t *meta;
    tutti_tensor_t *x;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 1), TUTTI_OK);
    assert_int_equal(tutti_device_open("meta", NULL, &meta), TUTTI_OK);
    tutti_slice_t *slice = &a.laid.slices[a.laid.count - 1];
    tutti_tensor_t *near = slice->tensor;
    assert_int_equal(
        tt_tensor_new(meta, tutti_tensor_dtype(near), tutti_tensor_shape(near), true, &x),
        TUTTI_OK);
    slice->tensor = x;
    assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_ERR_STATE);
    tt_expect_error(slice->name);
    tt_expect_error("\" lies on meta, which has no memory");
    assert_int_equal(step, 77);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 2), TUTTI_ERR_STATE);
    slice->tensor = near;
    tutti_tensor_release(x);
    tutti_device_release(meta);
    end_alone(&a);
}

static void memory_that_runs_out_costs_no_checkpoint(void **state)
{
    (void)state;
    alone_t a;
    int64_t step;
    begin_small(&a);
    assert_int_equal(tutti_checkpoint_save(&a.checkpoint, 1), TUTTI_OK);
    for (uint64_t n = 1;; n++) {
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_checkpoint_save(&a.checkpoint, 2);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        if (!has_failed) {
            assert_int_equal(status, TUTTI_OK);
            break;
        }
        assert_int_equal(status, TUTTI_ERR_NOMEM);
        assert_int_equal(tutti_checkpoint_load(&a.checkpoint, &step), TUTTI_OK);
        assert_int_equal(step, 1);
    }
    end_alone(&a);
}

int main(void)
{
    (void)tt_test_takes(0);
    unsetenv("TUTTI_TEST_SHARE"); /* which the library does not know */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_loads_any),
        cmocka_unit_test(all_ranks_learn_of_a_mistake),
        cmocka_unit_test(copies_are_dealt_out),
        cmocka_unit_test(one_flipped_bit_anywhere_is_found),
        cmocka_unit_test(what_is_damaged_is_named),
        cmocka_unit_test(an_older_one_is_loaded_where_the_newest_is_damaged),
        cmocka_unit_test(what_was_just_saved_stays),
        cmocka_unit_test(no_checkpoint_is_no_failure),
        cmocka_unit_test(what_does_not_fit_is_listed),
        cmocka_unit_test(whichever_is_left_out_is_named),
        cmocka_unit_test(slices_that_are_not_all_of_it_are_refused),
        cmocka_unit_test(named_steps_stay),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(a_slice_on_meta_is_named),
        cmocka_unit_test(memory_that_runs_out_costs_no_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
