/* The client of a tcp store: a request, a wait for its reply, on a connection of its own.
 *
 * A call takes an idle connection or opens one, so that threads wait beside each other; there are
 * as many connections as there were calls at the same time. The server keeps the deadline and
 * names what is missing; its answer has ANSWER_GRACE_MS to come, then the call ends without it. A
 * late answer is left to the next call on that connection, and only the channel's own verdict
 * (closed, fallen silent) ends one: a server that is late because it has much to do would otherwise
 * get handshakes on top. A will has a connection that serves nothing else, because closing it
 * executes the will.
 * The host's name is resolved once, for the first connection (net/lookup.h), by the same deadline.
 *
 * Until the deadline it tries to connect again where no server listens yet, or where the kernel
 * of the server's host refuses connections, because there are too many. A server that closes the
 * connection during the handshake may be under attack, and is tried again for a while; one that has
 * another key is not. One that has served this client, and cannot be reached for that while, is
 * gone: another one at its place would have other values. While this process has no port or
 * descriptor free, nothing is known of it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "comm/net/channel_wait.h"
#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"

enum { ANSWER_GRACE_MS = 100, REFUSED_MS = 2000, REDIAL_MS = 300, REDIAL_MS_MAX = 2400 };

/* The part of a reply that is there. */
typedef struct {
    bool is_due;   /* the request has been sent, and not been answered */
    size_t values; /* that an answer has */
    uint8_t head[TT_STORE_REPLY_HEAD];
    uint8_t *body; /* NULL: none, or the head is not whole */
    size_t head_done, body_bytes, body_done;
} arrived_t;

/* One more than needed is kept open for the next call; abort finds all of them in `busy`. */
typedef struct connection {
    tt_channel_t *channel; /* NULL: not connected; set under the mutex */
    bool has_will;         /* it serves wills only */
    bool is_broken;        /* it failed in the middle of a message, or for good */
    bool lacks;            /* no port or descriptor was free here when it was dialled last */
    arrived_t arrived;
    LIST_ENTRY(connection) link;
} connection_t;

typedef struct {
    pthread_mutex_t mutex; /* over the lists */
    LIST_HEAD(, connection) idle, busy;
    _Atomic bool is_aborted, was_served;
    int port;
    char *host;
    tt_addresses_t addresses; /* of the host, found once */
    tt_credentials_t *credentials;
} client_t;

/* Says where before what went wrong; an abort explains every failure. */
static tutti_status_t explain(const client_t *client, tutti_status_t status)
{
    if (client->is_aborted) {
        return TT_FAIL(TUTTI_ERR_ABORTED, "store at %s, port %d: aborted", client->host,
                       client->port);
    }
    return TT_FAIL(status, "store at %s, port %d: %s", client->host, client->port,
                   tutti_last_error());
}

/* Under the mutex; one that waits for a late answer only if there is no other. NULL: none is idle.
 */
static connection_t *find_idle(const client_t *client, bool has_will)
{
    connection_t *at, *late = NULL;
    LIST_FOREACH(at, &client->idle, link)
    {
        if (at->has_will == has_will && !at->arrived.is_due) {
            return at;
        }
        late = at->has_will == has_will ? at : late;
    }
    return late;
}

/* Connected or not; into the busy list either way, where an abort from now on finds it. A will
 * takes the connection of the last one. */
static tutti_status_t take(client_t *client, bool is_for_will, connection_t **out)
{
    pthread_mutex_lock(&client->mutex);
    if (client->is_aborted) {
        pthread_mutex_unlock(&client->mutex);
        return explain(client, TUTTI_ERR_ABORTED);
    }
    connection_t *connection = find_idle(client, is_for_will);
    if (connection == NULL && is_for_will) {
        connection = find_idle(client, false);
    }
    if (connection != NULL) {
        LIST_REMOVE(connection, link);
    } else {
        connection = tt_alloc(sizeof *connection, "store connection");
    }
    if (connection != NULL) {
        connection->has_will = is_for_will;
        LIST_INSERT_HEAD(&client->busy, connection, link);
    }
    pthread_mutex_unlock(&client->mutex);
    TT_TRY_ALLOC(connection);
    *out = connection;
    return TUTTI_OK;
}

static void free_connection(connection_t *connection)
{
    tt_channel_close(connection->channel);
    tt_free(connection->arrived.body);
    tt_free(connection);
}

