/**
 * @file store.h
 * A small table of keys and values that all ranks see: how they meet, and agree on little things.
 *
 * Example:
 *
 *     tutti_store_t *store;
 *     TUTTI_CHECK(tutti_store_tcp_connect("127.0.0.1", 29500, 0, &store));
 *     if (rank == 0) {
 *         TUTTI_CHECK(
 *             tutti_store_set(store, tutti_text("seed"), tutti_bytes_of(&seed, sizeof seed)));
 *     }
 *     tutti_buffer_t value;
 *     TUTTI_CHECK(tutti_store_get(store, tutti_text("seed"), 10000, &value)); // waits for rank 0
 *     tutti_buffer_release(&value);
 *     tutti_store_release(store);
 *
 * Four kinds: `hash` lives in one process and is shared by ranks that are threads; `file` is one
 * file that processes of a host share; `tcp` is a server in one process and a client in each
 * other; `prefix` is a view of another store in which every key starts with "<prefix>/".
 *
 * Each call is atomic: other ranks see all of it or nothing. Every wait has a deadline, and the
 * text of its TIMEOUT names the keys that are missing. A `timeout_ms` of 0 means the store's own
 * (300 s, or what tutti_store_set_timeout() said); negative ones are refused.
 *
 * All calls on a store may be made from any thread, at the same time, also while another thread
 * waits in the same store.
 *
 * Unlike torch.distributed: keys are bytes too; `add` on a value that is not a number is an error;
 * `num_keys` counts no key of the store's own; deleting and appending work in every store.
 */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/objects.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A store; reference-counted, any thread. */
typedef struct tutti_store tutti_store_t;

/** What a store takes; more is refused with ARG, before anything is allocated or sent. */
enum {
    TUTTI_STORE_KEY_BYTES_MAX = 1 << 10,
    TUTTI_STORE_VALUE_BYTES_MAX = 1 << 24,
    TUTTI_STORE_BATCH_KEYS_MAX = 1 << 12,  /**< keys of one call */
    TUTTI_STORE_BATCH_BYTES_MAX = 1 << 26, /**< keys and values of one call together */
    TUTTI_STORE_KEYS_MAX = 1 << 20,        /**< keys of a store */
    TUTTI_STORE_BYTES_MAX = 1 << 30,       /**< values of a store together */
    TUTTI_STORE_TIMEOUT_MS_DEFAULT = 300000
};

/**
 * A store inside this process.
 *
 * @param out    owned by the caller
 * @thread       any
 * @cost         a lock and a hash look-up for each call
 * @errors       NOMEM
 * @source       torch.distributed.HashStore
 */
TUTTI_API tutti_status_t tutti_store_hash_create(tutti_store_t **out);

/**
 * A store in one file, which is made when it does not exist; what an earlier run left in the file
 * is still there. A process that dies, even while it writes, leaves the file usable.
 *
 * @param path   a regular file, no symbolic link, on a file system whose locks (flock) reach all
 *               ranks
 * @param out    owned by the caller; the file stays when the store is released
 * @thread       any
 * @cost         a lock and the unread end of the file for each call; waiting polls every 1-10 ms
 * @errors       ARG, IO, FORMAT (names file and offset), TIMEOUT (the lock), NOMEM
 * @source       torch.distributed.FileStore
 */
TUTTI_API tutti_status_t tutti_store_file_open(const char *path, tutti_store_t **out);

/**
 * A store that serves others: it listens, and can be used here directly as well. Clients must
 * prove the job's key (TUTTI_KEY_FILE, or what `tutti run` hands over); TUTTI_PROTECT=off does
 * without, on loopback only.
 *
 * @param host   an address of this host, or a name: the first of its addresses that is this host's;
 *               NULL: 127.0.0.1
 * @param port   0 lets the system choose; tutti_store_port() tells
 * @param out    owned by the caller; the last release closes all connections
 * @thread       any; one thread of its own serves all clients
 * @errors       ARG, AUTH (no key), UNSUPPORTED (all addresses; one that is not loopback, without
 *               protection), IO (names address and port)
 * @source       torch.distributed.TCPStore(is_master=True)
 */
