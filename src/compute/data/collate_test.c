/* Samples of several fields of any shape, and how batches are made of them: stacked, padded,
 * packed, by functions of the caller's, with any number of workers.
 */
#include <stdlib.h>

#include <tutti/dataloader.h>

#include "core/tensor/scope_testing.h"

enum { N = 7 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Texts of 0 … 6 i32, sample i holds 10 i, 10 i + 1, …; a label; three numbers. */
static tutti_dataset_t *make_texts(tt_fixture_t *f)
{
    int32_t words[N * N];
    int64_t offsets[N + 1] = {0}, labels[N], count = 0;
    double more[3 * N];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < i; k++) {
            words[count++] = 10 * i + k;
        }
        offsets[i + 1] = count;
        labels[i] = i;
    }
    for (int i = 0; i < 3 * N; i++) {
        more[i] = i;
    }
    tutti_tensor_t *third = tutti_from_data(f->s, TUTTI_F64, TUTTI_SHAPE(N, 3), more);
    tutti_tensor_t *const starts[] = {tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(N + 1), offsets),
                                      NULL, NULL};
    const tutti_tensor_data_options_t options = {
        .input = tutti_from_data(f->s, TUTTI_I32, TUTTI_SHAPE(count), words),
        .target = tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(N), labels),
        .more = &third,
        .more_count = 1,
        .offsets = starts};
    tutti_dataset_t *d;
    if (tutti_dataset_create(&tutti_tensor_dataset, &options, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return d;
}

static void samples_have_several_fields_of_any_shape(void **state)
{
    tutti_dataset_t *d = make_texts(*state);
    const tutti_dataset_info_t info = tutti_dataset_info(d);
    assert_int_equal(info.count, N);
    assert_int_equal(info.field_count, 3);
    assert_int_equal(info.fields[0].shape.dims[0], TUTTI_ANY);
    tutti_sample_t sample = {0};
    for (int64_t i = N - 1; i >= 0; i--) {
        assert_int_equal(tutti_dataset_read(d, i, (tutti_draw_t){0}, &sample), 0);
        assert_int_equal(sample.field_count, 3);
        assert_true(tutti_shape_equal(sample.shapes[0], TUTTI_SHAPE(i)));
        const int32_t *words = sample.data[0];
        for (int k = 0; k < i; k++) {
            assert_int_equal(words[k], 10 * i + k);
        }
        assert_int_equal(*(const int64_t *)sample.data[1], i);
        assert_true(((const double *)sample.data[2])[2] == 3.0 * (double)i + 2);
    }
    int64_t label = -1;
    sample.data[1] = &label;
    assert_int_equal(tutti_dataset_read(d, 4, (tutti_draw_t){0}, &sample), 0);
    assert_int_equal(label, 4);
    tutti_sample_clear(&sample);
    tutti_sample_clear(NULL);
    tutti_dataset_release(d);
}

static void offsets_that_do_not_fit_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    static const struct {
        int64_t offsets[3];
        const char *error;
    } cases[] = {{{0, 3, 2}, "offset 2 of the input is 2: it must be from 3 to 4"},
                 {{-1, 3, 4}, "offset 0 of the input is -1: it must be from 0 to 4"},
                 {{0, 3, 5}, "offset 2 of the input is 5: it must be from 3 to 4"}};
    tutti_dataset_t *d;
    for (int i = 0; i < 3; i++) {
        tutti_tensor_t *const offsets[] = {
            tutti_from_data(f->s, TUTTI_I64, TUTTI_SHAPE(3), cases[i].offsets)};
        const tutti_tensor_data_options_t options = {
            .input = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(4)), .offsets = offsets};
        assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &d), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
    tutti_tensor_t *const odd[] = {tutti_zeros(f->s, TUTTI_I32, TUTTI_SHAPE(3))};
    const tutti_tensor_data_options_t options = {
        .input = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(4)), .offsets = odd};
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &d), TUTTI_ERR_SHAPE);
    tt_expect_error("the offsets of the input are i32[3]: expected i64[N + 1]");
}

