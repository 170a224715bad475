/* Data sets made of others, functions of the caller's, and pictures. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/data.h>
#include <tutti/data_files.h>
#include <tutti/pictures.h>
#include <tutti/transforms.h>

#include "core/tensor/scope_testing.h"

enum { ROOM = 64 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* f32 from, from + 1, …, and as many i32 targets, ten times as much. */
static tutti_dataset_t *make_rows(tt_fixture_t *f, int from, int count)
{
    float inputs[ROOM];
    int32_t targets[ROOM];
    for (int i = 0; i < count; i++) {
        inputs[i] = (float)(from + i);
        targets[i] = 10 * (from + i);
    }
    const tutti_tensor_data_options_t options = {
        .input = tutti_from_data(f->s, TUTTI_F32, TUTTI_SHAPE(count), inputs),
        .target = tutti_from_data(f->s, TUTTI_I32, TUTTI_SHAPE(count), targets)};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &d), 0);
    return d;
}

static tutti_dataset_t *make(const tutti_dataset_ops_t *kind, const void *options)
{
    tutti_dataset_t *d;
    if (tutti_dataset_create(kind, options, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return d;
}

static void expect_sample(tutti_dataset_t *d, int64_t index, float input)
{
    float x = -1;
    int32_t y = -1;
    assert_int_equal(
        tutti_dataset_read(d, index, (tutti_draw_t){0}, &(tutti_sample_t){.data = {&x, &y}}), 0);
    assert_true(x == input && y == (int32_t)(10 * input));
}

static void expect_refused(const tutti_dataset_ops_t *kind, const void *options,
                           tutti_status_t status, const char *part)
{
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(kind, options, &d), status);
    tt_expect_error(part);
}

static void a_subset_has_the_samples_it_was_given(void **state)
{
    tutti_dataset_t *rows = make_rows(*state, 0, 10);
    int64_t samples[] = {7, 2, 2, 9};
    tutti_subset_options_t options = {rows, samples, 4};
    tutti_dataset_t *d = make(&tutti_subset_dataset, &options);
    samples[0] = 10;
    expect_refused(&tutti_subset_dataset, &options, TUTTI_ERR_ARG,
                   "data set subset: entry 0 is sample 10: tensor has 10");
    tutti_dataset_release(rows);
    assert_int_equal(tutti_dataset_info(d).count, 4);
    expect_sample(d, 0, 7);
    expect_sample(d, 2, 2);
    expect_sample(d, 3, 9);
    float x;
    int32_t y;
    assert_int_equal(
        tutti_dataset_read(d, 4, (tutti_draw_t){0}, &(tutti_sample_t){.data = {&x, &y}}),
        TUTTI_ERR_ARG);
    tt_expect_error("data set subset: sample 4: it has 4");
    assert_int_equal(
        tutti_dataset_read(d, -1, (tutti_draw_t){0}, &(tutti_sample_t){.data = {&x, &y}}),
        TUTTI_ERR_ARG);
    tutti_dataset_release(d);
}

static void data_sets_are_joined_in_order(void **state)
{
    tutti_dataset_t *parts[] = {make_rows(*state, 0, 3), make_rows(*state, 20, 0),
                                make_rows(*state, 40, 1), make_rows(*state, 60, 5)};
    const tutti_concat_options_t options = {parts, 4};
    tutti_dataset_t *d = make(&tutti_concat_dataset, &options);
    assert_int_equal(tutti_dataset_info(d).count, 9);
    static const float wanted[] = {0, 1, 2, 40, 60, 61, 62, 63, 64};
    for (int i = 0; i < 9; i++) {
        expect_sample(d, i, wanted[i]);
    }
    tutti_dataset_release(d);
    for (int i = 0; i < 4; i++) {
        tutti_dataset_release(parts[i]);
    }
}

static void data_sets_that_differ_are_not_joined(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_tensor_data_options_t alone = {.input =
                                                   tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(4))};
    tutti_dataset_t *parts[] = {make_rows(f, 0, 3), make(&tutti_tensor_dataset, &alone)};
    expect_refused(&tutti_concat_dataset, &(tutti_concat_options_t){parts, 2}, TUTTI_ERR_SHAPE,
                   "data set concat: part 1 (tensor) differs from part 0 (tensor)");
    expect_refused(&tutti_concat_dataset, &(tutti_concat_options_t){parts, 0}, TUTTI_ERR_ARG,
                   "at least one is required");
    tutti_dataset_release(parts[0]);
    tutti_dataset_release(parts[1]);
}

