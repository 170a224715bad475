/* Streams: the same batches for any number of workers and ranks, any parts, and behind a resume;
 * ends, failures, and streams that go through functions.
 */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/data_files.h>
#include <tutti/dataloader.h>

#include "core/base/folder.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/scope_testing.h"

enum { SHARDS = 3, STEPS_MAX = 64, BATCH = 2 };

static int setup(void **state)
{
    return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
}

/* ---- a stream of numbers --------------------------------------------------------------------- */

/* Numbers 0 … count - 1; number i is in part i modulo parts, but for those that are left out. */
typedef struct {
    int64_t count, empty_part; /* empty_part has none */
    _Atomic int64_t fails_at;  /* -1: nowhere */
    _Atomic int64_t opened, closed;
} numbers_t;

typedef struct {
    int64_t next, parts, epoch, end;
} cursor_t;

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    numbers_t **state = tutti_dataset_state(d);
    memcpy(state, options, sizeof *state);
    *info = (tutti_dataset_info_t){
        .count = TUTTI_ANY,
        .field_count = 2,
        .fields = {{TUTTI_I64, TUTTI_SCALAR}, {TUTTI_I32, TUTTI_SHAPE(TUTTI_ANY)}}};
    return TUTTI_OK;
}

static tutti_status_t open_part(tutti_dataset_t *d, int64_t epoch, int64_t part, int64_t parts,
                                void **out)
{
    numbers_t *numbers = *(numbers_t **)tutti_dataset_state(d);
    cursor_t *cursor = tt_alloc(sizeof *cursor, "test");
    TT_TRY_ALLOC(cursor);
    atomic_fetch_add(&numbers->opened, 1);
    const int64_t end = part == numbers->empty_part ? 0 : numbers->count;
    *cursor = (cursor_t){part, parts, epoch, end};
    *out = cursor;
    return TUTTI_OK;
}

static tutti_status_t next_number(tutti_dataset_t *d, void *user, tutti_sample_t *to)
{
    numbers_t *numbers = *(numbers_t **)tutti_dataset_state(d);
    cursor_t *cursor = user;
    if (cursor->next >= cursor->end) {
        return TUTTI_END;
    }
    if (cursor->next == numbers->fails_at) {
        return tutti_fail(TUTTI_ERR_FORMAT, "number %lld is unlucky", (long long)cursor->next);
    }
    *(int64_t *)to->data[0] = 1000 * cursor->epoch + cursor->next;
    TT_TRY(tutti_sample_resize(to, 1, TUTTI_SHAPE(cursor->next % 3)));
    memset(to->data[1], 0, (size_t)(cursor->next % 3) * sizeof(int32_t));
    cursor->next += cursor->parts;
    return TUTTI_OK;
}

static void close_part(tutti_dataset_t *d, void *user)
{
    numbers_t *numbers = *(numbers_t **)tutti_dataset_state(d);
    atomic_fetch_add(&numbers->closed, 1);
    tt_free(user);
}

static const tutti_dataset_ops_t number_stream = {.name = "numbers",
                                                  .about = "for this test",
                                                  .state_bytes = sizeof(void *),
                                                  .init = init,
                                                  .open = open_part,
                                                  .next = next_number,
                                                  .close = close_part};

static numbers_t count_to(int64_t count)
{
    return (numbers_t){.count = count, .empty_part = -1, .fails_at = -1};
}

static tutti_dataset_t *make(numbers_t *numbers)
{
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&number_stream, &numbers, &d), 0);
    return d;
}

/* ---- what comes ------------------------------------------------------------------------------ */

typedef struct {
    int64_t samples[STEPS_MAX][SHARDS][BATCH];
    int64_t sizes[STEPS_MAX][SHARDS];
    int64_t steps[SHARDS]; /* until the rank of a shard was at its end */
} seen_t;

static const tutti_collate_t packed[2] = {{0}, {tutti_collate_pack, NULL}};

static void keep(const tutti_batch_t *batch, seen_t *seen)
{
    assert_true(batch->step < STEPS_MAX && batch->size <= BATCH && batch->total == TUTTI_ANY);
    assert_int_equal(tutti_tensor_dim(batch->input, 0), batch->size);
    assert_int_equal(tutti_tensor_numel(batch->lengths[1]), batch->size + 1);
    seen->sizes[batch->step][batch->shard] = batch->size;
    for (int64_t i = 0; i < batch->size; i++) {
        seen->samples[batch->step][batch->shard][i] = (int64_t)tutti_tensor_at(batch->input, i);
    }
}

