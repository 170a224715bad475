/* Calls that differ from rank to rank under one number: which two, in what, and where they were
 * made.
 */
#include <sched.h>
#include <stdio.h>

#include "comm/diagnose/stragglers.h"

enum { RECORD_LOOKS = 1000 };

/* The record of a local rank's call. It is shown before it is written down, so it may be on its
 * way. */
static bool find_record(const tt_coll_t *coll, int rank, uint64_t sequence, tt_record_t *record)
{
    for (int i = 0; i < RECORD_LOOKS; i++) {
        if (tt_records_find(&coll->blocks[rank]->records, sequence, record)) {
            return true;
        }
        sched_yield();
    }
    return false;
}

/* Where a rank made a call; "" for what this rank cannot see. */
static tt_call_text_t site_of(const tt_coll_t *coll, const tt_party_t *party, uint64_t sequence)
{
    tt_call_text_t out = {""};
    tt_record_t record;
    if (party->site != NULL) {
        snprintf(out.text, sizeof out.text, "%.*s", TT_SITE_BYTES - 1, party->site);
    } else if (coll->blocks[party->rank] != NULL &&
               find_record(coll, party->rank, sequence, &record)) {
        snprintf(out.text, sizeof out.text, "%s",
                 tt_coll_site(coll, party->rank, record.site).text);
    }
    return out;
}

tutti_status_t tt_call_mismatch(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                const tt_party_t *b)
{
    const tt_call_text_t at_a = site_of(coll, a, sequence), at_b = site_of(coll, b, sequence);
    return tt_calls_differ(coll->options.name, sequence,
                           &(tt_party_t){a->rank, a->descriptor, at_a.text},
                           &(tt_party_t){b->rank, b->descriptor, at_b.text});
}

/* All local ranks have entered the call. The lowest that differs from the first is named, so that
 * all ranks name the same. */
tutti_status_t tt_coll_check_agreement(tt_coll_t *coll, const tt_run_t *run)
{
    const int first = coll->local_ranks[0];
    const tt_flag_slot_t *one = tt_coll_slot(coll, first, run->sequence);
    for (int i = 1; i < coll->local_count; i++) {
        const int rank = coll->local_ranks[i];
        const tt_flag_slot_t *slot = tt_coll_slot(coll, rank, run->sequence);
        if (slot->fingerprint != one->fingerprint) {
            return tt_call_mismatch(coll, run->sequence,
                                    &(tt_party_t){rank, &slot->descriptor, NULL},
                                    &(tt_party_t){first, &one->descriptor, NULL});
        }
    }
    return TUTTI_OK;
}
