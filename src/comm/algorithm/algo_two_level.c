/* two_level: shared memory inside each host, wires between hosts; all ranks of a host drive the
 * network at once. Any number of ranks on each host, numbered in any way; any leaf map.
 *
 * Of an all_reduce each rank owns a slice. For the slice of `owner`, every host has one rank that
 * deals with it: owner itself on its own host, its helper on each other one.
 *
 *     P + 0  add      that rank adds up its host's pieces, as far as the tree lets it: into nodes
 *     P + 1  send     helpers send these nodes to the owner
 *     P + 2  finish   the owner adds up the nodes of all hosts, and writes the slice of the result
 *                     into the memory of all its local ranks
 *     P + 3  return   ... and sends it to the helpers
 *     P + 4  barrier
 *     P + 5  take     the other ranks of a host copy it out of the helper's memory
 *
 * A reduce_scatter stops after `finish`, with the ranks' parts for slices. Calls are cut into
 * chunks; phase p of chunk c is in round c + p. Memory that local ranks cannot reach goes through
 * bounce buffers: P is 2 instead of 0, phase 0 copies the pieces of the chunk into the bounce
 * buffer, results come out of bounce_out. Each host uses bounce buffers or not; what it exchanges
 * with the others, and in which order, is the same. two_level_moves.c has what adds nothing up.
 *
 * Cost of an all_reduce over h hosts with n ranks each and aligned leaves: every rank sends
 * 2 N (h - 1) / (h n) elements and reads about 2 N from its local ranks.
 *
 * Source: Tutti; after Luo et al., "HAN", Cluster 2020, without its leaders.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/two_level.h"

#include <stdlib.h>

#include "core/base/alloc.h"

/* With bounce buffers or without: hosts that differ in that exchange the same messages. */
enum { CHUNK = 64 << 10, SUM_SLOTS = 3 };
enum { PHASE_ADD, PHASE_SEND, PHASE_FINISH, PHASE_RETURN, PHASE_MEET, PHASE_TAKE };

/* An owner whose slice this rank deals with: itself, or one that it helps. */
typedef struct {
    int owner;
    size_t at, stride; /* where in a slot of the sum buffer my host's nodes of the slice are */
} dealt_t;

/* Sums: those of my host's nodes, one after the other, then that of a whole slice.
 *
 * A slot of the sum buffer has my host's nodes of my own slice, then of each slice that I help
 * with, in order of owners; then the other hosts' nodes of my slice. */
typedef struct {
    tt_two_level_t t;
    int *groups;    /* [host_count] nodes that each host's pieces add up to */
    dealt_t *dealt; /* [dealt_count] mine first */
    int dealt_count;
    size_t received;   /* where in a slot the other hosts' nodes begin */
    tt_slots_t sums;   /* of the sum buffer */
    tt_slots_t stages; /* of the bounce buffer: stage_width() for each piece */
} state_t;

static bool is_scatter(const state_t *s)
{
    return s->t.cut.has_parts;
}

static int my_groups(const state_t *s)
{
    return s->groups[s->t.host];
}

/* Where a slice of chunk c is in a bounce buffer's slot. */
static size_t within(const state_t *s, int c, int owner, tt_slice_t slice)
{
    return is_scatter(s) ? s->t.cut.chunk * (size_t)owner
                         : slice.begin - s->t.cut.chunk * (size_t)c;
}

/* Elements of a bounce buffer's slot that one piece takes. */
static size_t stage_width(const state_t *s)
{
    return s->t.cut.chunk * (is_scatter(s) ? (size_t)s->t.request->size : 1);
}

/* Where in a bounce buffer, if there is one, the slot of a chunk begins. */
static size_t bounce_at(const state_t *s, int c)
{
    return s->t.request->is_staged ? tt_slot_at(&s->stages, c) : 0;
}

/* ---- the phases ---- */

static void copy_in(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int i = 0; i < plan->pieces_of[plan->rank]; i++) {
        const size_t at = bounce_at(s, c) + stage_width(s) * (size_t)i;
        for (int owner = 0; owner < (is_scatter(s) ? plan->size : 1); owner++) {
            const tt_slice_t part = is_scatter(s) ? tt_cut_owned(&s->t.cut, owner, c)
                                                  : tt_cut_chunk(&s->t.cut, plan->count, c);
            tt_plan_copy(plan, tt_piece_at(i, part.begin),
                         tt_part_at(TT_BUFFER_BOUNCE, at + within(s, c, owner, part)), part.count);
        }
    }
}

