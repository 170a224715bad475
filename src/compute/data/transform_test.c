/* Steps of pictures against formulas by hand, and the same bits for any number of workers, ranks,
 * and behind a resume.
 */
#include <math.h>
#include <stdlib.h>

#include <tutti/transforms.h>

#include "compute/data/transform_impl.h"
#include "compute/data/transform_testing.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* One step over picture 0, for a draw. The sample is the caller's to clear. */
static tutti_sample_t run(tt_fixture_t *f, const tutti_transform_ops_t *kind, const void *options,
                          const int64_t shape[3], int64_t position)
{
    const tutti_transform_t step = {kind, options};
    tutti_dataset_t *d = make_chain(make_pictures(f, 1, shape[0], shape[1], shape[2]), &step, 1, 1);
    tutti_sample_t sample = {0};
    if (tutti_dataset_read(d, 0, (tutti_draw_t){0, position}, &sample) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(*(const int64_t *)sample.data[1], 0);
    tutti_dataset_release(d);
    return sample;
}

static void expect_bytes(tutti_sample_t *sample, tutti_shape_t shape, const int *bytes)
{
    assert_int_equal(sample->dtypes[0], TUTTI_U8);
    assert_true(tutti_shape_equal(sample->shapes[0], shape));
    for (int64_t i = 0; i < tutti_shape_numel(shape); i++) {
        assert_int_equal(((const unsigned char *)sample->data[0])[i], bytes[i]);
    }
    tutti_sample_clear(sample);
}

static void expect_floats(tutti_sample_t *sample, tutti_shape_t shape, const double *values,
                          double far)
{
    assert_int_equal(sample->dtypes[0], TUTTI_F32);
    assert_true(tutti_shape_equal(sample->shapes[0], shape));
    for (int64_t i = 0; i < tutti_shape_numel(shape); i++) {
        assert_true(fabs((double)((const float *)sample->data[0])[i] - values[i]) <= far);
    }
    tutti_sample_clear(sample);
}

static const int64_t small[3] = {1, 2, 3}; /* 0 3 6 / 9 12 15 */

/* ---- pixels that move ------------------------------------------------------------------------ */

static void flips_mirror(void **state)
{
    tutti_flip_options_t o = {.probability = 1};
    tutti_sample_t x = run(*state, &tutti_flip_transform, &o, small, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 2, 3), (int[]){6, 3, 0, 15, 12, 9});
    o.vertical = true;
    x = run(*state, &tutti_flip_transform, &o, small, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 2, 3), (int[]){9, 12, 15, 0, 3, 6});
    o.probability = 0;
    x = run(*state, &tutti_flip_transform, &o, small, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 2, 3), (int[]){0, 3, 6, 9, 12, 15});
    o.probability = 0.25;
    int flipped = 0;
    for (int i = 0; i < 400; i++) {
        x = run(*state, &tutti_flip_transform, &o, small, i);
        flipped += *(const unsigned char *)x.data[0] != 0;
        tutti_sample_clear(&x);
    }
    assert_in_range(flipped, 60, 140); /* 100, and 4.6 deviations */
}

