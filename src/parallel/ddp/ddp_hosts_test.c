/* DDP at stage 3 on several hosts with several ranks each: the bits of one rank, units that come to
 * a host once, and failures that all hear of. Hosts are made up (on_hosts_testing.h). */
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>
#include <tutti/sharded_plan.h>

#include "core/base/alloc.h"
#include "parallel/ddp/on_hosts_testing.h"

enum { LAYERS = 2, SIDE = 256, STEPS = 2, RANKS_MAX = 4 };

typedef struct {
    tutti_ddp_options_t options;
    const char *source;
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
    tutti_ddp_memory_t memory[RANKS_MAX];
    int64_t sent[RANKS_MAX]; /* behind the making of ddp */
    int more_steps;
    bool has_failing; /* a rank stops in the middle */
    bool is_lacking;  /* of memory: its nth allocation */
    size_t nth;
    bool has_failed;
    atomic_int done;
    pthread_barrier_t start;
    tutti_status_t status[RANKS_MAX];
    char text[RANKS_MAX][TT_ERROR_TEXT_BYTES];
    bool is_lean; /* nothing is summoned, for which each rank has a copy */
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} trained_t;

static tutti_status_t open_training(tutti_group_t *group, const job_t *job, trained_t *t)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {.in = SIDE, .out = SIDE};
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->net));
    for (int i = 0; i < LAYERS; i++) {
        TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &layer, NULL));
    }
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    return tutti_ddp_create(t->ctx, t->net, group, &job->options, &t->ddp);
}

static void close_training(trained_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static tutti_status_t compute(const trained_t *t)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, SIDE), -1, 1);
    x = tutti_ddp_forward(s, t->ddp, x);
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, x)));
    return tutti_scope_close(s);
}

/* Uneven: one of three shards has no data, each in its turn. */
static tutti_status_t step(const trained_t *t, int number, bool is_uneven)
{
    tutti_context_set_step(t->ctx, number);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        const bool is_empty = is_uneven && (number + tutti_context_shard(t->ctx)) % 3 == 1;
        TUTTI_CHECK(is_uneven ? tutti_ddp_set_weight(t->ddp, !is_empty) : TUTTI_OK);
        TUTTI_CHECK(is_empty ? TUTTI_OK : compute(t));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    return tutti_optim_step(t->opt);
}

static void expect_plan(tt_member_t *m, const trained_t *t)
{
    tutti_sharded_plan_t plan = {0};
    int first, count;
    tutti_ddp_local_shards(t->ddp, &first, &count);
    const tutti_status_t status = tutti_ddp_plan(t->ddp, &plan);
    TT_EXPECT(m, status == (count > 0 ? TUTTI_OK : TUTTI_ERR_STATE));
    TT_EXPECT(m, status < 0 || tutti_sharded_check(&plan) == TUTTI_OK);
    tutti_sharded_plan_release(&plan);
}

/* Written while it is summoned, in memory of each rank's own. */
static tutti_status_t double_all(const trained_t *t)
{
    TUTTI_CHECK(tutti_ddp_summon(t->ddp, NULL, true));
    tutti_tensor_t *x = tutti_module_find(t->net, "0.weight");
    float *values = x != NULL ? tutti_tensor_data(x) : NULL;
    for (int64_t i = 0; values != NULL && i < (int64_t)SIDE * SIDE; i++) {
        values[i] *= 2;
    }
    return tutti_ddp_dismiss(t->ddp);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    trained_t t = {0};
    TT_EXPECT(m, open_training(m->group, job, &t) == TUTTI_OK);
    if (t.ddp != NULL) {
        const int64_t before = tutti_ddp_memory(t.ddp, NULL).sent_bytes;
        TT_EXPECT(m, strcmp(tutti_ddp_stats(t.ddp).unit_source, job->source) == 0);
        for (int i = 0; i < STEPS + job->more_steps; i++) {
            TT_EXPECT(m, step(&t, i, job->options.uneven != TUTTI_DDP_EVEN) == TUTTI_OK);
            TT_EXPECT(m, i > 0 || job->is_lean || double_all(&t) == TUTTI_OK);
        }
        if (job->options.stage == 3 && job->options.uneven == TUTTI_DDP_EVEN) {
            expect_plan(m, &t);
        }
        /* Behind a step all is sent; what a digest gathers may still be on its way. */
        job->sent[m->rank] = tutti_ddp_memory(t.ddp, NULL).sent_bytes - before;
        TT_EXPECT(m, tutti_ddp_digest(t.ddp, job->digests[m->rank]) == TUTTI_OK);
        job->memory[m->rank] = tutti_ddp_memory(t.ddp, t.opt);
    }
    close_training(&t);
}

/* Rank 1 goes away in the middle of a step: nobody waits for it. */
static void fail_in_a_step(tt_member_t *m)
{
    job_t *job = m->user;
    trained_t t = {0};
    TT_EXPECT(m, open_training(m->group, job, &t) == TUTTI_OK);
    TT_EXPECT(m, step(&t, 0, false) == TUTTI_OK);
    pthread_barrier_wait(&job->start); /* who goes ends what others are still in */
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    if (m->rank != 1) {
        (void)compute(&t);
        TT_EXPECT(m, tutti_ddp_finish(t.ddp) < 0);
    }
    close_training(&t); /* of rank 1: in the middle of a step */
}

