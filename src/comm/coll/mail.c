/* The post office of a group: one box per peer, with its wire, what is being sent and what is being
 * received; recvs that wait and offers that nobody waits for, each in the order in which they came.
 *
 * Cost: a short message is one send of letter and payload; a long one to a mate costs two letters
 * and one copy if it lies in the shared heap, else two letters and a pass through the wire.
 */
#include "comm/coll/mail.h"

#include <stdio.h>
#include <string.h>

#include "comm/coll/coll_impl.h"
#include "core/base/alloc.h"

/* A letter on its way out. */
typedef struct note {
    struct note *next;
    tt_letter_t letter;
    const void *payload; /* of the run, which stays until this is sent */
    size_t payload_bytes;
    tt_run_t *run; /* finished when this is sent; NULL: nobody */
} note_t;

/* An offer that no recv has waited for. */
typedef struct offer {
    struct offer *next;
    int from;
    bool is_whole; /* its payload is here */
    tt_letter_t letter;
    unsigned char payload[TT_MAIL_EAGER_BYTES];
} offer_t;

typedef struct {
    tt_wire_t wire;
    note_t *first, *last;
    size_t sent; /* bytes of the first note */

    tt_letter_t in;
    size_t received;   /* bytes of the letter and its payload */
    void *target;      /* of the payload */
    tt_run_t *in_run;  /* the recv that it is for */
    offer_t *in_offer; /* or the offer */

    tt_run_t *announced; /* sends whose offer is out, until TAKE or DONE */
    tt_run_t *taking;    /* recvs that have asked for their BODY, or wait for a segment to read */
} box_t;

struct tt_mail {
    tt_coll_t *coll;
    box_t *boxes; /* [size] */
    tt_run_t *waiting, **waiting_end;
    offer_t *offers, **offers_end, *free_offers;
    int offer_count;
    note_t *free_notes;
    uint64_t last_id;
    int active; /* runs not yet finished */
};

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

static void free_notes(note_t *note)
{
    while (note != NULL) {
        note_t *next = note->next;
        tt_free(note);
        note = next;
    }
}

static void free_offers(offer_t *offer)
{
    while (offer != NULL) {
        offer_t *next = offer->next;
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
        free_notes(mail->boxes[i].first);
        tt_free(mail->boxes[i].in_offer);
    }
    free_notes(mail->free_notes);
    free_offers(mail->offers);
    free_offers(mail->free_offers);
    tt_free(mail->boxes);
    tt_free(mail);
}

static tutti_status_t open_box(tt_mail_t *mail, int peer)
{
    box_t *box = &mail->boxes[peer];
    return box->wire.ops != NULL ? TUTTI_OK
                                 : tt_coll_open_wire(mail->coll, peer, TT_LANE_MAIL, &box->wire);
}

static size_t bytes_of(const tt_message_t *message)
{
    return message->count * tutti_dtype_bytes(message->dtype);
}

static tutti_status_t post(tt_mail_t *mail, int peer, tt_letter_t letter, tt_run_t *run,
                           size_t payload_bytes)
{
    TT_TRY(open_box(mail, peer));
    note_t *note = mail->free_notes;
    if (note != NULL) {
        mail->free_notes = note->next;
    } else {
        note = tt_alloc(sizeof *note, "letter");
        TT_TRY_ALLOC(note);
    }
    letter.magic = TT_LETTER_MAGIC;
    letter.epoch = mail->coll->options.epoch;
    letter.group = mail->coll->options.group;
    *note = (note_t){.letter = letter,
                     .payload = run != NULL ? run->message.data : NULL,
                     .payload_bytes = payload_bytes,
                     .run = payload_bytes > 0 || letter.kind == TT_LETTER_OFFER ? run : NULL};
    box_t *box = &mail->boxes[peer];
    if (box->first == NULL) {
        box->first = note;
    } else {
        box->last->next = note;
    }
    box->last = note;
    return TUTTI_OK;
}

static void finish(tt_mail_t *mail, tt_run_t *run, tutti_status_t status)
{
    run->next = NULL;
    run->status = status;
    mail->active--;
}

static void append(tt_run_t **list, tt_run_t *run)
{
    run->next = NULL;
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = run;
}

/* ---- sending ---------------------------------------------------------------------------------- */