TUTTI_API tutti_status_t tutti_store_tcp_listen(const char *host, int port, tutti_store_t **out);

/**
 * A client of a store that listens elsewhere. Tries again until a store listens there or the time
 * is up.
 *
 * @param timeout_ms  for connecting; 0: 300 s
 * @param out         owned by the caller
 * @thread            any; concurrent calls use a connection each
 * @cost              one round trip for each call
 * @errors            ARG, AUTH (no key, or another one), TIMEOUT, IO, PEER (it closes connections),
 *                    MISMATCH (what listens there is no store)
 * @source            torch.distributed.TCPStore(is_master=False)
 */
TUTTI_API tutti_status_t tutti_store_tcp_connect(const char *host, int port, int64_t timeout_ms,
                                                 tutti_store_t **out);

/**
 * A view of `base` in which key k stands for "<prefix>/k". Views can be nested.
 *
 * @param base    retained by the view
 * @param prefix  any bytes, at least one
 * @param out     owned by the caller
 * @thread        any
 * @errors        ARG, NOMEM
 * @source        torch.distributed.PrefixStore
 */
TUTTI_API tutti_status_t tutti_store_prefix(tutti_store_t *base, tutti_bytes_t prefix,
                                            tutti_store_t **out);

/** One more owner. @thread any @errors none */
TUTTI_API tutti_store_t *tutti_store_retain(tutti_store_t *store);

/** One owner fewer; the last one closes the store. NULL is fine. @thread any @errors none */
TUTTI_API void tutti_store_release(tutti_store_t *store);

/** "hash", "file", "tcp", "tcp_server" or "prefix"; "" for NULL. @thread any @errors none */
TUTTI_API const char *tutti_store_kind(const tutti_store_t *store);

/** The port that a tcp store listens on or is connected to; 0 for others. @thread any @errors none
 */
TUTTI_API int tutti_store_port(const tutti_store_t *store);

/** The time that calls with `timeout_ms` 0 may take, at least 1 ms. @thread any @errors ARG */
TUTTI_API tutti_status_t tutti_store_set_timeout(tutti_store_t *store, int64_t timeout_ms);

/**
 * Make all calls under way, and all later ones, fail with ABORTED. Does not wait. A view aborts
 * its base; a server aborts for this process only.
 *
 * @thread  any
 * @errors  none
 */
TUTTI_API void tutti_store_abort(tutti_store_t *store);

/** Store a value under a key, over what was there. @thread any @errors ARG (a limit), NOMEM (the
 * store is full), IO, FORMAT, PEER (the server is gone), TIMEOUT, ABORTED: so for every call */
TUTTI_API tutti_status_t tutti_store_set(tutti_store_t *store, tutti_bytes_t key,
                                         tutti_bytes_t value);

/**
 * The value of a key, as soon as there is one.
 *
 * @param timeout_ms  how long to wait for the key; 0: the store's own
 * @param out         owned by the caller; written on success only
 * @thread            any
 * @errors            TIMEOUT, which names the key
 */
TUTTI_API tutti_status_t tutti_store_get(tutti_store_t *store, tutti_bytes_t key,
                                         int64_t timeout_ms, tutti_buffer_t *out);

/**
 * Add to a number; a key that does not exist counts as 0. The value is decimal text, so that get
 * can read it and set can start it.
 *
 * @param now     out, the sum; may be NULL
 * @thread        any
 * @errors        ARG when the value is no number, or the sum does not fit 64 bits
 */
TUTTI_API tutti_status_t tutti_store_add(tutti_store_t *store, tutti_bytes_t key, int64_t amount,
                                         int64_t *now);

