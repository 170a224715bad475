/* The store of one process: a hub and nothing else. */
#include "comm/store/store_hub.h"
#include "comm/store/store_ops.h"

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    return tt_hub_perform(state, request, deadline, reply);
}

static void abort_calls(void *state)
{
    tt_hub_abort(state);
}

static void close_store(void *state)
{
    tt_hub_fini(state);
}

const tt_store_ops_t tt_store_hash_ops = {
    .name = "hash",
    .about = "in one process, shared by ranks that are threads",
    .state_bytes = sizeof(tt_hub_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
};

tutti_status_t tutti_store_hash_create(tutti_store_t **out)
{
    TT_WANT("store_hash_create", out);
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_hash_ops, &store));
    const tutti_status_t status = tt_hub_init(store->state);
    if (status < 0) {
        tt_store_discard(store);
        return status;
    }
    *out = store;
    return TUTTI_OK;
}
