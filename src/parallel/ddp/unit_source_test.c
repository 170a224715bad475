/* Sources of units: whichever brings the whole, it has the same bits; and of ranks that share a
 * host one copy is there. */
#include "parallel/ddp/unit_source_testing.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/rng.h"

enum { LOCAL_RANKS_MAX = 4 };

static double read_whole(tt_source_rank_t *r, int step, int flat, tt_unit_kind_t kind)
{
    const tutti_tensor_t *whole = r->flats[flat].whole[kind];
    tutti_tensor_t *x = NULL;
    double sum = 0, worst = 0;
    TT_EXPECT(r->m,
              tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(tt_source_numels[flat]), &x) == TUTTI_OK);
    tt_tensor_convert_now(r->source.ctx->exec.threads, x, whole);
    const float *values = tutti_tensor_data(x);
    for (int64_t i = 0; i < tt_source_numels[flat]; i++) {
        const double want = tt_source_value(step, flat, i);
        worst = fmax(worst, fabs(values[i] - want) / want);
        sum += values[i] * (double)(i % 7 + 1);
    }
    TT_EXPECT(r->m, worst <= (kind == TT_UNIT_COMPUTE ? 1.0 / 256 : 0));
    tutti_tensor_release(x);
    return sum;
}

static double visit(tt_source_rank_t *r, int step, int flat, tt_unit_kind_t kind)
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

static tt_unit_kind_t kind_in_step(const tt_source_rank_t *r, int flat)
{
    const tutti_dtype_t *dtypes = r->flats[flat].dtypes;
    return dtypes[TT_UNIT_COMPUTE] != dtypes[TT_UNIT_FULL] ? TT_UNIT_COMPUTE : TT_UNIT_FULL;
}

/* Forward and back, the next one on its way; a rank may read once more in between. */
static double run_step(tt_source_rank_t *r, int step)
{
    double sum = 0;
    for (int k = 0; k < 2 * TT_SOURCE_FLATS; k++) {
        const int flat = k < TT_SOURCE_FLATS ? k : 2 * TT_SOURCE_FLATS - 1 - k;
        TT_EXPECT(r->m, r->source.ops->start(&r->source, flat, kind_in_step(r, flat)) == TUTTI_OK);
        sum += visit(r, step, flat, kind_in_step(r, flat));
    }
    TT_EXPECT(r->m, r->source.ops->start(&r->source, 1, TT_UNIT_FULL) == TUTTI_OK);
    return sum + visit(r, step, 1, TT_UNIT_FULL);
}

