/* A client of a tcp store's server: it has proved the key and said hello (net/admission.h).
 *
 * It goes through these phases, one request at a time:
 *
 *     REPLY (to its hello) --> HEAD --> BODY --> (PARKED: keys are missing) --> REPLY --> HEAD …
 *
 * Whatever can be done without waiting is done in one go when its socket is ready, so that a
 * request and its reply cost one turn of the loop. The body's buffer grows as bytes arrive, so that
 * a length alone costs nothing, and all bodies together are bounded. Bytes that cannot be a request
 * end the connection without a word.
 */
#include <string.h>

#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "comm/store/store_tcp_server_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"

enum { BODY_FIRST_BYTES = 1 << 16, WILL_BYTES_MAX = 1024, LOOK_MS = 1000 };

static void note_ready(tt_table_waiter_t *waiter)
{
    tt_served_t *client = waiter->user;
    tt_server_t *server = client->server;
    client->is_ready = true;
    LIST_INSERT_HEAD(&server->ready, client, ready_link);
    tt_loop_wake(server->loop);
}

/* Under the hub's mutex: it neither waits nor is ready any more. */
static void unpark(tt_served_t *client)
{
    tt_table_forget(client->server->hub.table, &client->waiter);
    if (client->is_ready) {
        LIST_REMOVE(client, ready_link);
        client->is_ready = false;
    }
}

static void free_request(tt_served_t *client)
{
    client->server->bodies_room -= client->body_room;
    tt_free(client->body);
    tt_free(client->spans);
    client->body = NULL;
    client->spans = NULL;
    client->body_room = 0;
}

/* Under the hub's mutex. A store that is full cannot keep a will. */
static void execute_will(const tt_served_t *client)
{
    const tutti_bytes_t key = tt_buffer_view(&client->will_key);
    const tutti_bytes_t value = tt_buffer_view(&client->will);
    const tt_store_request_t request = {
        .op = TT_STORE_APPEND, .key_count = 1, .keys = &key, .values = &value};
    if (key.bytes > 0 && !client->server->is_stopping) {
        (void)tt_table_apply(client->server->hub.table, &request, &(tt_store_reply_t){0});
    }
}

void tt_served_drop(tt_served_t *client)
{
    tt_server_t *server = client->server;
    pthread_mutex_lock(&server->hub.mutex);
    unpark(client);
    execute_will(client);
    pthread_mutex_unlock(&server->hub.mutex);
    LIST_REMOVE(client, link);
    tutti_buffer_release(&client->will_key);
    tutti_buffer_release(&client->will);
    tt_watch_close(client->watch);
    tt_timer_close(client->timer);
    tt_channel_close(client->channel);
    free_request(client);
    tutti_buffer_release(&client->reply);
    tt_free(client);
}

static void enter(tt_served_t *client, tt_served_phase_t phase)
{
    client->phase = phase;
    client->done = 0;
}

/* ---- a request ---- */

/* While parked only the end of the connection may come in. */
static tutti_status_t park(tt_served_t *client)
{
    enter(client, TT_SERVED_PARKED);
    tt_timer_start(client->timer, tt_deadline_left_ms(client->deadline));
    return TUTTI_OK;
}

static tutti_status_t keep_will(tt_served_t *client)
{
    const tt_store_request_t *request = &client->request;
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
    tutti_buffer_release(&client->will_key);
    tutti_buffer_release(&client->will);
    client->will_key = key;
    client->will = value;
    return TUTTI_OK;
}

/* Under the hub's mutex. PENDING: it is parked. */
static tutti_status_t try_request(tt_served_t *client, tt_store_reply_t *reply)
{
    if (client->request.op == TT_STORE_WILL) {
        return keep_will(client);
    }
    unpark(client);
    return tt_hub_try(&client->server->hub, &client->waiter, client->deadline, reply);
}

static tutti_status_t begin_reply(tt_served_t *client)
{
    enter(client, TT_SERVED_AT_REPLY);
    tt_timer_start(client->timer, LOOK_MS);
    return TUTTI_OK;
}

/* The request is whole, or its keys may exist now. */
static tutti_status_t serve(tt_served_t *client)
{
    tt_server_t *server = client->server;
    const size_t values =
        client->request.key_count * tt_store_rule(client->request.op)->replies_per_key;
    tutti_buffer_t *buffers = tt_alloc_array(values, sizeof *buffers, "store reply");
    TT_TRY_ALLOC(buffers);
    tt_store_reply_t reply = {.values = buffers};
    pthread_mutex_lock(&server->hub.mutex);
    tutti_status_t status = try_request(client, &reply);
    pthread_mutex_unlock(&server->hub.mutex);
    if (status == TUTTI_PENDING) {
        tt_free(buffers);
        return park(client);
    }
    status = tt_store_reply_pack(status, &reply, values, &client->reply);
    for (size_t i = 0; i < values; i++) {
        tutti_buffer_release(&buffers[i]);
    }
    tt_free(buffers);
    free_request(client);
    TT_TRY(status);
    return begin_reply(client);
}

/* ---- what comes in and goes out: OK: go on; PENDING: the socket is not ready ---- */