static tutti_dataloader_t *load(tutti_dataset_t *d, tutti_dataloader_options_t o)
{
    tutti_dataloader_t *loader;
    o.batch = BATCH;
    o.shards = SHARDS;
    o.collate = packed;
    if (tutti_dataloader_create(d, &o, &loader) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    assert_int_equal(tutti_dataloader_steps(loader), TUTTI_ANY);
    return loader;
}

/* An epoch of all ranks; each resumes with another loader before step `resume`. */
static void read_epoch(tt_fixture_t *f, numbers_t *numbers, tutti_dataloader_options_t o,
                       int64_t epoch, int64_t resume, seen_t *seen)
{
    memset(seen, 0, sizeof *seen);
    tutti_dataset_t *d = make(numbers);
    for (o.rank = 0; o.rank < o.ranks; o.rank++) {
        tutti_dataloader_t *loader = load(d, o);
        const tt_hosted_t hosted = tt_tree_hosted(SHARDS, o.ranks, o.rank, o.shards_in_turn);
        assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
        tutti_status_t status = TUTTI_OK;
        for (int64_t i = 0; status == TUTTI_OK; i++) {
            tutti_batch_t batch;
            if (i == resume * hosted.count) {
                tutti_buffer_t place;
                assert_int_equal(tutti_dataloader_save_state(loader, &place), 0);
                tutti_dataloader_release(loader);
                loader = load(d, o);
                if (tutti_dataloader_load_state(loader, tutti_bytes_of(place.data, place.bytes)) <
                    0) {
                    fail_msg("%s", tutti_last_error());
                }
                tutti_buffer_release(&place);
            }
            tutti_context_set_shard(f->ctx, hosted.first + i % hosted.count * hosted.stride);
            status = tutti_dataloader_next(loader, f->s, &batch);
            if (status == TUTTI_OK) {
                keep(&batch, seen);
                assert_int_equal(batch.epoch, epoch);
            }
        }
        assert_int_equal(status, TUTTI_END);
        for (int i = 0; i < hosted.count; i++) {
            seen->steps[hosted.first + i * hosted.stride] = tutti_dataloader_step(loader);
        }
        tutti_dataloader_release(loader);
    }
    tutti_dataset_release(d);
    assert_int_equal(numbers->opened, numbers->closed);
}

static void each_number_comes_once(const seen_t *seen, int64_t count, int64_t epoch)
{
    int times[256] = {0};
    for (int step = 0; step < STEPS_MAX; step++) {
        for (int shard = 0; shard < SHARDS; shard++) {
            for (int64_t i = 0; i < seen->sizes[step][shard]; i++) {
                const int64_t number = seen->samples[step][shard][i] - 1000 * epoch;
                assert_in_range(number, 0, count - 1);
                times[number]++;
            }
        }
    }
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(times[i], 1);
    }
}

static void workers_ranks_and_a_resume_change_no_batch(void **state)
{
    static seen_t alone, other;
    for (int64_t count = 0; count < 40; count += 13) {
        for (int parts = 1; parts < 4; parts++) {
            numbers_t numbers = count_to(count);
            tutti_dataloader_options_t o = {.ranks = 1, .parts = parts};
            read_epoch(*state, &numbers, o, 1, -1, &alone);
            each_number_comes_once(&alone, count, 1);
            for (o.workers = 0; o.workers < 3; o.workers++) {
                read_epoch(*state, &numbers, o, 1, o.workers, &other);
                assert_memory_equal(&alone, &other, sizeof alone);
            }
            for (o.ranks = 2; o.ranks <= 3; o.ranks++) {
                for (int in_turn = 0; in_turn < 2; in_turn++) {
                    o.shards_in_turn = in_turn != 0;
                    read_epoch(*state, &numbers, o, 1, 3, &other);
                    assert_memory_equal(alone.samples, other.samples, sizeof alone.samples);
                    assert_memory_equal(alone.sizes, other.sizes, sizeof alone.sizes);
                }
            }
        }
    }
}

