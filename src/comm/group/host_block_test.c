/* Host blocks: every rank reads what all have written, and nobody writes what somebody reads; late,
 * gone and killed ranks are named; whatever fails, all ranks hear of it; memory is there once. */
#include "core/base/testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_impl.h"
#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "comm/group/host_block_testing.h"
#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "core/base/clock.h"
#include "core/base/rng.h"

enum { ELEMENTS = 3000 };

/* ---- versions ------------------------------------------------------------------------------- */

static int begin_of(const tt_member_t *m, int rank)
{
    return ELEMENTS * rank / m->size;
}

static uint32_t value_of(uint64_t version, int i)
{
    return (uint32_t)version * 65599U + (uint32_t)i;
}

static void write_slice(const tt_member_t *m, tt_host_block_t *block)
{
    uint32_t *data = tt_host_block_data(block);
    for (int i = begin_of(m, m->rank); i < begin_of(m, m->rank + 1); i++) {
        data[i] = value_of(tt_host_block_version(block) + 1, i);
    }
}

static int count_others(tt_host_block_t *block)
{
    const volatile uint32_t *data = tt_host_block_data(block);
    int others = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        others += data[i] != value_of(tt_host_block_version(block), i);
    }
    return others;
}

static void go_round(tt_member_t *m, tt_host_block_t *block, int reads)
{
    TT_EXPECT(m, tt_host_block_claim(block) == TUTTI_OK);
    write_slice(m, block);
    tt_host_block_post(block);
    for (int i = 0; i < reads; i++) {
        TT_EXPECT(m, tt_host_block_await(block) == TUTTI_OK);
        TT_EXPECT(m, count_others(block) == 0);
    }
    tt_host_block_finish(block);
}

/* How often a rank reads a version is drawn, so that ranks are ahead of each other in turn. */
static void step_versions(tt_member_t *m)
{
    enum { BLOCKS = 3, ROUNDS = 60 };
    tt_host_block_t *blocks[BLOCKS];
    const uint64_t seed = *(const uint64_t *)m->user;
    for (int b = 0; b < BLOCKS; b++) {
        blocks[b] = make(m, b % m->size, ELEMENTS * sizeof(uint32_t));
        TT_EXPECT(m, tt_host_block_version(blocks[b]) == 0);
    }
    for (int round = 0; round < ROUNDS && m->failure[0] == 0; round++) {
        for (int b = 0; b < BLOCKS; b++) {
            const tt_rng_t rng = tt_rng_stream(seed, 1, (uint64_t)m->rank, (uint64_t)b, 0);
            go_round(m, blocks[b], 1 + (int)tt_rng_below(rng, (uint64_t)round, 4));
        }
    }
    for (int b = 0; b < BLOCKS; b++) {
        TT_EXPECT(m, tt_host_block_version(blocks[b]) == ROUNDS);
        tt_host_block_release(blocks[b]);
    }
}

static void every_rank_reads_whole_versions(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)tt_clock_ns();
    int64_t given;
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &given), TUTTI_OK);
        seed = (uint64_t)given;
    }
    print_message("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    for (int size = 1; size <= 4; size++) {
        run_team(size, step_versions, &seed);
    }
}

/* A rank that reads for long holds the writers up; a look does not wait. */
static void hold_up(tt_member_t *m)
{
    tt_host_block_t *block = make(m, 1, ELEMENTS * sizeof(uint32_t));
    TT_EXPECT(m, tt_host_block_claim(block) == TUTTI_OK);
    write_slice(m, block);
    if (m->rank == 0) {
        tt_member_await(m, 1);
    }
    tt_host_block_post(block);
    if (m->rank == 1) {
        TT_EXPECT(m, !tt_host_block_is_there(block));
        tt_member_tell(m);
    }
    TT_EXPECT(m, tt_host_block_await(block) == TUTTI_OK && tt_host_block_is_there(block));
    if (m->rank == 0) { /* the other has finished, and claims */
        tt_member_await(m, 2);
        TT_EXPECT(m, count_others(block) == 0);
    } else {
        tt_host_block_finish(block);
        tt_member_tell(m);
    }
    tt_host_block_finish(block);
    TT_EXPECT(m, tt_host_block_claim(block) == TUTTI_OK);
    tt_host_block_release(block);
}

