/* What can go wrong with messages: dead ranks, deadlines. Reads what the other p2p*.c files keep,
 * and is called by none of them. */
#include <stdio.h>

#include "comm/diagnose/stragglers.h"
#include "comm/p2p/p2p_impl.h"
#include "core/base/log.h"

typedef struct {
    char text[320];
} text_t;

/* "recv of f32[4] from rank 1 (tag 3) of group world (train.c:88)" */
static tt_call_text_t describe(const tt_p2p_t *p2p, const tt_message_op_t *op)
{
    const tt_record_t record = tt_message_record(&op->message);
    return tt_record_in_group(&record, p2p->coll->options.name,
                              tt_site_name(op->message.site).text);
}

/* "; rank 1 waits in barrier #3 of group tp (train.c:80)", or "" */
static text_t describe_peer(const tt_p2p_t *p2p, const tt_message_op_t *op)
{
    text_t out = {""};
    if (op->message.peer >= 0 && op->message.peer != p2p->coll->rank) {
        const tt_call_text_t wait_state = tt_coll_wait_state(p2p->coll, op->message.peer);
        if (wait_state.text[0] != 0) {
            snprintf(out.text, sizeof out.text, "; rank %d waits in %s", op->message.peer,
                     wait_state.text);
        } else {
            snprintf(out.text, sizeof out.text, "; rank %d is in no call that waits",
                     op->message.peer);
        }
    }
    return out;
}

static void report_hang(const tt_p2p_t *p2p, tt_message_op_t *op, int64_t waited_ns)
{
    if (op->op.is_reported || waited_ns < tt_ms_in_ns(tt_coll_report_ms(p2p->coll))) {
        return;
    }
    op->op.is_reported = true;
    tt_log(TT_LOG_WARN, "rank %d has been waiting for %.1f s in %s%s", p2p->coll->rank,
           (double)waited_ns / (double)TT_NS_PER_S, describe(p2p, op).text,
           describe_peer(p2p, op).text);
}

/* ---- ranks that have given the group up ---- */

/* A rank of another host can say so only on a connection from here. Its messages may come from
 * elsewhere, or there are none yet: some of the ranks are called at each look, in turn. A rank that
 * does not answer is not blamed for that. */
static void call_some(const tt_p2p_t *p2p)
{
    enum { AT_ONCE = 16 };
    tt_coll_t *coll = p2p->coll;
    const int count = coll->size < AT_ONCE ? coll->size : AT_ONCE;
    const unsigned first = p2p->looks * (unsigned)count;
    for (int i = 0; i < count && coll->host_count > 1; i++) {
        const int rank = (int)((first + (unsigned)i) % (unsigned)coll->size);
        if (coll->node_peer_ranks[rank] < 0 && tt_coll_open_link(coll, rank) >= 0) {
            const tt_wire_t *wire = &coll->links.all[rank].endpoint.wire;
            (void)wire->ops->probe(wire->state);
        }
    }
}

/* All ranks are listened to, before any of them is blamed: a group fails as a whole. */
static tutti_status_t listen_to_all(const tt_p2p_t *p2p, const tt_message_op_t *op, int *blamed)
{
    call_some(p2p);
    const tt_verdict_t verdict = tt_coll_listen_to(p2p->coll);
    if (verdict.status >= 0) {
        return TUTTI_OK;
    }
    *blamed = verdict.blamed;
    return TT_FAIL(verdict.status, "%s: %s", describe(p2p, op).text, tutti_last_error());
}

/* ---- ranks that are gone ---- */

/* What a peer sent before it went may arrive after the last look into its wire, so that it is
 * blamed at the next look at the earliest; everything is read in between. */
static bool was_gone_before(const tt_p2p_t *p2p, tt_p2p_peer_t *peer)
{
    if (peer->gone_look == 0) {
        peer->gone_look = p2p->looks;
    }
    return peer->gone_look != p2p->looks;
}

