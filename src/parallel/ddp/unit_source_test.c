/* Sources of units: whichever brings the whole, it has the same bits; and of ranks that share a
 * host one copy is there. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "parallel/ddp/unit_source.h"

enum { TIMEOUT_MS = 60000, FLATS = 3, STEPS = 3, RANKS_MAX = 5, LOCAL_RANKS_MAX = 4 };

static const tt_unit_source_ops_t *const SOURCES[] = {&tt_unit_gather, &tt_unit_share};

/* The last rank has nothing of the last flat. */
static const int64_t NUMELS[FLATS] = {4096, 33000, 300};

typedef struct {
    const tt_unit_source_ops_t *ops;
    uint64_t seed;
    tutti_dtype_t compute;
    double sums[STEPS]; /* out, of everything that was read in a step */
    size_t heap_bytes[RANKS_MAX];
    int64_t gathered[RANKS_MAX], sent[RANKS_MAX]; /* out, and the most that a rank held */
    size_t peaks[RANKS_MAX];
} job_t;

typedef struct {
    tt_member_t *m;
    job_t *job;
    tt_unit_source_t source;
    tt_unit_flat_t flats[FLATS];
    int64_t cuts[FLATS][RANKS_MAX + 1], counts[FLATS][RANKS_MAX];
} rank_t;

static void cut(rank_t *r, int flat)
{
    const int ranks = flat == FLATS - 1 && r->m->size > 1 ? r->m->size - 1 : r->m->size;
    for (int rank = 0; rank < r->m->size; rank++) {
        r->cuts[flat][rank + 1] =
            rank + 1 >= ranks ? NUMELS[flat] : NUMELS[flat] * (rank + 1) / ranks / 50 * 50;
        r->counts[flat][rank] = r->cuts[flat][rank + 1] - r->cuts[flat][rank];
    }
}

static void open_rank(rank_t *r, tutti_context_t *ctx)
{
    for (int i = 0; i < FLATS; i++) {
        cut(r, i);
        r->flats[i] = (tt_unit_flat_t){.dtypes = {TUTTI_F32, i == 1 ? r->job->compute : TUTTI_F32},
                                       .numel = NUMELS[i],
                                       .cuts = r->cuts[i],
                                       .counts = r->counts[i]};
    }
    r->source = (tt_unit_source_t){
        .group = r->m->group, .ctx = ctx, .flats = r->flats, .flat_count = FLATS};
    TT_EXPECT(r->m, tt_unit_source_open(r->job->ops, &r->source) == TUTTI_OK);
}

static float value_of(int step, int flat, int64_t i)
{
    return (float)step + 0.001F * (float)(i % 1013) + 100 * (float)flat;
}

static void write_own(rank_t *r, int step)
{
    TT_EXPECT(r->m, r->source.ops->claim == NULL || r->source.ops->claim(&r->source) == TUTTI_OK);
    for (int f = 0; f < FLATS; f++) {
        float *own = tutti_tensor_data(r->flats[f].own);
        for (int64_t i = 0; i < r->counts[f][r->m->rank]; i++) {
            own[i] = value_of(step, f, r->cuts[f][r->m->rank] + i);
        }
        tt_tensor_touch(r->flats[f].own);
    }
    TT_EXPECT(r->m,
              r->source.ops->publish == NULL || r->source.ops->publish(&r->source) == TUTTI_OK);
}

static double read_whole(rank_t *r, int step, int flat, tt_unit_kind_t kind)
{
    const tutti_tensor_t *whole = r->flats[flat].whole[kind];
    tutti_tensor_t *x = NULL;
    double sum = 0, worst = 0;
    TT_EXPECT(r->m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(NUMELS[flat]), &x) == TUTTI_OK);
    tt_tensor_convert_now(r->source.ctx->exec.threads, x, whole);
    const float *values = tutti_tensor_data(x);
    for (int64_t i = 0; i < NUMELS[flat]; i++) {
        const double want = value_of(step, flat, i);
        worst = fmax(worst, fabs(values[i] - want) / want);
        sum += values[i] * (double)(i % 7 + 1);
    }
    TT_EXPECT(r->m, worst <= (kind == TT_UNIT_COMPUTE ? 1.0 / 256 : 0));
    tutti_tensor_release(x);
    return sum;
}

