/* What the parts of two_level share: which ranks share a host, and how calls are cut. */
#ifndef TT_TWO_LEVEL_H
#define TT_TWO_LEVEL_H

#include "comm/plan/plan_steps.h"

enum { TT_BOUNCE_SLOTS = 4, TT_BOUNCE_OUT_SLOTS = 5 };

typedef struct {
    tt_plan_t *plan; /* of the round that is made */
    const tt_plan_request_t *request;
    int host_count, host; /* host: this rank's */
    int *begins;          /* [host_count + 1] where each host's ranks begin in `ranks` */
    int *ranks;           /* [size] by host, in order */
    tt_cut_t cut;
} tt_two_level_t;

/* Hosts and their ranks; false without memory, which the plan keeps. */
bool tt_two_level_open(tt_two_level_t *t, tt_plan_t *plan);
void tt_two_level_close(tt_two_level_t *t);

int tt_two_level_local_ranks(const tt_two_level_t *t, int host);

/* The rank of a host that deals with what `owner`, on another host, owns. */
int tt_two_level_helper(const tt_two_level_t *t, int host, int owner);

static inline int tt_two_level_host(const tt_two_level_t *t, int rank)
{
    return tt_plan_host(t->request, rank);
}

/* Whether this rank is the helper of `owner`. */
bool tt_two_level_helps(const tt_two_level_t *t, int owner);

/* Where a chunk is in buffers of so many slots, of the chunk's length or `width` times that. */
static inline size_t tt_two_level_slot(const tt_two_level_t *t, int c, int slots, size_t width)
{
    return (size_t)(c % slots) * width * t->cut.chunk;
}

/* The loop of all chunks, with phases up to `last`; BARRIERs in all rounds from `meet` on but the
 * last one (0: none). */
void tt_two_level_loop(const tt_two_level_t *t, int last, int meet);

/* What moves without being added up: all_gather, broadcast, barrier. */
void tt_two_level_prepare_moves(tt_plan_t *plan, tt_two_level_t *t);
void tt_two_level_add_moves(const tt_two_level_t *t, tt_plan_at_t at);

#endif
