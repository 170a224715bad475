/* Operations under way: what calls and messages have in common, and messages. A call is a tt_run_t
 * (coll.h). Matching and waiting need no more than this. */
#ifndef TT_OPERATION_H
#define TT_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <tutti/dtype.h>

#include "comm/exec/recorder.h"
#include "core/device/heap.h"

typedef enum { TT_OP_CALL, TT_OP_MESSAGE } tt_op_kind_t;

/* An operation under way, the first member of a call and of a message. The memory is the caller's
 * and must stay until status is not PENDING. Every operation is in a list of its engine until it
 * has a status, so that a failure of the group ends it. */
typedef struct {
    tt_op_kind_t kind;
    tutti_status_t status;   /* PENDING; then OK or the failure (tt_coll_check has the text) */
    uint64_t record;         /* its number in the recorder */
    int64_t waited_since_ns; /* its deadline counts from then; 0: it has not been waited for yet */
    bool is_reported;        /* that it takes long */
} tt_op_t;

enum { TT_ANY_RANK = -1, TT_ANY_TAG = -1 };

/* A probe looks for a message and leaves it where it is. */
typedef enum { TT_MESSAGE_RECV, TT_MESSAGE_SEND, TT_MESSAGE_PROBE } tt_message_kind_t;

/* A message from one rank to another. */
typedef struct {
    tt_message_kind_t kind;
    int peer; /* a receive or a probe may say TT_ANY_RANK */
    int tag;  /* at least 0; a receive or a probe may say TT_ANY_TAG */
    tutti_dtype_t dtype;
    size_t count;
    void *data; /* only read by a send */
    const void *site;
} tt_message_t;

/* A message under way. */
typedef struct tt_message_op {
    tt_op_t op;
    tt_message_t message; /* of a probe that is done: with the dtype and count that it found */
    int source, tag;      /* of a message received, or found */

    TAILQ_ENTRY(tt_message_op) under_way; /* of all that are */
    STAILQ_ENTRY(tt_message_op) queued;   /* in a queue of p2p_match.h */
    struct tt_p2p_request *request;       /* for the header that it sends next */
    uint64_t id;                          /* of a message that is announced first */
    tt_heap_address_t address;            /* where the receiver gets it, when its segment comes */
} tt_message_op_t;

static inline tt_message_op_t *tt_message_of(tt_op_t *op)
{
    return op->kind == TT_OP_MESSAGE ? (tt_message_op_t *)(void *)op : NULL;
}

static inline size_t tt_message_bytes(const tt_message_t *message)
{
    return message->count * tutti_dtype_bytes(message->dtype);
}

/* What is written down of a message. */
static inline tt_record_t tt_message_record(const tt_message_t *message)
{
    return (tt_record_t){.kind = message->kind == TT_MESSAGE_SEND    ? TT_RECORD_SEND
                                 : message->kind == TT_MESSAGE_PROBE ? TT_RECORD_PROBE
                                                                     : TT_RECORD_RECV,
                         .dtype = (int)message->dtype,
                         .count = message->count,
                         .root = message->peer,
                         .tag = (uint64_t)(int64_t)message->tag,
                         .site = (uint64_t)(uintptr_t)message->site};
}

/* What a wait for several operations waits for; `op` is one of them that is under way, to tell
 * others where this rank waits. */
typedef struct {
    tt_op_t *op;
    bool (*is_over)(void *user);
    void *user;
} tt_until_t;

/* The deadline of an operation counts from now on, if it does not count yet. */
static inline void tt_op_begin_deadline(tt_op_t *op, int64_t now)
{
    if (op->waited_since_ns == 0) {
        op->waited_since_ns = now;
    }
}

/* The deadline of a message counts from the first wait for it, not from when it was posted;
 * that of a call from the first wait in which it is the first in the queue. */
static inline void tt_op_await(tt_op_t *op, int64_t now)
{
    if (op->kind == TT_OP_MESSAGE) {
        tt_op_begin_deadline(op, now);
    }
}

#endif
