/* Receiving messages: letters are read, matched with recvs in the order in which they came, and
 * their payloads go straight to where they are wanted, or are kept until somebody wants them. */
#include <string.h>

#include "comm/coll/mail_impl.h"
#include "core/base/alloc.h"

/* ---- receiving --------------------------------------------------------------------------------
 */

static bool matches(const tt_message_op_t *run, int from, int tag)
{
    return (run->message.peer == TT_ANY_RANK || run->message.peer == from) &&
           (run->message.tag == TT_ANY_TAG || run->message.tag == tag);
}

static tutti_status_t check_match(const tt_mail_t *mail, const tt_message_op_t *run, int from,
                                  const tt_letter_t *letter)
{
    const tt_message_t *want = &run->message;
    if (letter->dtype == (uint8_t)want->dtype && letter->bytes == tt_message_bytes(want)) {
        return TUTTI_OK;
    }
    const tutti_dtype_t sent = (tutti_dtype_t)letter->dtype;
    return TT_FAIL(TUTTI_ERR_MISMATCH,
                   "message with tag %d of group %s: rank %d sent %s[%llu], rank %d receives "
                   "%s[%zu]",
                   letter->tag, mail->coll->options.name, from, tutti_dtype_name(sent),
                   (unsigned long long)(letter->bytes / tutti_dtype_bytes(sent)), mail->coll->rank,
                   tutti_dtype_name(want->dtype), want->count);
}

/* Reads a mate's message where it lies; PENDING while its segment is on its way. */
static tutti_status_t read_in_place(tt_mail_t *mail, const tt_message_op_t *run, int from)
{
    tt_coll_t *coll = mail->coll;
    const size_t bytes = tt_message_bytes(&run->message);
    const void *data = tt_mates_at(coll->mates, coll->mate_ranks[from], run->place, bytes);
    if (data == NULL) {
        tt_mates_check(coll->mates);
        data = tt_mates_at(coll->mates, coll->mate_ranks[from], run->place, bytes);
    }
    if (data == NULL) {
        return TUTTI_PENDING;
    }
    memcpy(run->message.data, data, bytes);
    return tt_mail_post(mail, from, (tt_letter_t){.kind = TT_LETTER_DONE, .id = run->id}, NULL, 0);
}

/* Recvs whose message is read where it lies, as soon as its segment has come. */
tutti_status_t tt_mail_read(tt_mail_t *mail, int from)
{
    for (tt_message_op_t **at = &mail->boxes[from].taking; *at != NULL;) {
        tt_message_op_t *run = *at;
        const tutti_status_t status =
            run->place != 0 ? read_in_place(mail, run, from) : TUTTI_PENDING;
        TT_TRY(status);
        if (status == TUTTI_PENDING) {
            at = &run->next;
        } else {
            *at = run->next;
            tt_mail_finish(mail, run, TUTTI_OK);
        }
    }
    return TUTTI_OK;
}

/* A long message has found its recv. */
static tutti_status_t take(tt_mail_t *mail, tt_message_op_t *run, int from,
                           const tt_letter_t *letter)
{
    run->id = letter->id;
    run->place = mail->coll->mate_ranks[from] >= 0 ? letter->place : 0;
    tt_mail_append(&mail->boxes[from].taking, run);
    if (run->place != 0) {
        return tt_mail_read(mail, from);
    }
    return tt_mail_post(mail, from, (tt_letter_t){.kind = TT_LETTER_TAKE, .id = letter->id}, NULL,
                        0);
}

static tt_message_op_t *find_waiting(tt_mail_t *mail, int from, int tag)
{
    tt_message_op_t **at = &mail->waiting;
    while (*at != NULL && !matches(*at, from, tag)) {
        at = &(*at)->next;
    }
    tt_message_op_t *run = *at;
    if (run != NULL) {
        *at = run->next;
        if (run->next == NULL) {
            mail->waiting_end = at;
        }
        run->next = NULL;
        run->source = from;
        run->tag = tag;
    }
    return run;
}

