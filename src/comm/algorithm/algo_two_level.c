/* two_level: shared memory inside each host, wires between hosts; all ranks of a host drive the
 * network at once. Any number of ranks on each host, numbered in any way; any leaf map.
 *
 * Of an all_reduce each rank owns a slice. For the slice of `owner`, every host has one rank who
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

/* What a host adds up: its pieces, and the groups of them that are nodes. */
typedef struct {
    tt_plan_term_t *terms;
    int *ends; /* [groups] */
    int count, groups;
} host_sum_t;

/* Sums: those of my host's nodes, one after the other, then that of a whole slice. */
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

/* What `owner` owns of a chunk: as offsets into the pieces, and (in a bounce buffer) into the
 * chunk. */
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

/* Elements of a bounce buffer's slot that one piece takes. */
static size_t stage_width(const tt_two_level_t *t)
{
    return t->chunk * (is_scatter(t->request) ? (size_t)t->request->size : 1);
}

/* Where in a bounce buffer the slot of a chunk begins. */
static size_t bounce_at(const state_t *s, int c)
{
    return stage_width(&s->t) * (size_t)(c % TT_BOUNCE_SLOTS) * (size_t)s->pieces_max;
}

/* ---- who adds up what ---- */

/* Only how many groups there are is needed once the sums are made. */
static void drop_terms(const state_t *s)
{
    for (int host = 0; s->hosts != NULL && host < s->t.host_count; host++) {
        tt_free(s->hosts[host].terms);
        tt_free(s->hosts[host].ends);
        s->hosts[host].terms = NULL;
        s->hosts[host].ends = NULL;
    }
}

static void close_state(void *state)
{
    state_t *s = state;
    drop_terms(s);
    tt_free(s->hosts);
    tt_two_level_close(&s->t);
}

/* Room for every host's terms; `terms` are those of all. */
static bool open_terms(state_t *s, const tt_plan_term_t *terms, int count)
{
    for (int i = 0; i < count; i++) {
        s->hosts[tt_two_level_host(&s->t, terms[i].source.rank)].count++;
    }
    for (int host = 0; host < s->t.host_count; host++) {
        host_sum_t *sum = &s->hosts[host];
        sum->terms = tt_alloc_array((size_t)sum->count, sizeof *sum->terms, "terms of a plan");
        sum->ends = tt_alloc_array((size_t)sum->count, sizeof *sum->ends, "terms of a plan");
        if (sum->terms == NULL || sum->ends == NULL) {
            return false;
        }
        sum->count = 0;
    }
    for (int i = 0; i < count; i++) {
        host_sum_t *sum = &s->hosts[tt_two_level_host(&s->t, terms[i].source.rank)];
        sum->terms[sum->count++] = terms[i];
    }
    return true;
}

static bool open_hosts(state_t *s, const tt_plan_request_t *request)
{
    int count;
    tt_plan_term_t *all = tt_plan_terms(s->t.plan, request, 0, request->size, &count);
    s->hosts = tt_alloc_array((size_t)s->t.host_count, sizeof *s->hosts, "hosts");
    const bool has_all = all != NULL && s->hosts != NULL && open_terms(s, all, count);
    for (int host = 0; has_all && host < s->t.host_count; host++) {
        host_sum_t *sum = &s->hosts[host];
        sum->groups = tt_plan_group_terms(s->t.plan->leaves, sum->terms, sum->count, sum->ends);
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

/* The last chunk is the only one of another length, and may be cut such that its last slices are
 * longer. */
static size_t longest_owned(const tt_two_level_t *t, int owner)
{
    size_t within;
    const size_t first = owned(t, 0, owner, &within).count;
    const size_t last = t->chunks > 0 ? owned(t, t->chunks - 1, owner, &within).count : 0;
    return first > last ? first : last;
}

static int groups_of_mine(const state_t *s)
{
    return s->hosts[tt_two_level_host(&s->t, s->t.plan->rank)].groups;
}

/* A slot of the sum buffer has my host's nodes of my own slice, then of each slice that I help
 * with, in order of owners; then the other hosts' nodes of my slice. */
static size_t nodes_of(const state_t *s, int owner)
{
    return (size_t)groups_of_mine(s) * longest_owned(&s->t, owner);
}

static size_t received_at(const state_t *s)
{
    size_t at = nodes_of(s, s->t.plan->rank);
    for (int owner = 0; owner < s->t.plan->size; owner++) {
        at += is_helper(s, owner) ? nodes_of(s, owner) : 0;
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
                         tt_part_at(TT_BUFFER_BOUNCE,
                                    bounce_at(s, c) + stage_width(&s->t) * (size_t)i + within),
                         part.count);
        }
    }
}

