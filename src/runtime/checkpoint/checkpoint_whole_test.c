/* Saves of whole tensors: any layout, what is in which file, devices, failures on the way. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include <tutti/checkpoint_files.h>
#include <tutti/collectives.h>
#include <tutti/devices.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>

#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "runtime/checkpoint/hf_index.h"
#include "runtime/checkpoint/layout_testing.h"
#include "runtime/checkpoint/manifest.h"

enum { RANKS_MAX = 4, PATH_BYTES = 512 };

typedef struct {
    char folder[TT_PLACE_BYTES];
    tt_layout_t from, to;
    bool is_background;
    int64_t step;
} job_t;

static job_t job; /* the ranks are threads */
static tutti_status_t met[RANKS_MAX];
static char texts[RANKS_MAX][TT_ERROR_TEXT_BYTES];

static int make_place(void **state)
{
    (void)state;
    job = (job_t){.step = 1};
    tt_place_make(job.folder);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    tt_place_remove(job.folder);
    return 0;
}

static tutti_status_t spawn(tutti_spawn_fn_t rank, int ranks)
{
    return tutti_spawn(rank, ranks, &(tutti_spawn_options_t){.threads = true});
}

static void step_path(const char *file, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/step-%012lld/%s", job.folder, (long long)job.step, file);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static tutti_status_t save(const tutti_checkpoint_t *checkpoint)
{
    tutti_saver_t *saver;
    if (!job.is_background) {
        return tutti_checkpoint_save(checkpoint, job.step);
    }
    TT_TRY(tutti_saver_create(checkpoint, &saver));
    tutti_status_t status = tutti_saver_save(saver, job.step);
    for (size_t i = 0; i < checkpoint->slice_count && status >= 0; i++) { /* it was copied */
        status = tutti_tensor_fill(checkpoint->slices[i].tensor, 0);
    }
    status = status < 0 ? status : tutti_saver_wait(saver);
    tutti_saver_release(saver);
    return status;
}

static tutti_status_t save_layout(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tt_laid_t laid;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, job.from, self->rank, self->size);
    const tutti_checkpoint_t checkpoint = {.folder = job.folder,
                                           .group = world,
                                           .slices = laid.slices,
                                           .slice_count = laid.count,
                                           .whole = true};
    tutti_status_t status = tt_lay_all(&laid, tt_layout_set);
    status = status < 0 ? status : save(&checkpoint);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return status;
}

static tutti_status_t load_layout(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tt_laid_t laid;
    int64_t step = -1;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, job.to, self->rank, self->size);
    const tutti_checkpoint_t checkpoint = {
        .folder = job.folder, .group = world, .slices = laid.slices, .slice_count = laid.count};
    tutti_status_t status = tutti_checkpoint_load(&checkpoint, &step);
    status = status < 0 ? status : tt_lay_all(&laid, tt_layout_expect);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return status < 0 || step == job.step ? status : TT_FAIL(TUTTI_ERR_STATE, "another step");
}

/* Each tensor is one slice, and no rank writes much more than the largest. */
static void expect_whole(int ranks)
{
    char path[PATH_BYTES];
    tt_manifest_t *manifest;
    uint64_t bytes[RANKS_MAX] = {0}, most = 0, largest = 0;
    step_path("manifest.json", path);
    assert_int_equal(tt_manifest_read(path, &manifest), TUTTI_OK);
    assert_true(manifest->is_whole);
    assert_int_equal(manifest->tensor_count, TT_LAYOUT_TENSORS);
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &manifest->tensors[i];
        const tt_box_t whole = tt_box_of(tensor->shape);
        const uint64_t size =
            (uint64_t)tutti_shape_numel(tensor->shape) * tutti_dtype_bytes(tensor->dtype);
        assert_int_equal(tensor->slice_count, 1);
        assert_true(tt_box_equal(&tensor->slices[0].box, &whole));
        assert_false(tensor->is_model);
        bytes[tensor->slices[0].rank] += size;
        largest = size > largest ? size : largest;
    }
    for (int rank = 0; rank < ranks; rank++) {
        most = bytes[rank] > most ? bytes[rank] : most;
    }
    if (job.from != TT_LAYOUT_last_rank && job.from != TT_LAYOUT_in_turn && ranks > 1) {
        assert_true(most < largest + 100); /* with what is not cut in this layout */
    }
    tt_manifest_release(manifest);
    step_path(TT_HF_INDEX_NAME, path);
    assert_int_equal(access(path, F_OK), -1); /* no model */
}