static double visit(rank_t *r, int step, int flat, tt_unit_kind_t kind)
{
    const tt_unit_source_ops_t *ops = r->source.ops;
    TT_EXPECT(r->m, r->flats[flat].whole[kind] == NULL);
    TT_EXPECT(r->m, ops->wait(&r->source, flat, kind) == TUTTI_OK);
    if (r->m->failure[0] != 0) {
        return 0;
    }
    TT_EXPECT(r->m, ops->is_there(&r->source, flat, kind));
    const double sum = read_whole(r, step, flat, kind);
    ops->leave(&r->source, flat, kind);
    return sum;
}

static tt_unit_kind_t kind_in_step(const rank_t *r, int flat)
{
    const tutti_dtype_t *dtypes = r->flats[flat].dtypes;
    return dtypes[TT_UNIT_COMPUTE] != dtypes[TT_UNIT_FULL] ? TT_UNIT_COMPUTE : TT_UNIT_FULL;
}

/* Forward and back, the next one on its way; a rank may read once more in between. */
static double run_step(rank_t *r, int step)
{
    double sum = 0;
    for (int k = 0; k < 2 * FLATS; k++) {
        const int flat = k < FLATS ? k : 2 * FLATS - 1 - k;
        TT_EXPECT(r->m, r->source.ops->start(&r->source, flat, kind_in_step(r, flat)) == TUTTI_OK);
        sum += visit(r, step, flat, kind_in_step(r, flat));
    }
    TT_EXPECT(r->m, r->source.ops->start(&r->source, 1, TT_UNIT_FULL) == TUTTI_OK);
    return sum + visit(r, step, 1, TT_UNIT_FULL);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    rank_t r = {.m = m, .job = job};
    tutti_context_t *ctx = NULL;
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    const size_t before = tt_device_stats(heap).live_bytes;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    job->heap_bytes[m->rank] = tt_device_stats(heap).live_bytes - before;
    for (int step = 0; step < STEPS && m->failure[0] == 0; step++) {
        write_own(&r, step + 1);
        const double sum = run_step(&r, step + 1);
        if (m->rank == 0) {
            job->sums[step] = sum;
        }
        TT_EXPECT(m, sum > 0);
    }
    TT_EXPECT(m, r.source.ops->claim == NULL || r.source.ops->claim(&r.source) == TUTTI_OK);
    job->gathered[m->rank] = r.source.gathered_bytes;
    job->peaks[m->rank] = r.source.peak_held_bytes;
    job->sent[m->rank] = tutti_group_sent_bytes(m->group, "send");
    tt_unit_source_close(&r.source);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_context_release(ctx);
}

