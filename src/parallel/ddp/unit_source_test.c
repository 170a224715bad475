/* Sources of units: whichever brings the whole, it has the same bits; and of ranks that share a
 * host one copy is there. */
#include "core/base/testing.h"

#include <math.h>
#include <stdlib.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "parallel/ddp/unit_source.h"

enum { TIMEOUT_MS = 60000, FLATS = 3, STEPS = 4, RANKS_MAX = 4 };

static const tt_unit_source_ops_t *const SOURCES[] = {&tt_unit_gather, &tt_unit_share};

/* The last rank has nothing of the last flat. */
static const int64_t NUMELS[FLATS] = {4096, 33000, 300};

typedef struct {
    const tt_unit_source_ops_t *ops;
    uint64_t seed;
    tutti_dtype_t compute;
    double sums[STEPS]; /* out, of everything that was read in a step */
    size_t heap_bytes[RANKS_MAX];
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
    for (int size = 1; size <= RANKS_MAX; size++) {
        for (int k = 0; k < 3; k++) {
            job_t jobs[2] = {{.ops = SOURCES[0], .compute = dtypes[k]},
                             {.ops = SOURCES[1], .compute = dtypes[k]}};
            run(size, &jobs[0]);
            run(size, &jobs[1]);
            assert_memory_equal(jobs[0].sums, jobs[1].sums, sizeof jobs[0].sums);
        }
    }
}

/* Parameters once, flags, and what is left of pages. */
static void ranks_of_a_host_have_one_copy(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    const size_t page = tt_heap_page_bytes();
    job_t job = {.ops = &tt_unit_share, .compute = TUTTI_BF16};
    run(RANKS_MAX, &job);
    size_t sum = 0, want = (size_t)NUMELS[1] * 2;
    for (int f = 0; f < FLATS; f++) {
        want += (size_t)NUMELS[f] * 4;
    }
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        sum += job.heap_bytes[rank];
    }
    assert_in_range(sum, want, want + (FLATS + 1) * (page + RANKS_MAX * 128));
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

/* ---- lack of memory -------------------------------------------------------------------------- */

typedef struct {
    const tt_unit_source_ops_t *ops;
    size_t nth; /* allocation that fails, on whichever rank */
} lack_t;

static void lack_memory(tt_member_t *m)
{
    const lack_t *lack = m->user;
    job_t job = {.ops = lack->ops, .compute = TUTTI_BF16};
    rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
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
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    const tutti_status_t status = tt_unit_source_open(job.ops, &r.source);
    TT_EXPECT(m, !tt_alloc_has_failed() || status < 0);
    tt_unit_source_close(&r.source);
    (void)tutti_barrier(m->group, NULL); /* calls that cannot be prepared give the group up */
    tutti_context_release(ctx);
}

static void expect_that_all_hear(const tt_unit_source_ops_t *ops)
{
    lack_t lack = {.ops = ops, .nth = 1};
    for (bool has_failed = true; has_failed && lack.nth < 1000; lack.nth++) {
        tt_team_expect_quietly(2, TIMEOUT_MS, lack_memory, &lack);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(tt_alloc_stats().blocks, 0);
    }
    assert_in_range(lack.nth, 10, 999);
}

static void all_ranks_hear_of_lack_of_memory(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    for (size_t i = 0; i < sizeof SOURCES / sizeof SOURCES[0]; i++) {
        expect_that_all_hear(SOURCES[i]);
    }
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_brings_the_same_bits),
        cmocka_unit_test(ranks_of_a_host_have_one_copy),
        cmocka_unit_test(what_is_held_outlives_source_and_group),
        cmocka_unit_test(ranks_of_a_host_share_unless_told_not_to),
        cmocka_unit_test(all_ranks_hear_of_lack_of_memory),
        cmocka_unit_test(a_rank_may_write_its_own_slices_alone),
        cmocka_unit_test(what_is_left_early_has_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
