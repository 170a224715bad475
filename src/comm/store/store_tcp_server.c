/* The server of a tcp store: a hub, and a thread with an event loop that serves it to clients.
 *
 * A connection that has not proved the job's key and said hello within 5 s is closed, and nothing
 * else happens; there are few of these (net/admission.h).
 *
 * Cost: one thread; a request is one look-up, and wakes those only who wait for its key.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "comm/store/store_tcp_server_impl.h"
#include "core/base/alloc.h"
#include "core/base/thread.h"

enum { STRANGERS_MAX = 512, LOOKUP_MS = 30000 };

static void on_arrival(void *user)
{
    tt_server_t *server = user;
    char hello[TT_STORE_HELLO_BYTES];
    tt_channel_t *channel;
    while (tt_admission_next(&server->admission, hello, &channel) == TUTTI_OK) {
        tt_served_add(server, channel, hello);
    }
}

static void on_woken(void *user)
{
    tt_server_t *server = user;
    if (server->is_stopping) {
        tt_loop_stop(server->loop);
        return;
    }
    for (tt_served_t *client; (client = tt_served_pop(server)) != NULL;) {
        tt_served_serve(client);
    }
}

static void *run_loop(void *user)
{
    tt_server_t *server = user;
    tt_loop_run(server->loop);
    return NULL;
}

/* Others could reach it there: only who is asked in, and only by the way that was meant. */
static tutti_status_t check_address(const char *address, const tt_credentials_t *credentials)
{
    if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "store: %s is every address of this host; listen on the one that the "
                       "others use",
                       address);
    }
    if (!tt_address_is_loopback(address) && tt_credentials_protect(credentials) == TT_PROTECT_OFF) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "store: %s is no loopback address, and TUTTI_PROTECT is off, so that "
                       "anybody could take part; use TUTTI_PROTECT=auth or encrypt",
                       address);
    }
    return TUTTI_OK;
}

/* At the first of the host's addresses that is one of this host's. */
static tutti_status_t listen_at(tutti_store_t *store, const tt_addresses_t *list, int port)
{
    tt_server_t *server = store->state;
    tutti_status_t status = TUTTI_ERR_ARG;
    for (int i = 0; i < list->count; i++) {
        TT_TRY(tt_address_print(list, i, store->address));
        TT_TRY(check_address(store->address, server->credentials));
        status = tt_admission_open(&server->admission, store->address, port);
        if (status >= 0) {
            return tt_watch_create(server->loop, server->admission.fd, on_arrival, server,
                                   &server->arrivals);
        }
    }
    return status;
}

static tutti_status_t open_server(tutti_store_t *store, const tt_addresses_t *list, int port)
{
    tt_server_t *server = store->state;
    server->admission = (tt_admission_t){.credentials = server->credentials,
                                         .name = "the store",
                                         .first_bytes = TT_STORE_HELLO_BYTES,
                                         .most = STRANGERS_MAX,
                                         .is_hasty = true};
    TT_TRY(tt_loop_create(on_woken, server, &server->loop));
    TT_TRY(listen_at(store, list, port));
    TT_TRY(tt_hub_init(&server->hub));
    const tutti_status_t status = tt_thread_start(run_loop, server, "store", &server->thread);
    if (status < 0) {
        tt_hub_fini(&server->hub);
    }
    return status;
}

static void close_loop(tt_server_t *server)
{
    tt_watch_close(server->arrivals);
    tt_admission_close(&server->admission);
    tt_loop_release(server->loop);
    tt_credentials_release(server->credentials);
}

static void close_store(void *state)
{
    tt_server_t *server = state;
    server->is_stopping = true;
    tt_loop_wake(server->loop);
    pthread_join(server->thread, NULL);
    while (!LIST_EMPTY(&server->clients)) {
        tt_served_drop(LIST_FIRST(&server->clients));
    }
    close_loop(server);
    tt_hub_fini(&server->hub);
}

const tt_store_ops_t tt_store_tcp_server_ops = {
    .name = "tcp_server",
    .about = "in this process, served to others over tcp",
    .state_bytes = sizeof(tt_server_t),
    .perform = tt_hub_perform,
    .abort = tt_hub_abort,
    .close = close_store,
};

tutti_status_t tt_store_tcp_listen(const char *host, int port, tt_credentials_t *credentials,
                                   tutti_store_t **out)
{
    if (port < 0 || port > 65535) {
        return TT_FAIL(TUTTI_ERR_ARG, "store: port %d; want 0 to 65535", port);
    }
    tt_addresses_t list;
    TT_TRY(tt_addresses_find(host != NULL ? host : "127.0.0.1", port, tt_deadline_in_ms(LOOKUP_MS),
                             &list));
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_tcp_server_ops, &store));
    tt_server_t *server = store->state;
    store->credentials = server->credentials = tt_credentials_retain(credentials);
    const tutti_status_t status = open_server(store, &list, port);
    if (status < 0) {
        close_loop(server);
        tt_store_discard(store);
        return status;
    }
    store->port = ntohs(server->admission.where.four.sin_port);
    *out = store;
    return TUTTI_OK;
}

tutti_status_t tutti_store_tcp_listen(const char *host, int port, tutti_store_t **out)
{
    TT_WANT("store_tcp_listen", out);
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_find(host, 0, &credentials));
    const tutti_status_t status = tt_store_tcp_listen(host, port, credentials, out);
    tt_credentials_release(credentials);
    return status;
}
