/* Samplers: each kind's rule, the same entries in any order of asking, and what is refused. */
#include <math.h>
#include <stdlib.h>

#include <tutti/dataloader.h>

#include "compute/data/shuffle.h"
#include "core/base/testing.h"

enum { ROOM = 4096 };

static tutti_sampler_t *make(const tutti_sampler_ops_t *kind, const void *options)
{
    tutti_sampler_t *sampler;
    if (tutti_sampler_create(kind, options, &sampler) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return sampler;
}

static void expect_refused(const tutti_sampler_ops_t *kind, const void *options, const char *part)
{
    tutti_sampler_t *sampler;
    assert_int_equal(tutti_sampler_create(kind, options, &sampler), TUTTI_ERR_ARG);
    tt_expect_error(part);
}

static int64_t at(tutti_sampler_t *sampler, int64_t epoch, int64_t position)
{
    int64_t sample = -1;
    assert_int_equal(tutti_sampler_read(sampler, epoch, position, &sample, NULL), 0);
    return sample;
}

/* How often each of `count` samples comes in an epoch. */
static void count_samples(tutti_sampler_t *sampler, int64_t epoch, int *times, int64_t count)
{
    memset(times, 0, (size_t)count * sizeof *times);
    for (int64_t i = 0; i < tutti_sampler_count(sampler); i++) {
        const int64_t sample = at(sampler, epoch, i);
        assert_in_range(sample, 0, count - 1);
        times[sample]++;
    }
}

static void expect_each(tutti_sampler_t *sampler, int64_t epoch, int64_t count, int wanted)
{
    int times[ROOM];
    count_samples(sampler, epoch, times, count);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(times[i], wanted);
    }
}

/* Positions where two epochs have the same sample. */
static int64_t count_equal(tutti_sampler_t *sampler, int64_t epoch, int64_t other)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < tutti_sampler_count(sampler); i++) {
        equal += at(sampler, epoch, i) == at(sampler, other, i);
    }
    return equal;
}

static void sequential_gives_all_in_order(void **state)
{
    (void)state;
    tutti_sampler_t *s =
        make(&tutti_sequential_sampler, &(tutti_sequential_sampler_options_t){.count = 5});
    for (int i = 0; i < 5; i++) {
        assert_int_equal(at(s, i, i), i);
    }
    assert_int_equal(tutti_sampler_count(s), 5);
    assert_int_equal(tutti_sampler_width(s), 1);
    tutti_sampler_release(s);
}

static void random_is_a_permutation_of_each_epoch(void **state)
{
    (void)state;
    tutti_random_sampler_options_t options = {.count = 1000, .seed = 7};
    tutti_sampler_t *s = make(&tutti_random_sampler, &options);
    expect_each(s, 0, 1000, 1);
    expect_each(s, 9, 1000, 1);
    assert_true(count_equal(s, 0, 1) < 10); /* 1 on average */
    options.seed = 8;
    tutti_sampler_t *other = make(&tutti_random_sampler, &options);
    int equal = 0;
    for (int i = 0; i < 1000; i++) {
        equal += at(s, 0, i) == at(other, 0, i);
    }
    assert_true(equal < 10);
    tutti_sampler_release(other);
    tutti_sampler_release(s);
}

static void random_beyond_the_count_is_one_permutation_behind_another(void **state)
{
    (void)state;
    const tutti_random_sampler_options_t options = {.count = 100, .num_samples = 250};
    tutti_sampler_t *s = make(&tutti_random_sampler, &options);
    int times[100] = {0}, equal = 0;
    for (int i = 0; i < 200; i++) {
        times[at(s, 3, i)]++;
        assert_true(i != 99 || at(s, 3, i) < 100);
        equal += i >= 100 && at(s, 3, i) == at(s, 3, i - 100);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(times[i], 2);
    }
    assert_true(equal < 10);
    for (int i = 200; i < 250; i++) {
        assert_int_equal(times[at(s, 3, i)]++, 2); /* none twice */
    }
    tutti_sampler_release(s);
}

