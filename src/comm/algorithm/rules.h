/* Rules: which algorithm for which call, as text that people write and tuning writes.
 *
 *     ring                              every call that ring fits
 *     all_reduce:0-4k:recursive_doubling       all_reduces of 0 to 4095 bytes per part
 *     all_reduce:4k-:ring,barrier:flag  several, the first that matches and fits wins
 *
 * What no rule decides is left to the built-in table (choice.c).
 */
#ifndef TT_RULES_H
#define TT_RULES_H

#include "comm/plan/plan.h"

enum { TT_RULES_MAX = 128 };

typedef struct {
    int collective; /* -1: every one */
    size_t bytes_min, bytes_max;
    const tt_algorithm_t *algorithm;
    const char *origin; /* who made the rule; a literal */
} tt_rule_t;

typedef struct {
    bool is_free; /* algorithms that are not canonical may be chosen (TUTTI_EXACT=0) */
    int count;
    tt_rule_t rules[TT_RULES_MAX];
} tt_coll_rules_t;

/* Adds rules behind those that are there; the first that matches wins. NULL, "" and "auto" are no
 * rules. Errors: ARG, which names the word and what it may be. */
tutti_status_t tt_coll_rules_add(tt_coll_rules_t *rules, const char *text, const char *origin);

/* The same for what tuning found. Unless rules are free, those whose algorithm is not canonical are
 * passed over: other bits were not asked for. */
tutti_status_t tt_coll_rules_add_tuned(tt_coll_rules_t *rules, const char *text);

/* Whether a rule is about a call, with `bytes` for a part, and its algorithm can do it. */
bool tt_coll_rule_matches(const tt_rule_t *rule, const tt_plan_request_t *request, size_t bytes);

#endif
