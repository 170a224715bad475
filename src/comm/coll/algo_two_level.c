/* two_level: shared memory inside each host, wires between hosts; all ranks of a host drive the
 * network at once. Any number of ranks on each host, numbered in any way; any leaf map.
 *
 * Of an all_reduce each rank owns a slice. For the slice of `owner`, every host has one rank who
 * deals with it: owner itself on its own host, its helper on each other one.
 *
 *     P + 0  add      that rank adds up its host's pieces, as far as the tree lets it: into nodes
 *     P + 1  send     helpers send these nodes to the owner
 *     P + 2  finish   the owner adds up the nodes of all hosts, and writes the slice of the result
 *                     into the memory of all its mates
 *     P + 3  return   ... and sends it to the helpers
 *     P + 4  meet
 *     P + 5  take     the other ranks of a host copy it out of the helper's memory
 *
 * A reduce_scatter stops after `finish`, with the ranks' parts for slices. Calls are cut into
 * chunks; phase p of chunk c is in round c + p. Memory that mates cannot reach goes through stages:
 * P is 2 instead of 0, phase 0 copies the pieces of the chunk into the stage, results come out of
 * stage_out. Each host uses stages or not; what it exchanges with the others, and in which order,
 * is the same. For all_gather, broadcast and barrier see two_level_moves.c.
 *
 * Cost of an all_reduce over h hosts with n ranks each and aligned leaves: every rank sends
 * 2 N (h - 1) / (h n) elements and reads about 2 N from its mates.
 *
 * Source: Tutti; after Luo et al., "HAN: a Hierarchical AutotuNed Collective Communication
 * Framework", Cluster 2020, without its leaders.
 */
#include "comm/coll/two_level.h"

#include <stdlib.h>

#include "core/base/alloc.h"

/* With stages or without: hosts that differ in that exchange the same messages. */
enum { CHUNK = 64 << 10, SUM_SLOTS = 3 };
enum { PHASE_ADD, PHASE_SEND, PHASE_FINISH, PHASE_RETURN, PHASE_MEET, PHASE_TAKE };

/* What a host adds up: its pieces, and the groups of them that are nodes. */
typedef struct {
    tt_plan_term_t *terms;
    int *ends; /* [groups] */
    int count, groups;
} host_sum_t;

typedef struct {
    tt_two_level_t t;
    host_sum_t *hosts; /* [host_count] */
    int pieces_max, first_phase;
    size_t sum_slot; /* elements of one slot of the sum buffer */
} state_t;

static bool is_scatter(const tt_plan_request_t *request)
{
    return request->collective == TT_REDUCE_SCATTER;
}

static size_t length_of(const tt_plan_request_t *request)
{
    return is_scatter(request) ? tt_plan_part_max(request) : request->count;
}

static size_t chunk_of(const tt_plan_request_t *request)
{
    const size_t part = is_scatter(request) ? CHUNK / (size_t)request->size : CHUNK;
    return part > 64 ? part : 64;
}

