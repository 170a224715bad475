/* A view of another store: the keys of each request get a prefix, and the base performs it. Two
 * allocations per call, one for the list of keys, one for their bytes.
 */
#include <string.h>

#include "comm/store/store_ops.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/little_endian.h"

typedef struct {
    tutti_store_t *base;
    tutti_buffer_t prefix; /* with the "/" at its end */
} view_t;

/* All keys with the prefix, one after the other; NULL without memory. */
static char *join_keys(const view_t *view, const tt_store_request_t *request, tutti_bytes_t *keys)
{
    size_t bytes = 0;
    for (size_t i = 0; i < request->key_count; i++) {
        bytes += view->prefix.bytes + request->keys[i].bytes;
    }
    char *text = tt_alloc_raw(bytes, "store keys");
    char *at = text;
    for (size_t i = 0; text != NULL && i < request->key_count; i++) {
        const tutti_bytes_t key = request->keys[i];
        keys[i] = tutti_bytes_of(at, view->prefix.bytes + key.bytes);
        memcpy(at, view->prefix.data, view->prefix.bytes);
        if (key.bytes > 0) {
            memcpy(at + view->prefix.bytes, key.data, key.bytes);
        }
        at += keys[i].bytes;
    }
    return text;
}

/* The keys of a list begin with the prefix, which is no business of the view's user. */
static tutti_status_t strip_list(const view_t *view, tutti_buffer_t *list)
{
    uint8_t *data = list->data;
    size_t to = 0, from = 0;
    tutti_bytes_t key;
    while (tutti_store_list_next(list, &from, &key)) {
        if (key.bytes < view->prefix.bytes) {
            tutti_buffer_release(list);
            return TT_FAIL(TUTTI_ERR_FORMAT, "store list: a key of %zu bytes, without the prefix",
                           key.bytes);
        }
        const size_t bytes = key.bytes - view->prefix.bytes;
        const uint8_t *name = (const uint8_t *)key.data + view->prefix.bytes;
        tt_put_u32(data + to, (uint32_t)bytes);
        memmove(data + to + 4, name, bytes);
        to += 4 + bytes;
    }
    data[to] = 0;
    list->bytes = to;
    return TUTTI_OK;
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    const view_t *view = state;
    tt_store_request_t inner = *request;
    const tutti_bytes_t prefix = tt_buffer_view(&view->prefix);
    if (request->op == TT_STORE_NUM_KEYS && request->key_count == 0) {
        inner.key_count = 1;
        inner.keys = &prefix;
        return view->base->ops->perform(view->base->state, &inner, deadline, reply);
    }
    tutti_bytes_t *keys = tt_alloc_array(request->key_count, sizeof *keys, "store keys");
    TT_TRY_ALLOC(keys);
    char *text = join_keys(view, request, keys);
    inner.keys = keys;
    tutti_status_t status = text == NULL ? TUTTI_ERR_NOMEM : tt_store_request_check(&inner);
    if (status >= 0) {
        status = view->base->ops->perform(view->base->state, &inner, deadline, reply);
    }
    tt_free(text);
    tt_free(keys);
    if (status >= 0 && request->op == TT_STORE_LIST) {
        status = strip_list(view, &reply->values[0]);
    }
    return status;
}

static void abort_calls(void *state)
{
    const view_t *view = state;
    tutti_store_abort(view->base);
}

static void close_store(void *state)
{
    view_t *view = state;
    tutti_store_release(view->base);
    tutti_buffer_release(&view->prefix);
}

const tt_store_ops_t tt_store_prefix_ops = {
    .name = "prefix",
    .about = "a view of another store whose keys begin with a prefix",
    .state_bytes = sizeof(view_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
};

tutti_status_t tutti_store_prefix(tutti_store_t *base, tutti_bytes_t prefix, tutti_store_t **out)
{
    TT_WANT("store_prefix", base);
    TT_WANT("store_prefix", out);
    if (prefix.bytes == 0 || prefix.bytes >= TUTTI_STORE_KEY_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "store prefix: %zu bytes; want 1 to %d", prefix.bytes,
                       TUTTI_STORE_KEY_BYTES_MAX - 1);
    }
    char text[TUTTI_STORE_KEY_BYTES_MAX];
    memcpy(text, prefix.data, prefix.bytes);
    text[prefix.bytes] = '/';
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_prefix_ops, &store));
    view_t *view = store->state;
    const tutti_status_t status =
        tt_buffer_copy(tutti_bytes_of(text, prefix.bytes + 1), &view->prefix);
    if (status < 0) {
        tt_store_discard(store);
        return status;
    }
    view->base = tutti_store_retain(base);
    store->timeout_ms = (int64_t)base->timeout_ms;
    store->port = base->port;
    store->credentials = base->credentials;
    memcpy(store->address, base->address, sizeof store->address);
    *out = store;
    return TUTTI_OK;
}
