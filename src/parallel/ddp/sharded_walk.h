/* Plans that run with a clock (sharded_simulate.c): ranks, what their wires carry, and who goes on
 * next. */
#ifndef TT_SHARDED_WALK_H
#define TT_SHARDED_WALK_H

#include "parallel/ddp/sharded_row.h"

/* A collective. */
typedef struct {
    int posted; /* ranks that have come to it */
    bool is_done;
    double ready, begin, end;
} tt_walk_transfer_t;

typedef struct {
    double clock, compute, wire, wire_free, near_free;
    int at, gathers, nears, scatters; /* the next action; collectives that it has come to */
    bool is_posted;                   /* the action's */
    bool is_impatient;                /* waits for no bucket any more */
    bool is_held_back;                /* what it waits for is a bucket */
    bool has_stepped;                 /* what comes is kept */
    bool has_shard;                   /* it has gradients, else buckets leave without memory here */
    bool wants_start;                 /* what it waits for is that all have come */
    const tt_walk_transfer_t *waits;
    tt_walk_transfer_t **coming; /* [units] gathers */
    bool *is_near;               /* [units] a part of it stays */
    bool *is_wanted;             /* [buckets] a gradient has come */
    size_t unit_bytes, peak_unit_bytes, peak_gradient_bytes;
    double sent_bytes, near_bytes;
} tt_walk_rank_t;

typedef struct {
    const tutti_sharded_plan_t *plan;
    const tutti_sharded_options_t *o;
    tutti_sharded_costs_t costs;
    int size, gather_count;                 /* ranks of a row; gathers of each */
    int set;                                /* ranks that keep a unit together */
    tt_walk_transfer_t *gathers, *scatters; /* [rows × gather_count], [buckets] */
    tt_walk_transfer_t *nears;              /* [sets × gather_count] */
    tt_walk_transfer_t publish;
    tt_walk_rank_t *ranks;
    int *heap; /* [ranks] that can go on, the one with the least clock on top */
    int heap_count;
    bool announces;
    tutti_sharded_span_t **spans;
} tt_walk_t;

/* Of ranks [first, first + count), of so many bytes. */
typedef struct {
    tt_walk_transfer_t *transfer;
    int first, count;
    double bytes;
    bool is_near;
} tt_walk_post_t;

/* sharded_wire.c: who can go on, the one whose clock is behind first. */
void tt_walk_push(tt_walk_t *w, int rank);
int tt_walk_pop(tt_walk_t *w);
bool tt_walk_is_before(const tt_walk_t *w, int a, int b);

/* A rank comes to a collective. */
void tt_walk_come(tt_walk_t *w, int index, const tt_walk_post_t *post);

/* Whether a rank need not wait any more; NULL: there is nothing. */
bool tt_walk_is_over(tt_walk_rank_t *rank, const tt_walk_transfer_t *transfer);

#endif