static void expect_damage(size_t want)
{
    tutti_saved_t *saved;
    size_t damage = 77;
    assert_int_equal(tutti_saved_open(job.folder, &saved), TUTTI_OK);
    assert_int_equal(tutti_saved_verify(saved, NULL, &damage), TUTTI_OK);
    assert_int_equal(damage, want);
    assert_int_equal(tutti_saved_check(saved) < 0, want > 0);
    if (want > 0) {
        assert_non_null(strstr(tutti_last_error(), TT_HF_INDEX_NAME));
    }
    tutti_saved_close(saved);
}

static void any_layout_is_saved_whole(void **state)
{
    (void)state;
    for (int kind = 0; kind < TT_LAYOUT_COUNT * RANKS_MAX; kind++) {
        if (!tt_test_takes((uint64_t)kind)) {
            continue;
        }
        const int ranks = kind % RANKS_MAX + 1, other = (kind + kind / RANKS_MAX) % RANKS_MAX + 1;
        job.from = (tt_layout_t)(kind / RANKS_MAX);
        job.to = (tt_layout_t)((kind / RANKS_MAX + ranks) % TT_LAYOUT_COUNT);
        job.is_background = (kind + kind / RANKS_MAX) % 2 == 1;
        job.step = kind;
        assert_int_equal(spawn(save_layout, ranks), TUTTI_OK);
        expect_whole(ranks);
        expect_damage(0);
        if (spawn(load_layout, other) != TUTTI_OK) {
            fail_msg("%s of %d ranks, loaded as %s of %d: %s", tt_layout_names[job.from], ranks,
                     tt_layout_names[job.to], other, tutti_last_error());
        }
    }
}

/* ---- a model --------------------------------------------------------------------------------- */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_tensor_t *rows;
} training_t;

static tutti_status_t open_training(training_t *t, uint64_t seed)
{
    const tutti_mlp_options_t options = {.width = 3, .hidden = 50};
    TT_TRY(tutti_context_create(&(tutti_context_options_t){.seed = seed}, &t->ctx));
    TT_TRY(tutti_module_create(t->ctx, &tutti_mlp_layer, &options, &t->net));
    TT_TRY(tutti_optim_create(t->ctx, &tutti_adam, NULL, &t->opt));
    TT_TRY(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    return tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2, 5), &t->rows);
}