/**
 * Store `desired` if the key holds `expected`, or if it does not exist and `expected` is empty.
 *
 * @param now     out, owned by the caller: what the key holds now; `expected` if it does not exist
 * @thread        any
 * @errors        as tutti_store_set()
 */
TUTTI_API tutti_status_t tutti_store_compare_set(tutti_store_t *store, tutti_bytes_t key,
                                                 tutti_bytes_t expected, tutti_bytes_t desired,
                                                 tutti_buffer_t *now);

/** Add to the end of a value; a key that does not exist counts as empty. @thread any
 * @errors as tutti_store_set(); ARG when the value would become too long */
TUTTI_API tutti_status_t tutti_store_append(tutti_store_t *store, tutti_bytes_t key,
                                            tutti_bytes_t value);

/** Wait until all keys exist at once. @param timeout_ms 0: the store's own @thread any
 * @errors TIMEOUT, which names the missing keys */
TUTTI_API tutti_status_t tutti_store_wait(tutti_store_t *store, const tutti_bytes_t *keys,
                                          size_t key_count, int64_t timeout_ms);

/** Whether all keys exist now. @thread any @errors as tutti_store_set() */
TUTTI_API tutti_status_t tutti_store_check(tutti_store_t *store, const tutti_bytes_t *keys,
                                           size_t key_count, bool *all_exist);

/** Remove a key. @param existed out; may be NULL @thread any @errors as tutti_store_set() */
TUTTI_API tutti_status_t tutti_store_delete(tutti_store_t *store, tutti_bytes_t key, bool *existed);

/**
 * The value of a key as soon as it is another than the one that is known already. A key that does
 * not exist, or goes away, is waited for; changes that follow each other quickly may be seen as
 * one.
 *
 * @param known       the value that the caller has; empty for a first look
 * @param timeout_ms  0: the store's own
 * @param out         owned by the caller; written on success only
 * @thread            any
 * @errors            TIMEOUT, which names the key
 */
TUTTI_API tutti_status_t tutti_store_watch(tutti_store_t *store, tutti_bytes_t key,
                                           tutti_bytes_t known, int64_t timeout_ms,
                                           tutti_buffer_t *out);

/**
 * The keys that begin with `start`, in the order of their bytes; in a view, those of the view,
 * without its prefix. tutti_store_list_next() reads the list.
 *
 * @param start   empty for all keys
 * @param out     owned by the caller
 * @thread        any
 * @cost          looks at every key of the store
 * @errors        ARG when the keys have more than TUTTI_STORE_VALUE_BYTES_MAX bytes
 */
TUTTI_API tutti_status_t tutti_store_list(tutti_store_t *store, tutti_bytes_t start,
                                          tutti_buffer_t *out);

/**
 * The next key of a list; false at its end.
 *
 * @param at      0 at first, moves on
 * @param key     out, a view into the list
 * @thread        any
 * @errors        none
 */
TUTTI_API bool tutti_store_list_next(const tutti_buffer_t *list, size_t *at, tutti_bytes_t *key);

/** How many keys there are; in a view, those of the view. @thread any @errors as tutti_store_set()
 */
TUTTI_API tutti_status_t tutti_store_num_keys(tutti_store_t *store, size_t *count);

/** Store several values at once. @param values [key_count] @thread any @errors as tutti_store_set()
 */
TUTTI_API tutti_status_t tutti_store_multi_set(tutti_store_t *store, const tutti_bytes_t *keys,
                                               const tutti_bytes_t *values, size_t key_count);

/**
 * Several values, as soon as all keys exist.
 *
 * @param out     [key_count], each owned by the caller; written on success only
 * @thread        any
 * @errors        TIMEOUT, which names the missing keys
 */
TUTTI_API tutti_status_t tutti_store_multi_get(tutti_store_t *store, const tutti_bytes_t *keys,
                                               size_t key_count, int64_t timeout_ms,
                                               tutti_buffer_t *out);

#ifdef __cplusplus
}
#endif

#endif