/* Room for what comes next of the body: as much again as came already. */
static tutti_status_t grow_body(tt_served_t *client)
{
    tt_server_t *server = client->server;
    const size_t twice = client->body_room > 0 ? 2 * client->body_room : (size_t)BODY_FIRST_BYTES;
    const size_t room = twice < client->body_bytes ? twice : client->body_bytes;
    const size_t more = room - client->body_room;
    if (server->bodies_room + more > TUTTI_STORE_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "too many large requests at once");
    }
    uint8_t *body = tt_realloc(client->body, room, "store message");
    TT_TRY_ALLOC(body);
    client->body = body;
    client->body_room = room;
    server->bodies_room += more;
    return TUTTI_OK;
}

static tutti_status_t receive_head(tt_served_t *client)
{
    const tutti_status_t status =
        tt_channel_pull(client->channel, client->head, sizeof client->head, &client->done);
    if (status != TUTTI_OK) {
        return status;
    }
    TT_TRY(tt_store_request_head(client->head, &client->body_bytes));
    enter(client, TT_SERVED_AT_BODY);
    return grow_body(client);
}

static tutti_status_t receive_body(tt_served_t *client)
{
    const tutti_status_t status =
        tt_channel_pull(client->channel, client->body, client->body_room, &client->done);
    if (status != TUTTI_OK) {
        return status;
    }
    if (client->body_room < client->body_bytes) {
        return grow_body(client);
    }
    uint32_t timeout_ms;
    TT_TRY(tt_store_request_unpack(client->head, client->body, &client->request, &timeout_ms,
                                   &client->spans));
    client->deadline = tt_deadline_in_ms(timeout_ms);
    return serve(client);
}

static tutti_status_t expect_nothing(tt_served_t *client)
{
    char byte;
    const tutti_status_t status = tt_channel_pull(client->channel, &byte, 1, &client->done);
    return status == TUTTI_OK ? TT_FAIL(TUTTI_ERR_FORMAT, "a request before the reply to another")
                              : status;
}

static tutti_status_t send_reply(tt_served_t *client)
{
    const tutti_status_t status =
        tt_channel_push(client->channel, client->reply.data, client->reply.bytes, &client->done);
    if (status == TUTTI_OK) {
        tutti_buffer_release(&client->reply);
        enter(client, TT_SERVED_AT_HEAD);
    }
    return status;
}

static tutti_status_t step(tt_served_t *client)
{
    switch (client->phase) {
    case TT_SERVED_AT_HEAD:
        return receive_head(client);
    case TT_SERVED_AT_BODY:
        return receive_body(client);
    case TT_SERVED_PARKED:
        return expect_nothing(client);
    case TT_SERVED_AT_REPLY:
        return send_reply(client);
    }
    return TUTTI_ERR_STATE;
}

/* As far as it goes. */
static void go_on(tt_served_t *client, tutti_status_t status)
{
    while (status == TUTTI_OK) {
        status = step(client);
    }
    if (status < 0) {
        tt_served_drop(client);
        return;
    }
    /* poll does not know of data in OpenSSL's buffers: a writable socket stands in for it */
    const bool is_sending = client->phase == TT_SERVED_AT_REPLY;
    tt_watch_want(client->watch, !is_sending, is_sending || tt_channel_has_more(client->channel));
}

static void on_ready(void *user)
{
    go_on(user, TUTTI_OK);
}

void tt_served_serve(tt_served_t *client)
{
    go_on(client, serve(client));
}

/* The time for the missing keys is up; or it is time to look at a client. Keep-alives find a host
 * that is gone, unless a reply to it is still on its way. */
static void on_timer(void *user)
{
    tt_served_t *client = user;
    if (client->phase == TT_SERVED_PARKED) {
        tt_served_serve(client);
    } else if (tt_channel_is_silent(client->channel)) {
        tt_served_drop(client);
    } else if (tt_channel_awaits_ack(client->channel)) {
        tt_timer_start(client->timer, LOOK_MS);
    }
}

static tutti_status_t start(tt_served_t *client, const char *hello)
{
    const tt_server_t *server = client->server;
    const tutti_bytes_t answer = tutti_bytes_of(tt_store_hello, TT_STORE_HELLO_BYTES);
    if (memcmp(hello, tt_store_hello, TT_STORE_HELLO_BYTES) != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a first message that is no hello");
    }
    TT_TRY(tt_buffer_copy(answer, &client->reply));
    TT_TRY(tt_timer_create(server->loop, on_timer, client, &client->timer));
    TT_TRY(tt_watch_create(server->loop, tt_channel_fd(client->channel), on_ready, client,
                           &client->watch));
    return begin_reply(client);
}

void tt_served_add(tt_server_t *server, tt_channel_t *channel, const char *hello)
{
    tt_served_t *client = tt_alloc(sizeof *client, "store connection");
    if (client == NULL) {
        tt_channel_close(channel);
        return;
    }
    client->server = server;
    client->channel = channel;
    client->waiter =
        (tt_table_waiter_t){.request = &client->request, .ready = note_ready, .user = client};
    LIST_INSERT_HEAD(&server->clients, client, link);
    go_on(client, start(client, hello));
}

tt_served_t *tt_served_pop(tt_server_t *server)
{
    pthread_mutex_lock(&server->hub.mutex);
    tt_served_t *client = LIST_FIRST(&server->ready);
    if (client != NULL) {
        unpark(client);
    }
    pthread_mutex_unlock(&server->hub.mutex);
    return client;
}
