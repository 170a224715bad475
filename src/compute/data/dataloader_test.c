/* Data loaders: epochs that end, the same batches for any number of ranks and workers, and states.
 */
#include "compute/data/dataloader_testing.h"

static seen_t seen[ROOM], other[ROOM];

static void an_epoch_gives_each_sample_once_and_ends(void **state)
{
    for (int64_t count = 0; count < 40; count += 3) {
        for (int shards = 1; shards < 5; shards++) {
            const tutti_dataloader_options_t o = {
                .batch = 3, .shuffle = true, .shards = shards, .workers = shards - 1};
            const int batches = run_epoch(*state, count, &o, 1, seen);
            int times[40] = {0};
            const int64_t each = 3 * shards;
            assert_int_equal(batches, (count + each - 1) / each * shards);
            for (int i = 0; i < batches; i++) {
                const int64_t left = count - seen[i].step * each;
                assert_int_equal(seen[i].step, i / shards);
                assert_int_equal(seen[i].shard, i % shards);
                assert_int_equal(seen[i].total, left < each ? left : each);
                for (int64_t k = 0; k < seen[i].size; k++) {
                    times[seen[i].samples[k]]++;
                    assert_int_equal(seen[i].epochs[k], 1);
                }
            }
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(times[i], 1);
            }
        }
    }
}

static void the_last_step_is_spread_over_all_shards(void **state)
{
    const tutti_dataloader_options_t o = {.batch = 4, .shards = 3};
    assert_int_equal(run_epoch(*state, 17, &o, 0, seen), 6);
    assert_int_equal(seen[3].size, 2);
    assert_int_equal(seen[4].size, 2);
    assert_int_equal(seen[5].size, 1);
    assert_int_equal(seen[4].samples[1], 16); /* dealt in turn: 12 13 14 | 15 16 */
    assert_int_equal(run_epoch(*state, 13, &o, 0, seen), 6);
    assert_int_equal(seen[3].size, 1);
    assert_int_equal(seen[4].size, 0); /* a batch all the same */
    assert_int_equal(seen[5].total, 1);
}

static void drop_last_leaves_out_what_is_not_whole(void **state)
{
    const tutti_dataloader_options_t o = {.batch = 4, .shards = 3, .drop_last = true};
    assert_int_equal(run_epoch(*state, 23, &o, 0, seen), 3);
    assert_int_equal(run_epoch(*state, 24, &o, 0, seen), 6);
    assert_int_equal(seen[5].size, 4);
    assert_int_equal(run_epoch(*state, 11, &o, 0, seen), 0);
}

static void expect_same(const seen_t *a, const seen_t *b, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(a[i].step, b[i].step);
        assert_int_equal(a[i].shard, b[i].shard);
        assert_int_equal(a[i].size, b[i].size);
        assert_int_equal(a[i].total, b[i].total);
        assert_memory_equal(a[i].samples, b[i].samples, sizeof a[i].samples);
        assert_memory_equal(a[i].positions, b[i].positions, sizeof a[i].positions);
        assert_memory_equal(a[i].epochs, b[i].epochs, sizeof a[i].epochs);
        assert_int_equal(a[i].micro_batch, b[i].micro_batch);
    }
}

static void batches_do_not_depend_on_the_ranks(void **state)
{
    tutti_dataloader_options_t o = {.batch = 5, .shuffle = true, .seed = 4, .shards = 4};
    const int batches = run_epoch(*state, 101, &o, 3, seen);
    static const int ranks[] = {1, 2, 3, 4, 5, 8};
    for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
        o.ranks = ranks[r];
        o.workers = (int)(r % 3);
        int total = 0;
        for (o.rank = 0; o.rank < o.ranks; o.rank++) {
            int first, count;
            first_of(&o, &first, &count);
            const int part = run_epoch(*state, 101, &o, 3, other);
            assert_int_equal(part, batches / 4 * count);
            for (int i = 0; i < part; i++) {
                expect_same(&seen[i / count * 4 + first + i % count], &other[i], 1);
            }
            total += part;
        }
        assert_int_equal(total, batches);
        o.rank = 0;
    }
}

static void batches_do_not_depend_on_the_workers(void **state)
{
    tutti_dataloader_options_t o = {.batch = 2, .shuffle = true, .shards = 2};
    const int batches = run_epoch(*state, 99, &o, 0, seen);
    for (o.workers = 1; o.workers < 9; o.workers += 2) {
        for (o.prefetch = 1; o.prefetch < 4; o.prefetch++) {
            assert_int_equal(run_epoch(*state, 99, &o, 0, other), batches);
            expect_same(seen, other, batches);
        }
    }
    assert_int_equal(run_epoch(*state, 99, &o, 1, other), batches);
    assert_memory_not_equal(seen, other, sizeof *seen * (size_t)batches);
}