/* A count without what it counts. */
static void lists_that_are_missing_are_told(void **state)
{
    static const char *const one[] = {"/tmp", NULL}, *const none[] = {NULL};
    static const tutti_csv_field_t no_column = {
        .columns = none, .column_count = 1, .dtype = TUTTI_F32};
    static const tutti_csv_field_t no_class = {
        .columns = one, .column_count = 1, .dtype = TUTTI_I64, .classes = none, .class_count = 1};
    tutti_dataset_t *rows = make_rows(*state, 0, 3);
    tutti_csv_options_t csv = {.data = {"/tmp\n1\n", 7}, .fields = &no_column, .field_count = 1};
    expect_refused(&tutti_npy_dataset, &(tutti_npy_options_t){.path_count = 1}, TUTTI_ERR_ARG,
                   "npy: path 0 of 1 is missing");
    expect_refused(&tutti_line_dataset, &(tutti_line_options_t){one, 2}, TUTTI_ERR_ARG,
                   "line: path 1 of 2 is missing");
    expect_refused(&tutti_token_dataset, &(tutti_token_options_t){.path_count = 1, .length = 4},
                   TUTTI_ERR_ARG, "token: path 0 of 1 is missing");
    expect_refused(&tutti_concat_dataset, &(tutti_concat_options_t){.count = 1}, TUTTI_ERR_ARG,
                   "concat: part 0 is missing");
    expect_refused(&tutti_subset_dataset, &(tutti_subset_options_t){.dataset = rows, .count = 1},
                   TUTTI_ERR_ARG, "subset: there are no samples");
    expect_refused(&tutti_transform_dataset,
                   &(tutti_transform_options_t){.dataset = rows, .step_count = 1}, TUTTI_ERR_ARG,
                   "transform: there are no steps");
    expect_refused(&tutti_csv_dataset, &csv, TUTTI_ERR_ARG, "field 0: name 0 of 1 is missing");
    csv.fields = &no_class;
    expect_refused(&tutti_csv_dataset, &csv, TUTTI_ERR_ARG, "field 0: class 0 of 1 is missing");
    tutti_dataset_release(rows);
}

static void a_split_deals_each_sample_to_one_part(void **state)
{
    tutti_dataset_t *rows = make_rows(*state, 0, 50), *parts[3], *again[3];
    const int64_t lengths[] = {30, 0, 20};
    assert_int_equal(tutti_random_split(rows, lengths, 3, 5, parts), 0);
    assert_int_equal(tutti_random_split(rows, lengths, 3, 6, again), 0);
    int times[50] = {0}, in_order = 0, equal = 0;
    for (int part = 0; part < 3; part++) {
        assert_int_equal(tutti_dataset_info(parts[part]).count, lengths[part]);
        for (int64_t i = 0; i < lengths[part]; i++) {
            float x, x2;
            int32_t y;
            assert_int_equal(tutti_dataset_read(parts[part], i, (tutti_draw_t){0},
                                                &(tutti_sample_t){.data = {&x, &y}}),
                             0);
            assert_int_equal(tutti_dataset_read(again[part], i, (tutti_draw_t){0},
                                                &(tutti_sample_t){.data = {&x2, &y}}),
                             0);
            times[(int)x]++;
            in_order += (int)x == i;
            equal += (int)x == (int)x2;
        }
        tutti_dataset_release(parts[part]);
        tutti_dataset_release(again[part]);
    }
    for (int i = 0; i < 50; i++) {
        assert_int_equal(times[i], 1);
    }
    assert_true(in_order < 10 && equal < 10);
    assert_int_equal(tutti_random_split(rows, (int64_t[]){30, 10}, 2, 5, parts), TUTTI_ERR_ARG);
    tt_expect_error("the parts leave 10 of 50 samples");
    assert_int_equal(tutti_random_split(rows, (int64_t[]){30, 21}, 2, 5, parts), TUTTI_ERR_ARG);
    tt_expect_error("part 1 is to have 21 samples: 20 of 50 are left");
    tutti_dataset_release(rows);
}

/* ---- functions of the caller's --------------------------------------------------------------- */

/* f32 -> f64 [2]: the input and what `user` adds, and a random number. */
static tutti_status_t shake(void *user, tutti_random_t *random, const tutti_sample_t *from,
                            tutti_sample_t *to)
{
    const float x = *(const float *)from->data[TUTTI_INPUT];
    double *y = to->data[TUTTI_INPUT];
    if (x == 13) {
        return tutti_fail(TUTTI_ERR_FORMAT, "picture %g is upside down", (double)x);
    }
    y[0] = x + *(const int *)user;
    y[1] = tutti_random_uniform(random);
    *(int32_t *)to->data[TUTTI_TARGET] = *(const int32_t *)from->data[TUTTI_TARGET];
    return TUTTI_OK;
}

