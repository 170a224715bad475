/* The server of a tcp store: a hub, and a thread with an event loop that serves it to clients.
 *
 * A connection goes through these states, one request at a time:
 *
 *     PROOF --> HELLO --> HEAD --> BODY --> (PARKED: keys are missing) --> REPLY --> HEAD …
 *
 * Strangers: a connection that has not proved the job's key and said hello within 5 s, or whose
 * bytes cannot be a request, is closed, and nothing else happens. There are at most 1024 of them;
 * one more, or one for which there is no descriptor left, pushes out the oldest. Connections are
 * accepted a few at a time, so that those that prove the key get their turn before they are
 * pushed out. The body's buffer grows as bytes arrive, so that a length alone costs nothing, and
 * all bodies together are bounded.
 *
 * Cost: one thread; a request is one look-up, and wakes those only who wait for its key.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/net/address.h"
#include "comm/net/channel_stream.h"
#include "comm/store/store_hub.h"
#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"

enum {
    STRANGERS_MAX = 1024,
    ACCEPTS_AT_ONCE = 32,
    BODY_FIRST_BYTES = 1 << 16,
    WILL_BYTES_MAX = 1024
};

typedef struct server server_t;

typedef enum { AT_PROOF, AT_HELLO, AT_HEAD, AT_BODY, PARKED, AT_REPLY } phase_t;

typedef struct list {
    struct connection *first, *last; /* the oldest first */
    size_t count;
} list_t;

typedef struct connection {
    server_t *server;
    struct list *list;                  /* strangers or clients */
    struct connection *previous, *next; /* in it */
    struct connection *next_ready;      /* under the hub's mutex */
    bool is_ready;                      /* under the hub's mutex */
    tt_stream_t *stream;
    tt_timer_t *timer;
    phase_t phase;
    uint8_t head[TT_STORE_REQUEST_HEAD]; /* or hello, or what must not come while parked */
    size_t received;                     /* of hello, head or body */
    uint8_t *body;
    size_t body_bytes, body_room;
    tt_store_request_t request;
    tutti_bytes_t *spans;
    tt_deadline_t deadline;
    tt_table_waiter_t waiter;
    tutti_buffer_t reply;
    tutti_buffer_t will_key, will; /* what is appended where when it ends; will_key empty: none */
} connection_t;

struct server {
    tt_hub_t hub; /* first: the state of the store */
    tt_loop_t *loop;
    tt_listener_t *listener;
    pthread_t thread;
    tt_credentials_t *credentials;
    list_t strangers, clients; /* the loop's thread only */
    size_t bodies_room;        /* bytes of all bodies; the loop's thread only */
    connection_t *ready;       /* whose keys have come; under the hub's mutex */
    char address[TT_ADDRESS_TEXT_BYTES];
    _Atomic bool is_stopping;
};

static void add_to(list_t *list, connection_t *connection)
{
    connection->list = list;
    connection->next = NULL;
    connection->previous = list->last;
    *(list->last != NULL ? &list->last->next : &list->first) = connection;
    list->last = connection;
    list->count++;
}

static void take_out(connection_t *connection)
{
    list_t *list = connection->list;
    connection_t *previous = connection->previous, *next = connection->next;
    *(previous != NULL ? &previous->next : &list->first) = next;
    *(next != NULL ? &next->previous : &list->last) = previous;
    list->count--;
}

static void note_ready(tt_table_waiter_t *waiter)
{
    connection_t *connection = waiter->user;
    server_t *server = connection->server;
    connection->is_ready = true;
    connection->next_ready = server->ready;
    server->ready = connection;
    tt_loop_wake(server->loop);
}

/* Under the hub's mutex: it neither waits nor is ready any more. */
static void unpark(connection_t *connection)
{
    server_t *server = connection->server;
    tt_table_forget(server->hub.table, &connection->waiter);
    if (connection->is_ready) {
        connection_t **link = &server->ready;
        while (*link != connection) {
            link = &(*link)->next_ready;
        }
        *link = connection->next_ready;
        connection->is_ready = false;
    }
}

static void free_request(connection_t *connection)
{
    connection->server->bodies_room -= connection->body_room;
    tt_free(connection->body);
    tt_free(connection->spans);
    connection->body = NULL;
    connection->spans = NULL;
    connection->body_room = 0;
}

