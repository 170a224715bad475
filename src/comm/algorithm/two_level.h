/* What the parts of two_level share: who is on which host, and how calls are cut. */
#ifndef TT_TWO_LEVEL_H
#define TT_TWO_LEVEL_H

#include "comm/plan/plan_steps.h"

enum { TT_BOUNCE_SLOTS = 4, TT_BOUNCE_OUT_SLOTS = 5 };

typedef struct {
    tt_plan_t *plan; /* NULL while a cost is counted */
    const tt_plan_request_t *request;
    int host_count;
    int *begins; /* [host_count + 1] where each host's ranks begin in `ranks` */
    int *ranks;  /* [size] by host, in order */
    size_t length, chunk;
    int chunks;
} tt_two_level_t;

/* For a plan, whose request is used as long as the plan lives; or for a cost. False without memory;
 * the plan keeps that. */
bool tt_two_level_open(tt_two_level_t *t, tt_plan_t *plan, size_t length, size_t chunk);
bool tt_two_level_open_for(tt_two_level_t *t, const tt_plan_request_t *request, size_t length,
                           size_t chunk);
void tt_two_level_close(tt_two_level_t *t);

int tt_two_level_local_ranks(const tt_two_level_t *t, int host);

/* The rank of a host that deals with what `owner`, on another host, owns. */
int tt_two_level_helper(const tt_two_level_t *t, int host, int owner);

static inline int tt_two_level_host(const tt_two_level_t *t, int rank)
{
    return tt_plan_host(t->request, rank);
}

/* BARRIERs in rounds [begin, end). */
void tt_two_level_barrier(const tt_two_level_t *t, int begin, int end);

/* What moves without being added up: all_gather, broadcast, barrier. */
void tt_two_level_plan_moves(tt_plan_t *plan, tt_two_level_t *t);
void tt_two_level_add_moves(const tt_two_level_t *t, tt_plan_at_t at);
tt_plan_cost_t tt_two_level_moves_cost(const tt_plan_request_t *request);

#endif
