/* Who is late, and where it is: what a rank that waits for long finds out about the others.
 *
 * Ranks of this host are read in their recorders, whether they answer or not. Ranks elsewhere
 * answer through the group's board (the store): whoever waits for long puts a head there, which
 * says what call it is in, whom it awaits itself, and where the call was made. From head to head,
 * the wait is followed to the ranks that nobody keeps waiting. A rank that is in no call has no
 * head, and is named for that. docs/formats/shm.md has the bytes of a head.
 */
#ifndef TT_COLL_LATE_H
#define TT_COLL_LATE_H

#include "comm/coll/call_text.h"
#include "comm/coll/coll_impl.h"

enum { TT_HEAD_MAGIC = 0x44484554, TT_HEAD_AWAITED = 15 };

/* What a rank that waits shows to those of other hosts. */
typedef struct {
    uint32_t magic, state;
    uint64_t sequence, fingerprint;
    tt_sign_t sign;
    int32_t round, awaited_count;
    int32_t awaited[TT_HEAD_AWAITED];
    uint32_t reserved;
    char site[TT_SITE_BYTES];
} tt_head_t;

_Static_assert(sizeof(tt_head_t) == 256, "docs/formats/shm.md says 256");

/* A wait has become long: shows where this rank is to its mates, and later to everybody. Only
 * while it blocks anyway. */
void tt_coll_note_wait(tt_coll_t *coll, int64_t now);
void tt_coll_end_wait(tt_coll_t *coll);

/* What keeps a call waiting. */
typedef struct {
    char text[600];     /* "rank 3 never entered it; it waits in …, rank 4 …" */
    int first;          /* the lowest rank that is late; -1: none is known */
    int mismatched;     /* a rank that is in another call under the same number; or -1 */
    tt_head_t mismatch; /* its head */
} tt_late_t;

/* May ask the board, for a second at most, if this rank blocks anyway. */
void tt_coll_find_late(tt_coll_t *coll, const tt_run_t *run, tt_late_t *late);

/* "it waits in barrier #3 of group tp (train.c:80)"; "" if it is not known to wait. */
tt_call_text_t tt_coll_where(tt_coll_t *coll, int rank);

/* Whether a call waits for a rank, in whatever way. */
bool tt_coll_waits_for(const tt_coll_t *coll, const tt_run_t *run, int rank);

static inline bool tt_coll_has_come(const tt_coll_t *coll, const tt_run_t *run, int mate)
{
    const tt_flag_slot_t *slot = tt_coll_slot(coll, mate, run->sequence);
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == run->sequence;
}

static inline bool tt_coll_has_finished(const tt_coll_t *coll, const tt_run_t *run, int mate)
{
    return atomic_load_explicit(&coll->blocks[mate]->done, memory_order_acquire) >= run->sequence;
}

#endif