static void an_epoch_can_begin_again_in_its_middle(void **state)
{
    const tutti_dataloader_options_t o = {.batch = 2, .shuffle = true, .workers = 3};
    const numbers_options_t data = count_to(60);
    tutti_dataloader_t *loader = make_loader(&data, &o);
    const int batches = read_epoch(*state, loader, &o, seen);
    for (int stop = 0; stop < 8; stop++) {
        assert_int_equal(tutti_dataloader_set_epoch(loader, 7), 0);
        for (int i = 0; i < stop; i++) {
            assert_int_equal(next(*state, loader, 0, &other[i]), 0);
        }
        assert_int_equal(tutti_dataloader_step(loader), stop);
        assert_int_equal(tutti_dataloader_epoch(loader), 7);
        assert_int_equal(tutti_dataloader_set_epoch(loader, 0), 0);
        assert_int_equal(read_epoch(*state, loader, &o, other), batches);
        expect_same(seen, other, batches);
    }
    assert_int_equal(tutti_dataloader_set_epoch(loader, -1), TUTTI_ERR_ARG);
    tutti_dataloader_release(loader);
}

static void a_context_at_another_shard_is_refused(void **state)
{
    const numbers_options_t data = count_to(20);
    const tutti_dataloader_options_t o = {.batch = 3, .shards = 4, .ranks = 2, .rank = 1};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(next(*state, loader, 0, seen), TUTTI_ERR_STATE);
    tt_expect_error("the next batch is shard 2's in step 0, but the context is at shard 0");
    assert_int_equal(next(*state, loader, 2, seen), 0);
    assert_int_equal(next(*state, loader, 2, seen), TUTTI_ERR_STATE);
    assert_int_equal(next(*state, loader, 3, seen), 0);
    tutti_dataloader_release(loader);
}

/* As a ddp that accumulates sharded hosts them: 7 on 3 ranks. */
static void shards_may_be_hosted_in_turn(void **state)
{
    tutti_dataloader_options_t o = {.batch = 1, .shards = 7, .ranks = 3, .shards_in_turn = true};
    const numbers_options_t data = count_to(14);
    for (o.rank = 0; o.rank < o.ranks; o.rank++) {
        tutti_dataloader_t *loader = make_loader(&data, &o);
        for (int step = 0; step < 2; step++) {
            for (int shard = o.rank; shard < 7; shard += 3) {
                assert_int_equal(next(*state, loader, shard, seen), 0);
                assert_int_equal(seen->step, step);
                assert_int_equal(seen->samples[0], 7 * step + shard);
            }
        }
        assert_int_equal(next(*state, loader, o.rank, seen), TUTTI_END);
        tutti_dataloader_release(loader);
    }
}

