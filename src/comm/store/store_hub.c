/* A table under a mutex. A thread that must wait hangs a waiter on the table and sleeps on a futex
 * of the hub; the thread that stores the last missing key wakes all sleepers, and each looks
 * whether its request can go on.
 */
#include "comm/store/store_hub.h"

#include "core/base/fail.h"
#include "core/base/futex.h"

tutti_status_t tt_hub_init(tt_hub_t *hub)
{
    TT_TRY(tt_table_create(&hub->table));
    pthread_mutex_init(&hub->mutex, NULL);
    return TUTTI_OK;
}

void tt_hub_fini(void *state)
{
    tt_hub_t *hub = state;
    tt_table_release(hub->table);
    pthread_mutex_destroy(&hub->mutex);
}

static void wake_sleepers(tt_hub_t *hub)
{
    atomic_fetch_add(&hub->changes, 1);
    tt_futex_wake_all(&hub->changes);
}

static void note_ready(tt_table_waiter_t *waiter)
{
    wake_sleepers(waiter->user);
}

tutti_status_t tt_hub_try(tt_hub_t *hub, tt_table_waiter_t *waiter, tt_deadline_t deadline,
                          tt_store_reply_t *reply)
{
    tt_table_forget(hub->table, waiter);
    const tutti_status_t status = tt_table_apply(hub->table, waiter->request, reply);
    if (status == TUTTI_PENDING && tt_deadline_is_past(deadline)) {
        return tt_table_fail_missing(hub->table, waiter->request);
    }
    if (status == TUTTI_PENDING) {
        TT_TRY(tt_table_await(hub->table, waiter));
    }
    return status;
}

static tutti_status_t fail_aborted(tt_hub_t *hub, tt_table_waiter_t *waiter)
{
    tt_table_forget(hub->table, waiter);
    return TT_FAIL(TUTTI_ERR_ABORTED, "store %s: the store was aborted",
                   tt_store_rule(waiter->request->op)->text);
}

tutti_status_t tt_hub_perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    tt_hub_t *hub = state;
    tt_table_waiter_t waiter = {.request = request, .ready = note_ready, .user = hub};
    for (;;) {
        const uint32_t seen = atomic_load(&hub->changes); /* before looking: no wake-up is lost */
        pthread_mutex_lock(&hub->mutex);
        const tutti_status_t status = hub->is_aborted ? fail_aborted(hub, &waiter)
                                                      : tt_hub_try(hub, &waiter, deadline, reply);
        pthread_mutex_unlock(&hub->mutex);
        if (status != TUTTI_PENDING) {
            return status;
        }
        tt_futex_wait(&hub->changes, seen, deadline);
    }
}

void tt_hub_abort(void *state)
{
    tt_hub_t *hub = state;
    atomic_store(&hub->is_aborted, 1);
    wake_sleepers(hub);
}
