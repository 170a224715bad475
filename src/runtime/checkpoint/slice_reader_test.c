/* Reading slices: how often files are opened, what is read beside, what is refused. */

#include <tutti/checkpoint.h>

#include "core/base/place_testing.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/checkpoint_impl.h"
#include "runtime/checkpoint/slice_reader.h"
#include "runtime/checkpoint/step_folders.h"

typedef struct {
    char folder[TT_PLACE_BYTES];
    tt_path_t step;
    tt_manifest_t *manifest;
} saved_t;

/* The one checkpoint of a new folder. */
static void save(const tutti_slice_t *slices, size_t count, saved_t *saved)
{
    tt_path_t path;
    tt_place_make(saved->folder);
    const tutti_checkpoint_t checkpoint = {
        .folder = saved->folder, .slices = slices, .slice_count = count};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    tt_steps_name(saved->folder, 1, saved->step);
    tt_steps_file(saved->step, TT_MANIFEST_NAME, path);
    assert_int_equal(tt_manifest_read(path, &saved->manifest), TUTTI_OK);
}

static void forget(saved_t *saved)
{
    tt_manifest_release(saved->manifest);
    tt_place_remove(saved->folder);
}

static tutti_tensor_t *make(tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(dtype, shape, &x), TUTTI_OK);
    return x;
}

/* The whole of a saved tensor. */
static tutti_status_t read_whole(tt_slice_reader_t *reader, const saved_t *saved, const char *name,
                                 tutti_tensor_t *x)
{
    const tt_saved_tensor_t *tensor = tt_manifest_find(saved->manifest, name);
    const tt_box_t box = tt_box_of(tensor->shape);
    return tt_slice_reader_read(reader, tensor, &box, x);
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { MANY = 10000, FLOATS = 256, NAME = 16 };

static void ten_thousand_tensors_open_two_files(void **state)
{
    (void)state;
    saved_t saved;
    tt_slice_reader_t reader;
    char(*names)[NAME] = tt_alloc_array(MANY, sizeof *names, "test");
    tutti_slice_t *slices = tt_alloc_array(MANY, sizeof *slices, "test");
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], NAME, "layer.%d", i);
        slices[i] = tutti_slice_whole(names[i], make(TUTTI_F32, TUTTI_SHAPE(FLOATS)));
        ((float *)tutti_tensor_data(slices[i].tensor))[7] = (float)i;
    }
    save(slices, MANY, &saved);
    tutti_tensor_t *x = make(TUTTI_F32, TUTTI_SHAPE(FLOATS));
    assert_int_equal(tt_slice_reader_open(&reader, saved.step, saved.manifest), TUTTI_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(read_whole(&reader, &saved, names[i], x), TUTTI_OK);
        assert_true(tutti_tensor_at(x, 7) == i);
    }
    assert_int_equal(reader.files.opened, 2);
    tt_slice_reader_close(&reader);
    tutti_tensor_release(x);
    for (int i = 0; i < MANY; i++) {
        tutti_tensor_release(slices[i].tensor);
    }
    tt_free(slices);
    tt_free(names);
    forget(&saved);
}

/* One tensor in as many slices, and so in as many files. */
enum { ROWS = 50 };