/* From here on an allocation fails; who fails goes at once. */
static void create(tt_member_t *m)
{
    job_t *job = m->user;
    trained_t t = {0};
    pthread_barrier_wait(&job->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(job->nth);
    }
    pthread_barrier_wait(&job->start);
    job->status[m->rank] = open_training(m->group, job, &t);
    snprintf(job->text[m->rank], sizeof job->text[0], "%s",
             job->status[m->rank] < 0 ? tutti_last_error() : "");
    if (atomic_fetch_add(&job->done, 1) == m->size - 1) {
        job->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    close_training(&t);
}

static void run(const char *shape, job_t *job)
{
    tt_on_hosts_quietly(shape,
                        job->is_lacking    ? create
                        : job->has_failing ? fail_in_a_step
                                           : train,
                        job);
}

static const tutti_ddp_units_t BY_LAYER = {.kind = "linear"};

static void hosts_have_the_bits_of_stage_0(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    job_t want = {.options = {.shards = 4}, .source = ""};
    run("a", &want);
    static const char *const shapes[] = {"abab", "aab"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        job_t got = {.options = {.stage = 3, .units = BY_LAYER, .shards = 4, .prefetch = (int)i},
                     .source = "host"};
        run(shapes[i], &got);
        for (size_t rank = 0; rank < strlen(shapes[i]); rank++) {
            assert_string_equal(got.digests[rank], want.digests[0]);
        }
    }
}

static void sixteen_bits_and_small_parameters_go_the_same_way(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    const tutti_ddp_options_t options = {.shards = 4, .param_dtype = TUTTI_BF16};
    job_t want = {.options = options, .source = ""}, got = {.options = options, .source = "host"};
    got.options.stage = 3;
    got.options.units = BY_LAYER;
    got.options.persistence_bytes = 4096;
    got.options.keep_after_forward = true;
    run("a", &want);
    run("aabb", &got);
    for (int rank = 0; rank < 4; rank++) {
        assert_string_equal(got.digests[rank], want.digests[0]);
    }
}

/* Of two hosts with two ranks each a rank gets half of what the other host has; alone it would be
 * told three slices of four. */
static void a_host_gets_what_it_lacks_once(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    job_t once = {.options = {.stage = 3, .units = BY_LAYER}, .source = "host", .is_lean = true};
    job_t each = {.options = {.stage = 3, .units = BY_LAYER}, .source = "gather", .is_lean = true};
    run("aabb", &once);
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    run("aabb", &each);
    unsetenv("TUTTI_SHARED_PARAMETERS");
    int64_t got = 0, gathered = 0, lacked = 0;
    size_t peak = 0, alone = 0;
    for (int rank = 0; rank < 4; rank++) {
        got += once.memory[rank].gathered_bytes;
        gathered += each.memory[rank].gathered_bytes;
        lacked += once.memory[rank].gathered_bytes * (rank < 2);
        peak += once.memory[rank].peak_unit_bytes;
        alone += each.memory[rank].peak_unit_bytes;
    }
    /* all ranks' parts of what their hosts lack, a half; and each three quarters of everything */
    assert_int_equal(3 * got, gathered);
    assert_true(lacked > 0 && peak < alone);
}

/* A rank that announces a unit before it is wanted may have to give its part of the one before to a
 * rank of its host that follows, and waits for that. */
static void ranks_without_data_wait_for_nobody_who_waits_for_them(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    for (int i = 0; i < 2; i++) {
        const tutti_ddp_options_t options = {.shards = 6, .uneven = TUTTI_DDP_ACTIVE};
        job_t want = {.options = options, .source = "", .is_lean = true, .more_steps = 4};
        job_t got = {.options = options, .source = "host", .is_lean = true, .more_steps = 4};
        got.options.stage = 3;
        got.options.units = BY_LAYER;
        got.options.accumulate = i == 0 ? TUTTI_DDP_LOCAL : TUTTI_DDP_SHARDED;
        run("a", &want);
        run("abb", &got);
        for (int rank = 0; rank < 3; rank++) {
            assert_string_equal(got.digests[rank], want.digests[0]);
        }
    }
}

/* ---- units that stay near (options.reshard_ranks) -------------------------------------------- */

static void gather_alone(bool is_on)
{
    if (is_on) {
        setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    } else {
        unsetenv("TUTTI_SHARED_PARAMETERS");
    }
}

static int64_t sum_sent(const job_t *job, int ranks)
{
    int64_t sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += job->sent[rank];
    }
    return sum;
}

static tutti_ddp_options_t near_options(int reshard_ranks)
{
    return (tutti_ddp_options_t){
        .stage = 3, .units = BY_LAYER, .shards = 4, .reshard_ranks = reshard_ranks};
}

/* Between hosts goes what goes where units are kept whole, and not a byte more: once what each host
 * lacks. A host has a unit once, near or kept. */