static void a_reader_holds_writers_up(void **state)
{
    (void)state;
    run_team(2, hold_up, NULL);
}

/* ---- with calls ----------------------------------------------------------------------------- */

/* Rank 0 waits for a block of rank 1, which waits in a call of another group before that. */
static void wait_beside_calls(tt_member_t *m)
{
    const int both[] = {0, 1};
    tutti_group_t *part = NULL;
    tutti_tensor_t *x = NULL;
    tutti_work_t *work = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, both, 2, NULL, &part) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_tensor(part, TUTTI_F32, TUTTI_SHAPE(100000), &x) == TUTTI_OK);
    tt_host_block_t *block = make(m, 0, 64);
    TT_EXPECT(m, tutti_all_reduce(part, x, TUTTI_SUM, &work) == TUTTI_OK);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    }
    tt_host_block_post(block);
    TT_EXPECT(m, tt_host_block_await(block) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    tutti_work_release(work);
    tt_host_block_release(block);
    tutti_tensor_release(x);
    tutti_group_release(part);
}

static void calls_of_the_family_go_on_meanwhile(void **state)
{
    (void)state;
    run_team(2, wait_beside_calls, NULL);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

typedef enum { NOT_POSTED, NOT_FINISHED } lack_t;

static tutti_status_t wait_in_vain(const tt_member_t *m, tt_host_block_t *block, lack_t lack)
{
    enum { SOON_MS = 200 };
    if (m->rank == 0) {
        tt_native_coll(m->group->state)->options.timeout_ms = SOON_MS;
    }
    return lack == NOT_POSTED ? tt_host_block_await(block) : tt_host_block_claim(block);
}

/* Rank 1 does nothing until rank 0 has given up waiting for it; then rank 2 hears of that. */
static void miss(tt_member_t *m)
{
    const lack_t lack = *(const lack_t *)m->user;
    tt_host_block_t *block = make(m, 2, 64);
    if (lack == NOT_FINISHED || m->rank != 1) {
        tt_host_block_post(block);
        TT_EXPECT(m, lack == NOT_POSTED || tt_host_block_await(block) == TUTTI_OK);
    }
    if (lack == NOT_FINISHED && m->rank != 1) {
        tt_host_block_finish(block);
    }
    tt_member_tell(m);
    tt_member_await(m, 3);
    if (m->rank != 1) {
        TT_EXPECT(m, wait_in_vain(m, block, lack) == TUTTI_ERR_TIMEOUT);
        TT_EXPECT(m, says(m->rank == 2         ? "rank 0 gave up waiting for rank 1"
                          : lack == NOT_POSTED ? "parameters blocks.1: rank 1 has not written its "
                                                 "slice of version 1"
                                               : "parameters blocks.1: rank 1 has not finished "
                                                 "reading version 1"));
        TT_EXPECT(m, m->rank == 2 || says("gave up after 200 ms"));
    }
    tt_member_tell(m);
    tt_member_await(m, 6);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) < 0); /* it is of no more use */
    tt_host_block_release(block);
}

static void a_late_rank_is_named(void **state)
{
    (void)state;
    lack_t lack = NOT_POSTED;
    run_team(3, miss, &lack);
    lack = NOT_FINISHED;
    run_team(3, miss, &lack);
}

static void abort_meanwhile(tt_member_t *m)
{
    tt_host_block_t *block = make(m, 0, 64);
    if (m->rank == 1) {
        tutti_group_abort(m->group);
    } else {
        tt_host_block_post(block);
        TT_EXPECT(m, tt_host_block_await(block) == TUTTI_ERR_ABORTED);
        TT_EXPECT(m, says("parameters blocks.1: rank 1 gave the group up ("));
    }
    tt_host_block_release(block);
}

