/* Headers and what follows them on their way out, one queue for each rank; and the beginning and
 * the end of an operation. */
#include "comm/p2p/p2p_impl.h"
#include "core/base/alloc.h"

tutti_status_t tt_p2p_open_peer(tt_p2p_t *p2p, int peer)
{
    tt_endpoint_t *endpoint = &p2p->peers[peer].endpoint;
    endpoint->header_bytes = sizeof(tt_p2p_header_t);
    return tt_endpoint_is_open(endpoint)
               ? TUTTI_OK
               : tt_coll_open_wire(p2p->coll, peer, TT_LANE_P2P, &endpoint->wire);
}

bool tt_p2p_has_wire(const tt_p2p_t *p2p, int peer)
{
    return tt_endpoint_is_open(&p2p->peers[peer].endpoint);
}

void tt_p2p_say_goaway(tt_p2p_t *p2p, uint64_t reason)
{
    for (int i = 0; i < p2p->coll->size; i++) {
        tt_wire_goaway(&p2p->peers[i].endpoint.wire, reason);
    }
}

uint64_t tt_p2p_peer_reason(const tt_p2p_t *p2p, int peer)
{
    return tt_wire_peer_reason(&p2p->peers[peer].endpoint.wire);
}

/* ---- operations ---- */

tutti_status_t tt_p2p_begin(tt_p2p_t *p2p, tt_message_op_t *op)
{
    op->request = STAILQ_FIRST(&p2p->free_requests);
    if (op->request != NULL) {
        STAILQ_REMOVE_HEAD(&p2p->free_requests, next);
    } else {
        op->request = tt_alloc(sizeof *op->request, "message header");
        TT_TRY_ALLOC(op->request);
    }
    TAILQ_INSERT_TAIL(&p2p->ops, op, under_way);
    return TUTTI_OK;
}

void tt_p2p_end(tt_p2p_t *p2p, tt_message_op_t *op, tutti_status_t status)
{
    TAILQ_REMOVE(&p2p->ops, op, under_way);
    if (op->request != NULL) {
        STAILQ_INSERT_HEAD(&p2p->free_requests, op->request, next);
        op->request = NULL;
    }
    op->op.status = status;
    tt_record_progress(&p2p->coll->block->records, op->op.record,
                       status < 0 ? TT_RECORD_FAILED : TT_RECORD_DONE, -1);
}

/* ---- requests ---- */

void tt_p2p_post(tt_p2p_t *p2p, int peer, const tt_p2p_header_t *header, tt_message_op_t *op,
                 tt_p2p_after_t after)
{
    tt_p2p_request_t *request = op->request;
    const bool ends = after == TT_P2P_DONE;
    op->request = NULL;
    *request = (tt_p2p_request_t){.header = *header,
                                  .payload = ends ? op->message.data : NULL,
                                  .payload_bytes = ends ? tt_message_bytes(&op->message) : 0,
                                  .op = after == TT_P2P_LEAVE ? NULL : op,
                                  .ends_op = ends};
    request->header.magic = TT_P2P_MAGIC;
    request->header.epoch = p2p->coll->options.epoch;
    request->header.group = p2p->coll->options.group;
    STAILQ_INSERT_TAIL(&p2p->peers[peer].requests, request, next);
    p2p->outgoing++;
}

static void end_request(tt_p2p_t *p2p, tt_p2p_request_t *request)
{
    p2p->outgoing--;
    if (request->op == NULL) {
        STAILQ_INSERT_HEAD(&p2p->free_requests, request, next);
        return;
    }
    request->op->request = request;
    if (request->ends_op) {
        tt_p2p_end(p2p, request->op, TUTTI_OK);
    }
}

tutti_status_t tt_p2p_push(tt_p2p_t *p2p, int peer)
{
    tt_p2p_peer_t *to = &p2p->peers[peer];
    while (!STAILQ_EMPTY(&to->requests)) {
        tt_p2p_request_t *request = STAILQ_FIRST(&to->requests);
        const tutti_status_t status = tt_endpoint_send(&to->endpoint, &request->header,
                                                       request->payload, request->payload_bytes);
        if (status != TUTTI_OK) {
            return status;
        }
        STAILQ_REMOVE_HEAD(&to->requests, next);
        p2p->coll->links.sent_message_bytes +=
            tt_coll_is_node_peer(p2p->coll, peer) ? 0 : (int64_t)request->payload_bytes;
        end_request(p2p, request);
    }
    return TUTTI_OK;
}

static void free_requests(tt_p2p_request_list_t *list)
{
    while (!STAILQ_EMPTY(list)) {
        tt_p2p_request_t *first = STAILQ_FIRST(list);
        STAILQ_REMOVE_HEAD(list, next);
        tt_free(first);
    }
}

void tt_p2p_drop_requests(tt_p2p_t *p2p)
{
    for (int i = 0; i < p2p->coll->size; i++) {
        free_requests(&p2p->peers[i].requests);
    }
    free_requests(&p2p->free_requests);
    p2p->outgoing = 0;
}
