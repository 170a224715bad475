/* Arbitrary bytes as a request to a store, and as a reply of one. What is taken as a request says
 * the same when it is packed again: there is one way to write each.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "comm/store/store_message.h"
#include "core/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { VALUES_MAX = 2 };

static void read_request(const uint8_t *data, size_t bytes)
{
    size_t body_bytes;
    if (bytes < TT_STORE_REQUEST_HEAD || tt_store_request_head(data, &body_bytes) < 0 ||
        body_bytes != bytes - TT_STORE_REQUEST_HEAD) {
        return;
    }
    tt_store_request_t request;
    tutti_bytes_t *spans;
    uint32_t timeout_ms;
    if (tt_store_request_unpack(data, data + TT_STORE_REQUEST_HEAD, &request, &timeout_ms, &spans) <
        0) {
        return;
    }
    tutti_buffer_t again;
    TT_ASSERT(tt_store_request_pack(&request, timeout_ms, &again) == TUTTI_OK);
    TT_ASSERT(again.bytes == bytes && memcmp(again.data, data, bytes) == 0);
    tutti_buffer_release(&again);
    tt_free(spans);
}

static void read_reply(const uint8_t *data, size_t bytes, size_t value_count)
{
    size_t body_bytes;
    if (bytes < TT_STORE_REPLY_HEAD || tt_store_reply_head(data, value_count, &body_bytes) < 0 ||
        body_bytes != bytes - TT_STORE_REPLY_HEAD) {
        return;
    }
    tutti_buffer_t values[VALUES_MAX] = {{0}, {0}};
    tt_store_reply_t reply = {.values = values};
    (void)tt_store_reply_unpack(data, data + TT_STORE_REPLY_HEAD, value_count, &reply);
    for (size_t i = 0; i < VALUES_MAX; i++) {
        tutti_buffer_release(&values[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    read_request(data, bytes);
    for (size_t value_count = 0; value_count <= VALUES_MAX; value_count++) {
        read_reply(data, bytes, value_count);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
