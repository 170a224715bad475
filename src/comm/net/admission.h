/* Admission: a listener, and the connections that have come in until each has proved the job's key
 * and said its first message, whose length is known. Only then does its owner see it.
 *
 * Strangers can only hold connections without proof. There are few that have said nothing, and few
 * that have begun a handshake: in each of the two lots the oldest makes room for the next, and all
 * have 5 s. Connections are accepted a few at a time, and those that are there looked at in
 * between: a process of the job sends its whole first message at once, so that it has proved the
 * key before the next few come. One whose handshake was cut short tries again. The first message of
 * a handshake proves the key, but can be recorded on its way and sent again: so each counts once.
 * Once it is answered the other side may send bytes that are not sent again: from then on nothing
 * but its own end cuts it short, unless the owner `is_hasty`.
 *
 * One thread at a time.
 */
#ifndef TT_ADMISSION_H
#define TT_ADMISSION_H

#include <sys/queue.h>

#include "comm/net/address.h"
#include "comm/net/channel.h"

enum { TT_FIRST_BYTES_MAX = 48 };

/* A connection that has not said its first message. */
typedef struct tt_caller {
    TAILQ_ENTRY(tt_caller) link;
    tt_channel_t *channel;
    short events;   /* that are waited for */
    bool is_silent; /* it has said nothing at all */
    bool has_proof; /* it has shown that it has the key */
    bool is_known;  /* its proof is among those that have been seen */
    tt_deadline_t deadline;
    size_t said; /* of the first message */
    unsigned char first[TT_FIRST_BYTES_MAX];
} tt_caller_t;

typedef struct {
    /* The owner's choice. */
    tt_credentials_t *credentials; /* borrowed */
    const char *name;              /* of who listens, for the log; borrowed */
    size_t first_bytes;
    int most;      /* in each of the lots: silent, begun, proved */
    bool is_hasty; /* 5 s for the first message, too */

    bool is_open;
    tt_inet_t where; /* it listens here */
    int fd;          /* can be read when tt_admission_next() has something to do */
    int listener, timer;
    int held; /* a connection that was accepted, and there is no memory for it yet; -1: none */
    bool is_resting;                           /* the listener, for want of descriptors or memory */
    bool is_ticking;                           /* the timer */
    TAILQ_HEAD(tt_callers, tt_caller) callers; /* the oldest first */
    int count;                                 /* of the callers */
    int silent, proved;                        /* so many of them are */
    bool has_warned;   /* that this process has too little for a connection */
    int64_t strangers; /* connections that were of no use */
    uint64_t *proofs;  /* that have been seen: a hash table, 0 is a free place */
    size_t proof_count, proof_capacity;
} tt_admission_t;

/* Listens on an address, which is a number; port 0 lets the system choose. The owner's choice is
 * there, and all else 0. After a failure there is nothing to close. Errors: ARG (no number), IO. */
tutti_status_t tt_admission_open(tt_admission_t *admission, const char *address, int port);

/* Nothing if it is not open. */
void tt_admission_close(tt_admission_t *admission);

/* The next connection whose first message has come; *out is the caller's. PENDING: there is none
 * now. Does not block. */
tutti_status_t tt_admission_next(tt_admission_t *admission, void *first, tt_channel_t **out);

/* Count one, and log tutti_last_error(): the owner may refuse a first message. */
void tt_admission_note_stranger(tt_admission_t *admission);

#endif