/* How a rank went; "" while it is not known to have gone. */
static text_t how_it_went(const tt_p2p_t *p2p, int rank)
{
    const tt_coll_t *coll = p2p->coll;
    const int local = coll->node_peer_ranks[rank];
    const tt_wire_t *wire = &p2p->peers[rank].endpoint.wire;
    bool has_left = false, is_dead = false;
    text_t how = {""};
    if (local >= 0) {
        const uint64_t failure =
            atomic_load_explicit(&coll->blocks[rank]->failure, memory_order_acquire);
        has_left =
            failure != 0 || tt_node_peers_state(coll->node_peers, local) == TT_NODE_PEER_LEFT;
        is_dead = tt_node_peers_state(coll->node_peers, local) == TT_NODE_PEER_DEAD;
        snprintf(how.text, sizeof how.text, "%s", tt_node_peers_how(coll->node_peers, local));
    } else if (wire->ops != NULL) {
        has_left = wire->ops->peer_reason(wire->state) != 0 && wire->ops->has_ended(wire->state);
        is_dead = wire->ops->probe(wire->state) < 0;
        snprintf(how.text, sizeof how.text, "is gone: %.60s", is_dead ? tutti_last_error() : "");
    }
    return has_left ? (text_t){"has left the group"} : is_dead ? how : (text_t){""};
}

static tutti_status_t judge_peer(const tt_p2p_t *p2p, const tt_message_op_t *op, int peer)
{
    if (peer == p2p->coll->rank) {
        return TUTTI_OK;
    }
    const text_t how = how_it_went(p2p, peer);
    if (how.text[0] == 0 || !was_gone_before(p2p, &p2p->peers[peer])) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s: rank %d %s", describe(p2p, op).text, peer, how.text);
}

/* Somebody may send it as long as one other rank is there; whether one of the others is, is not
 * asked then, for asking connects. A rank that is alone in its group may post it: an error is only
 * to wait for it. */
static tutti_status_t judge_all(const tt_p2p_t *p2p, const tt_message_op_t *op)
{
    const tt_coll_t *coll = p2p->coll;
    bool is_any_here = false;
    for (int rank = 0; rank < coll->size; rank++) {
        const bool has_gone = rank == coll->rank || how_it_went(p2p, rank).text[0] != 0;
        if (!has_gone) {
            return TUTTI_OK;
        }
        is_any_here =
            is_any_here || (rank != coll->rank && !was_gone_before(p2p, &p2p->peers[rank]));
    }
    if (is_any_here || (coll->size == 1 && op->op.waited_since_ns == 0)) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s: %s", describe(p2p, op).text,
                   coll->size == 1 ? "the group has no other rank"
                                   : "all other ranks have died or left the group");
}

static tutti_status_t judge_sources(const tt_p2p_t *p2p, const tt_message_op_t *op)
{
    return op->message.peer >= 0 ? judge_peer(p2p, op, op->message.peer) : judge_all(p2p, op);
}

/* Messages that the program does not receive may be why the awaited one was not read. */
static text_t describe_full(const tt_p2p_t *p2p)
{
    text_t out = {""};
    if (p2p->match.arrived_count >= TT_P2P_ARRIVED_MAX) {
        snprintf(out.text, sizeof out.text,
                 "; rank %d keeps %d messages that it has not received, and takes no more",
                 p2p->coll->rank, p2p->match.arrived_count);
    }
    return out;
}

/* An operation that was posted early has no deadline until the program waits for it. */
static tutti_status_t judge_time(const tt_p2p_t *p2p, tt_message_op_t *op, int64_t now)
{
    const int64_t timeout_ms = p2p->coll->options.timeout_ms;
    if (op->op.waited_since_ns == 0) {
        return TUTTI_OK;
    }
    const int64_t waited_ns = now - op->op.waited_since_ns;
    report_hang(p2p, op, waited_ns);
    if (waited_ns / TT_NS_PER_MS < timeout_ms) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s within %lld ms%s%s", describe(p2p, op).text,
                   op->message.kind == TT_MESSAGE_SEND ? "nobody received it" : "nothing was sent",
                   (long long)timeout_ms, describe_full(p2p).text, describe_peer(p2p, op).text);
}

tutti_status_t tt_p2p_watch(tt_p2p_t *p2p, int64_t now, int *blamed)
{
    p2p->looks++;
    if (!TAILQ_EMPTY(&p2p->ops)) {
        TT_TRY(listen_to_all(p2p, TAILQ_FIRST(&p2p->ops), blamed));
    }
    tt_message_op_t *op;
    TAILQ_FOREACH(op, &p2p->ops, under_way)
    {
        *blamed = op->message.peer;
        TT_TRY(judge_sources(p2p, op));
        TT_TRY(judge_time(p2p, op, now));
    }
    return TUTTI_OK;
}

tutti_status_t tt_p2p_watch_probe(tt_p2p_t *p2p, const tt_message_op_t *op, int *blamed)
{
    p2p->looks++;
    TT_TRY(listen_to_all(p2p, op, blamed));
    *blamed = op->message.peer;
    return judge_sources(p2p, op);
}