static void crops_cut_and_pad(void **state)
{
    tutti_crop_options_t o = {.height = 1, .width = 1};
    tutti_sample_t x = run(*state, &tutti_center_crop_transform, &o, small, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 1, 1), (int[]){3}); /* (2 - 1) / 2 is rounded to 0 */
    o = (tutti_crop_options_t){.height = 4, .width = 1, .fill = 1};
    x = run(*state, &tutti_center_crop_transform, &o, small, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 4, 1), (int[]){255, 3, 12, 255});
    o = (tutti_crop_options_t){.height = 5, .width = 6, .fill = 1}; /* the odd row lies below */
    x = run(*state, &tutti_center_crop_transform, &o, (const int64_t[3]){1, 2, 1}, 0);
    const unsigned char *padded = x.data[0];
    assert_true(padded[8] == 0 && padded[14] == 3 && padded[2] == 255 && padded[20] == 255);
    tutti_sample_clear(&x);
    o = (tutti_crop_options_t){.height = 2, .width = 3, .padding = 1, .fill = 0.2};
    int seen[3][3] = {{0}};
    for (int i = 0; i < 200; i++) {
        x = run(*state, &tutti_random_crop_transform, &o, small, i);
        const unsigned char *bytes = x.data[0];
        int top = 9, left = 9;
        for (int k = 0; k < 9; k++) { /* which of the nine places is it? */
            bool is_it = true;
            for (int at = 0; at < 6; at++) {
                const int row = at / 3 + k / 3 - 1, column = at % 3 + k % 3 - 1;
                const bool is_out = row < 0 || row > 1 || column < 0 || column > 2;
                is_it = is_it && bytes[at] == (is_out ? 51 : 9 * row + 3 * column);
            }
            top = is_it ? k / 3 : top;
            left = is_it ? k % 3 : left;
        }
        assert_true(top < 3 && left < 3);
        seen[top][left]++;
        tutti_sample_clear(&x);
    }
    for (int i = 0; i < 9; i++) {
        assert_in_range(seen[i / 3][i % 3], 4, 50); /* 22, and 4 deviations */
    }
    o.height = 5;
    const tutti_transform_t step = {&tutti_random_crop_transform, &o};
    tutti_dataset_t *d = make_chain(make_pictures(*state, 1, 1, 2, 3), &step, 1, 0);
    x = (tutti_sample_t){0};
    assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0}, &x), TUTTI_ERR_SHAPE);
    tt_expect_error("random_crop: 3 x 5 pixels of 3 x 2 with a padding of 1");
    tutti_sample_clear(&x);
    tutti_dataset_release(d);
}

/* ---- other sizes ----------------------------------------------------------------------------- */

static void resizing_averages_what_lies_beneath(void **state)
{
    tutti_resize_options_t o = {.height = 2, .width = 3};
    tutti_sample_t x = run(*state, &tutti_resize_transform, &o, small, 0);
    double values[16];
    for (int i = 0; i < 6; i++) {
        values[i] = (double)((float)(3 * i) / 255.0F);
    }
    expect_floats(&x, TUTTI_SHAPE(1, 2, 3), values, 0);
    /* To half of it: of four pixels 3, 3, 1 of 7 where the edge cuts, 1 3 3 1 of 8 in the middle.
     */
    o = (tutti_resize_options_t){.height = 1, .width = 3};
    x = run(*state, &tutti_resize_transform, &o, (int64_t[]){1, 1, 6}, 0);
    const double edge = (3 * 0.0 + 3 * 3.0 + 1 * 6.0) / 7;
    expect_floats(&x, TUTTI_SHAPE(1, 1, 3), (double[]){edge / 255, 7.5 / 255, (15.0 - edge) / 255},
                  1e-7);
    /* Twice: 1/4 and 3/4 of neighbors. */
    o.width = 4;
    x = run(*state, &tutti_resize_transform, &o, (int64_t[]){1, 1, 2}, 0);
    expect_floats(&x, TUTTI_SHAPE(1, 1, 4), (double[]){0, 0.75 / 255, 2.25 / 255, 3.0 / 255}, 1e-7);
    o.resample = TUTTI_RESAMPLE_NEAREST;
    x = run(*state, &tutti_resize_transform, &o, (int64_t[]){1, 1, 2}, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 1, 4), (int[]){0, 0, 3, 3});
    /* The cubic goes through a straight line as it is, but at its ends. */
    o = (tutti_resize_options_t){.height = 1, .width = 16, .resample = TUTTI_RESAMPLE_BICUBIC};
    x = run(*state, &tutti_resize_transform, &o, (int64_t[]){1, 1, 8}, 0);
    for (int i = 4; i < 12; i++) {
        const double at = (i + 0.5) / 2 - 0.5;
        assert_true(fabs((double)((const float *)x.data[0])[i] - 3 * at / 255) < 1e-6);
    }
    tutti_sample_clear(&x);
    o = (tutti_resize_options_t){.shorter = 4};
    x = run(*state, &tutti_resize_transform, &o, (int64_t[]){3, 2, 5}, 0);
    assert_true(tutti_shape_equal(x.shapes[0], TUTTI_SHAPE(3, 4, 10)));
    tutti_sample_clear(&x);
}

