/* Texts about calls, for errors, reports and dumps. */
#ifndef TT_CALL_TEXT_H
#define TT_CALL_TEXT_H

#include "comm/exec/flags.h"
#include "core/base/fail.h"
#include "core/base/site.h"

enum { TT_CALL_TEXT_BYTES = 256 };

typedef struct {
    char text[TT_CALL_TEXT_BYTES];
} tt_call_text_t;

/* Names of what another rank wrote, "?" for what is none. */
const char *tt_dtype_text(int dtype);
const char *tt_collective_text(int collective);

/* A rank in a call, and where it made it; NULL or "": not known. */
typedef struct {
    int rank;
    const tt_call_descriptor_t *descriptor;
    const char *site;
} tt_party_t;

/* MISMATCH: two ranks are in different calls under one number of a group. */
tutti_status_t tt_calls_differ(const char *group, uint64_t sequence, const tt_party_t *a,
                               const tt_party_t *b);

/* Elements that one rank of an all_to_all gives another, which wants so many. */
typedef struct {
    int from, to;
    uint64_t given, wanted;
} tt_exchange_t;

/* MISMATCH: these are not as many. */
tutti_status_t tt_exchange_check(uint64_t sequence, const tt_exchange_t *exchange);

/* "all_reduce #812 f32[1024]", "send of f32[4] to rank 1 (tag 3)" */
tt_call_text_t tt_record_describe(const tt_record_t *record);

/* " (train.c:88)", or "" */
tt_call_text_t tt_text_in_brackets(const char *text);

/* "all_reduce #812 f32[1024] of group dp (train.c:88)" */
tt_call_text_t tt_record_in_group(const tt_record_t *record, const char *group, const char *site);

#endif
