/* Cuts of models against all cuts, tried one by one, and what is refused. TUTTI_SEED names the
 * models. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/pipeline_partition.h>

#include "core/base/rng.h"
#include "core/tensor/device_testing.h"

enum { LAYERS_MAX = 7, CASES = 400, LINKS = 2 };

/* ---- every cut ---- */

typedef struct {
    const tutti_pipeline_layer_t *layers;
    const tutti_pipeline_link_t *links;
    int ranks; /* of the pipeline */
} model_t;

static double sum_seconds(const model_t *m, int first, int end)
{
    double sum = 0;
    for (int i = first; i < end; i++) {
        sum += m->layers[i].seconds;
    }
    return sum;
}

static double send(const model_t *m, int layer, double speed)
{
    return speed > 0 ? 2 * m->layers[layer - 1].output_bytes / speed : 0;
}

static double exchange(const model_t *m, int first, int end, int count, double speed)
{
    double bytes = 0;
    for (int i = first; i < end; i++) {
        bytes += m->layers[i].weight_bytes;
    }
    return speed > 0 ? 4.0 * (count - 1) * bytes / (count * speed) : 0;
}

/* The best of layers [first, end) on `count` of what is below a level: the first stage takes any
 * number of layers and of ranks, the others all that is left. */
static double try_all(const model_t *m, int level, int first, int end, int count)
{
    if (level < 0) {
        return sum_seconds(m, first, end);
    }
    const double speed = m->links[level].bytes_per_second;
    double best = INFINITY;
    for (int cut = first + 1; cut <= end; cut++) {
        const int least = cut == end ? count : 1, most = cut == end ? count : count - 1;
        const double below =
            try_all(m, level - 1, first, cut, level > 0 ? m->links[level - 1].count : 1);
        for (int own = least; own <= most; own++) {
            double slowest = fmax(below / own, exchange(m, first, cut, own, speed));
            if (cut < end) {
                slowest = fmax(slowest, send(m, cut, speed));
                slowest = fmax(slowest, try_all(m, level, cut, end, count - own));
            }
            best = fmin(best, slowest);
        }
    }
    return best;
}

/* Between the ranks of two stages: the first level where they are of one. */
static double speed_between(const model_t *m, int stage)
{
    const int from = (stage - 1) % m->ranks, to = stage % m->ranks;
    return from / m->links[0].count == to / m->links[0].count ? m->links[0].bytes_per_second
                                                              : m->links[1].bytes_per_second;
}

static double try_single(const model_t *m, int first, int end, int stage, int stages)
{
    if (stage + 1 == stages) {
        return sum_seconds(m, first, end);
    }
    double best = INFINITY;
    for (int cut = first + 1; cut <= end - (stages - stage - 1); cut++) {
        const double over = m->ranks > 1 ? send(m, cut, speed_between(m, stage + 1)) : 0;
        const double slowest = fmax(fmax(sum_seconds(m, first, cut), over),
                                    try_single(m, cut, end, stage + 1, stages));
        best = fmin(best, slowest);
    }
    return best;
}

/* ---- what a cut says of itself ---- */

static void expect_chain(const model_t *m, const tutti_pipeline_partition_t *cut, int layers,
                         int ranks)
{
    int next = 0, used = 0;
    double slowest = 0;
    for (int i = 0; i < cut->count; i++) {
        const tutti_pipeline_stage_t *stage = &cut->stages[i];
        assert_int_equal(stage->first, next);
        assert_true(stage->layers >= 1 && stage->replicas >= 1);
        next += stage->layers;
        used += stage->replicas;
        assert_true(stage->seconds == sum_seconds(m, stage->first, next) / stage->replicas);
        slowest = fmax(slowest, fmax(stage->seconds, stage->send_seconds));
    }
    assert_int_equal(next, layers);
    assert_int_equal(used, ranks);
    assert_true(slowest <= cut->seconds * (1 + 1e-12));
    assert_true(cut->stages[cut->count - 1].send_seconds == 0);
}

static void expect_equal(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-12 * wanted) {
        fail_msg("%.17g; the best of all cuts is %.17g", value, wanted);
    }
}