static void random_with_replacement_repeats_and_misses(void **state)
{
    (void)state;
    const tutti_random_sampler_options_t options = {
        .count = 10, .num_samples = 4000, .replacement = true};
    tutti_sampler_t *s = make(&tutti_random_sampler, &options);
    int times[10];
    count_samples(s, 2, times, 10);
    for (int i = 0; i < 10; i++) {
        assert_true(abs(times[i] - 400) < 100); /* 5 standard deviations */
    }
    assert_true(count_equal(s, 2, 3) < 600);
    tutti_sampler_release(s);
}

static void a_subset_is_shuffled_or_kept(void **state)
{
    (void)state;
    int64_t samples[] = {40, 7, 7, 12, 99, 3, 5, 6};
    tutti_subset_sampler_options_t options = {.samples = samples, .count = 8, .in_order = true};
    tutti_sampler_t *kept = make(&tutti_subset_sampler, &options);
    options.in_order = false;
    tutti_sampler_t *shuffled = make(&tutti_subset_sampler, &options);
    samples[0] = -1; /* they are copied */
    int times[100];
    count_samples(shuffled, 1, times, 100);
    assert_int_equal(times[7], 2);
    assert_int_equal(times[40], 1);
    assert_int_equal(times[99], 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(at(kept, 1, i), i == 0 ? 40 : samples[i]);
    }
    assert_true(count_equal(shuffled, 0, 1) < 8 || count_equal(shuffled, 0, 2) < 8);
    expect_refused(&tutti_subset_sampler, &options, "sampler subset: a sample is -1");
    tutti_sampler_release(kept);
    tutti_sampler_release(shuffled);
}

/* ---- weighted -------------------------------------------------------------------------------- */

static const double weights[] = {0, 1, 2, 0, 4, 1e-30, 3};

enum { WEIGHTS = 7 };

static void weighted_draws_follow_the_weights(void **state)
{
    (void)state;
    const tutti_weighted_sampler_options_t options = {
        .weights = weights, .count = WEIGHTS, .num_samples = 10000, .seed = 5};
    tutti_sampler_t *s = make(&tutti_weighted_sampler, &options);
    int times[WEIGHTS];
    count_samples(s, 4, times, WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++) {
        const double p = weights[i] / 10;
        assert_true(fabs(times[i] - 10000 * p) <= 5 * sqrt(10000 * p * (1 - p)));
    }
    assert_true(count_equal(s, 4, 5) < 4000); /* 3000 on average */
    tutti_sampler_release(s);
}

static void weighted_without_replacement_gives_each_once(void **state)
{
    (void)state;
    tutti_weighted_sampler_options_t options = {
        .weights = weights, .count = WEIGHTS, .num_samples = 5, .no_replacement = true};
    tutti_sampler_t *s = make(&tutti_weighted_sampler, &options);
    int first[WEIGHTS] = {0}, second_after_4[WEIGHTS] = {0};
    for (int epoch = 0; epoch < 4000; epoch++) {
        int times[WEIGHTS];
        count_samples(s, epoch, times, WEIGHTS);
        for (int i = 0; i < WEIGHTS; i++) {
            assert_int_equal(times[i], weights[i] > 0);
        }
        first[at(s, epoch, 0)]++;
        second_after_4[at(s, epoch, 1)] += at(s, epoch, 0) == 4;
        assert_int_equal(at(s, epoch, 4), 5); /* whose weight is next to nothing */
    }
    for (int i = 0; i < WEIGHTS; i++) {
        assert_true(fabs(first[i] - 400 * weights[i]) <= 160);
        assert_true(i == 4 || fabs(second_after_4[i] - first[4] * weights[i] / 6) <= 100);
    }
    tutti_sampler_release(s);
    options.num_samples = 6;
    expect_refused(&tutti_weighted_sampler, &options,
                   "6 samples without replacement, but only 5 of 7 weights are above 0");
}

