/* The inside of a tcp store's server: the server (store_tcp_server.c) and its clients
 * (store_tcp_served.c).
 */
#ifndef TT_STORE_TCP_SERVER_IMPL_H
#define TT_STORE_TCP_SERVER_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "comm/net/admission.h"
#include "comm/net/net.h"
#include "comm/store/store_hub.h"

typedef struct tt_server tt_server_t;

typedef enum {
    TT_SERVED_AT_HEAD,
    TT_SERVED_AT_BODY,
    TT_SERVED_PARKED,
    TT_SERVED_AT_REPLY
} tt_served_phase_t;

typedef struct tt_served {
    tt_server_t *server;
    LIST_ENTRY(tt_served) link;
    LIST_ENTRY(tt_served) ready_link; /* under the hub's mutex */
    bool is_ready;                    /* under the hub's mutex: in the server's ready */
    tt_channel_t *channel;
    tt_watch_t *watch;
    tt_timer_t *timer;
    tt_served_phase_t phase;
    size_t done; /* bytes of what comes in or goes out in this phase */
    uint8_t head[TT_STORE_REQUEST_HEAD];
    uint8_t *body;
    size_t body_bytes, body_room; /* of them, those that are or may be there */
    tt_store_request_t request;
    tutti_bytes_t *spans;
    tt_deadline_t deadline;
    tt_table_waiter_t waiter;
    tutti_buffer_t reply;
    tutti_buffer_t will_key, will; /* what is appended where when it ends; will_key empty: none */
} tt_served_t;

struct tt_server {
    tt_hub_t hub; /* first: the hub's functions take the state of the store */
    tt_loop_t *loop;
    tt_admission_t admission;
    tt_watch_t *arrivals; /* at the admission */
    pthread_t thread;
    tt_credentials_t *credentials;
    LIST_HEAD(, tt_served) clients; /* the loop's thread only */
    size_t bodies_room;             /* bytes of all bodies; the loop's thread only */
    LIST_HEAD(, tt_served) ready;   /* whose keys exist now; under the hub's mutex */
    _Atomic bool is_stopping;
};

/* A connection that was admitted by its first message, which may be no hello, or have no memory:
 * then it is closed. */
void tt_served_add(tt_server_t *server, tt_channel_t *channel, const char *hello);
void tt_served_drop(tt_served_t *client);

/* One whose keys exist now, if there is one: to be served. Both in the loop's thread. */
tt_served_t *tt_served_pop(tt_server_t *server);
void tt_served_serve(tt_served_t *client);

#endif