static void close_training(training_t *t)
{
    tutti_tensor_release(t->rows);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

/* The module on all ranks, and a matrix of which each has two rows. */
static tutti_status_t save_model(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    training_t t;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(open_training(&t, 3));
    const tutti_slice_t slice = tutti_slice_box("rows", t.rows, TUTTI_SHAPE(2 * self->size, 5),
                                                (int64_t[]){2 * self->rank, 0});
    const tutti_checkpoint_t checkpoint = {.folder = job.folder,
                                           .group = world,
                                           .module = t.net,
                                           .optim = t.opt,
                                           .slices = &slice,
                                           .slice_count = 1,
                                           .whole = true};
    const tutti_status_t status = tutti_checkpoint_save(&checkpoint, job.step);
    close_training(&t);
    tutti_group_release(world);
    return status;
}

static json_t *map; /* of the index; what has been seen is taken out */
static int64_t model_bytes;

static tutti_status_t expect_named(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    assert_non_null(json_object_get(map, name));
    assert_int_equal(json_object_del(map, name), 0);
    model_bytes += (int64_t)tutti_tensor_bytes(x);
    return TUTTI_OK;
}

/* Exactly the module's tensors. */
static void expect_index(const training_t *t)
{
    char path[PATH_BYTES];
    step_path(TT_HF_INDEX_NAME, path);
    json_t *index = json_load_file(path, 0, NULL);
    map = json_object_get(index, "weight_map");
    model_bytes = 0;
    assert_int_equal(tutti_module_each_tensor(t->net, expect_named, NULL), TUTTI_OK);
    assert_int_equal(json_object_size(map), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        model_bytes);
    json_decref(index);
}

/* As what others wrote: of the step the manifest is read, of the index the model alone. */
static void expect_loaded(const char *file, const char *format, bool has_all)
{
    char path[PATH_BYTES], want[TUTTI_DIGEST_BYTES], has[TUTTI_DIGEST_BYTES];
    training_t saved, t;
    tutti_saved_t *files;
    assert_int_equal(open_training(&saved, 3), TUTTI_OK);
    assert_int_equal(open_training(&t, 4), TUTTI_OK);
    step_path(file, path);
    assert_int_equal(tutti_saved_open(path, &files), TUTTI_OK);
    assert_string_equal(tutti_saved_describe(files).format, format);
    tutti_saved_close(files);
    const tutti_checkpoint_t weights = {.module = t.net};
    const char *const others[] = {"optim.*", "rows"};
    const tutti_load_options_t options = {.exclude = others, .exclude_count = has_all ? 2 : 0};
    assert_int_equal(tutti_checkpoint_load_from(&weights, path, &options), TUTTI_OK);
    assert_int_equal(tutti_module_digest(saved.net, want), TUTTI_OK);
    assert_int_equal(tutti_module_digest(t.net, has), TUTTI_OK);
    assert_string_equal(has, want);
    close_training(&saved);
    close_training(&t);
}

/* It is other programs' way in; ours is the manifest. */
static void a_damaged_index_is_found(void **state)
{
    (void)state;
    char path[PATH_BYTES], mend[PATH_BYTES + 64];
    assert_int_equal(spawn(save_model, 2), TUTTI_OK);
    expect_damage(0);
    step_path(TT_HF_INDEX_NAME, path);
    snprintf(mend, sizeof mend, "sed -i 's/-00001-of/-00002-of/' %s", path);
    assert_int_equal(system(mend), 0);
    expect_damage(1);
    expect_loaded("", "checkpoint", true);
    assert_int_equal(truncate(path, 10), 0);
    expect_damage(1);
    assert_int_equal(unlink(path), 0);
    expect_damage(1);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes into it */
    expect_damage(1);
    assert_int_equal(unlink(path), 0);
    snprintf(mend, sizeof mend, "truncate -s 1T %s", path);
    assert_int_equal(system(mend), 0);
    expect_damage(1);
}

static void the_index_names_the_module(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        training_t t;
        job.step = ranks;
        assert_int_equal(spawn(save_model, ranks), TUTTI_OK);
        assert_int_equal(open_training(&t, 3), TUTTI_OK);
        expect_index(&t);
        close_training(&t);
        expect_damage(0);
        expect_loaded("", "checkpoint", true);
        expect_loaded(TT_HF_INDEX_NAME, "Hugging Face", false);
    }
}

/* Its model is not taken for another one's, which has no digests. */
static void without_its_manifest_it_is_read_by_its_index_alone(void **state)
{
    (void)state;
    char path[512];
    tutti_saved_t *saved;
    job.step = 1;
    assert_int_equal(spawn(save_model, 2), TUTTI_OK);
    step_path("manifest.json", path);
    assert_int_equal(unlink(path), 0);
    step_path("", path);
    assert_int_equal(tutti_saved_open(path, &saved), TUTTI_ERR_NOT_FOUND);
    tt_expect_error(": a checkpoint without its manifest.json, so that nothing tells whether "
                    "model-00001-of-00002.safetensors is whole: open its "
                    "model.safetensors.index.json to read the model unchecked");
    expect_loaded(TT_HF_INDEX_NAME, "Hugging Face", false);
}

/* ---- devices --------------------------------------------------------------------------------- */

static tutti_status_t save_on_devices(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tutti_device_t *device;
    tutti_tensor_t *x;
    float values[6];
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_device_open(self->rank == 0 ? "strict:0" : "strict:1", NULL, &device));
    TT_TRY(tt_tensor_new(device, TUTTI_F32, TUTTI_SHAPE(2, 3), true, &x));
    for (int i = 0; i < 6; i++) {
        values[i] = (float)(6 * self->rank + i);
    }
    TT_TRY(tutti_tensor_copy_from(x, values));
    const tutti_slice_t slice =
        tutti_slice_box("w", x, TUTTI_SHAPE(4, 3), (int64_t[]){2 * self->rank, 0});
    const tutti_checkpoint_t checkpoint = {
        .folder = job.folder, .group = world, .slices = &slice, .slice_count = 1, .whole = true};
    const tutti_status_t status = save(&checkpoint);
    tutti_tensor_release(x);
    tutti_device_release(device);
    tutti_group_release(world);
    return status;
}

