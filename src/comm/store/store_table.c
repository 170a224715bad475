/* A chained hash table of keys, XXH3 with a seed of this process, doubled when it is full.
 *
 * A waiter hangs on one missing key of its request at a time, or on a key whose value it watches.
 * When that key is stored, the waiter moves on to the next one that is missing, or is ready. So a
 * store of one key touches only the waiters of this key, however many wait. An entry without a
 * value is there for its waiters only.
 */
#include "comm/store/store_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/config.h"
#include "core/base/little_endian.h"

typedef struct tt_table_entry {
    struct tt_table_entry *next;
    uint64_t hash;
    tutti_buffer_t value; /* data NULL: no such key */
    LIST_HEAD(, tt_table_waiter) waiters;
    size_t key_bytes;
    uint8_t key[];
} entry_t;

struct tt_table {
    entry_t **buckets;
    size_t bucket_count, entry_count;         /* entries with and without a value */
    size_t key_count, key_bytes, value_bytes; /* of entries with a value */
    uint64_t seed;
};

tutti_status_t tt_table_create(tt_table_t **out)
{
    tt_table_t *table = tt_alloc(sizeof *table, "store table");
    TT_TRY_ALLOC(table);
    table->bucket_count = 64;
    table->buckets = tt_alloc_array(table->bucket_count, sizeof(entry_t *), "store buckets");
    if (table->buckets == NULL) {
        tt_free(table);
        return TUTTI_ERR_NOMEM;
    }
    /* Strangers must not be able to choose keys that collide. */
    if (getrandom(&table->seed, sizeof table->seed, GRND_NONBLOCK) != sizeof table->seed) {
        table->seed = (uint64_t)tt_clock_ns();
    }
    *out = table;
    return TUTTI_OK;
}

void tt_table_release(tt_table_t *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (entry_t *entry = table->buckets[i], *next; entry != NULL; entry = next) {
            TT_ASSERT(LIST_EMPTY(&entry->waiters));
            next = entry->next;
            tutti_buffer_release(&entry->value);
            tt_free(entry);
        }
    }
    tt_free(table->buckets);
    tt_free(table);
}

/* The link that points to the entry of a key, or to NULL where it would be put. */
static entry_t **find_link(const tt_table_t *table, tutti_bytes_t key, uint64_t *hash)
{
    *hash = XXH3_64bits_withSeed(key.data, key.bytes, table->seed);
    entry_t **link = &table->buckets[*hash & (table->bucket_count - 1)];
    while (*link != NULL &&
           ((*link)->hash != *hash ||
            !tt_bytes_equal(tutti_bytes_of((*link)->key, (*link)->key_bytes), key))) {
        link = &(*link)->next;
    }
    return link;
}

/* NULL when the key does not exist. */
static entry_t *find_value(const tt_table_t *table, tutti_bytes_t key)
{
    uint64_t hash;
    entry_t *entry = *find_link(table, key, &hash);
    return entry != NULL && entry->value.data != NULL ? entry : NULL;
}

static void grow(tt_table_t *table)
{
    const size_t count = table->bucket_count * 2;
    entry_t **buckets = tt_alloc_array(count, sizeof *buckets, "store buckets");
    if (buckets == NULL) {
        return; /* longer chains, nothing worse */
    }
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (entry_t *entry = table->buckets[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = buckets[entry->hash & (count - 1)];
            buckets[entry->hash & (count - 1)] = entry;
        }
    }
    tt_free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = count;
}

static tutti_status_t find_or_add(tt_table_t *table, tutti_bytes_t key, entry_t **out)
{
    if (table->entry_count >= table->bucket_count) {
        grow(table);
    }
    uint64_t hash;
    entry_t **link = find_link(table, key, &hash);
    if (*link == NULL) {
        entry_t *entry = tt_alloc(sizeof *entry + key.bytes, "store entry");
        TT_TRY_ALLOC(entry);
        entry->hash = hash;
        entry->key_bytes = key.bytes;
        if (key.bytes > 0) {
            memcpy(entry->key, key.data, key.bytes);
        }
        *link = entry;
        table->entry_count++;
    }
    *out = *link;
    return TUTTI_OK;
}