static void an_abort_ends_waits(void **state)
{
    (void)state;
    run_team(3, abort_meanwhile, NULL);
}

static void leave_meanwhile(tt_member_t *m)
{
    tt_host_block_t *block = make(m, 1, 64);
    if (m->rank != 1) {
        tt_host_block_post(block);
        TT_EXPECT(m, tt_host_block_await(block) == TUTTI_ERR_PEER);
        TT_EXPECT(m, says("parameters blocks.1: rank 1 has left the group"));
    }
    tt_host_block_release(block);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    run_team(3, leave_meanwhile, NULL);
}

/* What a rank has written before it left is there. */
static void leave_behind(tt_member_t *m)
{
    tt_host_block_t *block = make(m, 0, ELEMENTS * sizeof(uint32_t));
    write_slice(m, block);
    tt_host_block_post(block);
    if (m->rank == 0) {
        tt_member_await(m, 1);
        TT_EXPECT(m, tt_host_block_await(block) == TUTTI_OK && count_others(block) == 0);
    }
    tt_host_block_release(block);
    if (m->rank == 1) {
        tutti_group_release(m->group);
        m->group = NULL;
        tt_member_tell(m);
    }
}

static void what_a_rank_has_written_stays(void **state)
{
    (void)state;
    run_team(2, leave_behind, NULL);
}

/* ---- killed processes ----------------------------------------------------------------------- */

typedef enum { KILLED_WHILE_READING, KILLED_WHILE_WRITING, KILLED_BETWEEN, KILLS } kill_t;

typedef struct {
    char errors[3][TT_ERROR_TEXT_BYTES];
    tutti_status_t statuses[3];
} report_t;

static void die_if(bool is_time)
{
    if (is_time) {
        (void)raise(SIGKILL);
    }
}

/* Rank 1 is killed in its third round. */
static tutti_status_t round_and_round(tutti_group_t *world, tt_host_block_t *block, kill_t when)
{
    for (int round = 0;; round++) {
        const bool is_last = tutti_group_rank(world) == 1 && round == 2;
        TT_TRY(tt_host_block_claim(block));
        die_if(is_last && when == KILLED_WHILE_WRITING);
        tt_host_block_post(block);
        die_if(is_last && when == KILLED_BETWEEN);
        TT_TRY(tt_host_block_await(block));
        die_if(is_last && when == KILLED_WHILE_READING);
        tt_host_block_finish(block);
    }
}

static void be_rank(int rank, int port, report_t *report, kill_t when)
{
    tt_be_rank(rank, 3, port);
    tutti_group_t *world;
    tt_host_block_t *block = NULL;
    const tt_host_block_options_t options = {
        .bytes = 5000, .keeper = 1, .what = "parameters blocks.1"}; /* the victim's */
    tutti_status_t status = tutti_init(NULL, &world);
    status = status < 0 ? status : tt_host_block_create(world, &options, &block);
    status = status < 0 ? status : round_and_round(world, block, when);
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    report->statuses[rank] = status;
    _exit(1); /* as a failing program would, without a goodbye */
}

