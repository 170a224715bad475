/* The public calls: each becomes one request, checked once, performed by the kind of store.
 *
 * Cost: what the kind costs; nothing is allocated here.
 */
#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/little_endian.h"

tutti_status_t tt_store_create(const tt_store_ops_t *ops, tutti_store_t **out)
{
    tutti_store_t *store = tt_alloc(sizeof *store, "store");
    TT_TRY_ALLOC(store);
    store->state = tt_alloc(ops->state_bytes, "store state");
    if (store->state == NULL) {
        tt_free(store);
        return TUTTI_ERR_NOMEM;
    }
    tt_ref_init(&store->ref);
    store->owner = getpid();
    store->ops = ops;
    store->timeout_ms = TUTTI_STORE_TIMEOUT_MS_DEFAULT;
    *out = store;
    return TUTTI_OK;
}

void tt_store_discard(tutti_store_t *store)
{
    tt_free(store->state);
    tt_free(store);
}

tutti_store_t *tutti_store_retain(tutti_store_t *store)
{
    if (store != NULL) {
        tt_ref_retain(&store->ref);
    }
    return store;
}

void tutti_store_release(tutti_store_t *store)
{
    if (store != NULL && tt_ref_release(&store->ref)) {
        if (store->owner == getpid()) {
            store->ops->close(store->state);
        }
        tt_store_discard(store);
    }
}

const char *tutti_store_kind(const tutti_store_t *store)
{
    return store != NULL ? store->ops->name : "";
}

int tutti_store_port(const tutti_store_t *store)
{
    return store != NULL ? store->port : 0;
}

tutti_status_t tt_store_local_address(const tutti_store_t *store, char out[TT_ADDRESS_TEXT_BYTES])
{
    if (store->address[0] == 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "store %s: it has no address", store->ops->name);
    }
    memcpy(out, store->address, sizeof store->address);
    return TUTTI_OK;
}

const tt_credentials_t *tt_store_credentials(const tutti_store_t *store)
{
    return store->credentials;
}

tutti_status_t tutti_store_set_timeout(tutti_store_t *store, int64_t timeout_ms)
{
    TT_WANT("store_set_timeout", store);
    if (timeout_ms < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "store: a timeout of %" PRId64 " ms; want at least 1",
                       timeout_ms);
    }
    store->timeout_ms = timeout_ms;
    return TUTTI_OK;
}

int64_t tt_store_bound(tutti_store_t *store, int64_t timeout_ms)
{
    const int64_t before = store->timeout_ms;
    if (timeout_ms < before) {
        store->timeout_ms = timeout_ms > 0 ? timeout_ms : 1;
    }
    return before;
}

void tutti_store_abort(tutti_store_t *store)
{
    if (store != NULL) {
        store->ops->abort(store->state);
    }
}

static tutti_status_t perform(tutti_store_t *store, const tt_store_request_t *request,
                              int64_t timeout_ms, tt_store_reply_t *reply)
{
    if (timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "store %s: a timeout of %" PRId64 " ms; want 0 (the store's) or more",
                       tt_store_rule(request->op)->text, timeout_ms);
    }
    TT_TRY(tt_store_request_check(request));
    if (store->owner != getpid()) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "store %s: this process was forked from the one that opened the store, and "
                       "needs its own",
                       tt_store_rule(request->op)->text);
    }
    /* A day at most: longer than any wait makes sense, and far from overflow. */
    const int64_t most_ms = INT64_C(86400000);
    const int64_t wanted_ms = timeout_ms > 0 ? timeout_ms : store->timeout_ms;
    const tt_deadline_t deadline = tt_deadline_in_ms(wanted_ms < most_ms ? wanted_ms : most_ms);
    return store->ops->perform(store->state, request, deadline, reply);
}

/* For one value, which is written on success only. */
static tutti_status_t perform_for_value(tutti_store_t *store, const tt_store_request_t *request,
                                        int64_t timeout_ms, tutti_buffer_t *out)
{
    tutti_buffer_t value = {0};
    TT_TRY(perform(store, request, timeout_ms, &(tt_store_reply_t){.values = &value}));
    *out = value;
    return TUTTI_OK;
}

tutti_status_t tutti_store_multi_set(tutti_store_t *store, const tutti_bytes_t *keys,
                                     const tutti_bytes_t *values, size_t key_count)
{
    TT_WANT("store_multi_set", store);
    const tt_store_request_t request = {
        .op = TT_STORE_SET, .key_count = key_count, .keys = keys, .values = values};
    return perform(store, &request, 0, &(tt_store_reply_t){0});
}

tutti_status_t tutti_store_set(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t value)
{
    TT_WANT("store_set", store);
    return tutti_store_multi_set(store, &key, &value, 1);
}

tutti_status_t tutti_store_get(tutti_store_t *store, tutti_bytes_t key, int64_t timeout_ms,
                               tutti_buffer_t *out)
{
    TT_WANT("store_get", store);
    TT_WANT("store_get", out);
    const tt_store_request_t request = {.op = TT_STORE_GET, .key_count = 1, .keys = &key};
    return perform_for_value(store, &request, timeout_ms, out);
}

