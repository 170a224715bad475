/* Messages between two ranks of a group: send and recv with tags, any source. They travel in a lane
 * of their own, so that neither waits for collectives nor holds them up.
 *
 *     OFFER   the sender tells of a message. Up to TT_MAIL_EAGER_BYTES follow at once; of a longer
 *             one, the place if a mate can read it there
 *     TAKE    the receiver has a recv for it: send it
 *     BODY    the bytes of a message that was taken
 *     DONE    the receiver has read it in place
 *
 * Offers that no recv waits for are kept, up to a limit; beyond that nothing more is read from the
 * wires until somebody receives. Messages of two ranks with one tag are received in the order in
 * which they were sent. A message and its recv must have the same dtype and count.
 *
 * Source: MPI's eager and rendezvous protocols.
 */
#ifndef TT_MAIL_H
#define TT_MAIL_H

#include "comm/coll/coll.h"

enum { TT_MAIL_EAGER_BYTES = 4096, TT_MAIL_OFFERS_MAX = 16384, TT_LETTER_MAGIC = 0x4c545454 };

typedef enum {
    TT_LETTER_OFFER = 1,
    TT_LETTER_TAKE,
    TT_LETTER_BODY,
    TT_LETTER_DONE
} tt_letter_kind_t;

/* docs/formats/frame.md has the bytes. */
typedef struct {
    uint32_t magic, epoch;
    uint8_t kind, dtype, reserved[2];
    int32_t tag;
    uint64_t group, id, bytes;
    tt_place_t place;
    uint8_t more[16];
} tt_letter_t;

_Static_assert(sizeof(tt_letter_t) == 64, "docs/formats/frame.md says 64");

typedef struct tt_mail tt_mail_t;

tutti_status_t tt_mail_create(tt_coll_t *coll, tt_mail_t **out);
void tt_mail_release(tt_mail_t *mail);

/* Errors: NOMEM, IO. */
tutti_status_t tt_mail_start(tt_mail_t *mail, const tt_message_t *message, tt_message_op_t *run);

/* Whether a message is under way. */
bool tt_mail_is_busy(const tt_mail_t *mail);

/* Whether anything was sent to the peer, or awaited from it. */
bool tt_mail_has_wire(const tt_mail_t *mail, int peer);

/* Move all messages forward. Errors: FORMAT, MISMATCH, PEER, NOMEM; the group fails with them. */
tutti_status_t tt_mail_progress(tt_mail_t *mail);

/* Look for dead ranks and deadlines. Errors: PEER, TIMEOUT; *blamed (out) is the rank. */
tutti_status_t tt_mail_watch(tt_mail_t *mail, int64_t now, int *blamed);

/* Tell ranks of other hosts why this one leaves. */
void tt_mail_say_farewell(tt_mail_t *mail, uint64_t reason);

/* The group has failed: end all messages with this status. */
void tt_mail_fail(tt_mail_t *mail, tutti_status_t status);

#endif