/* My host's nodes of the slices that I deal with, into the sum buffer. */
static void add_nodes(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (const dealt_t *d = s->dealt; d < s->dealt + s->dealt_count; d++) {
        const tt_slice_t slice = tt_cut_owned(&s->t.cut, d->owner, c);
        for (int g = 0; g < my_groups(s); g++) {
            const tt_sum_at_t sum = {.sum = g,
                                     .piece = slice.begin,
                                     .shift = bounce_at(s, c) + within(s, c, d->owner, slice)};
            const size_t at = tt_slot_at(&s->sums, c) + d->at + d->stride * (size_t)g;
            tt_plan_reduce(plan, sum, tt_part_at(TT_BUFFER_SUM, at), slice.count);
        }
    }
}

/* To the owners that I help, and from my helpers. */
static void exchange_nodes(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (const dealt_t *d = s->dealt + 1; d < s->dealt + s->dealt_count; d++) {
        const size_t count = tt_cut_owned(&s->t.cut, d->owner, c).count;
        for (int g = 0; g < my_groups(s); g++) {
            const size_t at = tt_slot_at(&s->sums, c) + d->at + d->stride * (size_t)g;
            tt_plan_send(plan, d->owner, tt_part_at(TT_BUFFER_SUM, at), count);
        }
    }
    const size_t count = tt_cut_owned(&s->t.cut, plan->rank, c).count;
    size_t at = tt_slot_at(&s->sums, c) + s->received;
    for (int host = 0; host < s->t.host_count; host++) {
        for (int g = 0; host != s->t.host && g < s->groups[host]; g++, at += s->dealt->stride) {
            tt_plan_recv(plan, tt_two_level_helper(&s->t, host, plan->rank),
                         tt_part_at(TT_BUFFER_SUM, at), count);
        }
    }
}

/* The result of a slice, where local ranks see it. */
static tt_part_t result_at(const state_t *s, int c, int owner, tt_slice_t slice)
{
    return s->t.request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT,
                            tt_slot_at(&s->t.outs, c) + within(s, c, owner, slice))
               : tt_out_at(slice.begin);
}

static void finish_slice(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t slice = tt_cut_owned(&s->t.cut, plan->rank, c);
    const size_t part = tt_plan_part(s->t.request, plan->rank).begin;
    tt_plan_reduce(plan,
                   (tt_sum_at_t){.sum = my_groups(s),
                                 .shift = tt_slot_at(&s->sums, c),
                                 .to = is_scatter(s) ? TT_TO_ME : TT_TO_LOCAL_RANKS},
                   is_scatter(s) ? tt_out_at(slice.begin - part)
                                 : result_at(s, c, plan->rank, slice),
                   slice.count);
}

static void return_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->t.cut, plan->rank, c);
    for (int host = 0; host < s->t.host_count; host++) {
        if (host != s->t.host) {
            tt_plan_send(plan, tt_two_level_helper(&s->t, host, plan->rank),
                         result_at(s, c, plan->rank, mine), mine.count);
        }
    }
    for (const dealt_t *d = s->dealt + 1; d < s->dealt + s->dealt_count; d++) {
        const tt_slice_t slice = tt_cut_owned(&s->t.cut, d->owner, c);
        tt_plan_recv(plan, d->owner, result_at(s, c, d->owner, slice), slice.count);
    }
}

static void take_slices(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t slice = tt_cut_owned(&s->t.cut, owner, c);
        const bool is_here =
            tt_two_level_host(&s->t, owner) == s->t.host || tt_two_level_helps(&s->t, owner);
        const tt_part_t src = result_at(s, c, owner, slice), dst = tt_out_at(slice.begin);
        if (!is_here) {
            const tt_source_t theirs = {tt_two_level_helper(&s->t, s->t.host, owner), src};
            tt_plan_get(plan, theirs, dst, slice.count);
        } else if (s->t.request->is_staged) {
            tt_plan_copy(plan, src, dst, slice.count);
        }
    }
}