static void a_sample_says_each_shape_once(void **state)
{
    (void)state;
    tutti_sample_t sample = {.field_count = 1, .dtypes = {TUTTI_F32}};
    sample.shapes[0] = TUTTI_SHAPE(TUTTI_ANY, 2);
    assert_int_equal(tutti_sample_resize(&sample, 1, TUTTI_SHAPE(1)), TUTTI_ERR_ARG);
    tt_expect_error("field 1: it has 1");
    assert_int_equal(tutti_sample_resize(&sample, 0, TUTTI_SHAPE(4, 3)), TUTTI_ERR_ARG);
    tt_expect_error("field 0 is to be [4, 3]: the data set said [-1, 2]");
    assert_int_equal(tutti_sample_resize(&sample, 0, TUTTI_SHAPE(4, 2)), 0);
    assert_int_equal(tutti_sample_resize(&sample, 0, TUTTI_SHAPE(4, 2)), 0);
    assert_int_equal(tutti_sample_resize(&sample, 0, TUTTI_SHAPE(5, 2)), TUTTI_ERR_ARG);
    tt_expect_error("or it was resized before");
    tutti_sample_clear(&sample);
}

/* ---- batches --------------------------------------------------------------------------------- */

static tutti_status_t next(tt_fixture_t *f, tutti_dataset_t *d,
                           const tutti_dataloader_options_t *options, tutti_batch_t *batch)
{
    tutti_dataloader_t *loader;
    tutti_status_t status = tutti_dataloader_create(d, options, &loader);
    if (status < 0) {
        fail_msg("%s", tutti_last_error());
    }
    status = tutti_dataloader_next(loader, f->s, batch);
    tutti_dataloader_release(loader);
    return status;
}

static void expect_numbers(const tutti_tensor_t *x, tutti_shape_t shape, const double *numbers)
{
    assert_true(tutti_shape_equal(tutti_tensor_shape(x), shape));
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(tutti_tensor_at(x, i) == numbers[i]);
    }
}

static void texts_are_padded_with_their_lengths(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    const tutti_pad_options_t pad = {.value = -1, .multiple = 4};
    const tutti_collate_t collate[3] = {{tutti_collate_pad, &pad}};
    for (int workers = 0; workers < 3; workers++) {
        tutti_batch_t batch;
        assert_int_equal(
            next(f, d,
                 &(tutti_dataloader_options_t){.batch = 4, .workers = workers, .collate = collate},
                 &batch),
            0);
        assert_int_equal(batch.field_count, 3);
        expect_numbers(batch.input, TUTTI_SHAPE(4, 4),
                       (double[]){-1, -1, -1, -1, 10, -1, -1, -1, 20, 21, -1, -1, 30, 31, 32, -1});
        expect_numbers(batch.lengths[0], TUTTI_SHAPE(4), (double[]){0, 1, 2, 3});
        expect_numbers(batch.target, TUTTI_SHAPE(4), (double[]){0, 1, 2, 3});
        assert_null(batch.lengths[1]);
        assert_true(tutti_tensor_at(batch.fields[2], 11) == 11);
        assert_ptr_equal(batch.fields[0], batch.input);
    }
    tutti_dataset_release(d);
}

static void padding_stands_before_texts_and_reaches_a_length(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    tutti_pad_options_t pad = {.length = 5, .left = true};
    const tutti_collate_t collate[3] = {{tutti_collate_pad, &pad}};
    tutti_batch_t batch;
    tutti_dataloader_options_t options = {.batch = 3, .collate = collate};
    assert_int_equal(next(f, d, &options, &batch), 0);
    expect_numbers(batch.input, TUTTI_SHAPE(3, 5),
                   (double[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 20, 21});
    options.batch = 7;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_dataloader_t *loader;
    assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
    assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_SHAPE);
    tt_expect_error("dataloader: batch 0 of epoch 0: field 0: sample 6 of the batch has size 6 in "
                    "dimension 0: it is padded to 5");
    assert_int_equal(tutti_tensor_status(batch.fields[2]), TUTTI_ERR_SHAPE);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
    tutti_dataloader_release(loader);
    tutti_collated_t out = {0};
    const tutti_field_t field = {TUTTI_I32, TUTTI_SHAPE(TUTTI_ANY)};
    const tutti_sample_t five = {.shapes = {TUTTI_SHAPE(5)}};
    const tutti_collate_call_t call = {.field = &field, .samples = &five, .size = 1};
    const tutti_pad_options_t far[] = {{.multiple = INT64_MAX - 1, .length = INT64_MAX},
                                       {.multiple = INT64_MAX / 2 + 1, .length = INT64_MAX - 1}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_collate_pad(&far[i], &call, &out), TUTTI_ERR_SHAPE);
        tt_expect_error("is more than a size can be");
    }
    pad.multiple = INT64_MAX; /* a size, but not of memory */
    assert_true(tutti_collate_pad(&pad, &call, &out) < 0);
    assert_null(out.values);
    pad.multiple = -1;
    assert_int_equal(tutti_collate_pad(&pad, NULL, &out), TUTTI_ERR_ARG);
    tutti_dataset_release(d);
}