/* Under the hub's mutex. A store that is full cannot keep a will. */
static void execute_will(const connection_t *connection)
{
    const tutti_bytes_t key = tt_buffer_view(&connection->will_key);
    const tutti_bytes_t value = tt_buffer_view(&connection->will);
    const tt_store_request_t request = {
        .op = TT_STORE_APPEND, .key_count = 1, .keys = &key, .values = &value};
    if (key.bytes > 0 && !connection->server->is_stopping) {
        (void)tt_table_apply(connection->server->hub.table, &request, &(tt_store_reply_t){0});
    }
}

static void drop(connection_t *connection)
{
    server_t *server = connection->server;
    pthread_mutex_lock(&server->hub.mutex);
    unpark(connection);
    execute_will(connection);
    pthread_mutex_unlock(&server->hub.mutex);
    tutti_buffer_release(&connection->will_key);
    tutti_buffer_release(&connection->will);
    tt_stream_close(connection->stream);
    tt_timer_close(connection->timer);
    free_request(connection);
    tutti_buffer_release(&connection->reply);
    take_out(connection);
    tt_free(connection);
}

static void send_reply(connection_t *connection)
{
    connection->phase = AT_REPLY;
    tt_timer_stop(connection->timer);
    tt_stream_send(connection->stream, connection->reply.data, connection->reply.bytes);
}

static tutti_status_t pack_reply(connection_t *connection, tutti_status_t status,
                                 const tt_store_reply_t *reply, size_t value_count)
{
    if (status < 0) {
        const tutti_bytes_t text = tutti_text(tutti_last_error());
        return tt_store_reply_pack(status, 0, &text, 1, &connection->reply);
    }
    tutti_bytes_t *views = tt_alloc_array(value_count, sizeof *views, "store reply");
    TT_TRY_ALLOC(views);
    for (size_t i = 0; i < value_count; i++) {
        views[i] = tt_buffer_view(&reply->values[i]);
    }
    const tutti_status_t packed =
        tt_store_reply_pack(status, reply->number, views, value_count, &connection->reply);
    tt_free(views);
    return packed;
}

/* Under the hub's mutex. PENDING: it is parked. */
static tutti_status_t try_request(connection_t *connection, tt_store_reply_t *reply)
{
    tt_table_t *table = connection->server->hub.table;
    unpark(connection);
    tutti_status_t status = tt_table_apply(table, &connection->request, reply);
    if (status == TUTTI_PENDING && tt_deadline_is_past(connection->deadline)) {
        return tt_table_fail_missing(table, &connection->request);
    }
    if (status == TUTTI_PENDING) {
        TT_TRY(tt_table_await(table, &connection->waiter));
    }
    return status;
}

/* While parked only the end of the connection may come in. */
static void park(connection_t *connection)
{
    connection->phase = PARKED;
    tt_timer_start(connection->timer, tt_deadline_left_ms(connection->deadline));
    tt_stream_receive(connection->stream, connection->head, 1);
}

static tutti_status_t keep_will(connection_t *connection)
{
    const tt_store_request_t *request = &connection->request;
    if (request->values[0].bytes > WILL_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "store will: %zu bytes; want at most %d",
                       request->values[0].bytes, WILL_BYTES_MAX);
    }
    tutti_buffer_t key, value;
    TT_TRY(tt_buffer_copy(request->keys[0], &key));
    const tutti_status_t status = tt_buffer_copy(request->values[0], &value);
    if (status < 0) {
        tutti_buffer_release(&key);
        return status;
    }
    tutti_buffer_release(&connection->will_key);
    tutti_buffer_release(&connection->will);
    connection->will_key = key;
    connection->will = value;
    return TUTTI_OK;
}

static void serve(connection_t *connection)
{
    server_t *server = connection->server;
    const size_t values =
        connection->request.key_count * tt_store_rule(connection->request.op)->replies_per_key;
    tutti_buffer_t *buffers = tt_alloc_array(values, sizeof *buffers, "store reply");
    if (buffers == NULL) {
        drop(connection);
        return;
    }
    tt_store_reply_t reply = {.values = buffers};
    pthread_mutex_lock(&server->hub.mutex);
    tutti_status_t status = connection->request.op == TT_STORE_WILL
                                ? keep_will(connection)
                                : try_request(connection, &reply);
    pthread_mutex_unlock(&server->hub.mutex);
    if (status == TUTTI_PENDING) {
        park(connection);
    } else {
        status = pack_reply(connection, status, &reply, status < 0 ? 0 : values);
        for (size_t i = 0; i < values; i++) {
            tutti_buffer_release(&buffers[i]);
        }
        free_request(connection);
        if (status < 0) {
            drop(connection);
        } else {
            send_reply(connection);
        }
    }
    tt_free(buffers);
}

