/* Which algorithm carries out a call, and why. */
#ifndef TT_CHOICE_H
#define TT_CHOICE_H

#include "comm/algorithm/rules.h"

typedef struct {
    const tt_algorithm_t *algorithm; /* it may not fit, and then says why (tt_plan_create) */
    const char *why;
} tt_choice_t;

/* Pure: the same on every rank if rules and request are. `element` is the bytes of one. */
tt_choice_t tt_coll_choose(const tt_coll_rules_t *rules, const tt_plan_request_t *request,
                           size_t element);

#endif
