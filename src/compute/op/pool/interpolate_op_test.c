/* Scales that are no sizes: where elements come from. PyTorch's values: tests/golden. */
#include <tutti/op_conv.h>

#include "compute/autograd/op_testing.h"

enum { SIZE = 20 };

/* 0, 1, 2 ... over a line, of a scale of k tenths. */
static tutti_tensor_t *number_line(fixture_t *f, tutti_interpolate_options_t options, int k)
{
    tutti_tensor_t *x = tutti_arange(f->s, TUTTI_F64, 0, 1, SIZE);
    options.scale[0] = (double)k / 10;
    return tutti_interpolate(f->s, tutti_reshape(f->s, x, TUTTI_SHAPE(1, 1, SIZE)), &options);
}

/* i / scale and (i + 0.5) / scale in integers; in f64 39 times 1 / 2.6 and 3 / 0.2 are below 15. */
static void nearest_places_are_those_of_the_fraction(void **state)
{
    fixture_t *f = *state;
    for (int k = 1; k < 80; k++) {
        const tutti_tensor_t *edge =
            number_line(f, (tutti_interpolate_options_t){.mode = TUTTI_INTERPOLATE_NEAREST}, k);
        const tutti_tensor_t *middle = number_line(
            f, (tutti_interpolate_options_t){.mode = TUTTI_INTERPOLATE_NEAREST_EXACT}, k);
        assert_int_equal(tutti_tensor_numel(edge), SIZE * k / 10);
        for (int i = 0; i < SIZE * k / 10; i++) {
            assert_int_equal(tutti_tensor_at(edge, i), 10 * i / k);
            assert_int_equal(tutti_tensor_at(middle, i), 5 * (2 * i + 1) / k);
        }
    }
}

/* As PyTorch does it: the scale counts where the size changes, and with cubic always. */
static void a_size_that_stays_is_copied(void **state)
{
    fixture_t *f = *state;
    const struct {
        tutti_interpolate_options_t options;
        bool is_copied;
    } cases[] = {
        {{.mode = TUTTI_INTERPOLATE_LINEAR}, true},
        {{.mode = TUTTI_INTERPOLATE_LINEAR, .antialias = true}, true},
        {{.mode = TUTTI_INTERPOLATE_CUBIC, .antialias = true}, true},
        {{.mode = TUTTI_INTERPOLATE_CUBIC}, false},
        {{.mode = TUTTI_INTERPOLATE_NEAREST}, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tutti_interpolate_options_t options = cases[k].options;
        tutti_tensor_t *x =
            tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(1, 1, 4), (float[]){4, 7, 5, 8});
        options.scale[0] = 1.2;
        const tutti_tensor_t *y = tutti_interpolate(f->s, x, &options);
        assert_int_equal(tutti_tensor_dim(y, 2), 4);
        bool is_same = true;
        for (int64_t i = 0; i < 4; i++) {
            is_same = is_same && tutti_tensor_at(y, i) == tutti_tensor_at(x, i);
        }
        assert_int_equal(is_same, cases[k].is_copied);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nearest_places_are_those_of_the_fraction, setup, teardown),
        cmocka_unit_test_setup_teardown(a_size_that_stays_is_copied, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