static void drop_if_unused(tt_table_t *table, tutti_bytes_t key)
{
    uint64_t hash;
    entry_t **link = find_link(table, key, &hash), *entry = *link;
    if (entry != NULL && entry->value.data == NULL && LIST_EMPTY(&entry->waiters)) {
        *link = entry->next;
        tt_free(entry);
        table->entry_count--;
    }
}

/* NULL when the request need not wait. */
static const tutti_bytes_t *find_missing(const tt_table_t *table, const tt_store_request_t *request)
{
    for (size_t i = 0; i < request->key_count; i++) {
        const entry_t *entry = find_value(table, request->keys[i]);
        if (entry == NULL || (request->op == TT_STORE_WATCH &&
                              tt_bytes_equal(tt_buffer_view(&entry->value), request->values[0]))) {
            return &request->keys[i];
        }
    }
    return NULL;
}

tutti_status_t tt_table_await(tt_table_t *table, tt_table_waiter_t *waiter)
{
    const tutti_bytes_t *missing = find_missing(table, waiter->request);
    TT_ASSERT(missing != NULL);
    entry_t *entry;
    TT_TRY(find_or_add(table, *missing, &entry));
    waiter->entry = entry;
    LIST_INSERT_HEAD(&entry->waiters, waiter, link);
    return TUTTI_OK;
}

static void unhang(tt_table_waiter_t *waiter)
{
    LIST_REMOVE(waiter, link);
    waiter->entry = NULL;
}

void tt_table_forget(tt_table_t *table, tt_table_waiter_t *waiter)
{
    const entry_t *entry = waiter->entry;
    if (entry != NULL) {
        unhang(waiter);
        drop_if_unused(table, tutti_bytes_of(entry->key, entry->key_bytes));
    }
}

/* The entry has a new value: its waiters hang on another missing key (or on this one, if they watch
 * it for another value), or are ready. If there is no memory to hang one elsewhere, it is
 * made ready: it asks again, and gets the failure. */
static void wake_waiters(tt_table_t *table, entry_t *entry)
{
    tt_table_waiter_t *next, *waiter = LIST_FIRST(&entry->waiters);
    for (; waiter != NULL; waiter = next) {
        next = LIST_NEXT(waiter, link); /* one that is hung on this entry again stands before it */
        unhang(waiter);
        if (find_missing(table, waiter->request) == NULL || tt_table_await(table, waiter) < 0) {
            waiter->ready(waiter);
        }
    }
}

static tutti_status_t check_room(const tt_table_t *table, size_t keys, size_t bytes)
{
    if (table->key_count + keys > TUTTI_STORE_KEYS_MAX ||
        table->value_bytes + bytes > TUTTI_STORE_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM,
                       "store is full: %zu keys of %d, %zu bytes of %d; delete what is done with",
                       table->key_count, TUTTI_STORE_KEYS_MAX, table->value_bytes,
                       TUTTI_STORE_BYTES_MAX);
    }
    return TUTTI_OK;
}

/* What a batch adds: keys that are not there, and what its values are longer than those they take
 * the place of. A key that a batch names twice counts for too much rather than too little. */
static tutti_status_t check_room_for(const tt_table_t *table, const tutti_bytes_t *keys,
                                     const tutti_bytes_t *values, size_t count)
{
    size_t more_keys = 0, more_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const entry_t *entry = find_value(table, keys[i]);
        const size_t before = entry != NULL ? entry->value.bytes : 0;
        more_keys += entry == NULL;
        more_bytes += values[i].bytes > before ? values[i].bytes - before : 0;
    }
    return check_room(table, more_keys, more_bytes);
}

/* Takes the buffer over. */
static void put_value(tt_table_t *table, entry_t *entry, tutti_buffer_t value)
{
    table->key_count += entry->value.data == NULL;
    table->key_bytes += entry->value.data == NULL ? entry->key_bytes : 0;
    table->value_bytes += value.bytes - entry->value.bytes;
    tutti_buffer_release(&entry->value);
    entry->value = value;
    wake_waiters(table, entry);
}