static double shaken(tutti_dataset_t *d, int64_t index, int64_t epoch, int64_t position)
{
    double y[2];
    int32_t target;
    const tutti_draw_t draw = {epoch, position};
    assert_int_equal(tutti_dataset_read(d, index, draw, &(tutti_sample_t){.data = {y, &target}}),
                     0);
    assert_true(y[0] == (double)index + 100);
    assert_int_equal(target, 10 * index);
    return y[1];
}

static void a_function_is_named_its_random_numbers_by_the_draw(void **state)
{
    tutti_dataset_t *rows = make_rows(*state, 0, 20);
    int add = 100;
    const tutti_field_t fields[] = {{TUTTI_F64, TUTTI_SHAPE(2)}, {TUTTI_I32, TUTTI_SCALAR}};
    tutti_map_options_t options = {
        .dataset = rows, .transform = shake, .user = &add, .fields = fields, .field_count = 2};
    tutti_dataset_t *d = make(&tutti_map_dataset, &options);
    options.seed = 1;
    tutti_dataset_t *seeded = make(&tutti_map_dataset, &options);
    const double first = shaken(d, 5, 0, 3);
    assert_true(first == shaken(d, 5, 0, 3));
    assert_true(first != shaken(d, 5, 1, 3)); /* another epoch */
    assert_true(first != shaken(d, 5, 0, 4)); /* drawn twice in an epoch */
    assert_true(first != shaken(d, 6, 0, 3)); /* the same position on another rank */
    assert_true(first != shaken(seeded, 5, 0, 3));
    assert_int_equal(tutti_dataset_info(d).fields[0].dtype, TUTTI_F64);
    assert_int_equal(tutti_dataset_info(d).fields[1].dtype, TUTTI_I32);
    double y[2];
    int32_t target;
    assert_int_equal(
        tutti_dataset_read(d, 13, (tutti_draw_t){0}, &(tutti_sample_t){.data = {y, &target}}),
        TUTTI_ERR_FORMAT);
    tt_expect_error("picture 13 is upside down");
    tutti_dataset_release(seeded);
    tutti_dataset_release(d);
    tutti_dataset_release(rows);
    options.transform = NULL;
    expect_refused(&tutti_map_dataset, &options, TUTTI_ERR_ARG, "a transform are required");
}

/* The draw goes down through data sets made of others. */
static void the_draw_reaches_a_function_through_other_data_sets(void **state)
{
    tutti_dataset_t *rows = make_rows(*state, 0, 20);
    int add = 100;
    const tutti_field_t fields[] = {{TUTTI_F64, TUTTI_SHAPE(2)}, {TUTTI_I32, TUTTI_SCALAR}};
    const tutti_map_options_t options = {
        .dataset = rows, .transform = shake, .user = &add, .fields = fields, .field_count = 2};
    tutti_dataset_t *d = make(&tutti_map_dataset, &options);
    tutti_dataset_t *twice =
        make(&tutti_concat_dataset, &(tutti_concat_options_t){(tutti_dataset_t *[]){d, d}, 2});
    const int64_t sample = 25;
    tutti_dataset_t *one =
        make(&tutti_subset_dataset, &(tutti_subset_options_t){twice, &sample, 1});
    double y[2];
    int32_t target;
    assert_int_equal(
        tutti_dataset_read(one, 0, (tutti_draw_t){4, 9}, &(tutti_sample_t){.data = {y, &target}}),
        0);
    assert_true(y[0] == 105 && y[1] == shaken(d, 5, 4, 9));
    tutti_dataset_release(one);
    tutti_dataset_release(twice);
    tutti_dataset_release(d);
    tutti_dataset_release(rows);
}

static void random_numbers_of_a_sample_have_their_distributions(void **state)
{
    (void)state;
    tutti_random_t random = {.name = {1, 2, 3, 4}};
    double sum = 0, squares = 0, normal = 0, normal_squares = 0;
    int counts[5] = {0};
    for (int i = 0; i < 10000; i++) {
        const double u = tutti_random_uniform(&random), n = tutti_random_normal(&random);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
        normal += n;
        normal_squares += n * n;
        counts[tutti_random_below(&random, 5)]++;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.015 && fabs(squares / 10000 - 1.0 / 3) < 0.015);
    assert_true(fabs(normal / 10000) < 0.05 && fabs(normal_squares / 10000 - 1) < 0.07);
    for (int i = 0; i < 5; i++) {
        assert_true(abs(counts[i] - 2000) < 200);
    }
    assert_int_equal(random.next, 3 * 10000);
}

