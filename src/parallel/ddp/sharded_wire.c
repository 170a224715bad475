/* What ranks do at the same time when a plan runs with a clock: the one whose clock is behind is
 * next, and a collective begins when all its ranks have come to it and their wires are free. It
 * takes the latency and the time of what a rank sends, N (ranks − 1) / ranks bytes. Gathers of what
 * stays near have a set's ranks, a wire of their own, and its costs. */
#include <math.h>

#include "parallel/ddp/sharded_walk.h"

/* ---- who is next ----------------------------------------------------------------------------- */

/* Ranks with the same clock go on side by side. */
bool tt_walk_is_before(const tt_walk_t *w, int a, int b)
{
    const tt_walk_rank_t *x = &w->ranks[a], *y = &w->ranks[b];
    if (x->clock < y->clock || x->clock > y->clock) {
        return x->clock < y->clock;
    }
    return x->at != y->at ? x->at < y->at : a < b;
}

static void swap(tt_walk_t *w, int a, int b)
{
    const int rank = w->heap[a];
    w->heap[a] = w->heap[b];
    w->heap[b] = rank;
}

void tt_walk_push(tt_walk_t *w, int rank)
{
    int at = w->heap_count++;
    w->heap[at] = rank;
    while (at > 0 && tt_walk_is_before(w, w->heap[at], w->heap[(at - 1) / 2])) {
        swap(w, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

int tt_walk_pop(tt_walk_t *w)
{
    const int top = w->heap[0];
    int at = 0;
    w->heap[0] = w->heap[--w->heap_count];
    for (;;) {
        int least = at;
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < w->heap_count; child++) {
            least = tt_walk_is_before(w, w->heap[child], w->heap[least]) ? child : least;
        }
        if (least == at) {
            return top;
        }
        swap(w, at, least);
        at = least;
    }
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void wake(tt_walk_t *w, int index, const tt_walk_transfer_t *transfer)
{
    tt_walk_rank_t *rank = &w->ranks[index];
    if (rank->waits == transfer) {
        const double until = rank->wants_start ? transfer->ready + w->costs.latency : transfer->end;
        rank->clock = fmax(rank->clock, until);
        rank->waits = NULL;
        tt_walk_push(w, index);
    }
}

/* When the wire of a collective is free. */
static double *free_of(tt_walk_rank_t *rank, const tt_walk_post_t *post)
{
    return post->is_near ? &rank->near_free : &rank->wire_free;
}

static void carry(tt_walk_t *w, const tt_walk_post_t *post)
{
    tt_walk_transfer_t *t = post->transfer;
    const double sent = post->bytes * (post->count - 1) / post->count,
                 rate = post->is_near ? w->costs.near_bytes_per_second : w->costs.bytes_per_second,
                 latency = post->is_near ? w->costs.near_latency : w->costs.latency,
                 seconds = post->count > 1 ? latency + (rate > 0 ? sent / rate : 0) : 0;
    t->begin = t->ready;
    for (int i = 0; i < post->count; i++) {
        t->begin = fmax(t->begin, *free_of(&w->ranks[post->first + i], post));
    }
    t->end = t->begin + seconds;
    t->is_done = true;
    for (int i = 0; i < post->count; i++) {
        tt_walk_rank_t *rank = &w->ranks[post->first + i];
        *free_of(rank, post) = t->end;
        rank->wire += post->is_near ? 0 : seconds;
        *(post->is_near ? &rank->near_bytes : &rank->sent_bytes) += sent;
        wake(w, post->first + i, t);
    }
}

/* A rank comes to a collective. */
void tt_walk_come(tt_walk_t *w, int index, const tt_walk_post_t *post)
{
    tt_walk_transfer_t *t = post->transfer;
    t->ready = fmax(t->ready, w->ranks[index].clock);
    if (++t->posted == post->count) {
        carry(w, post);
    }
}

/* Whether a rank need not wait any more. */
bool tt_walk_is_over(tt_walk_rank_t *rank, const tt_walk_transfer_t *transfer)
{
    if (transfer != NULL && !transfer->is_done) {
        rank->waits = transfer;
        rank->wants_start = rank->is_held_back = false;
        return false;
    }
    rank->clock = transfer != NULL ? fmax(rank->clock, transfer->end) : rank->clock;
    return true;
}
