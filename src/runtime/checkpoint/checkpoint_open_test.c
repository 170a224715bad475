/* Checkpoints read without a group: boxes of tensors, mistakes, want of memory. What the calls
 * find in damaged and different ones is seen through tests/multi/checkpoint_cli_test.py. */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/checkpoint_files.h>

#include "core/base/folder.h"
#include "runtime/checkpoint/layout_testing.h"
#include "runtime/checkpoint/saved_impl.h"

static char folder[64], step_folder[96];

static void save(int64_t step)
{
    tt_laid_t laid;
    tt_lay(&laid, TT_LAYOUT_replicated, 0, 1);
    assert_int_equal(tt_lay_all(&laid, tt_layout_set), TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {
        .folder = folder, .slices = laid.slices, .slice_count = laid.count};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, step), TUTTI_OK);
    tt_lay_end(&laid);
}

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/tutti-saved-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    save(3);
    save(12);
    snprintf(step_folder, sizeof step_folder, "%s/step-%012d", folder, 12);
    return 0;
}

static int end(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return tt_nothing_is_left(state) + system(command);
}

static void boxes_are_read(void **state)
{
    (void)state;
    tutti_saved_t *saved;
    tutti_tensor_t *x;
    assert_int_equal(tutti_saved_open(folder, &saved), TUTTI_OK);
    const tutti_saved_about_t about = tutti_saved_describe(saved);
    assert_string_equal(about.path, step_folder);
    assert_int_equal(about.step, 12);
    assert_int_equal(about.tensors, TT_LAYOUT_TENSORS);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(7, 9), &x), TUTTI_OK);
    const int64_t offset[] = {300, 61};
    assert_int_equal(tutti_saved_read(saved, "embedding", offset, x), TUTTI_OK);
    for (int64_t i = 0; i < 7 * 9; i++) {
        const int64_t element = (300 + i / 9) * 70 + 61 + i % 9;
        assert_true(tutti_tensor_at(x, i) == tt_layout_value("embedding", element));
    }
    tutti_tensor_release(x);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(0, 3), &x), TUTTI_OK);
    assert_int_equal(tutti_saved_read(saved, "empty", (int64_t[]){0, 0}, x), TUTTI_OK);
    tutti_tensor_release(x);
    tutti_saved_close(saved);
}

static void expect_refused(tutti_saved_t *saved, const char *name, tutti_dtype_t dtype,
                           tutti_shape_t shape, tutti_status_t status, const char *text)
{
    tutti_tensor_t *x;
    const int64_t offset[TUTTI_RANK_MAX] = {0, 1};
    assert_int_equal(tutti_tensor_create(dtype, shape, &x), TUTTI_OK);
    assert_int_equal(tutti_saved_read(saved, name, offset, x), status);
    assert_non_null(strstr(tutti_last_error(), text));
    tutti_tensor_release(x);
}

static void names_are_changed(void **state)
{
    (void)state;
    const tutti_load_rule_t rules[] = {{"emb*", "other.*", true}, {"r*", "*r", false}};
    tutti_saved_t *saved;
    tutti_saved_tensor_t tensor;
    tutti_tensor_t *x;
    assert_int_equal(tutti_saved_open(folder, &saved), TUTTI_OK);
    assert_int_equal(tutti_saved_rename(saved, rules, 2, true), TUTTI_OK);
    assert_int_equal(tutti_saved_find(saved, "embedding", &tensor), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_saved_find(saved, "owr", &tensor), TUTTI_OK);
    assert_int_equal(tutti_saved_find(saved, "other.edding", &tensor), TUTTI_OK);
    assert_true(tutti_shape_equal(tensor.shape, TUTTI_SHAPE(70, 311)));
    assert_true(tensor.slices > 0);
    assert_int_equal(tutti_saved_describe(saved).tensors, TT_LAYOUT_TENSORS);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(9, 7), &x), TUTTI_OK);
    assert_int_equal(tutti_saved_read(saved, "other.edding", (int64_t[]){61, 300}, x), TUTTI_OK);
    for (int64_t i = 0; i < 9 * 7; i++) {
        const int64_t element = (300 + i % 7) * 70 + 61 + i / 7;
        assert_true(tutti_tensor_at(x, i) == tt_layout_value("embedding", element));
    }
    tutti_tensor_release(x);
    assert_int_equal(tutti_saved_rename(saved, rules, 2, false), TUTTI_OK);
    assert_int_equal(tutti_saved_find(saved, "embedding", &tensor), TUTTI_OK);
    assert_true(tutti_shape_equal(tensor.shape, TUTTI_SHAPE(311, 70)));
    tutti_saved_close(saved);
}