static void give_back(client_t *client, connection_t *connection, bool is_usable)
{
    pthread_mutex_lock(&client->mutex);
    LIST_REMOVE(connection, link);
    if (is_usable) {
        LIST_INSERT_HEAD(&client->idle, connection, link);
    } else {
        free_connection(connection);
    }
    pthread_mutex_unlock(&client->mutex);
}

/* Where abort can find it. NULL closes what was there. */
static void set_channel(client_t *client, connection_t *connection, tt_channel_t *channel)
{
    pthread_mutex_lock(&client->mutex);
    tt_channel_close(connection->channel);
    connection->channel = channel;
    if (client->is_aborted && channel != NULL) {
        shutdown(tt_channel_fd(channel), SHUT_RDWR);
    }
    pthread_mutex_unlock(&client->mutex);
}

static tutti_status_t greet(const connection_t *connection, tt_deadline_t deadline)
{
    char hello[TT_STORE_HELLO_BYTES];
    TT_TRY(tt_channel_send_all(connection->channel, tt_store_hello, sizeof hello, deadline));
    const tutti_status_t status =
        tt_channel_recv_all(connection->channel, hello, sizeof hello, deadline);
    if (status == TUTTI_ERR_FORMAT ||
        (status >= 0 && memcmp(hello, tt_store_hello, sizeof hello) != 0)) {
        return TT_FAIL(TUTTI_ERR_MISMATCH, "what listens there is no tutti store");
    }
    return status;
}

/* A connect, or a first message, that is not acknowledged is tried again sooner than the kernel
 * does. PENDING: so it is. */
static tutti_status_t wait_open(tt_channel_t *channel, int64_t redial_ms, tt_deadline_t deadline)
{
    const tt_deadline_t redial = tt_deadline_in_ms(redial_ms);
    if (redial < deadline) {
        const tutti_status_t status = tt_channel_wait_open(channel, redial);
        if (status != TUTTI_ERR_TIMEOUT) {
            return status;
        }
        if (tt_channel_is_unheard(channel)) {
            return TUTTI_PENDING;
        }
    }
    return tt_channel_wait_open(channel, deadline);
}

/* PENDING: no server listens there yet, or no port or descriptor is free here. */
static tutti_status_t dial_address(client_t *client, connection_t *connection, int address,
                                   int64_t redial_ms, tt_deadline_t deadline)
{
    const tt_addresses_t *all = &client->addresses;
    tt_channel_t *channel;
    tutti_status_t status = tt_channel_connect((const struct sockaddr *)&all->address[address],
                                               all->bytes[address], client->credentials, &channel);
    connection->lacks &= status == TUTTI_ERR_IO;
    if (status < 0) {
        return status == TUTTI_ERR_PEER || status == TUTTI_ERR_IO ? TUTTI_PENDING : status;
    }
    set_channel(client, connection, channel);
    status = wait_open(channel, redial_ms, deadline);
    const bool has_connected = tt_channel_is_connected(channel);
    if (status == TUTTI_OK) {
        status = greet(connection, deadline);
    }
    if (status != TUTTI_OK) {
        set_channel(client, connection, NULL);
    } else {
        client->was_served = true;
    }
    return status == TUTTI_ERR_PEER && !has_connected ? TUTTI_PENDING : status;
}

/* An address without an answer must not use up the time of those behind it. */
static tt_deadline_t deadline_of(const client_t *client, int address, tt_deadline_t deadline)
{
    const tt_deadline_t share = tt_deadline_in_ms(TT_HANDSHAKE_MS);
    const bool is_last = address == client->addresses.count - 1;
    return is_last || (deadline != TT_NEVER && deadline < share) ? deadline : share;
}

/* All addresses in the resolver's order; PENDING when a server may listen at one of them later. */
static tutti_status_t dial_once(client_t *client, connection_t *connection, int64_t redial_ms,
                                tt_deadline_t deadline)
{
    tutti_status_t status = TUTTI_PENDING;
    bool is_pending = false;
    connection->lacks = true; /* for all of them */
    for (int i = 0; i < client->addresses.count; i++) {
        status = dial_address(client, connection, i, redial_ms, deadline_of(client, i, deadline));
        is_pending |= status == TUTTI_PENDING;
        if (status != TUTTI_PENDING && status != TUTTI_ERR_TIMEOUT && status != TUTTI_ERR_IO) {
            return status;
        }
    }
    return is_pending ? TUTTI_PENDING : status;
}

