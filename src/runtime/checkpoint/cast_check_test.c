/* Values that a load with `cast` would change into others are told, and are no values here. */
#include <math.h>

#include <tutti/tutti.h>

#include "runtime/checkpoint/source_testing.h"

static tt_place_of_files_t place;

static tutti_tensor_t *make(tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(dtype, shape, &x), TUTTI_OK);
    return x;
}

/* Of [2, 3] all are 1 but the one of the second row's middle. */
static tutti_status_t load(tutti_dtype_t from, double value, tutti_dtype_t to, double *got)
{
    tutti_tensor_t *wide = make(TUTTI_F64, TUTTI_SHAPE(2, 3)), *x = make(from, TUTTI_SHAPE(2, 3)),
                   *y = make(to, TUTTI_SHAPE(2, 3));
    assert_int_equal(tutti_tensor_fill(wide, 1), TUTTI_OK);
    ((double *)tutti_tensor_data(wide))[4] = value;
    assert_int_equal(tutti_tensor_copy(x, wide), TUTTI_OK);
    const tutti_named_tensor_t named = {"w", x};
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), &named, 1, NULL, 0), 0);
    const tutti_slice_t slice = tutti_slice_whole("w", y);
    const tutti_checkpoint_t checkpoint = {.slices = &slice, .slice_count = 1};
    const tutti_load_options_t cast = {.cast = true};
    const tutti_status_t status =
        tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), &cast);
    *got = tutti_tensor_at(y, 4);
    tutti_tensor_release(wide);
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    return status;
}

static void expect_loaded(tutti_dtype_t from, double value, tutti_dtype_t to, double want)
{
    double got;
    if (load(from, value, to, &got) != TUTTI_OK || !(got == want || (isnan(got) && isnan(want)))) {
        fail_msg("%s %.17g is %s %.17g, not %.17g: %s", tutti_dtype_name(from), value,
                 tutti_dtype_name(to), got, want, tutti_last_error());
    }
}

static void expect_refused(tutti_dtype_t from, double value, tutti_dtype_t to, const char *text)
{
    char want[160];
    double got;
    if (load(from, value, to, &got) != TUTTI_ERR_DTYPE) {
        fail_msg("%s %.17g is %s %.17g", tutti_dtype_name(from), value, tutti_dtype_name(to), got);
    }
    snprintf(want, sizeof want, "tensor \"w\": element [1, 1], %s, is beyond the range of %s", text,
             tutti_dtype_name(to));
    tt_expect_error(want);
}

static void what_fits_is_converted(void **state)
{
    (void)state;
    expect_loaded(TUTTI_F32, -128.9f, TUTTI_I8, -128);
    expect_loaded(TUTTI_F32, 127.9f, TUTTI_I8, 127);
    expect_loaded(TUTTI_F64, -0.9, TUTTI_U8, 0);
    expect_loaded(TUTTI_I32, 255, TUTTI_U8, 255);
    expect_loaded(TUTTI_I64, INT32_MIN, TUTTI_I32, INT32_MIN);
    expect_loaded(TUTTI_F64, INT32_MAX, TUTTI_I32, INT32_MAX);
    expect_loaded(TUTTI_F64, -0x1p63, TUTTI_I64, -0x1p63);
    expect_loaded(TUTTI_F64, 0x1.fffffefp127, TUTTI_F32, 0x1.fffffep127);
    expect_loaded(TUTTI_F64, 1e-300, TUTTI_F32, 0);
    expect_loaded(TUTTI_F32, 65519, TUTTI_F16, 65504);
    expect_loaded(TUTTI_F32, 0x1.fefffep127, TUTTI_BF16, 0x1.fep127);
    expect_loaded(TUTTI_F32, NAN, TUTTI_F16, NAN);
    expect_loaded(TUTTI_F64, -INFINITY, TUTTI_F32, -INFINITY);
    expect_loaded(TUTTI_F32, NAN, TUTTI_BOOL, 1);
    expect_loaded(TUTTI_F16, 3, TUTTI_BOOL, 1);
}

static void what_does_not_is_an_error(void **state)
{
    (void)state;
    expect_refused(TUTTI_F32, 128, TUTTI_I8, "128");
    expect_refused(TUTTI_F32, -129, TUTTI_I8, "-129");
    expect_refused(TUTTI_F16, -1, TUTTI_U8, "-1");
    expect_refused(TUTTI_I8, -1, TUTTI_U8, "-1");
    expect_refused(TUTTI_U8, 128, TUTTI_I8, "128");
    expect_refused(TUTTI_I64, 2147483648, TUTTI_I32, "2147483648");
    expect_refused(TUTTI_F64, -2147483649, TUTTI_I32, "-2147483649");
    expect_refused(TUTTI_F32, 0x1p63, TUTTI_I64, "9.22337203685478e+18");
    expect_refused(TUTTI_BF16, INFINITY, TUTTI_I64, "inf");
    expect_refused(TUTTI_F64, NAN, TUTTI_I32, "nan");
    expect_refused(TUTTI_F64, 1e39, TUTTI_F32, "1e+39");
    expect_refused(TUTTI_F64, 0x1.ffffffp127, TUTTI_F32, "3.40282356779734e+38");
    expect_refused(TUTTI_F32, -65520, TUTTI_F16, "-65520");
    expect_refused(TUTTI_I32, 70000, TUTTI_F16, "70000");
    expect_refused(TUTTI_F32, 0x1.ffp127, TUTTI_BF16, "3.39617752923046e+38");
}

/* Far into a large one, of which a rank has some columns; also where it lies transposed. */
static void the_element_is_that_of_the_whole_tensor(void **state)
{
    (void)state;
    enum { ROWS = 3000, COLUMNS = 1500, FIRST = 700, WIDE = 800 };
    tutti_tensor_t *x = make(TUTTI_F64, TUTTI_SHAPE(ROWS, COLUMNS)),
                   *y = make(TUTTI_I8, TUTTI_SHAPE(ROWS, WIDE)),
                   *t = make(TUTTI_I8, TUTTI_SHAPE(COLUMNS, ROWS));
    assert_int_equal(tutti_tensor_fill(x, 1), TUTTI_OK);
    ((double *)tutti_tensor_data(x))[2999 * COLUMNS + 1234] = 1000;
    const tutti_named_tensor_t named = {"w", x};
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), &named, 1, NULL, 0), 0);
    const tutti_slice_t slices[] = {
        tutti_slice_box("w", y, TUTTI_SHAPE(ROWS, COLUMNS), (int64_t[]){0, FIRST}),
        tutti_slice_whole("w", t)};
    static const tutti_load_rule_t transposed = {"w", "w", true};
    for (int i = 0; i < 2; i++) {
        const tutti_checkpoint_t checkpoint = {.slices = slices + i, .slice_count = 1};
        const tutti_load_options_t cast = {
            .cast = true, .rules = &transposed, .rule_count = (size_t)i};
        assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), &cast),
                         TUTTI_ERR_DTYPE);
        tt_expect_error("element [2999, 1234], 1000, is beyond the range of i8");
    }
    tutti_tensor_release(x);
    tutti_tensor_release(y);
    tutti_tensor_release(t);
}

static int begin(void **state)
{
    (void)state;
    tt_begin_files(&place);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tt_end_files(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_fits_is_converted, begin, end),
        cmocka_unit_test_setup_teardown(what_does_not_is_an_error, begin, end),
        cmocka_unit_test_setup_teardown(the_element_is_that_of_the_whole_tensor, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