static void kill_one(kill_t when)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    const int port = tt_free_port();
    pid_t children[3];
    char blame[80];
    for (int rank = 0; rank < 3; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            be_rank(rank, port, report, when);
        }
    }
    snprintf(blame, sizeof blame, "rank 1 (process %d) died", (int)children[1]);
    for (int rank = 0; rank < 3; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_true(rank == 1 ? WIFSIGNALED(ended) : WIFEXITED(ended));
    }
    for (int rank = 0; rank < 3; rank += 2) {
        if (report->statuses[rank] != TUTTI_ERR_PEER ||
            strstr(report->errors[rank], blame) == NULL) {
            fail_msg("kill %d: rank %d says %d: %s", (int)when, rank, report->statuses[rank],
                     report->errors[rank]);
        }
    }
    munmap(report, sizeof *report);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    tt_needs_shared_memory("host blocks are for ranks of one host");
    for (int when = 0; when < KILLS; when++) {
        kill_one((kill_t)when);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t heap_bytes(const tt_member_t *m)
{
    return (int64_t)tt_device_stats(m->group->backend->memory(m->group->state)).live_bytes;
}

static void take_memory(tt_member_t *m)
{
    enum { BYTES = 1 << 20 };
    const int64_t before = heap_bytes(m);
    tt_host_block_t *block = make(m, 1, BYTES);
    const int64_t took = heap_bytes(m) - before;
    TT_EXPECT(m, m->rank == 1 ? took >= BYTES && took < BYTES + 16384 : took == 0);
    tt_host_block_release(block);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_host_block_t *next = make(m, 1, BYTES); /* closing it looks after the other */
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_host_block_release(m->rank == 1 ? NULL : next);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_host_block_release(m->rank == 1 ? next : NULL);
    TT_EXPECT(m, heap_bytes(m) == before);
}

static void memory_is_there_once_and_goes(void **state)
{
    (void)state;
    run_team(3, take_memory, NULL);
}

/* Memory is not given to others while a rank has not said that it is done. */
static void keep_for_others(tt_member_t *m)
{
    enum { BYTES = 1 << 20 };
    tt_host_block_t *block = make(m, 0, BYTES);
    memset(tt_host_block_data(block), 7, BYTES / 2);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        tt_host_block_release(block);
        tutti_tensor_t *x = NULL;
        TT_EXPECT(m, tutti_group_tensor(m->group, TUTTI_U8, TUTTI_SHAPE(BYTES), &x) == TUTTI_OK);
        tutti_tensor_release(x);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        const unsigned char *data = tt_host_block_data(block);
        TT_EXPECT(m, data[0] == 7 && data[BYTES / 2 - 1] == 7);
        tt_host_block_release(block);
    }
}

static void memory_stays_while_a_rank_may_read_it(void **state)
{
    (void)state;
    run_team(2, keep_for_others, NULL);
}

/* Whether the kernel may write there; what is there stays. */
static bool is_writable(unsigned char *at)
{
    const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    const unsigned char before = *at;
    const bool is_written = read(zeros, at, 1) == 1;
    close(zeros);
    if (is_written) {
        *at = before;
    }
    return is_written;
}

static void guard_pages(tt_member_t *m)
{
    const size_t page = tt_heap_page_bytes();
    const size_t slice = 4 * page, bytes = slice * (size_t)m->size + 100;
    tt_host_block_t *block = make(m, 1, bytes);
    unsigned char *data = tt_host_block_data(block), *own = data + slice * (size_t)m->rank;
    unsigned char *other = data + slice * (size_t)((m->rank + 1) % m->size);
    TT_EXPECT(m, is_writable(other));
    TT_EXPECT(m, tt_host_block_guard(block, slice * (size_t)m->rank, slice) == TUTTI_OK);
    TT_EXPECT(m, is_writable(own) && is_writable(own + slice - 1) && is_writable(own + page));
    TT_EXPECT(m, !is_writable(other + page) && !is_writable(other + 2 * page));
    TT_EXPECT(m, m->rank == m->size - 1 || !is_writable(data + bytes - 1));
    tt_host_block_post(block);
    TT_EXPECT(m, tt_host_block_await(block) == TUTTI_OK);
    TT_EXPECT(m, tt_host_block_open(block) == TUTTI_OK && is_writable(other + page));
    TT_EXPECT(m, tt_host_block_guard(block, slice * (size_t)m->rank, slice) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_host_block_release(block); /* guarded: its pages are writable again */
    TT_EXPECT(m, is_writable(other + page));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
}

static void other_slices_are_read_only_where_asked(void **state)
{
    (void)state;
    run_team(3, guard_pages, NULL);
}

/* ---- lack of memory ------------------------------------------------------------------------- */

static void lack_memory(tt_member_t *m)
{
    const size_t nth = *(const size_t *)m->user;
    tt_host_block_t *block = NULL;
    const tt_host_block_options_t options = {
        .bytes = 5000, .keeper = 1, .what = "parameters blocks.1"};
    tt_host_block_t *first = make(m, 1, 64); /* calls are prepared from now on, */
    const tutti_status_t mine = m->rank == 0 ? TT_FAIL(TUTTI_ERR_IO, "a disk") : TUTTI_OK;
    TT_EXPECT(m, tt_group_agree(m->group, mine) == TUTTI_ERR_IO); /* those of a failure, too */
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        tt_alloc_fail_at(nth);
    }
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    const tutti_status_t status = tt_host_block_create(m->group, &options, &block);
    TT_EXPECT(m, status == (tt_alloc_has_failed() ? TUTTI_ERR_NOMEM : TUTTI_OK));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_host_block_release(block);
    tt_host_block_release(first);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
}