static tutti_status_t start_send(tt_mail_t *mail, tt_run_t *run)
{
    const tt_message_t *message = &run->message;
    const size_t bytes = bytes_of(message);
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
        return post(mail, message->peer, letter, run, bytes);
    }
    TT_TRY(post(mail, message->peer, letter, NULL, 0));
    append(&mail->boxes[message->peer].announced, run);
    return TUTTI_OK;
}

/* Gives the first note to the wire; OK when it is gone. */
static tutti_status_t push(box_t *box)
{
    const note_t *note = box->first;
    const size_t all = sizeof note->letter + note->payload_bytes;
    while (box->sent < all) {
        const size_t header = box->sent < sizeof note->letter ? box->sent : sizeof note->letter;
        const size_t payload = box->sent - header;
        const tt_span_t spans[] = {
            {(const char *)&note->letter + header, sizeof note->letter - header},
            {(const char *)note->payload + payload, note->payload_bytes - payload},
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

static tutti_status_t push_all(tt_mail_t *mail, box_t *box)
{
    while (box->first != NULL) {
        const tutti_status_t status = push(box);
        if (status != TUTTI_OK) {
            return status;
        }
        note_t *note = box->first;
        box->first = note->next;
        box->sent = 0;
        if (note->run != NULL) {
            finish(mail, note->run, TUTTI_OK);
        }
        note->next = mail->free_notes;
        mail->free_notes = note;
    }
    return TUTTI_OK;
}

/* ---- receiving -------------------------------------------------------------------------------- */

static bool matches(const tt_run_t *run, int from, int tag)
{
    return (run->message.peer == TT_ANY_RANK || run->message.peer == from) &&
           (run->message.tag == TT_ANY_TAG || run->message.tag == tag);
}

static tutti_status_t check_match(const tt_mail_t *mail, const tt_run_t *run, int from,
                                  const tt_letter_t *letter)
{
    const tt_message_t *want = &run->message;
    if (letter->dtype == (uint8_t)want->dtype && letter->bytes == bytes_of(want)) {
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
static tutti_status_t read_in_place(tt_mail_t *mail, const tt_run_t *run, int from)
{
    tt_coll_t *coll = mail->coll;
    const size_t bytes = bytes_of(&run->message);
    const void *data = tt_mates_at(coll->mates, coll->mate_ranks[from], run->place, bytes);
    if (data == NULL) {
        tt_mates_check(coll->mates);
        data = tt_mates_at(coll->mates, coll->mate_ranks[from], run->place, bytes);
    }
    if (data == NULL) {
        return TUTTI_PENDING;
    }
    memcpy(run->message.data, data, bytes);
    return post(mail, from, (tt_letter_t){.kind = TT_LETTER_DONE, .id = run->id}, NULL, 0);
}

/* Recvs whose message is read where it lies, as soon as its segment has come. */
static tutti_status_t retry_reads(tt_mail_t *mail, int from)
{
    for (tt_run_t **at = &mail->boxes[from].taking; *at != NULL;) {
        tt_run_t *run = *at;
        const tutti_status_t status =
            run->place != 0 ? read_in_place(mail, run, from) : TUTTI_PENDING;
        TT_TRY(status);
        if (status == TUTTI_PENDING) {
            at = &run->next;
        } else {
            *at = run->next;
            finish(mail, run, TUTTI_OK);
        }
    }
    return TUTTI_OK;
}

/* A long message has found its recv. */
static tutti_status_t take(tt_mail_t *mail, tt_run_t *run, int from, const tt_letter_t *letter)
{
    run->id = letter->id;
    run->place = mail->coll->mate_ranks[from] >= 0 ? letter->place : 0;
    append(&mail->boxes[from].taking, run);
    if (run->place != 0) {
        return retry_reads(mail, from);
    }
    return post(mail, from, (tt_letter_t){.kind = TT_LETTER_TAKE, .id = letter->id}, NULL, 0);
}

static tt_run_t *find_waiting(tt_mail_t *mail, int from, int tag)
{
    tt_run_t **at = &mail->waiting;
    while (*at != NULL && !matches(*at, from, tag)) {
        at = &(*at)->next;
    }
    tt_run_t *run = *at;
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

static tt_run_t *find_by_id(tt_run_t **list, uint64_t id)
{
    while (*list != NULL && (*list)->id != id) {
        list = &(*list)->next;
    }
    tt_run_t *run = *list;
    if (run != NULL) {
        *list = run->next;
        run->next = NULL;
    }
    return run;
}

static tutti_status_t new_offer(tt_mail_t *mail, int from, const tt_letter_t *letter, offer_t **out)
{
    offer_t *offer = mail->free_offers;
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

static void keep_offer(tt_mail_t *mail, offer_t *offer)
{
    *mail->offers_end = offer;
    mail->offers_end = &offer->next;
    mail->offer_count++;
}

static tutti_status_t handle_offer(tt_mail_t *mail, int from)
{
    box_t *box = &mail->boxes[from];
    const bool is_eager = box->in.bytes <= TT_MAIL_EAGER_BYTES;
    tt_run_t *run = find_waiting(mail, from, box->in.tag);
    if (run != NULL) {
        const tutti_status_t status = check_match(mail, run, from, &box->in);
        if (status < 0) {
            finish(mail, run, status);
            return status;
        }
        if (!is_eager) {
            return take(mail, run, from, &box->in);
        }
        box->in_run = run;
        box->target = run->message.data;
        return TUTTI_OK;
    }
    offer_t *offer;
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
    box_t *box = &mail->boxes[from];
    const tt_letter_t *letter = &box->in;
    box->target = NULL;
    if (letter->magic != TT_LETTER_MAGIC || letter->group != mail->coll->options.group ||
        letter->epoch != mail->coll->options.epoch || letter->dtype >= TUTTI_DTYPE_COUNT) {
        return fail_format(mail, from);
    }
    tt_run_t *run;
    switch ((tt_letter_kind_t)letter->kind) {
    case TT_LETTER_OFFER:
        return handle_offer(mail, from);
    case TT_LETTER_TAKE:
        run = find_by_id(&box->announced, letter->id);
        return run == NULL ? fail_format(mail, from)
                           : post(mail, from,
                                  (tt_letter_t){.kind = TT_LETTER_BODY,
                                                .id = run->id,
                                                .bytes = bytes_of(&run->message)},
                                  run, bytes_of(&run->message));
    case TT_LETTER_BODY:
        run = find_by_id(&box->taking, letter->id);
        if (run == NULL || letter->bytes != bytes_of(&run->message)) {
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
        finish(mail, run, TUTTI_OK);
        return TUTTI_OK;
    }
    return fail_format(mail, from);
}

static size_t payload_bytes(const box_t *box)
{
    return box->in_run != NULL || box->in_offer != NULL ? (size_t)box->in.bytes : 0;
}

/* The payload is here too. A recv may have begun to wait for the offer meanwhile. */
static void end_letter(tt_mail_t *mail, int from)
{
    box_t *box = &mail->boxes[from];
    if (box->in_run != NULL) {
        finish(mail, box->in_run, TUTTI_OK);
    } else if (box->in_offer != NULL) {
        box->in_offer->is_whole = true;
        keep_offer(mail, box->in_offer);
    }
    box->in_run = NULL;
    box->in_offer = NULL;
    box->received = 0;
}

static tutti_status_t pull(box_t *box, void *base, size_t begin, size_t end)
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

static void give_back_offer(tt_mail_t *mail, offer_t **at)
{
    offer_t *offer = *at;
    *at = offer->next;
    if (offer->next == NULL) {
        mail->offers_end = at;
    }
    mail->offer_count--;
    offer->next = mail->free_offers;
    mail->free_offers = offer;
}

/* The first offer that a new recv matches, if there is one. */
static tutti_status_t accept_offer(tt_mail_t *mail, tt_run_t *run, bool *is_taken)
{
    offer_t **at = &mail->offers;
    while (*at != NULL && !matches(run, (*at)->from, (*at)->letter.tag)) {
        at = &(*at)->next;
    }
    *is_taken = *at != NULL;
    if (*at == NULL) {
        return TUTTI_OK;
    }
    offer_t *offer = *at;
    run->source = offer->from;
    run->tag = offer->letter.tag;
    tutti_status_t status = check_match(mail, run, offer->from, &offer->letter);
    if (status >= 0 && offer->is_whole) {
        memcpy(run->message.data, offer->payload, bytes_of(&run->message));
        finish(mail, run, TUTTI_OK);
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
    for (offer_t **at = &mail->offers; *at != NULL;) {
        tt_run_t *run = find_waiting(mail, (*at)->from, (*at)->letter.tag);
        if (run == NULL) {
            at = &(*at)->next;
            continue;
        }
        bool is_taken;
        TT_TRY(accept_offer(mail, run, &is_taken));
        TT_ASSERT(is_taken);
        at = &mail->offers;
    }
    return TUTTI_OK;
}

static tutti_status_t pull_letters(tt_mail_t *mail, int from)
{
    box_t *box = &mail->boxes[from];
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

/* Whether somebody waits for anyone, so that all boxes must be looked into. */
static bool waits_for_any(const tt_mail_t *mail)
{
    for (const tt_run_t *run = mail->waiting; run != NULL; run = run->next) {
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
        box_t *box = &mail->boxes[i];
        if (box->wire.ops == NULL && (!any || i == mail->coll->rank)) {
            continue;
        }
        TT_TRY(open_box(mail, i));
        TT_TRY(push_all(mail, box));
        TT_TRY(pull_letters(mail, i));
        TT_TRY(retry_reads(mail, i));
        TT_TRY(push_all(mail, box));
    }
    return TUTTI_OK;
}

static void take_out(tt_run_t **list, const tt_run_t *run)
{
    while (*list != NULL && *list != run) {
        list = &(*list)->next;
    }
    if (*list != NULL) {
        *list = run->next;
    }
}

/* A message that failed while it was started is in at most one of these lists. */
static void forget(tt_mail_t *mail, const tt_run_t *run)
{
    for (int i = 0; i < mail->coll->size; i++) {
        take_out(&mail->boxes[i].announced, run);
        take_out(&mail->boxes[i].taking, run);
    }
}

tutti_status_t tt_mail_start(tt_mail_t *mail, const tt_message_t *message, tt_run_t *run)
{
    run->message = *message;
    run->is_message = true;
    run->next = NULL;
    run->place = 0;
    run->is_reported = false;
    run->started_ns = tt_clock_ns();
    run->source = mail->coll->rank;
    run->tag = message->tag;
    run->status = TUTTI_PENDING;
    mail->active++;
    tutti_status_t status;
    if (message->is_send) {
        status = start_send(mail, run);
    } else {
        bool is_taken = false;
        status = message->peer == TT_ANY_RANK ? TUTTI_OK : open_box(mail, message->peer);
        status = status < 0 ? status : accept_offer(mail, run, &is_taken);
        if (status >= 0 && !is_taken) {
            *mail->waiting_end = run;
            mail->waiting_end = &run->next;
        }
    }
    if (status < 0) {
        forget(mail, run);
        finish(mail, run, status);
    }
    return status < 0 ? status : TUTTI_OK;
}

/* ---- trouble ---------------------------------------------------------------------------------- */

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
        has_left = wire->ops->heard(wire->state) != 0;
        is_dead = wire->ops->probe(wire->state) < 0;
    }
    if (!has_left && !is_dead) {
        return TUTTI_OK;
    }
    return TT_FAIL(TUTTI_ERR_PEER, "%s of group %s: rank %d %s", describe(run).text,
                   coll->options.name, peer, is_dead ? "died" : "has left the group");
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
        const box_t *box = &mail->boxes[i];
        TT_TRY(judge_list(mail, box->announced, now, blamed));
        TT_TRY(judge_list(mail, box->taking, now, blamed));
        for (const note_t *note = box->first; note != NULL; note = note->next) {
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

static void fail_list(tt_mail_t *mail, tt_run_t **list, tutti_status_t status)
{
    while (*list != NULL) {
        tt_run_t *run = *list;
        *list = run->next;
        finish(mail, run, status);
    }
}

void tt_mail_fail(tt_mail_t *mail, tutti_status_t status)
{
    fail_list(mail, &mail->waiting, status);
    mail->waiting_end = &mail->waiting;
    for (int i = 0; i < mail->coll->size; i++) {
        box_t *box = &mail->boxes[i];
        fail_list(mail, &box->announced, status);
        fail_list(mail, &box->taking, status);
        for (note_t *note = box->first; note != NULL; note = note->next) {
            if (note->run != NULL) {
                finish(mail, note->run, status);
                note->run = NULL;
            }
        }
        free_notes(box->first);
        box->first = box->last = NULL;
        if (box->in_run != NULL) {
            finish(mail, box->in_run, status);
            box->in_run = NULL;
        }
    }
}
