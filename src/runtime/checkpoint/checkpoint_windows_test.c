/* Tensors that are longer than a window, into other files: in little memory, and bit for bit. */
#include <tutti/checkpoint_files.h>

#include "runtime/checkpoint/source_testing.h"

enum { WINDOW = 16 << 20, MORE = 3 << 20 };

static size_t begin_bytes, peak_bytes;

static void note_peak(void *user, uint64_t bytes, uint64_t all)
{
    (void)user;
    (void)bytes;
    (void)all;
    const size_t now = tt_alloc_stats().bytes;
    peak_bytes = now > peak_bytes ? now : peak_bytes;
}

static const tutti_saved_watch_t watch = {.progress = note_peak};

/* In its middle a row that is as long as two windows; no number is there twice in a window. */
static void write_long(const char *path)
{
    tutti_tensor_t *x, *row;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3000, 3001), &x), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(1, 4200000), &row), TUTTI_OK);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        ((float *)tutti_tensor_data(x))[i] = (float)i;
    }
    for (int64_t i = 0; i < tutti_tensor_numel(row); i++) {
        ((int64_t *)tutti_tensor_data(row))[i] = i;
    }
    const tutti_named_tensor_t tensors[] = {{"x", x}, {"row", row}};
    assert_int_equal(tutti_safetensors_save(path, tensors, 2, NULL, 0), TUTTI_OK);
    tutti_tensor_release(x);
    tutti_tensor_release(row);
}

static tutti_saved_t *open_saved(const char *path)
{
    tutti_saved_t *saved;
    assert_int_equal(tutti_saved_open(path, &saved), TUTTI_OK);
    begin_bytes = peak_bytes = tt_alloc_stats().bytes;
    return saved;
}

static void expect_same(const tt_place_of_files_t *place, const char *a, const char *b)
{
    tutti_saved_t *one, *other;
    size_t count;
    assert_int_equal(tutti_saved_open(tt_file_of(place, a), &one), TUTTI_OK);
    assert_int_equal(tutti_saved_open(tt_file_of(place, b), &other), TUTTI_OK);
    assert_int_equal(tutti_saved_diff(one, other, NULL, &count), TUTTI_OK);
    assert_int_equal(count, 0);
    tutti_saved_close(one);
    tutti_saved_close(other);
}

static void expect_peak(size_t windows)
{
    if (peak_bytes <= begin_bytes || peak_bytes - begin_bytes > windows * WINDOW + MORE) {
        fail_msg("%zu bytes more at its peak, want up to %zu windows", peak_bytes - begin_bytes,
                 windows);
    }
}

static void long_tensors_are_written_in_windows(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    tt_begin_files(&place);
    write_long(tt_file_of(&place, "a.safetensors"));
    tutti_saved_t *saved = open_saved(tt_file_of(&place, "a.safetensors"));
    assert_int_equal(tutti_saved_merge(saved, tt_file_of(&place, "b.safetensors"),
                                       &(tutti_merge_options_t){.watch = &watch}),
                     TUTTI_OK);
    expect_peak(1);
    peak_bytes = 0;
    assert_int_equal(tutti_saved_split(saved, tt_file_of(&place, "steps"), 1, &watch), TUTTI_OK);
    expect_peak(1);
    tutti_saved_close(saved);
    expect_same(&place, "a.safetensors", "b.safetensors");
    expect_same(&place, "a.safetensors", "steps");
    tt_end_files(&place);
}

static void what_is_transposed_is_written_in_windows(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"x", "x", true}};
    tt_place_of_files_t place;
    tutti_tensor_t *part;
    tt_begin_files(&place);
    write_long(tt_file_of(&place, "a.safetensors"));
    tutti_saved_t *saved = open_saved(tt_file_of(&place, "a.safetensors"));
    assert_int_equal(tutti_saved_rename(saved, rules, 1, true), TUTTI_OK);
    assert_int_equal(tutti_saved_split(saved, tt_file_of(&place, "steps"), 1, &watch), TUTTI_OK);
    expect_peak(1);
    tutti_saved_close(saved);
    saved = open_saved(tt_file_of(&place, "steps"));
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3, 3000), &part), TUTTI_OK);
    assert_int_equal(tutti_saved_read(saved, "x", (int64_t[]){1397, 0}, part), TUTTI_OK);
    for (int64_t i = 0; i < 3 * 3000; i++) {
        assert_true(tutti_tensor_at(part, i) == (double)(i % 3000 * 3001 + 1397 + i / 3000));
    }
    tutti_tensor_release(part);
    tutti_saved_close(saved);
    tt_end_files(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_tensors_are_written_in_windows),
        cmocka_unit_test(what_is_transposed_is_written_in_windows),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