static void resized_crops_have_their_shares_and_ratios(void **state)
{
    const tutti_resized_crop_options_t o = {
        .height = 1, .width = 2, .resample = TUTTI_RESAMPLE_NEAREST};
    /* One row: no rectangle of such a ratio fits, so it is the middle. */
    tutti_sample_t x = run(*state, &tutti_resized_crop_transform, &o, (int64_t[]){1, 1, 64}, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 1, 2), (int[]){3 * 31, 3 * 31});
    double least = 1, most = 0;
    tutti_random_t random = {.name = {1, 2, 3, 4}};
    for (int i = 0; i < 1000; i++) {
        int64_t sides[2];
        assert_true(tt_random_rectangle(&random, (double[]){0.08, 1}, (double[]){0.75, 4.0 / 3},
                                        (int64_t[]){100, 100}, sides));
        const double share = (double)(sides[0] * sides[1]) / 10000;
        const double ratio = (double)sides[0] / (double)sides[1];
        assert_true(ratio > 0.72 && ratio < 1.4);
        least = share < least ? share : least;
        most = share > most ? share : most;
    }
    assert_true(least > 0.07 && least < 0.12 && most > 0.9 && most <= 1);
}

/* ---- turning --------------------------------------------------------------------------------- */

static void affine_maps_turn_around_the_middle(void **state)
{
    const int64_t square[3] = {1, 3, 3}; /* 0 3 6 / 9 12 15 / 18 21 24 */
    tutti_affine_options_t o = {.degrees = {90, 90}, .resample = TUTTI_RESAMPLE_NEAREST};
    tutti_sample_t x = run(*state, &tutti_affine_transform, &o, square, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 3, 3), (int[]){18, 9, 0, 21, 12, 3, 24, 15, 6}); /* clockwise */
    o.resample = TUTTI_RESAMPLE_BILINEAR;
    x = run(*state, &tutti_affine_transform, &o, square, 0);
    const double turned[] = {18, 9, 0, 21, 12, 3, 24, 15, 6};
    double values[9];
    for (int i = 0; i < 9; i++) {
        values[i] = turned[i] / 255;
    }
    expect_floats(&x, TUTTI_SHAPE(1, 3, 3), values, 1e-7);
    o = (tutti_affine_options_t){.scale = {2, 2}, .resample = TUTTI_RESAMPLE_NEAREST};
    x = run(*state, &tutti_affine_transform, &o, (int64_t[]){1, 1, 4}, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 1, 4), (int[]){3, 3, 6, 6});
    o = (tutti_affine_options_t){.shear = {45, 45}, .fill = 1, .resample = TUTTI_RESAMPLE_NEAREST};
    x = run(*state, &tutti_affine_transform, &o, square, 0);
    expect_bytes(&x, TUTTI_SHAPE(1, 3, 3), (int[]){255, 0, 3, 9, 12, 15, 21, 24, 255});
    o = (tutti_affine_options_t){.translate = {0.4, 0}, .resample = TUTTI_RESAMPLE_NEAREST};
    int moved[3] = {0};
    for (int i = 0; i < 60; i++) {
        x = run(*state, &tutti_affine_transform, &o, (int64_t[]){1, 1, 3}, i);
        const unsigned char *bytes = x.data[0];
        moved[bytes[1] / 3]++;
        assert_true(bytes[1] == 3 || bytes[bytes[1] == 0 ? 0 : 2] == 0);
        tutti_sample_clear(&x);
    }
    assert_true(moved[0] > 5 && moved[1] > 5 && moved[2] > 5);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void bytes_are_normalised(void **state)
{
    tutti_normalize_options_t o = {.mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.25, 2}};
    const int64_t colors[3] = {3, 1, 2};
    tutti_sample_t x = run(*state, &tutti_normalize_transform, &o, colors, 0);
    double values[6];
    for (int i = 0; i < 6; i++) {
        values[i] = (double)(float)((3 * i / 255.0 - o.mean[i / 2]) / o.std[i / 2]);
    }
    expect_floats(&x, TUTTI_SHAPE(3, 1, 2), values, 0);
    x = run(*state, &tutti_normalize_transform, NULL, colors, 0);
    for (int i = 0; i < 6; i++) {
        values[i] = (double)((float)(3 * i) / 255.0F);
    }
    expect_floats(&x, TUTTI_SHAPE(3, 1, 2), values, 0);
}