/* What `owner` owns of a chunk: as offsets into the pieces, and (in a stage) into the chunk. */
static tt_slice_t owned(const tt_two_level_t *t, int c, int owner, size_t *within)
{
    if (is_scatter(t->request)) {
        const tt_slice_t part = tt_plan_part(t->request, owner);
        const tt_slice_t chunk = tt_chunk(part.count, t->chunk, c);
        *within = t->chunk * (size_t)owner;
        return (tt_slice_t){part.begin + chunk.begin, chunk.count};
    }
    const tt_slice_t chunk = tt_chunk(t->length, t->chunk, c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, t->request->size, owner);
    *within = slice.begin;
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* Elements of a stage's slot that one piece takes. */
static size_t stage_width(const tt_two_level_t *t)
{
    return t->chunk * (is_scatter(t->request) ? (size_t)t->request->size : 1);
}

static size_t stage_at(const state_t *s, int c, int piece)
{
    return stage_width(&s->t) *
           ((size_t)(c % TT_STAGE_SLOTS) * (size_t)s->pieces_max + (size_t)piece);
}

/* ---- who adds up what ---- */

static void fill_host_sum(const state_t *s, const tt_plan_term_t *all, int count, int host)
{
    host_sum_t *sum = &s->hosts[host];
    for (int i = 0; i < count; i++) {
        if (tt_two_level_host(&s->t, all[i].source.rank) == host) {
            sum->terms[sum->count++] = all[i];
        }
    }
    sum->groups = tt_plan_group_terms(s->t.plan->leaves, sum->terms, sum->count, sum->ends);
}

static void close_state(state_t *s)
{
    for (int host = 0; s->hosts != NULL && host < s->t.host_count; host++) {
        tt_free(s->hosts[host].terms);
        tt_free(s->hosts[host].ends);
    }
    tt_free(s->hosts);
    tt_two_level_close(&s->t);
}

static bool open_hosts(state_t *s, const tt_plan_request_t *request)
{
    int count;
    tt_plan_term_t *all = tt_plan_terms(s->t.plan, request, 0, request->size, &count);
    s->hosts = tt_alloc_array((size_t)s->t.host_count, sizeof *s->hosts, "hosts");
    bool has_all = all != NULL && s->hosts != NULL;
    for (int host = 0; has_all && host < s->t.host_count; host++) {
        host_sum_t *sum = &s->hosts[host];
        sum->terms = tt_alloc_array((size_t)count, sizeof *sum->terms, "terms of a plan");
        sum->ends = tt_alloc_array((size_t)count, sizeof *sum->ends, "terms of a plan");
        has_all = sum->terms != NULL && sum->ends != NULL;
        if (has_all) {
            fill_host_sum(s, all, count, host);
        }
    }
    tt_free(all);
    s->t.plan->status = has_all ? s->t.plan->status : TUTTI_ERR_NOMEM;
    return has_all;
}

static bool is_helper(const state_t *s, int owner)
{
    const int rank = s->t.plan->rank, host = tt_two_level_host(&s->t, rank);
    return tt_two_level_host(&s->t, owner) != host &&
           tt_two_level_helper(&s->t, host, owner) == rank;
}

/* Where in a slot of the sum buffer my host's nodes of the slice of `owner` begin; with -1, the end
 * of all of them. They lie one after the other, my own slice's first. */
static size_t nodes_at(const state_t *s, int c, int owner)
{
    const tt_plan_t *plan = s->t.plan;
    const size_t groups = (size_t)s->hosts[tt_two_level_host(&s->t, plan->rank)].groups;
    size_t at = 0, within;
    if (owner == plan->rank) {
        return 0;
    }
    at += groups * owned(&s->t, c, plan->rank, &within).count;
    for (int other = 0; other != owner && other < plan->size; other++) {
        at += is_helper(s, other) ? groups * owned(&s->t, c, other, &within).count : 0;
    }
    return at;
}

static size_t slot_at(const state_t *s, int c)
{
    return s->sum_slot * (size_t)(c % SUM_SLOTS);
}

/* ---- the phases ---- */

static void copy_in(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    const tt_slice_t chunk = tt_chunk(s->t.length, s->t.chunk, c);
    for (int i = 0; i < plan->pieces_of[plan->rank]; i++) {
        for (int owner = 0; owner < (is_scatter(s->t.request) ? plan->size : 1); owner++) {
            size_t within = 0;
            const tt_slice_t part =
                is_scatter(s->t.request) ? owned(&s->t, c, owner, &within) : chunk;
            tt_plan_copy(plan, c, tt_piece_at(i, part.begin),
                         tt_part_at(TT_BUFFER_STAGE, stage_at(s, c, i) + within), part.count);
        }
    }
}

/* My host's nodes of the slice of `owner`, into the sum buffer. */
static void add_nodes(const state_t *s, int c, int owner)
{
    tt_plan_t *plan = s->t.plan;
    const host_sum_t *host = &s->hosts[tt_two_level_host(&s->t, plan->rank)];
    size_t within;
    const tt_slice_t slice = owned(&s->t, c, owner, &within);
    if (slice.count == 0) {
        return;
    }
    for (int i = 0; i < host->count; i++) {
        tt_source_t *source = &host->terms[i].source;
        const int piece = source->part.index;
        source->part = s->t.request->is_staged && source->rank != plan->rank
                           ? (tt_part_t){TT_BUFFER_STAGE, piece, stage_at(s, c, piece) + within}
                           : tt_piece_at(piece, slice.begin);
    }
    size_t at = slot_at(s, c) + nodes_at(s, c, owner);
    for (int g = 0; g < host->groups; g++, at += slice.count) {
        const int begin = g > 0 ? host->ends[g - 1] : 0;
        const int sum = tt_plan_add_sum(plan, host->terms + begin, host->ends[g] - begin, true);
        tt_plan_reduce(plan, c + s->first_phase + PHASE_ADD, sum, tt_part_at(TT_BUFFER_SUM, at),
                       slice.count);
    }
}

static void send_nodes(const state_t *s, int c, int owner)
{
    tt_plan_t *plan = s->t.plan;
    size_t within, at = slot_at(s, c) + nodes_at(s, c, owner);
    const size_t count = owned(&s->t, c, owner, &within).count;
    for (int g = 0; g < s->hosts[tt_two_level_host(&s->t, plan->rank)].groups; g++, at += count) {
        tt_plan_send(plan, c + s->first_phase + PHASE_SEND, owner, tt_part_at(TT_BUFFER_SUM, at),
                     count);
    }
}

static int compare_terms(const void *a, const void *b)
{
    const tt_plan_term_t *left = a, *right = b;
    return left->leaves.begin < right->leaves.begin ? -1 : 1;
}

static tt_leaves_t group_span(const host_sum_t *host, int g)
{
    const int begin = g > 0 ? host->ends[g - 1] : 0;
    return (tt_leaves_t){host->terms[begin].leaves.begin,
                         host->terms[host->ends[g] - 1].leaves.end};
}

/* Receives the nodes of the other hosts; all nodes of my slice as terms. Returns how many. */
static int collect_nodes(const state_t *s, int c, tt_plan_term_t *terms)
{
    tt_plan_t *plan = s->t.plan;
    const int mine = tt_two_level_host(&s->t, plan->rank);
    size_t within, own_at = slot_at(s, c), at = own_at + nodes_at(s, c, -1);
    const size_t count = owned(&s->t, c, plan->rank, &within).count;
    int term_count = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        const int helper = tt_two_level_helper(&s->t, host, plan->rank);
        for (int g = 0; g < s->hosts[host].groups; g++) {
            size_t *where = host == mine ? &own_at : &at;
            const tt_part_t part = tt_part_at(TT_BUFFER_SUM, *where);
            if (host != mine) {
                tt_plan_recv(plan, c + s->first_phase + PHASE_SEND, helper, part, count);
            }
            terms[term_count++] =
                (tt_plan_term_t){group_span(&s->hosts[host], g), {plan->rank, part}};
            *where += count;
        }
    }
    return term_count;
}

