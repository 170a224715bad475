/* The shuffle buffer: each sample once, as far from its place as the buffer reaches; the same order
 * wherever it is read, and behind a resume; ends and failures.
 */
#include <string.h>

#include <tutti/dataloader.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/tensor/scope_testing.h"

enum { COUNT = 40, PARTS = 2, BATCH = 3, STEPS_MAX = 16 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* ---- a stream of numbers --------------------------------------------------------------------- */

/* Number i is in part i modulo parts; each comes with as many bytes as i modulo 4. */
typedef struct {
    int64_t count, fails_at; /* -1: nowhere */
} numbers_t;

typedef struct {
    int64_t next, parts;
} place_t;

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    memcpy(tutti_dataset_state(d), &options, sizeof options);
    *info = (tutti_dataset_info_t){
        .count = TUTTI_ANY,
        .field_count = 2,
        .fields = {{TUTTI_I64, TUTTI_SCALAR}, {TUTTI_U8, TUTTI_SHAPE(TUTTI_ANY)}}};
    return TUTTI_OK;
}

static tutti_status_t open_numbers(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                   void **out)
{
    (void)d, (void)epoch;
    place_t *place = tt_alloc(sizeof *place, "test");
    TT_TRY_ALLOC(place);
    *place = (place_t){part, parts};
    *out = place;
    return TUTTI_OK;
}

static tutti_status_t next_number(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    const numbers_t *numbers = *(const numbers_t **)tutti_dataset_state(d);
    place_t *place = user;
    const int64_t i = place->next;
    if (i == numbers->fails_at) {
        return tutti_fail(TUTTI_ERR_FORMAT, "number %lld is unlucky", (long long)i);
    }
    if (i >= numbers->count) {
        return TUTTI_END;
    }
    *(int64_t *)to->data[0] = i;
    TT_TRY(tutti_sample_resize(to, 1, TUTTI_SHAPE(i % 4)));
    memset(to->data[1], (int)i, (size_t)(i % 4));
    place->next += place->parts;
    return TUTTI_OK;
}

static void close_numbers(tutti_dataset_t *d, void *user)
{
    (void)d;
    tt_free(user);
}

static const tutti_dataset_ops_t number_stream = {.name = "numbers",
                                                  .about = "for this test",
                                                  .state_bytes = sizeof(void *),
                                                  .init = init,
                                                  .open = open_numbers,
                                                  .next = next_number,
                                                  .close = close_numbers};

static tutti_dataset_t *make(const numbers_t *numbers, int64_t size, uint64_t seed)
{
    tutti_dataset_t *inner, *d;
    assert_int_equal(tutti_dataset_create(&number_stream, numbers, &inner), 0);
    const tutti_shuffle_buffer_options_t o = {.dataset = inner, .size = size, .seed = seed};
    if (tutti_dataset_create(&tutti_shuffle_buffer_dataset, &o, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_dataset_release(inner);
    return d;
}

static const numbers_t forty = {.count = COUNT, .fails_at = -1};

/* ---- a part ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t numbers[COUNT], count;
} order_t;

static tutti_status_t take(tutti_dataset_t *d, void *cursor, tutti_sample_t *sample, order_t *order)
{
    const tutti_status_t status = tt_stream_next(d, cursor, sample);
    if (status == TUTTI_OK) {
        const int64_t i = *(const int64_t *)sample->data[0];
        const unsigned char *bytes = sample->data[1];
        assert_int_equal(sample->shapes[1].dims[0], i % 4); /* all fields are one sample's */
        for (int64_t k = 0; k < i % 4; k++) {
            assert_int_equal(bytes[k], i);
        }
        assert_in_range(order->count, 0, COUNT - 1);
        order->numbers[order->count++] = i;
    }
    return status;
}

/* What a part gives behind its first `passed`. */
static order_t read_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                         int64_t passed)
{
    const tutti_dataset_ops_t *ops = &tutti_shuffle_buffer_dataset;
    order_t order = {.count = 0};
    int64_t number = 0, done = -1;
    tutti_sample_t sample = {.data = {&number}};
    void *cursor;
    assert_int_equal(ops->open(d, epoch, part, parts, &cursor), 0);
    assert_int_equal(tt_stream_skip(d, cursor, passed, &done), 0);
    assert_true(done <= passed);
    while (take(d, cursor, &sample, &order) == TUTTI_OK) {
    }
    assert_int_equal(tt_stream_next(d, cursor, &sample), TUTTI_END); /* it stays so */
    ops->close(d, cursor);
    tutti_sample_clear(&sample);
    return order;
}

