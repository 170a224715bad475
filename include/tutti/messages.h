/**
 * @file messages.h
 * Messages from one rank of a group to another.
 *
 * Example:
 *
 *     const int next = (rank + 1) % tutti_group_size(world);
 *     const int last = (rank + tutti_group_size(world) - 1) % tutti_group_size(world);
 *     TUTTI_CHECK(tutti_batch_send_recv(world,
 *                                       (const tutti_transfer_t[]){{TUTTI_RECV, x, last, 0},
 *                                                                  {TUTTI_SEND, y, next, 0}},
 *                                       2, NULL));
 *
 * A message is received by a receive of the same group, dtype and number of elements, whose source
 * and tag are the message's or any. Messages of two ranks with one tag arrive in the order in which
 * they were sent; otherwise neither messages nor collectives wait for each other: the tensor of one
 * that is under way is left alone. A send may return before the message is received, or wait until
 * it is: do not rely on either.
 *
 * The deadline of a message counts from the first tutti_work_wait() or tutti_work_test() of its
 * work, not from when it was posted: a receive for a control message may be posted early, and
 * other waits do not end it. A rank that dies or leaves ends what is posted for it at once; when
 * all other ranks have, so does what is posted for any of them (PEER). tutti_iprobe() starts no
 * deadline.
 *
 * A wait of more than a few milliseconds connects to all ranks of the group that are on other
 * hosts, 16 at a time: only over a connection of its own does a rank hear that another one has
 * given the group up or has died. Each takes a file descriptor. When none is left, that is logged
 * once, and the wait goes on with the connections that there are.
 *
 * A rank keeps 16384 messages that it has not received, 4 KiB each. The next one waits, with
 * whatever its sender sends after it, until one of these is received; receives that are waiting get
 * theirs all the same. A probe finds none of those that wait: it looks at what is kept.
 *
 * Over the mpi backend, MPI may still read or write the tensor of a message that has failed: see
 * group.h.
 *
 * Unlike torch.distributed: tags and any source work on every backend that has them, peers are
 * group ranks, and a message of another size or dtype than its receive is an error.
 */
#ifndef TUTTI_MESSAGES_H
#define TUTTI_MESSAGES_H

#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a receive may say instead of a rank or a tag. */
enum { TUTTI_ANY_RANK = -1, TUTTI_ANY_TAG = -1 };

/**
 * Send x to a rank.
 *
 * @param x     [any shape], contiguous
 * @param to    another rank of the group
 * @param tag   at least 0
 * @param work  out, owned by the caller; NULL waits until x may be written again
 * @thread      one at a time per group; returns at once if there is a work, and on a device. There
 *              it holds up the calls on devices behind it until x may be written again, also with
 *              a work: ranks that send to each other use tutti_batch_send_recv()
 * @cost        up to 4 KiB travel at once; more when the receiver asks for them
 * @errors      ARG, SHAPE; through the work: PEER, TIMEOUT, MISMATCH, ABORTED; UNSUPPORTED
 * @source      torch.distributed.send, isend
 */
TUTTI_API tutti_status_t tutti_send(tutti_group_t *group, tutti_tensor_t *x, int to, int tag,
                                    tutti_work_t **work);

/**
 * Receive x from a rank.
 *
 * @param x     [any shape], contiguous; overwritten
 * @param from  another rank of the group, or TUTTI_ANY_RANK: tutti_work_source() tells who it was
 * @param tag   at least 0, or TUTTI_ANY_TAG: tutti_work_tag()
 * @param work  out, owned by the caller; NULL waits
 * @thread      one at a time per group; returns at once if there is a work, and on a device. There
 *              it holds up the calls on devices behind it until it has come, also with a work
 * @errors      as tutti_send
 * @source      torch.distributed.recv, irecv
 */
TUTTI_API tutti_status_t tutti_recv(tutti_group_t *group, tutti_tensor_t *x, int from, int tag,
                                    tutti_work_t **work);

/** A message that has been sent and is not received yet. */
typedef struct tutti_message_info {
    int source, tag;
    tutti_dtype_t dtype;
    int64_t count; /**< elements */
} tutti_message_info_t;

/**
 * Wait for a message, and leave it where it is: its length may be needed to receive it. A receive
 * from its source, with its tag, that this thread starts next gets it. A message that a receive
 * waits for already goes there, and is not found.
 *
 * @param from  another rank of the group, or TUTTI_ANY_RANK
 * @param tag   at least 0, or TUTTI_ANY_TAG
 * @param info  out: the message. MPI knows no dtypes: over the mpi backend its dtype is TUTTI_U8,
 *              and its count the number of bytes
 * @thread      one at a time per group; waits for the group's deadline at most
 * @cost        the same as a receive of an RTS: one header, and one search through what has arrived
 * @errors      ARG, STATE (calls are coalesced); PEER, TIMEOUT, MISMATCH, ABORTED
 * @source      MPI_Probe
 */
TUTTI_API tutti_status_t tutti_probe(tutti_group_t *group, int from, int tag,
                                     tutti_message_info_t *info);

/**
 * The same without waiting, and without a deadline: for a look now and then, between the steps of a
 * training.
 *
 * @param info  out, written only if there is a message
 * @return      OK; PENDING: there is none, or a call on a device is being made
 * @thread      one at a time per group; returns at once
 * @errors      as tutti_probe, but for TIMEOUT
 * @source      MPI_Iprobe
 */
TUTTI_API tutti_status_t tutti_iprobe(tutti_group_t *group, int from, int tag,
                                      tutti_message_info_t *info);

typedef enum tutti_transfer_kind { TUTTI_SEND, TUTTI_RECV } tutti_transfer_kind_t;

/** A message to send or to receive. */
typedef struct tutti_transfer {
    tutti_transfer_kind_t kind;
    tutti_tensor_t *x;
    int peer, tag; /**< as in tutti_send and tutti_recv */
} tutti_transfer_t;

/**
 * Start several messages together; none waits for another, so that ranks can exchange.
 *
 * @param transfers  [count], borrowed until it returns; tensors of a device all of one
 * @param work       out, owned by the caller: one work for all; NULL waits for all
 * @thread           one at a time per group; returns at once if there is a work, and on a device
 * @errors           ARG, SHAPE (names the transfer; none has started then); as tutti_send
 * @source           torch.distributed.batch_isend_irecv
 */
TUTTI_API tutti_status_t tutti_batch_send_recv(tutti_group_t *group,
                                               const tutti_transfer_t *transfers, int count,
                                               tutti_work_t **work);

#ifdef __cplusplus
}
#endif

#endif
