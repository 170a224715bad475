/* Torture: the nth allocation fails while ranks make a group, for every n. All of them have it or
 * none has; those without lack memory and say why, and none has waited for its deadline; nothing
 * leaks. Then they make it, unless the parent had to be given up. */
#include "core/base/testing.h"

#include "comm/group/agree.h"
#include "comm/group/group_team.h"
#include "core/base/alloc.h"

enum { RANKS = 3, TIMEOUT_MS = 60000 };

typedef tutti_status_t make_t(tt_member_t *m, tutti_group_t **out);

typedef struct {
    make_t *make;
    size_t nth;
    tutti_status_t status[RANKS];
    bool has_failed;
    atomic_int broken; /* ranks whose parent was given up */
} torture_t;

static tutti_status_t make_of_list(tt_member_t *m, tutti_group_t **out)
{
    const int ranks[] = {2, 0, 1};
    return tutti_group_new(m->group, ranks, 3, NULL, out);
}

static tutti_status_t make_subgroups(tt_member_t *m, tutti_group_t **out)
{
    return tutti_group_subgroups(m->group, 3, out);
}

static tutti_status_t make_by_colour(tt_member_t *m, tutti_group_t **out)
{
    return tutti_group_split(m->group, 1, -m->rank, out);
}

/* Makes none. */
static tutti_status_t meet(tt_member_t *m, tutti_group_t **out)
{
    *out = NULL;
    return tutti_monitored_barrier(m->group, 0);
}

/* All meet, and from then on the nth allocation fails. */
static void arm(tt_member_t *m)
{
    const torture_t *torture = m->user;
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        tt_alloc_fail_at(torture->nth);
    }
    pthread_barrier_wait(m->start);
}

static void make(tt_member_t *m)
{
    torture_t *torture = m->user;
    tutti_group_t *group = NULL;
    arm(m);
    const tutti_status_t status = torture->make(m, &group);
    torture->status[m->rank] = status;
    TT_EXPECT(m, status == TUTTI_OK || (group == NULL && tutti_last_error()[0] != 0));
    TT_EXPECT(m, status != TUTTI_ERR_TIMEOUT);
    pthread_barrier_wait(m->start);
    tutti_group_release(group);
    group = NULL;
    torture->broken += tt_group_is_broken(m->group);
    if (m->rank == 0) {
        torture->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    if (torture->broken == 0) {
        TT_EXPECT(m, torture->make(m, &group) == TUTTI_OK);
        TT_EXPECT(m, tutti_barrier(group != NULL ? group : m->group, NULL) == TUTTI_OK);
        tutti_group_release(group);
    }
}

/* Returns whether there was an nth allocation. */
static bool torture_once(torture_t *torture)
{
    torture->broken = 0;
    tt_team_expect_quietly(RANKS, TIMEOUT_MS, make, torture);
    char report[1024];
    if (tt_alloc_report(report, sizeof report) != 0) {
        fail_msg("allocation %zu failed, and leaked:\n%s", torture->nth, report);
    }
    int made = 0, lacking = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        made += torture->status[rank] == TUTTI_OK;
        lacking += torture->status[rank] == TUTTI_ERR_NOMEM;
    }
    if ((made != 0 && made != RANKS) || (torture->broken == 0 && made + lacking != RANKS) ||
        (torture->has_failed && made == 0 && lacking == 0)) {
        fail_msg("allocation %zu: ranks have %d, %d, %d", torture->nth, (int)torture->status[0],
                 (int)torture->status[1], (int)torture->status[2]);
    }
    return torture->has_failed;
}

static void torture_all(make_t *make_group, size_t least)
{
    torture_t torture = {.make = make_group};
    int broken = 0;
    do {
        torture.nth++;
        assert_true(torture.nth < 2000);
        broken += torture.broken != 0;
    } while (torture_once(&torture));
    print_message("%zu allocations, parent given up %d times\n", torture.nth - 1, broken);
    assert_true(torture.nth > least);
}

static void a_list(void **state)
{
    (void)state;
    torture_all(make_of_list, 20);
}

static void subgroups(void **state)
{
    (void)state;
    torture_all(make_subgroups, 20);
}

static void a_split(void **state)
{
    (void)state;
    torture_all(make_by_colour, 20);
}

static void a_monitored_barrier(void **state)
{
    (void)state;
    torture_all(meet, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list),
        cmocka_unit_test(subgroups),
        cmocka_unit_test(a_split),
        cmocka_unit_test(a_monitored_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