static int64_t twice(int64_t ms, int64_t most)
{
    return 2 * ms < most ? 2 * ms : most;
}

/* Until a server listens there. */
static tutti_status_t dial(client_t *client, connection_t *connection, tt_deadline_t deadline)
{
    tt_deadline_t refused = tt_deadline_in_ms(REFUSED_MS);
    int64_t wait_ms = 1, redial_ms = REDIAL_MS;
    for (;; wait_ms = twice(wait_ms, 100), redial_ms = twice(redial_ms, REDIAL_MS_MAX)) {
        const tutti_status_t status = dial_once(client, connection, redial_ms, deadline);
        refused = connection->lacks ? tt_deadline_in_ms(REFUSED_MS) : refused;
        const bool is_refused = status == TUTTI_ERR_PEER && !tt_deadline_is_past(refused);
        if ((status != TUTTI_PENDING && !is_refused) || client->is_aborted) {
            return status == TUTTI_PENDING ? TUTTI_ERR_ABORTED : status;
        }
        if (client->was_served && tt_deadline_is_past(refused)) {
            return TT_FAIL(TUTTI_ERR_PEER, "%s: the server is gone", tutti_last_error());
        }
        if (tt_deadline_is_past(deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s, and time is up", tutti_last_error());
        }
        tt_clock_sleep(wait_ms * TT_NS_PER_MS, deadline);
    }
}

/* The whole reply; after a TIMEOUT the next call goes on. */
static tutti_status_t receive_parts(const connection_t *connection, arrived_t *arrived,
                                    tt_deadline_t deadline)
{
    TT_TRY(tt_channel_recv_more(connection->channel, arrived->head, sizeof arrived->head, deadline,
                                &arrived->head_done));
    if (arrived->body == NULL) {
        TT_TRY(tt_store_reply_head(arrived->head, arrived->values, &arrived->body_bytes));
        arrived->body = tt_alloc_raw(arrived->body_bytes, "store message");
        TT_TRY_ALLOC(arrived->body);
    }
    return tt_channel_recv_more(connection->channel, arrived->body, arrived->body_bytes, deadline,
                                &arrived->body_done);
}

static tutti_status_t await_reply(connection_t *connection, tt_deadline_t deadline)
{
    const tutti_status_t status = receive_parts(connection, &connection->arrived, deadline);
    connection->is_broken = status < 0 && status != TUTTI_ERR_TIMEOUT;
    return status;
}

static void drop_reply(connection_t *connection)
{
    tt_free(connection->arrived.body);
    connection->arrived = (arrived_t){0};
}

static tutti_status_t receive_reply(connection_t *connection, tt_deadline_t deadline,
                                    tt_store_reply_t *reply, bool *is_usable)
{
    TT_TRY(await_reply(connection, deadline));
    const arrived_t *arrived = &connection->arrived;
    const size_t values = arrived->values;
    const tutti_status_t status =
        tt_store_reply_unpack(arrived->head, arrived->body, values, reply);
    *is_usable = status != TUTTI_ERR_FORMAT;
    connection->is_broken = !*is_usable;
    for (size_t i = 0; status < 0 && i < values; i++) {
        tutti_buffer_release(&reply->values[i]);
    }
    drop_reply(connection);
    return status;
}

/* Of the call before, whose time was over first. */
static tutti_status_t receive_late_reply(connection_t *connection, tt_deadline_t deadline)
{
    if (connection->arrived.is_due) {
        TT_TRY(await_reply(connection, deadline));
        drop_reply(connection);
    }
    return TUTTI_OK;
}

/* *is_answered: the failure, if it is one, is the server's, and the connection is good. */
static tutti_status_t exchange(client_t *client, connection_t *connection,
                               const tt_store_request_t *request, tt_deadline_t deadline,
                               tt_store_reply_t *reply, bool *is_answered)
{
    tutti_buffer_t message;
    const tt_deadline_t patience = deadline + ANSWER_GRACE_MS * TT_NS_PER_MS;
    if (connection->channel == NULL) {
        TT_TRY(dial(client, connection, patience));
    }
    TT_TRY(receive_late_reply(connection, patience));
    TT_TRY(tt_store_request_pack(request, (uint32_t)tt_deadline_left_ms(deadline), &message));
    const tutti_status_t status =
        tt_channel_send_all(connection->channel, message.data, message.bytes, patience);
    tutti_buffer_release(&message);
    connection->is_broken = status < 0;
    TT_TRY(status);
    connection->arrived.is_due = true;
    connection->arrived.values = request->key_count * tt_store_rule(request->op)->replies_per_key;
    return receive_reply(connection, patience, reply, is_answered);
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    client_t *client = state;
    connection_t *connection;
    TT_TRY(take(client, request->op == TT_STORE_WILL, &connection));
    bool is_answered = false;
    const tutti_status_t status =
        exchange(client, connection, request, deadline, reply, &is_answered);
    const bool is_sound = connection->channel != NULL && !connection->is_broken;
    give_back(client, connection, is_answered || is_sound);
    return status >= 0 || is_answered ? status : explain(client, status);
}

static void abort_calls(void *state)
{
    client_t *client = state;
    pthread_mutex_lock(&client->mutex);
    client->is_aborted = true;
    const connection_t *at;
    LIST_FOREACH(at, &client->busy, link)
    {
        if (at->channel != NULL) {
            shutdown(tt_channel_fd(at->channel), SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&client->mutex);
}

static void close_store(void *state)
{
    client_t *client = state;
    TT_ASSERT(LIST_EMPTY(&client->busy));
    for (connection_t *at; (at = LIST_FIRST(&client->idle)) != NULL;) {
        LIST_REMOVE(at, link);
        free_connection(at);
    }
    tt_credentials_release(client->credentials);
    pthread_mutex_destroy(&client->mutex);
    tt_free(client->host);
}

const tt_store_ops_t tt_store_tcp_ops = {
    .name = "tcp",
    .about = "client of a store that another process serves",
    .state_bytes = sizeof(client_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
};

/* The first connection shows that the store is there, and serves the first call. */
static tutti_status_t connect_first(tutti_store_t *store, tt_deadline_t deadline)
{
    client_t *client = store->state;
    connection_t *connection;
    TT_TRY(take(client, false, &connection));
    tutti_status_t status = dial(client, connection, deadline);
    if (status >= 0) {
        status = tt_address_of_socket(tt_channel_fd(connection->channel), store->address);
    }
    give_back(client, connection, status >= 0);
    return status < 0 ? explain(client, status) : TUTTI_OK;
}

tutti_status_t tt_store_endpoint_find(const char *host, int port, tt_deadline_t deadline,
                                      tt_store_endpoint_t *out)
{
    out->host = host;
    out->port = port;
    return tt_addresses_find(host, port, deadline, &out->addresses);
}

tutti_status_t tt_store_tcp_connect_to(const tt_store_endpoint_t *endpoint,
                                       tt_credentials_t *credentials, tt_deadline_t deadline,
                                       tutti_store_t **out)
{
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_tcp_ops, &store));
    client_t *client = store->state;
    pthread_mutex_init(&client->mutex, NULL);
    client->port = store->port = endpoint->port;
    client->addresses = endpoint->addresses;
    store->credentials = client->credentials = tt_credentials_retain(credentials);
    client->host = tt_strdup(endpoint->host, "store host");
    const tutti_status_t status =
        client->host == NULL ? TUTTI_ERR_NOMEM : connect_first(store, deadline);
    if (status < 0) {
        close_store(client);
        tt_store_discard(store);
        return status;
    }
    *out = store;
    return TUTTI_OK;
}

tutti_status_t tt_store_tcp_connect(const char *host, int port, tt_credentials_t *credentials,
                                    int64_t timeout_ms, tutti_store_t **out)
{
    tt_store_endpoint_t endpoint;
    const tt_deadline_t deadline =
        tt_deadline_in_ms(timeout_ms > 0 ? timeout_ms : TUTTI_STORE_TIMEOUT_MS_DEFAULT);
    TT_TRY(tt_store_endpoint_find(host, port, deadline, &endpoint));
    return tt_store_tcp_connect_to(&endpoint, credentials, deadline, out);
}

tutti_status_t tutti_store_tcp_connect(const char *host, int port, int64_t timeout_ms,
                                       tutti_store_t **out)
{
    TT_WANT("store_tcp_connect", out);
    if (host == NULL || port < 1 || port > 65535 || timeout_ms < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "store at %s, port %d, timeout %" PRId64
                       " ms: want a host, a port from 1 to 65535, and 0 or more ms",
                       host != NULL ? host : "(no host)", port, timeout_ms);
    }
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_find(host, 0, &credentials));
    const tutti_status_t status = tt_store_tcp_connect(host, port, credentials, timeout_ms, out);
    tt_credentials_release(credentials);
    return status;
}
