/* Starting messages of a group, and looking for them. Messages are not queued with the calls
 * (p2p.h), but a group fails as a whole. */
#include "comm/coll/coll.h"
#include "comm/coll/coll_fail.h"
#include "comm/p2p/p2p.h"

static void give_up(tt_coll_t *coll, tutti_status_t status, int blamed)
{
    tt_coll_fail_message(coll, status, blamed);
    tt_coll_progress(coll); /* ends whatever is under way */
}

tutti_status_t tt_coll_start_message(tt_coll_t *coll, const tt_message_t *message,
                                     tt_message_op_t *op)
{
    if (coll->status < 0) {
        return tt_fail_again(coll->status, coll->error);
    }
    if (coll->p2p == NULL) {
        TT_TRY(tt_p2p_create(coll, &coll->p2p));
    }
    const tutti_status_t status = tt_p2p_start(coll->p2p, message, op);
    if (status < 0 && status != TUTTI_ERR_NOMEM) {
        give_up(coll, status, message->peer);
    }
    return status;
}

/* What has come is looked at before the rank that it is to come from is blamed; with what another
 * one has failed of, this one follows it. */
static tutti_status_t iprobe(tt_coll_t *coll, const tt_message_t *message, tt_message_op_t *op)
{
    const bool looks = tt_coll_check_health(coll, tt_clock_ns());
    if (coll->status < 0) {
        return coll->status;
    }
    tutti_status_t status = tt_p2p_iprobe(coll->p2p, message, op);
    if (status == TUTTI_PENDING && looks) {
        int blamed = message->peer;
        const tutti_status_t watched = tt_p2p_watch_probe(coll->p2p, op, &blamed);
        tt_coll_fail(coll, (tt_verdict_t){watched, blamed, false});
        status = watched < 0 ? watched : status;
    }
    return status;
}

tutti_status_t tt_coll_iprobe(tt_coll_t *coll, const tt_message_t *message, tt_message_op_t *op)
{
    if (coll->p2p == NULL) {
        TT_TRY(tt_p2p_create(coll, &coll->p2p));
    }
    const tutti_status_t status = iprobe(coll, message, op);
    if (status == TUTTI_ERR_NOMEM && coll->status >= 0) {
        return status; /* nothing is lost, and the next look may find memory */
    }
    if (status < 0) {
        give_up(coll, status, message->peer);
        return tt_fail_again(coll->status, coll->error);
    }
    return status;
}

bool tt_coll_has_answers(const tt_coll_t *coll)
{
    return coll->p2p != NULL && tt_p2p_has_outgoing(coll->p2p);
}