/* The whole tree at once: a large count whose drawn weights all leave. */
static void weighted_without_replacement_empties_a_large_tree(void **state)
{
    (void)state;
    static double many[ROOM - 1];
    for (int i = 0; i < ROOM - 1; i++) {
        many[i] = 1.0 / (1 + i);
    }
    const tutti_weighted_sampler_options_t options = {
        .weights = many, .count = ROOM - 1, .no_replacement = true};
    tutti_sampler_t *s = make(&tutti_weighted_sampler, &options);
    expect_each(s, 0, ROOM - 1, 1);
    const int64_t before = at(s, 0, 17);
    expect_each(s, 1, ROOM - 1, 1);
    assert_true(count_equal(s, 1, 1) == ROOM - 1);
    assert_int_equal(at(s, 0, 17), before); /* an epoch asked for again */
    tutti_sampler_release(s);
}

/* These numbers must never change: jobs that resume rely on them. */
static void orders_are_the_same_everywhere(void **state)
{
    (void)state;
    const tutti_random_sampler_options_t random = {.count = 1000, .seed = 1};
    tutti_weighted_sampler_options_t weighted = {.weights = weights, .count = WEIGHTS, .seed = 1};
    tutti_sampler_t *s[] = {make(&tutti_random_sampler, &random),
                            make(&tutti_weighted_sampler, &weighted), NULL};
    weighted.num_samples = 5;
    weighted.no_replacement = true;
    s[2] = make(&tutti_weighted_sampler, &weighted);
    static const int64_t wanted[3][5] = {
        {228, 557, 310, 632, 61},
        {4, 1, 2, 6, 6},
        {4, 1, 2, 6, 5},
    };
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 5; i++) {
            assert_int_equal(at(s[k], 2, i), wanted[k][i]);
        }
        tutti_sampler_release(s[k]);
    }
}

static void bad_weights_are_named(void **state)
{
    (void)state;
    double bad[] = {1, -2};
    tutti_weighted_sampler_options_t options = {.weights = bad, .count = 2};
    expect_refused(&tutti_weighted_sampler, &options, "the weight of sample 1 is -2");
    bad[1] = NAN;
    expect_refused(&tutti_weighted_sampler, &options, "the weight of sample 1 is nan");
    bad[0] = bad[1] = 0;
    expect_refused(&tutti_weighted_sampler, &options, "no weight is above 0");
}

/* ---- batch ----------------------------------------------------------------------------------- */

static void batches_are_cut_from_another_sampler(void **state)
{
    (void)state;
    tutti_sampler_t *all =
        make(&tutti_sequential_sampler, &(tutti_sequential_sampler_options_t){.count = 11});
    tutti_batch_sampler_options_t options = {.sampler = all, .batch = 4};
    tutti_sampler_t *s = make(&tutti_batch_sampler, &options);
    options.drop_last = true;
    tutti_sampler_t *dropping = make(&tutti_batch_sampler, &options);
    options.sampler = s;
    expect_refused(&tutti_batch_sampler, &options, "but batch gives up to 4 at once");
    tutti_sampler_release(all);
    assert_int_equal(tutti_sampler_count(s), 3);
    assert_int_equal(tutti_sampler_count(dropping), 2);
    assert_int_equal(tutti_sampler_width(s), 4);
    int64_t samples[4], size;
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(tutti_sampler_read(s, 0, i, samples, &size), 0);
        assert_int_equal(size, i == 2 ? 3 : 4);
        assert_int_equal(samples[2], 4 * i + 2);
    }
    assert_int_equal(tutti_sampler_read(s, 0, 0, samples, NULL), TUTTI_ERR_ARG);
    tt_expect_error("size is required");
    tutti_sampler_release(s);
    tutti_sampler_release(dropping);
}

/* A count without what it counts. */
static void lists_that_are_missing_are_told(void **state)
{
    (void)state;
    tutti_sampler_t *s;
    const tutti_subset_sampler_options_t subset = {.count = 3};
    const tutti_weighted_sampler_options_t weighted = {.count = 3};
    assert_int_equal(tutti_sampler_create(&tutti_subset_sampler, &subset, &s), TUTTI_ERR_ARG);
    tt_expect_error("subset: there are no samples");
    assert_int_equal(tutti_sampler_create(&tutti_weighted_sampler, &weighted, &s), TUTTI_ERR_ARG);
    tt_expect_error("weighted: there are no weights");
}