static void what_stays_near_crosses_no_wire_in_backward(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    enum { UNIT = (SIDE * SIDE + SIDE) * 4, STARTS = STEPS * LAYERS };
    for (int i = 0; i < 2; i++) {
        const char *source = i == 0 ? "host" : "gather";
        job_t plain = {.options = near_options(0), .source = source, .is_lean = true};
        job_t kept = {.options = near_options(1), .source = source, .is_lean = true};
        job_t near = {.options = near_options(2), .source = source, .is_lean = true};
        gather_alone(i == 1);
        run("aabb", &plain);
        run("aabb", &kept);
        run("aabb", &near);
        gather_alone(false);
        assert_int_equal(sum_sent(&near, 4), sum_sent(&kept, 4));
        /* two hosts' halves, once more for each start of a backward */
        assert_int_equal(sum_sent(&plain, 4) - sum_sent(&near, 4), STARTS * UNIT);
        for (int rank = 0; rank < 4; rank++) {
            assert_string_equal(near.digests[rank], plain.digests[0]);
            assert_int_equal(near.memory[rank].near_bytes, i == 0 ? 0 : STARTS * UNIT / 2);
            assert_int_equal(plain.memory[rank].near_bytes, 0);
            assert_int_equal(near.memory[rank].unit_bytes, 0);
            assert_true(i == 1 ||
                        near.memory[rank].peak_unit_bytes == kept.memory[rank].peak_unit_bytes);
        }
    }
}

/* Sets {0, 1} and {2, 3} lie on both hosts: what a host would keep is not what was asked for. */
static void sets_over_hosts_are_gathered(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    job_t want = {.options = {.shards = 4}, .source = ""};
    job_t got = {.options = near_options(2), .source = "gather"};
    run("a", &want);
    run("abab", &got);
    for (int rank = 0; rank < 4; rank++) {
        assert_string_equal(got.digests[rank], want.digests[0]);
        assert_true(got.memory[rank].near_bytes > 0);
    }
}

/* Who has no data keeps what the others of its set will gather. */
static void ranks_without_data_keep_what_others_gather(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    for (int i = 0; i < 4; i++) {
        const tutti_ddp_options_t options = {.shards = 6, .uneven = TUTTI_DDP_ACTIVE};
        job_t want = {.options = options, .source = "", .is_lean = true, .more_steps = 4};
        job_t got = {.options = options,
                     .source = i < 2 ? "host" : "gather",
                     .is_lean = true,
                     .more_steps = 4};
        got.options.stage = 3;
        got.options.units = BY_LAYER;
        got.options.reshard_ranks = 2;
        got.options.accumulate = i % 2 == 0 ? TUTTI_DDP_LOCAL : TUTTI_DDP_SHARDED;
        gather_alone(i >= 2);
        run("a", &want);
        run("aabb", &got);
        gather_alone(false);
        for (int rank = 0; rank < 4; rank++) {
            assert_string_equal(got.digests[rank], want.digests[0]);
        }
    }
}

static void a_failed_allocation_reaches_all_hosts(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    job_t job = {
        .options = {.stage = 3, .units = BY_LAYER}, .is_lacking = true, .has_failed = true};
    pthread_barrier_init(&job.start, NULL, 4);
    for (job.nth = 1; job.has_failed; job.nth += 37) {
        int made = 0;
        job.has_failed = false;
        job.done = 0;
        run("aabb", &job);
        for (int rank = 0; rank < 4; rank++) {
            made += job.status[rank] == TUTTI_OK;
            if (job.status[rank] == TUTTI_ERR_TIMEOUT) {
                fail_msg("allocation %zu, rank %d: %s", job.nth, rank, job.text[rank]);
            }
        }
        if (made != 0 && made != 4) {
            fail_msg("allocation %zu: %d of 4 ranks go on", job.nth, made);
        }
    }
    assert_true(job.nth > 1000);
    pthread_barrier_destroy(&job.start);
}

static void nobody_waits_for_who_goes(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    job_t job = {.options = {.stage = 3, .units = BY_LAYER}, .source = "host", .has_failing = true};
    pthread_barrier_init(&job.start, NULL, 4);
    run("aabb", &job);
    job.options.reshard_ranks = 2;
    run("aabb", &job);
    job.source = "gather";
    gather_alone(true);
    run("aabb", &job);
    gather_alone(false);
    pthread_barrier_destroy(&job.start);
}

int main(void)
{
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_have_the_bits_of_stage_0),
        cmocka_unit_test(sixteen_bits_and_small_parameters_go_the_same_way),
        cmocka_unit_test(a_host_gets_what_it_lacks_once),
        cmocka_unit_test(ranks_without_data_wait_for_nobody_who_waits_for_them),
        cmocka_unit_test(what_stays_near_crosses_no_wire_in_backward),
        cmocka_unit_test(sets_over_hosts_are_gathered),
        cmocka_unit_test(ranks_without_data_keep_what_others_gather),
        cmocka_unit_test(nobody_waits_for_who_goes),
        cmocka_unit_test(a_failed_allocation_reaches_all_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
