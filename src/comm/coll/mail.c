/* The post office of a group: one box per peer, with its wire, what is being sent and what is being
 * received; recvs that wait and offers that nobody waits for, each in the order in which they came.
 *
 * Cost: a short message is one send of letter and payload; a long one to a mate costs two letters
 * and one copy if it lies in the shared heap, else two letters and a pass through the wire.
 */
#include "comm/coll/mail_impl.h"
#include "core/base/alloc.h"

tutti_status_t tt_mail_create(tt_coll_t *coll, tt_mail_t **out)
{
    tt_mail_t *mail = tt_alloc(sizeof *mail, "mail");
    TT_TRY_ALLOC(mail);
    mail->boxes = tt_alloc_array((size_t)coll->size, sizeof *mail->boxes, "mail");
    if (mail->boxes == NULL) {
        tt_free(mail);
        return TUTTI_ERR_NOMEM;
    }
    mail->coll = coll;
    mail->waiting_end = &mail->waiting;
    mail->offers_end = &mail->offers;
    *out = mail;
    return TUTTI_OK;
}

void tt_mail_free_notes(tt_note_t *note)
{
    while (note != NULL) {
        tt_note_t *next = note->next;
        tt_free(note);
        note = next;
    }
}

static void free_offers(tt_offer_t *offer)
{
    while (offer != NULL) {
        tt_offer_t *next = offer->next;
        tt_free(offer);
        offer = next;
    }
}

void tt_mail_release(tt_mail_t *mail)
{
    if (mail == NULL) {
        return;
    }
    for (int i = 0; i < mail->coll->size; i++) {
        tt_wire_close(&mail->boxes[i].wire);
        tt_mail_free_notes(mail->boxes[i].first);
        tt_free(mail->boxes[i].in_offer);
    }
    tt_mail_free_notes(mail->free_notes);
    free_offers(mail->offers);
    free_offers(mail->free_offers);
    tt_free(mail->boxes);
    tt_free(mail);
}

static tutti_status_t open_box(tt_mail_t *mail, int peer)
{
    tt_box_t *box = &mail->boxes[peer];
    return box->wire.ops != NULL ? TUTTI_OK
                                 : tt_coll_open_wire(mail->coll, peer, TT_LANE_MAIL, &box->wire);
}

tutti_status_t tt_mail_post(tt_mail_t *mail, int peer, tt_letter_t letter, tt_message_op_t *run,
                            size_t payload_bytes)
{
    TT_TRY(open_box(mail, peer));
    tt_note_t *note = mail->free_notes;
    if (note != NULL) {
        mail->free_notes = note->next;
    } else {
        note = tt_alloc(sizeof *note, "letter");
        TT_TRY_ALLOC(note);
    }
    letter.magic = TT_LETTER_MAGIC;
    letter.epoch = mail->coll->options.epoch;
    letter.group = mail->coll->options.group;
    *note = (tt_note_t){.letter = letter,
                        .payload = run != NULL ? run->message.data : NULL,
                        .payload_bytes = payload_bytes,
                        .run = payload_bytes > 0 || letter.kind == TT_LETTER_OFFER ? run : NULL};
    tt_box_t *box = &mail->boxes[peer];
    if (box->first == NULL) {
        box->first = note;
    } else {
        box->last->next = note;
    }
    box->last = note;
    return TUTTI_OK;
}

bool tt_mail_has_wire(const tt_mail_t *mail, int peer)
{
    return mail->boxes[peer].wire.ops != NULL;
}

void tt_mail_finish(tt_mail_t *mail, tt_message_op_t *run, tutti_status_t status)
{
    run->next = NULL;
    run->op.status = status;
    mail->active--;
    tt_record_progress(&mail->coll->block->records, run->op.record,
                       status < 0 ? TT_RECORD_FAILED : TT_RECORD_DONE, -1);
}

void tt_mail_append(tt_message_op_t **list, tt_message_op_t *run)
{
    run->next = NULL;
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = run;
}

/* ---- sending ----------------------------------------------------------------------------------
 */

static tutti_status_t start_send(tt_mail_t *mail, tt_message_op_t *run)
{
    const tt_message_t *message = &run->message;
    const size_t bytes = tt_message_bytes(message);
    const bool is_eager = bytes <= TT_MAIL_EAGER_BYTES;
    tt_coll_t *coll = mail->coll;
    run->id = ++mail->last_id;
    tt_letter_t letter = {.kind = TT_LETTER_OFFER,
                          .dtype = (uint8_t)message->dtype,
                          .tag = message->tag,
                          .id = run->id,
                          .bytes = bytes};
    if (!is_eager && coll->mate_ranks[message->peer] >= 0) {
        letter.place = tt_heap_place(tt_mates_heap(coll->mates), message->data, bytes);
    }
    if (is_eager) {
        return tt_mail_post(mail, message->peer, letter, run, bytes);
    }
    TT_TRY(tt_mail_post(mail, message->peer, letter, NULL, 0));
    tt_mail_append(&mail->boxes[message->peer].announced, run);
    return TUTTI_OK;
}

