/* Optimistic steps that fail behind a rank's last backward: whatever allocation does, and a DDP
 * that goes before the verdict, is told on all ranks; where it is the copy's, with its cause. */
#include "parallel/pipeline/pipeline_mesh_testing.h"

enum { ALLOCATIONS_MAX = 2000 };

/* Of ranks that step in turn: the last one alone, whose allocations fail. */
typedef struct {
    tt_mesh_training_t training;
    size_t fails; /* the how manyeth behind its backwards */
    bool has_failed;
    _Atomic int memory, failed; /* ranks that say so; memory: with the verdict */
} case_t;

/* All rows of the first step, which makes the copy. */
static tutti_status_t run_rows(tt_mesh_trainer_t *t)
{
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        TT_TRY(tt_mesh_run_shard(t, 0, NULL));
    }
    return TUTTI_OK;
}

/* The victim's last row is behind it, as is everybody's; nobody has asked for the verdict. */
static tutti_status_t step_once(tt_member_t *m, tt_mesh_trainer_t *t, bool is_victim)
{
    case_t *c = m->user;
    TT_TRY(run_rows(t));
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size);
    if (is_victim) {
        tt_alloc_fail_at(c->fails);
    }
    char digest[TUTTI_DIGEST_BYTES];
    tutti_status_t status = tutti_ddp_finish(t->ddp);
    status = status < 0 ? status : tutti_pipeline_validate(t->pipeline, NULL);
    atomic_fetch_add(&c->memory, status == TUTTI_ERR_NOMEM);
    TT_TRY(status);
    return tutti_pipeline_digest(t->pipeline, digest); /* of all: a rank that failed is missed */
}

static void step(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    case_t *c = m->user;
    const bool is_victim = m->rank == m->size - 1;
    TT_EXPECT(m, tt_mesh_open(&t, &c->training, m->group) == TUTTI_OK);
    const tutti_status_t status = step_once(m, &t, is_victim);
    atomic_fetch_add(&c->failed, status < 0);
    TT_EXPECT(m, status != TUTTI_ERR_TIMEOUT);
    tt_mesh_close(&t);
}

/* Any of those that all ranks make meanwhile; `causes`: so many at least are of the copies. */
static void expect_all_told(tt_mesh_training_t training, size_t every, int causes)
{
    int with_cause = 0, told = 0;
    const int ranks = tt_mesh_ranks(&training);
    training.validates = true;
    for (size_t n = 1; n < ALLOCATIONS_MAX; n += every) {
        if (!tt_test_takes(n)) {
            continue;
        }
        case_t c = {.training = training, .fails = n};
        tt_team_expect(ranks, 0, step, &c);
        c.has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        if (!c.has_failed) {
            assert_int_equal(c.failed, 0);
            break;
        }
        if (c.failed != 0 && c.failed != ranks) { /* 0: what is tried again, or is done without */
            fail_msg("allocation %zu: %d of %d ranks failed, %d of memory", n, c.failed, ranks,
                     c.memory);
        }
        told += c.failed == ranks;
        with_cause += c.memory == ranks;
    }
    const bool is_part = tt_test_number("TUTTI_TEST_SHARE", 1) > 1;
    assert_true(is_part || (told > 0 && with_cause >= causes));
}

static void stages_tell_each_other(void **state)
{
    (void)state;
    expect_all_told(
        (tt_mesh_training_t){.shards = 1, .micro_batches = 2, .pp = 2, .schedule = "1f1b"}, 3, 4);
}

static void a_mesh_tells_all(void **state)
{
    (void)state;
    expect_all_told((tt_mesh_training_t){.shards = 2,
                                         .tp_shards = 2,
                                         .micro_batches = 2,
                                         .dp = 2,
                                         .tp = 2,
                                         .pp = 2,
                                         .stage = 1,
                                         .schedule = "zb-h1"},
                    61, 0);
}

/* Of rank 0: rank 1 wants its verdict. */
static void release_early(tt_member_t *m)
{
    tt_mesh_trainer_t t;
    const tt_mesh_training_t training = {
        .shards = 1, .micro_batches = 2, .pp = 2, .schedule = "1f1b", .validates = true};
    TT_EXPECT(m, tt_mesh_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, run_rows(&t) == TUTTI_OK && tutti_ddp_finish(t.ddp) == TUTTI_OK);
    if (m->rank == 0) {
        (void)TT_FAIL(TUTTI_ERR_ARG, "an old failure");
        tutti_ddp_release(t.ddp);
        t.ddp = NULL;
        TT_EXPECT(m, strcmp(tutti_last_error(), "an old failure") == 0);
        TT_EXPECT(m, tutti_pipeline_validate(t.pipeline, NULL) == TUTTI_ERR_STATE);
        tt_member_await(m, 1);
    } else {
        char digest[TUTTI_DIGEST_BYTES];
        TT_EXPECT(m, tutti_pipeline_digest(t.pipeline, digest) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 0, step 0: the ddp was released") != NULL);
        tt_member_tell(m);
    }
    tt_mesh_close(&t);
}

static void a_ddp_that_goes_before_the_verdict_is_told(void **state)
{
    (void)state;
    tt_team_expect(2, 20000, release_early, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_tell_each_other),
        cmocka_unit_test(a_mesh_tells_all),
        cmocka_unit_test(a_ddp_that_goes_before_the_verdict_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
