/* What can go wrong with messages: dead ranks, deadlines, a group that has failed. */
#include <stdio.h>

#include "comm/coll/mail_impl.h"

/* ---- trouble ----------------------------------------------------------------------------------
 */

typedef struct {
    char text[160];
} text_t;

static text_t describe(const tt_run_t *run)
{
    const tt_message_t *message = &run->message;
    text_t out;
    char peer[24] = "any rank", tag[24] = "any tag";
    if (message->peer >= 0) {
        snprintf(peer, sizeof peer, "rank %d", message->peer);
    }
    if (message->tag >= 0) {
        snprintf(tag, sizeof tag, "tag %d", message->tag);
    }
    snprintf(out.text, sizeof out.text, "%s of %s[%zu] %s %s (%s)",
             message->is_send ? "send" : "recv", tutti_dtype_name(message->dtype), message->count,
             message->is_send ? "to" : "from", peer, tag);
    return out;
}

static tutti_status_t judge_peer(const tt_mail_t *mail, const tt_run_t *run, int peer)
{
    const tt_coll_t *coll = mail->coll;
    const int mate = coll->mate_ranks[peer];
    const tt_wire_t *wire = &mail->boxes[peer].wire;
    bool has_left = false, is_dead = false;
    if (peer == coll->rank) {
        return TUTTI_OK;
    }
    if (mate >= 0) {
        const uint64_t failure =
            atomic_load_explicit(&coll->blocks[peer]->failure, memory_order_acquire);
        has_left = failure != 0 || tt_mates_state(coll->mates, mate) == TT_MATE_LEFT;
        is_dead = tt_mates_state(coll->mates, mate) == TT_MATE_DEAD;
    } else if (wire->ops != NULL) {
        has_left = wire->ops->heard(wire->state) != 0 && wire->ops->has_ended(wire->state);
        is_dead = wire->ops->probe(wire->state) < 0;
    }
    if (!has_left && !is_dead) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s of group %s: rank %d %s", describe(run).text,
                   coll->options.name, peer,
                   has_left    ? "has left the group"
                   : mate >= 0 ? "died"
                               : "is gone: its connections are closed");
}

static tutti_status_t judge(const tt_mail_t *mail, tt_run_t *run, int64_t now, int *blamed)
{
    const int64_t timeout_ms = mail->coll->options.timeout_ms;
    *blamed = run->message.peer;
    if (run->message.peer >= 0) {
        TT_TRY(judge_peer(mail, run, run->message.peer));
    }
    if (now - run->started_ns < timeout_ms * TT_NS_PER_MS) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s of group %s: %s within %lld ms", describe(run).text,
                   mail->coll->options.name,
                   run->message.is_send ? "nobody received it" : "nothing was sent",
                   (long long)timeout_ms);
}

static tutti_status_t judge_list(const tt_mail_t *mail, tt_run_t *run, int64_t now, int *blamed)
{
    for (; run != NULL; run = run->next) {
        TT_TRY(judge(mail, run, now, blamed));
    }
    return TUTTI_OK;
}

tutti_status_t tt_mail_watch(tt_mail_t *mail, int64_t now, int *blamed)
{
    TT_TRY(judge_list(mail, mail->waiting, now, blamed));
    for (int i = 0; i < mail->coll->size; i++) {
        const tt_box_t *box = &mail->boxes[i];
        TT_TRY(judge_list(mail, box->announced, now, blamed));
        TT_TRY(judge_list(mail, box->taking, now, blamed));
        for (const tt_note_t *note = box->first; note != NULL; note = note->next) {
            if (note->run != NULL) {
                TT_TRY(judge(mail, note->run, now, blamed));
            }
        }
        if (box->in_run != NULL) {
            TT_TRY(judge(mail, box->in_run, now, blamed));
        }
    }
    return TUTTI_OK;
}

void tt_mail_say_farewell(tt_mail_t *mail, uint64_t reason)
{
    for (int i = 0; i < mail->coll->size; i++) {
        const tt_wire_t *wire = &mail->boxes[i].wire;
        if (wire->ops != NULL && wire->ops->farewell != NULL) {
            wire->ops->farewell(wire->state, reason);
        }
    }
}

static void fail_list(tt_mail_t *mail, tt_run_t **list, tutti_status_t status)
{
    while (*list != NULL) {
        tt_run_t *run = *list;
        *list = run->next;
        tt_mail_finish(mail, run, status);
    }
}

void tt_mail_fail(tt_mail_t *mail, tutti_status_t status)
{
    fail_list(mail, &mail->waiting, status);
    mail->waiting_end = &mail->waiting;
    for (int i = 0; i < mail->coll->size; i++) {
        tt_box_t *box = &mail->boxes[i];
        fail_list(mail, &box->announced, status);
        fail_list(mail, &box->taking, status);
        for (tt_note_t *note = box->first; note != NULL; note = note->next) {
            if (note->run != NULL) {
                tt_mail_finish(mail, note->run, status);
                note->run = NULL;
            }
        }
        tt_mail_free_notes(box->first);
        box->first = box->last = NULL;
        if (box->in_run != NULL) {
            tt_mail_finish(mail, box->in_run, status);
            box->in_run = NULL;
        }
    }
}
