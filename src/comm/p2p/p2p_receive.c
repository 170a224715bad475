/* What comes in: each header is matched with an operation, and its payload goes straight to where
 * it is wanted, or is kept until a receive for it is posted. */
#include <string.h>

#include "comm/p2p/p2p_impl.h"
#include "core/base/alloc.h"

static tutti_status_t check_match(const tt_p2p_t *p2p, const tt_message_op_t *op, int from,
                                  const tt_p2p_header_t *header)
{
    const tt_message_t *want = &op->message;
    if (header->dtype == (uint8_t)want->dtype && header->bytes == tt_message_bytes(want)) {
        return TUTTI_OK;
    }
    const tutti_dtype_t sent = (tutti_dtype_t)header->dtype;
    return TT_FAIL(TUTTI_ERR_MISMATCH,
                   "message with tag %d of group %s: rank %d sent %s[%llu], rank %d receives "
                   "%s[%zu]",
                   header->tag, p2p->coll->options.name, from, tutti_dtype_name(sent),
                   (unsigned long long)(header->bytes / tutti_dtype_bytes(sent)), p2p->coll->rank,
                   tutti_dtype_name(want->dtype), want->count);
}

static tutti_status_t fail_format(const tt_p2p_t *p2p, int from)
{
    return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d of group %s sent bytes that are no message of ours",
                   from, p2p->coll->options.name);
}

/* ---- long messages ---- */

/* Gets a message from the heap of a rank of this host. PENDING while its segment is on its way, and
 * when the sender has given up: what was read is not the message then, and the next look for gone
 * ranks says so. */
static tutti_status_t get(const tt_p2p_t *p2p, const tt_message_op_t *op, int from)
{
    tt_coll_t *coll = p2p->coll;
    const size_t bytes = tt_message_bytes(&op->message);
    const tt_heap_span_t span = {op->address, bytes, 1};
    void *data;
    const tutti_status_t status =
        tt_node_peers_find(coll->node_peers, coll->node_peer_ranks[from], span, &data);
    if (status != TUTTI_OK) {
        return status;
    }
    return tt_coll_get(coll, from, op->message.data, data, bytes) ? TUTTI_OK : TUTTI_PENDING;
}

tutti_status_t tt_p2p_get(tt_p2p_t *p2p, int from)
{
    tt_message_queue_t *queue = &p2p->peers[from].cleared;
    for (tt_message_op_t *op = STAILQ_FIRST(queue), *next; op != NULL; op = next) {
        next = STAILQ_NEXT(op, queued);
        const tutti_status_t status = op->address != 0 ? get(p2p, op, from) : TUTTI_PENDING;
        TT_TRY(status);
        if (status == TUTTI_OK) {
            const tt_p2p_header_t fin = {.kind = TT_P2P_FIN, .id = op->id};
            STAILQ_REMOVE(queue, op, tt_message_op, queued);
            tt_p2p_post(p2p, from, &fin, op, TT_P2P_LEAVE);
            tt_p2p_end(p2p, op, TUTTI_OK);
        }
    }
    return TUTTI_OK;
}

/* A long message has found its recv. After a failure the recv is in no queue. */
static tutti_status_t clear(tt_p2p_t *p2p, tt_message_op_t *op, int from,
                            const tt_p2p_header_t *rts)
{
    tt_message_queue_t *queue = &p2p->peers[from].cleared;
    op->id = rts->id;
    op->address = p2p->coll->node_peer_ranks[from] >= 0 ? rts->address : 0;
    STAILQ_INSERT_TAIL(queue, op, queued);
    if (op->address != 0) {
        const tutti_status_t status = tt_p2p_get(p2p, from);
        if (status < 0) {
            STAILQ_REMOVE(queue, op, tt_message_op, queued);
        }
        return status;
    }
    const tt_p2p_header_t cts = {.kind = TT_P2P_CTS, .id = op->id};
    tt_p2p_post(p2p, from, &cts, op, TT_P2P_KEEP);
    return TUTTI_OK;
}

/* ---- messages that have arrived ---- */

tutti_status_t tt_p2p_accept(tt_p2p_t *p2p, tt_message_op_t *op, tt_arrived_t *arrived)
{
    const tt_p2p_header_t *header = &arrived->header;
    TT_TRY(check_match(p2p, op, arrived->source, header));
    op->source = arrived->source;
    op->tag = header->tag;
    if (header->bytes > TT_P2P_EAGER_BYTES) {
        return clear(p2p, op, arrived->source, header);
    }
    memcpy(op->message.data, arrived->payload, (size_t)header->bytes);
    tt_p2p_end(p2p, op, TUTTI_OK);
    return TUTTI_OK;
}

void tt_p2p_describe(tt_message_op_t *probe, const tt_arrived_t *arrived)
{
    probe->source = arrived->source;
    probe->tag = arrived->header.tag;
    probe->message.dtype = (tutti_dtype_t)arrived->header.dtype;
    probe->message.count = (size_t)arrived->header.bytes / tutti_dtype_bytes(probe->message.dtype);
}