static bool are_equal(const order_t *a, const order_t *b)
{
    return a->count == b->count &&
           memcmp(a->numbers, b->numbers, (size_t)a->count * sizeof a->numbers[0]) == 0;
}

static void each_sample_comes_once_and_not_too_early(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 7, 39, 40, 1000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        tutti_dataset_t *d = make(&forty, sizes[k], 3);
        const order_t order = read_part(d, 0, 0, 1, 0);
        bool seen[COUNT] = {false};
        int64_t moved = 0;
        assert_int_equal(order.count, COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            assert_false(seen[order.numbers[i]]);
            seen[order.numbers[i]] = true;
            assert_true(order.numbers[i] < i + sizes[k]); /* no further than the buffer reaches */
            moved += order.numbers[i] != i;
        }
        assert_true(sizes[k] == 1 ? moved == 0 : moved > COUNT / 4);
        tutti_dataset_release(d);
    }
}

/* Where the buffer holds all, each sample is first as often as another. */
static void every_sample_in_the_buffer_is_as_likely(void **state)
{
    (void)state;
    enum { EPOCHS = 4000, FEW = 5 };
    const numbers_t few = {.count = FEW, .fails_at = -1};
    tutti_dataset_t *d = make(&few, FEW, 17);
    int first[FEW] = {0}, last[FEW] = {0};
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const order_t order = read_part(d, epoch, 0, 1, 0);
        assert_int_equal(order.count, FEW);
        first[order.numbers[0]]++;
        last[order.numbers[FEW - 1]]++;
    }
    for (int i = 0; i < FEW; i++) { /* 800, and 5 deviations of 25.3 */
        assert_in_range(first[i], 673, 927);
        assert_in_range(last[i], 673, 927);
    }
    tutti_dataset_release(d);
}

static void the_order_is_named_by_seed_epoch_and_part(void **state)
{
    (void)state;
    tutti_dataset_t *d = make(&forty, 8, 3), *again = make(&forty, 8, 3),
                    *other = make(&forty, 8, 4);
    const order_t here = read_part(d, 5, 1, PARTS, 0), there = read_part(again, 5, 1, PARTS, 0);
    assert_int_equal(here.count, COUNT / PARTS);
    assert_true(are_equal(&here, &there));
    const order_t next = read_part(d, 6, 1, PARTS, 0), seeded = read_part(other, 5, 1, PARTS, 0);
    assert_false(are_equal(&here, &next));
    assert_false(are_equal(&here, &seeded));
    order_t neighbor = read_part(d, 5, 0, PARTS, 0); /* 0, 2, … where this one has 1, 3, … */
    for (int64_t i = 0; i < neighbor.count; i++) {
        neighbor.numbers[i]++;
    }
    assert_false(are_equal(&here, &neighbor));
    tutti_dataset_release(d);
    tutti_dataset_release(again);
    tutti_dataset_release(other);
}

static void what_is_passed_by_changes_nothing_behind_it(void **state)
{
    (void)state;
    tutti_dataset_t *d = make(&forty, 6, 9);
    const order_t whole = read_part(d, 2, 0, 1, 0);
    for (int64_t passed = 1; passed <= COUNT + 2; passed++) {
        const order_t rest = read_part(d, 2, 0, 1, passed);
        assert_int_equal(rest.count, passed < COUNT ? COUNT - passed : 0);
        assert_memory_equal(rest.numbers, whole.numbers + passed % (COUNT + 1) * (rest.count > 0),
                            (size_t)rest.count * sizeof rest.numbers[0]);
    }
    tutti_dataset_release(d);
}

/* ---- in a loader ----------------------------------------------------------------------------- */

static const tutti_collate_t packed[2] = {{0}, {tutti_collate_pack, NULL}};

/* An epoch; before batch `resume` another loader takes over. */
static order_t read_epoch(tt_fixture_t *f, int workers, int64_t resume)
{
    tutti_dataset_t *d = make(&forty, 6, 9);
    const tutti_dataloader_options_t o = {
        .batch = BATCH, .workers = workers, .parts = PARTS, .collate = packed};
    tutti_dataloader_t *loader;
    order_t order = {.count = 0};
    tutti_status_t status = TUTTI_OK;
    assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
    for (int64_t step = 0; status == TUTTI_OK; step++) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        if (step == resume) {
            tutti_buffer_t place;
            assert_int_equal(tutti_dataloader_save_state(loader, &place), 0);
            tutti_dataloader_release(loader);
            assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
            assert_int_equal(
                tutti_dataloader_load_state(loader, tutti_bytes_of(place.data, place.bytes)), 0);
            tutti_buffer_release(&place);
        }
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        status = tutti_dataloader_next(loader, s, &batch);
        assert_true(status >= 0);
        for (int64_t i = 0; i < batch.size && status == TUTTI_OK; i++) {
            order.numbers[order.count++] = (int64_t)tutti_tensor_at(batch.input, i);
        }
        assert_int_equal(tutti_scope_close(s), 0);
    }
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
    return order;
}