/* The result of a slice, where mates see it. */
static tt_part_t result_at(const state_t *s, int c, tt_slice_t slice, size_t within)
{
    return s->t.request->is_staged
               ? tt_part_at(TT_BUFFER_STAGE_OUT,
                            (size_t)(c % TT_STAGE_OUT_SLOTS) * s->t.chunk + within)
               : tt_part_at(TT_BUFFER_OUT, slice.begin);
}

static void finish_slice(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    size_t within;
    const tt_slice_t slice = owned(&s->t, c, plan->rank, &within);
    int groups = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        groups += s->hosts[host].groups;
    }
    tt_plan_term_t *terms = tt_alloc_array((size_t)groups, sizeof *terms, "terms of a plan");
    if (terms == NULL || slice.count == 0) {
        plan->status = terms == NULL ? TUTTI_ERR_NOMEM : plan->status;
        tt_free(terms);
        return;
    }
    const int count = collect_nodes(s, c, terms);
    qsort(terms, (size_t)count, sizeof *terms, compare_terms);
    const tt_slice_t part = tt_plan_part(s->t.request, plan->rank);
    const bool is_mine = is_scatter(s->t.request);
    tt_plan_add(plan,
                (tt_step_t){.kind = TT_STEP_REDUCE,
                            .round = c + s->first_phase + PHASE_FINISH,
                            .dst = is_mine ? tt_part_at(TT_BUFFER_OUT, slice.begin - part.begin)
                                           : result_at(s, c, slice, within),
                            .count = slice.count,
                            .sum = tt_plan_add_sum(plan, terms, count, false),
                            .to = is_mine ? TT_TO_ME : TT_TO_MATES});
    tt_free(terms);
}