/* Gives the first note to the wire; OK when it is gone. */
static tutti_status_t push(tt_box_t *box)
{
    const tt_note_t *note = box->first;
    const size_t all = sizeof note->letter + note->payload_bytes;
    while (box->sent < all) {
        const size_t header = box->sent < sizeof note->letter ? box->sent : sizeof note->letter;
        const size_t payload = box->sent - header;
        const tt_span_t spans[] = {
            {(const char *)&note->letter + header, sizeof note->letter - header},
            {note->payload_bytes > 0 ? (const char *)note->payload + payload : NULL,
             note->payload_bytes - payload},
        };
        const int skip = header == sizeof note->letter;
        size_t part;
        TT_TRY(box->wire.ops->send(box->wire.state, spans + skip,
                                   note->payload_bytes > 0 ? 2 - skip : 1, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        box->sent += part;
    }
    return TUTTI_OK;
}

static tutti_status_t push_all(tt_mail_t *mail, tt_box_t *box)
{
    while (box->first != NULL) {
        const tutti_status_t status = push(box);
        if (status != TUTTI_OK) {
            return status;
        }
        tt_note_t *note = box->first;
        box->first = note->next;
        box->sent = 0;
        if (note->run != NULL) {
            tt_mail_finish(mail, note->run, TUTTI_OK);
        }
        note->next = mail->free_notes;
        mail->free_notes = note;
    }
    return TUTTI_OK;
}

/* Whether somebody waits for anyone, so that all boxes must be looked into. */
static bool waits_for_any(const tt_mail_t *mail)
{
    for (const tt_message_op_t *run = mail->waiting; run != NULL; run = run->next) {
        if (run->message.peer == TT_ANY_RANK) {
            return true;
        }
    }
    return false;
}

bool tt_mail_is_busy(const tt_mail_t *mail)
{
    return mail->active > 0;
}

tutti_status_t tt_mail_progress(tt_mail_t *mail)
{
    if (mail->active == 0) {
        bool is_idle = true;
        for (int i = 0; i < mail->coll->size && is_idle; i++) {
            is_idle = mail->boxes[i].first == NULL;
        }
        if (is_idle) {
            return TUTTI_OK;
        }
    }
    const bool any = waits_for_any(mail);
    for (int i = 0; i < mail->coll->size; i++) {
        tt_box_t *box = &mail->boxes[i];
        if (box->wire.ops == NULL && (!any || i == mail->coll->rank)) {
            continue;
        }
        TT_TRY(open_box(mail, i));
        TT_TRY(push_all(mail, box));
        TT_TRY(tt_mail_pull(mail, i));
        TT_TRY(tt_mail_read(mail, i));
        TT_TRY(push_all(mail, box));
    }
    return TUTTI_OK;
}

static void take_out(tt_message_op_t **list, const tt_message_op_t *run)
{
    while (*list != NULL && *list != run) {
        list = &(*list)->next;
    }
    if (*list != NULL) {
        *list = run->next;
    }
}

/* A message that failed while it was started is in at most one of these lists. */
static void forget(tt_mail_t *mail, const tt_message_op_t *run)
{
    for (int i = 0; i < mail->coll->size; i++) {
        take_out(&mail->boxes[i].announced, run);
        take_out(&mail->boxes[i].taking, run);
    }
}

tutti_status_t tt_mail_start(tt_mail_t *mail, const tt_message_t *message, tt_message_op_t *run)
{
    run->message = *message;
    run->op.record = tt_record_start(
        &mail->coll->block->records, 0, message->count, (uint64_t)(int64_t)message->tag,
        message->site,
        tt_record_what(message->kind == TT_MESSAGE_SEND ? TT_RECORD_SEND : TT_RECORD_RECV, 0,
                       (int)message->dtype, 0, message->peer));
    run->op.kind = TT_OP_MESSAGE;
    run->next = NULL;
    run->place = 0;
    run->op.is_reported = false;
    run->op.waited_since_ns = tt_clock_ns();
    run->source = mail->coll->rank;
    run->tag = message->tag;
    run->op.status = TUTTI_PENDING;
    mail->active++;
    tutti_status_t status;
    if (message->kind == TT_MESSAGE_SEND) {
        status = start_send(mail, run);
    } else {
        bool is_taken = false;
        status = message->peer == TT_ANY_RANK ? TUTTI_OK : open_box(mail, message->peer);
        status = status < 0 ? status : tt_mail_accept(mail, run, &is_taken);
        if (status >= 0 && !is_taken) {
            *mail->waiting_end = run;
            mail->waiting_end = &run->next;
        }
    }
    if (status < 0) {
        forget(mail, run);
        tt_mail_finish(mail, run, status);
    }
    return status < 0 ? status : TUTTI_OK;
}
