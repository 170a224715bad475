/* Messages of a group: starting them, moving them forward, ending them when the group fails.
 *
 * Cost: a short message is one send of header and payload; a long one on one host costs two headers
 * and one copy if it lies in the shared heap, else two headers and a pass through the wire.
 */
#include "comm/p2p/p2p_impl.h"
#include "core/base/alloc.h"

tutti_status_t tt_p2p_create(tt_coll_t *coll, tt_p2p_t **out)
{
    tt_p2p_t *p2p = tt_alloc(sizeof *p2p, "messages");
    TT_TRY_ALLOC(p2p);
    p2p->peers = tt_alloc_array((size_t)coll->size, sizeof *p2p->peers, "messages");
    if (p2p->peers == NULL) {
        tt_free(p2p);
        return TUTTI_ERR_NOMEM;
    }
    p2p->coll = coll;
    TAILQ_INIT(&p2p->ops);
    STAILQ_INIT(&p2p->free_requests);
    for (int i = 0; i < coll->size; i++) {
        STAILQ_INIT(&p2p->peers[i].requests);
        STAILQ_INIT(&p2p->peers[i].announced);
        STAILQ_INIT(&p2p->peers[i].cleared);
    }
    tt_match_init(&p2p->match);
    *out = p2p;
    return TUTTI_OK;
}

void tt_p2p_release(tt_p2p_t *p2p)
{
    if (p2p == NULL) {
        return;
    }
    tt_p2p_drop_requests(p2p);
    for (int i = 0; i < p2p->coll->size; i++) {
        tt_wire_close(&p2p->peers[i].endpoint.wire);
        tt_free(p2p->peers[i].in_arrived);
    }
    tt_match_fini(&p2p->match);
    tt_free(p2p->peers);
    tt_free(p2p);
}

bool tt_p2p_is_busy(const tt_p2p_t *p2p)
{
    return !TAILQ_EMPTY(&p2p->ops);
}

bool tt_p2p_has_outgoing(const tt_p2p_t *p2p)
{
    return p2p->outgoing > 0;
}

/* ---- starting ---- */

static tutti_status_t start_send(tt_p2p_t *p2p, tt_message_op_t *op)
{
    const tt_message_t *message = &op->message;
    const size_t bytes = tt_message_bytes(message);
    const tt_coll_t *coll = p2p->coll;
    tt_p2p_header_t rts = {.kind = TT_P2P_RTS,
                           .dtype = (uint8_t)message->dtype,
                           .tag = message->tag,
                           .id = ++p2p->last_id,
                           .bytes = bytes};
    op->id = rts.id;
    if (bytes <= TT_P2P_EAGER_BYTES) {
        tt_p2p_post(p2p, message->peer, &rts, op, TT_P2P_DONE);
        return TUTTI_OK;
    }
    if (coll->node_peer_ranks[message->peer] >= 0) {
        rts.address = tt_heap_address(tt_node_peers_heap(coll->node_peers), message->data, bytes);
    }
    tt_p2p_post(p2p, message->peer, &rts, op, TT_P2P_KEEP);
    STAILQ_INSERT_TAIL(&p2p->peers[message->peer].announced, op, queued);
    return TUTTI_OK;
}