/* With 20 numbers for 3 shards of 2 parts: shard s has numbers 2 s and 2 s + 1 modulo 6. */
static void a_shard_takes_batches_from_its_parts_in_turn(void **state)
{
    static seen_t seen;
    numbers_t numbers = count_to(20);
    read_epoch(*state, &numbers, (tutti_dataloader_options_t){.ranks = 3, .parts = 2}, 0, -1,
               &seen);
    static const int64_t first[] = {0, 6, 1, 7, 12, 18, 13, 19};
    static const int64_t last[] = {4, 10, 5, 11, 16, 17};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(seen.samples[i / 2][0][i % 2], first[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(seen.samples[i / 2][2][i % 2], last[i]);
    }
    assert_int_equal(seen.sizes[2][2], 1);
    assert_int_equal(seen.samples[2][2][0], 16);
    assert_int_equal(seen.samples[3][2][0], 17);
    assert_int_equal(seen.steps[0], 4);
    assert_int_equal(seen.steps[2], 4);
    assert_int_equal(last[4], 16);
}

/* A part without samples is known to be so when its turn has come, whoever has read ahead. */
static void parts_that_are_empty_cost_a_step(void **state)
{
    static seen_t alone, other;
    numbers_t numbers = count_to(6);
    numbers.empty_part = 1;
    tutti_dataloader_options_t o = {.ranks = 3, .parts = 2};
    read_epoch(*state, &numbers, o, 0, -1, &alone);
    assert_int_equal(alone.sizes[0][0], 1);
    assert_int_equal(alone.sizes[1][0], 0);
    assert_int_equal(alone.steps[0], 2);
    for (o.workers = 1; o.workers < 3; o.workers++) {
        read_epoch(*state, &numbers, o, 0, 1, &other);
        assert_memory_equal(&alone, &other, sizeof alone);
    }
}

static void last_batches_that_are_not_whole_are_dropped(void **state)
{
    static seen_t seen;
    numbers_t numbers = count_to(7);
    const tutti_dataloader_options_t o = {.ranks = 1, .drop_last = true};
    read_epoch(*state, &numbers, o, 0, -1, &seen);
    for (int shard = 0; shard < SHARDS; shard++) {
        assert_int_equal(seen.sizes[0][shard], 2);
        assert_int_equal(seen.sizes[1][shard], 0);
    }
}

static void any_place_of_a_stream_can_be_read(void **state)
{
    tt_fixture_t *f = *state;
    numbers_t numbers = count_to(20);
    tutti_dataset_t *d = make(&numbers);
    tutti_dataloader_t *loader =
        load(d, (tutti_dataloader_options_t){.ranks = 1, .parts = 2, .workers = 1});
    tutti_batch_t batch;
    tutti_context_set_shard(f->ctx, 0);
    assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
    const tutti_batch_place_t place = {.step = 2, .shard = 1, .epoch = 3};
    assert_int_equal(tutti_dataloader_at(loader, f->s, place, &batch), 0);
    assert_int_equal(batch.size, 1);
    assert_true(tutti_tensor_at(batch.input, 0) == 3014);
    const tutti_batch_place_t behind = {.step = 9};
    assert_int_equal(tutti_dataloader_at(loader, f->s, behind, &batch), 0);
    assert_int_equal(batch.size, 0);
    tutti_context_set_shard(f->ctx, 1);
    assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
    assert_true(tutti_tensor_at(batch.input, 1) == 8);
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
}

/* A batch that failed comes again, whole, in the middle of a step too. */
static void a_stream_goes_on_behind_a_failure(void **state)
{
    tt_fixture_t *f = *state;
    for (int workers = 0; workers < 3; workers++) {
        numbers_t numbers = count_to(20);
        tutti_dataset_t *d = make(&numbers);
        static seen_t seen;
        memset(&seen, 0, sizeof seen);
        numbers.fails_at = 10; /* of shard 1, in its second batch */
        tutti_dataloader_t *loader =
            load(d, (tutti_dataloader_options_t){.ranks = 1, .workers = workers});
        tutti_status_t status = TUTTI_OK;
        for (int i = 0; status == TUTTI_OK;) {
            tutti_scope_t *s;
            tutti_batch_t batch;
            assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
            tutti_context_set_shard(f->ctx, i % SHARDS);
            status = tutti_dataloader_next(loader, s, &batch);
            if (status == TUTTI_OK) {
                keep(&batch, &seen);
                i++;
            } else if (status < 0) {
                tt_expect_error("sample 3, in batch 4 of epoch 0: number 10 is unlucky");
                assert_int_equal(i, 4);
                numbers.fails_at = -1;
                status = TUTTI_OK;
            }
            (void)tutti_scope_close(s);
        }
        assert_int_equal(status, TUTTI_END);
        each_number_comes_once(&seen, 20, 0);
        assert_int_equal(tutti_dataloader_step(loader), 4);
        tutti_dataloader_release(loader);
        tutti_dataset_release(d);
        assert_int_equal(numbers.opened, numbers.closed);
    }
}

static void what_a_stream_cannot_do_is_refused(void **state)
{
    tt_fixture_t *f = *state;
    numbers_t numbers = count_to(5);
    tutti_dataset_t *d = make(&numbers), *other;
    tutti_dataloader_t *loader;
    static const tutti_dataloader_options_t cases[] = {{.shuffle = true}, {.endless = true}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_dataloader_create(d, &cases[i], &loader), TUTTI_ERR_ARG);
        tt_expect_error("data set numbers is a stream, whose order is its own");
    }
    assert_int_equal(tutti_dataset_create(&tutti_subset_dataset,
                                          &(tutti_subset_options_t){.dataset = d}, &other),
                     TUTTI_ERR_ARG);
    tt_expect_error("data set subset: numbers is a stream, which has no numbered samples");
    assert_int_equal(
        tutti_dataset_create(&tutti_concat_dataset, &(tutti_concat_options_t){&d, 1}, &other),
        TUTTI_ERR_ARG);
    assert_int_equal(tutti_random_split(d, NULL, 0, 0, NULL), TUTTI_ERR_ARG);
    tutti_sample_t sample = {0};
    assert_int_equal(tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample), TUTTI_ERR_ARG);
    const tutti_tensor_data_options_t rows = {.input = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(4))};
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &rows, &other), 0);
    assert_int_equal(
        tutti_dataloader_create(other, &(tutti_dataloader_options_t){.parts = 2}, &loader),
        TUTTI_ERR_ARG);
    tt_expect_error("parts is 2, but data set tensor is no stream");
    tutti_dataset_release(other);
    tutti_dataset_release(d);
}