/* Two steps, so that a batch is stored whole or not at all: copies first, then the exchange. */
static tutti_status_t store_values(tt_table_t *table, const tutti_bytes_t *keys,
                                   const tutti_bytes_t *values, size_t count)
{
    TT_TRY(check_room_for(table, keys, values, count));
    entry_t **entries = tt_alloc_array(count, sizeof *entries, "store batch");
    tutti_buffer_t *copies = tt_alloc_array(count, sizeof *copies, "store batch");
    tutti_status_t status = entries == NULL || copies == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (size_t i = 0; status == TUTTI_OK && i < count; i++) {
        status = tt_buffer_copy(values[i], &copies[i]);
        if (status == TUTTI_OK) {
            status = find_or_add(table, keys[i], &entries[i]);
        }
    }
    for (size_t i = 0; copies != NULL && entries != NULL && i < count; i++) {
        if (status == TUTTI_OK) {
            put_value(table, entries[i], copies[i]);
        } else {
            tutti_buffer_release(&copies[i]);
            drop_if_unused(table, keys[i]);
        }
    }
    tt_free(entries);
    tt_free(copies);
    return status;
}

static tutti_status_t apply_set(tt_table_t *table, const tt_store_request_t *request,
                                tt_store_reply_t *reply)
{
    (void)reply;
    return store_values(table, request->keys, request->values, request->key_count);
}