/* ---- distributed (torch's own lists: golden_sampler_test) ------------------------------------ */

/* How often each sample comes over all ranks. */
static void deal(tutti_distributed_sampler_options_t options, int *times, int64_t *most,
                 int64_t *least)
{
    int one[ROOM];
    const int64_t count = options.count;
    memset(times, 0, (size_t)count * sizeof *times);
    *most = 0;
    *least = INT64_MAX;
    for (options.rank = 0; options.rank < options.replicas; options.rank++) {
        tutti_sampler_t *s = make(&tutti_distributed_sampler, &options);
        const int64_t entries = tutti_sampler_count(s);
        count_samples(s, 6, one, count);
        for (int64_t i = 0; i < count; i++) {
            times[i] += one[i];
        }
        *most = entries > *most ? entries : *most;
        *least = entries < *least ? entries : *least;
        tutti_sampler_release(s);
    }
}

static void exact_gives_every_sample_once_over_all_ranks(void **state)
{
    (void)state;
    for (int64_t count = 1; count < 30; count++) {
        for (int64_t replicas = 1; replicas < 9; replicas++) {
            int times[30];
            int64_t most, least;
            deal(
                (tutti_distributed_sampler_options_t){
                    .count = count, .replicas = replicas, .shuffle = true, .exact = true},
                times, &most, &least);
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(times[i], 1);
            }
            assert_true(most - least <= 1);
        }
    }
}

static void padding_gives_all_ranks_equally_many(void **state)
{
    (void)state;
    int times[30];
    int64_t most, least, twice = 0;
    tutti_distributed_sampler_options_t options = {.count = 10, .replicas = 4, .shuffle = true};
    deal(options, times, &most, &least);
    assert_int_equal(most, 3);
    assert_int_equal(least, 3);
    for (int i = 0; i < 10; i++) {
        assert_in_range(times[i], 1, 2);
        twice += times[i] == 2;
    }
    assert_int_equal(twice, 2);
    options.drop_last = true;
    deal(options, times, &most, &least);
    assert_int_equal(most, 2);
    assert_int_equal(least, 2);
}

static void the_whole_order_does_not_depend_on_the_ranks(void **state)
{
    (void)state;
    tutti_distributed_sampler_options_t options = {
        .count = 50, .shuffle = true, .seed = 3, .replicas = 1};
    tutti_sampler_t *alone = make(&tutti_distributed_sampler, &options);
    for (options.replicas = 2; options.replicas < 7; options.replicas++) {
        for (options.rank = 0; options.rank < options.replicas; options.rank++) {
            tutti_sampler_t *s = make(&tutti_distributed_sampler, &options);
            for (int64_t i = 0; i < tutti_sampler_count(s); i++) {
                const int64_t whole = (i * options.replicas + options.rank) % 50;
                assert_int_equal(at(s, 2, i), at(alone, 2, whole));
            }
            tutti_sampler_release(s);
        }
    }
    tutti_sampler_release(alone);
}

/* torch seeds its generator with seed + epoch. */
static void seed_and_epoch_are_added(void **state)
{
    (void)state;
    tutti_distributed_sampler_options_t options = {
        .count = 50, .shuffle = true, .seed = 3, .replicas = 2};
    tutti_sampler_t *s = make(&tutti_distributed_sampler, &options);
    options.seed = 5;
    tutti_sampler_t *later = make(&tutti_distributed_sampler, &options);
    for (int64_t i = 0; i < 25; i++) {
        assert_int_equal(at(s, 2, i), at(later, 0, i));
    }
    assert_true(count_equal(s, 2, 3) < 10);
    tutti_sampler_release(s);
    tutti_sampler_release(later);
}

static void bad_distributed_options_are_named(void **state)
{
    (void)state;
    tutti_distributed_sampler_options_t options = {.count = 5, .replicas = 2, .rank = 2};
    expect_refused(&tutti_distributed_sampler, &options, "rank is 2: it must be from 0 to 1");
    options.rank = 0;
    options.drop_last = options.exact = true;
    expect_refused(&tutti_distributed_sampler, &options, "drop_last and exact exclude each other");
    options.replicas = 0;
    expect_refused(&tutti_distributed_sampler, &options, "replicas is 0: it must be at least 1");
}

