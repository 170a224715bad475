/* The inside of tt_p2p_t, shared by the p2p*.c files. */
#ifndef TT_P2P_IMPL_H
#define TT_P2P_IMPL_H

#include "comm/exec/coll_exec.h"
#include "comm/p2p/p2p.h"
#include "comm/p2p/p2p_match.h"
#include "comm/wire/endpoint.h"

/* A header on its way out, and what follows it. Each operation takes one when it starts, so that
 * nothing fails for want of memory once a message has been matched. */
typedef struct tt_p2p_request {
    STAILQ_ENTRY(tt_p2p_request) next;
    tt_p2p_header_t header;
    const void *payload;
    size_t payload_bytes;
    tt_message_op_t *op; /* gets the request back when this is sent; NULL: it has ended */
    bool ends_op;        /* which is done when this is sent */
} tt_p2p_request_t;

typedef STAILQ_HEAD(tt_p2p_request_list, tt_p2p_request) tt_p2p_request_list_t;

/* What there is with one rank. */
typedef struct {
    tt_endpoint_t endpoint;
    tt_p2p_request_list_t requests; /* on their way out */

    tt_p2p_header_t in;       /* of the message that is coming */
    bool is_header_due;       /* it is here, and waits for room */
    void *target;             /* of its payload */
    tt_message_op_t *in_op;   /* the recv that it is for */
    tt_arrived_t *in_arrived; /* or where it is kept */

    unsigned gone_look; /* the look at which the rank was first found gone; 0: it is here */
    tt_message_queue_t announced; /* sends whose RTS is out, until CTS or FIN */
    tt_message_queue_t cleared;   /* recvs that wait for DATA, or for the segment to get it from */
} tt_p2p_peer_t;

struct tt_p2p {
    tt_coll_t *coll;
    tt_p2p_peer_t *peers; /* [size] */
    tt_match_t match;
    TAILQ_HEAD(, tt_message_op) ops; /* all that are under way, in the order of their start */
    tt_p2p_request_list_t free_requests;
    int outgoing; /* requests on their way out */
    uint64_t last_id;
    unsigned looks; /* of tt_p2p_watch */
};

/* ---- p2p_send.c ---- */

tutti_status_t tt_p2p_open_peer(tt_p2p_t *p2p, int peer);

/* Under way from now on, with a request. Errors: NOMEM. */
tutti_status_t tt_p2p_begin(tt_p2p_t *p2p, tt_message_op_t *op);

/* The end of an operation that is under way: in no list any more. */
void tt_p2p_end(tt_p2p_t *p2p, tt_message_op_t *op, tutti_status_t status);

typedef enum {
    TT_P2P_KEEP, /* the operation goes on when the header is sent */
    TT_P2P_DONE, /* it is done then; its bytes follow the header */
    TT_P2P_LEAVE /* it ends before */
} tt_p2p_after_t;

/* Send a header with the operation's request. The peer's wire is open. */
void tt_p2p_post(tt_p2p_t *p2p, int peer, const tt_p2p_header_t *header, tt_message_op_t *op,
                 tt_p2p_after_t after);

/* Give the wire what is on its way out: OK, or PENDING. */
tutti_status_t tt_p2p_push(tt_p2p_t *p2p, int peer);
void tt_p2p_drop_requests(tt_p2p_t *p2p);

/* ---- p2p_receive.c ---- */

/* All messages that have come; PENDING unless something is wrong. */
tutti_status_t tt_p2p_pull(tt_p2p_t *p2p, int from);

/* Get messages where they lie, as soon as their segment has come. */
tutti_status_t tt_p2p_get(tt_p2p_t *p2p, int from);

/* A recv for a message that has arrived. */
tutti_status_t tt_p2p_accept(tt_p2p_t *p2p, tt_message_op_t *op, tt_arrived_t *arrived);

/* A probe has found a message. */
void tt_p2p_describe(tt_message_op_t *probe, const tt_arrived_t *arrived);

#endif