/* All of a message is here that no recv was posted for when it began to come. */
static tutti_status_t keep(tt_p2p_t *p2p, tt_arrived_t *arrived)
{
    tt_match_t *match = &p2p->match;
    tt_message_op_t *op = tt_match_recv(match, arrived->source, arrived->header.tag);
    if (op != NULL) {
        const tutti_status_t status = tt_p2p_accept(p2p, op, arrived);
        tt_match_free(match, arrived);
        return status;
    }
    tt_match_keep(match, arrived);
    while ((op = tt_match_probe(match, arrived->source, arrived->header.tag)) != NULL) {
        tt_p2p_describe(op, arrived);
        tt_p2p_end(p2p, op, TUTTI_OK);
    }
    return TUTTI_OK;
}

/* ---- headers ---- */

static tutti_status_t handle_rts(tt_p2p_t *p2p, int from)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    const bool is_eager = peer->in.bytes <= TT_P2P_EAGER_BYTES;
    tt_message_op_t *op = tt_match_recv(&p2p->match, from, peer->in.tag);
    if (op != NULL) {
        TT_TRY(check_match(p2p, op, from, &peer->in));
        if (!is_eager) {
            return clear(p2p, op, from, &peer->in);
        }
        peer->in_op = op;
        peer->target = op->message.data;
        return TUTTI_OK;
    }
    if (p2p->match.arrived_count >= TT_P2P_ARRIVED_MAX) {
        return TUTTI_PENDING;
    }
    tt_arrived_t *arrived = tt_match_new(&p2p->match, from, &peer->in);
    TT_TRY_ALLOC(arrived);
    if (!is_eager) {
        return keep(p2p, arrived);
    }
    peer->in_arrived = arrived;
    peer->target = arrived->payload;
    return TUTTI_OK;
}

/* The operation that an answer is for: one whose own header has gone. */
static tt_message_op_t *answered(tt_message_queue_t *queue, uint64_t id)
{
    tt_message_op_t *op = tt_message_queue_take(queue, id);
    return op != NULL && op->request != NULL ? op : NULL;
}

static tutti_status_t handle_cts(tt_p2p_t *p2p, int from, tt_message_op_t *op)
{
    const tt_p2p_header_t data = {
        .kind = TT_P2P_DATA, .id = op->id, .bytes = tt_message_bytes(&op->message)};
    tt_p2p_post(p2p, from, &data, op, TT_P2P_DONE);
    return TUTTI_OK;
}

static tutti_status_t handle_data(tt_p2p_t *p2p, int from, tt_message_op_t *op)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    if (peer->in.bytes != tt_message_bytes(&op->message)) {
        return fail_format(p2p, from);
    }
    peer->in_op = op;
    peer->target = op->message.data;
    return TUTTI_OK;
}

/* A whole header has come; sets where its payload goes, if it has one. PENDING: it is a message
 * that are not received, and too many of these are kept. With it waits what the rank sent after it.
 */
static tutti_status_t handle_header(tt_p2p_t *p2p, int from)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    const tt_p2p_header_t *header = &peer->in;
    if (header->magic != TT_P2P_MAGIC || header->group != p2p->coll->options.group ||
        header->epoch != p2p->coll->options.epoch || header->dtype >= TUTTI_DTYPE_COUNT) {
        return fail_format(p2p, from);
    }
    if (header->kind == TT_P2P_RTS) {
        return handle_rts(p2p, from);
    }
    const bool is_data = header->kind == TT_P2P_DATA;
    tt_message_op_t *op = answered(is_data ? &peer->cleared : &peer->announced, header->id);
    if (op == NULL) {
        return fail_format(p2p, from);
    }
    switch ((tt_p2p_kind_t)header->kind) {
    case TT_P2P_CTS:
        return handle_cts(p2p, from, op);
    case TT_P2P_DATA:
        return handle_data(p2p, from, op);
    case TT_P2P_FIN:
        tt_p2p_end(p2p, op, TUTTI_OK);
        return TUTTI_OK;
    default:
        return fail_format(p2p, from);
    }
}

static size_t payload_bytes(const tt_p2p_peer_t *peer)
{
    return peer->in_op != NULL || peer->in_arrived != NULL ? (size_t)peer->in.bytes : 0;
}

/* The payload is here too. */
static tutti_status_t end_message(tt_p2p_t *p2p, int from)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    tt_message_op_t *op = peer->in_op;
    tt_arrived_t *arrived = peer->in_arrived;
    peer->in_op = NULL;
    peer->in_arrived = NULL;
    if (op != NULL) {
        tt_p2p_end(p2p, op, TUTTI_OK);
    }
    return arrived != NULL ? keep(p2p, arrived) : TUTTI_OK;
}

/* A header that could not be handled is handled by the next call. */
static tutti_status_t pull_header(tt_p2p_t *p2p, int from)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    if (tt_endpoint_has_header(&peer->endpoint) && !peer->is_header_due) {
        return TUTTI_OK;
    }
    tutti_status_t status = tt_endpoint_recv_header(&peer->endpoint, &peer->in);
    if (status == TUTTI_OK) {
        status = handle_header(p2p, from);
        peer->is_header_due = status != TUTTI_OK;
    }
    return status;
}

tutti_status_t tt_p2p_pull(tt_p2p_t *p2p, int from)
{
    tt_p2p_peer_t *peer = &p2p->peers[from];
    tutti_status_t status = pull_header(p2p, from);
    while (status == TUTTI_OK) {
        status = tt_endpoint_recv_payload(&peer->endpoint, peer->target, payload_bytes(peer));
        if (status == TUTTI_OK) {
            TT_TRY(end_message(p2p, from));
            status = pull_header(p2p, from);
        }
    }
    return status;
}