tutti_status_t tutti_store_multi_get(tutti_store_t *store, const tutti_bytes_t *keys,
                                     size_t key_count, int64_t timeout_ms, tutti_buffer_t *out)
{
    TT_WANT("store_multi_get", store);
    TT_WANT("store_multi_get", out);
    const tt_store_request_t request = {.op = TT_STORE_GET, .key_count = key_count, .keys = keys};
    TT_TRY(tt_store_request_check(&request));
    tutti_buffer_t *values = tt_alloc_array(key_count, sizeof *values, "store values");
    TT_TRY_ALLOC(values);
    const tutti_status_t status =
        perform(store, &request, timeout_ms, &(tt_store_reply_t){.values = values});
    for (size_t i = 0; status >= 0 && i < key_count; i++) {
        out[i] = values[i];
    }
    tt_free(values);
    return status;
}

tutti_status_t tutti_store_add(tutti_store_t *store, tutti_bytes_t key, int64_t amount,
                               int64_t *now)
{
    TT_WANT("store_add", store);
    tt_store_reply_t reply = {0};
    const tt_store_request_t request = {
        .op = TT_STORE_ADD, .key_count = 1, .keys = &key, .number = amount};
    TT_TRY(perform(store, &request, 0, &reply));
    if (now != NULL) {
        *now = reply.number;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_store_compare_set(tutti_store_t *store, tutti_bytes_t key,
                                       tutti_bytes_t expected, tutti_bytes_t desired,
                                       tutti_buffer_t *now)
{
    TT_WANT("store_compare_set", store);
    TT_WANT("store_compare_set", now);
    const tt_store_request_t request = {.op = TT_STORE_COMPARE_SET,
                                        .key_count = 1,
                                        .keys = &key,
                                        .values = (const tutti_bytes_t[]){expected, desired}};
    return perform_for_value(store, &request, 0, now);
}

tutti_status_t tt_store_will(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t value)
{
    const tt_store_request_t request = {
        .op = TT_STORE_WILL, .key_count = 1, .keys = &key, .values = &value};
    return perform(store, &request, 0, &(tt_store_reply_t){0});
}

tutti_status_t tutti_store_append(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t value)
{
    TT_WANT("store_append", store);
    const tt_store_request_t request = {
        .op = TT_STORE_APPEND, .key_count = 1, .keys = &key, .values = &value};
    return perform(store, &request, 0, &(tt_store_reply_t){0});
}

tutti_status_t tutti_store_wait(tutti_store_t *store, const tutti_bytes_t *keys, size_t key_count,
                                int64_t timeout_ms)
{
    TT_WANT("store_wait", store);
    const tt_store_request_t request = {.op = TT_STORE_WAIT, .key_count = key_count, .keys = keys};
    return perform(store, &request, timeout_ms, &(tt_store_reply_t){0});
}

tutti_status_t tutti_store_check(tutti_store_t *store, const tutti_bytes_t *keys, size_t key_count,
                                 bool *all_exist)
{
    TT_WANT("store_check", store);
    TT_WANT("store_check", all_exist);
    tt_store_reply_t reply = {0};
    const tt_store_request_t request = {.op = TT_STORE_CHECK, .key_count = key_count, .keys = keys};
    TT_TRY(perform(store, &request, 0, &reply));
    *all_exist = reply.number != 0;
    return TUTTI_OK;
}

tutti_status_t tutti_store_delete(tutti_store_t *store, tutti_bytes_t key, bool *existed)
{
    TT_WANT("store_delete", store);
    tt_store_reply_t reply = {0};
    const tt_store_request_t request = {.op = TT_STORE_DELETE, .key_count = 1, .keys = &key};
    TT_TRY(perform(store, &request, 0, &reply));
    if (existed != NULL) {
        *existed = reply.number != 0;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_store_watch(tutti_store_t *store, tutti_bytes_t key, tutti_bytes_t known,
                                 int64_t timeout_ms, tutti_buffer_t *out)
{
    TT_WANT("store_watch", store);
    TT_WANT("store_watch", out);
    const tt_store_request_t request = {
        .op = TT_STORE_WATCH, .key_count = 1, .keys = &key, .values = &known};
    return perform_for_value(store, &request, timeout_ms, out);
}

tutti_status_t tutti_store_list(tutti_store_t *store, tutti_bytes_t start, tutti_buffer_t *out)
{
    TT_WANT("store_list", store);
    TT_WANT("store_list", out);
    const tt_store_request_t request = {.op = TT_STORE_LIST, .key_count = 1, .keys = &start};
    return perform_for_value(store, &request, 0, out);
}

bool tutti_store_list_next(const tutti_buffer_t *list, size_t *at, tutti_bytes_t *key)
{
    if (list == NULL || at == NULL || key == NULL) {
        return false;
    }
    const uint8_t *data = list->data;
    const size_t left = list->bytes - *at;
    if (*at > list->bytes || left < 4 || tt_get_u32(data + *at) > left - 4) {
        return false;
    }
    *key = tutti_bytes_of(data + *at + 4, tt_get_u32(data + *at));
    *at += 4 + key->bytes;
    return true;
}

tutti_status_t tutti_store_num_keys(tutti_store_t *store, size_t *count)
{
    TT_WANT("store_num_keys", store);
    TT_WANT("store_num_keys", count);
    tt_store_reply_t reply = {0};
    TT_TRY(perform(store, &(tt_store_request_t){.op = TT_STORE_NUM_KEYS}, 0, &reply));
    *count = (size_t)reply.number;
    return TUTTI_OK;
}
