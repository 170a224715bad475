/* Memory that is missing: whatever allocation of creating a pipeline and of a step fails, it is
 * told, on all ranks, and nothing is left. TUTTI_SEED names those that fail with several ranks. */
#include "parallel/pipeline/pipeline_testing.h"

static const tt_training_t training = {
    .model = "tied", .schedule = "interleaved-zb", .stages_per_rank = 2, .micro_batches = 2};

static tutti_status_t train_once(tutti_group_t *group, const tt_training_t *what, double *loss)
{
    tt_trainer_t t;
    tutti_status_t status = tt_trainer_open(&t, what, group);
    status = status < 0 ? status : tt_train_step(&t, what, 0, loss);
    tt_trainer_close(&t);
    return status;
}

static size_t count_allocations(double *loss)
{
    const size_t before = tt_alloc_stats().allocations;
    if (train_once(NULL, &training, loss) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return tt_alloc_stats().allocations - before;
}

static void one_rank_tells_that_memory_is_missing(void **state)
{
    (void)state;
    double want = 0, loss = 0;
    const size_t count = count_allocations(&want);
    assert_true(count > 500);
    size_t told = 0;
    for (size_t n = 1; n <= count; n++) {
        if (tt_test_takes(n)) {
            tt_alloc_fail_at(n);
            const tutti_status_t status = train_once(NULL, &training, &loss);
            const bool has_failed = tt_alloc_has_failed();
            tt_alloc_fail_at(0);
            if (has_failed ? status != TUTTI_ERR_NOMEM : status < 0) {
                fail_msg("allocation %zu: %d, %s", n, (int)status, tutti_last_error());
            }
            told += has_failed;
        }
    }
    assert_true(told > 0 || tt_test_number("TUTTI_TEST_SHARE", 1) > 1);
    assert_int_equal(train_once(NULL, &training, &loss), TUTTI_OK);
    assert_true(loss == want);
}

/* ---- several ranks --------------------------------------------------------------------------- */

typedef struct {
    size_t fails;       /* the how manyeth allocation of the step; 0: none */
    size_t allocations; /* that the step made, of both ranks */
    _Atomic int failed, memory;
    double losses[2];
} outcome_t;

/* Memory is missing in a step and in the optimizer's. */
static void train_member(tt_member_t *m)
{
    tt_trainer_t t;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    outcome_t *o = m->user;
    TT_EXPECT(m, tt_trainer_open(&t, &training, m->group) == TUTTI_OK);
    TT_EXPECT(m, tutti_scope_open(t.ctx, &s) == TUTTI_OK);
    tt_make_batch(s, &training, 0, &x, &y);
    const tutti_pipeline_batch_t batch = {&x, 1, &y, 1};
    tt_member_tell(m);
    tt_member_await(m, 2);
    const size_t before = tt_alloc_stats().allocations;
    if (m->rank == 0) {
        tt_alloc_fail_at(o->fails);
    }
    const tutti_status_t status = tt_train_on(&t, &training, &batch, &o->losses[m->rank]);
    if (m->rank == 0) {
        o->allocations = tt_alloc_stats().allocations - before;
    }
    atomic_fetch_add(&o->failed, status < 0);
    atomic_fetch_add(&o->memory, status == TUTTI_ERR_NOMEM);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    tt_trainer_close(&t);
}

static outcome_t train_two(size_t fails)
{
    outcome_t o = {.fails = fails};
    tt_team_expect(2, 0, train_member, &o);
    tt_alloc_fail_at(0);
    return o;
}

/* What fails may be a message's, which goes on without; then all is as it should be. */
static void two_ranks_tell_it_together(void **state)
{
    (void)state;
    enum { DRAWS = 24 };
    const outcome_t whole = train_two(0);
    assert_int_equal(whole.failed, 0);
    assert_true(whole.allocations > 300);
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    printf("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    int told = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const size_t room = whole.allocations / DRAWS; /* one of each part of the step */
        const outcome_t o =
            train_two(1 + i * room + tt_rng_below(tt_rng_stream(seed, 0, 0, 0, 0), i, room));
        if (o.failed == 1 || (o.failed == 2 && o.memory == 0)) {
            fail_msg("allocation %zu of %zu: %d ranks failed, %d of memory", o.fails,
                     whole.allocations, o.failed, o.memory);
        }
        if (o.failed == 0) {
            assert_true(o.losses[0] == whole.losses[0] && o.losses[1] == whole.losses[0]);
        }
        told += o.failed;
    }
    assert_true(told > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_tells_that_memory_is_missing),
        cmocka_unit_test(two_ranks_tell_it_together),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
