/* Once a failed call has returned on a rank, no other rank touches that rank's memory for it: late
 * ranks, tensors that are released or still held, packs, groups that are released, processes that
 * were stopped inside. And memory of groups that are gone comes back to the heap. */
#include "core/base/testing.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/coll/coll_impl.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "core/base/clock.h"

enum { ELEMENTS = 1 << 18, TIMEOUT_MS = 20000 };

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect_quietly(size, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *make(tt_member_t *m, tutti_group_t *group, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static int64_t others_than(const tutti_tensor_t *x, float want)
{
    const float *values = tutti_tensor_data(x);
    int64_t others = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        others += values[i] != want;
    }
    return others;
}

/* ---- a late rank ----------------------------------------------------------------------------- */

typedef tutti_status_t (*call_fn_t)(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work);

static tutti_status_t sum_in_place(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_all_reduce(group, x, TUTTI_SUM, work);
}

static tutti_status_t sum_to_first(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_reduce(group, x, 0, TUTTI_SUM, work);
}

/* The scaled contribution lies in a pack. */
static tutti_status_t sum_scaled(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    const double half = 0.5;
    return tutti_all_reduce_with(group, x, TUTTI_PREMUL_SUM,
                                 &(tutti_reduce_options_t){.factor = &half}, work);
}

typedef struct {
    call_fn_t call;
    bool is_held;        /* the tensor of the failed call is used on; else released */
    bool leaves_group;   /* the group is released too */
    tutti_status_t late; /* what the late rank hears, out */
} lateness_t;

/* Rank 0 gives up its call, and uses the memory again. */
static void give_up(tt_member_t *m, const lateness_t *lateness, tutti_group_t *group)
{
    tutti_tensor_t *x = make(m, group, ELEMENTS);
    tutti_work_t *work = NULL;
    TT_EXPECT(m, lateness->call(group, x, &work) == TUTTI_OK);
    tutti_group_abort(group);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
    tutti_work_release(work);
    if (!lateness->is_held) {
        tutti_tensor_release(x);
    }
    if (lateness->leaves_group) {
        tutti_group_release(group);
    }
    tutti_tensor_t *y = lateness->is_held ? x : make(m, m->group, ELEMENTS);
    tutti_tensor_t *z = make(m, m->group, ELEMENTS); /* where a pack may have been */
    TT_EXPECT(m, tutti_tensor_fill(y, 7) == TUTTI_OK && tutti_tensor_fill(z, 7) == TUTTI_OK);
    tt_member_tell(m);
    tt_member_await(m, 2);
    TT_EXPECT(m, others_than(y, 7) == 0 && others_than(z, 7) == 0);
    tutti_tensor_release(z);
    tutti_tensor_release(y);
    if (!lateness->leaves_group) {
        tutti_group_release(group);
    }
}

static void come_late(tt_member_t *m)
{
    lateness_t *lateness = m->user;
    const int both[] = {0, 1};
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_new(m->group, both, 2, NULL, &group) == TUTTI_OK);
    if (m->rank == 0) {
        give_up(m, lateness, group);
        return;
    }
    tutti_tensor_t *x = make(m, group, ELEMENTS);
    tt_member_await(m, 1);
    lateness->late = lateness->call(group, x, NULL);
    tt_member_tell(m);
    tutti_tensor_release(x);
    tutti_group_release(group);
}

static void a_late_rank_touches_nothing_of_one_that_has_given_up(void **state)
{
    (void)state;
    const call_fn_t calls[] = {sum_in_place, sum_to_first, sum_scaled};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int way = 0; way < 4; way++) {
            lateness_t lateness = {
                .call = calls[i], .is_held = way % 2 == 1, .leaves_group = way / 2 == 1};
            run_team(2, come_late, &lateness);
            if (lateness.late != TUTTI_ERR_ABORTED) {
                fail_msg("call %zu, way %d: the late rank hears %d", i, way, lateness.late);
            }
        }
    }
}

/* ---- a group that has failed ----------------------------------------------------------------- */

static void allocate_after_failure(tt_member_t *m)
{
    if (m->rank == 0) {
        tutti_group_abort(m->group);
    }
    tutti_tensor_t *x = make(m, m->group, 100);
    TT_EXPECT(m, x != NULL && tutti_tensor_fill(x, 3) == TUTTI_OK && others_than(x, 3) == 0);
    tutti_tensor_release(x);
}

static void a_failed_group_still_hands_out_tensors(void **state)
{
    (void)state;
    run_team(2, allocate_after_failure, NULL);
}

/* ---- memory that comes back ------------------------------------------------------------------ */

static size_t live_bytes(tutti_group_t *group)
{
    return tt_device_stats(group->backend->memory(group->state)).live_bytes;
}

/* Frees what the others have left as well: they all have when the barrier ends. */
static size_t live_bytes_at_rest(tt_member_t *m)
{
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_mates_t *mates = tt_native_coll(m->group->state)->mates;
    for (int i = 0; i < 1000; i++) {
        tt_quarantine_sweep(mates);
    }
    return live_bytes(m->group);
}

static void come_and_go(tt_member_t *m)
{
    const int *const kind = m->user;
    const int all[] = {0, 1, 2};
    const size_t before = live_bytes_at_rest(m);
    for (int i = 0; i < 30; i++) {
        tutti_group_t *group;
        TT_EXPECT(m, tutti_group_new(m->group, all, 3, NULL, &group) == TUTTI_OK);
        tutti_tensor_t *x = make(m, group, 10000);
        if (*kind == 0) {
            TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        } else if (m->rank == i % 3) { /* in the midst of the others' call, or before it */
            tutti_group_abort(group);
        } else {
            TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_ERR_ABORTED);
        }
        tutti_tensor_release(x);
        tutti_group_release(group);
    }
    TT_EXPECT(m, live_bytes_at_rest(m) == before);
}

static void what_groups_had_comes_back_when_all_have_left(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        run_team(3, come_and_go, &kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_touches_nothing_of_one_that_has_given_up),
        cmocka_unit_test(a_failed_group_still_hands_out_tensors),
        cmocka_unit_test(what_groups_had_comes_back_when_all_have_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