static tt_message_op_t *find_by_id(tt_message_op_t **list, uint64_t id)
{
    while (*list != NULL && (*list)->id != id) {
        list = &(*list)->next;
    }
    tt_message_op_t *run = *list;
    if (run != NULL) {
        *list = run->next;
        run->next = NULL;
    }
    return run;
}

static tutti_status_t new_offer(tt_mail_t *mail, int from, const tt_letter_t *letter,
                                tt_offer_t **out)
{
    tt_offer_t *offer = mail->free_offers;
    if (offer != NULL) {
        mail->free_offers = offer->next;
    } else {
        offer = tt_alloc_raw(sizeof *offer, "message nobody waits for");
        TT_TRY_ALLOC(offer);
    }
    offer->next = NULL;
    offer->from = from;
    offer->letter = *letter;
    offer->is_whole = false;
    *out = offer;
    return TUTTI_OK;
}

static void keep_offer(tt_mail_t *mail, tt_offer_t *offer)
{
    *mail->offers_end = offer;
    mail->offers_end = &offer->next;
    mail->offer_count++;
}

static tutti_status_t handle_offer(tt_mail_t *mail, int from)
{
    tt_box_t *box = &mail->boxes[from];
    const bool is_eager = box->in.bytes <= TT_MAIL_EAGER_BYTES;
    tt_message_op_t *run = find_waiting(mail, from, box->in.tag);
    if (run != NULL) {
        const tutti_status_t status = check_match(mail, run, from, &box->in);
        if (status < 0) {
            tt_mail_finish(mail, run, status);
            return status;
        }
        if (!is_eager) {
            return take(mail, run, from, &box->in);
        }
        box->in_run = run;
        box->target = run->message.data;
        return TUTTI_OK;
    }
    tt_offer_t *offer;
    TT_TRY(new_offer(mail, from, &box->in, &offer));
    if (is_eager) {
        box->in_offer = offer;
        box->target = offer->payload;
    } else {
        keep_offer(mail, offer);
    }
    return TUTTI_OK;
}

static tutti_status_t fail_format(const tt_mail_t *mail, int from)
{
    return TT_FAIL(TUTTI_ERR_FORMAT, "rank %d of group %s sent bytes that are no message of ours",
                   from, mail->coll->options.name);
}

/* A whole letter has come; sets where its payload goes, if it has one. */
static tutti_status_t handle_letter(tt_mail_t *mail, int from)
{
    tt_box_t *box = &mail->boxes[from];
    const tt_letter_t *letter = &box->in;
    box->target = NULL;
    if (letter->magic != TT_LETTER_MAGIC || letter->group != mail->coll->options.group ||
        letter->epoch != mail->coll->options.epoch || letter->dtype >= TUTTI_DTYPE_COUNT) {
        return fail_format(mail, from);
    }
    tt_message_op_t *run;
    switch ((tt_letter_kind_t)letter->kind) {
    case TT_LETTER_OFFER:
        return handle_offer(mail, from);
    case TT_LETTER_TAKE:
        run = find_by_id(&box->announced, letter->id);
        return run == NULL ? fail_format(mail, from)
                           : tt_mail_post(mail, from,
                                          (tt_letter_t){.kind = TT_LETTER_BODY,
                                                        .id = run->id,
                                                        .bytes = tt_message_bytes(&run->message)},
                                          run, tt_message_bytes(&run->message));
    case TT_LETTER_BODY:
        run = find_by_id(&box->taking, letter->id);
        if (run == NULL || letter->bytes != tt_message_bytes(&run->message)) {
            return fail_format(mail, from);
        }
        box->in_run = run;
        box->target = run->message.data;
        return TUTTI_OK;
    case TT_LETTER_DONE:
        run = find_by_id(&box->announced, letter->id);
        if (run == NULL) {
            return fail_format(mail, from);
        }
        tt_mail_finish(mail, run, TUTTI_OK);
        return TUTTI_OK;
    }
    return fail_format(mail, from);
}

static size_t payload_bytes(const tt_box_t *box)
{
    return box->in_run != NULL || box->in_offer != NULL ? (size_t)box->in.bytes : 0;
}