static void texts_are_packed_with_offsets(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    const tutti_collate_t collate[3] = {
        {tutti_collate_pack, NULL}, {0}, {tutti_collate_pack, NULL}};
    tutti_batch_t batch;
    assert_int_equal(
        next(f, d, &(tutti_dataloader_options_t){.batch = 4, .collate = collate}, &batch), 0);
    expect_numbers(batch.input, TUTTI_SHAPE(6), (double[]){10, 20, 21, 30, 31, 32});
    expect_numbers(batch.lengths[0], TUTTI_SHAPE(5), (double[]){0, 0, 1, 3, 6});
    expect_numbers(batch.fields[2], TUTTI_SHAPE(12),
                   (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    expect_numbers(batch.lengths[2], TUTTI_SHAPE(5), (double[]){0, 3, 6, 9, 12});
    tutti_dataset_release(d);
}

static void samples_that_differ_are_not_stacked(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    const tutti_collate_t scalars[3] = {{tutti_collate_pad, NULL}, {tutti_collate_pack, NULL}};
    tutti_dataloader_options_t options = {.batch = 2};
    for (int i = 0; i < 2; i++, options.collate = scalars) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        tutti_dataloader_t *loader;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
        assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_SHAPE);
        tt_expect_error(i == 0 ? "field 0: sample 1 of the batch is [1], its first is [0]: let "
                                 "options.collate pad or pack them"
                               : "field 1 is []: packing needs a first dimension");
        assert_int_equal(tutti_scope_close(s), TUTTI_ERR_SHAPE);
        tutti_dataloader_release(loader);
    }
    tutti_dataset_release(d);
}

/* u8 [1 + i, TUTTI_ANY, 2], bytes that count up. */
static tutti_status_t grids_init(tutti_dataset_t *d, const void *options,
                                 tutti_dataset_info_t *info)
{
    (void)d;
    (void)options;
    *info = (tutti_dataset_info_t){
        .count = 3, .field_count = 1, .fields = {{TUTTI_U8, TUTTI_SHAPE(TUTTI_ANY, TUTTI_ANY, 2)}}};
    return TUTTI_OK;
}

static tutti_status_t grids_read(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    (void)d;
    const tutti_shape_t shape = TUTTI_SHAPE(1 + index, 3 - index, 2);
    if (index == 2) {
        return TUTTI_OK; /* says nothing */
    }
    TUTTI_CHECK(tutti_sample_resize(to, 0, shape));
    unsigned char *bytes = to->data[0];
    for (int64_t i = 0; i < tutti_shape_numel(shape); i++) {
        bytes[i] = (unsigned char)(i + 1);
    }
    return TUTTI_OK;
}

static const tutti_dataset_ops_t grids = {
    .name = "grids", .about = "for this test", .init = grids_init, .read = grids_read};

static void several_sizes_may_differ(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&grids, &(int){0}, &d), 0);
    const tutti_collate_t pad = {tutti_collate_pad, NULL};
    tutti_batch_t batch;
    assert_int_equal(next(f, d, &(tutti_dataloader_options_t){.batch = 2, .collate = &pad}, &batch),
                     0);
    expect_numbers(batch.input, TUTTI_SHAPE(2, 2, 3, 2),
                   (double[]){1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, /* [1, 3, 2] */
                              1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0} /* [2, 2, 2] */);
    expect_numbers(batch.lengths[0], TUTTI_SHAPE(2, 2), (double[]){1, 3, 2, 2});
    tutti_sample_t sample = {0};
    assert_int_equal(tutti_dataset_read(d, 2, (tutti_draw_t){0}, &sample), TUTTI_ERR_STATE);
    tt_expect_error("data set grids: a sample's field 0 was not given a shape");
    tutti_sample_clear(&sample);
    tutti_dataset_release(d);
}

/* ---- functions of the caller's --------------------------------------------------------------- */

static tutti_status_t count_words(const void *options, const tutti_collate_call_t *call,
                                  tutti_collated_t *out)
{
    const int64_t *add = options;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(call->size), &out->values));
    int64_t *to = tutti_tensor_data(out->values);
    for (int64_t i = 0; i < call->size; i++) {
        to[i] = call->samples[i].shapes[call->index].dims[0] + *add;
    }
    return *add < 0 ? tutti_fail(TUTTI_ERR_ARG, "not so few") : TUTTI_OK;
}