static void workers_and_a_resume_change_no_batch(void **state)
{
    const order_t one = read_epoch(*state, 0, -1);
    assert_int_equal(one.count, COUNT);
    for (int workers = 0; workers < 4; workers++) {
        for (int64_t resume = -1; resume < STEPS_MAX; resume += 3) {
            const order_t other = read_epoch(*state, workers, resume);
            assert_true(are_equal(&one, &other));
        }
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void options_that_cannot_be_are_refused(void **state)
{
    tt_fixture_t *f = *state;
    tutti_dataset_t *stream, *rows, *d;
    const tutti_tensor_data_options_t options = {
        .input = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(3, 2))};
    assert_int_equal(tutti_dataset_create(&number_stream, &forty, &stream), 0);
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &rows), 0);
    const struct {
        tutti_shuffle_buffer_options_t o;
        const char *error;
    } cases[] = {{{.dataset = stream}, "size is 0"},
                 {{.dataset = stream, .size = (INT64_C(1) << 31) + 1}, "from 1 to 2^31"},
                 {{.size = 4}, "a stream and a size"},
                 {{.dataset = rows, .size = 4}, "tensor has numbered samples"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tutti_dataset_create(&tutti_shuffle_buffer_dataset, &cases[i].o, &d),
                         TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
    tutti_dataset_release(stream);
    tutti_dataset_release(rows);
}

static void a_failure_of_the_stream_is_told(void **state)
{
    (void)state;
    const tutti_dataset_ops_t *ops = &tutti_shuffle_buffer_dataset;
    const numbers_t unlucky = {.count = COUNT, .fails_at = 9};
    tutti_dataset_t *d = make(&unlucky, 6, 9);
    order_t order = {.count = 0};
    int64_t number = 0, passed = 0;
    tutti_sample_t sample = {.data = {&number}};
    void *cursor;
    assert_int_equal(ops->open(d, 0, 0, 1, &cursor), 0);
    for (int i = 0; i < 4; i++) { /* the fifth wants the tenth of the stream */
        assert_int_equal(take(d, cursor, &sample, &order), TUTTI_OK);
    }
    assert_int_equal(take(d, cursor, &sample, &order), TUTTI_ERR_FORMAT);
    tt_expect_error("number 9 is unlucky");
    ops->close(d, cursor);
    assert_int_equal(ops->open(d, 0, 0, 1, &cursor), 0);
    assert_int_equal(tt_stream_skip(d, cursor, 20, &passed), TUTTI_ERR_FORMAT);
    assert_int_equal(passed, 4);
    ops->close(d, cursor);
    tutti_sample_clear(&sample);
    tutti_dataset_release(d);
}

/* Half of a part, with the nth allocation failing; returns whether it did. */
static bool read_short_of_memory(tutti_dataset_t *d, size_t nth)
{
    const tutti_dataset_ops_t *ops = &tutti_shuffle_buffer_dataset;
    order_t order = {.count = 0};
    int64_t number = 0;
    tutti_sample_t sample = {.data = {&number}};
    void *cursor = NULL;
    tt_alloc_fail_at(nth);
    tutti_status_t status = ops->open(d, 0, 0, 1, &cursor);
    while (status == TUTTI_OK && order.count < COUNT / 2) {
        status = take(d, cursor, &sample, &order);
    }
    const bool has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    if (cursor != NULL) {
        ops->close(d, cursor);
    }
    tutti_sample_clear(&sample);
    return has_failed;
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    tutti_dataset_t *d = make(&forty, 20, 9);
    size_t nth = 1;
    while (read_short_of_memory(d, nth)) {
        nth++;
    }
    assert_true(nth > 20);
    tutti_dataset_release(d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(each_sample_comes_once_and_not_too_early),
        TEST(every_sample_in_the_buffer_is_as_likely),
        TEST(the_order_is_named_by_seed_epoch_and_part),
        TEST(what_is_passed_by_changes_nothing_behind_it),
        TEST(workers_and_a_resume_change_no_batch),
        TEST(options_that_cannot_be_are_refused),
        TEST(a_failure_of_the_stream_is_told),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
