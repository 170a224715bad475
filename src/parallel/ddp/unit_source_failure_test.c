/* Sources of units: what fails on one rank is told to all, and what is left early has come first.
 */
#include "parallel/ddp/unit_source_testing.h"

#include <stdlib.h>

#include "core/base/clock.h"

/* ---- lack of memory -------------------------------------------------------------------------- */

typedef struct {
    const tt_unit_source_ops_t *ops;
    size_t nth; /* allocation that fails, on whichever rank */
    pthread_barrier_t *ready;
    bool has_failed; /* while sources were opened */
} lack_t;

static void lack_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    tt_source_job_t job = {.ops = lack->ops, .compute = TUTTI_BF16};
    tt_source_rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    pthread_barrier_wait(lack->ready); /* nothing else takes memory from here on */
    for (int i = 0; i < TT_SOURCE_FLATS; i++) {
        tt_source_cut(&r, i);
        r.flats[i] = (tt_unit_flat_t){.dtypes = {TUTTI_F32, TUTTI_BF16},
                                      .numel = tt_source_numels[i],
                                      .cuts = r.cuts[i],
                                      .counts = r.counts[i]};
    }
    r.source = (tt_unit_source_t){
        .group = m->group, .ctx = ctx, .flats = r.flats, .flat_count = TT_SOURCE_FLATS};
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    pthread_barrier_wait(lack->ready);
    const tutti_status_t status = tt_unit_source_open(job.ops, &r.source);
    pthread_barrier_wait(lack->ready);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0); /* what comes now is no part of it */
    }
    pthread_barrier_wait(lack->ready);
    /* a rank of another host may fail of telling this one that all is well */
    TT_EXPECT(m, !lack->has_failed || status < 0 || m->told == NULL);
    tt_unit_source_close(&r.source);
    (void)tutti_barrier(m->group, NULL); /* calls that cannot be prepared give the group up */
    tutti_context_release(ctx);
}

/* `shape`: hosts, NULL for one of two ranks. Of several hosts some allocations, and not the last
 * ones: who has no memory to tell others of it leaves them to their deadline. */
static void expect_that_all_hear(const tt_unit_source_ops_t *ops, const char *shape)
{
    const int size = shape == NULL ? 2 : (int)strlen(shape);
    const size_t most = shape == NULL ? 1000 : 150, every = shape == NULL ? 1 : 29;
    pthread_barrier_t ready;
    lack_t lack = {.ops = ops, .nth = 1, .ready = &ready};
    pthread_barrier_init(&ready, NULL, (unsigned)size);
    for (lack.has_failed = true; lack.has_failed && lack.nth < most; lack.nth += every) {
        if (shape == NULL) {
            tt_team_expect_quietly(size, TT_SOURCE_TIMEOUT_MS, lack_memory, &lack);
        } else {
            tt_on_hosts_quietly(shape, lack_memory, &lack);
        }
        assert_int_equal(tt_alloc_stats().blocks, 0);
    }
    pthread_barrier_destroy(&ready);
    assert_in_range(lack.nth, 10, 999);
}

static void all_ranks_hear_of_lack_of_memory(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    for (size_t i = 0; i < sizeof tt_sources_of_one_host / sizeof tt_sources_of_one_host[0]; i++) {
        expect_that_all_hear(tt_sources_of_one_host[i], NULL);
    }
}

static void ranks_of_other_hosts_hear_of_lack_of_memory(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    expect_that_all_hear(&tt_unit_host, "aab");
}

/* Rank 2, the other host, gives up. Rank 0 lets a flat go, and the next one would begin to come:
 * that this fails, who waits for it is told, although rank 1 has its part. */
static void give_up_on_the_way(tt_member_t *m)
{
    tt_source_job_t job = {.ops = &tt_unit_host, .compute = TUTTI_F32};
    tt_source_rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    tt_source_write_own(&r, 1);
    TT_EXPECT(m, r.source.ops->start(&r.source, 0, TT_UNIT_FULL) == TUTTI_OK);
    if (m->rank == 0) { /* rank 1, the keeper of flat 1, has no memory for it yet */
        TT_EXPECT(m, r.source.ops->start(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    }
    TT_EXPECT(m, r.source.ops->wait(&r.source, 0, TT_UNIT_FULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        TT_EXPECT(m, r.source.ops->start(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    }
    /* rank 2 may be through, and give up, while the others are in it */
    const tutti_status_t status = tutti_barrier(m->group, NULL);
    TT_EXPECT(m, status == TUTTI_OK || m->rank != 2);
    if (m->rank == 2) {
        tutti_group_abort(m->group);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) < 0);
    r.source.ops->leave(&r.source, 0, TT_UNIT_FULL);
    TT_EXPECT(m, m->rank > 0 || r.source.ops->wait(&r.source, 1, TT_UNIT_FULL) < 0);
    TT_EXPECT(m, m->rank > 0 || r.flats[1].whole[TT_UNIT_FULL] == NULL);
    tt_unit_source_close(&r.source);
    tutti_context_release(ctx);
}

static void who_waits_hears_of_what_failed_on_the_way(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    tt_on_hosts_quietly("aab", give_up_on_the_way, NULL);
}

/* ---- what is left before it has come --------------------------------------------------------- */

enum { LATE_MS = 200 };

/* Rank 1 begins late, when rank 0 wants it no more: that waits, for rank 1 writes into its memory.
 */
static void leave_early(tt_member_t *m)
{
    tt_source_job_t job = {.ops = &tt_unit_gather};
    tt_source_rank_t r = {.m = m, .job = &job};
    atomic_bool *has_begun = m->user;
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    tt_source_write_own(&r, 0);
    if (m->rank == 1) {
        _Atomic uint32_t nobody = 0;
        tt_futex_wait(&nobody, 0, tt_deadline_in_ms(LATE_MS));
        atomic_store(has_begun, true);
    }
    TT_EXPECT(m, r.source.ops->start(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    r.source.ops->leave(&r.source, 1, TT_UNIT_FULL);
    TT_EXPECT(m, atomic_load(has_begun));
    TT_EXPECT(m, !r.source.ops->is_there(&r.source, 1, TT_UNIT_FULL));
    tt_unit_source_close(&r.source);
    tutti_context_release(ctx);
}

static void what_is_left_early_has_come_first(void **state)
{
    (void)state;
    atomic_bool has_begun = false;
    tt_team_expect(2, TT_SOURCE_TIMEOUT_MS, leave_early, &has_begun);
}

int main(void)
{
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_other_hosts_hear_of_lack_of_memory),
        cmocka_unit_test(who_waits_hears_of_what_failed_on_the_way),
        cmocka_unit_test(all_ranks_hear_of_lack_of_memory),
        cmocka_unit_test(what_is_left_early_has_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