static void gray_is_a_sum_of_colors(void **state)
{
    const tutti_grayscale_options_t o = {.probability = 1};
    tutti_sample_t x = run(*state, &tutti_grayscale_transform, &o, (int64_t[]){3, 1, 1}, 0);
    const double gray = (0.587 * 3 + 0.114 * 6) / 255;
    expect_floats(&x, TUTTI_SHAPE(3, 1, 1), (double[]){gray, gray, gray}, 1e-8);
}

/* Each change alone: what it does tells the factor, which must be in its range. */
static void jitter_changes_one_thing_at_a_time(void **state)
{
    const int64_t colors[3] = {3, 4, 5};
    tutti_jitter_options_t o = {.brightness = 0.5};
    double least = 9, most = 0;
    for (int i = 0; i < 100; i++) {
        tutti_sample_t x = run(*state, &tutti_jitter_transform, &o, colors, i);
        const float *y = x.data[0];
        const double factor = (double)y[40] * 255 / 120;
        assert_true(fabs((double)y[10] - factor * 30 / 255) < 1e-6);
        least = factor < least ? factor : least;
        most = factor > most ? factor : most;
        tutti_sample_clear(&x);
    }
    assert_true(least >= 0.5 && least < 0.6 && most <= 1.5 && most > 1.4);
    o = (tutti_jitter_options_t){.contrast = 0.9};
    tutti_sample_t x = run(*state, &tutti_jitter_transform, &o, colors, 0);
    const float *y = x.data[0];
    double mean = 0;
    for (int i = 0; i < 20; i++) {
        mean += (0.2989 * 3 * i + 0.587 * 3 * (i + 20) + 0.114 * 3 * (i + 40)) / 255 / 20;
    }
    const double slope = ((double)y[45] - (double)y[40]) / (15.0 / 255);
    assert_true(slope > 0.1 && slope < 1.9 && fabs(slope - 1) > 0.01);
    assert_true(fabs((double)y[42] - slope * 126 / 255 - (1 - slope) * mean) < 1e-5);
    tutti_sample_clear(&x);
    o = (tutti_jitter_options_t){.saturation = 0.9};
    x = run(*state, &tutti_jitter_transform, &o, colors, 0);
    y = x.data[0];
    const double gray = (0.2989 * 3 * 7 + 0.587 * 81 + 0.114 * 141) / 255;
    const double factor = ((double)y[7] - gray) / (21.0 / 255 - gray);
    assert_true(factor > 0.1 && factor < 1.9 &&
                fabs((double)y[27] - gray - factor * (81.0 / 255 - gray)) < 1e-5);
    tutti_sample_clear(&x);
    o = (tutti_jitter_options_t){.hue = 0.5};
    x = run(*state, &tutti_jitter_transform, &o, colors, 3);
    y = x.data[0];
    for (int i = 0; i < 20; i++) { /* largest and least stay, whatever color has them */
        const float high = fmaxf(y[i], fmaxf(y[i + 20], y[i + 40]));
        const float low = fminf(y[i], fminf(y[i + 20], y[i + 40]));
        assert_true(fabs((double)high - 3 * (i + 40) / 255.0) < 1e-6);
        assert_true(fabs((double)low - 3 * i / 255.0) < 1e-6);
    }
    assert_true(fabs((double)y[0]) > 1e-3 || fabs((double)y[20] - 60 / 255.0) > 1e-3);
    tutti_sample_clear(&x);
}