static void return_slices(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    const int round = c + s->first_phase + PHASE_RETURN;
    size_t within;
    for (int host = 0; host < s->t.host_count; host++) {
        const tt_slice_t slice = owned(&s->t, c, plan->rank, &within);
        if (host != tt_two_level_host(&s->t, plan->rank)) {
            tt_plan_send(plan, round, tt_two_level_helper(&s->t, host, plan->rank),
                         result_at(s, c, slice, within), slice.count);
        }
    }
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t slice = owned(&s->t, c, owner, &within);
        if (is_helper(s, owner)) {
            tt_plan_recv(plan, round, owner, result_at(s, c, slice, within), slice.count);
        }
    }
}

static void take_slices(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    const int host = tt_two_level_host(&s->t, plan->rank);
    const int round = c + s->first_phase + PHASE_TAKE;
    for (int owner = 0; owner < plan->size; owner++) {
        size_t within;
        const tt_slice_t slice = owned(&s->t, c, owner, &within);
        const bool is_here = tt_two_level_host(&s->t, owner) == host || is_helper(s, owner);
        const tt_part_t src = result_at(s, c, slice, within);
        const tt_part_t dst = tt_part_at(TT_BUFFER_OUT, slice.begin);
        if (!is_here) {
            const tt_source_t theirs = {tt_two_level_helper(&s->t, host, owner), src};
            tt_plan_pull(plan, round, theirs, dst, slice.count);
        } else if (s->t.request->is_staged) {
            tt_plan_copy(plan, round, src, dst, slice.count);
        }
    }
}

static void plan_chunk(const state_t *s, int c)
{
    if (s->t.request->is_staged) {
        copy_in(s, c);
    }
    add_nodes(s, c, s->t.plan->rank);
    for (int owner = 0; owner < s->t.plan->size; owner++) {
        if (is_helper(s, owner)) {
            add_nodes(s, c, owner);
        }
    }
    if (c > 1 && !is_scatter(s->t.request)) {
        return_slices(s,
                      c - 2); /* in the round in which chunk c's nodes travel: older goes first */
    }
    for (int owner = 0; owner < s->t.plan->size; owner++) {
        if (is_helper(s, owner)) {
            send_nodes(s, c, owner);
        }
    }
    finish_slice(s, c);
    if (!is_scatter(s->t.request)) {
        take_slices(s, c);
    }
}

/* Elements of the sum buffer that a chunk needs. */
static size_t nodes_of_chunk(const state_t *s, int c)
{
    size_t within;
    int groups = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        groups += host != tt_two_level_host(&s->t, s->t.plan->rank) ? s->hosts[host].groups : 0;
    }
    return nodes_at(s, c, -1) + (size_t)groups * owned(&s->t, c, s->t.plan->rank, &within).count;
}

/* The last chunk is the only one of another length, and may be cut such that its last slices are
 * longer. */
static size_t sum_slot_of(const state_t *s)
{
    const size_t first = nodes_of_chunk(s, 0);
    const size_t last = s->t.chunks > 0 ? nodes_of_chunk(s, s->t.chunks - 1) : 0;
    return first > last ? first : last;
}

/* Where every host has one rank, nothing is left to take. */
static int last_phase(const tt_two_level_t *t)
{
    if (is_scatter(t->request)) {
        return PHASE_FINISH;
    }
    return t->request->is_staged || t->host_count < t->request->size ? PHASE_TAKE : PHASE_RETURN;
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    state_t s = {.pieces_max = plan->pieces_of_rank_max, .first_phase = request->is_staged ? 2 : 0};
    if (tt_two_level_open(&s.t, plan, request, length_of(request), chunk_of(request)) &&
        open_hosts(&s, request)) {
        const int end = s.t.chunks + s.first_phase + last_phase(&s.t) - 1;
        s.sum_slot = sum_slot_of(&s);
        tt_plan_reserve(plan, TT_BUFFER_SUM, s.sum_slot * SUM_SLOTS);
        if (request->is_staged) {
            tt_plan_reserve(plan, TT_BUFFER_STAGE,
                            stage_width(&s.t) * (size_t)s.pieces_max * TT_STAGE_SLOTS);
            tt_plan_reserve(plan, TT_BUFFER_STAGE_OUT,
                            is_scatter(request) ? 0 : s.t.chunk * TT_STAGE_OUT_SLOTS);
        }
        if (s.t.chunks > 0 && (request->is_staged || last_phase(&s.t) == PHASE_TAKE)) {
            tt_two_level_meet(&s.t, request->is_staged ? 1 : PHASE_MEET, end);
        }
        for (int c = 0; c < s.t.chunks; c++) {
            plan_chunk(&s, c);
        }
        for (int c = s.t.chunks > 2 ? s.t.chunks - 2 : 0; c < s.t.chunks; c++) {
            if (!is_scatter(request)) {
                return_slices(&s, c);
            }
        }
    }
    close_state(&s);
}