/* A recv takes what has arrived; a probe leaves it there. */
static tutti_status_t start_recv(tt_p2p_t *p2p, tt_message_op_t *op)
{
    tt_match_t *match = &p2p->match;
    tt_arrived_t *arrived = tt_match_find(match, &op->message);
    if (arrived == NULL) {
        tt_match_post(match, op);
        return TUTTI_OK;
    }
    if (op->message.kind == TT_MESSAGE_PROBE) {
        tt_p2p_describe(op, arrived);
        tt_p2p_end(p2p, op, TUTTI_OK);
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_p2p_accept(p2p, op, arrived);
    if (status != TUTTI_ERR_NOMEM) { /* else the next recv finds it where it is */
        tt_match_take(match, arrived);
        tt_match_free(match, arrived);
    }
    return status;
}

static void set_up(tt_p2p_t *p2p, const tt_message_t *message, tt_message_op_t *op)
{
    op->op = (tt_op_t){.kind = TT_OP_MESSAGE, .status = TUTTI_PENDING};
    op->message = *message;
    op->source = p2p->coll->rank;
    op->tag = message->tag;
    op->address = 0;
}

/* A recv may be done by now, and its caller leave the group: the sender gets its answer before
 * that. What fails here fails again, or not, when messages move forward. */
static void push_at_once(tt_p2p_t *p2p, int peer)
{
    if (p2p->outgoing > 0 && tt_p2p_has_wire(p2p, peer)) {
        (void)tt_p2p_push(p2p, peer);
    }
}

/* Only ranks of this host get answers that no operation of this one waits for. */
static bool may_read(const tt_coll_t *coll, int rank)
{
    const int local = coll->node_peer_ranks[rank];
    return local >= 0 && tt_node_peers_state(coll->node_peers, local) == TT_NODE_PEER_HERE &&
           atomic_load(&coll->blocks[rank]->failure) == 0;
}

bool tt_p2p_flush(tt_p2p_t *p2p)
{
    bool is_left = false;
    for (int i = 0; i < p2p->coll->size; i++) {
        push_at_once(p2p, i);
        is_left = is_left || (!STAILQ_EMPTY(&p2p->peers[i].requests) && may_read(p2p->coll, i));
    }
    return is_left;
}

tutti_status_t tt_p2p_start(tt_p2p_t *p2p, const tt_message_t *message, tt_message_op_t *op)
{
    set_up(p2p, message, op);
    if (message->peer != TT_ANY_RANK) {
        TT_TRY(tt_p2p_open_peer(p2p, message->peer));
    }
    TT_TRY(tt_p2p_begin(p2p, op));
    const tt_record_t record = tt_message_record(message);
    op->op.record = tt_record_add(&p2p->coll->block->records, &record);
    const tutti_status_t status =
        message->kind == TT_MESSAGE_SEND ? start_send(p2p, op) : start_recv(p2p, op);
    if (status < 0) {
        tt_p2p_end(p2p, op, status);
        return status;
    }
    push_at_once(p2p, message->kind == TT_MESSAGE_SEND ? message->peer : op->source);
    return TUTTI_OK;
}

/* ---- moving forward ---- */

static tutti_status_t progress_peer(tt_p2p_t *p2p, int peer)
{
    TT_TRY(tt_p2p_push(p2p, peer));
    TT_TRY(tt_p2p_pull(p2p, peer));
    TT_TRY(tt_p2p_get(p2p, peer));
    TT_TRY(tt_p2p_push(p2p, peer));
    return TUTTI_OK;
}

/* Every rank that may have sent something: all of them if `any`. */
static tutti_status_t progress_peers(tt_p2p_t *p2p, bool any)
{
    for (int i = 0; i < p2p->coll->size; i++) {
        if (tt_p2p_has_wire(p2p, i) || (any && i != p2p->coll->rank)) {
            TT_TRY(tt_p2p_open_peer(p2p, i));
            TT_TRY(progress_peer(p2p, i));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_p2p_progress(tt_p2p_t *p2p)
{
    if (TAILQ_EMPTY(&p2p->ops) && p2p->outgoing == 0) {
        return TUTTI_OK;
    }
    return progress_peers(p2p, p2p->match.any_count > 0);
}

tutti_status_t tt_p2p_iprobe(tt_p2p_t *p2p, const tt_message_t *message, tt_message_op_t *op)
{
    set_up(p2p, message, op);
    const tt_arrived_t *arrived = tt_match_find(&p2p->match, message);
    if (arrived == NULL) {
        const bool any = message->peer == TT_ANY_RANK;
        if (!any) {
            TT_TRY(tt_p2p_open_peer(p2p, message->peer));
        }
        TT_TRY(progress_peers(p2p, any));
        arrived = tt_match_find(&p2p->match, message);
    }
    if (arrived == NULL) {
        return TUTTI_PENDING;
    }
    tt_p2p_describe(op, arrived);
    op->op.status = TUTTI_OK;
    return TUTTI_OK;
}

void tt_p2p_fail(tt_p2p_t *p2p, tutti_status_t status)
{
    while (!TAILQ_EMPTY(&p2p->ops)) {
        tt_p2p_end(p2p, TAILQ_FIRST(&p2p->ops), status);
    }
    tt_match_clear(&p2p->match);
    tt_p2p_drop_requests(p2p);
}
