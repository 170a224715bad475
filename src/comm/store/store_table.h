/* The keys and values of a store, and who waits for which key. Without locks: the owner of a table
 * serialises the calls (tt_hub_t by a mutex, the file store by its file's lock).
 */
#ifndef TT_STORE_TABLE_H
#define TT_STORE_TABLE_H

#include <sys/queue.h>

#include "comm/store/store_message.h"

typedef struct tt_table tt_table_t;
typedef struct tt_table_waiter tt_table_waiter_t;

/* A waiter for the keys of a request, which must stay until tt_table_forget() or
 * `ready`. `ready` is called once, inside the call that stored the last missing key; it must not
 * call the table. */
struct tt_table_waiter {
    const tt_store_request_t *request;
    void (*ready)(tt_table_waiter_t *waiter);
    void *user;
    struct tt_table_entry *entry; /* the missing key it hangs on; NULL: not waiting */
    LIST_ENTRY(tt_table_waiter) link;
};

tutti_status_t tt_table_create(tt_table_t **out);
void tt_table_release(tt_table_t *table);

/* Perform a request (checked already) at once. PENDING, and no change, when GET or WAIT miss keys.
 * A failure changes nothing either. */
tutti_status_t tt_table_apply(tt_table_t *table, const tt_store_request_t *request,
                              tt_store_reply_t *reply);

/* Hang a waiter on the first key that its request misses; at least one is missing. */
tutti_status_t tt_table_await(tt_table_t *table, tt_table_waiter_t *waiter);

/* Nothing when it does not wait (any more). */
void tt_table_forget(tt_table_t *table, tt_table_waiter_t *waiter);

/* Every key with its value, in no order, until `visit` fails; it must not call the table. */
tutti_status_t tt_table_visit(const tt_table_t *table,
                              tutti_status_t (*visit)(void *user, tutti_bytes_t key,
                                                      tutti_bytes_t value),
                              void *user);

/* Bytes of all keys and values, and `extra` for each. */
size_t tt_table_record_bytes(const tt_table_t *table, size_t extra);

/* TIMEOUT that names the keys of a request which are missing. */
tutti_status_t tt_table_fail_missing(const tt_table_t *table, const tt_store_request_t *request);

#endif