/* My host's nodes of the slice of `owner`, into the sum buffer. */
static void add_nodes(const state_t *s, int c, int owner, size_t at)
{
    size_t within;
    const tt_slice_t slice = owned(&s->t, c, owner, &within);
    for (int g = 0; g < groups_of_mine(s); g++, at += longest_owned(&s->t, owner)) {
        const tt_sum_at_t sum = {g, slice.begin, bounce_at(s, c) + within};
        tt_plan_reduce_at(s->t.plan, c + s->first_phase + PHASE_ADD, sum,
                          tt_part_at(TT_BUFFER_SUM, at), slice.count);
    }
}

static void add_all_nodes(const state_t *s, int c)
{
    const int rank = s->t.plan->rank;
    size_t at = slot_at(s, c);
    add_nodes(s, c, rank, at);
    at += nodes_of(s, rank);
    for (int owner = 0; owner < s->t.plan->size; owner++) {
        if (is_helper(s, owner)) {
            add_nodes(s, c, owner, at);
            at += nodes_of(s, owner);
        }
    }
}

static void send_nodes(const state_t *s, int c, int owner, size_t at)
{
    size_t within;
    const size_t count = owned(&s->t, c, owner, &within).count;
    for (int g = 0; g < groups_of_mine(s); g++, at += longest_owned(&s->t, owner)) {
        tt_plan_send(s->t.plan, c + s->first_phase + PHASE_SEND, owner,
                     tt_part_at(TT_BUFFER_SUM, at), count);
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

/* The nodes of the other hosts, behind my host's. */
static void recv_nodes(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    size_t within, at = slot_at(s, c) + received_at(s);
    const size_t count = owned(&s->t, c, plan->rank, &within).count;
    for (int host = 0; host < s->t.host_count; host++) {
        const int helper = tt_two_level_helper(&s->t, host, plan->rank);
        const bool is_mine = host == tt_two_level_host(&s->t, plan->rank);
        for (int g = 0; !is_mine && g < s->hosts[host].groups; g++) {
            tt_plan_recv(plan, c + s->first_phase + PHASE_SEND, helper,
                         tt_part_at(TT_BUFFER_SUM, at), count);
            at += longest_owned(&s->t, plan->rank);
        }
    }
}

/* ---- sums ---- */

static void make_node_sums(const state_t *s)
{
    tt_plan_t *plan = s->t.plan;
    const host_sum_t *host = &s->hosts[tt_two_level_host(&s->t, plan->rank)];
    for (int i = 0; i < host->count; i++) {
        tt_source_t *source = &host->terms[i].source;
        const size_t piece = (size_t)source->part.index;
        if (s->t.request->is_staged && source->rank != plan->rank) {
            source->part = tt_part_at(TT_BUFFER_BOUNCE, stage_width(&s->t) * piece);
        }
    }
    for (int g = 0; g < host->groups; g++) {
        const int begin = g > 0 ? host->ends[g - 1] : 0;
        tt_plan_add_sum(plan, host->terms + begin, host->ends[g] - begin, true);
    }
}

/* All nodes of my slice, in the first slot of the sum buffer. */
static void make_slice_sum(const state_t *s, tt_plan_term_t *terms)
{
    tt_plan_t *plan = s->t.plan;
    const size_t stride = longest_owned(&s->t, plan->rank);
    size_t own_at = 0, at = received_at(s);
    int count = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        size_t *where = host == tt_two_level_host(&s->t, plan->rank) ? &own_at : &at;
        for (int g = 0; g < s->hosts[host].groups; g++, *where += stride) {
            terms[count++] = (tt_plan_term_t){group_span(&s->hosts[host], g),
                                              {plan->rank, tt_part_at(TT_BUFFER_SUM, *where)}};
        }
    }
    qsort(terms, (size_t)count, sizeof *terms, compare_terms);
    tt_plan_add_sum(plan, terms, count, false);
}

static void make_sums(const state_t *s)
{
    int groups = 0;
    for (int host = 0; host < s->t.host_count; host++) {
        groups += s->hosts[host].groups;
    }
    tt_plan_term_t *terms = tt_alloc_array((size_t)groups, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        s->t.plan->status = TUTTI_ERR_NOMEM;
        return;
    }
    make_node_sums(s);
    make_slice_sum(s, terms);
    tt_free(terms);
}

/* ---- the other phases ---- */

/* The result of a slice, where local ranks see it. */
static tt_part_t result_at(const state_t *s, int c, tt_slice_t slice, size_t within)
{
    return s->t.request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT,
                            (size_t)(c % TT_BOUNCE_OUT_SLOTS) * s->t.chunk + within)
               : tt_part_at(TT_BUFFER_OUT, slice.begin);
}

