/* A connection to a tcp store's server, by one that has to prove the key first.
 *
 * A connection goes through these states, one request at a time:
 *
 *     PROOF --> HELLO --> HEAD --> BODY --> (PARKED: keys are missing) --> REPLY --> HEAD …
 *
 * The body's buffer grows as bytes arrive, so that a length alone costs nothing, and all bodies
 * together are bounded. Bytes that cannot be a request end the connection without a word.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "comm/store/store_tcp_server_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"

enum { BODY_FIRST_BYTES = 1 << 16, WILL_BYTES_MAX = 1024, LOOK_MS = 1000 };

static void add_to_list(tt_served_t *connection)
{
    tt_server_t *server = connection->server;
    TAILQ_INSERT_TAIL(connection->is_client ? &server->clients : &server->strangers, connection,
                      link);
    server->stranger_count += !connection->is_client;
}

static void remove_from_list(tt_served_t *connection)
{
    tt_server_t *server = connection->server;
    TAILQ_REMOVE(connection->is_client ? &server->clients : &server->strangers, connection, link);
    server->stranger_count -= !connection->is_client;
}

static void note_ready(tt_table_waiter_t *waiter)
{
    tt_served_t *connection = waiter->user;
    tt_server_t *server = connection->server;
    connection->is_ready = true;
    LIST_INSERT_HEAD(&server->ready, connection, ready_link);
    tt_loop_wake(server->loop);
}

/* Under the hub's mutex: it neither waits nor is ready any more. */
static void unpark(tt_served_t *connection)
{
    tt_table_forget(connection->server->hub.table, &connection->waiter);
    if (connection->is_ready) {
        LIST_REMOVE(connection, ready_link);
        connection->is_ready = false;
    }
}

static void free_request(tt_served_t *connection)
{
    connection->server->bodies_room -= connection->body_room;
    tt_free(connection->body);
    tt_free(connection->spans);
    connection->body = NULL;
    connection->spans = NULL;
    connection->body_room = 0;
}

/* Under the hub's mutex. A store that is full cannot keep a will. */
static void execute_will(const tt_served_t *connection)
{
    const tutti_bytes_t key = tt_buffer_view(&connection->will_key);
    const tutti_bytes_t value = tt_buffer_view(&connection->will);
    const tt_store_request_t request = {
        .op = TT_STORE_APPEND, .key_count = 1, .keys = &key, .values = &value};
    if (key.bytes > 0 && !connection->server->is_stopping) {
        (void)tt_table_apply(connection->server->hub.table, &request, &(tt_store_reply_t){0});
    }
}

void tt_served_drop(tt_served_t *connection)
{
    tt_server_t *server = connection->server;
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
    remove_from_list(connection);
    tt_free(connection);
}

static void send_reply(tt_served_t *connection)
{
    connection->phase = TT_SERVED_AT_REPLY;
    tt_timer_start(connection->timer, LOOK_MS);
    tt_stream_send(connection->stream, connection->reply.data, connection->reply.bytes);
}

static tutti_status_t pack_reply(tt_served_t *connection, tutti_status_t status,
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
static tutti_status_t try_request(tt_served_t *connection, tt_store_reply_t *reply)
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
static void park(tt_served_t *connection)
{
    connection->phase = TT_SERVED_PARKED;
    tt_timer_start(connection->timer, tt_deadline_left_ms(connection->deadline));
    tt_stream_receive(connection->stream, connection->head, 1);
}

static tutti_status_t keep_will(tt_served_t *connection)
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

void tt_served_serve(tt_served_t *connection)
{
    tt_server_t *server = connection->server;
    const size_t values =
        connection->request.key_count * tt_store_rule(connection->request.op)->replies_per_key;
    tutti_buffer_t *buffers = tt_alloc_array(values, sizeof *buffers, "store reply");
    if (buffers == NULL) {
        tt_served_drop(connection);
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
            tt_served_drop(connection);
        } else {
            send_reply(connection);
        }
    }
    tt_free(buffers);
}

static void start_request(tt_served_t *connection)
{
    uint32_t timeout_ms;
    if (tt_store_request_unpack(connection->head, connection->body, &connection->request,
                                &timeout_ms, &connection->spans) < 0) {
        tt_served_drop(connection);
        return;
    }
    connection->deadline = tt_deadline_in_ms(timeout_ms);
    tt_served_serve(connection);
}

