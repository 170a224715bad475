/* The store of one process: a hub and nothing else. */
#include "comm/store/store_hub.h"
#include "comm/store/store_ops.h"

const tt_store_ops_t tt_store_hash_ops = {
    .name = "hash",
    .about = "in one process, shared by ranks that are threads",
    .state_bytes = sizeof(tt_hub_t),
    .perform = tt_hub_perform,
    .abort = tt_hub_abort,
    .close = tt_hub_fini,
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
