/* A model whose parameters are four times what each of four ranks may have trains at stage 3 with
 * them on a disk, and ends with the bits that it has without a budget. */
#include "parallel/ddp/ddp_even_testing.h"

#include <tutti/sharded.h>

#include "core/base/alloc.h"
#include "core/base/memory_limit.h"
#include "core/base/place_testing.h"

enum { TIMEOUT_MS = 120000, RANKS_MAX = 4 };

static char folder[TT_PLACE_BYTES];

enum { LAYERS = 128, PSI = LAYERS * TT_EVEN_SIDE * TT_EVEN_SIDE * (int)sizeof(float) };

typedef struct {
    bool is_offloaded;
    tutti_status_t statuses[RANKS_MAX];
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} budget_t;

/* All ranks are one process here, whose limit is that of all of them together, from the beginning:
 * the model is on meta until its slices are made. */
static void train_within(tt_member_t *m)
{
    budget_t *budget = m->user;
    tt_even_job_t job;
    const tutti_ddp_options_t options = {.stage = 3,
                                         .units = {.kind = "linear"},
                                         .prefetch = -1,
                                         .offload = budget->is_offloaded ? folder : NULL};
    tt_even_open(m, (tt_even_t){.layers = LAYERS, .is_on_meta = true}, &job);
    tutti_status_t status = tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp);
    for (int i = 0; i < 2 && status >= 0; i++) {
        status = tt_even_step(&job, i);
    }
    status = status < 0 ? status : tutti_ddp_digest(job.ddp, budget->digests[m->rank]);
    if (status < 0) {
        print_message("rank %d: %s\n", m->rank, tutti_last_error());
    }
    budget->statuses[m->rank] = status;
    pthread_barrier_wait(m->start);
    tt_even_close(&job);
}

static void run_within(uint64_t budget, bool is_offloaded, budget_t *out)
{
    *out = (budget_t){.is_offloaded = is_offloaded};
    tt_memory_set_limit(budget, 0);
    tt_team_expect_quietly(RANKS_MAX, TIMEOUT_MS, train_within, out);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    tt_memory_set_limit(0, 0);
}

/* Four ranks, each of which may have a quarter of what the parameters take: room for its slice of
 * them, and for nothing else. */
static void parameters_are_four_times_what_a_rank_may_have(void **state)
{
    (void)state;
    budget_t whole, within, without;
    tt_needs_shared_memory("the limit counts shared heaps");
    run_within(UINT64_MAX / 2, false, &whole);
    run_within(PSI, true, &within);
    run_within(PSI, false, &without);
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        assert_int_equal(within.statuses[rank], TUTTI_OK);
        assert_string_equal(within.digests[rank], whole.digests[0]);
        assert_true(without.statuses[rank] < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_four_times_what_a_rank_may_have),
    };
    tt_place_make_quick(folder);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tt_place_remove(folder);
    return failures;
}
