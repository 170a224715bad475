/* Two DDPs whose parameters one optimizer steps, each over a group of its own: all ranks step both,
 * or none, and nobody waits for a rank that has failed in one of them. */
#include "core/base/testing.h"

#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/optim.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"

enum { MODELS = 2, WIDTH = 24, TIMEOUT_MS = 60000 };

typedef struct {
    int stage;
    size_t nth; /* allocation that fails, on whichever rank; 0: none */
    bool has_failed;
    tutti_status_t statuses[2];
    char digests[MODELS][TUTTI_DIGEST_BYTES]; /* of rank 0 */
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *nets[MODELS];
    tutti_group_t *groups[MODELS];
    tutti_ddp_t *ddps[MODELS];
    tutti_optim_t *opt;
} pair_t;

static tutti_status_t open_model(tt_member_t *m, const job_t *job, pair_t *pair, int i)
{
    const tutti_linear_options_t linear = {.in = WIDTH, .out = WIDTH};
    const tutti_ddp_options_t options = {.stage = job->stage};
    TUTTI_CHECK(tutti_module_create(pair->ctx, &tutti_linear_layer, &linear, &pair->nets[i]));
    for (const char *const *name = (const char *const[]){"weight", "bias", NULL}; *name; name++) {
        char full[16];
        snprintf(full, sizeof full, "%d.%s", i, *name);
        TUTTI_CHECK(
            tutti_optim_add_parameter(pair->opt, 0, full, tutti_module_find(pair->nets[i], *name)));
    }
    TUTTI_CHECK(tutti_group_new(m->group, NULL, 0, NULL, &pair->groups[i]));
    return tutti_ddp_create(pair->ctx, pair->nets[i], pair->groups[i], &options, &pair->ddps[i]);
}

static void open_pair(tt_member_t *m, const job_t *job, pair_t *pair)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    TT_EXPECT(m, tutti_context_create(&options, &pair->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_create(pair->ctx, &tutti_lamb, NULL, &pair->opt) == TUTTI_OK);
    for (int i = 0; i < MODELS; i++) {
        TT_EXPECT(m, open_model(m, job, pair, i) == TUTTI_OK);
    }
}

static void close_pair(pair_t *pair)
{
    for (int i = 0; i < MODELS; i++) {
        tutti_ddp_release(pair->ddps[i]);
    }
    tutti_optim_release(pair->opt);
    for (int i = 0; i < MODELS; i++) {
        tutti_module_release(pair->nets[i]);
        tutti_group_release(pair->groups[i]);
    }
    tutti_context_release(pair->ctx);
}

static tutti_status_t backward(pair_t *pair, int i)
{
    while (tutti_ddp_next_shard(pair->ddps[i], pair->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(pair->ctx, &s));
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, WIDTH), -1, 1);
        (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, pair->nets[i], x))));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return tutti_ddp_finish(pair->ddps[i]);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    pair_t pair = {0};
    open_pair(m, job, &pair);
    for (int i = 0; i < MODELS; i++) {
        TT_EXPECT(m, backward(&pair, i) == TUTTI_OK);
    }
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(job->nth);
    }
    tutti_status_t status = tutti_clip_grad_norm(pair.opt, 0.1, 2, NULL);
    status = status < 0 ? status : tutti_optim_step(pair.opt);
    job->statuses[m->rank] = status;
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        job->has_failed = job->nth > 0 && tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    for (int i = 0; i < MODELS && job->nth == 0; i++) {
        char digest[TUTTI_DIGEST_BYTES];
        TT_EXPECT(m, status == TUTTI_OK && tutti_ddp_digest(pair.ddps[i], digest) == TUTTI_OK);
        if (m->rank == 0) {
            memcpy(job->digests[i], digest, sizeof digest);
        }
    }
    close_pair(&pair);
}

static void they_have_the_bits_of_two_whole_ones(void **state)
{
    (void)state;
    job_t whole = {.stage = 0};
    tt_team_expect_quietly(2, TIMEOUT_MS, train, &whole);
    for (int stage = 1; stage <= 3; stage++) {
        job_t job = {.stage = stage};
        tt_team_expect_quietly(2, TIMEOUT_MS, train, &job);
        assert_memory_equal(job.digests, whole.digests, sizeof job.digests);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void a_rank_without_memory_stops_both_on_all(void **state)
{
    (void)state;
    int failed = 0;
    for (int stage = 1; stage <= 3; stage += 2) {
        job_t job = {.stage = stage, .nth = 1, .has_failed = true};
        for (; job.has_failed; job.nth += 5) {
            job.has_failed = false;
            tt_team_expect_quietly(2, TIMEOUT_MS, train, &job);
            assert_true((job.statuses[0] < 0) == (job.statuses[1] < 0));
            failed += job.statuses[0] < 0;
        }
    }
    print_message("%d steps failed\n", failed);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    assert_true(failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_have_the_bits_of_two_whole_ones),
        cmocka_unit_test(a_rank_without_memory_stops_both_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