static void train(tt_member_t *m)
{
    tt_source_job_t *job = m->user;
    tt_source_rank_t r = {.m = m, .job = job};
    tutti_context_t *ctx = NULL;
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    const size_t before = tt_device_stats(heap).live_bytes;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    job->heap_bytes[m->rank] = tt_device_stats(heap).live_bytes - before;
    for (int step = 0; step < TT_SOURCE_STEPS && m->failure[0] == 0; step++) {
        tt_source_write_own(&r, step + 1);
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

static void run(int size, tt_source_job_t *job)
{
    tt_team_expect(size, TT_SOURCE_TIMEOUT_MS, train, job);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void every_source_brings_the_same_bits(void **state)
{
    (void)state;
    tt_needs_shared_memory("one source is for ranks of one host");
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    for (int size = 1; size <= LOCAL_RANKS_MAX; size++) {
        for (int k = 0; k < 3; k++) {
            tt_source_job_t jobs[2] = {{.ops = tt_sources_of_one_host[0], .compute = dtypes[k]},
                                       {.ops = tt_sources_of_one_host[1], .compute = dtypes[k]}};
            run(size, &jobs[0]);
            run(size, &jobs[1]);
            assert_memory_equal(jobs[0].sums, jobs[1].sums, sizeof jobs[0].sums);
        }
    }
}

/* ---- several hosts --------------------------------------------------------------------------- */

static const char *const SHAPES[] = {"aab", "abab", "abbb", "aaabb", "abca"};

static void a_host_gathers_the_same_bits_once(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        tt_source_job_t jobs[2] = {{.ops = &tt_unit_gather, .compute = dtypes[i % 2]},
                                   {.ops = &tt_unit_host, .compute = dtypes[i % 2]}};
        tt_on_hosts(SHAPES[i], train, &jobs[0]);
        tt_on_hosts(SHAPES[i], train, &jobs[1]);
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
    return TT_SOURCE_STEPS * (2 * low + (flat == 1 ? 4 : 0));
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
        tt_source_rank_t r = {.m = &m};
        tt_source_job_t job = {.ops = &tt_unit_host, .compute = TUTTI_BF16};
        tt_on_hosts(shape, train, &job);
        int64_t missing[256] = {0}, sent[TT_SOURCE_RANKS_MAX] = {0};
        for (int f = 0; f < TT_SOURCE_FLATS; f++) {
            const int64_t bytes = started_bytes(f, job.compute);
            tt_source_cut(&r, f);
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
static float middle_of(const tt_source_rank_t *r)
{
    const tutti_tensor_t *whole = r->flats[1].whole[TT_UNIT_FULL];
    return ((const float *)tutti_tensor_data(whole))[tt_source_numels[1] / 2];
}

/* The last rank of a host that leaves is waited for; then the pages go: they are zeros. Flat 1 is
 * rank 1's of its host. */
static void leave_one_after_the_other(tt_member_t *m)
{
    tt_source_job_t job = {.ops = &tt_unit_host, .compute = TUTTI_F32};
    tt_source_rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    const bool is_keeper = m->rank == 1;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    tt_source_write_own(&r, 1);
    TT_EXPECT(m, r.source.ops->start(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    TT_EXPECT(m, r.source.ops->wait(&r.source, 1, TT_UNIT_FULL) == TUTTI_OK);
    const float value = middle_of(&r);
    const volatile float *at =
        (const float *)tutti_tensor_data(r.flats[1].whole[TT_UNIT_FULL]) + tt_source_numels[1] / 2;
    if (is_keeper) {
        TT_EXPECT(m, r.source.held_bytes == (size_t)tt_source_numels[1] * 4);
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
    tt_on_hosts("aabb", leave_one_after_the_other, NULL);
}

/* Parameters once, flags, and what is left of pages. */
static void ranks_of_a_host_have_one_copy(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    const size_t page = tt_heap_page_bytes();
    tt_source_job_t job = {.ops = &tt_unit_share, .compute = TUTTI_BF16};
    run(LOCAL_RANKS_MAX, &job);
    size_t sum = 0, want = (size_t)tt_source_numels[1] * 2;
    for (int f = 0; f < TT_SOURCE_FLATS; f++) {
        want += (size_t)tt_source_numels[f] * 4;
    }
    for (int rank = 0; rank < LOCAL_RANKS_MAX; rank++) {
        sum += job.heap_bytes[rank];
    }
    assert_in_range(sum, want, want + (TT_SOURCE_FLATS + 1) * (page + LOCAL_RANKS_MAX * 128));
    assert_true(job.heap_bytes[0] > 0 && job.heap_bytes[1] > job.heap_bytes[2]); /* in turn */
    assert_int_equal(job.heap_bytes[3], 0);
}

/* Memory that a parameter still holds stays, also when source and group have gone. */
static void hold_on(tt_member_t *m)
{
    tt_source_job_t job = {.ops = &tt_unit_share, .compute = TUTTI_F32};
    tt_source_rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    tt_source_write_own(&r, 1);
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
    for (int64_t i = 0; i < tt_source_numels[0]; i++) {
        TT_EXPECT(m, data[i] == tt_source_value(1, 0, i));
    }
    tutti_tensor_release(held);
    tutti_context_release(ctx);
}

static void what_is_held_outlives_source_and_group(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    tt_team_expect(3, TT_SOURCE_TIMEOUT_MS, hold_on, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- which one ------------------------------------------------------------------------------- */

static void choose(tt_member_t *m)
{
    const tt_unit_source_ops_t *ops = NULL;
    TT_EXPECT(m, tt_unit_source_choose(m->group, 0, &ops) == TUTTI_OK);
    TT_EXPECT(m, ops == *(const tt_unit_source_ops_t *const *)m->user);
}

static void expect_choice(int size, const tt_unit_source_ops_t *ops)
{
    tt_team_expect(size, TT_SOURCE_TIMEOUT_MS, choose, &ops);
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
    TT_EXPECT(m, tt_unit_source_choose(m->group, 0, &ops) == TUTTI_OK);
    TT_EXPECT(m, ops == m->user);
}

static void ranks_of_several_hosts_gather_once_if_some_are_together(void **state)
{
    (void)state;
    tt_needs_shared_memory("ranks of a host share what they gather");
    tt_on_hosts("aab", choose_on_hosts, (void *)(uintptr_t)&tt_unit_host);
    tt_on_hosts("abc", choose_on_hosts, (void *)(uintptr_t)&tt_unit_gather);
    setenv("TUTTI_SHARED_PARAMETERS", "0", 1);
    tt_on_hosts("aabb", choose_on_hosts, (void *)(uintptr_t)&tt_unit_gather);
    unsetenv("TUTTI_SHARED_PARAMETERS");
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
    tt_source_job_t job = {.ops = &tt_unit_share};
    tt_source_rank_t r = {.m = m, .job = &job};
    tutti_context_t *ctx = NULL;
    char text[4];
    TT_EXPECT(m, tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx) == TUTTI_OK);
    tt_source_open(&r, ctx);
    tt_source_write_own(&r, 0);
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
    tt_team_expect(3, TT_SOURCE_TIMEOUT_MS, look_at_pages, NULL);
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
        cmocka_unit_test(ranks_of_a_host_have_one_copy),
        cmocka_unit_test(what_is_held_outlives_source_and_group),
        cmocka_unit_test(ranks_of_a_host_share_unless_told_not_to),
        cmocka_unit_test(a_rank_may_write_its_own_slices_alone),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
