/* Pictures and their masks through the same steps: where a pixel goes, its class goes, too. */
#include <string.h>

#include <tutti/transforms.h>

#include "core/base/alloc.h"
#include "compute/data/transform_testing.h"

enum { HEIGHT = 9, WIDTH = 7, AREA = HEIGHT * WIDTH, DRAWS = 60, IGNORED = 255 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* What a pixel is, from 1 on, and its class. */
static unsigned char class_of(int64_t i)
{
    return (unsigned char)(i % 3 + 100);
}

/* A picture u8 [1, H, W] of 1 … H W, a mask of the same bytes if `is_same`, else of three classes,
 * and a label; the picture once more. */
static tutti_dataset_t *make_scene(tt_fixture_t *f, bool is_same)
{
    unsigned char bytes[AREA], classes[AREA];
    for (int i = 0; i < AREA; i++) {
        bytes[i] = (unsigned char)(i + 1);
        classes[i] = is_same ? bytes[i] : class_of(i);
    }
    const tutti_shape_t shape = TUTTI_SHAPE(1, 1, HEIGHT, WIDTH);
    tutti_tensor_t *more[] = {tutti_arange(f->s, TUTTI_I64, 5, 6, 1),
                              tutti_from_data(f->s, TUTTI_U8, shape, bytes)};
    const tutti_tensor_data_options_t options = {
        .input = tutti_from_data(f->s, TUTTI_U8, shape, bytes),
        .target = tutti_from_data(f->s, TUTTI_U8, shape, classes),
        .more = more,
        .more_count = 2};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &d), 0);
    return d;
}

