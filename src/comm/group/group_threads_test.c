/* Two threads in groups of one world: the second one is told, and the first one's call goes on. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include <tutti/collectives.h>
#include <tutti/launch.h>

#include "comm/group/group_impl.h"
#include "core/base/testing.h"

static atomic_bool was_told;

static void *wait_for_rank_1(void *world)
{
    return (void *)(intptr_t)tutti_barrier(world, NULL);
}

/* While the other thread is in the barrier, which rank 1 enters when this one has been told. */
static tutti_status_t intrude(tutti_group_t *world, tutti_group_t *other, tutti_tensor_t *x)
{
    pthread_t waiter;
    void *waited;
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_rank_1, world), 0);
    while (atomic_load(&world->family->waits_in) == 0) {
        sched_yield();
    }
    tutti_work_t *work = NULL;
    const tutti_status_t blocking = tutti_all_reduce(other, x, TUTTI_SUM, NULL);
    const bool is_named = strstr(tutti_last_error(), "another thread waits in a call") != NULL;
    const tutti_status_t started = tutti_all_reduce(world, x, TUTTI_SUM, &work);
    atomic_store(&was_told, true);
    pthread_join(waiter, &waited);
    return blocking == TUTTI_ERR_STATE && is_named && started == TUTTI_ERR_STATE && work == NULL
               ? (tutti_status_t)(intptr_t)waited
               : TT_FAIL(TUTTI_ERR_STATE, "statuses %d and %d", (int)blocking, (int)started);
}

static tutti_status_t run_rank(const tutti_spawned_t *self)
{
    tutti_group_t *world, *other;
    tutti_tensor_t *x;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    TT_TRY(tutti_group_new(world, NULL, 0, NULL, &other));
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3), &x));
    tutti_status_t status;
    if (self->rank == 0) {
        status = intrude(world, other, x);
    } else {
        while (!atomic_load(&was_told)) {
            sched_yield();
        }
        status = tutti_barrier(world, NULL);
    }
    /* In turn they may. */
    status = status < 0 ? status : tutti_all_reduce(other, x, TUTTI_SUM, NULL);
    status = status < 0 ? status : tutti_all_reduce(world, x, TUTTI_SUM, NULL);
    tutti_tensor_release(x);
    tutti_group_release(other);
    tutti_group_release(world);
    return status;
}

static void a_second_thread_is_told(void **state)
{
    (void)state;
    assert_int_equal(tutti_spawn(run_rank, 2, &(tutti_spawn_options_t){.threads = true}), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_second_thread_is_told)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
