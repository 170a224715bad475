/* Sums of shards that stay sharded: what a step sends, what a rank has meanwhile, and what is
 * refused. That bits are those of local sums: ddp_stages_test. */
#include "parallel/ddp/ddp_even_testing.h"

#include <stdlib.h>

#include <tutti/sharded.h>

#include "parallel/ddp/ddp_impl.h"

enum { LAYERS = 2, PSI = LAYERS * TT_EVEN_SIDE * TT_EVEN_SIDE * 4 };

typedef struct {
    int ranks, shards;
    tutti_ddp_accumulate_t accumulate;
    int stage;
} how_t;

static void open_job(tt_member_t *m, const how_t *how, tt_even_job_t *job)
{
    const tutti_ddp_options_t options = {.stage = how->stage,
                                         .shards = how->shards,
                                         .accumulate = how->accumulate,
                                         .units = {.kind = how->stage == 3 ? "linear" : NULL}};
    tt_even_open(m, (tt_even_t){.layers = LAYERS}, job);
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, &options, &job->ddp) == TUTTI_OK);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t scattered(const tt_even_job_t *job)
{
    return tutti_group_sent_bytes(job->ddp->group, "reduce_scatter");
}

static void count_bytes(tt_member_t *m)
{
    const how_t *how = m->user;
    tt_even_job_t job;
    int first, count;
    open_job(m, how, &job);
    tutti_ddp_local_shards(job.ddp, &first, &count);
    for (int i = 0; i < 2; i++) {
        const int64_t before = scattered(&job);
        TT_EXPECT(m, tt_even_step(&job, i) == TUTTI_OK);
        const int64_t sent = scattered(&job) - before;
        const tutti_ddp_memory_t memory = tutti_ddp_memory(job.ddp, NULL);
        const int64_t elsewhere = PSI - (int64_t)memory.gradient_bytes;
        const int pieces = tutti_contribution_pieces(how->shards, first, first + count, NULL);
        const bool is_sharded = how->accumulate == TUTTI_DDP_SHARDED;
        TT_EXPECT(m, sent == (is_sharded ? count : pieces) * elsewhere);
        TT_EXPECT(m, sent == (is_sharded ? memory.sharded_traffic : memory.local_traffic));
    }
    tt_even_close(&job);
}

/* V shards on W ranks of a host each, Ψ bytes of gradients of which a rank steps Ψ_r: Ψ − Ψ_r for
 * each of its shards; locally, for each piece of the tree that its shards are. */
static void a_step_sends_what_both_formulas_say(void **state)
{
    (void)state;
    static how_t hows[] = {
        {.ranks = 4, .shards = 8}, {.ranks = 2, .shards = 8}, {.ranks = 3, .shards = 7},
        {.ranks = 3, .shards = 6}, {.ranks = 2, .shards = 2}, {.ranks = 3, .shards = 2},
    };
    setenv("TUTTI_WIRES", "tcp", 1);
    setenv("TUTTI_PROTECT", "off", 1);
    for (size_t i = 0; i < 2 * sizeof hows / sizeof hows[0]; i++) {
        how_t *how = &hows[i / 2];
        how->accumulate = i % 2 == 0 ? TUTTI_DDP_LOCAL : TUTTI_DDP_SHARDED;
        how->stage = 2 + (int)(i / 2) % 2;
        tt_team_expect(how->ranks, 60000, count_bytes, how);
    }
    unsetenv("TUTTI_WIRES");
    unsetenv("TUTTI_PROTECT");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static tutti_status_t run_shard(tt_even_job_t *job)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, TT_EVEN_SIDE), -1, 1);
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x))));
    return tutti_scope_close(s);
}

/* When all ranks have sent what they had; the test's limit ends it. */
static void wait_for_bytes(const tt_even_job_t *job, size_t bytes)
{
    while (tutti_ddp_memory(job->ddp, NULL).gradient_bytes != bytes) {
        tt_ddp_progress(job->ddp);
    }
}

