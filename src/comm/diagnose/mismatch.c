/* Calls that differ from rank to rank under one number: which two, in what, and where they were
 * made.
 */
#include <sched.h>
#include <stdio.h>

#include "comm/diagnose/stragglers.h"

enum { RECORD_LOOKS = 1000 };

typedef struct {
    char text[320];
} sites_text_t;

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

/* " (rank 1 at train.c:80, rank 0 at train.c:88)", with those that are known. */
static sites_text_t describe_sites(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                   const tt_party_t *b)
{
    sites_text_t out = {""};
    const tt_party_t *parties[] = {a, b};
    int length = 0;
    for (int i = 0; i < 2; i++) {
        const tt_call_text_t site = site_of(coll, parties[i], sequence);
        if (site.text[0] != 0) {
            length +=
                snprintf(out.text + length, sizeof out.text - (size_t)length, "%srank %d at %.96s",
                         length > 0 ? ", " : " (", parties[i]->rank, site.text);
        }
    }
    if (length > 0) {
        snprintf(out.text + length, sizeof out.text - (size_t)length, ")");
    }
    return out;
}

tutti_status_t tt_call_mismatch(const tt_coll_t *coll, uint64_t sequence, const tt_party_t *a,
                                const tt_party_t *b)
{
    const char *name = tt_collective_text(a->descriptor->collective);
    const sites_text_t sites = describe_sites(coll, sequence, a, b);
    if (a->descriptor->collective != b->descriptor->collective) {
        return TT_FAIL(TUTTI_ERR_MISMATCH,
                       "call #%llu of group %s: rank %d called %s %s, rank %d called %s %s%s",
                       (unsigned long long)sequence, coll->options.name, a->rank, name,
                       tt_call_describe(a->descriptor, a->descriptor).text, b->rank,
                       tt_collective_text(b->descriptor->collective),
                       tt_call_describe(b->descriptor, b->descriptor).text, sites.text);
    }
    return TT_FAIL(TUTTI_ERR_MISMATCH, "%s #%llu: rank %d passed %s, rank %d passed %s%s", name,
                   (unsigned long long)sequence, a->rank,
                   tt_call_describe(a->descriptor, b->descriptor).text, b->rank,
                   tt_call_describe(b->descriptor, a->descriptor).text, sites.text);
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
