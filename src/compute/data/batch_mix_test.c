/* Batches whose samples are mixed: by values, and by rectangles. */
#include <math.h>
#include <stdlib.h>

#include <tutti/transforms.h>

#include "core/tensor/scope_testing.h"

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* Batches of four float pictures [1, 8, 8] of which each has its own number everywhere. */
static tutti_batch_t next(tt_fixture_t *f, tutti_batch_fn_t call, const tutti_mix_options_t *mix,
                          int64_t epoch)
{
    float values[4 * 64];
    for (int i = 0; i < 4 * 64; i++) {
        values[i] = (float)(i / 64);
    }
    const tutti_tensor_data_options_t rows = {
        .input = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(4, 1, 8, 8), values),
        .target = tutti_from_data(f->s, TUTTI_U8, TUTTI_SHAPE(4), (unsigned char[]){0, 2, 1, 2})};
    tutti_dataset_t *d;
    tutti_dataloader_t *loader;
    tutti_batch_t batch;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &rows, &d), 0);
    const tutti_dataloader_options_t options = {
        .batch = 4, .workers = 1, .batch_call = call, .batch_options = mix};
    assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
    assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
    (void)tutti_dataloader_next(loader, f->s, &batch);
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
    return batch;
}

static void expect_targets(const tutti_tensor_t *targets, double share)
{
    static const int classes[] = {0, 2, 1, 2};
    assert_true(tutti_shape_equal(tutti_tensor_shape(targets), TUTTI_SHAPE(4, 3)));
    for (int i = 0; i < 12; i++) {
        const int own = classes[i / 3], before = classes[(i / 3 + 3) % 4];
        const double value = (i % 3 == own ? share : 0) + (i % 3 == before ? 1 - share : 0);
        assert_true(fabs(tutti_tensor_at(targets, i) - value) < 1e-6);
    }
}

static void mixup_mixes_each_with_the_one_before(void **state)
{
    double first = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        const tutti_batch_t batch =
            next(*state, tutti_mixup, &(tutti_mix_options_t){.alpha = 0.4, .classes = 3}, epoch);
        const double share = tutti_tensor_at(batch.input, 64); /* share × 1 + rest × 0 */
        first = epoch == 0 ? share : first;
        assert_true(share >= 0 && share <= 1 && (epoch == 0 || share != first));
        for (int i = 0; i < 4; i++) {
            const double mixed = share * i + (1 - share) * ((i + 3) % 4);
            assert_true(fabs(tutti_tensor_at(batch.input, 64 * i + 5) - mixed) < 1e-6);
        }
        expect_targets(batch.target, share);
    }
}

static void cutmix_takes_a_rectangle_of_the_one_before(void **state)
{
    int cut = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        const tutti_batch_t batch =
            next(*state, tutti_cutmix, &(tutti_mix_options_t){.alpha = 1, .classes = 3}, epoch);
        int area = 0;
        for (int i = 0; i < 64; i++) {
            const bool is_cut = tutti_tensor_at(batch.input, i) == 3;
            for (int k = 0; k < 4; k++) {
                assert_true(tutti_tensor_at(batch.input, 64 * k + i) == (is_cut ? (k + 3) % 4 : k));
            }
            area += is_cut;
        }
        cut += area > 0;
        expect_targets(batch.target, 1 - area / 64.0);
    }
    assert_true(cut > 10);
}

/* Beta(alpha, alpha) of a small alpha is nearly 0 or nearly 1, also where its gammas underflow. */
static void a_small_alpha_leaves_samples_as_they_are(void **state)
{
    int own = 0, before = 0;
    for (int epoch = 0; epoch < 60; epoch++) {
        const tutti_batch_t batch =
            next(*state, tutti_mixup, &(tutti_mix_options_t){.alpha = 1e-5, .classes = 3}, epoch);
        const double share = tutti_tensor_at(batch.input, 64);
        own += share > 0.99;
        before += share < 0.01;
    }
    assert_int_equal(own + before, 60);
    assert_in_range(own, 12, 48); /* 30, and 4.6 deviations */
}

/* A function of the caller's finds the same names as who gets the batch. */
static tutti_status_t look(const void *options, tutti_random_t *random, tutti_batch_t *batch)
{
    (void)options;
    (void)random;
    return batch->input == batch->fields[0] && batch->input != NULL &&
                   batch->target == batch->fields[1]
               ? TUTTI_OK
               : tutti_fail(TUTTI_ERR_STATE, "the batch has no input");
}

static void a_batch_has_input_and_target_on_its_way(void **state)
{
    const tutti_batch_t batch = next(*state, look, NULL, 0);
    assert_int_equal(tutti_tensor_status(batch.input), 0);
}

static tutti_status_t look_at_nothing(const void *options, tutti_random_t *random,
                                      tutti_batch_t *batch)
{
    (void)options;
    (void)random;
    (void)batch;
    return TUTTI_OK;
}

static tutti_status_t fail_silently(const void *options, tutti_random_t *random,
                                    tutti_batch_t *batch)
{
    (void)options;
    (void)random;
    (void)batch;
    return TUTTI_ERR_IO;
}

/* A function that does not say what failed gets the name of its status, not an older failure. */
static void a_failure_without_a_text_is_none_of_before(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_tensor_data_options_t rows = {.input =
                                                  tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(4))};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &rows, &d), 0);
    for (int workers = 0; workers < 2; workers++) {
        tutti_dataloader_t *loader;
        tutti_scope_t *s;
        tutti_batch_t batch;
        tutti_dataloader_options_t o = {
            .batch = 4, .workers = workers, .batch_call = fail_silently};
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
        (void)tutti_fail(TUTTI_ERR_ARG, "something of before");
        assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_IO);
        tt_expect_error("dataloader: ");
        assert_null(strstr(tutti_last_error(), "something of before"));
        (void)tutti_scope_close(s);
        tutti_dataloader_release(loader);
        o.batch_call = look_at_nothing;
        assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
        (void)tutti_fail(TUTTI_ERR_ARG, "something of before");
        assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
        assert_string_equal(tutti_last_error(), "something of before");
        tutti_dataloader_release(loader);
    }
    tutti_dataset_release(d);
}

static void what_cannot_be_mixed_is_refused(void **state)
{
    tt_fixture_t *f = *state;
    tutti_scope_t *outer = f->s;
    const tutti_mix_options_t cases[] = {{0, 3}, {1, 0}, {1, 2}};
    static const char *const errors[] = {"mixup: an alpha above 0", "at least one class",
                                         "mixup: target 2 of sample 1: there are 2 classes"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
        const tutti_batch_t batch = next(f, tutti_mixup, &cases[i], 0);
        assert_true(tutti_tensor_status(batch.input) < 0);
        tt_expect_error(errors[i]);
        assert_true(tutti_scope_close(f->s) < 0);
    }
    f->s = outer;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(mixup_mixes_each_with_the_one_before),
        TEST(cutmix_takes_a_rectangle_of_the_one_before),
        TEST(a_small_alpha_leaves_samples_as_they_are),
        TEST(a_batch_has_input_and_target_on_its_way),
        TEST(a_failure_without_a_text_is_none_of_before),
        TEST(what_cannot_be_mixed_is_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
