/* The flag block: what one rank of a group shows the others, in its shared heap. One writer, the
 * owner, but for `quiet`; everyone reads. docs/formats/shm.md describes the bytes.
 *
 *     slots       a ring of call slots: call number s is posted in slot s % TT_FLAG_SLOTS
 *     done        the last call this rank has finished; a slot may be used again when all local
 *                 ranks have finished the call that was posted in it
 *     phase       how far this rank is inside a call in which local ranks wait for each other
 *     failure     why this rank gave the group up, 0 as long as it has not
 *     inside      this rank may be reading or writing memory of the others
 *     bounce …    addresses of this rank's bounce buffers and table of counts, 0 as long as it has
 *                 none
 *     records     the last calls, for those who ask what this rank is doing (recorder.h)
 *     cause       the text of that failure, written before it, as far as no number says it; ""
 *     wait_state  the call in which this rank has been waiting for long, in whatever group; in the
 *                 block of the world
 *     outbox      the rings through which this rank sends, by lane and receiver (wire/shm_wire.h)
 *     quiet       by rank: that rank has released the group and looks at nothing here any more; the
 *                 one word that is written by others, each its own
 *
 * The lease of memory. Once a failed call has returned on a rank, no other rank of its host touches
 * that rank's memory for it. Touching is writing, or reading bytes that are then used. A rank that
 * goes into the others' memory for a call is a *visitor*, the rank whose memory it is the *owner*;
 * every rank is both. The transitions are functions of coll_lease.c:
 *
 *   visitor, each time it goes into memory of others
 *     tt_coll_enter     E1  inside = 1                     seq_cst
 *                       E2  load failure of every rank     seq_cst
 *                           if one has failed: inside = 0; touch nothing; follow that failure
 *     (the steps)       V   read and write; every half MiB load the failures again, stop if one is
 *                           there
 *     tt_coll_leave     L1  inside = 0                     seq_cst
 *                       L2  load failure of every rank     seq_cst
 *                           if one has failed: what was read is not used; follow that failure
 *                       Between E1 and an L2 that found nothing a visitor publishes nothing: no
 *                       phase, no done, no byte on a wire.
 *     tt_coll_get       the same with one owner: a message is read out of its sender's memory, and
 *                       E2, V and L2 load the sender's failure alone, so that a rank that has left
 *                       or failed for itself harms no message between others
 *
 *   A failure that says END is a rank that has left in peace, with nothing under way: collectives
 *   do not take it for one.
 *
 *   owner, when a call of its group has failed
 *     tt_coll_give_up   F1  failure = why                  seq_cst
 *     tt_coll_quiesce   F2  load inside of every rank      seq_cst; until each is 0, or its
 *                           process has ended, or 100 ms have passed
 *                       F3  if one is still inside: fresh pages take the place of those that a
 *                           visitor may write (tt_heap_replace), at the same address, with the same
 *                           contents
 *                           only now the call's failure is seen by its caller
 *
 * Why no visitor writes into memory that its owner uses again. E1 and E2, F1 and F2 are a store and
 * a load of the other's word, all seq_cst: in their one order either E2 comes after F1, and the
 * visitor touches nothing, or F2 comes after E1, and the owner sees it inside and waits. Seeing 0
 * afterwards (L1), the owner has everything that the visitor wrote before it. After 100 ms the
 * visitor's mapping and the owner's lead to different pages.
 *
 * Why no visitor uses bytes that were changed. If the owner saw it leave, nothing was changed
 * before that. If the owner did not wait longer, the owner's F1 is in that order before the last F2
 * that read 1; L2 comes after L1, which comes after that F2: L2 finds the failure. (If that 1 was
 * of a later visit, the owner has everything before it, also what was read.)
 *
 * Payload in slots, bounce buffers, tables and rings are memory of the group
 * itself and need no mark: they are not used again before all ranks of the host are quiet
 * (wire/quarantine.h).
 *
 *   each rank, when the group is released
 *     say_quiet             Q1  quiet[this rank] = 1 in the block of every other rank of the host;
 *                               the last that this rank does with memory of the group on others
 *     tt_quarantine_sweep   Q2  the own block, bounce buffers, table and rings are freed when every
 *                               other rank's quiet, loaded with acquire, is 1, or that rank has
 *                               left the job, or its process has ended
 *
 * That calls take a rank for dead is not enough for F2 and Q2: a rank whose socket was closed, by
 * itself or for something that is no message, may live (tt_node_peers_is_gone).
 *
 * flags.pml is a model of all this, which spin explores (tests/model); a change of the protocol
 * changes the model too.
 */
#ifndef TT_FLAGS_H
#define TT_FLAGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/exec/recorder.h"
#include "comm/plan/plan.h"
#include "core/device/heap.h"
#include "core/kernel/elementwise/combine.h"

/* Collectives and messages between two ranks do not wait for each other: each has a lane. */
enum { TT_LANE_CALLS, TT_LANE_P2P, TT_LANES };

enum { TT_FLAG_SLOTS = 8, TT_FLAG_HEAD_BYTES = 40, TT_CAUSE_BYTES = 512 };

/* A reduction of the program's own; zeros: none. */
enum { TT_CUSTOM_COMMUTES = 128 };

