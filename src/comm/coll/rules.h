/* Rules: which algorithm for which call, as text that people write and tuning writes.
 *
 *     ring                              every call that ring fits
 *     all_reduce:0-4k:doubling          all_reduces of 0 to 4095 bytes per part
 *     all_reduce:4k-:ring,barrier:flag  several, the first that matches and fits wins
 *
 * What no rule decides is left to the built-in table (coll_pick.c).
 */
#ifndef TT_RULES_H
#define TT_RULES_H

#include "comm/coll/plan.h"

enum { TT_RULES_MAX = 64 };

typedef struct {
    int collective; /* -1: every one */
    size_t bytes_min, bytes_max;
    const tt_algorithm_t *algorithm;
} tt_rule_t;

typedef struct {
    int count;
    tt_rule_t rules[TT_RULES_MAX];
} tt_coll_rules_t;

/* NULL, "" and "auto" are no rules. Errors: ARG, which names the word and what it may be. */
tutti_status_t tt_coll_rules_parse(const char *text, tt_coll_rules_t *out);

/* The first rule for a call whose algorithm fits; NULL: none. `bytes` of a part. */
const tt_algorithm_t *tt_coll_rules_find(const tt_coll_rules_t *rules,
                                         const tt_plan_request_t *request, size_t bytes);

#endif