/* The payload is here too. A recv may have begun to wait for the offer meanwhile. */
static void end_letter(tt_mail_t *mail, int from)
{
    tt_box_t *box = &mail->boxes[from];
    if (box->in_run != NULL) {
        tt_mail_finish(mail, box->in_run, TUTTI_OK);
    } else if (box->in_offer != NULL) {
        box->in_offer->is_whole = true;
        keep_offer(mail, box->in_offer);
    }
    box->in_run = NULL;
    box->in_offer = NULL;
    box->received = 0;
}

static tutti_status_t pull(tt_box_t *box, void *base, size_t begin, size_t end)
{
    while (box->received < end) {
        size_t part;
        TT_TRY(box->wire.ops->recv(box->wire.state, (char *)base + (box->received - begin),
                                   end - box->received, &part));
        if (part == 0) {
            return TUTTI_PENDING;
        }
        box->received += part;
    }
    return TUTTI_OK;
}

static void give_back_offer(tt_mail_t *mail, tt_offer_t **at)
{
    tt_offer_t *offer = *at;
    *at = offer->next;
    if (offer->next == NULL) {
        mail->offers_end = at;
    }
    mail->offer_count--;
    offer->next = mail->free_offers;
    mail->free_offers = offer;
}

/* The first offer that a new recv matches, if there is one. */
tutti_status_t tt_mail_accept(tt_mail_t *mail, tt_message_op_t *run, bool *is_taken)
{
    tt_offer_t **at = &mail->offers;
    while (*at != NULL && !matches(run, (*at)->from, (*at)->letter.tag)) {
        at = &(*at)->next;
    }
    *is_taken = *at != NULL;
    if (*at == NULL) {
        return TUTTI_OK;
    }
    tt_offer_t *offer = *at;
    run->source = offer->from;
    run->tag = offer->letter.tag;
    tutti_status_t status = check_match(mail, run, offer->from, &offer->letter);
    if (status >= 0 && offer->is_whole) {
        memcpy(run->message.data, offer->payload, tt_message_bytes(&run->message));
        tt_mail_finish(mail, run, TUTTI_OK);
    } else if (status >= 0) {
        status = take(mail, run, offer->from, &offer->letter);
    }
    give_back_offer(mail, at);
    return status;
}

/* Offers are matched in the order in which they became whole: a recv that began while a payload was
 * still coming is in `waiting`, and gets it here. */
static tutti_status_t match_waiting(tt_mail_t *mail)
{
    for (tt_offer_t **at = &mail->offers; *at != NULL;) {
        tt_message_op_t *run = find_waiting(mail, (*at)->from, (*at)->letter.tag);
        if (run == NULL) {
            at = &(*at)->next;
            continue;
        }
        bool is_taken;
        const tutti_status_t status = tt_mail_accept(mail, run, &is_taken);
        if (status < 0) { /* it is in no list any more: nobody else would end it */
            tt_mail_finish(mail, run, status);
            return status;
        }
        TT_ASSERT(is_taken);
        at = &mail->offers;
    }
    return TUTTI_OK;
}

tutti_status_t tt_mail_pull(tt_mail_t *mail, int from)
{
    tt_box_t *box = &mail->boxes[from];
    while (mail->offer_count < TT_MAIL_OFFERS_MAX || box->received > 0) {
        const bool had_letter = box->received >= sizeof box->in;
        tutti_status_t status = pull(box, &box->in, 0, sizeof box->in);
        if (status == TUTTI_OK && !had_letter) {
            TT_TRY(handle_letter(mail, from));
        }
        if (status == TUTTI_OK) {
            status = pull(box, box->target, sizeof box->in, sizeof box->in + payload_bytes(box));
        }
        if (status != TUTTI_OK) {
            return status;
        }
        const bool was_offer = box->in_offer != NULL;
        end_letter(mail, from);
        if (was_offer) {
            TT_TRY(match_waiting(mail));
        }
    }
    return TUTTI_PENDING;
}