/* A draw has four words, and each of them counts; a number in [0, 1) has 53 bits. */
static void random_numbers_of_other_draws_are_others(void **state)
{
    (void)state;
    for (int word = 0; word < 4; word++) {
        tutti_random_t one = {.name = {1, 2, 3, 4}}, other = one;
        other.name[word] += 1;
        assert_true(tutti_random_uniform(&one) != tutti_random_uniform(&other));
    }
    tutti_random_t random = {.name = {1, 2, 3, 4}};
    int repeated = 0;
    for (int i = 0; i < 100; i++) {
        const uint64_t bits = (uint64_t)(tutti_random_uniform(&random) * 0x1p53);
        repeated += (bits & 0x1fffff) == bits >> 32; /* the lowest 21 and the highest */
    }
    assert_in_range(repeated, 0, 1);
}

/* ---- pictures -------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *folder, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void pictures_are_normalised(void **state)
{
    (void)state;
    char folder[] = "/tmp/tutti-mnist-XXXXXX";
    assert_non_null(mkdtemp(folder));
    static const unsigned char images[] = {0, 0, 8, 3, 0,   0,  0,  2, 0, 0, 0,  2,
                                           0, 0, 0, 2, 255, 51, 10, 0, 1, 2, 30, 4};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};
    write_file(folder, "t10k-images-idx3-ubyte", images, sizeof images);
    write_file(folder, "t10k-labels-idx1-ubyte", labels, sizeof labels);
    tutti_mnist_options_t options = {.folder = folder, .is_test = true, .mean = 0.2, .std = 0.5};
    tutti_dataset_t *d = make(&tutti_mnist_dataset, &options);
    assert_true(tutti_shape_equal(tutti_dataset_info(d).fields[0].shape, TUTTI_SHAPE(1, 2, 2)));
    float x[4];
    unsigned char y;
    assert_int_equal(
        tutti_dataset_read(d, 0, (tutti_draw_t){0}, &(tutti_sample_t){.data = {x, &y}}), 0);
    assert_true(fabsf(x[0] - 1.6f) < 1e-6 && fabsf(x[1]) < 1e-6 && fabsf(x[3] + 0.4f) < 1e-6);
    assert_int_equal(y, 7);
    assert_int_equal(
        tutti_dataset_read(d, 1, (tutti_draw_t){0}, &(tutti_sample_t){.data = {x, &y}}), 0);
    assert_true(fabsf(x[2] - (float)((30 / 255.0 - 0.2) / 0.5)) < 1e-6 && y == 9);
    tutti_dataset_release(d);
    options.std = -1;
    expect_refused(&tutti_mnist_dataset, &options, TUTTI_ERR_ARG, "std -1");
    options.std = 0;
    options.is_test = false;
    expect_refused(&tutti_mnist_dataset, &options, TUTTI_ERR_IO, "train-images-idx3-ubyte.gz");
    write_file(folder, "t10k-images-idx3-ubyte", labels, sizeof labels);
    options.is_test = true;
    expect_refused(&tutti_mnist_dataset, &options, TUTTI_ERR_FORMAT,
                   "expected u8[N, height, width] and u8[N]");
    remove_file(folder, "t10k-images-idx3-ubyte");
    remove_file(folder, "t10k-labels-idx1-ubyte");
    assert_int_equal(rmdir(folder), 0);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    tutti_dataset_t *rows = make_rows(*state, 0, 6);
    const size_t before = tt_alloc_stats().blocks;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_dataset_t *parts[2] = {NULL, NULL}, *joined = NULL;
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_random_split(rows, (int64_t[]){2, 4}, 2, 0, parts);
        if (status >= 0) {
            const tutti_concat_options_t both = {parts, 2};
            status = tutti_dataset_create(&tutti_concat_dataset, &both, &joined);
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_dataset_release(joined);
        tutti_dataset_release(parts[0]);
        tutti_dataset_release(parts[1]);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, before);
    }
    tutti_dataset_release(rows);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(a_subset_has_the_samples_it_was_given),
        TEST(data_sets_are_joined_in_order),
        TEST(data_sets_that_differ_are_not_joined),
        TEST(lists_that_are_missing_are_told),
        TEST(a_split_deals_each_sample_to_one_part),
        TEST(a_function_is_named_its_random_numbers_by_the_draw),
        TEST(the_draw_reaches_a_function_through_other_data_sets),
        TEST(random_numbers_of_a_sample_have_their_distributions),
        TEST(random_numbers_of_other_draws_are_others),
        TEST(pictures_are_normalised),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
