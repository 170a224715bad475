/* Which rank is late, and where it is: what a rank that waits for long finds out about the others.
 *
 * Ranks of this host are read in their recorders, whether they answer or not. Ranks elsewhere
 * answer through the group's board (the store): a rank that waits for long puts a head there, which
 * says what call it is in, which ranks it waits for, and where the call was made. From head to
 * head, the wait is followed to the ranks that do not wait themselves. A rank that is in no call
 * has no head, and is named for that. docs/formats/shm.md has the bytes of a head.
 */
#ifndef TT_STRAGGLERS_H
#define TT_STRAGGLERS_H

#include "comm/exec/call_text.h"
#include "comm/exec/coll_exec.h"

enum { TT_WAIT_REPORT_MAGIC = 0x44484554, TT_WAIT_REPORT_AWAITED = 15 };

/* What a rank that waits shows to those of other hosts. */
typedef struct {
    uint32_t magic, state;
    uint64_t sequence, fingerprint;
    tt_call_descriptor_t descriptor;
    int32_t round, awaited_count;
    int32_t awaited[TT_WAIT_REPORT_AWAITED];
    uint32_t reserved;
    char site[TT_SITE_BYTES];
} tt_wait_report_t;

_Static_assert(sizeof(tt_wait_report_t) == 256, "docs/formats/shm.md says 256");

/* A wait has become long: shows where this rank is to its local ranks, and later to everybody. Only
 * while it blocks anyway. */
void tt_coll_note_wait(tt_coll_t *coll, int64_t now);
void tt_coll_end_wait(tt_coll_t *coll);

/* What keeps a call waiting. */
typedef struct {
    char text[600];            /* "rank 3 never entered it; it waits in …, rank 4 …" */
    int first;                 /* the lowest rank that is late; -1: none is known */
    int mismatched;            /* a rank that is in another call under the same number; or -1 */
    tt_wait_report_t mismatch; /* its head */
} tt_stragglers_t;

/* May ask the board, for a second at most, if this rank blocks anyway. */
void tt_coll_find_stragglers(tt_coll_t *coll, const tt_run_t *run, tt_stragglers_t *stragglers);

/* "it waits in barrier #3 of group tp (train.c:80)"; "" if it is not known to wait. */
tt_call_text_t tt_coll_wait_state(tt_coll_t *coll, int rank);

/* The code of a rank of this host at an address. */
tt_site_t tt_coll_site(const tt_coll_t *coll, int rank, uint64_t address);

/* Whether a call waits for a rank, in whatever way. */
bool tt_coll_waits_for(const tt_coll_t *coll, const tt_run_t *run, int rank);

static inline bool tt_coll_has_arrived(const tt_coll_t *coll, const tt_run_t *run, int node_peer)
{
    const tt_flag_slot_t *slot = tt_coll_slot(coll, node_peer, run->sequence);
    return atomic_load_explicit(&slot->sequence, memory_order_acquire) == run->sequence;
}

static inline bool tt_coll_has_finished(const tt_coll_t *coll, const tt_run_t *run, int node_peer)
{
    return atomic_load_explicit(&coll->blocks[node_peer]->done, memory_order_acquire) >=
           run->sequence;
}

typedef struct {
    char text[TT_CAUSE_BYTES + 80];
} tt_why_t;

/* What follows "rank 1 gave the group up": " (invalid argument): all_reduce: …" with what that rank
 * wrote before, " (aborted)" if it wrote nothing or the board does not answer, ": …" for an abort
 * that has a cause. */
tt_why_t tt_coll_why(const tt_coll_t *coll, int rank, tutti_status_t status);

/* cause.c: that this rank gave the group up, for those of other hosts whom no connection tells it;
 * and the failure word of one that did, and which it is: 0: none is known of. Asks the board. */
void tt_coll_post_end(const tt_coll_t *coll, uint64_t failure);
uint64_t tt_coll_find_end(const tt_coll_t *coll, int *rank);

/* coll_dump.c: a failure that tells something is dumped, if TUTTI_DUMP wants it. */
void tt_coll_dump_failure(tt_coll_t *coll);

/* monitor.c: nothing is changed but what a call knows about its own wait. */
tt_verdict_t tt_coll_watch(tt_coll_t *coll, int64_t now);
/* Why another rank has given the group up, and with which rank to blame; OK: none has. */
tt_verdict_t tt_coll_follow(tt_coll_t *coll, const tt_run_t *run);
tt_verdict_t tt_coll_listen_to(tt_coll_t *coll);
/* What the board says of it, in a wait that is long; asks now and then. */
tt_verdict_t tt_coll_ask_end(tt_coll_t *coll, int64_t now);

/* mismatch.c */
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run);
/* As tt_calls_differ; a site that is NULL is looked up. */
tutti_status_t tt_call_mismatch(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                const tt_party_t *b);

#endif