/* Room for what comes next of the body: as much again as came already. */
static tutti_status_t grow_body(tt_served_t *connection)
{
    tt_server_t *server = connection->server;
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

/* The body is whole, or the next piece of it is to come. */
static void receive_body(tt_served_t *connection)
{
    const size_t received = connection->body_room;
    connection->phase = TT_SERVED_AT_BODY;
    const bool is_whole = received == connection->body_bytes;
    if ((connection->body == NULL || !is_whole) && grow_body(connection) < 0) {
        tt_served_drop(connection);
    } else if (is_whole) {
        start_request(connection);
    } else {
        tt_stream_receive(connection->stream, connection->body + received,
                          connection->body_room - received);
    }
}

static void receive_head(tt_served_t *connection)
{
    connection->phase = TT_SERVED_AT_HEAD;
    tt_stream_receive(connection->stream, connection->head, TT_STORE_REQUEST_HEAD);
}

static void finish_hello(tt_served_t *connection)
{
    const tutti_bytes_t hello = tutti_bytes_of(tt_store_hello, TT_STORE_HELLO_BYTES);
    if (memcmp(connection->head, tt_store_hello, TT_STORE_HELLO_BYTES) != 0 ||
        tt_buffer_copy(hello, &connection->reply) < 0) {
        tt_served_drop(connection);
        return;
    }
    remove_from_list(connection);
    connection->is_client = true;
    add_to_list(connection);
    send_reply(connection);
}

static void on_received(void *user)
{
    tt_served_t *connection = user;
    if (connection->phase == TT_SERVED_AT_HELLO) {
        finish_hello(connection);
    } else if (connection->phase == TT_SERVED_AT_BODY ||
               (connection->phase == TT_SERVED_AT_HEAD &&
                tt_store_request_head(connection->head, &connection->body_bytes) >= 0)) {
        receive_body(connection);
    } else {
        tt_served_drop(connection);
    }
}

static void on_failed(void *user)
{
    tt_served_drop(user);
}

static void on_sent(void *user)
{
    tt_served_t *connection = user;
    tutti_buffer_release(&connection->reply);
    receive_head(connection);
}

static void on_opened(void *user)
{
    tt_served_t *connection = user;
    connection->phase = TT_SERVED_AT_HELLO;
    tt_stream_receive(connection->stream, connection->head, TT_STORE_HELLO_BYTES);
}

static const tt_stream_events_t stream_events = {
    .opened = on_opened, .received = on_received, .failed = on_failed, .sent = on_sent};

/* Keep-alives find a host that is gone, unless a reply to it is still on its way. */
static void look_for_silence(tt_served_t *connection)
{
    const tt_channel_t *channel = tt_stream_channel(connection->stream);
    if (tt_channel_is_silent(channel)) {
        tt_served_drop(connection);
    } else if (tt_channel_awaits_ack(channel)) {
        tt_timer_start(connection->timer, LOOK_MS);
    }
}

/* The time for hello, or for the missing keys, is up; or it is time to look at a client. */
static void on_timer(void *user)
{
    tt_served_t *connection = user;
    if (connection->phase == TT_SERVED_PARKED) {
        tt_served_serve(connection);
    } else if (!connection->is_client) {
        tt_served_drop(connection);
    } else {
        look_for_silence(connection);
    }
}

void tt_served_add(tt_server_t *server, int fd)
{
    tt_served_t *connection = tt_alloc(sizeof *connection, "store connection");
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
    add_to_list(connection);
    if (tt_timer_create(server->loop, on_timer, connection, &connection->timer) < 0) {
        tt_served_drop(connection);
        return;
    }
    tt_timer_start(connection->timer, TT_HANDSHAKE_MS);
}

tt_served_t *tt_served_pop(tt_server_t *server)
{
    pthread_mutex_lock(&server->hub.mutex);
    tt_served_t *connection = LIST_FIRST(&server->ready);
    if (connection != NULL) {
        unpark(connection);
    }
    pthread_mutex_unlock(&server->hub.mutex);
    return connection;
}