/* ---- sums ---- */

static int compare_terms(const void *a, const void *b)
{
    const tt_plan_term_t *left = a, *right = b;
    return left->leaves.begin < right->leaves.begin ? -1 : 1;
}

/* The pieces of a host's ranks, and the groups of them that are nodes. */
static int group_pieces(const tt_plan_t *plan, state_t *s, int host, tt_plan_term_t *terms,
                        int *ends)
{
    int count = 0;
    for (int i = s->t.begins[host]; i < s->t.begins[host + 1]; i++) {
        const int rank = s->t.ranks[i];
        count += tt_plan_piece_terms(plan, rank, rank + 1, terms + count);
    }
    s->groups[host] = tt_plan_group_terms(plan->leaves, terms, count, ends);
    return s->groups[host];
}

/* Of my host's pieces; those of others may be in their bounce buffers. */
static void add_node_sums(tt_plan_t *plan, state_t *s, tt_plan_term_t *terms, int *ends)
{
    const tt_others_t others = {plan->request.is_staged ? TT_BUFFER_BOUNCE : TT_BUFFER_PIECE, 0,
                                stage_width(s)};
    const int groups = group_pieces(plan, s, s->t.host, terms, ends);
    for (int g = 0, begin = 0; g < groups; begin = ends[g++]) {
        tt_plan_find_others(plan, others, terms + begin, ends[g] - begin);
        tt_plan_add_sum(plan, terms + begin, ends[g] - begin, true);
    }
}

/* Of all hosts' nodes of my slice, in the first slot of the sum buffer; returns the elements of a
 * slot. */
static size_t add_slice_sum(tt_plan_t *plan, state_t *s, tt_plan_term_t *nodes,
                            tt_plan_term_t *terms, int *ends)
{
    size_t mine = 0, theirs = s->received;
    int count = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        const int groups = group_pieces(plan, s, host, terms, ends);
        size_t *at = host == s->t.host ? &mine : &theirs;
        for (int g = 0, begin = 0; g < groups; begin = ends[g++], *at += s->dealt->stride) {
            const tt_leaves_t span = {terms[begin].leaves.begin, terms[ends[g] - 1].leaves.end};
            nodes[count++] = (tt_plan_term_t){span, {plan->rank, tt_part_at(TT_BUFFER_SUM, *at)}};
        }
    }
    qsort(nodes, (size_t)count, sizeof *nodes, compare_terms);
    tt_plan_add_sum(plan, nodes, count, false);
    return theirs;
}

static void deal_with(state_t *s, int owner)
{
    const size_t stride = tt_cut_longest(&s->t.cut, owner);
    s->dealt[s->dealt_count++] = (dealt_t){owner, s->received, stride};
    s->received += stride * (size_t)my_groups(s);
}

static void make_sums(tt_plan_t *plan, state_t *s)
{
    int pieces = 0, dealt = 1;
    for (int rank = 0; rank < plan->size; rank++) {
        pieces += plan->pieces_of[rank];
        dealt += tt_two_level_helps(&s->t, rank);
    }
    tt_plan_term_t *terms = tt_alloc_array(2 * (size_t)pieces, sizeof *terms, "terms of a plan");
    int *ends = tt_alloc_array((size_t)pieces, sizeof *ends, "terms of a plan");
    s->groups = tt_plan_alloc(plan, (size_t)s->t.host_count, sizeof *s->groups);
    s->dealt = tt_plan_alloc(plan, (size_t)dealt, sizeof *s->dealt);
    if (terms == NULL || ends == NULL || plan->status < 0) {
        plan->status = TUTTI_ERR_NOMEM;
    } else {
        add_node_sums(plan, s, terms, ends);
        deal_with(s, plan->rank);
        for (int owner = 0; owner < plan->size; owner++) {
            if (tt_two_level_helps(&s->t, owner)) {
                deal_with(s, owner);
            }
        }
        const size_t slot = add_slice_sum(plan, s, terms + pieces, terms, ends);
        s->sums = tt_plan_reserve_slots(plan, &s->t.cut, TT_BUFFER_SUM, slot, SUM_SLOTS);
    }
    tt_free(terms);
    tt_free(ends);
}