static void a_state_of_other_parts_does_not_fit(void **state)
{
    (void)state;
    numbers_t numbers = count_to(5);
    tutti_dataset_t *d = make(&numbers);
    tutti_dataloader_t *one = load(d, (tutti_dataloader_options_t){.ranks = 1, .parts = 2});
    tutti_dataloader_t *other = load(d, (tutti_dataloader_options_t){.ranks = 1});
    tutti_buffer_t place;
    assert_int_equal(tutti_dataloader_save_state(one, &place), 0);
    assert_string_equal(place.data, "tutti-dataloader 1 epoch 0 step 0 steps 0 batch 2 shards 3 "
                                    "samples 0 order 2\n");
    assert_int_equal(tutti_dataloader_load_state(other, tutti_bytes_of(place.data, place.bytes)),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("the state was saved with order 2, this loader has 1");
    tutti_buffer_release(&place);
    tutti_dataloader_release(one);
    tutti_dataloader_release(other);
    tutti_dataset_release(d);
}

static tutti_status_t take_number(void *user, tutti_random_t *random, const tutti_sample_t *from,
                                  tutti_sample_t *to)
{
    (void)user;
    (void)random;
    return tutti_sample_copy(to, from, 0);
}

/* What fails behind a batch, while the end is looked for, is none of its samples. */
static void a_failure_behind_a_batch_names_no_sample_of_it(void **state)
{
    tt_fixture_t *f = *state;
    const tutti_field_t number = {TUTTI_I64, TUTTI_SCALAR};
    for (int workers = 0; workers < 2; workers++) {
        numbers_t numbers = count_to(9);
        tutti_dataset_t *d = make(&numbers), *one;
        tutti_dataloader_t *loader;
        tutti_scope_t *s;
        tutti_batch_t batch;
        const tutti_map_options_t map = {
            .dataset = d, .transform = take_number, .fields = &number, .field_count = 1};
        assert_int_equal(tutti_dataset_create(&tutti_map_dataset, &map, &one), 0);
        numbers.fails_at = 4;
        const tutti_dataloader_options_t o = {.batch = 4, .workers = workers};
        assert_int_equal(tutti_dataloader_create(one, &o, &loader), 0);
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_FORMAT);
        tt_expect_error("batch 0 of epoch 0: number 4 is unlucky");
        assert_null(strstr(tutti_last_error(), "sample"));
        (void)tutti_scope_close(s);
        numbers.fails_at = -1;
        assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
        assert_true(batch.size == 4 && tutti_tensor_at(batch.input, 3) == 3);
        tutti_dataloader_release(loader);
        tutti_dataset_release(one);
        tutti_dataset_release(d);
    }
}