static tutti_dataset_t *make_joint(tutti_dataset_t *scene, const tutti_transform_t *steps,
                                   int count)
{
    const tutti_transform_options_t options = {
        .dataset = scene,
        .steps = steps,
        .step_count = count,
        .seed = 11,
        .roles = {[1] = TUTTI_ROLE_MASK, [3] = TUTTI_ROLE_PICTURE},
        .mask_fill = IGNORED};
    tutti_dataset_t *d;
    if (tutti_dataset_create(&tutti_transform_dataset, &options, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_dataset_release(scene);
    return d;
}

static void read(tutti_dataset_t *d, int64_t position, tutti_sample_t *sample)
{
    if (tutti_dataset_read(d, 0, (tutti_draw_t){2, position}, sample) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(sample->dtypes[1], TUTTI_U8);
    assert_int_equal(*(const int64_t *)sample->data[2], 5); /* a label stays */
    assert_true(tutti_shape_equal(sample->shapes[1], sample->shapes[0]));
    assert_int_equal(sample->dtypes[3], sample->dtypes[0]);
}

static int64_t numel_of(const tutti_sample_t *sample)
{
    return tutti_shape_numel(sample->shapes[1]);
}

/* ---- steps that keep bytes ------------------------------------------------------------------- */

/* Outside a picture is 0, which no pixel is; outside its mask is IGNORED. Returns how many of the
 * mask's lie outside. */
static int expect_same(const tutti_sample_t *sample)
{
    const unsigned char *x = sample->data[0], *mask = sample->data[1];
    int outside = 0;
    for (int64_t i = 0; i < numel_of(sample); i++) {
        assert_int_equal(mask[i], x[i] == 0 ? IGNORED : x[i]);
        outside += x[i] == 0;
    }
    assert_memory_equal(x, sample->data[3], (size_t)numel_of(sample));
    return outside;
}

static void masks_move_with_their_pictures(void **state)
{
    static const tutti_crop_options_t crop = {.height = 6, .width = 5, .padding = 2};
    static const tutti_crop_options_t middle = {.height = 12, .width = 4};
    static const tutti_flip_options_t mirror = {.probability = 0.5},
                                      turn = {.probability = 0.5, .vertical = true};
    static const tutti_resized_crop_options_t part = {
        .height = 8, .width = 6, .resample = TUTTI_RESAMPLE_NEAREST};
    static const tutti_resize_options_t size = {.shorter = 5, .resample = TUTTI_RESAMPLE_NEAREST};
    static const tutti_affine_options_t affine = {.degrees = {-40, 40},
                                                  .translate = {0.2, 0.1},
                                                  .scale = {0.7, 1.4},
                                                  .shear = {-10, 10},
                                                  .resample = TUTTI_RESAMPLE_NEAREST};
    static const tutti_transform_t all[] = {
        {&tutti_random_crop_transform, &crop},  {&tutti_center_crop_transform, &middle},
        {&tutti_flip_transform, &mirror},       {&tutti_flip_transform, &turn},
        {&tutti_resized_crop_transform, &part}, {&tutti_resize_transform, &size},
        {&tutti_affine_transform, &affine}};
    enum { KINDS = sizeof all / sizeof all[0] };
    for (int kind = 0; kind <= KINDS; kind++) { /* each alone, and all in turn */
        const bool is_all = kind == KINDS;
        tutti_dataset_t *d =
            make_joint(make_scene(*state, true), is_all ? all : &all[kind], is_all ? KINDS : 1);
        tutti_sample_t sample = {0};
        int outside = 0;
        for (int i = 0; i < DRAWS; i++) {
            read(d, i, &sample);
            outside += expect_same(&sample);
        }
        const bool has_outside = kind < 2 || kind >= KINDS - 1;
        assert_true((outside > 0) == has_outside);
        tutti_sample_clear(&sample);
        tutti_dataset_release(d);
    }
}

/* ---- steps that blend ------------------------------------------------------------------------ */

/* The same places as by the nearest neighbor, whatever the picture's pixels are blended of. */
static void masks_are_never_blended(void **state)
{
    static const tutti_resized_crop_options_t parts[] = {
        {.height = 8, .width = 12}, {.height = 8, .width = 12, .resample = TUTTI_RESAMPLE_NEAREST}};
    static const tutti_affine_options_t turns[] = {
        {.degrees = {-90, 90}}, {.degrees = {-90, 90}, .resample = TUTTI_RESAMPLE_NEAREST}};
    static const tutti_resize_options_t sizes[] = {
        {.height = 5, .width = 16, .resample = TUTTI_RESAMPLE_BICUBIC},
        {.height = 5, .width = 16, .resample = TUTTI_RESAMPLE_NEAREST}};
    tutti_dataset_t *d[2];
    for (int i = 0; i < 2; i++) {
        const tutti_transform_t steps[] = {{&tutti_resized_crop_transform, &parts[i]},
                                           {&tutti_affine_transform, &turns[i]},
                                           {&tutti_resize_transform, &sizes[i]}};
        d[i] = make_joint(make_scene(*state, false), steps, 3);
    }
    assert_int_equal(tutti_dataset_info(d[0]).fields[0].dtype, TUTTI_F32);
    assert_int_equal(tutti_dataset_info(d[0]).fields[1].dtype, TUTTI_U8);
    tutti_sample_t blended = {0}, nearest = {0};
    for (int k = 0; k < DRAWS; k++) {
        read(d[0], k, &blended);
        read(d[1], k, &nearest);
        const unsigned char *mask = blended.data[1];
        for (int64_t i = 0; i < numel_of(&blended); i++) {
            assert_true((mask[i] >= 100 && mask[i] < 103) || mask[i] == IGNORED);
        }
        assert_memory_equal(mask, nearest.data[1], (size_t)numel_of(&blended));
        assert_memory_equal(blended.data[0], blended.data[3], 4 * (size_t)numel_of(&blended));
    }
    tutti_sample_clear(&blended);
    tutti_sample_clear(&nearest);
    tutti_dataset_release(d[0]);
    tutti_dataset_release(d[1]);
}

/* ---- steps of colors ------------------------------------------------------------------------- */

static void colors_leave_masks(void **state)
{
    static const tutti_flip_options_t mirror = {.probability = 1};
    static const tutti_jitter_options_t jitter = {.brightness = 0.9};
    static const tutti_erase_options_t erase = {.probability = 1, .is_random = true};
    static const tutti_transform_t steps[] = {{&tutti_jitter_transform, &jitter},
                                              {&tutti_flip_transform, &mirror},
                                              {&tutti_erase_transform, &erase},
                                              {&tutti_normalize_transform, NULL}};
    for (int first = 0; first < 4; first += 2) { /* the last two alone: nothing moves */
        tutti_dataset_t *d = make_joint(make_scene(*state, false), steps + first, 4 - first);
        tutti_sample_t sample = {0};
        for (int k = 0; k < 8; k++) {
            read(d, k, &sample);
            for (int i = 0; i < AREA; i++) {
                const int from = first == 0 ? i / WIDTH * WIDTH + WIDTH - 1 - i % WIDTH : i;
                assert_int_equal(((const unsigned char *)sample.data[1])[i], class_of(from));
            }
            assert_memory_equal(sample.data[0], sample.data[3], 4 * AREA); /* one draw for both */
        }
        tutti_sample_clear(&sample);
        tutti_dataset_release(d);
    }
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static void fields_that_cannot_be_are_refused(void **state)
{
    static const tutti_flip_options_t mirror = {.probability = 1};
    static const tutti_transform_t step = {&tutti_flip_transform, &mirror};
    tutti_dataset_t *scene = make_scene(*state, true), *d;
    tutti_transform_options_t o = {.dataset = scene, .steps = &step, .step_count = 1};
    const struct {
        int field, role, fill;
        tutti_status_t status;
        const char *error;
    } cases[] = {
        {2, TUTTI_ROLE_MASK, 0, TUTTI_ERR_SHAPE, "field 2 of tensor is i64[]: masks are u8"},
        {2, TUTTI_ROLE_PICTURE, 0, TUTTI_ERR_SHAPE, "pictures are u8 or f32"},
        {4, TUTTI_ROLE_MASK, 0, TUTTI_ERR_ARG, "role 1 of field 4 of tensor, which has 4"},
        {0, TUTTI_ROLE_MASK, 0, TUTTI_ERR_ARG, "role 1 of field 0"},
        {1, 3, 0, TUTTI_ERR_ARG, "role 3 of field 1"},
        {1, TUTTI_ROLE_MASK, 256, TUTTI_ERR_ARG, "mask_fill is 256: it must be 0 to 255"},
        {1, TUTTI_ROLE_MASK, -1, TUTTI_ERR_ARG, "mask_fill is -1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(o.roles, 0, sizeof o.roles);
        o.roles[cases[i].field] = (tutti_transform_role_t)cases[i].role;
        o.mask_fill = cases[i].fill;
        assert_int_equal(tutti_dataset_create(&tutti_transform_dataset, &o, &d), cases[i].status);
        tt_expect_error(cases[i].error);
    }
    tutti_dataset_release(scene);
}

static void other_sizes_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    static const tutti_flip_options_t mirror = {.probability = 1};
    static const tutti_transform_t step = {&tutti_flip_transform, &mirror};
    const tutti_tensor_data_options_t options = {
        .input = tutti_zeros(f->s, TUTTI_U8, TUTTI_SHAPE(1, 3, 4, 5)),
        .target = tutti_zeros(f->s, TUTTI_U8, TUTTI_SHAPE(1, 1, 5, 4))};
    tutti_dataset_t *scene, *d;
    tutti_sample_t sample = {0};
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &scene), 0);
    const tutti_transform_options_t o = {
        .dataset = scene, .steps = &step, .step_count = 1, .roles = {[1] = TUTTI_ROLE_MASK}};
    assert_int_equal(tutti_dataset_create(&tutti_transform_dataset, &o, &d), 0);
    assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample), TUTTI_ERR_SHAPE);
    tt_expect_error("field 1 has 4 x 5 pixels, its picture 5 x 4");
    tutti_sample_clear(&sample);
    tutti_dataset_release(scene);
    tutti_dataset_release(d);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    static const tutti_resize_options_t size = {.height = 5, .width = 5};
    static const tutti_flip_options_t mirror = {.probability = 1};
    static const tutti_transform_t steps[] = {{&tutti_flip_transform, &mirror},
                                              {&tutti_resize_transform, &size},
                                              {&tutti_flip_transform, &mirror},
                                              {&tutti_normalize_transform, NULL}};
    expect_read_or_nomem(make_joint(make_scene(*state, false), steps, 4));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(masks_move_with_their_pictures),
        TEST(masks_are_never_blended),
        TEST(colors_leave_masks),
        TEST(fields_that_cannot_be_are_refused),
        TEST(other_sizes_are_refused),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