static void bad_options_are_named(void **state)
{
    (void)state;
    const numbers_options_t data = count_to(20);
    tutti_dataset_t *d = make_numbers(&data);
    tutti_sampler_t *sampler;
    const tutti_sequential_sampler_options_t all = {.count = 20};
    assert_int_equal(tutti_sampler_create(&tutti_sequential_sampler, &all, &sampler), 0);
    const struct {
        tutti_dataloader_options_t options;
        const char *error;
    } cases[] = {
        {{.batch = -1}, "dataloader: batch is -1: it must be from 1 to 2147483647"},
        {{.ranks = 2, .rank = 2}, "rank is 2: it must be from 0 to 1"},
        {{.rank = 1}, "rank is 1: it must be from 0 to 0"},
        {{.shards = -2}, "shards is -2"},
        {{.workers = 1000}, "workers is 1000: it must be from 0 to 256"},
        {{.workers = 2, .prefetch = -1}, "prefetch is -1"},
        {{.micro_batches = -1}, "micro_batches is -1"},
        {{.timeout_ms = -1}, "timeout_ms is -1: it must be from 1 to 2147483647"},
        {{.batch = INT32_MAX, .shards = 1000, .micro_batches = INT32_MAX}, "too many samples"},
        {{.endless = true, .drop_last = true}, "endless with drop_last"},
        {{.sampler = sampler, .shuffle = true}, "shuffle and seed must not be"},
        {{.sampler = sampler, .seed = 1}, "shuffle and seed must not be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_dataloader_t *loader;
        assert_int_equal(tutti_dataloader_create(d, &cases[i].options, &loader), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
    tutti_sampler_release(sampler);
    tutti_dataset_release(d);
}

/* ---- places, micro-batches, no end ----------------------------------------------------------- */

/* Whether any place has what the epoch gave there; where the loader stands is not changed. */
static void any_place_may_be_read_at_any_time(void **state)
{
    for (int mode = 0; mode < 4; mode++) {
        const tutti_dataloader_options_t o = {.batch = 3,
                                              .shuffle = true,
                                              .shards = 2,
                                              .micro_batches = mode / 2 + 1,
                                              .workers = mode % 2 * 2};
        const numbers_options_t data = count_to(31);
        tutti_dataloader_t *loader = make_loader(&data, &o);
        seen_t one = {0};
        for (int i = 0; tutti_dataloader_step(loader) < tutti_dataloader_steps(loader); i++) {
            const int64_t shard = i / (int)o.micro_batches % 2;
            assert_int_equal(next(*state, loader, shard, &seen[i]), 0);
            assert_int_equal(seen[i].shard, shard);
            const tutti_batch_place_t first = {0}, here = {.step = seen[i].step,
                                                           .shard = shard,
                                                           .micro_batch = seen[i].micro_batch};
            assert_int_equal(at(*state, loader, here, &one), 0);
            expect_same(&seen[i], &one, 1);
            assert_int_equal(at(*state, loader, first, &one), 0);
            expect_same(&seen[0], &one, 1);
        }
        const tutti_batch_place_t behind = {.step = tutti_dataloader_steps(loader)};
        assert_int_equal(at(*state, loader, behind, &one), TUTTI_END);
        assert_int_equal(next(*state, loader, 0, &one), TUTTI_END);
        tutti_dataloader_release(loader);
    }
}

static void places_that_are_none_are_refused(void **state)
{
    const numbers_options_t data = count_to(13);
    const tutti_dataloader_options_t o = {
        .batch = 10, .shards = 2, .micro_batches = 3, .endless = true};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    static const struct {
        tutti_batch_place_t place;
        const char *error;
    } cases[] = {
        {{.shard = 2}, "shard 2, micro-batch 0: it was made for 2 shards of 3 micro-batches"},
        {{.shard = -1}, "shard -1"},
        {{.micro_batch = 3}, "micro-batch 3"},
        {{.step = -1}, "step -1 of epoch 0 is out of range"},
        {{.step = INT64_MAX / 60}, "is out of range"},
        {{.step = INT64_MAX}, "is out of range"},
        {{.epoch = 1}, "step 0 of epoch 1 is out of range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(at(*state, loader, cases[i].place, seen), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].error);
    }
    assert_int_equal(at(*state, loader, (tutti_batch_place_t){.step = INT64_MAX / 60 - 1}, seen),
                     0);
    assert_int_equal(seen[0].size, 10);
    assert_int_equal(tutti_dataloader_set_epoch(loader, 1), TUTTI_ERR_ARG);
    tt_expect_error("epoch is 1: it must be 0, where a loader is endless");
    tutti_dataloader_release(loader);
}

/* Micro-batches take what so many more shards would take. */
static void micro_batches_are_dealt_as_shards_are(void **state)
{
    tutti_dataloader_options_t o = {.batch = 2, .shuffle = true, .shards = 6};
    const int batches = run_epoch(*state, 29, &o, 1, seen);
    o.shards = 2;
    o.micro_batches = 3;
    const numbers_options_t data = count_to(29);
    tutti_dataloader_t *loader = make_loader(&data, &o);
    assert_int_equal(tutti_dataloader_set_epoch(loader, 1), 0);
    for (int i = 0; i < batches; i++) {
        assert_int_equal(next(*state, loader, i % 6 / 3, &other[i]), 0);
        assert_int_equal(other[i].micro_batch, i % 3);
        assert_int_equal(other[i].shard, i % 6 / 3);
        other[i].micro_batch = 0;
        other[i].shard = i % 6;
    }
    expect_same(seen, other, batches);
    tutti_dataloader_release(loader);
}

/* 10 samples, 4 a step: the third step has two of epoch 0 and two of epoch 1. */
static void epochs_run_into_each_other_without_end(void **state)
{
    tutti_dataloader_options_t o = {.batch = 2, .shuffle = true, .shards = 2, .endless = true};
    for (o.workers = 0; o.workers < 4; o.workers += 3) {
        const numbers_options_t data = count_to(10);
        tutti_dataloader_t *loader = make_loader(&data, &o);
        int times[4][10] = {{0}};
        assert_int_equal(tutti_dataloader_steps(loader), 3);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(next(*state, loader, i % 2, &seen[i]), 0);
            assert_int_equal(seen[i].size, 2);
            assert_int_equal(seen[i].total, 4);
            assert_int_equal(seen[i].epoch, (i / 2 * 4 + i % 2) / 10);
            for (int k = 0; k < 2; k++) {
                const int position = i / 2 * 4 + i % 2 + 2 * k;
                assert_int_equal(seen[i].epochs[k], position / 10);
                assert_int_equal((int)seen[i].positions[k], position % 10);
                times[position / 10][seen[i].samples[k]]++;
            }
        }
        for (int i = 0; i < 40; i++) {
            assert_int_equal(times[i / 10][i % 10], 1);
        }
        assert_int_equal(tutti_dataloader_epoch(loader), 4);
        assert_int_equal(tutti_dataloader_step(loader), 10);
        tutti_dataloader_release(loader);
    }
}

static void an_endless_loader_goes_on_from_its_state(void **state)
{
    const numbers_options_t data = count_to(10);
    tutti_dataloader_options_t o = {
        .batch = 2, .shuffle = true, .shards = 2, .micro_batches = 2, .endless = true};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(next(*state, loader, i / 2 % 2, seen), 0);
    }
    tutti_buffer_t text;
    assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
    const tutti_bytes_t view = tutti_bytes_of(text.data, text.bytes);
    assert_non_null(strstr(text.data, "epoch 0 step 3 steps 0 batch 2 shards 4 samples 10"));
    tutti_dataloader_t *again = make_loader(&data, &o);
    assert_int_equal(tutti_dataloader_load_state(again, view), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(next(*state, loader, i / 2 % 2, &seen[i]), 0);
        assert_int_equal(next(*state, again, i / 2 % 2, &other[i]), 0);
    }
    expect_same(seen, other, 8);
    tutti_dataloader_release(again);
    tutti_dataloader_release(loader);
    o.endless = false;
    loader = make_loader(&data, &o);
    assert_int_equal(tutti_dataloader_load_state(loader, view), TUTTI_ERR_FORMAT);
    tutti_dataloader_release(loader);
    tutti_buffer_release(&text);
}

/* Steps whose entries have no number. */
static void a_state_of_too_many_steps_is_malformed(void **state)
{
    (void)state;
    const numbers_options_t data = count_to(10);
    tutti_dataloader_t *loader =
        make_loader(&data, &(tutti_dataloader_options_t){.batch = 2, .endless = true});
    tutti_buffer_t text;
    char changed[256];
    assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
    const char *behind = strstr(text.data, " steps 0");
    assert_non_null(behind);
    snprintf(changed, sizeof changed, "tutti-dataloader 1 epoch 0 step 9223372036854775807%.*s",
             (int)(text.bytes - (size_t)(behind - (const char *)text.data)), behind);
    assert_int_equal(tutti_dataloader_load_state(loader, tutti_bytes_of(changed, strlen(changed))),
                     TUTTI_ERR_FORMAT);
    tt_expect_error("malformed: step 9223372036854775807");
    assert_int_equal(tutti_dataloader_step(loader), 0);
    tutti_buffer_release(&text);
    tutti_dataloader_release(loader);
}

/* ---- samplers of the caller's ---------------------------------------------------------------- */

static void a_batch_sampler_says_the_batches(void **state)
{
    tutti_sampler_t *all, *batches;
    const tutti_random_sampler_options_t random = {.count = 23, .seed = 9};
    assert_int_equal(tutti_sampler_create(&tutti_random_sampler, &random, &all), 0);
    const tutti_batch_sampler_options_t cut = {.sampler = all, .batch = 4};
    assert_int_equal(tutti_sampler_create(&tutti_batch_sampler, &cut, &batches), 0);
    const tutti_dataloader_options_t o = {.shards = 4, .workers = 2, .sampler = batches};
    assert_int_equal(run_epoch(*state, 23, &o, 2, seen), 8);
    static const int64_t sizes[] = {4, 4, 4, 4, 4, 3, 0, 0};
    for (int64_t i = 0; i < 23; i++) {
        int64_t sample;
        assert_int_equal(tutti_sampler_read(all, 2, i, &sample, NULL), 0);
        assert_int_equal(seen[i / 4].samples[i % 4], sample);
        assert_int_equal((int)seen[i / 4].positions[i % 4], i);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(seen[i].size, sizes[i]);
        assert_int_equal(seen[i].total, i < 4 ? 16 : 7);
    }
    tutti_dataset_t *d = make_numbers(&(numbers_options_t){.count = 23});
    tutti_dataloader_t *loader;
    assert_int_equal(tutti_dataloader_create(
                         d, &(tutti_dataloader_options_t){.batch = 4, .sampler = batches}, &loader),
                     TUTTI_ERR_ARG);
    tt_expect_error("the sampler gives batches: leave it 0");
    tutti_dataset_release(d);
    tutti_sampler_release(batches);
    tutti_sampler_release(all);
}

/* Shard r gets what torch's DistributedSampler gives rank r, padding and all. */
static void a_padded_order_gives_shards_what_ranks_would_get(void **state)
{
    tutti_distributed_sampler_options_t options = {
        .count = 29, .shuffle = true, .seed = 2, .replicas = 4, .rank = TUTTI_ALL_RANKS};
    tutti_sampler_t *whole, *part;
    assert_int_equal(tutti_sampler_create(&tutti_distributed_sampler, &options, &whole), 0);
    const tutti_dataloader_options_t o = {.batch = 3, .shards = 4, .sampler = whole};
    assert_int_equal(run_epoch(*state, 29, &o, 5, seen), 12);
    for (options.rank = 0; options.rank < 4; options.rank++) {
        assert_int_equal(tutti_sampler_create(&tutti_distributed_sampler, &options, &part), 0);
        assert_int_equal(tutti_sampler_count(part), 8);
        for (int64_t i = 0; i < 8; i++) {
            int64_t sample;
            assert_int_equal(tutti_sampler_read(part, 5, i, &sample, NULL), 0);
            assert_int_equal(seen[i / 3 * 4 + options.rank].samples[i % 3], sample);
        }
        tutti_sampler_release(part);
    }
    tutti_sampler_release(whole);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void a_state_goes_on_with_other_ranks_and_workers(void **state)
{
    const numbers_options_t data = count_to(77);
    const tutti_dataloader_options_t o = {
        .batch = 3, .shuffle = true, .seed = 6, .shards = 4, .workers = 2};
    const int batches = run_epoch(*state, 77, &o, 2, seen);
    for (int stop = 0; stop <= batches / 4; stop++) {
        tutti_buffer_t text;
        tutti_dataloader_t *loader = make_loader(&data, &o);
        assert_int_equal(tutti_dataloader_set_epoch(loader, 2), 0);
        for (int i = 0; i < 4 * stop; i++) {
            assert_int_equal(next(*state, loader, i % 4, &other[i]), 0);
        }
        assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
        tutti_dataloader_release(loader);
        for (int ranks = 1; ranks < 6; ranks += 2) {
            tutti_dataloader_options_t resumed = o;
            resumed.ranks = ranks;
            resumed.workers = ranks - 1;
            for (resumed.rank = 0; resumed.rank < ranks; resumed.rank++) {
                int first, count;
                first_of(&resumed, &first, &count);
                loader = make_loader(&data, &resumed);
                const tutti_bytes_t view = tutti_bytes_of(text.data, text.bytes);
                assert_int_equal(tutti_dataloader_load_state(loader, view), 0);
                assert_int_equal(tutti_dataloader_epoch(loader), 2);
                const int left = read_epoch(*state, loader, &resumed, other);
                assert_int_equal(left, (batches / 4 - stop) * count);
                for (int i = 0; i < left; i++) {
                    expect_same(&seen[(stop + i / count) * 4 + first + i % count], &other[i], 1);
                }
                tutti_dataloader_release(loader);
            }
        }
        tutti_buffer_release(&text);
    }
}

static void a_state_is_a_line_of_text(void **state)
{
    const numbers_options_t data = count_to(77);
    const tutti_dataloader_options_t o = {.batch = 3, .shards = 2};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    tutti_buffer_t text;
    assert_int_equal(next(*state, loader, 0, seen), 0);
    assert_int_equal(tutti_dataloader_save_state(loader, &text), TUTTI_ERR_STATE);
    tt_expect_error("1 of this rank's 2 batches of step 0 are taken");
    assert_int_equal(next(*state, loader, 1, seen), 0);
    assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
    assert_string_equal(text.data, "tutti-dataloader 1 epoch 0 step 1 steps 13 batch 3 shards 2 "
                                   "samples 77 order 3969171204\n");
    tutti_buffer_release(&text);
    tutti_dataloader_release(loader);
}

static void a_state_of_another_order_is_refused(void **state)
{
    (void)state;
    numbers_options_t data = count_to(77);
    tutti_dataloader_options_t o = {.batch = 3, .shuffle = true, .shards = 2};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    tutti_buffer_t text;
    assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
    const tutti_bytes_t view = tutti_bytes_of(text.data, text.bytes);
    tutti_dataloader_release(loader);
    tutti_dataloader_options_t others[] = {o, o, o, o};
    others[0].seed = 1;
    others[1].batch = 2;
    others[2].shards = 1;
    others[3].drop_last = true;
    static const char *const errors[] = {"saved with order", "with steps 13, this loader has 20",
                                         "with steps 13, this loader has 26", "with steps 13"};
    for (int i = 0; i < 4; i++) {
        loader = make_loader(&data, &others[i]);
        assert_int_equal(tutti_dataloader_load_state(loader, view), TUTTI_ERR_MISMATCH);
        tt_expect_error(errors[i]);
        tutti_dataloader_release(loader);
    }
    data.count = 76;
    loader = make_loader(&data, &o);
    assert_int_equal(tutti_dataloader_load_state(loader, view), TUTTI_ERR_MISMATCH);
    tt_expect_error("with samples 77, this loader has 76");
    tutti_dataloader_release(loader);
    tutti_buffer_release(&text);
}

static void every_torn_state_is_refused(void **state)
{
    (void)state;
    const numbers_options_t data = count_to(77);
    const tutti_dataloader_options_t o = {.batch = 3};
    tutti_dataloader_t *loader = make_loader(&data, &o);
    tutti_buffer_t text;
    assert_int_equal(tutti_dataloader_save_state(loader, &text), 0);
    for (size_t i = 0; i < text.bytes; i++) {
        assert_int_equal(tutti_dataloader_load_state(loader, tutti_bytes_of(text.data, i)),
                         TUTTI_ERR_FORMAT);
    }
    char *bytes = text.data;
    static const char *const bad[] = {
        "tutti-dataloader 2 epoch 0 step 0 steps 26 batch 3 shards 1 samples 77 order 0\n",
        "tutti-dataloader 1 epoch 0 step 27 steps 26 batch 3 shards 1 samples 77 order 0\n",
        "tutti-dataloader 1 epoch -1 step 0 steps 26 batch 3 shards 1 samples 77 order 0\n",
        "tutti-dataloader 1 epoch 99999999999999999999 step 0 steps 26 batch 3 shards 1 order 0\n",
        "tutti-dataloader 1 step 0 epoch 0 steps 26 batch 3 shards 1 samples 77 order 0\n",
        "tutti-dataloader 1 epoch 0 step 0 steps 26 batch 3 shards 1 samples 77 order 0\n\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tutti_dataloader_load_state(loader, tutti_text(bad[i])), TUTTI_ERR_FORMAT);
        tt_expect_error("dataloader: ");
    }
    bytes[5] = 0;
    assert_int_equal(tutti_dataloader_load_state(loader, tutti_bytes_of(bytes, text.bytes)),
                     TUTTI_ERR_FORMAT);
    tutti_buffer_release(&text);
    tutti_dataloader_release(loader);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_epoch_gives_each_sample_once_and_ends),
        TEST(the_last_step_is_spread_over_all_shards),
        TEST(drop_last_leaves_out_what_is_not_whole),
        TEST(batches_do_not_depend_on_the_ranks),
        TEST(batches_do_not_depend_on_the_workers),
        TEST(an_epoch_can_begin_again_in_its_middle),
        TEST(a_context_at_another_shard_is_refused),
        TEST(shards_may_be_hosted_in_turn),
        TEST(bad_options_are_named),
        TEST(any_place_may_be_read_at_any_time),
        TEST(places_that_are_none_are_refused),
        TEST(micro_batches_are_dealt_as_shards_are),
        TEST(epochs_run_into_each_other_without_end),
        TEST(an_endless_loader_goes_on_from_its_state),
        TEST(a_state_of_too_many_steps_is_malformed),
        TEST(a_batch_sampler_says_the_batches),
        TEST(a_padded_order_gives_shards_what_ranks_would_get),
        TEST(a_state_goes_on_with_other_ranks_and_workers),
        TEST(a_state_is_a_line_of_text),
        TEST(a_state_of_another_order_is_refused),
        TEST(every_torn_state_is_refused),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