static void a_rectangle_is_erased(void **state)
{
    const tutti_erase_options_t o = {
        .probability = 1, .scale = {0.2, 0.3}, .ratio = {0.5, 2}, .value = 7};
    for (int i = 0; i < 30; i++) {
        tutti_sample_t x = run(*state, &tutti_erase_transform, &o, (int64_t[]){2, 10, 8}, i);
        const float *y = x.data[0];
        int rows[2] = {99, -1}, columns[2] = {99, -1}, count = 0;
        for (int k = 0; k < 80; k++) {
            assert_true((y[k] == 7) == (y[k + 80] == 7));
            if (y[k] == 7) {
                rows[0] = k / 8 < rows[0] ? k / 8 : rows[0];
                rows[1] = k / 8;
                columns[0] = k % 8 < columns[0] ? k % 8 : columns[0];
                columns[1] = k % 8 > columns[1] ? k % 8 : columns[1];
                count++;
            } else {
                assert_true(y[k] == (float)(3 * k) / 255.0F);
            }
        }
        assert_int_equal(count, (rows[1] - rows[0] + 1) * (columns[1] - columns[0] + 1));
        assert_in_range(count, 12, 30);
        tutti_sample_clear(&x);
    }
}

/* ---- chains ---------------------------------------------------------------------------------- */

static const tutti_resized_crop_options_t crop = {.height = 5, .width = 4};
static const tutti_flip_options_t flip = {.probability = 0.5};
static const tutti_jitter_options_t jitter = {0.4, 0.4, 0.4, 0.1};
static const tutti_affine_options_t affine = {.degrees = {-20, 20}, .translate = {0.1, 0.1}};
static const tutti_erase_options_t erase = {.probability = 0.5, .is_random = true};
static const tutti_normalize_options_t normal = {.mean = {0.5, 0.5, 0.5}, .std = {0.2, 0.2, 0.2}};
static const tutti_transform_t all_steps[] = {
    {&tutti_resized_crop_transform, &crop}, {&tutti_flip_transform, &flip},
    {&tutti_jitter_transform, &jitter},     {&tutti_affine_transform, &affine},
    {&tutti_normalize_transform, &normal},  {&tutti_erase_transform, &erase},
};

enum { PICTURES = 11, NUMEL = 3 * 5 * 4, SHARDS = 3, STEPS = 2 };

typedef struct {
    float inputs[2][PICTURES][NUMEL]; /* by epoch and target */
    int64_t count;
} pictures_t;

static void keep(const tutti_batch_t *batch, pictures_t *out)
{
    for (int64_t i = 0; i < batch->size; i++) {
        const int64_t target = (int64_t)tutti_tensor_at(batch->target, i);
        const float *from = (const float *)tutti_tensor_data(batch->input) + i * NUMEL;
        memcpy(out->inputs[batch->epoch][target], from, NUMEL * sizeof *from);
        out->count++;
    }
}