static void start_request(connection_t *connection)
{
    uint32_t timeout_ms;
    if (tt_store_request_unpack(connection->head, connection->body, &connection->request,
                                &timeout_ms, &connection->spans) < 0) {
        drop(connection);
        return;
    }
    connection->deadline = tt_deadline_in_ms(timeout_ms);
    serve(connection);
}

/* Room for what comes next of the body: as much again as came already. */
static tutti_status_t grow_body(connection_t *connection)
{
    server_t *server = connection->server;
    const size_t twice =
        connection->body_room > 0 ? 2 * connection->body_room : (size_t)BODY_FIRST_BYTES;
    const size_t room = twice < connection->body_bytes ? twice : connection->body_bytes;
    const size_t more = room - connection->body_room;
    if (server->bodies_room + more > TUTTI_STORE_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "too many large requests at once");
    }
    uint8_t *body = tt_realloc(connection->body, room, "store message");
    TT_TRY_ALLOC(body);
    connection->body = body;
    connection->body_room = room;
    server->bodies_room += more;
    return TUTTI_OK;
}

static void receive_body(connection_t *connection)
{
    const bool is_whole = connection->received == connection->body_bytes;
    const bool is_full = connection->received == connection->body_room && !is_whole;
    if ((connection->body == NULL || is_full) && grow_body(connection) < 0) {
        drop(connection);
    } else if (is_whole) {
        start_request(connection);
    } else {
        tt_stream_receive(connection->stream, connection->body + connection->received,
                          connection->body_room - connection->received);
    }
}

static void receive_head(connection_t *connection, phase_t phase)
{
    const size_t bytes =
        phase == AT_HELLO ? (size_t)TT_STORE_HELLO_BYTES : (size_t)TT_STORE_REQUEST_HEAD;
    connection->phase = phase;
    tt_stream_receive(connection->stream, connection->head + connection->received,
                      bytes - connection->received);
}

static void finish_hello(connection_t *connection)
{
    const tutti_bytes_t hello = tutti_bytes_of(tt_store_hello, TT_STORE_HELLO_BYTES);
    if (memcmp(connection->head, tt_store_hello, TT_STORE_HELLO_BYTES) != 0 ||
        tt_buffer_copy(hello, &connection->reply) < 0) {
        drop(connection);
        return;
    }
    take_out(connection);
    add_to(&connection->server->clients, connection);
    send_reply(connection);
}

static void finish_head(connection_t *connection)
{
    if (tt_store_request_head(connection->head, &connection->body_bytes) < 0) {
        drop(connection);
        return;
    }
    connection->phase = AT_BODY;
    connection->received = 0;
    receive_body(connection);
}

static void on_received(void *user, size_t bytes)
{
    connection_t *connection = user;
    connection->received += bytes;
    if (bytes == 0 || connection->phase == PARKED || connection->phase == AT_REPLY) {
        drop(connection);
    } else if (connection->phase == AT_BODY) {
        receive_body(connection);
    } else if (connection->phase == AT_HELLO) {
        if (connection->received < TT_STORE_HELLO_BYTES) {
            receive_head(connection, AT_HELLO);
        } else {
            finish_hello(connection);
        }
    } else if (connection->received < TT_STORE_REQUEST_HEAD) {
        receive_head(connection, AT_HEAD);
    } else {
        finish_head(connection);
    }
}

static void on_sent(void *user)
{
    connection_t *connection = user;
    tutti_buffer_release(&connection->reply);
    connection->received = 0;
    receive_head(connection, AT_HEAD);
}

static void on_opened(void *user)
{
    receive_head(user, AT_HELLO);
}

static const tt_stream_events_t stream_events = {
    .opened = on_opened, .received = on_received, .sent = on_sent};

/* The time for hello, or for the missing keys, is up. */
static void on_timer(void *user)
{
    connection_t *connection = user;
    if (connection->phase == PARKED) {
        serve(connection);
    } else {
        drop(connection);
    }
}

static void add_stranger(server_t *server, int fd)
{
    connection_t *connection = tt_alloc(sizeof *connection, "store connection");
    if (connection == NULL) {
        close(fd);
        return;
    }
    if (tt_stream_accept(server->loop, fd, server->credentials, &stream_events, connection,
                         &connection->stream) < 0) {
        tt_free(connection);
        return;
    }
    connection->server = server;
    connection->waiter = (tt_table_waiter_t){
        .request = &connection->request, .ready = note_ready, .user = connection};
    add_to(&server->strangers, connection);
    if (tt_timer_create(server->loop, on_timer, connection, &connection->timer) < 0) {
        drop(connection);
        return;
    }
    tt_timer_start(connection->timer, TT_HANDSHAKE_MS);
}