static void finish_slice(const state_t *s, int c)
{
    tt_plan_t *plan = s->t.plan;
    size_t within;
    const tt_slice_t slice = owned(&s->t, c, plan->rank, &within);
    const tt_slice_t part = tt_plan_part(s->t.request, plan->rank);
    const bool is_mine = is_scatter(s->t.request);
    tt_plan_add(plan,
                (tt_step_t){.kind = TT_STEP_REDUCE,
                            .round = c + s->first_phase + PHASE_FINISH,
                            .dst = is_mine ? tt_part_at(TT_BUFFER_OUT, slice.begin - part.begin)
                                           : result_at(s, c, slice, within),
                            .count = slice.count,
                            .sum = groups_of_mine(s),
                            .shift = slot_at(s, c),
                            .to = is_mine ? TT_TO_ME : TT_TO_LOCAL_RANKS});
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
            tt_plan_get(plan, round, theirs, dst, slice.count);
        } else if (s->t.request->is_staged) {
            tt_plan_copy(plan, round, src, dst, slice.count);
        }
    }
}

static void exchange_nodes(const state_t *s, int c)
{
    size_t at = slot_at(s, c) + nodes_of(s, s->t.plan->rank);
    for (int owner = 0; owner < s->t.plan->size; owner++) {
        if (is_helper(s, owner)) {
            send_nodes(s, c, owner, at);
            at += nodes_of(s, owner);
        }
    }
    recv_nodes(s, c);
}

static void add_reduction(const state_t *s, tt_plan_at_t at)
{
    if (at.phase == 0 && s->t.request->is_staged) {
        copy_in(s, at.chunk);
        return;
    }
    switch (at.phase - s->first_phase) {
    case PHASE_ADD:
        add_all_nodes(s, at.chunk);
        break;
    case PHASE_SEND:
        exchange_nodes(s, at.chunk);
        break;
    case PHASE_FINISH:
        finish_slice(s, at.chunk);
        break;
    case PHASE_RETURN:
        return_slices(s, at.chunk);
        break;
    case PHASE_TAKE:
        take_slices(s, at.chunk);
        break;
    default:
        break;
    }
}

/* Where every host has one rank, nothing is left to take. */
static int last_phase(const tt_two_level_t *t)
{
    if (is_scatter(t->request)) {
        return PHASE_FINISH;
    }
    return t->request->is_staged || t->host_count < t->request->size ? PHASE_TAKE : PHASE_RETURN;
}

static void reserve(state_t *s)
{
    tt_plan_t *plan = s->t.plan;
    int groups = -groups_of_mine(s);
    for (int host = 0; host < s->t.host_count; host++) {
        groups += s->hosts[host].groups;
    }
    s->sum_slot = received_at(s) + (size_t)groups * longest_owned(&s->t, plan->rank);
    tt_plan_reserve(plan, TT_BUFFER_SUM, s->sum_slot * SUM_SLOTS);
    if (s->t.request->is_staged) {
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE,
                        stage_width(&s->t) * (size_t)s->pieces_max * TT_BOUNCE_SLOTS);
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE_OUT,
                        is_scatter(s->t.request) ? 0 : s->t.chunk * TT_BOUNCE_OUT_SLOTS);
    }
}

static void plan_reduction(tt_plan_t *plan, const tt_plan_request_t *request)
{
    state_t *s = plan->state;
    s->pieces_max = plan->pieces_of_rank_max;
    s->first_phase = request->is_staged ? 2 : 0;
    if (!tt_two_level_open(&s->t, plan, length_of(request), chunk_of(request)) ||
        !open_hosts(s, request)) {
        return;
    }
    const int last = s->first_phase + last_phase(&s->t);
    reserve(s);
    make_sums(s);
    drop_terms(s);
    if (s->t.chunks > 0 && (request->is_staged || last == PHASE_TAKE)) {
        const int begin = request->is_staged ? 1 : PHASE_MEET;
        tt_two_level_barrier(&s->t, begin, s->t.chunks + last - 1);
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = s->t.chunks, .stride = 1, .last = last});
}

static void plan_two_level(tt_plan_t *plan, const tt_plan_request_t *request)
{
    if (tt_collective_reduces(plan->collective)) {
        plan_reduction(plan, request);
    } else {
        tt_two_level_plan_moves(plan, plan->state);
    }
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    state_t s = *(const state_t *)plan->state;
    s.t.plan = plan;
    if (tt_collective_reduces(request->collective)) {
        add_reduction(&s, at);
    } else {
        tt_two_level_add_moves(&s.t, at);
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

/* All slices of a rank together: of whole chunks, and of the last one; or its part. */
static size_t owned_by(const tt_two_level_t *t, int rank)
{
    size_t within;
    if (t->chunks == 0 || is_scatter(t->request)) {
        return is_scatter(t->request) ? tt_plan_part(t->request, rank).count : 0;
    }
    return owned(t, 0, rank, &within).count * (size_t)(t->chunks - 1) +
           owned(t, t->chunks - 1, rank, &within).count;
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
    if (!tt_two_level_open_for(&t, request, length_of(request), chunk_of(request))) {
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
    .phase = add_phase,
    .state_bytes = sizeof(state_t),
    .close = close_state,
    .cost = cost_two_level,
};