static void plan_two_level(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    } else {
        tt_two_level_plan_moves(plan, request);
    }
}

static bool fits_two_level(const tt_plan_request_t *request)
{
    return tt_plan_host_count(request) > 1 && request->collective <= TT_BARRIER;
}

/* Nodes that a host's pieces add up to, and its pieces. */
static int count_nodes(const tt_plan_request_t *request, int host, int *pieces)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    const int count = tt_plan_piece_terms(request, 0, request->size, TT_BUFFER_PIECE, 0, NULL);
    tt_plan_term_t *terms = tt_alloc_array((size_t)count, sizeof *terms, "terms of a plan");
    int *ends = tt_alloc_array((size_t)count, sizeof *ends, "terms of a plan");
    int groups = 0;
    *pieces = 0;
    if (terms != NULL && ends != NULL) {
        tt_plan_piece_terms(request, 0, request->size, TT_BUFFER_PIECE, 0, terms);
        for (int i = 0; i < count; i++) {
            if (tt_plan_host(request, terms[i].source.rank) == host) {
                terms[(*pieces)++] = terms[i];
            }
        }
        groups = tt_plan_group_terms(leaves, terms, *pieces, ends);
    }
    tt_free(terms);
    tt_free(ends);
    return groups;
}

static size_t owned_by(const tt_two_level_t *t, int rank)
{
    size_t sum = 0, within;
    for (int c = 0; c < t->chunks; c++) {
        sum += owned(t, c, rank, &within).count;
    }
    return sum;
}

static tt_plan_cost_t cost_of_rank(const tt_two_level_t *t, int rank)
{
    const int host = tt_two_level_host(t, rank);
    int pieces;
    const size_t nodes = (size_t)count_nodes(t->request, host, &pieces);
    size_t helped = 0, foreign = 0;
    for (int owner = 0; owner < t->request->size; owner++) {
        const bool is_away = tt_two_level_host(t, owner) != host;
        const bool is_mine = is_away && tt_two_level_helper(t, host, owner) == rank;
        helped += is_mine ? owned_by(t, owner) : 0;
        foreign += is_away && !is_mine ? owned_by(t, owner) : 0;
    }
    const size_t own = owned_by(t, rank);
    const size_t others = (size_t)(pieces - tt_plan_pieces_of(t->request, rank));
    const bool is_returned = !is_scatter(t->request);
    return (tt_plan_cost_t){.sent = nodes * helped +
                                    (is_returned ? own * (size_t)(t->host_count - 1) : 0),
                            .read = others * (own + helped) + (is_returned ? foreign : 0)};
}

static tt_plan_cost_t cost_two_level(const tt_plan_request_t *request)
{
    if (!tt_collective_reduces(request->collective)) {
        return tt_two_level_moves_cost(request);
    }
    tt_two_level_t t;
    tt_plan_cost_t cost = {0};
    if (!tt_two_level_open(&t, NULL, request, length_of(request), chunk_of(request))) {
        return cost;
    }
    cost.rounds = t.chunks > 0 ? t.chunks + (request->is_staged ? 2 : 0) + last_phase(&t) : 0;
    for (int rank = 0; rank < request->size; rank++) {
        const tt_plan_cost_t one = cost_of_rank(&t, rank);
        cost.sent = one.sent > cost.sent ? one.sent : cost.sent;
        cost.read = one.read > cost.read ? one.read : cost.read;
    }
    tt_two_level_close(&t);
    return cost;
}

const tt_algorithm_t tt_algorithm_two_level = {
    .name = "two_level",
    .about = "shared memory inside each host, wires between hosts, driven by all ranks",
    .source = "Tutti; after Luo et al., Cluster 2020",
    .is_canonical = true,
    .shares_memory = true,
    .fits = fits_two_level,
    .plan = plan_two_level,
    .cost = cost_two_level,
};