/* Two epochs on a rank; from `resume` on, in the middle of the first, by another loader. */
static void read_rank(tt_fixture_t *f, tutti_dataset_t *d, tutti_dataloader_options_t o,
                      bool resumes, pictures_t *out)
{
    tutti_dataloader_t *loader;
    const int first = SHARDS * o.rank / o.ranks, count = SHARDS * (o.rank + 1) / o.ranks - first;
    assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
        for (int i = 0; i < STEPS * count; i++) {
            tutti_batch_t batch;
            if (resumes && i == count) {
                tutti_buffer_t place;
                assert_int_equal(tutti_dataloader_save_state(loader, &place), 0);
                tutti_dataloader_release(loader);
                assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
                assert_int_equal(
                    tutti_dataloader_load_state(loader, tutti_bytes_of(place.data, place.bytes)),
                    0);
                tutti_buffer_release(&place);
            }
            tutti_context_set_shard(f->ctx, first + i % count);
            assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
            keep(&batch, out);
        }
    }
    tutti_dataloader_release(loader);
}

static void ranks_workers_and_a_resume_change_no_bit(void **state)
{
    tt_fixture_t *f = *state;
    const int steps = sizeof all_steps / sizeof all_steps[0];
    tutti_dataset_t *d = make_chain(make_pictures(f, PICTURES, 3, 6, 7), all_steps, steps, 9);
    static pictures_t alone, other;
    tutti_dataloader_options_t o = {.batch = 2, .shuffle = true, .shards = SHARDS, .ranks = 1};
    alone.count = 0;
    read_rank(f, d, o, false, &alone);
    assert_int_equal(alone.count, 2 * PICTURES);
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        for (o.workers = 0; o.workers < 4; o.workers += 3) {
            memset(&other, 0, sizeof other);
            o.ranks = ranks;
            for (o.rank = 0; o.rank < ranks; o.rank++) {
                read_rank(f, d, o, ranks == 3, &other);
            }
            o.rank = 0;
            assert_memory_equal(&alone, &other, sizeof alone);
        }
    }
    assert_memory_not_equal(alone.inputs[0], alone.inputs[1], sizeof alone.inputs[0]);
    tutti_dataset_release(d);
}

/* A step more leaves the numbers of those before and behind it as they were. */
static void steps_draw_numbers_of_their_own(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_flip_options_t never = {0};
    const tutti_transform_t steps[] = {
        {&tutti_random_crop_transform, &(tutti_crop_options_t){.height = 4, .width = 4}},
        {&tutti_flip_transform, &never},
        {&tutti_erase_transform, &erase}};
    const tutti_transform_t more[] = {
        steps[0], {&tutti_jitter_transform, &(tutti_jitter_options_t){0}}, steps[2]};
    tutti_dataset_t *one = make_chain(make_pictures(f, 3, 3, 6, 7), steps, 3, 9);
    tutti_dataset_t *other = make_chain(make_pictures(f, 3, 3, 6, 7), more, 3, 9);
    tutti_sample_t x = {0}, y = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_dataset_read(one, i, (tutti_draw_t){0}, &x), 0);
        assert_int_equal(tutti_dataset_read(other, i, (tutti_draw_t){0}, &y), 0);
        assert_memory_equal(x.data[0], y.data[0], 3 * 16 * sizeof(float));
    }
    tutti_sample_clear(&x);
    tutti_sample_clear(&y);
    tutti_dataset_release(one);
    tutti_dataset_release(other);
}

/* Two steps of one kind do not decide alike: 00 01 / 10 11 is mirrored in all four ways. */
static void steps_of_one_kind_differ(void **state)
{
    const tutti_flip_options_t across = {.probability = 0.5};
    const tutti_flip_options_t down = {.probability = 0.5, .vertical = true};
    const tutti_transform_t steps[] = {{&tutti_flip_transform, &across},
                                       {&tutti_flip_transform, &down}};
    tutti_dataset_t *d = make_chain(make_pictures(*state, 1, 1, 2, 2), steps, 2, 4);
    int times[4] = {0};
    unsigned char pixels[4];
    int64_t target;
    for (int i = 0; i < 200; i++) {
        tutti_sample_t sample = {.data = {pixels, &target}};
        assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0, i}, &sample), 0);
        times[pixels[0] / 3]++; /* the corner that came to the first place */
    }
    for (int i = 0; i < 4; i++) {
        assert_in_range(times[i], 22, 78); /* 50, and 4.5 deviations */
    }
    tutti_dataset_release(d);
}

