/* Requests and replies of stores, and their bytes. All numbers are little-endian.
 *
 *     request  0 u32 bytes of the body      reply  0 u32 bytes of the body
 *              4 u8  operation                     4 i32 status
 *              5 u8  0, u16 0                      8 i64 number
 *              8 u32 keys                         16 u32 values
 *             12 u32 timeout, ms                  20 u32 0
 *             16 i64 number
 *             24 u64 0
 *     body     keys, then values: u32 length, then the bytes, nothing between or behind them
 *
 * The body of a failure is one value, its text. Every length is checked against the limits of
 * store.h and against what is left of the body before it is believed.
 */
#include "comm/store/store_message.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/little_endian.h"

static const tt_store_rule_t rules[] = {
#define X(name, number, ...) [number] = {__VA_ARGS__},
    TT_STORE_OP_LIST(X)
#undef X
};

const tt_store_rule_t *tt_store_rule(unsigned op)
{
    return op < sizeof rules / sizeof rules[0] && rules[op].text != NULL ? &rules[op] : NULL;
}

static size_t value_count_of(const tt_store_request_t *request)
{
    return request->key_count * tt_store_rule(request->op)->values_per_key;
}

/* 0, or the length that is too large. */
static size_t find_too_long(const tutti_bytes_t *spans, size_t count, size_t max, size_t *total)
{
    for (size_t i = 0; i < count; i++) {
        if (spans[i].bytes > max) {
            return spans[i].bytes;
        }
        *total += spans[i].bytes;
    }
    return 0;
}

tutti_status_t tt_store_request_check(const tt_store_request_t *request)
{
    const tt_store_rule_t *rule = tt_store_rule(request->op);
    if (request->key_count < rule->keys_min || request->key_count > rule->keys_max) {
        return TT_FAIL(TUTTI_ERR_ARG, "store %s: %zu keys, want %zu to %zu", rule->text,
                       request->key_count, rule->keys_min, rule->keys_max);
    }
    size_t total = 0;
    const size_t long_key =
        find_too_long(request->keys, request->key_count, TUTTI_STORE_KEY_BYTES_MAX, &total);
    if (long_key > 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "store %s: a key of %zu bytes; at most %d", rule->text,
                       long_key, TUTTI_STORE_KEY_BYTES_MAX);
    }
    const size_t long_value = find_too_long(request->values, value_count_of(request),
                                            TUTTI_STORE_VALUE_BYTES_MAX, &total);
    if (long_value > 0 || total > TUTTI_STORE_BATCH_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "store %s: %zu bytes; at most %d in a value, %d in a call",
                       rule->text, long_value > 0 ? long_value : total, TUTTI_STORE_VALUE_BYTES_MAX,
                       TUTTI_STORE_BATCH_BYTES_MAX);
    }
    return TUTTI_OK;
}

static size_t packed_bytes(const tutti_bytes_t *spans, size_t count)
{
    size_t bytes = 4 * count;
    for (size_t i = 0; i < count; i++) {
        bytes += spans[i].bytes;
    }
    return bytes;
}

static uint8_t *pack_spans(uint8_t *at, const tutti_bytes_t *spans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tt_put_u32(at, (uint32_t)spans[i].bytes);
        if (spans[i].bytes > 0) {
            memcpy(at + 4, spans[i].data, spans[i].bytes);
        }
        at += 4 + spans[i].bytes;
    }
    return at;
}

tutti_status_t tt_store_request_pack(const tt_store_request_t *request, uint32_t timeout_ms,
                                     tutti_buffer_t *out)
{
    const size_t value_count = value_count_of(request);
    const size_t body_bytes = packed_bytes(request->keys, request->key_count) +
                              packed_bytes(request->values, value_count);
    uint8_t *data = tt_alloc_raw(TT_STORE_REQUEST_HEAD + body_bytes, "store message");
    TT_TRY_ALLOC(data);
    memset(data, 0, TT_STORE_REQUEST_HEAD);
    tt_put_u32(data, (uint32_t)body_bytes);
    data[4] = (uint8_t)request->op;
    tt_put_u32(data + 8, (uint32_t)request->key_count);
    tt_put_u32(data + 12, timeout_ms);
    tt_put_u64(data + 16, (uint64_t)request->number);
    uint8_t *at = pack_spans(data + TT_STORE_REQUEST_HEAD, request->keys, request->key_count);
    pack_spans(at, request->values, value_count);
    *out = (tutti_buffer_t){data, TT_STORE_REQUEST_HEAD + body_bytes};
    return TUTTI_OK;
}

tutti_status_t tt_store_reply_pack(tutti_status_t status, const tt_store_reply_t *reply,
                                   size_t value_count, tutti_buffer_t *out)
{
    const bool has_failed = status < 0;
    const tutti_bytes_t text = tutti_text(tutti_last_error());
    const size_t count = has_failed ? 1 : value_count;
    size_t bytes = TT_STORE_REPLY_HEAD;
    for (size_t i = 0; i < count; i++) {
        bytes += 4 + (has_failed ? text.bytes : reply->values[i].bytes);
    }
    uint8_t *data = tt_alloc_raw(bytes, "store message");
    TT_TRY_ALLOC(data);
    memset(data, 0, TT_STORE_REPLY_HEAD);
    tt_put_u32(data, (uint32_t)(bytes - TT_STORE_REPLY_HEAD));
    tt_put_u32(data + 4, (uint32_t)status);
    tt_put_u64(data + 8, has_failed ? 0 : (uint64_t)reply->number);
    tt_put_u32(data + 16, (uint32_t)count);
    uint8_t *at = data + TT_STORE_REPLY_HEAD;
    for (size_t i = 0; i < count; i++) {
        const tutti_bytes_t value = has_failed ? text : tt_buffer_view(&reply->values[i]);
        at = pack_spans(at, &value, 1);
    }
    *out = (tutti_buffer_t){data, bytes};
    return TUTTI_OK;
}