/* By the names that they have now, and in the tensor as it is now; bytes are those in the file. */
static void parts_are_found_under_other_names(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"emb*", "other.*", true}, {"cube", "box", false}};
    static const char *const chosen[] = {"other.*"};
    tutti_saved_t *saved;
    tutti_saved_tensor_t tensor;
    tutti_saved_part_t part;
    assert_int_equal(tutti_saved_open(step_folder, &saved), TUTTI_OK);
    assert_int_equal(tutti_saved_part_at(saved, 0, 0, &part), TUTTI_OK);
    const tutti_saved_part_t before = part;
    assert_int_equal(tutti_saved_rename(saved, rules, 2, true), TUTTI_OK);
    assert_int_equal(tutti_saved_select(saved, chosen, 1, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_saved_cast(saved, TUTTI_F16), TUTTI_OK);
    assert_int_equal(tutti_saved_at(saved, 0, &tensor), TUTTI_OK);
    assert_string_equal(tensor.name, "other.edding");
    assert_true(tensor.slices > 0);
    size_t count = 0;
    for (; tutti_saved_part_at(saved, 0, count, &part) == TUTTI_OK; count++) {
        assert_true(part.offset[0] + part.shape.dims[0] <= 70);
        assert_true(part.offset[1] + part.shape.dims[1] <= 311);
        assert_int_equal(part.bytes, 4 * tutti_shape_numel(part.shape));
    }
    assert_int_equal(count, tensor.slices);
    assert_int_equal(tutti_saved_find(saved, "other.edding", &tensor), TUTTI_OK);
    assert_int_equal(tensor.slices, count);
    assert_int_equal(tutti_saved_part_at(saved, 0, 0, &part), TUTTI_OK);
    assert_int_equal(part.shape.dims[0], before.shape.dims[1]);
    assert_int_equal(part.offset[0], before.offset[1]);
    assert_int_equal(part.at, before.at);
    assert_string_equal(part.file, before.file);
    assert_int_equal(tutti_saved_part_at(saved, 1, 0, &part), TUTTI_END);
    tutti_saved_close(saved);
}

/* Step 9, of hosts that have a file each, "f0", "f1" …, and copies on the two next ones; not the
 * files. */
static void save_of_hosts(int hosts)
{
    char path[160], name[32];
    tt_manifest_t *manifest;
    assert_int_equal(tt_manifest_create(9, 1, &manifest), TUTTI_OK);
    manifest->copies = 3;
    for (int i = 0; i < hosts; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_int_equal(tt_manifest_add_host(manifest, name), TUTTI_OK);
        assert_int_equal(tt_manifest_add_file(manifest, name, NULL), TUTTI_OK);
        manifest->files[i].host = i;
    }
    snprintf(path, sizeof path, "%s/step-000000000009", folder);
    assert_int_equal(tt_folder_make(path), TUTTI_OK);
    snprintf(path, sizeof path, "%s/step-000000000009/manifest.json", folder);
    assert_int_equal(tt_manifest_write(path, manifest), TUTTI_OK);
    tt_manifest_release(manifest);
}