static void options_out_of_range_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    const struct {
        tutti_transform_t step;
        const char *error;
    } cases[] = {
        {{&tutti_flip_transform, &(tutti_flip_options_t){.probability = 2}},
         "transform flip: probability is 2: it must be from 0 to 1"},
        {{&tutti_flip_transform, NULL}, "transform flip: options are required"},
        {{&tutti_center_crop_transform, &(tutti_crop_options_t){.height = 1}},
         "center_crop: height 1, width 0"},
        {{&tutti_random_crop_transform, NULL}, "random_crop: height 0"},
        {{&tutti_resize_transform, &(tutti_resize_options_t){.height = 1}},
         "give height and width, or shorter"},
        {{&tutti_resize_transform,
          &(tutti_resize_options_t){.shorter = 1, .resample = (tutti_resample_t)9}},
         "resample 9"},
        {{&tutti_resized_crop_transform,
          &(tutti_resized_crop_options_t){.height = 1, .width = 1, .scale = {0.5, 0.2}}},
         "scale is from 0.5 to 0.2"},
        {{&tutti_affine_transform, &(tutti_affine_options_t){.resample = TUTTI_RESAMPLE_BICUBIC}},
         "transform affine: resample 1"},
        {{&tutti_affine_transform, &(tutti_affine_options_t){.translate = {0, 2}}},
         "translate is 2"},
        {{&tutti_jitter_transform, &(tutti_jitter_options_t){.hue = 0.6}}, "hue is 0.6"},
        {{&tutti_normalize_transform, &(tutti_normalize_options_t){.mean = {0.5}}},
         "std 0 of channel 0"},
        {{&tutti_erase_transform, &(tutti_erase_options_t){.value = NAN}}, "a finite value"},
        {{NULL, NULL}, "step 0 has no kind"},
    };
    tutti_dataset_t *pictures = make_pictures(f, 2, 3, 4, 4), *d;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tutti_transform_options_t o = {
            .dataset = pictures, .steps = &cases[i].step, .step_count = 1};
        assert_int_equal(tutti_dataset_create(&tutti_transform_dataset, &o, &d), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
    const tutti_transform_options_t none = {.dataset = pictures};
    assert_int_equal(tutti_dataset_create(&tutti_transform_dataset, &none, &d), TUTTI_ERR_ARG);
    tutti_dataset_release(pictures);
    const tutti_tensor_data_options_t rows = {.input = tutti_zeros(f->s, TUTTI_U8, TUTTI_SHAPE(3))};
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &rows, &pictures), 0);
    const tutti_transform_options_t flat = {
        .dataset = pictures, .steps = all_steps, .step_count = 1};
    assert_int_equal(tutti_dataset_create(&tutti_transform_dataset, &flat, &d), TUTTI_ERR_SHAPE);
    tt_expect_error("field 0 of tensor is u8[]: pictures are u8 or f32 [channels, height, width]");
    tutti_dataset_release(pictures);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    tt_fixture_t *f = *state;
    const int steps = sizeof all_steps / sizeof all_steps[0];
    expect_read_or_nomem(make_chain(make_pictures(f, 1, 3, 6, 7), all_steps, steps, 9));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(flips_mirror),
        TEST(crops_cut_and_pad),
        TEST(resizing_averages_what_lies_beneath),
        TEST(resized_crops_have_their_shares_and_ratios),
        TEST(affine_maps_turn_around_the_middle),
        TEST(bytes_are_normalised),
        TEST(gray_is_a_sum_of_colors),
        TEST(jitter_changes_one_thing_at_a_time),
        TEST(a_rectangle_is_erased),
        TEST(ranks_workers_and_a_resume_change_no_bit),
        TEST(steps_draw_numbers_of_their_own),
        TEST(steps_of_one_kind_differ),
        TEST(options_out_of_range_are_refused),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
