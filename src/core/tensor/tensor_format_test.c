/* Tensors as text: what NumPy 2 prints of the same numbers. */
#include "core/base/testing.h"

#include <math.h>
#include <tutti/tutti.h>

#include "core/base/alloc.h"
#include "core/base/comma_testing.h"

static tutti_context_t *ctx;
static tutti_scope_t *s;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(tutti_context_create(NULL, &ctx), 0);
    return tutti_scope_open(ctx, &s);
}

static int teardown(void **state)
{
    (void)state;
    (void)tutti_scope_close(s);
    tutti_context_release(ctx);
    return tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static void expect(const tutti_tensor_t *x, const char *want)
{
    char text[4096], few[8];
    assert_int_equal(tutti_tensor_format(x, NULL, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
    assert_int_equal(tutti_tensor_format(x, NULL, NULL, 0), strlen(want));
    assert_int_equal(tutti_tensor_format(x, NULL, few, sizeof few), strlen(want));
    assert_true(strlen(few) < sizeof few && strncmp(few, want, strlen(few)) == 0);
}

#define F32(...)                                                                                   \
    tutti_from_data(s, TUTTI_F32,                                                                  \
                    TUTTI_SHAPE((int64_t)(sizeof((float[]){__VA_ARGS__}) / sizeof(float))),        \
                    (float[]){__VA_ARGS__})

static void columns_are_even(void **state)
{
    (void)state;
    expect(tutti_from_data(s, TUTTI_F32, TUTTI_SHAPE(2, 3), (float[]){1, 2.5F, -3, 4, 0, 6}),
           "[[ 1.   2.5 -3. ]\n [ 4.   0.   6. ]]");
    expect(F32(-0.0F, 1), "[-0.  1.]");
    expect(tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(3), (double[]){0.1, 1.0 / 3, 2.0 / 3}),
           "[0.1        0.33333333 0.66666667]");
    expect(tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(2, 2),
                           (int64_t[]){1, -20, 300, 9007199254740993}),
           "[[               1              -20]\n [             300 9007199254740993]]");
    expect(tutti_from_data(s, TUTTI_BOOL, TUTTI_SHAPE(2), (bool[]){true, false}), "[ True False]");
}

static void large_and_small_numbers_have_exponents(void **state)
{
    (void)state;
    expect(F32(0.1F, 1.0F / 3, 100.25F), "[1.0000000e-01 3.3333334e-01 1.0025000e+02]");
    expect(F32(1e-5F, 1, 2), "[1.e-05 1.e+00 2.e+00]");
    expect(F32(1e10F, -2.5F, 0), "[ 1.0e+10 -2.5e+00  0.0e+00]");
    expect(tutti_from_data(s, TUTTI_F64, TUTTI_SHAPE(2), (double[]){123456789.125, 1}),
           "[1.23456789e+08 1.00000000e+00]");
    expect(tutti_cast(s, F32(0.1F, 65504, 2), TUTTI_F16), "[1.00e-01 6.55e+04 2.00e+00]");
}

static void what_is_no_number(void **state)
{
    (void)state;
    expect(F32(NAN, 1, -INFINITY), "[ nan   1. -inf]");
    expect(F32(NAN, INFINITY), "[nan inf]");
}

static void shapes(void **state)
{
    (void)state;
    expect(tutti_full(s, TUTTI_F32, TUTTI_SCALAR, 3.5), "3.5");
    expect(tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(0, 3)), "[]");
    expect(tutti_reshape(s, tutti_arange(s, TUTTI_F32, 0, 1, 24), TUTTI_SHAPE(2, 3, 4)),
           "[[[ 0.  1.  2.  3.]\n  [ 4.  5.  6.  7.]\n  [ 8.  9. 10. 11.]]\n\n"
           " [[12. 13. 14. 15.]\n  [16. 17. 18. 19.]\n  [20. 21. 22. 23.]]]");
    tutti_tensor_t *x = tutti_reshape(s, tutti_arange(s, TUTTI_F32, 0, 1, 6), TUTTI_SHAPE(2, 3));
    expect(tutti_transpose(s, x, 0, 1), "[[0. 3.]\n [1. 4.]\n [2. 5.]]");
}

static void long_lines_are_folded(void **state)
{
    (void)state;
    expect(tutti_mul_scalar(s, tutti_arange(s, TUTTI_F32, 0, 1, 40), 0.125),
           "[0.    0.125 0.25  0.375 0.5   0.625 0.75  0.875 1.    1.125 1.25  1.375\n"
           " 1.5   1.625 1.75  1.875 2.    2.125 2.25  2.375 2.5   2.625 2.75  2.875\n"
           " 3.    3.125 3.25  3.375 3.5   3.625 3.75  3.875 4.    4.125 4.25  4.375\n"
           " 4.5   4.625 4.75  4.875]");
    /* A fifteenth would end in column 75, which is the bracket's. */
    expect(tutti_mul_scalar(s, tutti_arange(s, TUTTI_F32, 0, 1, 20), 0.25),
           "[0.   0.25 0.5  0.75 1.   1.25 1.5  1.75 2.   2.25 2.5  2.75 3.   3.25\n"
           " 3.5  3.75 4.   4.25 4.5  4.75]");
}