static tutti_status_t apply_get(tt_table_t *table, const tt_store_request_t *request,
                                tt_store_reply_t *reply)
{
    if (find_missing(table, request) != NULL) {
        return TUTTI_PENDING;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < request->key_count; i++) {
        bytes += find_value(table, request->keys[i])->value.bytes;
    }
    if (bytes > TUTTI_STORE_BATCH_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "store get: %zu keys hold %zu bytes; at most %d in a call",
                       request->key_count, bytes, TUTTI_STORE_BATCH_BYTES_MAX);
    }
    for (size_t i = 0; i < request->key_count; i++) {
        const tutti_buffer_t *value = &find_value(table, request->keys[i])->value;
        TT_TRY(tt_buffer_copy(tt_buffer_view(value), &reply->values[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t apply_wait(tt_table_t *table, const tt_store_request_t *request,
                                 tt_store_reply_t *reply)
{
    (void)reply;
    return find_missing(table, request) != NULL ? TUTTI_PENDING : TUTTI_OK;
}

static tutti_status_t apply_check(tt_table_t *table, const tt_store_request_t *request,
                                  tt_store_reply_t *reply)
{
    reply->number = find_missing(table, request) == NULL;
    return TUTTI_OK;
}

static tutti_status_t apply_add(tt_table_t *table, const tt_store_request_t *request,
                                tt_store_reply_t *reply)
{
    char name[64];
    tt_bytes_print(request->keys[0], name, sizeof name);
    const entry_t *entry = find_value(table, request->keys[0]);
    int64_t sum = 0;
    /* A buffer has a 0 behind it; one inside it makes the text shorter than the value. */
    if (entry != NULL && (strlen(entry->value.data) != entry->value.bytes ||
                          !tt_parse_int(entry->value.data, &sum))) {
        return TT_FAIL(TUTTI_ERR_ARG, "store add: \"%s\" holds %zu bytes that are not a number",
                       name, entry->value.bytes);
    }
    const int64_t before = sum;
    if (__builtin_add_overflow(before, request->number, &sum)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "store add: \"%s\" holds %" PRId64 ", %" PRId64 " more is "
                       "too much for 64 bits",
                       name, before, request->number);
    }
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, sum);
    const tutti_bytes_t value = tutti_text(text);
    TT_TRY(store_values(table, request->keys, &value, 1));
    reply->number = sum;
    return TUTTI_OK;
}

static tutti_status_t apply_compare_set(tt_table_t *table, const tt_store_request_t *request,
                                        tt_store_reply_t *reply)
{
    const tutti_bytes_t expected = request->values[0], desired = request->values[1];
    const entry_t *entry = find_value(table, request->keys[0]);
    const bool is_stored = entry == NULL ? expected.bytes == 0
                                         : tt_bytes_equal(tt_buffer_view(&entry->value), expected);
    tutti_bytes_t now = entry == NULL ? expected : tt_buffer_view(&entry->value);
    now = is_stored ? desired : now;
    TT_TRY(tt_buffer_copy(now, &reply->values[0]));
    return is_stored ? store_values(table, request->keys, &desired, 1) : TUTTI_OK;
}

static tutti_status_t apply_append(tt_table_t *table, const tt_store_request_t *request,
                                   tt_store_reply_t *reply)
{
    (void)reply;
    entry_t *entry = find_value(table, request->keys[0]);
    const tutti_bytes_t more = request->values[0];
    if (entry == NULL) {
        return store_values(table, request->keys, &more, 1);
    }
    const size_t bytes = entry->value.bytes + more.bytes;
    if (bytes > TUTTI_STORE_VALUE_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "store append: the value would have %zu bytes; at most %d",
                       bytes, TUTTI_STORE_VALUE_BYTES_MAX);
    }
    TT_TRY(check_room(table, 0, more.bytes));
    char *data = tt_realloc(entry->value.data, bytes + 1, "buffer");
    TT_TRY_ALLOC(data);
    if (more.bytes > 0) {
        memcpy(data + entry->value.bytes, more.data, more.bytes);
    }
    data[bytes] = 0;
    entry->value = (tutti_buffer_t){data, bytes};
    table->value_bytes += more.bytes;
    wake_waiters(table, entry);
    return TUTTI_OK;
}

static tutti_status_t apply_delete(tt_table_t *table, const tt_store_request_t *request,
                                   tt_store_reply_t *reply)
{
    reply->number = 0;
    for (size_t i = 0; i < request->key_count; i++) {
        entry_t *entry = find_value(table, request->keys[i]);
        if (entry != NULL) {
            table->key_count--;
            table->key_bytes -= entry->key_bytes;
            table->value_bytes -= entry->value.bytes;
            tutti_buffer_release(&entry->value);
            drop_if_unused(table, request->keys[i]);
            reply->number++;
        }
    }
    return TUTTI_OK;
}

static bool begins_with(const entry_t *entry, tutti_bytes_t start)
{
    return entry->key_bytes >= start.bytes &&
           (start.bytes == 0 || memcmp(entry->key, start.data, start.bytes) == 0);
}

static int compare_keys(const void *left, const void *right)
{
    const entry_t *a = *(const entry_t *const *)left, *b = *(const entry_t *const *)right;
    const size_t shorter = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    const int order = memcmp(a->key, b->key, shorter);
    return order != 0 ? order : (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

/* The entries whose keys begin so, at most `most`; their number. */
static size_t collect(const tt_table_t *table, tutti_bytes_t start, const entry_t **out,
                      size_t most, size_t *bytes)
{
    size_t count = 0;
    *bytes = 0;
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (const entry_t *entry = table->buckets[i]; entry != NULL; entry = entry->next) {
            if (entry->value.data != NULL && begins_with(entry, start)) {
                if (count < most) {
                    out[count] = entry;
                }
                count++;
                *bytes += 4 + entry->key_bytes;
            }
        }
    }
    return count;
}

static tutti_status_t apply_num_keys(tt_table_t *table, const tt_store_request_t *request,
                                     tt_store_reply_t *reply)
{
    size_t bytes;
    reply->number =
        (int64_t)(request->key_count == 0 ? table->key_count
                                          : collect(table, request->keys[0], NULL, 0, &bytes));
    return TUTTI_OK;
}

static tutti_status_t pack_keys(const entry_t **entries, size_t count, size_t bytes,
                                tutti_buffer_t *out)
{
    uint8_t *data = tt_alloc_raw(bytes + 1, "buffer");
    TT_TRY_ALLOC(data);
    uint8_t *at = data;
    for (size_t i = 0; i < count; i++) {
        tt_put_u32(at, (uint32_t)entries[i]->key_bytes);
        memcpy(at + 4, entries[i]->key, entries[i]->key_bytes);
        at += 4 + entries[i]->key_bytes;
    }
    *at = 0;
    *out = (tutti_buffer_t){data, bytes};
    return TUTTI_OK;
}

static tutti_status_t apply_list(tt_table_t *table, const tt_store_request_t *request,
                                 tt_store_reply_t *reply)
{
    size_t bytes;
    const size_t count = collect(table, request->keys[0], NULL, 0, &bytes);
    if (bytes > TUTTI_STORE_VALUE_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "store list: %zu keys of %zu bytes; at most %d in a call: ask for a longer "
                       "beginning",
                       count, bytes, TUTTI_STORE_VALUE_BYTES_MAX);
    }
    const entry_t **entries = tt_alloc_array(count, sizeof *entries, "store list");
    TT_TRY_ALLOC(entries);
    collect(table, request->keys[0], entries, count, &bytes);
    qsort(entries, count, sizeof *entries, compare_keys);
    const tutti_status_t status = pack_keys(entries, count, bytes, &reply->values[0]);
    tt_free(entries);
    reply->number = (int64_t)count;
    return status;
}

static tutti_status_t refuse_will(tt_table_t *table, const tt_store_request_t *request,
                                  tt_store_reply_t *reply)
{
    (void)table;
    (void)request;
    (void)reply;
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "store will: only a tcp store's client has a connection that can end");
}

