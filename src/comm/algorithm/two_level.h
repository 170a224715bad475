/* What the parts of two_level share: which ranks share a host, and how calls are cut. */
#ifndef TT_TWO_LEVEL_H
#define TT_TWO_LEVEL_H

#include "comm/plan/plan_steps.h"

enum { TT_BOUNCE_SLOTS = 4, TT_BOUNCE_OUT_SLOTS = 5 };

/* The first member of a plan's state. */
typedef struct {
    const tt_plan_request_t *request;
    int host_count, host; /* host: this rank's */
    int *begins;          /* [host_count + 1] where each host's ranks begin in `ranks` */
    int *ranks;           /* [size] by host, in order */
    tt_cut_t cut;
    tt_slots_t outs; /* of the buffer of bounce_outs */
} tt_two_level_t;

static inline int tt_two_level_host(const tt_two_level_t *t, int rank)
{
    return tt_plan_host(t->request, rank);
}

static inline int tt_two_level_local_ranks(const tt_two_level_t *t, int host)
{
    return t->begins[host + 1] - t->begins[host];
}

/* The rank of a host that deals with what `owner`, on another host, owns. */
static inline int tt_two_level_helper(const tt_two_level_t *t, int host, int owner)
{
    return t->ranks[t->begins[host] + owner % tt_two_level_local_ranks(t, host)];
}

/* Whether this rank is the helper of `owner`. */
static inline bool tt_two_level_helps(const tt_two_level_t *t, int owner)
{
    return tt_two_level_host(t, owner) != t->host &&
           tt_two_level_helper(t, t->host, owner) == t->request->rank;
}

/* What moves without being added up: all_gather, broadcast, barrier. */
void tt_two_level_prepare_moves(tt_plan_t *plan);

#endif
