/* Buckets that come and go: however late another rank is, a rank has no more than a few of them. */
#include <stdlib.h>

#include <tutti/autograd.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/sharded.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/device/heap.h"

enum { LAYERS = 8, SIDE = 64, BUCKET = SIDE * SIDE * (int)sizeof(float), LATE_MS = 400 };
enum { AT_ONCE = 3 }; /* two under way, and the one that is filled */
enum { LARGE_SIDE = 1024, LARGE = LARGE_SIDE * LARGE_SIDE * (int)sizeof(float) };

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_ddp_t *ddp;
    int side;
} job_t;

static void open_layers(tt_member_t *m, const tutti_ddp_options_t *options, int layers, int side,
                        job_t *job)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    const tutti_linear_options_t layer = {.in = side, .out = side, .no_bias = true};
    job->side = side;
    TT_EXPECT(m, tutti_context_create(&context, &job->ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_module_create(job->ctx, &tutti_sequential_layer, NULL, &job->net) == 0);
    for (int i = 0; i < layers; i++) {
        TT_EXPECT(m, tutti_sequential_add(job->net, &tutti_linear_layer, &layer, NULL) == 0);
    }
    TT_EXPECT(m, tutti_ddp_create(job->ctx, job->net, m->group, options, &job->ddp) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_bucket_count(job->ddp) == layers);
}

static void open_job(tt_member_t *m, const tutti_ddp_options_t *options, job_t *job)
{
    open_layers(m, options, LAYERS, SIDE, job);
}

static void close_job(job_t *job)
{
    tutti_ddp_release(job->ddp);
    tutti_module_release(job->net);
    tutti_context_release(job->ctx);
}

/* Nobody wakes it. */
static void be_late(void)
{
    _Atomic uint32_t word = 0;
    const tt_deadline_t deadline = tt_deadline_in_ms(LATE_MS);
    while (!tt_deadline_is_past(deadline)) {
        tt_futex_wait(&word, 0, deadline);
    }
}

static void step(tt_member_t *m, const job_t *job, bool is_late)
{
    while (tutti_ddp_next_shard(job->ddp, job->ctx)) {
        tutti_scope_t *s;
        TT_EXPECT(m, tutti_scope_open(job->ctx, &s) == TUTTI_OK);
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(2, job->side), -1, 1);
        tutti_tensor_t *loss = tutti_mean(s, tutti_square(s, tutti_forward(s, job->net, x)));
        if (is_late) {
            be_late();
        }
        TT_EXPECT(m, tutti_backward(s, loss) == TUTTI_OK);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_OK);
    }
    TT_EXPECT(m, tutti_ddp_finish(job->ddp) == TUTTI_OK);
}

static tt_device_stats_t shared(const tt_member_t *m)
{
    return tt_device_stats(m->group->backend->memory(m->group->state));
}

static void wait_for_a_late_rank(tt_member_t *m)
{
    const tutti_ddp_options_t options = {
        .stage = 2, .bucket_bytes = BUCKET, .first_bucket_bytes = BUCKET};
    job_t job;
    open_job(m, &options, &job);
    const size_t before = shared(m).peak_bytes - shared(m).live_bytes;
    step(m, &job, false);
    const size_t live = shared(m).live_bytes;
    step(m, &job, m->rank == 1);
    TT_EXPECT(m, before < BUCKET); /* else the peak says nothing */
    TT_EXPECT(m, shared(m).live_bytes == live);
    TT_EXPECT(m, shared(m).peak_bytes <= live + (size_t)AT_ONCE * BUCKET + tt_heap_page_bytes());
    close_job(&job);
}

static void a_late_rank_costs_others_no_memory(void **state)
{
    (void)state;
    tt_needs_shared_memory("rank 0 looks at its heap");
    tt_team_expect_quietly(2, 60000, wait_for_a_late_rank, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Pages that a step has used are there for the next one, and go with the ddp. */
static void keep_pages(tt_member_t *m)
{
    const int stage = *(const int *)m->user;
    const tutti_ddp_options_t options = {.stage = stage,
                                         .units = {.kind = stage == 3 ? "linear" : NULL},
                                         .bucket_bytes = LARGE,
                                         .first_bucket_bytes = LARGE};
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    job_t job;
    open_layers(m, &options, 2, LARGE_SIDE, &job);
    step(m, &job, false);
    TT_EXPECT(m, tt_heap_usage(heap).idle_bytes >= LARGE);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    close_job(&job);
    const tt_heap_usage_t usage = tt_heap_usage(heap);
    TT_EXPECT(m, usage.idle_bytes <= 1 << 20 || usage.idle_bytes * 20 <= usage.populated_bytes);
}

static void pages_stay_while_they_are_used_again(void **state)
{
    (void)state;
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    for (int stage = 2; stage <= 3; stage++) {
        tt_team_expect_quietly(2, 60000, keep_pages, &stage);
    }
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Rank 1 ends its first shard, and sends nothing before its second one: rank 0 goes on without. */
static void have_less_to_do(tt_member_t *m)
{
    const tutti_ddp_options_t options = {
        .stage = 3, .shards = 3, .units = {.kind = "linear"}, .bucket_bytes = BUCKET};
    job_t job;
    open_job(m, &options, &job);
    for (int i = 0; i < 2; i++) {
        step(m, &job, false);
    }
    close_job(&job);
}

static void a_rank_with_fewer_shards_waits_in_vain_no_long(void **state)
{
    (void)state;
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    tt_team_expect_quietly(2, 60000, have_less_to_do, NULL);
    unsetenv("TUTTI_SHARED_PARAMETERS");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_costs_others_no_memory),
        cmocka_unit_test(pages_stay_while_they_are_used_again),
        cmocka_unit_test(a_rank_with_fewer_shards_waits_in_vain_no_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