static void look_between_shards(tt_member_t *m)
{
    /* Behind 1 to 7 rounds: pieces of those before it, and what came, were there at once. */
    static const int sums[] = {1, 2, 2, 3, 3, 3, 3};
    const how_t *how = m->user;
    const size_t slice = PSI / 2;
    tt_even_job_t job;
    open_job(m, how, &job);
    for (int step = 0; step < 2; step++) {
        int shard = 0;
        for (; tutti_ddp_next_shard(job.ddp, job.ctx); shard++) {
            TT_EXPECT(m, tutti_context_shard(job.ctx) == m->rank + shard * m->size);
            if (shard > 0) {
                wait_for_bytes(&job, (size_t)sums[shard - 1] * slice);
            }
            TT_EXPECT(m, run_shard(&job) == TUTTI_OK);
        }
        TT_EXPECT(m, shard == 8);
        TT_EXPECT(m, tutti_ddp_finish(job.ddp) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_memory(job.ddp, NULL).gradient_bytes == slice);
    }
    tt_even_close(&job);
}

/* Of 16 shards on 2 ranks: no bucket. */
static void between_shards_a_rank_has_sums_of_its_slice(void **state)
{
    (void)state;
    static how_t hows[] = {{2, 16, TUTTI_DDP_SHARDED, 2}, {2, 16, TUTTI_DDP_SHARDED, 3}};
    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++) {
        tt_team_expect(2, 60000, look_between_shards, &hows[i]);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *text)
{
    TT_EXPECT(m, status == want);
    TT_EXPECT(m, strstr(tutti_last_error(), text) != NULL);
}

static tutti_status_t make(tt_member_t *m, tutti_ddp_options_t options)
{
    tt_even_job_t job;
    tt_even_open(m, (tt_even_t){.layers = LAYERS}, &job);
    const tutti_status_t status = tutti_ddp_create(job.ctx, job.net, m->group, &options, &job.ddp);
    tt_even_close(&job);
    return status;
}

static void refuse(tt_member_t *m)
{
    expect_text(m, make(m, (tutti_ddp_options_t){.stage = 1, .accumulate = TUTTI_DDP_SHARDED}),
                TUTTI_ERR_ARG,
                "ddp: options.accumulate is TUTTI_DDP_SHARDED at stage 1, where every rank has all "
                "gradients: take stage 2 or 3, or TUTTI_DDP_LOCAL");
    expect_text(m, make(m, (tutti_ddp_options_t){.stage = 2, .accumulate = 2}), TUTTI_ERR_ARG,
                "ddp: no option accumulate 2");
    const tutti_ddp_accumulate_t mine = m->rank == 1 ? TUTTI_DDP_SHARDED : TUTTI_DDP_LOCAL;
    expect_text(m, make(m, (tutti_ddp_options_t){.stage = 2, .shards = 4, .accumulate = mine}),
                TUTTI_ERR_MISMATCH, "4 shards whose sums are sharded");
}

static void what_cannot_be_is_an_error_of_all_ranks(void **state)
{
    (void)state;
    tt_team_expect(2, 60000, refuse, NULL);
}

static void go_on_behind_a_bucket(tt_member_t *m)
{
    const how_t how = {2, 4, TUTTI_DDP_SHARDED, 2};
    tt_even_job_t job;
    open_job(m, &how, &job);
    TT_EXPECT(m, tutti_ddp_next_shard(job.ddp, job.ctx));
    TT_EXPECT(m, run_shard(&job) == TUTTI_OK);
    expect_text(m, run_shard(&job), TUTTI_ERR_STATE,
                "got another gradient after its bucket had left: call tutti_ddp_no_sync() around "
                "all backwards of a shard but the last");
    tt_even_close(&job);
}

/* Locally that is so in the last shard alone. */
static void every_shard_says_which_backward_is_its_last(void **state)
{
    (void)state;
    tt_team_expect(2, 60000, go_on_behind_a_bucket, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_sends_what_both_formulas_say),
        cmocka_unit_test(between_shards_a_rank_has_sums_of_its_slice),
        cmocka_unit_test(what_cannot_be_is_an_error_of_all_ranks),
        cmocka_unit_test(every_shard_says_which_backward_is_its_last),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