/* A shard that is at its end goes on with the steps of the others: its line is theirs. */
static void a_rank_at_its_end_counts_the_steps_of_others(void **state)
{
    tt_fixture_t *f = *state;
    numbers_t numbers = count_to(20);
    numbers.empty_part = 0;
    tutti_dataset_t *d = make(&numbers);
    tutti_dataloader_t *loaders[2];
    tutti_batch_t batch;
    for (int rank = 0; rank < 2; rank++) {
        const tutti_dataloader_options_t o = {
            .batch = 2, .micro_batches = 2, .ranks = 2, .rank = rank, .collate = packed};
        assert_int_equal(tutti_dataloader_create(d, &o, &loaders[rank]), 0);
    }
    for (int step = 0; step < 2; step++) {
        tutti_buffer_t lines[2];
        for (int i = 0; i < 4; i++) {
            tutti_context_set_shard(f->ctx, i / 2);
            const tutti_status_t status = tutti_dataloader_next(loaders[i / 2], f->s, &batch);
            assert_int_equal(status, step == 1 && i < 2 ? TUTTI_END : TUTTI_OK);
        }
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(tutti_dataloader_save_state(loaders[rank], &lines[rank]), 0);
        }
        assert_string_equal(lines[0].data, lines[1].data);
        const tutti_bytes_t line = tutti_bytes_of(lines[0].data, lines[0].bytes);
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(tutti_dataloader_load_state(loaders[rank], line), 0);
        }
        tutti_buffer_release(&lines[0]);
        tutti_buffer_release(&lines[1]);
    }
    assert_int_equal(tutti_dataloader_next(loaders[1], f->s, &batch), 0);
    assert_true(tutti_tensor_at(batch.input, 0) == 17);
    tutti_context_set_shard(f->ctx, 0);
    assert_int_equal(tutti_dataloader_next(loaders[0], f->s, &batch), TUTTI_END);
    tutti_dataloader_release(loaders[0]);
    tutti_dataloader_release(loaders[1]);
    tutti_dataset_release(d);
}