static void entries_out_of_range_are_refused(void **state)
{
    (void)state;
    tutti_sampler_t *s =
        make(&tutti_sequential_sampler, &(tutti_sequential_sampler_options_t){.count = 5});
    int64_t sample;
    assert_int_equal(tutti_sampler_read(s, 0, 5, &sample, NULL), TUTTI_ERR_ARG);
    tt_expect_error("sampler sequential: entry 5 of epoch 0: an epoch has entries 0 to 4");
    assert_int_equal(tutti_sampler_read(s, -1, 0, &sample, NULL), TUTTI_ERR_ARG);
    tutti_sampler_release(s);
    expect_refused(&tutti_sequential_sampler, NULL, "options are required");
}

static tutti_status_t init_lying(tutti_sampler_t *sampler, const void *options,
                                 tutti_sampler_info_t *info)
{
    (void)sampler;
    *info = (tutti_sampler_info_t){.count = 3, .width = *(const int *)options};
    return TUTTI_OK;
}

/* Entry i has i samples more than there may be, or one less than none. */
static tutti_status_t read_lying(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                 int64_t *samples, int64_t *size)
{
    (void)epoch;
    samples[0] = 0;
    *size = position == 2 ? -1 : tutti_sampler_width(sampler) + position;
    return TUTTI_OK;
}

static void a_sampler_that_lies_is_refused(void **state)
{
    (void)state;
    const tutti_sampler_ops_t kind = {.name = "lying", .init = init_lying, .read = read_lying};
    for (int width = 1; width <= 4; width += 3) {
        int64_t samples[4], size;
        tutti_sampler_t *s = make(&kind, &width);
        assert_int_equal(tutti_sampler_read(s, 0, 0, samples, &size), 0);
        assert_int_equal(tutti_sampler_read(s, 0, 1, samples, &size), TUTTI_ERR_ARG);
        tt_expect_error("sampler lying: entry 1 of epoch 0 has");
        assert_int_equal(tutti_sampler_read(s, 0, 2, samples, &size), TUTTI_ERR_ARG);
        tutti_sampler_release(s);
    }
    const tutti_sampler_ops_t empty = {.name = "empty"};
    expect_refused(&empty, &empty, "sampler empty: init and read are required");
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        const tutti_weighted_sampler_options_t options = {
            .weights = weights, .count = WEIGHTS, .num_samples = 2, .no_replacement = true};
        tutti_sampler_t *s = NULL;
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_sampler_create(&tutti_weighted_sampler, &options, &s);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_sampler_release(s);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_gives_all_in_order),
        cmocka_unit_test(lists_that_are_missing_are_told),
        cmocka_unit_test(random_is_a_permutation_of_each_epoch),
        cmocka_unit_test(random_beyond_the_count_is_one_permutation_behind_another),
        cmocka_unit_test(random_with_replacement_repeats_and_misses),
        cmocka_unit_test(a_subset_is_shuffled_or_kept),
        cmocka_unit_test(weighted_draws_follow_the_weights),
        cmocka_unit_test(weighted_without_replacement_gives_each_once),
        cmocka_unit_test(weighted_without_replacement_empties_a_large_tree),
        cmocka_unit_test(orders_are_the_same_everywhere),
        cmocka_unit_test(bad_weights_are_named),
        cmocka_unit_test(batches_are_cut_from_another_sampler),
        cmocka_unit_test(exact_gives_every_sample_once_over_all_ranks),
        cmocka_unit_test(padding_gives_all_ranks_equally_many),
        cmocka_unit_test(the_whole_order_does_not_depend_on_the_ranks),
        cmocka_unit_test(seed_and_epoch_are_added),
        cmocka_unit_test(bad_distributed_options_are_named),
        cmocka_unit_test(entries_out_of_range_are_refused),
        cmocka_unit_test(a_sampler_that_lies_is_refused),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