/* Where every host has one rank, nothing is left to take. */
static int last_phase(const state_t *s)
{
    if (is_scatter(s)) {
        return PHASE_FINISH;
    }
    return s->t.request->is_staged || s->t.host_count < s->t.request->size ? PHASE_TAKE
                                                                           : PHASE_RETURN;
}

static void prepare_reduction(tt_plan_t *plan, state_t *s)
{
    static const tt_plan_loop_t direct = {.phases = {[PHASE_ADD] = add_nodes,
                                                     [PHASE_SEND] = exchange_nodes,
                                                     [PHASE_FINISH] = finish_slice,
                                                     [PHASE_RETURN] = return_slices,
                                                     [PHASE_TAKE] = take_slices}};
    const bool is_staged = plan->request.is_staged;
    tt_plan_loop_t loop = {.phases = {copy_in}};
    s->t.cut = plan->collective == TT_REDUCE_SCATTER
                   ? tt_cut_parts(&plan->request, CHUNK / (size_t)plan->size)
                   : tt_cut_vector(&plan->request, CHUNK);
    make_sums(plan, s);
    if (is_staged) {
        s->stages = tt_plan_reserve_slots(plan, &s->t.cut, TT_BUFFER_BOUNCE,
                                          stage_width(s) * (size_t)plan->pieces_of_rank_max,
                                          TT_BOUNCE_SLOTS);
        s->t.outs = tt_plan_reserve_slots(plan, &s->t.cut, TT_BUFFER_BOUNCE_OUT,
                                          is_scatter(s) ? 0 : s->t.cut.chunk, TT_BOUNCE_OUT_SLOTS);
    }
    const int first = is_staged ? 2 : 0, last = last_phase(s);
    for (int phase = 0; phase <= last; phase++) {
        loop.phases[first + phase] = direct.phases[phase];
    }
    loop.chunks = s->t.cut.chunks;
    if (loop.chunks > 0 && (is_staged || last == PHASE_TAKE)) {
        tt_plan_add_meets(plan, is_staged ? 1 : PHASE_MEET, loop.chunks + first + last - 1, 1);
    }
    tt_plan_add_loop(plan, loop);
}

/* Hosts and their ranks. */
static bool find_hosts(tt_plan_t *plan, tt_two_level_t *t)
{
    const int hosts = tt_plan_host_count(&plan->request);
    t->request = &plan->request;
    t->host_count = hosts;
    t->host = tt_plan_host(&plan->request, plan->rank);
    t->begins = tt_plan_alloc(plan, (size_t)hosts + 2 + (size_t)plan->size, sizeof(int));
    if (t->begins == NULL) {
        return false;
    }
    t->ranks = t->begins + hosts + 2;
    int *ends =
        t->begins + 1; /* first a host's ranks, then where they begin, then where they end */
    for (int rank = 0; rank < plan->size; rank++) {
        ends[tt_two_level_host(t, rank) + 1]++;
    }
    for (int host = 0; host < hosts; host++) {
        ends[host + 1] += ends[host];
    }
    for (int rank = 0; rank < plan->size; rank++) {
        t->ranks[ends[tt_two_level_host(t, rank)]++] = rank;
    }
    return true;
}

static void prepare_two_level(tt_plan_t *plan)
{
    state_t *s = plan->state = tt_plan_alloc(plan, 1, sizeof *s);
    if (s == NULL || !find_hosts(plan, &s->t)) {
        return;
    }
    if (tt_collective_reduces(plan->collective)) {
        prepare_reduction(plan, s);
    } else {
        tt_two_level_prepare_moves(plan);
    }
}

const tt_algorithm_t tt_algorithm_two_level = {
    .name = "two_level",
    .about = "shared memory inside each host, wires between hosts, driven by all ranks",
    .source = "Tutti; after Luo et al., Cluster 2020",
    .is_canonical = true,
    .shares_memory = true,
    .collectives = 1 << TT_ALL_REDUCE | 1 << TT_REDUCE_SCATTER | 1 << TT_ALL_GATHER |
                   1 << TT_BROADCAST | 1 << TT_BARRIER,
    .may_be_staged = true,
    .needs_hosts = true,
    .prepare = prepare_two_level,
};