static void what_lies_on_devices_is_put_together(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        tutti_saved_t *saved;
        tutti_tensor_t *x;
        job.step = i + 1;
        job.is_background = i == 1;
        assert_int_equal(spawn(save_on_devices, 2), TUTTI_OK);
        assert_int_equal(tutti_saved_open(job.folder, &saved), TUTTI_OK);
        assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(4, 3), &x), TUTTI_OK);
        assert_int_equal(tutti_saved_read(saved, "w", (int64_t[]){0, 0}, x), TUTTI_OK);
        for (int k = 0; k < 12; k++) {
            assert_true(tutti_tensor_at(x, k) == k);
        }
        tutti_tensor_release(x);
        tutti_saved_close(saved);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static int failing_allocation; /* of all ranks together; 0: none */
static bool differs;           /* rank 1 saves slices */

/* Nothing half written is left. */
static void expect_clean(void)
{
    DIR *folder = opendir(job.folder);
    assert_non_null(folder);
    for (const struct dirent *item; (item = readdir(folder)) != NULL;) {
        if (strncmp(item->d_name, ".half", 5) == 0 || strncmp(item->d_name, ".old", 4) == 0) {
            fail_msg("%s is left", item->d_name);
        }
    }
    closedir(folder);
}

static tutti_status_t try_save(const tutti_spawned_t *self)
{
    const int rank = self->rank;
    tutti_group_t *world;
    tutti_tensor_t *x;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(8), &x));
    const tutti_slice_t slice =
        tutti_slice_box("w", x, TUTTI_SHAPE(8 * self->size), (int64_t[]){8 * rank});
    const tutti_checkpoint_t checkpoint = {.folder = job.folder,
                                           .group = world,
                                           .slices = &slice,
                                           .slice_count = 1,
                                           .whole = !differs || rank != 1};
    TT_TRY(tutti_barrier(world, NULL));
    if (rank == 0 && failing_allocation > 0) {
        tt_alloc_fail_at((size_t)failing_allocation);
    }
    met[rank] = tutti_checkpoint_save(&checkpoint, job.step);
    snprintf(texts[rank], sizeof texts[rank], "%s", met[rank] < 0 ? tutti_last_error() : "");
    tutti_tensor_release(x);
    tutti_group_release(world);
    return TUTTI_OK;
}

static void other_ways_to_save_are_told(void **state)
{
    (void)state;
    differs = true;
    assert_int_equal(spawn(try_save, 2), TUTTI_OK);
    differs = false;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(met[rank], TUTTI_ERR_MISMATCH);
        assert_non_null(strstr(texts[rank], "rank 1 saves slices, rank 0 whole tensors"));
    }
    expect_clean();
}

/* Whoever it hits, all have a failure; what comes behind the publication fails nobody. */
static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    bool has_failed = true;
    for (failing_allocation = 1; has_failed; failing_allocation++) {
        if (!tt_test_takes((uint64_t)failing_allocation)) {
            continue;
        }
        assert_int_equal(spawn(try_save, 2), TUTTI_OK);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_true((met[0] < 0) == (met[1] < 0));
        assert_true(has_failed || met[0] >= 0);
        expect_clean();
    }
    failing_allocation = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_layout_is_saved_whole, make_place, remove_place),
        cmocka_unit_test_setup_teardown(the_index_names_the_module, make_place, remove_place),
        cmocka_unit_test_setup_teardown(without_its_manifest_it_is_read_by_its_index_alone,
                                        make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_damaged_index_is_found, make_place, remove_place),
        cmocka_unit_test_setup_teardown(what_lies_on_devices_is_put_together, make_place,
                                        remove_place),
        cmocka_unit_test_setup_teardown(other_ways_to_save_are_told, make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, make_place,
                                        remove_place),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