static int draw(const tt_rng_t *rng, uint64_t *index, int below)
{
    return (int)tt_rng_below(*rng, (*index)++, (uint64_t)below);
}

/* Small integers, so that all sums are exact. */
static void draw_model(const tt_rng_t *rng, uint64_t *index, tutti_pipeline_layer_t *layers,
                       tutti_pipeline_link_t *links)
{
    for (int i = 0; i < LAYERS_MAX; i++) {
        layers[i] = (tutti_pipeline_layer_t){.seconds = draw(rng, index, 20),
                                             .output_bytes = draw(rng, index, 1000),
                                             .weight_bytes = draw(rng, index, 1000)};
    }
    for (int i = 0; i < LINKS; i++) {
        const int speed = draw(rng, index, 4);
        links[i] = (tutti_pipeline_link_t){1 + draw(rng, index, 3), speed * 50.0};
    }
}

static void try_one(const model_t *m, int layers)
{
    tutti_pipeline_partition_t cut;
    tutti_pipeline_partition_options_t options = {
        .ranks = m->ranks, .links = m->links, .link_count = LINKS, .replicate = true};
    assert_int_equal(tutti_pipeline_partition(m->layers, layers, &options, &cut), TUTTI_OK);
    expect_equal(cut.seconds, try_all(m, LINKS - 1, 0, layers, m->links[LINKS - 1].count));
    expect_chain(m, &cut, layers, m->ranks);
    tutti_pipeline_partition_release(&cut);
    options.replicate = false;
    for (options.stages = 1; options.stages <= layers; options.stages++) {
        assert_int_equal(tutti_pipeline_partition(m->layers, layers, &options, &cut), TUTTI_OK);
        expect_equal(cut.seconds, try_single(m, 0, layers, 0, options.stages));
        expect_chain(m, &cut, layers, options.stages);
        tutti_pipeline_partition_release(&cut);
    }
}

