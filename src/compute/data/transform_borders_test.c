/* Steps of pictures at the borders: pixels that are no numbers, no pixels at all, one, and more
 * than there may be.
 */
#include <math.h>
#include <stdlib.h>

#include "compute/data/transform_testing.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* Numbers that are none, and pixels of them that are: what comes is finite where its color is. */
static void pixels_that_are_no_numbers_stay_by_themselves(void **state)
{
    tt_fixture_t *f = *state;
    const float odd[3] = {NAN, INFINITY, -INFINITY};
    const tutti_transform_t step = {&tutti_jitter_transform, &(tutti_jitter_options_t){.hue = 0.5}};
    float pixels[3 * 27];
    for (int i = 0; i < 27; i++) {
        const int digits[3] = {i / 9, i / 3 % 3, i % 3}; /* 0: a number */
        for (int c = 0; c < 3; c++) {
            pixels[27 * c + i] = i == 0           ? 0.25F * (float)c
                                 : digits[c] == 0 ? 0.5F
                                                  : odd[(digits[c] + i) % 3];
        }
    }
    const tutti_tensor_data_options_t rows = {
        .input = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(1, 3, 1, 27), pixels)};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &rows, &d), 0);
    d = make_chain(d, &step, 1, 3);
    for (int i = 0; i < 20; i++) {
        tutti_sample_t sample = {0};
        assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0, i}, &sample), 0);
        for (int c = 0; c < 3; c++) {
            const float x = ((const float *)sample.data[0])[27 * c];
            assert_true(x >= 0 && x <= 0.5F);
        }
        tutti_sample_clear(&sample);
    }
    tutti_dataset_release(d);
}

/* Every kind of step over pictures without a pixel, and of one. */
static void pictures_without_pixels_are_refused(void **state)
{
    static const int64_t sizes[][2] = {{0, 0}, {0, 5}, {5, 0}, {1, 1}};
    tt_fixture_t *f = *state;
    static const tutti_resize_options_t shorter = {.shorter = 2};
    static const tutti_resize_options_t nearest = {
        .height = 2, .width = 2, .resample = TUTTI_RESAMPLE_NEAREST};
    static const tutti_resized_crop_options_t resized = {.height = 2, .width = 3};
    static const tutti_crop_options_t middle = {.height = 2, .width = 2, .padding = 2};
    static const tutti_jitter_options_t contrast = {.contrast = 1};
    static const tutti_erase_options_t erased = {.probability = 1};
    static const tutti_affine_options_t turned = {.degrees = {1, 2}};
    static const tutti_transform_t steps[] = {
        {&tutti_resize_transform, &shorter},       {&tutti_resize_transform, &nearest},
        {&tutti_resized_crop_transform, &resized}, {&tutti_center_crop_transform, &middle},
        {&tutti_random_crop_transform, &middle},   {&tutti_jitter_transform, &contrast},
        {&tutti_erase_transform, &erased},         {&tutti_affine_transform, &turned}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (int k = 0; k < 4; k++) {
            tutti_dataset_t *d =
                make_chain(make_pictures(f, 1, 3, sizes[k][0], sizes[k][1]), &steps[i], 1, 3);
            tutti_sample_t sample = {0};
            const tutti_status_t status = tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample);
            assert_int_equal(status, k == 3 ? TUTTI_OK : TUTTI_ERR_SHAPE);
            if (k < 3) {
                tt_expect_error("a picture of ");
            }
            tutti_sample_clear(&sample);
            tutti_dataset_release(d);
        }
    }
}

/* A line of one pixel's width does not become one of as many as memory holds. */
static void pictures_that_grow_without_bounds_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_transform_t steps[] = {
        {&tutti_resize_transform, &(tutti_resize_options_t){.shorter = 4000}},
        {&tutti_resize_transform, &(tutti_resize_options_t){.shorter = INT64_MAX / 2}},
        {&tutti_random_crop_transform,
         &(tutti_crop_options_t){.height = 1, .width = 1, .padding = INT64_MAX}},
        {&tutti_center_crop_transform, &(tutti_crop_options_t){.height = 1, .width = INT32_MAX}}};
    for (int i = 0; i < 4; i++) {
        tutti_dataset_t *from = make_pictures(f, 1, 1, 1, 4000), *d;
        const tutti_transform_options_t options = {
            .dataset = from, .steps = &steps[i], .step_count = 1};
        tutti_sample_t sample = {0};
        tutti_status_t status = tutti_dataset_create(&tutti_transform_dataset, &options, &d);
        if (status >= 0) {
            status = tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample);
            tutti_dataset_release(d);
        }
        assert_int_equal(status, TUTTI_ERR_ARG);
        tt_expect_error("2^28");
        tutti_sample_clear(&sample);
        tutti_dataset_release(from);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(pixels_that_are_no_numbers_stay_by_themselves),
        TEST(pictures_without_pixels_are_refused),
        TEST(pictures_that_grow_without_bounds_are_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