static void all_ranks_hear_of_lack_of_memory(void **state)
{
    (void)state;
    size_t nth = 1;
    for (bool has_failed = true; has_failed; nth++) {
        run_team(2, lack_memory, &nth);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    assert_true(nth > 4);
}

static void want_too_much(tt_member_t *m)
{
    tt_host_block_t *block = NULL;
    const size_t sizes[] = {(size_t)1 << 46, SIZE_MAX - 5};
    for (int i = 0; i < 2; i++) {
        const tt_host_block_options_t options = {
            .bytes = sizes[i], .keeper = 1, .what = "parameters blocks.1"};
        TT_EXPECT(m, tt_host_block_create(m->group, &options, &block) == TUTTI_ERR_NOMEM);
        TT_EXPECT(m, says("parameters blocks.1") && (m->rank == 1 || says("rank 1: ")));
        TT_EXPECT(m, block == NULL && tutti_barrier(m->group, NULL) == TUTTI_OK);
    }
}

static void a_block_that_is_too_large_is_refused_by_all(void **state)
{
    (void)state;
    run_team(2, want_too_much, NULL);
}

static void on_hosts_of_their_own(tt_member_t *m)
{
    tt_host_block_t *block = NULL;
    const tt_host_block_options_t options = {
        .bytes = 64, .keeper = 0, .what = "parameters blocks.1"};
    TT_EXPECT(m, !tt_group_shares_host(m->group));
    TT_EXPECT(m, tt_host_block_create(m->group, &options, &block) == TUTTI_ERR_UNSUPPORTED);
    TT_EXPECT(m, says("do not share the memory of one host"));
}

static void ranks_of_several_hosts_have_none(void **state)
{
    (void)state;
    setenv("TUTTI_WIRES", "tcp", 1);
    setenv("TUTTI_PROTECT", "off", 1);
    tt_team_expect_quietly(2, TT_HOST_BLOCK_MS, on_hosts_of_their_own, NULL);
    unsetenv("TUTTI_WIRES");
    unsetenv("TUTTI_PROTECT");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named), /* forks before there are threads */
        cmocka_unit_test(every_rank_reads_whole_versions),
        cmocka_unit_test(a_reader_holds_writers_up),
        cmocka_unit_test(calls_of_the_family_go_on_meanwhile),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(an_abort_ends_waits),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(what_a_rank_has_written_stays),
        cmocka_unit_test(memory_is_there_once_and_goes),
        cmocka_unit_test(memory_stays_while_a_rank_may_read_it),
        cmocka_unit_test(other_slices_are_read_only_where_asked),
        cmocka_unit_test(all_ranks_hear_of_lack_of_memory),
        cmocka_unit_test(a_block_that_is_too_large_is_refused_by_all),
        cmocka_unit_test(ranks_of_several_hosts_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
