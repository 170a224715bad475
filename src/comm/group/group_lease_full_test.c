/* Groups come and go for ever: what the heap holds, what the system holds for it, and what the
 * process holds stays as it is, whether the calls of a group go well or fail while a rank is late.
 */
#include "core/base/testing.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

/* A sanitizer is slow, and keeps what was freed: there the books of the heap and of allocations
 * must do. */
#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
enum { PEACEFUL = 2000, FAILING = 500, IS_RESIDENT_KNOWN = 0 };
#else
enum { PEACEFUL = 100000, FAILING = 10000, IS_RESIDENT_KNOWN = 1 };
#endif

enum { WARM_UP = 500, ELEMENTS = 20000 };

/* Of the whole process. A leak of 21 KiB in each group would be 2 GB. */
enum { RESIDENT_SLACK = 8 << 20 };

typedef struct {
    int groups;
    bool fails;
    size_t resident_before, resident_after;
} life_t;

static size_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &all, &resident) != 2) {
        resident = 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

typedef struct {
    size_t live, populated;
} books_t;

/* What the system holds for all segments of this rank's heap. */
static size_t populated_bytes(tt_device_t *heap)
{
    size_t sum = 0;
    for (int i = 0; i < tt_heap_segment_count(heap); i++) {
        int fd;
        size_t bytes;
        struct stat info;
        tt_heap_segment(heap, i, &fd, &bytes);
        sum += fstat(fd, &info) == 0 ? (size_t)info.st_blocks * 512 : 0;
    }
    return sum;
}

/* All ranks have released what they had when the barrier ends. */
static books_t at_rest(tt_member_t *m)
{
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_node_peers_t *node_peers = tt_native_coll(m->group->state)->node_peers;
    for (int i = 0; i < 1000; i++) {
        tt_quarantine_sweep(node_peers);
    }
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    return (books_t){tt_device_stats(heap).live_bytes, populated_bytes(heap)};
}

/* Rank 0 gives its call up; rank 1 comes late. */
static void fail_a_call(tt_member_t *m, tutti_group_t *group, tutti_tensor_t *x, uint32_t number)
{
    if (m->rank == 0) {
        tutti_work_t *work = NULL;
        TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, &work) == TUTTI_OK);
        tutti_group_abort(group);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
        tutti_work_release(work);
        TT_EXPECT(m, tutti_tensor_fill(x, 7) == TUTTI_OK);
        tt_member_tell(m);
        tt_member_await(m, 2 * number + 2);
        TT_EXPECT(m, tutti_tensor_at(x, 0) == 7 && tutti_tensor_at(x, ELEMENTS - 1) == 7);
    } else {
        tt_member_await(m, 2 * number + 1);
        TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_ERR_ABORTED);
        tt_member_tell(m);
    }
}

static void one_life(tt_member_t *m, const life_t *life, int number)
{
    const int both[] = {0, 1};
    tutti_group_t *group = NULL;
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_new(m->group, both, 2, NULL, &group) == TUTTI_OK);
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(ELEMENTS), &x) == TUTTI_OK);
    if (m->failure[0] == 0 && life->fails) {
        fail_a_call(m, group, x, (uint32_t)number);
    } else if (m->failure[0] == 0) {
        TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
    }
    tutti_tensor_release(x);
    tutti_group_release(group);
}

static void live_and_die(tt_member_t *m)
{
    life_t *life = m->user;
    int number = 0;
    while (number < WARM_UP && m->failure[0] == 0) {
        one_life(m, life, number++);
    }
    const books_t before = at_rest(m);
    if (m->rank == 0) {
        life->resident_before = resident_bytes();
    }
    while (number < WARM_UP + life->groups && m->failure[0] == 0) {
        one_life(m, life, number++);
    }
    const books_t after = at_rest(m);
    TT_EXPECT(m, after.live == before.live);
    TT_EXPECT(m, after.populated == before.populated);
    if (m->rank == 0) {
        life->resident_after = resident_bytes();
    }
}

static void expect_flat(life_t life)
{
    tt_team_expect_quietly(2, 20000, live_and_die, &life);
    if (IS_RESIDENT_KNOWN && life.resident_after > life.resident_before + RESIDENT_SLACK) {
        fail_msg("%d groups: the process grew from %zu to %zu bytes", life.groups,
                 life.resident_before, life.resident_after);
    }
    print_message("%d groups: %zu bytes, then %zu\n", life.groups, life.resident_before,
                  life.resident_after);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void groups_that_end_well_leave_nothing(void **state)
{
    (void)state;
    expect_flat((life_t){.groups = PEACEFUL});
}

static void groups_that_fail_with_a_late_rank_leave_nothing(void **state)
{
    (void)state;
    expect_flat((life_t){.groups = FAILING, .fails = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_that_end_well_leave_nothing),
        cmocka_unit_test(groups_that_fail_with_a_late_rank_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