static void of_more_files_than_stay_open_the_least_recently_used_go(void **state)
{
    (void)state;
    saved_t saved;
    tt_slice_reader_t reader;
    tutti_slice_t slices[ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        slices[i] = tutti_slice_box("w", make(TUTTI_I32, TUTTI_SHAPE(1, 3)), TUTTI_SHAPE(ROWS, 3),
                                    (int64_t[]){i, 0});
        ((int *)tutti_tensor_data(slices[i].tensor))[1] = (int)i;
    }
    save(slices, ROWS, &saved);
    assert_int_equal(saved.manifest->file_count, ROWS);
    tutti_tensor_t *x = make(TUTTI_I32, TUTTI_SHAPE(ROWS, 3));
    const int before = tt_count_descriptors();
    assert_int_equal(tt_slice_reader_open(&reader, saved.step, saved.manifest), TUTTI_OK);
    assert_int_equal(read_whole(&reader, &saved, "w", x), TUTTI_OK);
    for (int64_t i = 0; i < ROWS; i++) {
        assert_true(tutti_tensor_at(x, 3 * i + 1) == (double)i);
    }
    assert_int_equal(reader.files.opened, 2 * ROWS);
    assert_int_equal(tt_count_descriptors(), before + TT_OPEN_FILES_MAX);
    const tt_box_t last = {2, {ROWS - 32, 0}, {32, 3}}, first = {2, {0, 0}, {1, 3}};
    tutti_tensor_t *rows = make(TUTTI_I32, TUTTI_SHAPE(32, 3)),
                   *row = make(TUTTI_I32, TUTTI_SHAPE(1, 3));
    const tt_saved_tensor_t *w = tt_manifest_find(saved.manifest, "w");
    assert_int_equal(tt_slice_reader_read(&reader, w, &last, rows), TUTTI_OK); /* still open */
    assert_int_equal(reader.files.opened, 2 * ROWS);
    assert_int_equal(tt_slice_reader_read(&reader, w, &first, row), TUTTI_OK);
    assert_int_equal(reader.files.opened, 2 * ROWS + 2);
    assert_int_equal(tt_slice_reader_read(&reader, w, &last, rows), TUTTI_OK);
    assert_true(tutti_tensor_at(rows, 1) == ROWS - 32);
    tt_slice_reader_close(&reader);
    assert_int_equal(tt_count_descriptors(), before);
    for (int i = 0; i < ROWS; i++) {
        tutti_tensor_release(slices[i].tensor);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(rows);
    tutti_tensor_release(row);
    forget(&saved);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Of another dtype, transposed, and more than is read beside at once, in rows and within one. */
static void what_cannot_be_read_in_place_is_copied_in_parts(void **state)
{
    (void)state;
    static const tutti_shape_t shapes[] = {{2, {5, 1100003}}, {2, {1, 5300003}}, {2, {3, 5}}};
    static const uint64_t reads[] = {3, 3, 2}; /* of digests once, and of each part */
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        saved_t saved;
        tt_slice_reader_t reader;
        const int64_t rows = shapes[k].dims[0], columns = shapes[k].dims[1];
        tutti_tensor_t *from = make(TUTTI_F32, shapes[k]), *view,
                       *to = make(TUTTI_F64, TUTTI_SHAPE(columns, rows));
        float *values = tutti_tensor_data(from);
        for (int64_t i = 0; i < rows * columns; i++) {
            values[i] = (float)(i % 16777213);
        }
        const tutti_slice_t slice = tutti_slice_whole("w", from);
        save(&slice, 1, &saved);
        assert_int_equal(
            tt_tensor_over(to->storage, TUTTI_F64, shapes[k], (int64_t[]){1, rows}, 0, &view),
            TUTTI_OK);
        assert_int_equal(tt_slice_reader_open(&reader, saved.step, saved.manifest), TUTTI_OK);
        assert_int_equal(read_whole(&reader, &saved, "w", view), TUTTI_OK);
        assert_int_equal(reader.files.calls, reads[k]);
        tt_slice_reader_close(&reader);
        const double *read = tutti_tensor_data(to);
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < columns; j++) {
                if (read[j * rows + i] != (double)values[i * columns + j]) {
                    fail_msg("[%lld, %lld]", (long long)i, (long long)j);
                }
            }
        }
        tutti_tensor_release(from);
        tutti_tensor_release(view);
        tutti_tensor_release(to);
        forget(&saved);
    }
}

static void what_no_slice_has_is_an_error(void **state)
{
    (void)state;
    saved_t saved;
    tt_slice_reader_t reader;
    tutti_tensor_t *x = make(TUTTI_F32, TUTTI_SHAPE(4));
    const tutti_slice_t slice = tutti_slice_whole("w", x);
    save(&slice, 1, &saved);
    tt_saved_slice_t *only = saved.manifest->tensors[0].slices;
    assert_int_equal(tt_slice_reader_open(&reader, saved.step, saved.manifest), TUTTI_OK);
    only->box.size[0] = 3;
    reader.known = only; /* its digests are not what is looked at */
    only->file = 1;
    assert_int_equal(read_whole(&reader, &saved, "w", x), TUTTI_ERR_FORMAT);
    tt_expect_error("a slice in no file");
    only->file = TT_NO_FILE;
    assert_int_equal(read_whole(&reader, &saved, "w", x), TUTTI_ERR_FORMAT);
    tt_expect_error("a slice in no file");
    only->file = 0;
    only->box.size[0] = 4;
    saved.manifest->tensors[0].slice_count = 0;
    assert_int_equal(read_whole(&reader, &saved, "w", x), TUTTI_ERR_FORMAT);
    tt_expect_error("tensor \"w\": 4 elements are in no slice");
    tt_slice_reader_close(&reader);
    tutti_tensor_release(x);
    forget(&saved);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", ".", "..", "/etc/passwd", "a/b", "../a"};
    tt_manifest_t *manifest;
    assert_int_equal(tt_manifest_create(0, 1, &manifest), TUTTI_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(tt_manifest_add_file(manifest, names[i], NULL), TUTTI_ERR_FORMAT);
        tt_expect_error("is no name of a file in the checkpoint's folder");
        assert_int_equal(tt_manifest_add_file(manifest, "a", names[i]), TUTTI_ERR_FORMAT);
    }
    tt_manifest_release(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_thousand_tensors_open_two_files),
        cmocka_unit_test(of_more_files_than_stay_open_the_least_recently_used_go),
        cmocka_unit_test(what_cannot_be_read_in_place_is_copied_in_parts),
        cmocka_unit_test(what_no_slice_has_is_an_error),
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