tutti_status_t tt_store_request_head(const uint8_t head[TT_STORE_REQUEST_HEAD], size_t *body_bytes)
{
    const tt_store_rule_t *rule = tt_store_rule(head[4]);
    const size_t keys = tt_get_u32(head + 8), body = tt_get_u32(head);
    const bool is_padded =
        head[5] == 0 && head[6] == 0 && head[7] == 0 && tt_get_u64(head + 24) == 0;
    if (rule == NULL || !is_padded || keys < rule->keys_min || keys > rule->keys_max ||
        body < keys * (1 + rule->values_per_key) * 4 || body > TT_STORE_BODY_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "store request: operation %u with %zu keys in %zu bytes",
                       head[4], keys, body);
    }
    *body_bytes = body;
    return TUTTI_OK;
}

/* `count` spans from the front of [at, end); NULL when they do not fit. */
static const uint8_t *unpack_spans(const uint8_t *at, const uint8_t *end, size_t count,
                                   tutti_bytes_t *spans)
{
    for (size_t i = 0; i < count; i++) {
        if (end - at < 4 || tt_get_u32(at) > (size_t)(end - at - 4)) {
            return NULL;
        }
        spans[i] = tutti_bytes_of(at + 4, tt_get_u32(at));
        at += 4 + spans[i].bytes;
    }
    return at;
}

tutti_status_t tt_store_request_unpack(const uint8_t head[TT_STORE_REQUEST_HEAD],
                                       const uint8_t *body, tt_store_request_t *out,
                                       uint32_t *timeout_ms, tutti_bytes_t **spans)
{
    size_t body_bytes;
    TT_TRY(tt_store_request_head(head, &body_bytes));
    tt_store_request_t request = {.op = (tt_store_op_t)head[4],
                                  .key_count = tt_get_u32(head + 8),
                                  .number = (int64_t)tt_get_u64(head + 16)};
    const size_t count = request.key_count + value_count_of(&request);
    tutti_bytes_t *list = tt_alloc_array(count, sizeof *list, "store request");
    TT_TRY_ALLOC(list);
    request.keys = list;
    request.values = list + request.key_count;
    const uint8_t *end = body + body_bytes;
    if (unpack_spans(body, end, count, list) != end) {
        tt_free(list);
        return TT_FAIL(TUTTI_ERR_FORMAT, "store request: lengths do not fill its %zu bytes",
                       body_bytes);
    }
    const tutti_status_t status = tt_store_request_check(&request);
    if (status < 0) {
        tt_free(list);
        return status;
    }
    *out = request;
    *timeout_ms = tt_get_u32(head + 12);
    *spans = list;
    return TUTTI_OK;
}

tutti_status_t tt_store_reply_head(const uint8_t head[TT_STORE_REPLY_HEAD], size_t value_count,
                                   size_t *body_bytes)
{
    const bool has_failed = (int32_t)tt_get_u32(head + 4) < 0;
    const size_t values = tt_get_u32(head + 16), body = tt_get_u32(head);
    if (values != (has_failed ? 1 : value_count) || body < 4 * values || body > TT_STORE_BODY_MAX ||
        tt_get_u32(head + 20) != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "store reply: %zu values in %zu bytes, want %zu", values,
                       body, value_count);
    }
    *body_bytes = body;
    return TUTTI_OK;
}

/* The server's words become ours; a status that we do not know counts as PEER. */
static tutti_status_t fail_like_server(int32_t status, tutti_bytes_t words)
{
    char text[TT_ERROR_TEXT_BYTES];
    tt_bytes_print(words, text, sizeof text);
    const bool is_known = strcmp(tutti_status_name((tutti_status_t)status), "TUTTI_ERR_?") != 0;
    return tt_fail_again(is_known ? (tutti_status_t)status : TUTTI_ERR_PEER, text);
}

tutti_status_t tt_store_reply_unpack(const uint8_t head[TT_STORE_REPLY_HEAD], const uint8_t *body,
                                     size_t value_count, tt_store_reply_t *out)
{
    const int32_t status = (int32_t)tt_get_u32(head + 4);
    const uint8_t *at = body, *end = body + tt_get_u32(head);
    tutti_bytes_t value = {0};
    for (size_t i = 0; i < (status < 0 ? 1 : value_count); i++) {
        at = unpack_spans(at, end, 1, &value);
        if (at == NULL || value.bytes > TUTTI_STORE_VALUE_BYTES_MAX) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "store reply: value %zu does not fit", i);
        }
        if (status >= 0) {
            TT_TRY(tt_buffer_copy(value, &out->values[i]));
        }
    }
    if (at != end) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "store reply: %zd bytes behind its values", end - at);
    }
    out->number = (int64_t)tt_get_u64(head + 8);
    return status < 0 ? fail_like_server(status, value) : TUTTI_OK;
}
