/* A table that threads share: what the hash store is, and what a tcp server serves. */
#ifndef TT_STORE_HUB_H
#define TT_STORE_HUB_H

#include <pthread.h>

#include "comm/store/store_table.h"
#include "core/base/clock.h"

typedef struct {
    pthread_mutex_t mutex; /* over the table and everything that its waiters touch */
    tt_table_t *table;
    _Atomic uint32_t is_aborted;
    _Atomic uint32_t changes; /* futex of local waiters: counts wake-ups */
} tt_hub_t;

tutti_status_t tt_hub_init(tt_hub_t *hub);

/* Under the mutex: performs a waiter's request. PENDING: it misses keys, and the waiter hangs on
 * the table; TIMEOUT: it misses them, and the deadline is past. */
tutti_status_t tt_hub_try(tt_hub_t *hub, tt_table_waiter_t *waiter, tt_deadline_t deadline,
                          tt_store_reply_t *reply);

/* Of tt_store_ops_t, for a state that begins with a hub. */
tutti_status_t tt_hub_perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply);
void tt_hub_abort(void *state);
void tt_hub_fini(void *state);

#endif