typedef struct {
    uint8_t width; /* numbers of an element, and TT_CUSTOM_COMMUTES */
    char name[TT_CUSTOM_NAME_BYTES];
} tt_custom_key_t;

/* What a call is; all ranks must show the same. */
typedef struct {
    uint64_t count, tag, group, layout; /* layout: a hash of leaf map and counts */
    uint32_t epoch, leaves;
    int32_t root;
    uint8_t collective, dtype, out_dtype, reduction;
    tt_custom_key_t custom;
} tt_call_descriptor_t;

enum { TT_FLAG_FOREIGN = 1 }; /* some of the memory that peers would touch is not in the heap */

typedef struct {
    _Alignas(128) _Atomic uint64_t sequence; /* written last */
    uint64_t fingerprint;                    /* of the descriptor */
    uint32_t flags, reserved;
    /* Small pieces, one after the other, or the places of out and the pieces; here if they fit,
     * else in `extra`. */
    unsigned char head[TT_FLAG_HEAD_BYTES];
    tt_call_descriptor_t descriptor; /* read when fingerprints differ */
    unsigned char extra[TT_FLAG_EXTRA_BYTES];
} tt_flag_slot_t;

_Static_assert(sizeof(tt_call_descriptor_t) == 64, "docs/formats/shm.md says 64");
_Static_assert(sizeof(tt_flag_slot_t) == 2048, "docs/formats/shm.md says 2048");

/* The stamp of the record says whether there is any; it is written last, after the name. */
enum { TT_WAIT_STATE_NAME_WORDS = 8 };

typedef struct {
    _Alignas(128) tt_record_slot_t record;
    _Atomic uint64_t name[TT_WAIT_STATE_NAME_WORDS]; /* of the group, ended by 0, cut if too long */
} tt_wait_state_t;

typedef struct {
    tt_flag_slot_t slots[TT_FLAG_SLOTS];
    _Alignas(128) _Atomic uint64_t done;
    _Alignas(128) _Atomic uint64_t phase;   /* tt_phase */
    _Alignas(128) _Atomic uint64_t failure; /* tt_failure_pack */
    _Atomic tt_heap_address_t bounce, bounce_out, table;
    _Alignas(128) _Atomic uint64_t inside; /* in a line of its own: written in each call */
    _Alignas(128) tt_records_t records;
    tt_wait_state_t wait_state;
    _Alignas(128) char cause[TT_CAUSE_BYTES];
    _Alignas(128) _Atomic tt_heap_address_t outbox[]; /* [TT_LANES][size]; then u64 quiet[size] */
} tt_flag_block_t;

_Static_assert(sizeof(_Atomic tt_heap_address_t) == sizeof(_Atomic uint64_t), "outbox and quiet");
_Static_assert(sizeof(tt_flag_block_t) == 21760, "docs/formats/shm.md says 21760");

static inline size_t tt_flag_block_bytes(int size)
{
    return sizeof(tt_flag_block_t) + (TT_LANES + 1) * (size_t)size * sizeof(tt_heap_address_t);
}

static inline _Atomic uint64_t *tt_flag_quiet(tt_flag_block_t *block, int size, int rank)
{
    return &block->outbox[TT_LANES * size + rank];
}

/* A round of a call as one number that only grows. */
static inline uint64_t tt_phase(uint64_t sequence, int round)
{
    return sequence << 20 | (uint64_t)(uint32_t)(round + 1);
}

/* Where `bytes` of payload or places lie in a slot. */
static inline unsigned char *tt_flag_payload(tt_flag_slot_t *slot, size_t bytes)
{
    return bytes <= TT_FLAG_HEAD_BYTES ? slot->head : slot->extra;
}

/* A status (END: left in peace) and the rank that it blames, in one word; and of that rank whether
 * it has left rather than died. */
static inline uint64_t tt_failure_pack(tutti_status_t status, int rank)
{
    return (uint64_t)(uint32_t)(int32_t)status << 32 | (uint32_t)(rank + 1);
}

enum { TT_FAILURE_LEFT = 1 << 30 };

static inline tutti_status_t tt_failure_status(uint64_t failure)
{
    return (tutti_status_t)(int32_t)(uint32_t)(failure >> 32);
}

static inline int tt_failure_rank(uint64_t failure)
{
    return (int)((uint32_t)failure & (TT_FAILURE_LEFT - 1)) - 1;
}

static inline bool tt_failure_has_left(uint64_t failure)
{
    return (failure & TT_FAILURE_LEFT) != 0;
}

/* A rank gives up itself for the loss or the lateness of another one; anything else may be what it
 * has heard of. */
static inline bool tt_failure_is_for_another(uint64_t failure)
{
    const tutti_status_t status = tt_failure_status(failure);
    return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT;
}

/* Who gave up first, of what a rank says. */
static inline int tt_failure_first(int rank, uint64_t failure)
{
    const int blamed = tt_failure_rank(failure);
    return tt_failure_is_for_another(failure) || blamed < 0 ? rank : blamed;
}

/* Whom those blame that follow it; -1: nobody. */
static inline int tt_failure_blames(int rank, uint64_t failure)
{
    return tt_failure_is_for_another(failure) ? tt_failure_rank(failure)
                                              : tt_failure_first(rank, failure);
}

#endif
