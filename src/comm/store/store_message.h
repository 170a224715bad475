/* What is asked of a store and what it answers, as structs and as bytes. The same bytes travel
 * between a tcp client and its server and lie in a file store's log (docs/formats/store.md).
 */
#ifndef TT_STORE_MESSAGE_H
#define TT_STORE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/store.h>

/* Every operation: X(name, number, text, keys at least, keys at most, values per key,
 * values in the reply per key, whether it writes). */
#define TT_STORE_OP_LIST(X)                                                                        \
    X(SET, 1, "set", 1, TUTTI_STORE_BATCH_KEYS_MAX, 1, 0, true)                                    \
    X(GET, 2, "get", 1, TUTTI_STORE_BATCH_KEYS_MAX, 0, 1, false)                                   \
    X(ADD, 3, "add", 1, 1, 0, 0, true)                                                             \
    X(COMPARE_SET, 4, "compare_set", 1, 1, 2, 1, true)                                             \
    X(WAIT, 5, "wait", 1, TUTTI_STORE_BATCH_KEYS_MAX, 0, 0, false)                                 \
    X(CHECK, 6, "check", 1, TUTTI_STORE_BATCH_KEYS_MAX, 0, 0, false)                               \
    X(DELETE, 7, "delete", 1, TUTTI_STORE_BATCH_KEYS_MAX, 0, 0, true)                              \
    X(NUM_KEYS, 8, "num_keys", 0, 1, 0, 0, false)                                                  \
    X(APPEND, 9, "append", 1, 1, 1, 0, true)                                                       \
    X(WILL, 10, "will", 1, 1, 1, 0, false)                                                         \
    X(LIST, 11, "list", 1, 1, 0, 1, false)                                                         \
    X(WATCH, 12, "watch", 1, 1, 1, 1, false)

typedef enum {
#define X(name, number, ...) TT_STORE_##name = (number),
    TT_STORE_OP_LIST(X)
#undef X
} tt_store_op_t;

typedef struct {
    const char *text;
    size_t keys_min, keys_max, values_per_key, replies_per_key;
    bool is_write;
} tt_store_rule_t;

/* NULL for a number that is no operation. */
const tt_store_rule_t *tt_store_rule(unsigned op);

/* Borrowed throughout. There are key_count × values_per_key values. NUM_KEYS counts the keys that
 * begin with its key, or all; LIST names them, in one value: a u32 length and the bytes of each, in
 * their order. WATCH waits for a value other than its own. `number` is what ADD adds. */
typedef struct {
    tt_store_op_t op;
    size_t key_count;
    const tutti_bytes_t *keys, *values;
    int64_t number;
} tt_store_request_t;

/* number: the sum of ADD, 1 or 0 of CHECK, the keys removed by DELETE, the count of NUM_KEYS, LIST.
 * values: room for key_count × replies_per_key, owned by the caller; all empty after a failure. */
typedef struct {
    int64_t number;
    tutti_buffer_t *values;
} tt_store_reply_t;

/* Counts and lengths against the limits of store.h; ARG names the limit. */
tutti_status_t tt_store_request_check(const tt_store_request_t *request);

enum {
    TT_STORE_REQUEST_HEAD = 32,
    TT_STORE_REPLY_HEAD = 24,
    /* Keys and values of a batch, and their lengths. */
    TT_STORE_BODY_MAX = TUTTI_STORE_BATCH_BYTES_MAX + TUTTI_STORE_BATCH_KEYS_MAX * 3 * 4
};

/* The whole message, owned by the caller. */
tutti_status_t tt_store_request_pack(const tt_store_request_t *request, uint32_t timeout_ms,
                                     tutti_buffer_t *out);

/* Of a failure tutti_last_error() is packed in place of the values. */
tutti_status_t tt_store_reply_pack(tutti_status_t status, const tt_store_reply_t *reply,
                                   size_t value_count, tutti_buffer_t *out);

/* Of a request's head: the bytes of its body, after everything in the head has been checked. */
tutti_status_t tt_store_request_head(const uint8_t head[TT_STORE_REQUEST_HEAD], size_t *body_bytes);

/* A request out of head and body; its views point into body. `spans` is freed with tt_free(). */
tutti_status_t tt_store_request_unpack(const uint8_t head[TT_STORE_REQUEST_HEAD],
                                       const uint8_t *body, tt_store_request_t *out,
                                       uint32_t *timeout_ms, tutti_bytes_t **spans);

/* Of a reply's head: the bytes of its body; FORMAT when it cannot be an answer to the request. */
tutti_status_t tt_store_reply_head(const uint8_t head[TT_STORE_REPLY_HEAD], size_t value_count,
                                   size_t *body_bytes);

/* A reply out of head and body. A failure of the server's becomes ours, with its text. */
tutti_status_t tt_store_reply_unpack(const uint8_t head[TT_STORE_REPLY_HEAD], const uint8_t *body,
                                     size_t value_count, tt_store_reply_t *out);

#endif
