/* Messages between two ranks of a group: send and recv with tags, any source; probe. They travel in
 * a lane of their own, so that neither waits for collectives nor holds them up.
 *
 *     RTS     ready to send: the sender announces a message. Up to TT_P2P_EAGER_BYTES follow at
 *             once; of a longer one, the heap address if a rank of this host can get it there
 *     CTS     clear to send: the receiver has posted a recv for it
 *     DATA    the bytes of a message that was cleared
 *     FIN     the receiver has got it from the sender's heap
 *
 * Messages that no recv is posted for are kept, up to a limit; beyond that no further one
 * is taken, nor what the same rank sent after it, until one is received. Answers that come before
 * it, and messages that are waited for, are. Messages of two ranks with one tag are received in
 * the order in which they were sent. A message and its recv must have the same dtype and count.
 *
 *     p2p_match.c      which message goes to which recv
 *     p2p_send.c       headers and their payload on their way out
 *     p2p_receive.c    headers that come in, and what follows from each
 *     p2p.c            starting, moving forward, failing
 *     message_monitor.c      dead ranks and deadlines
 *
 * Source: MPI's eager and rendezvous protocols; RTS, CTS, DATA and FIN as in UCX.
 */
#ifndef TT_P2P_H
#define TT_P2P_H

#include "comm/exec/call.h"

typedef struct tt_p2p tt_p2p_t;

tutti_status_t tt_p2p_create(tt_coll_t *coll, tt_p2p_t **out);
void tt_p2p_release(tt_p2p_t *p2p);

/* Errors: NOMEM (nothing has happened then), IO, MISMATCH. */
tutti_status_t tt_p2p_start(tt_p2p_t *p2p, const tt_message_t *message, tt_message_op_t *op);

/* Look for a message without waiting: OK, with source, tag, dtype and count in *op; PENDING: there
 * is none. Errors: as tt_p2p_progress. */
tutti_status_t tt_p2p_iprobe(tt_p2p_t *p2p, const tt_message_t *message, tt_message_op_t *op);

/* Whether a message is under way. */
bool tt_p2p_is_busy(const tt_p2p_t *p2p);

/* Whether something is on its way out, also for operations that have ended: an answer that found
 * its wire full. */
bool tt_p2p_has_outgoing(const tt_p2p_t *p2p);

/* Push what is on its way out; does not wait. True: something is left for a rank of this host that
 * is still in the group. */
bool tt_p2p_flush(tt_p2p_t *p2p);

/* Whether anything was sent to the peer, or awaited from it. */
bool tt_p2p_has_wire(const tt_p2p_t *p2p, int peer);

/* Move all messages forward. Errors: FORMAT, MISMATCH, PEER, NOMEM; the group fails with them. */
tutti_status_t tt_p2p_progress(tt_p2p_t *p2p);

/* Why a rank of another host has left or given the group up, as its wire knows; 0: it has not. */
uint64_t tt_p2p_peer_reason(const tt_p2p_t *p2p, int peer);

/* Look for ranks that have given the group up, dead ranks and deadlines. Errors: PEER, TIMEOUT, and
 * those of the others, such as ABORTED; *blamed (out) is the rank. */
tutti_status_t tt_p2p_watch(tt_p2p_t *p2p, int64_t now, int *blamed);

/* The same for one message that is looked for, and is in no list. */
tutti_status_t tt_p2p_watch_probe(tt_p2p_t *p2p, const tt_message_op_t *op, int *blamed);

/* Tell ranks of other hosts why this one leaves. */
void tt_p2p_say_goaway(tt_p2p_t *p2p, uint64_t reason);

/* The group has failed: end all messages with this status. */
void tt_p2p_fail(tt_p2p_t *p2p, tutti_status_t status);

#endif