static void run(int size, job_t *job)
{
    tt_team_expect(size, TIMEOUT_MS, train, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void every_source_brings_the_same_bits(void **state)
{
    (void)state;
    tt_needs_shared_memory("one source is for ranks of one host");
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    for (int size = 1; size <= LOCAL_RANKS_MAX; size++) {
        for (int k = 0; k < 3; k++) {
            job_t jobs[2] = {{.ops = SOURCES[0], .compute = dtypes[k]},
                             {.ops = SOURCES[1], .compute = dtypes[k]}};
            run(size, &jobs[0]);
            run(size, &jobs[1]);
            assert_memory_equal(jobs[0].sums, jobs[1].sums, sizeof jobs[0].sums);
        }
    }
}

/* ---- several hosts --------------------------------------------------------------------------- */

typedef struct {
    tutti_store_t *store;
    void *user;
    void (*body)(tt_member_t *m);
} on_hosts_t;

/* A rank of a made-up host is a member like others. */
static void run_peer(tt_peer_t *self)
{
    on_hosts_t *on = self->team->user;
    const tt_group_options_t options = {.name = "world",
                                        .rank = self->rank,
                                        .size = self->size,
                                        .store = on->store,
                                        .timeout_ms = TIMEOUT_MS,
                                        .peers = self->peers};
    tt_member_t m = {.rank = self->rank, .size = self->size, .user = on->user};
    TT_EXPECT_PEER(self, tt_group_create(&options, &m.group) == TUTTI_OK);
    if (m.group != NULL) {
        on->body(&m);
        tutti_group_release(m.group);
    }
    if (m.failure[0] != 0) {
        snprintf(self->failure, sizeof self->failure, "%.800s", m.failure);
    }
}

/* `shape` names each rank's host by a letter. */
static void run_on_hosts(const char *shape, void (*body)(tt_member_t *m), void *user)
{
    char names[RANKS_MAX][2] = {{0}};
    on_hosts_t on = {.user = user, .body = body};
    tt_peers_team_t team = {.size = (int)strlen(shape), .body = run_peer, .user = &on};
    for (int rank = 0; rank < team.size; rank++) {
        names[rank][0] = shape[rank];
        team.hosts[rank] = names[rank];
    }
    assert_int_equal(tutti_store_hash_create(&on.store), TUTTI_OK);
    tt_run_peers(&team);
    tutti_store_release(on.store);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static const char *const SHAPES[] = {"aab", "abab", "abbb", "aaabb", "abca"};

static void a_host_gathers_the_same_bits_once(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        job_t jobs[2] = {{.ops = &tt_unit_gather, .compute = dtypes[i % 2]},
                         {.ops = &tt_unit_host, .compute = dtypes[i % 2]}};
        run_on_hosts(SHAPES[i], train, &jobs[0]);
        run_on_hosts(SHAPES[i], train, &jobs[1]);
        assert_memory_equal(jobs[0].sums, jobs[1].sums, sizeof jobs[0].sums);
    }
}

static int count_hosts(const char *shape)
{
    int count = 0;
    for (int i = 0; shape[i] != 0; i++) {
        count += strchr(shape, shape[i]) == shape + i;
    }
    return count;
}

/* What run_step() starts of a flat, in bytes of an element. */
static int64_t started_bytes(int flat, tutti_dtype_t compute)
{
    const int64_t low = (int64_t)tutti_dtype_bytes(flat == 1 ? compute : TUTTI_F32);
    return STEPS * (2 * low + (flat == 1 ? 4 : 0));
}

/* Every byte of others comes to a host once, a rank's own goes to each other host once; one rank
 * of a host holds the memory of a flat. */
static void bytes_come_to_a_host_once(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i += 3) {
        const char *shape = SHAPES[i];
        tt_member_t m = {.size = (int)strlen(shape)};
        rank_t r = {.m = &m};
        job_t job = {.ops = &tt_unit_host, .compute = TUTTI_BF16};
        run_on_hosts(shape, train, &job);
        int64_t missing[256] = {0}, sent[RANKS_MAX] = {0};
        for (int f = 0; f < FLATS; f++) {
            const int64_t bytes = started_bytes(f, job.compute);
            cut(&r, f);
            for (int rank = 0; rank < m.size; rank++) {
                sent[rank] += r.counts[f][rank] * bytes * (count_hosts(shape) - 1);
                for (int other = 0; other < m.size; other++) {
                    const bool is_first = strchr(shape, shape[other]) == shape + other;
                    missing[(unsigned char)shape[other]] +=
                        is_first && shape[rank] != shape[other] ? r.counts[f][rank] * bytes : 0;
                }
            }
        }
        for (int rank = 0; rank < m.size; rank++) {
            assert_int_equal(job.sent[rank], sent[rank]);
            missing[(unsigned char)shape[rank]] -= job.gathered[rank];
        }
        for (int host = 'a'; host < 'a' + count_hosts(shape); host++) {
            assert_int_equal(missing[host], 0);
        }
        assert_in_range(job.peaks[0], 300 * 4, 4096 * 4 + 300 * 4 + 33000 * 4);
    }
}

/* ---- memory of a host ------------------------------------------------------------------------ */

/* In the middle of flat 1, on a page of its own. */
static float middle_of(const rank_t *r)
{
    const tutti_tensor_t *whole = r->flats[1].whole[TT_UNIT_FULL];
    return ((const float *)tutti_tensor_data(whole))[NUMELS[1] / 2];
}

/* The last rank of a host that leaves is waited for; then the pages go: they are zeros. Flat 1 is
 * rank 1's of its host. */
static void leave_one_after_the_other(tt_member_t *m)
{
    job_t job = {.ops = &tt_unit_host, .compute = TUTTI_F32};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    const bool is_keeper = m->rank == 1;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    write_own(&r, 1);
    TT_EXPECT(m, r.source.ops->start(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    TT_EXPECT(m, r.source.ops->wait(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    const float value = middle_of(&r);
    const volatile float *at =
        (const float *)tutti_tensor_data(r.flats[1].whole[TT_UNIT_FULL]) + NUMELS[1] / 2;
    if (is_keeper) {
        TT_EXPECT(m, r.source.held_bytes == (size_t)NUMELS[1] * 4);
        r.source.ops->leave(&r.source, 1, TT_UNIT_FULL);
        TT_EXPECT(m, *at == value && r.source.held_bytes == 0); /* others read it */
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (!is_keeper) {
        TT_EXPECT(m, r.source.held_bytes == 0 || m->rank == 3);
        r.source.ops->leave(&r.source, 1, TT_UNIT_FULL);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (is_keeper) {
        (void)r.source.ops->is_there(&r.source, 1, TT_UNIT_FULL); /* a look is enough */
        TT_EXPECT(m, value != 0 && *at == 0);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_unit_source_close(&r.source);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tutti_context_release(ctx);
}

static void a_hosts_memory_goes_with_its_last_reader(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    run_on_hosts("aabb", leave_one_after_the_other, NULL);
}

/* Parameters once, flags, and what is left of pages. */
static void ranks_of_a_host_have_one_copy(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    const size_t page = tt_heap_page_bytes();
    job_t job = {.ops = &tt_unit_share, .compute = TUTTI_BF16};
    run(LOCAL_RANKS_MAX, &job);
    size_t sum = 0, want = (size_t)NUMELS[1] * 2;
    for (int f = 0; f < FLATS; f++) {
        want += (size_t)NUMELS[f] * 4;
    }
    for (int rank = 0; rank < LOCAL_RANKS_MAX; rank++) {
        sum += job.heap_bytes[rank];
    }
    assert_in_range(sum, want, want + (FLATS + 1) * (page + LOCAL_RANKS_MAX * 128));
    assert_true(job.heap_bytes[0] > 0 && job.heap_bytes[1] > job.heap_bytes[2]); /* in turn */
    assert_int_equal(job.heap_bytes[3], 0);
}

/* Memory that a parameter still holds stays, also when source and group have gone. */
static void hold_on(tt_member_t *m)
{
    job_t job = {.ops = &tt_unit_share, .compute = TUTTI_F32};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    write_own(&r, 1);
    TT_EXPECT(m, r.source.ops->start(&r.source, 0, TT_UNIT_FULL) == TUTTI_OK);
    TT_EXPECT(m, r.source.ops->wait(&r.source, 0, TT_UNIT_FULL) == TUTTI_OK);
    tutti_tensor_t *held = tutti_tensor_retain(r.flats[0].whole[TT_UNIT_FULL]);
    tt_unit_source_close(&r.source);
    tt_member_tell(m);
    tt_member_await(m, (uint32_t)m->size); /* nobody waits for another in a call any more */
    tutti_group_release(m->group);
    m->group = NULL;
    tt_member_tell(m);
    tt_member_await(m, 2 * (uint32_t)m->size);
    const float *data = tutti_tensor_data(held);
    for (int64_t i = 0; i < NUMELS[0]; i++) {
        TT_EXPECT(m, data[i] == value_of(1, 0, i));
    }
    tutti_tensor_release(held);
    tutti_context_release(ctx);
}

static void what_is_held_outlives_source_and_group(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    tt_team_expect(3, TIMEOUT_MS, hold_on, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- which one ------------------------------------------------------------------------------- */

static void choose(tt_member_t *m)
{
    const tt_unit_source_ops_t *ops = NULL;
    TT_EXPECT(m, tt_unit_source_choose(m->group, &ops) == TUTTI_OK);
    TT_EXPECT(m, ops == *(const tt_unit_source_ops_t *const *)m->user);
}

static void expect_choice(int size, const tt_unit_source_ops_t *ops)
{
    tt_team_expect(size, TIMEOUT_MS, choose, &ops);
}

static void ranks_of_a_host_share_unless_told_not_to(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    expect_choice(3, &tt_unit_share);
    expect_choice(1, &tt_unit_gather);
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    expect_choice(3, &tt_unit_gather);
    unsetenv("TUTTI_SHARED_PARAMETERS");
}

static void choose_on_hosts(tt_member_t *m)
{
    const tt_unit_source_ops_t *ops = NULL;
    TT_EXPECT(m, tt_unit_source_choose(m->group, &ops) == TUTTI_OK);
    TT_EXPECT(m, ops == m->user);
}

static void ranks_of_several_hosts_gather_once_if_some_are_together(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    run_on_hosts("aab", choose_on_hosts, (void *)(uintptr_t)&tt_unit_host);
    run_on_hosts("abc", choose_on_hosts, (void *)(uintptr_t)&tt_unit_gather);
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    run_on_hosts("aabb", choose_on_hosts, (void *)(uintptr_t)&tt_unit_gather);
    unsetenv("TUTTI_SHARED_PARAMETERS");
}

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
    job_t job = {.ops = lack->ops, .compute = TUTTI_BF16};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    pthread_barrier_wait(lack->ready); /* nothing else takes memory from here on */
    for (int i = 0; i < FLATS; i++) {
        cut(&r, i);
        r.flats[i] = (tt_unit_flat_t){.dtypes = {TUTTI_F32, TUTTI_BF16},
                                      .numel = NUMELS[i],
                                      .cuts = r.cuts[i],
                                      .counts = r.counts[i]};
    }
    r.source =
        (tt_unit_source_t){.group = m->group, .ctx = ctx, .flats = r.flats, .flat_count = FLATS};
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
            tt_team_expect_quietly(size, TIMEOUT_MS, lack_memory, &lack);
        } else {
            tt_log_set_sink(tt_team_ignore_log, NULL);
            run_on_hosts(shape, lack_memory, &lack);
            tt_log_set_sink(NULL, NULL);
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
    for (size_t i = 0; i < sizeof SOURCES / sizeof SOURCES[0]; i++) {
        expect_that_all_hear(SOURCES[i], NULL);
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
    job_t job = {.ops = &tt_unit_host, .compute = TUTTI_F32};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    write_own(&r, 1);
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
    tt_log_set_sink(tt_team_ignore_log, NULL);
    run_on_hosts("aab", give_up_on_the_way, NULL);
    tt_log_set_sink(NULL, NULL);
}

/* ---- whose pages are whose ------------------------------------------------------------------- */

/* "r--" of the mapping that holds an address. */
static void protection_of(const void *address, char out[4])
{
    FILE *file = fopen("/proc/self/maps", "re");
    unsigned long begin, end;
    char line[512], found[8];
    snprintf(out, 4, "?");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, found) == 3 && begin <= (uintptr_t)address &&
            (uintptr_t)address < end) {
            snprintf(out, 4, "%.3s", found);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static void look_at_pages(tt_member_t *m)
{
    job_t job = {.ops = &tt_unit_share};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    char text[4];
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    write_own(&r, 0);
    TT_EXPECT(m, r.source.ops->wait(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    const float *values = tutti_tensor_data(r.flats[1].whole[TT_UNIT_FULL]);
    for (int rank = 0; rank < m->size; rank++) {
        protection_of(values + (r.cuts[1][rank] + r.cuts[1][rank + 1]) / 2, text);
        TT_EXPECT(m, strcmp(text, rank == m->rank ? "rw-" : "r--") == 0);
    }
    r.source.ops->leave(&r.source, 1, TT_UNIT_FULL);
    tt_unit_source_close(&r.source);
    tutti_context_release(ctx);
}

static void a_rank_may_write_its_own_slices_alone(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    tt_team_expect(3, TIMEOUT_MS, look_at_pages, NULL);
}

/* ---- what is left before it has come --------------------------------------------------------- */

enum { LATE_MS = 200 };

/* Rank 1 begins late, when rank 0 wants it no more: that waits, for rank 1 writes into its memory.
 */
static void leave_early(tt_member_t *m)
{
    job_t job = {.ops = &tt_unit_gather};
    rank_t r = {.m = m, .job = &job};
    atomic_bool *has_begun = m->user;
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    open_rank(&r, ctx);
    write_own(&r, 0);
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
    tt_team_expect(2, TIMEOUT_MS, leave_early, &has_begun);
}

int main(void)
{
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_brings_the_same_bits),
        cmocka_unit_test(a_host_gathers_the_same_bits_once),
        cmocka_unit_test(bytes_come_to_a_host_once),
        cmocka_unit_test(a_hosts_memory_goes_with_its_last_reader),
        cmocka_unit_test(ranks_of_several_hosts_gather_once_if_some_are_together),
        cmocka_unit_test(ranks_of_other_hosts_hear_of_lack_of_memory),
        cmocka_unit_test(who_waits_hears_of_what_failed_on_the_way),
        cmocka_unit_test(ranks_of_a_host_have_one_copy),
        cmocka_unit_test(what_is_held_outlives_source_and_group),
        cmocka_unit_test(ranks_of_a_host_share_unless_told_not_to),
        cmocka_unit_test(all_ranks_hear_of_lack_of_memory),
        cmocka_unit_test(a_rank_may_write_its_own_slices_alone),
        cmocka_unit_test(what_is_left_early_has_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