/* Adds a random number to each label, and makes lengths of its own. */
static tutti_status_t shake(const void *options, tutti_random_t *random, tutti_batch_t *batch)
{
    (void)options;
    int64_t *labels = tutti_tensor_data(batch->fields[1]);
    for (int64_t i = 0; i < batch->size; i++) {
        labels[i] = tutti_random_below(random, 1 << 30);
    }
    return tutti_tensor_create(TUTTI_I64, TUTTI_SHAPE(batch->size), &batch->lengths[1]);
}

static void fields_go_through_functions_of_the_callers(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    int64_t add = 100;
    const tutti_collate_t collate[3] = {{count_words, &add}};
    tutti_dataloader_options_t options = {.batch = 3, .collate = collate};
    tutti_batch_t batch;
    assert_int_equal(next(f, d, &options, &batch), 0);
    expect_numbers(batch.input, TUTTI_SHAPE(3), (double[]){100, 101, 102});
    add = -1;
    tutti_scope_t *s;
    tutti_dataloader_t *loader;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
    assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_ARG);
    tt_expect_error("batch 0 of epoch 0: not so few");
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_ARG);
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
}

static void read_epoch(tt_fixture_t *f, tutti_dataloader_t *loader, int first, int count,
                       int64_t *labels)
{
    tutti_batch_t batch = {0};
    tutti_status_t status = TUTTI_OK;
    for (int calls = 0; status == TUTTI_OK; calls++) {
        tutti_context_set_shard(f->ctx, first + calls % count);
        status = tutti_dataloader_next(loader, f->s, &batch);
        for (int64_t i = 0; i < batch.size; i++) {
            assert_int_equal(tutti_tensor_numel(batch.lengths[1]), batch.size);
            labels[batch.step * 3 + batch.shard] = (int64_t)tutti_tensor_at(batch.target, i);
        }
    }
    assert_int_equal(status, TUTTI_END);
}

/* What batches of two epochs have in their labels, for shards that ranks host. */
static void read_labels(tt_fixture_t *f, tutti_dataset_t *d, int workers, int ranks,
                        int64_t labels[2][N])
{
    const tutti_collate_t collate[3] = {{tutti_collate_pad, NULL}};
    for (int rank = 0; rank < ranks; rank++) {
        tutti_dataloader_t *loader;
        const tutti_dataloader_options_t options = {.batch = 1,
                                                    .shuffle = true,
                                                    .shards = 3,
                                                    .ranks = ranks,
                                                    .rank = rank,
                                                    .workers = workers,
                                                    .collate = collate,
                                                    .batch_call = shake,
                                                    .batch_seed = 5};
        assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
        for (int epoch = 0; epoch < 2; epoch++) {
            assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
            read_epoch(f, loader, 3 * rank / ranks, 3 / ranks, labels[epoch]);
        }
        tutti_dataloader_release(loader);
    }
}

static void random_numbers_of_a_batch_are_named_by_its_place(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    int64_t alone[2][N], other[2][N];
    read_labels(f, d, 0, 1, alone);
    read_labels(f, d, 2, 1, other);
    assert_memory_equal(alone, other, sizeof alone);
    read_labels(f, d, 1, 3, other);
    assert_memory_equal(alone, other, sizeof alone);
    for (int i = 0; i < N; i++) {
        assert_true(alone[0][i] != alone[1][i] && (i == 0 || alone[0][i] != alone[0][i - 1]));
    }
    tutti_dataset_release(d);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *d = make_texts(f);
    const tutti_collate_t collate[3] = {{tutti_collate_pad, NULL}, {0}, {tutti_collate_pack, NULL}};
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        tutti_dataloader_t *loader = NULL;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_dataloader_create(
            d, &(tutti_dataloader_options_t){.batch = 4, .collate = collate}, &loader);
        status = status < 0 ? status : tutti_dataloader_next(loader, s, &batch);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_dataloader_release(loader);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        (void)tutti_scope_close(s); /* what is left, the fixture finds */
    }
    tutti_dataset_release(d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(samples_have_several_fields_of_any_shape),
        TEST(offsets_that_do_not_fit_are_refused),
        TEST(a_sample_says_each_shape_once),
        TEST(texts_are_padded_with_their_lengths),
        TEST(padding_stands_before_texts_and_reaches_a_length),
        TEST(texts_are_packed_with_offsets),
        TEST(samples_that_differ_are_not_stacked),
        TEST(several_sizes_may_differ),
        TEST(fields_go_through_functions_of_the_callers),
        TEST(random_numbers_of_a_batch_are_named_by_its_place),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
