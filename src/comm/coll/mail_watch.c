/* What can go wrong with messages: dead ranks, deadlines, a group that has failed. */
#include <stdio.h>

#include "comm/coll/coll_late.h"
#include "comm/coll/mail_impl.h"
#include "core/base/log.h"

/* ---- trouble ----------------------------------------------------------------------------------
 */

typedef struct {
    char text[320];
} text_t;

/* "recv of f32[4] from rank 1 (tag 3) of group world (train.c:88)" */
static text_t describe(const tt_mail_t *mail, const tt_message_op_t *run)
{
    const tt_message_t *message = &run->message;
    const tt_record_t record = {.kind = message->kind == TT_MESSAGE_SEND ? TT_RECORD_SEND
                                                                         : TT_RECORD_RECV,
                                .dtype = (int)message->dtype,
                                .count = message->count,
                                .root = message->peer,
                                .tag = (uint64_t)(int64_t)message->tag};
    text_t out;
    snprintf(out.text, sizeof out.text, "%.120s of group %.60s%.100s",
             tt_record_describe(&record).text, mail->coll->options.name,
             tt_site_in_brackets(message->site).text);
    return out;
}

/* "; rank 1 waits in barrier #3 of group tp (train.c:80)", or "" */
static text_t describe_peer(const tt_mail_t *mail, const tt_message_op_t *run)
{
    text_t out = {""};
    if (run->message.peer >= 0 && run->message.peer != mail->coll->rank) {
        const tt_call_text_t where = tt_coll_where(mail->coll, run->message.peer);
        if (where.text[0] != 0) {
            snprintf(out.text, sizeof out.text, "; rank %d waits in %s", run->message.peer,
                     where.text);
        } else {
            snprintf(out.text, sizeof out.text, "; rank %d is in no call that waits",
                     run->message.peer);
        }
    }
    return out;
}

static void report_hang(const tt_mail_t *mail, tt_message_op_t *run, int64_t waited_ns)
{
    if (run->op.is_reported || waited_ns < tt_coll_report_ms(mail->coll) * TT_NS_PER_MS) {
        return;
    }
    run->op.is_reported = true;
    tt_log(TT_LOG_WARN, "rank %d has been waiting for %.1f s in %s%s", mail->coll->rank,
           (double)waited_ns / (double)TT_NS_PER_S, describe(mail, run).text,
           describe_peer(mail, run).text);
}

/* What a peer sent before it went may have come after the last look into its wire, so that it is
 * blamed at the next look at the earliest; everything is read in between. */
static bool was_gone_before(const tt_mail_t *mail, tt_box_t *box)
{
    if (box->gone_look == 0) {
        box->gone_look = mail->looks;
    }
    return box->gone_look != mail->looks;
}

static tutti_status_t judge_peer(const tt_mail_t *mail, const tt_message_op_t *run, int peer)
{
    const tt_coll_t *coll = mail->coll;
    const int mate = coll->mate_ranks[peer];
    const tt_wire_t *wire = &mail->boxes[peer].wire;
    bool has_left = false, is_dead = false;
    char how[80] = "died";
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
        snprintf(how, sizeof how, "is gone: %.60s", is_dead ? tutti_last_error() : "");
    }
    if ((!has_left && !is_dead) || !was_gone_before(mail, &mail->boxes[peer])) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s: rank %d %s", describe(mail, run).text, peer,
                   has_left ? "has left the group" : how);
}

static tutti_status_t judge(const tt_mail_t *mail, tt_message_op_t *run, int64_t now, int *blamed)
{
    const int64_t timeout_ms = mail->coll->options.timeout_ms;
    *blamed = run->message.peer;
    if (run->message.peer >= 0) {
        TT_TRY(judge_peer(mail, run, run->message.peer));
    }
    report_hang(mail, run, now - run->op.waited_since_ns);
    if (now - run->op.waited_since_ns < timeout_ms * TT_NS_PER_MS) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "%s: %s within %lld ms%s", describe(mail, run).text,
                   run->message.kind == TT_MESSAGE_SEND ? "nobody received it" : "nothing was sent",
                   (long long)timeout_ms, describe_peer(mail, run).text);
}

static tutti_status_t judge_list(const tt_mail_t *mail, tt_message_op_t *run, int64_t now,
                                 int *blamed)
{
    for (; run != NULL; run = run->next) {
        TT_TRY(judge(mail, run, now, blamed));
    }
    return TUTTI_OK;
}

tutti_status_t tt_mail_watch(tt_mail_t *mail, int64_t now, int *blamed)
{
    mail->looks++;
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

static void fail_list(tt_mail_t *mail, tt_message_op_t **list, tutti_status_t status)
{
    while (*list != NULL) {
        tt_message_op_t *run = *list;
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
