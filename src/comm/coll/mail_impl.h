/* The inside of tt_mail_t, shared by the mail*.c files. */
#ifndef TT_MAIL_IMPL_H
#define TT_MAIL_IMPL_H

#include "comm/coll/coll_impl.h"
#include "comm/coll/mail.h"

/* A letter on its way out. */
typedef struct note {
    struct note *next;
    tt_letter_t letter;
    const void *payload; /* of the run, which stays until this is sent */
    size_t payload_bytes;
    tt_message_op_t *run; /* finished when this is sent; NULL: nobody */
} tt_note_t;

/* An offer that no recv has waited for. */
typedef struct offer {
    struct offer *next;
    int from;
    bool is_whole; /* its payload is here */
    tt_letter_t letter;
    unsigned char payload[TT_MAIL_EAGER_BYTES];
} tt_offer_t;

typedef struct {
    tt_wire_t wire;
    tt_note_t *first, *last;
    size_t sent; /* bytes of the first note */

    tt_letter_t in;
    size_t received;         /* bytes of the letter and its payload */
    void *target;            /* of the payload */
    tt_message_op_t *in_run; /* the recv that it is for */
    tt_offer_t *in_offer;    /* or the offer */

    unsigned gone_look;         /* the look at which the peer was first found gone; 0: it is here */
    tt_message_op_t *announced; /* sends whose offer is out, until TAKE or DONE */
    tt_message_op_t
        *taking; /* recvs that have asked for their BODY, or wait for a segment to read */
} tt_box_t;

struct tt_mail {
    tt_coll_t *coll;
    tt_box_t *boxes; /* [size] */
    tt_message_op_t *waiting, **waiting_end;
    tt_offer_t *offers, **offers_end, *free_offers;
    int offer_count;
    tt_note_t *free_notes;
    uint64_t last_id;
    unsigned looks; /* of tt_mail_watch */
    int active;     /* runs not yet finished */
};

static inline size_t tt_message_bytes(const tt_message_t *message)
{
    return message->count * tutti_dtype_bytes(message->dtype);
}

/* mail.c */
tutti_status_t tt_mail_post(tt_mail_t *mail, int peer, tt_letter_t letter, tt_message_op_t *run,
                            size_t payload_bytes);
void tt_mail_finish(tt_mail_t *mail, tt_message_op_t *run, tutti_status_t status);
void tt_mail_append(tt_message_op_t **list, tt_message_op_t *run);
void tt_mail_free_notes(tt_note_t *note);

/* mail_receive.c */

/* All letters that have come; PENDING unless something is wrong. */
tutti_status_t tt_mail_pull(tt_mail_t *mail, int from);

/* Messages that are read where they lie, as soon as their segment has come. */
tutti_status_t tt_mail_read(tt_mail_t *mail, int from);

/* Give a new recv the first offer that it matches, if there is one. */
tutti_status_t tt_mail_accept(tt_mail_t *mail, tt_message_op_t *run, bool *is_taken);

#endif