/* Two shards of two micro-batches read other parts than four shards of one. */
static void a_state_of_other_micro_batches_does_not_fit(void **state)
{
    tt_fixture_t *f = *state;
    numbers_t numbers = count_to(50);
    tutti_dataset_t *d = make(&numbers);
    tutti_dataloader_t *loaders[2];
    tutti_dataloader_options_t options[] = {
        {.batch = 2, .shards = 2, .micro_batches = 2, .collate = packed},
        {.batch = 2, .shards = 4, .micro_batches = 1, .collate = packed}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_dataloader_create(d, &options[i], &loaders[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        tutti_buffer_t place;
        tutti_batch_t batch;
        for (int k = 0; k < 4; k++) {
            tutti_context_set_shard(f->ctx, i == 0 ? k / 2 : k);
            assert_int_equal(tutti_dataloader_next(loaders[i], f->s, &batch), 0);
        }
        assert_int_equal(tutti_dataloader_save_state(loaders[i], &place), 0);
        const tutti_bytes_t line = tutti_bytes_of(place.data, place.bytes);
        assert_int_equal(tutti_dataloader_load_state(loaders[i], line), 0);
        assert_int_equal(tutti_dataloader_load_state(loaders[1 - i], line), TUTTI_ERR_MISMATCH);
        tt_expect_error("the state was saved with order");
        tutti_buffer_release(&place);
    }
    tutti_dataloader_release(loaders[0]);
    tutti_dataloader_release(loaders[1]);
    tutti_dataset_release(d);
}

/* ---- through functions, and lines ------------------------------------------------------------ */

/* The bytes of a line, and a random number. */
static tutti_status_t describe(void *user, tutti_random_t *random, const tutti_sample_t *from,
                               tutti_sample_t *to)
{
    (void)user;
    TUTTI_CHECK(tutti_sample_copy(to, from, 0));
    *(double *)to->data[1] = tutti_random_uniform(random);
    return TUTTI_OK;
}

/* All lines of an epoch, one behind another, with their numbers. */
static void read_lines(tt_fixture_t *f, tutti_dataset_t *lines, int workers, int parts,
                       int64_t epoch, char text[512])
{
    const tutti_field_t fields[] = {{TUTTI_U8, TUTTI_SHAPE(TUTTI_ANY)}, {TUTTI_F64, TUTTI_SCALAR}};
    static const tutti_collate_t collate[2] = {{tutti_collate_pack, NULL}};
    tutti_dataset_t *d;
    tutti_dataloader_t *loader;
    const tutti_map_options_t map = {
        .dataset = lines, .transform = describe, .fields = fields, .field_count = 2, .seed = 3};
    assert_int_equal(tutti_dataset_create(&tutti_map_dataset, &map, &d), 0);
    const tutti_dataloader_options_t o = {
        .batch = 2, .workers = workers, .parts = parts, .collate = collate};
    assert_int_equal(tutti_dataloader_create(d, &o, &loader), 0);
    assert_int_equal(tutti_dataloader_set_epoch(loader, epoch), 0);
    tutti_batch_t batch;
    size_t bytes = 0;
    while (tutti_dataloader_next(loader, f->s, &batch) == TUTTI_OK) {
        for (int64_t i = 0; i < batch.size; i++) {
            const int64_t begin = (int64_t)tutti_tensor_at(batch.lengths[0], i);
            const int64_t end = (int64_t)tutti_tensor_at(batch.lengths[0], i + 1);
            bytes += (size_t)snprintf(text + bytes, 512 - bytes, "%.*s:%.9f,", (int)(end - begin),
                                      (const char *)tutti_tensor_data(batch.input) + begin,
                                      tutti_tensor_at(batch.target, i));
        }
    }
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
}

static void lines_of_files_go_through_functions(void **state)
{
    char folder[] = "/tmp/tutti-lines-XXXXXX", paths[2][100];
    assert_non_null(mkdtemp(folder));
    static const char *const texts[] = {"one\r\n\ntwo\n", "three\nfour, the last"};
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        FILE *file = fopen(paths[i], "w");
        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    const tutti_line_options_t o = {(const char *const[]){paths[0], paths[1]}, 2};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_line_dataset, &o, &d), 0);
    char alone[512] = "", other[512] = "", later[512] = "";
    read_lines(*state, d, 0, 1, 0, alone);
    for (const char *const *line =
             (const char *const[]){"one:", ",:", ",two:", ",three:", ",four, the last:", NULL};
         *line != NULL; line++) {
        assert_non_null(strstr(alone, *line));
    }
    read_lines(*state, d, 2, 1, 0, other);
    assert_string_equal(alone, other);
    read_lines(*state, d, 0, 1, 1, later);
    assert_string_not_equal(alone, later);
    read_lines(*state, d, 0, 2, 0, other);
    assert_non_null(strstr(other, "four, the last:"));
    tutti_dataset_release(d);
    assert_int_equal(tt_folder_remove(folder), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, tt_fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(workers_ranks_and_a_resume_change_no_batch),
        TEST(a_shard_takes_batches_from_its_parts_in_turn),
        TEST(parts_that_are_empty_cost_a_step),
        TEST(last_batches_that_are_not_whole_are_dropped),
        TEST(any_place_of_a_stream_can_be_read),
        TEST(a_stream_goes_on_behind_a_failure),
        TEST(what_a_stream_cannot_do_is_refused),
        TEST(a_state_of_other_parts_does_not_fit),
        TEST(a_failure_behind_a_batch_names_no_sample_of_it),
        TEST(a_rank_at_its_end_counts_the_steps_of_others),
        TEST(a_state_of_other_micro_batches_does_not_fit),
        TEST(lines_of_files_go_through_functions),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