static void on_connection(void *user)
{
    server_t *server = user;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd;
        const tutti_status_t status = tt_listener_accept(server->listener, &fd);
        if (status == TUTTI_PENDING) {
            return;
        }
        if (server->strangers.count > 0 &&
            (status < 0 || server->strangers.count >= STRANGERS_MAX)) {
            drop(server->strangers.first);
        } else if (status < 0) {
            tt_listener_refuse(server->listener);
        }
        if (status >= 0) {
            add_stranger(server, fd);
        }
    }
}

static connection_t *pop_ready(server_t *server)
{
    pthread_mutex_lock(&server->hub.mutex);
    connection_t *connection = server->ready;
    if (connection != NULL) {
        unpark(connection);
    }
    pthread_mutex_unlock(&server->hub.mutex);
    return connection;
}

static void on_woken(void *user)
{
    server_t *server = user;
    if (server->is_stopping) {
        tt_loop_stop(server->loop);
        return;
    }
    for (connection_t *connection; (connection = pop_ready(server)) != NULL;) {
        serve(connection);
    }
}

static void *run_loop(void *user)
{
    server_t *server = user;
    tt_loop_run(server->loop);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(server_t *server)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&server->thread, NULL, run_loop, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

static tutti_status_t open_server(server_t *server, const char *host, int port)
{
    TT_TRY(tt_loop_create(on_woken, server, &server->loop));
    TT_TRY(tt_listener_open(server->loop, host, port, on_connection, server, &server->listener));
    TT_TRY(tt_hub_init(&server->hub));
    snprintf(server->address, sizeof server->address, "%s", host);
    const int code = start_thread(server);
    if (code != 0) {
        tt_hub_fini(&server->hub);
        return TT_FAIL(TUTTI_ERR_IO, "store: cannot start a thread: %s", strerror(code));
    }
    return TUTTI_OK;
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    server_t *server = state;
    return tt_hub_perform(&server->hub, request, deadline, reply);
}

static void abort_calls(void *state)
{
    server_t *server = state;
    tt_hub_abort(&server->hub);
}

static void close_loop(server_t *server)
{
    tt_listener_close(server->listener);
    tt_loop_release(server->loop);
    tt_credentials_release(server->credentials);
}

static void close_store(void *state)
{
    server_t *server = state;
    server->is_stopping = true;
    tt_loop_wake(server->loop);
    pthread_join(server->thread, NULL);
    while (server->strangers.first != NULL) {
        drop(server->strangers.first);
    }
    while (server->clients.first != NULL) {
        drop(server->clients.first);
    }
    close_loop(server);
    tt_hub_fini(&server->hub);
}

static int port_of(const void *state)
{
    const server_t *server = state;
    return tt_listener_port(server->listener);
}

static tutti_status_t local_address(const void *state, char out[TT_ADDRESS_TEXT_BYTES])
{
    const server_t *server = state;
    snprintf(out, TT_ADDRESS_TEXT_BYTES, "%s", server->address);
    return TUTTI_OK;
}

const tt_store_ops_t tt_store_tcp_server_ops = {
    .name = "tcp_server",
    .about = "in this process, served to others over tcp",
    .state_bytes = sizeof(server_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
    .port = port_of,
    .local_address = local_address,
};

static const char *numeric_if_local(const char *host)
{
    return host == NULL || strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
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

tutti_status_t tt_store_tcp_listen(const char *host, int port, tt_credentials_t *credentials,
                                   tutti_store_t **out)
{
    if (port < 0 || port > 65535) {
        return TT_FAIL(TUTTI_ERR_ARG, "store: port %d; want 0 to 65535", port);
    }
    const char *address = numeric_if_local(host);
    TT_TRY(check_address(address, credentials));
    tutti_store_t *store;
    TT_TRY(tt_store_create(&tt_store_tcp_server_ops, &store));
    server_t *server = store->state;
    server->credentials = tt_credentials_retain(credentials);
    const tutti_status_t status = open_server(server, address, port);
    if (status < 0) {
        close_loop(server);
        tt_store_discard(store);
        return status;
    }
    *out = store;
    return TUTTI_OK;
}

tutti_status_t tutti_store_tcp_listen(const char *host, int port, tutti_store_t **out)
{
    tt_credentials_t *credentials;
    TT_TRY(tt_credentials_find(host, 0, &credentials));
    const tutti_status_t status = tt_store_tcp_listen(host, port, credentials, out);
    tt_credentials_release(credentials);
    return status;
}