static void the_best_of_all_cuts_is_found(void **state)
{
    (void)state;
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    const tt_rng_t rng = tt_rng_stream(seed, 0, 0, 0, 0);
    printf("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    uint64_t index = 0;
    for (int i = 0; i < CASES; i++) {
        tutti_pipeline_layer_t layers[LAYERS_MAX];
        tutti_pipeline_link_t links[LINKS];
        draw_model(&rng, &index, layers, links);
        const model_t model = {layers, links, links[0].count * links[1].count};
        try_one(&model, 1 + draw(&rng, &index, LAYERS_MAX));
    }
}

/* One level of links is the plain option. */
static void one_speed_is_one_link(void **state)
{
    (void)state;
    const tutti_pipeline_layer_t layers[] = {{"a", 1, 100, 8}, {"b", 4, 10, 8}, {"c", 2, 0, 8}};
    tutti_pipeline_partition_t cut;
    assert_int_equal(tutti_pipeline_partition(
                         layers, 3,
                         &(tutti_pipeline_partition_options_t){.ranks = 2, .bytes_per_second = 10},
                         &cut),
                     TUTTI_OK);
    assert_int_equal(cut.stages[0].layers, 2); /* the boundary behind a takes 20 seconds */
    assert_true(cut.seconds == 5 && cut.stages[0].send_seconds == 2);
    tutti_pipeline_partition_release(&cut);
    assert_int_equal(
        tutti_pipeline_partition(
            layers, 3, &(tutti_pipeline_partition_options_t){.ranks = 3, .replicate = true}, &cut),
        TUTTI_OK);
    assert_true(cut.seconds == 7.0 / 3 && cut.count == 1 && cut.stages[0].replicas == 3);
    tutti_pipeline_partition_release(&cut);
    assert_int_equal(tutti_pipeline_partition(layers, 3, NULL, &cut), TUTTI_OK);
    assert_true(cut.seconds == 7 && cut.count == 1);
    tutti_pipeline_partition_release(&cut);
    tutti_pipeline_partition_release(NULL);
}

/* ---- what is refused ---- */

static const tutti_pipeline_layer_t four[] = {
    {"a", 1, 1, 1}, {"b", 1, 1, 1}, {"c", 1, 1, 1}, {"d", 1, 1, 1}};

static void expect_refused(int count, const tutti_pipeline_partition_options_t *options,
                           const char *error)
{
    tutti_pipeline_partition_t cut = {.count = 77};
    assert_int_equal(tutti_pipeline_partition(four, count, options, &cut), TUTTI_ERR_ARG);
    tt_expect_error(error);
    assert_int_equal(cut.count, 77);
}

#define REFUSED(error, ...)                                                                        \
    expect_refused(4, &(tutti_pipeline_partition_options_t){__VA_ARGS__}, (error))

static void options_are_refused_by_name(void **state)
{
    (void)state;
    static const tutti_pipeline_link_t links[] = {{2, 1}, {3, 1}, {0, 1}, {2, -1}};
    REFUSED("5 stages of 4 layers: a stage has at least one layer, so there can be 4 stages at "
            "most",
            .ranks = 5);
    REFUSED("6 stages of 4 layers", .ranks = 2, .stages = 6);
    REFUSED("-1 ranks", .ranks = -1);
    REFUSED("stages is -1", .stages = -1);
    REFUSED("stages is 2; with replicas", .stages = 2, .replicate = true);
    REFUSED("bytes_per_second is -1", .bytes_per_second = -1);
    REFUSED("bytes_per_second is inf", .bytes_per_second = INFINITY);
    REFUSED("the links are of 6 ranks; there are 4", .ranks = 4, .links = links, .link_count = 2);
    REFUSED("link 2 has a count of 0", .ranks = 4, .links = links, .link_count = 3);
    REFUSED("link_count is 0", .ranks = 4, .links = links);
    REFUSED("bytes_per_second is -1", .ranks = 2, .links = links + 3, .link_count = 1);
    expect_refused(0, NULL, "0 layers");
    const tutti_pipeline_layer_t bad[] = {{"a", 1, 1, 1}, {"b", 1, NAN, 1}};
    tutti_pipeline_partition_t cut;
    assert_int_equal(tutti_pipeline_partition(bad, 2, NULL, &cut), TUTTI_ERR_ARG);
    tt_expect_error("layer 1, b: output_bytes is nan");
    assert_int_equal(tutti_pipeline_partition(NULL, 2, NULL, &cut), TUTTI_ERR_ARG);
}

static void as_many_ranks_as_may_be_are_taken(void **state)
{
    (void)state;
    tutti_pipeline_partition_t cut;
    const tutti_pipeline_partition_options_t most = {.ranks = 16384, .stages = 1};
    assert_int_equal(tutti_pipeline_partition(four, 4, &most, &cut), TUTTI_OK);
    assert_int_equal(cut.stages[0].layers, 4);
    tutti_pipeline_partition_release(&cut);
    REFUSED("16385 ranks; want 1 to 16384", .ranks = 16385, .stages = 1);
}

static void missing_memory_is_a_status(void **state)
{
    (void)state;
    static const tutti_pipeline_link_t links[] = {{2, 5}, {2, 1}};
    for (int replicate = 0; replicate < 2; replicate++) {
        size_t nth = 0;
        do {
            tutti_pipeline_partition_t cut = {0};
            tt_alloc_fail_at(++nth);
            const tutti_status_t status = tutti_pipeline_partition(
                four, 4,
                &(tutti_pipeline_partition_options_t){
                    .ranks = 4, .links = links, .link_count = 2, .replicate = replicate == 1},
                &cut);
            assert_int_equal(status, tt_alloc_has_failed() ? TUTTI_ERR_NOMEM : TUTTI_OK);
            tutti_pipeline_partition_release(&cut);
            assert_int_equal(tt_alloc_stats().blocks, 0);
        } while (tt_alloc_has_failed());
        tt_alloc_fail_at(0);
        assert_true(nth > 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_all_cuts_is_found),
        cmocka_unit_test(one_speed_is_one_link),
        cmocka_unit_test(options_are_refused_by_name),
        cmocka_unit_test(as_many_ranks_as_may_be_are_taken),
        cmocka_unit_test(missing_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