tutti_status_t tt_table_apply(tt_table_t *table, const tt_store_request_t *request,
                              tt_store_reply_t *reply)
{
    static tutti_status_t (*const appliers[])(tt_table_t *, const tt_store_request_t *,
                                              tt_store_reply_t *) = {
        [TT_STORE_SET] = apply_set,       [TT_STORE_GET] = apply_get,
        [TT_STORE_ADD] = apply_add,       [TT_STORE_COMPARE_SET] = apply_compare_set,
        [TT_STORE_WAIT] = apply_wait,     [TT_STORE_CHECK] = apply_check,
        [TT_STORE_DELETE] = apply_delete, [TT_STORE_NUM_KEYS] = apply_num_keys,
        [TT_STORE_APPEND] = apply_append, [TT_STORE_WILL] = refuse_will,
        [TT_STORE_LIST] = apply_list,     [TT_STORE_WATCH] = apply_get,
    };
    const tutti_status_t status = appliers[request->op](table, request, reply);
    const size_t replies = request->key_count * tt_store_rule(request->op)->replies_per_key;
    for (size_t i = 0; status < 0 && i < replies; i++) {
        tutti_buffer_release(&reply->values[i]);
    }
    return status;
}

tutti_status_t tt_table_visit(const tt_table_t *table,
                              tutti_status_t (*visit)(void *user, tutti_bytes_t key,
                                                      tutti_bytes_t value),
                              void *user)
{
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (const entry_t *entry = table->buckets[i]; entry != NULL; entry = entry->next) {
            if (entry->value.data != NULL) {
                TT_TRY(visit(user, tutti_bytes_of(entry->key, entry->key_bytes),
                             tt_buffer_view(&entry->value)));
            }
        }
    }
    return TUTTI_OK;
}

size_t tt_table_record_bytes(const tt_table_t *table, size_t extra)
{
    return table->key_bytes + table->value_bytes + extra * table->key_count;
}

static tutti_status_t fail_unchanged(const tt_store_request_t *request)
{
    char name[64];
    tt_bytes_print(request->keys[0], name, sizeof name);
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "store watch: time is up, \"%s\" still holds what it held",
                   name);
}

tutti_status_t tt_table_fail_missing(const tt_table_t *table, const tt_store_request_t *request)
{
    enum { NAMED_MAX = 8 };
    char text[600] = "";
    size_t used = 0, missing = 0;
    for (size_t i = 0; i < request->key_count; i++) {
        if (find_value(table, request->keys[i]) == NULL && ++missing <= NAMED_MAX) {
            char key[64];
            tt_bytes_print(request->keys[i], key, sizeof key);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\"",
                                     used > 0 ? ", " : "", key);
        }
    }
    if (missing == 0) {
        return fail_unchanged(request); /* a watch */
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "store %s: time is up, %zu of %zu keys missing: %s%s",
                   tt_store_rule(request->op)->text, missing, request->key_count, text,
                   missing > NAMED_MAX ? ", ..." : "");
}