/* Looking at all files for each host would take hours. Copies are counted around. */
static void the_host_of_a_folder_is_found_among_many(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    char path[160];
    tutti_saved_t *saved;
    save_of_hosts(MANY);
    static const int files[] = {MANY - 1, 0, 1};
    for (int i = 0; i < 3; i++) { /* on hosts MANY - 1, 0, 1; and 0, 1, 2; and 1, 2, 3 */
        static const char *const hosts[] = {"f0", "f0", "f1"};
        snprintf(path, sizeof path, "%s/step-000000000009/f%d", folder, files[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        snprintf(path, sizeof path, "%s/step-000000000009", folder);
        assert_int_equal(tutti_saved_open(path, &saved), TUTTI_OK);
        assert_int_equal(tutti_saved_describe(saved).hosts, MANY);
        assert_string_equal(tutti_saved_describe(saved).host, hosts[i]);
        tutti_saved_close(saved);
    }
}

/* It is not taken for one of nobody. */
static void where_memory_is_short_no_host_is_guessed(void **state)
{
    (void)state;
    char path[160];
    tutti_saved_t *saved;
    bool has_failed = true;
    save_of_hosts(4);
    snprintf(path, sizeof path, "%s/step-000000000009", folder);
    for (size_t n = 1; has_failed; n++) {
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_saved_open(path, &saved);
        has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (status >= 0) {
            tutti_saved_close(saved);
        }
    }
}

static void mistakes_are_told(void **state)
{
    (void)state;
    tutti_saved_t *saved;
    tutti_saved_tensor_t tensor;
    tutti_saved_part_t part;
    tutti_tensor_t *x;
    assert_int_equal(tutti_saved_open(step_folder, &saved), TUTTI_OK);
    expect_refused(saved, "embeding", TUTTI_F32, TUTTI_SHAPE(1, 1), TUTTI_ERR_NOT_FOUND,
                   "no tensor \"embeding\": the nearest is \"embedding\"");
    expect_refused(saved, "embedding", TUTTI_F32, TUTTI_SHAPE(1, 70), TUTTI_ERR_SHAPE,
                   "[0:1, 1:71] is no part of tensor \"embedding\", which is [311, 70]");
    expect_refused(saved, "embedding", TUTTI_F32, TUTTI_SHAPE(7), TUTTI_ERR_SHAPE, "no part of");
    assert_int_equal(tutti_saved_find(saved, "cube", &tensor), TUTTI_OK);
    assert_int_equal(tensor.bytes, 144);
    assert_int_equal(tutti_saved_find(saved, "cub", &tensor), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(3), &x), TUTTI_OK);
    assert_int_equal(tt_saved_read_window(saved, "cub", NULL, 0, x), TUTTI_ERR_NOT_FOUND);
    tutti_tensor_release(x);
    assert_int_equal(tutti_saved_at(saved, TT_LAYOUT_TENSORS, &tensor), TUTTI_END);
    assert_int_equal(tutti_saved_part_at(saved, 0, 1, &part), TUTTI_END);
    assert_int_equal(tutti_saved_part_at(saved, TT_LAYOUT_TENSORS, 0, &part), TUTTI_END);
    assert_int_equal(tutti_checkpoint_remove(folder, 4), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_checkpoint_remove(folder, -1), TUTTI_ERR_NOT_FOUND);
    tutti_saved_close(saved);
    tutti_saved_close(NULL);
}

/* All that writes; what is there is replaced. */
static tutti_status_t write_all(tutti_saved_t *saved)
{
    char path[128];
    const tutti_load_rule_t transposed = {"emb*", "other.*", true};
    const tutti_merge_options_t options = {.shard_bytes = 900};
    snprintf(path, sizeof path, "%s/one.safetensors", folder);
    TT_TRY(tutti_saved_rename(saved, &transposed, 1, true));
    TT_TRY(tutti_saved_merge(saved, path, NULL));
    snprintf(path, sizeof path, "%s/shards", folder);
    (void)tt_folder_remove(path); /* there is none at first */
    TT_TRY(tutti_saved_merge(saved, path, &options));
    snprintf(path, sizeof path, "%s/split", folder);
    return tutti_saved_split(saved, path, 3, NULL);
}

/* All that reads, without anybody who is told. */
static tutti_status_t read_all(void)
{
    tutti_saved_t *saved;
    tutti_buffer_t steps;
    size_t damage = 7, tensors = 7;
    TT_TRY(tutti_checkpoint_list(folder, &steps));
    assert_int_equal(steps.bytes, 2 * sizeof(tutti_checkpoint_step_t));
    tutti_buffer_release(&steps);
    TT_TRY(tutti_saved_open(folder, &saved));
    tutti_status_t status = tutti_saved_check(saved);
    status = status < 0 ? status : tutti_saved_verify(saved, NULL, &damage);
    assert_int_equal(damage, status < 0 ? 7 : 0);
    status = status < 0 ? status : tutti_saved_diff(saved, saved, NULL, &tensors);
    assert_int_equal(tensors, status < 0 ? 7 : 0);
    status = status < 0 ? status : write_all(saved);
    tutti_saved_close(saved);
    return status;
}

static void want_of_memory_is_told(void **state)
{
    (void)state;
    for (size_t n = 1;; n++) {
        tt_alloc_fail_at(n);
        const tutti_status_t status = read_all();
        const bool has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        if (!has_failed) {
            assert_int_equal(status, TUTTI_OK);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, TUTTI_ERR_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(boxes_are_read, begin, end),
        cmocka_unit_test_setup_teardown(names_are_changed, begin, end),
        cmocka_unit_test_setup_teardown(parts_are_found_under_other_names, begin, end),
        cmocka_unit_test_setup_teardown(the_host_of_a_folder_is_found_among_many, begin, end),
        cmocka_unit_test_setup_teardown(where_memory_is_short_no_host_is_guessed, begin, end),
        cmocka_unit_test_setup_teardown(mistakes_are_told, begin, end),
        cmocka_unit_test_setup_teardown(want_of_memory_is_told, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