static void of_many_elements_the_outer_ones_are_shown(void **state)
{
    (void)state;
    expect(tutti_arange(s, TUTTI_F32, 0, 1, 2000),
           "[0.000e+00 1.000e+00 2.000e+00 ... 1.997e+03 1.998e+03 1.999e+03]");
    expect(tutti_reshape(s, tutti_mul_scalar(s, tutti_arange(s, TUTTI_F32, 0, 1, 2048), 0.25),
                         TUTTI_SHAPE(64, 32)),
           "[[0.0000e+00 2.5000e-01 5.0000e-01 ... 7.2500e+00 7.5000e+00 7.7500e+00]\n"
           " [8.0000e+00 8.2500e+00 8.5000e+00 ... 1.5250e+01 1.5500e+01 1.5750e+01]\n"
           " [1.6000e+01 1.6250e+01 1.6500e+01 ... 2.3250e+01 2.3500e+01 2.3750e+01]\n"
           " ...\n"
           " [4.8800e+02 4.8825e+02 4.8850e+02 ... 4.9525e+02 4.9550e+02 4.9575e+02]\n"
           " [4.9600e+02 4.9625e+02 4.9650e+02 ... 5.0325e+02 5.0350e+02 5.0375e+02]\n"
           " [5.0400e+02 5.0425e+02 5.0450e+02 ... 5.1125e+02 5.1150e+02 5.1175e+02]]");
    expect(tutti_reshape(s, tutti_arange(s, TUTTI_I64, 0, 1, 1002), TUTTI_SHAPE(2, 3, 167)),
           "[[[   0    1    2 ...  164  165  166]\n  [ 167  168  169 ...  331  332  333]\n"
           "  [ 334  335  336 ...  498  499  500]]\n\n"
           " [[ 501  502  503 ...  665  666  667]\n  [ 668  669  670 ...  832  833  834]\n"
           "  [ 835  836  837 ...  999 1000 1001]]]");
}

static void options_change_the_form(void **state)
{
    (void)state;
    char text[256];
    const tutti_format_options_t three = {.precision = 3};
    (void)tutti_tensor_format(F32(0.123456F, 2), &three, text, sizeof text);
    assert_string_equal(text, "[0.123 2.   ]");
    const tutti_format_options_t few = {.threshold = 5, .edge_items = 1, .line_width = 20};
    (void)tutti_tensor_format(tutti_arange(s, TUTTI_F32, 0, 1, 6), &few, text, sizeof text);
    assert_string_equal(text, "[0. ... 5.]");
    const tutti_format_options_t narrow = {.line_width = 10};
    (void)tutti_tensor_format(tutti_arange(s, TUTTI_F32, 0, 1, 5), &narrow, text, sizeof text);
    assert_string_equal(text, "[0. 1. 2.\n 3. 4.]");
}

static void a_locale_changes_no_number(void **state)
{
    (void)state;
    char text[4][64];
    const tutti_tensor_t *x[] = {F32(1.5F, -0.1F), F32(1e-5F, 1, 2), F32(1.0F / 3, 1234.5F),
                                 tutti_from_data(s, TUTTI_I64, TUTTI_SHAPE(1), (int64_t[]){1234})};
    tt_comma_begin();
    for (int i = 0; i < 4; i++) {
        (void)tutti_tensor_format(x[i], NULL, text[i], sizeof text[i]);
    }
    tt_comma_end();
    assert_string_equal(text[0], "[ 1.5 -0.1]");
    assert_string_equal(text[1], "[1.e-05 1.e+00 2.e+00]");
    assert_string_equal(text[2], "[3.3333334e-01 1.2345000e+03]");
    assert_string_equal(text[3], "[1234]");
}

static void what_cannot_be_read_is_nothing(void **state)
{
    (void)state;
    char text[16] = "before";
    tutti_tensor_t *failed = tutti_reshape(s, F32(1, 2), TUTTI_SHAPE(3));
    assert_int_equal(tutti_tensor_format(failed, NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(columns_are_even, setup, teardown),
        cmocka_unit_test_setup_teardown(large_and_small_numbers_have_exponents, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_number, setup, teardown),
        cmocka_unit_test_setup_teardown(shapes, setup, teardown),
        cmocka_unit_test_setup_teardown(long_lines_are_folded, setup, teardown),
        cmocka_unit_test_setup_teardown(of_many_elements_the_outer_ones_are_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(options_change_the_form, setup, teardown),
        cmocka_unit_test_setup_teardown(a_locale_changes_no_number, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
