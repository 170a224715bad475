/* two_level without adding up.
 *
 *     all_gather   each rank sends its piece to one rank of each other host (its helper there),
 *                  whose local ranks copy it out of the helper's memory two rounds later; pieces of
 *                  local ranks are copied directly
 *     broadcast    the root's local ranks copy the vector; together they send it to each other
 *                  host, to whose n-th rank its n-th slice goes; local ranks copy the slices from
 *                  each other
 *     barrier      the first rank of each host tells the others in a dissemination; then the ranks
 *                  of each host have a barrier
 *
 * Chunk c begins in round c. With bounce buffers, local ranks look into bounce buffers for pieces
 * and into bounce_outs for what was received, and everyone copies what it received itself.
 */
#include "comm/algorithm/two_level.h"

/* With bounce buffers or without: hosts that differ in that exchange the same messages. */
enum { CHUNK = 64 << 10, LAG = 2 };

static size_t length_of(const tt_plan_request_t *request)
{
    return request->collective == TT_ALL_GATHER ? tt_plan_part_max(request) : request->count;
}

static size_t chunk_of(const tt_plan_request_t *request)
{
    const size_t part = CHUNK / (size_t)request->size;
    return request->collective == TT_BROADCAST ? CHUNK : part > 64 ? part : 64;
}

/* ---- all_gather ---- */

/* Where a helper keeps what `owner` sent of chunk c. */
static tt_part_t received_at(const tt_two_level_t *t, int c, int owner, size_t begin)
{
    const size_t slot = (size_t)(c % TT_BOUNCE_OUT_SLOTS) * (size_t)t->request->size;
    return t->request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT, (slot + (size_t)owner) * t->chunk)
               : tt_part_at(TT_BUFFER_OUT, begin);
}

static void gather_send(const tt_two_level_t *t, int c)
{
    tt_plan_t *plan = t->plan;
    const int mine = tt_two_level_host(t, plan->rank);
    const tt_slice_t chunk = tt_chunk(tt_plan_part(t->request, plan->rank).count, t->chunk, c);
    if (t->request->is_staged) {
        const size_t bounce = (size_t)(c % TT_BOUNCE_SLOTS) * t->chunk;
        tt_plan_copy(plan, c, tt_piece_at(0, chunk.begin), tt_part_at(TT_BUFFER_BOUNCE, bounce),
                     chunk.count);
    }
    for (int host = 0; host < t->host_count; host++) {
        if (host != mine) {
            tt_plan_send(plan, c, tt_two_level_helper(t, host, plan->rank),
                         tt_piece_at(0, chunk.begin), chunk.count);
        }
    }
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t part = tt_plan_part(t->request, owner);
        const tt_slice_t theirs = tt_chunk(part.count, t->chunk, c);
        if (tt_two_level_host(t, owner) != mine &&
            tt_two_level_helper(t, mine, owner) == plan->rank) {
            tt_plan_recv(plan, c, owner, received_at(t, c, owner, part.begin + theirs.begin),
                         theirs.count);
        }
    }
}

static void gather_take(const tt_two_level_t *t, int c)
{
    tt_plan_t *plan = t->plan;
    const int mine = tt_two_level_host(t, plan->rank);
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t part = tt_plan_part(t->request, owner);
        const tt_slice_t chunk = tt_chunk(part.count, t->chunk, c);
        const tt_part_t dst = tt_part_at(TT_BUFFER_OUT, part.begin + chunk.begin);
        const tt_part_t received = received_at(t, c, owner, part.begin + chunk.begin);
        const int helper = tt_two_level_helper(t, mine, owner);
        if (owner == plan->rank) {
            tt_plan_copy(plan, c + LAG, tt_piece_at(0, chunk.begin), dst, chunk.count);
        } else if (tt_two_level_host(t, owner) == mine) {
            const size_t bounce = (size_t)(c % TT_BOUNCE_SLOTS) * t->chunk;
            const tt_part_t src = t->request->is_staged ? tt_part_at(TT_BUFFER_BOUNCE, bounce)
                                                        : tt_piece_at(0, chunk.begin);
            tt_plan_get(plan, c + LAG, (tt_source_t){owner, src}, dst, chunk.count);
        } else if (helper != plan->rank) {
            tt_plan_get(plan, c + LAG, (tt_source_t){helper, received}, dst, chunk.count);
        } else if (t->request->is_staged) {
            tt_plan_copy(plan, c + LAG, received, dst, chunk.count);
        }
    }
}

/* ---- broadcast ---- */

static int root_host(const tt_two_level_t *t)
{
    return tt_two_level_host(t, t->request->root);
}

/* The slice of a chunk that rank number `index` of a host receives. */
static tt_slice_t share(const tt_two_level_t *t, int host, int index, int c)
{
    const tt_slice_t chunk = tt_chunk(t->length, t->chunk, c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, tt_two_level_local_ranks(t, host), index);
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* Who of the root's host sends to rank number `index` of another one. */
static int sender_to(const tt_two_level_t *t, int index)
{
    return tt_two_level_helper(t, root_host(t), index);
}

static tt_part_t share_at(const tt_two_level_t *t, int c, tt_slice_t slice)
{
    const size_t within = slice.begin - tt_chunk(t->length, t->chunk, c).begin;
    return t->request->is_staged ? tt_part_at(TT_BUFFER_BOUNCE_OUT,
                                              (size_t)(c % TT_BOUNCE_OUT_SLOTS) * t->chunk + within)
                                 : tt_part_at(TT_BUFFER_OUT, slice.begin);
}

/* In which round, after that of its chunk, the root's local ranks have the vector. */
static int lead(const tt_plan_request_t *request)
{
    return request->is_staged ? LAG : 0;
}

/* The root's host has the vector. */
static void broadcast_inside(const tt_two_level_t *t, int c)
{
    tt_plan_t *plan = t->plan;
    const tt_slice_t chunk = tt_chunk(t->length, t->chunk, c);
    const tt_part_t bounce = tt_part_at(TT_BUFFER_BOUNCE, (size_t)(c % TT_BOUNCE_SLOTS) * t->chunk);
    const tt_part_t out = tt_part_at(TT_BUFFER_OUT, chunk.begin);
    const tt_part_t piece = tt_piece_at(0, chunk.begin);
    const int round = c + lead(t->request);
    if (plan->rank != plan->root) {
        const tt_part_t src = t->request->is_staged ? bounce : piece;
        tt_plan_get(plan, round, (tt_source_t){plan->root, src}, out, chunk.count);
    } else {
        tt_plan_copy(plan, round, piece, out, chunk.count);
    }
}

static void broadcast_outside(const tt_two_level_t *t, tt_plan_at_t at)
{
    for (int host = 0; host < t->host_count; host++) {
        for (int i = 0; host != root_host(t) && i < tt_two_level_local_ranks(t, host); i++) {
            const tt_slice_t slice = share(t, host, i, at.chunk);
            if (sender_to(t, i) == t->plan->rank) {
                tt_plan_send(t->plan, at.round, t->ranks[t->begins[host] + i],
                             tt_part_at(TT_BUFFER_OUT, slice.begin), slice.count);
            }
        }
    }
}

static void broadcast_from_root(const tt_two_level_t *t, tt_plan_at_t at)
{
    const tt_slice_t chunk = tt_chunk(t->length, t->chunk, at.chunk);
    const size_t bounce = (size_t)(at.chunk % TT_BOUNCE_SLOTS) * t->chunk;
    if (at.phase == 0 && t->request->is_staged && t->plan->rank == t->plan->root) {
        tt_plan_copy(t->plan, at.round, tt_piece_at(0, chunk.begin),
                     tt_part_at(TT_BUFFER_BOUNCE, bounce), chunk.count);
    } else if (at.phase == lead(t->request)) {
        broadcast_inside(t, at.chunk);
    } else if (at.phase == lead(t->request) + 1) {
        broadcast_outside(t, at);
    }
}

static void broadcast_elsewhere(const tt_two_level_t *t, tt_plan_at_t now)
{
    tt_plan_t *plan = t->plan;
    const int host = tt_two_level_host(t, plan->rank), receive = lead(t->request) + 1;
    for (int i = 0; i < tt_two_level_local_ranks(t, host); i++) {
        const int node_peer = t->ranks[t->begins[host] + i];
        const tt_slice_t slice = share(t, host, i, now.chunk);
        const tt_part_t at = share_at(t, now.chunk, slice);
        const tt_part_t dst = tt_part_at(TT_BUFFER_OUT, slice.begin);
        if (now.phase == receive && node_peer == plan->rank) {
            tt_plan_recv(plan, now.round, sender_to(t, i), at, slice.count);
        } else if (now.phase == receive + LAG && node_peer != plan->rank) {
            tt_plan_get(plan, now.round, (tt_source_t){node_peer, at}, dst, slice.count);
        } else if (now.phase == receive + LAG && t->request->is_staged) {
            tt_plan_copy(plan, now.round, at, dst, slice.count);
        }
    }
}

/* ---- all ---- */

/* Round k of the dissemination among the first ranks of the hosts; local ranks meet in the last
 * one. */
static void add_barrier(const tt_two_level_t *t, int k)
{
    tt_plan_t *plan = t->plan;
    const int host = tt_two_level_host(t, plan->rank);
    if (k == tt_log2_ceil(t->host_count)) {
        tt_plan_barrier(plan, k);
    } else if (t->ranks[t->begins[host]] == plan->rank) {
        const int next = (host + (1 << k)) % t->host_count;
        const int last = (host - (1 << k) % t->host_count + t->host_count) % t->host_count;
        tt_plan_send(plan, k, t->ranks[t->begins[next]], tt_piece_at(0, 0), 0);
        tt_plan_recv(plan, k, t->ranks[t->begins[last]], tt_piece_at(0, 0), 0);
    }
}

/* Hosts that have one rank have nothing to take from local ranks. */
static int last_phase(const tt_two_level_t *t)
{
    if (t->request->collective == TT_ALL_GATHER) {
        return LAG;
    }
    bool takes = t->request->is_staged;
    for (int host = 0; host < t->host_count; host++) {
        takes = takes || (host != root_host(t) && tt_two_level_local_ranks(t, host) > 1);
    }
    return lead(t->request) + 1 + (takes ? LAG : 0);
}

static void plan_chunks(const tt_two_level_t *t)
{
    tt_plan_t *plan = t->plan;
    const bool is_gather = plan->collective == TT_ALL_GATHER;
    if (t->request->is_staged) {
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE, t->chunk * TT_BOUNCE_SLOTS);
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE_OUT,
                        t->chunk * TT_BOUNCE_OUT_SLOTS * (is_gather ? (size_t)plan->size : 1));
    }
    if (t->chunks > 0) {
        tt_two_level_barrier(t, 1, t->chunks + last_phase(t) - 1);
    }
    tt_plan_add_loop(plan,
                     (tt_plan_loop_t){.chunks = t->chunks, .stride = 1, .last = last_phase(t)});
}

void tt_two_level_plan_moves(tt_plan_t *plan, tt_two_level_t *t)
{
    const tt_plan_request_t *request = &plan->request;
    if (!tt_two_level_open(t, plan, length_of(request), chunk_of(request))) {
        return;
    }
    if (plan->collective == TT_BARRIER) {
        tt_plan_add_loop(plan,
                         (tt_plan_loop_t){.chunks = tt_log2_ceil(t->host_count) + 1, .stride = 1});
    } else {
        plan_chunks(t);
    }
}

void tt_two_level_add_moves(const tt_two_level_t *t, tt_plan_at_t at)
{
    switch (t->plan->collective) {
    case TT_BARRIER:
        add_barrier(t, at.chunk);
        break;
    case TT_ALL_GATHER:
        if (at.phase == 0) {
            gather_send(t, at.chunk);
        } else if (at.phase == LAG) {
            gather_take(t, at.chunk);
        }
        break;
    default:
        if (tt_two_level_host(t, t->plan->rank) == root_host(t)) {
            broadcast_from_root(t, at);
        } else {
            broadcast_elsewhere(t, at);
        }
    }
}

/* ---- cost ---- */

static tt_plan_cost_t gather_cost(const tt_two_level_t *t, int rank)
{
    const int host = tt_two_level_host(t, rank);
    tt_plan_cost_t cost = {.sent =
                               tt_plan_part(t->request, rank).count * (size_t)(t->host_count - 1)};
    for (int owner = 0; owner < t->request->size; owner++) {
        const bool is_received =
            tt_two_level_host(t, owner) != host && tt_two_level_helper(t, host, owner) == rank;
        cost.read += owner == rank || is_received ? 0 : tt_plan_part(t->request, owner).count;
    }
    return cost;
}

/* Of whole chunks, and of the last one. */
static size_t shares(const tt_two_level_t *t, int host, int index)
{
    return t->chunks == 0 ? 0
                          : share(t, host, index, 0).count * (size_t)(t->chunks - 1) +
                                share(t, host, index, t->chunks - 1).count;
}

static tt_plan_cost_t broadcast_cost(const tt_two_level_t *t, int rank)
{
    const int mine = tt_two_level_host(t, rank);
    tt_plan_cost_t cost = {.read = rank == t->request->root ? 0 : t->length};
    for (int host = 0; host < t->host_count; host++) {
        for (int i = 0; host != root_host(t) && i < tt_two_level_local_ranks(t, host); i++) {
            cost.sent += sender_to(t, i) == rank ? shares(t, host, i) : 0;
            cost.read -= t->ranks[t->begins[host] + i] == rank ? shares(t, host, i) : 0;
        }
    }
    cost.sent = mine == root_host(t) ? cost.sent : 0;
    return cost;
}

tt_plan_cost_t tt_two_level_moves_cost(const tt_plan_request_t *request)
{
    tt_two_level_t t;
    tt_plan_cost_t cost = {0};
    if (!tt_two_level_open_for(&t, request, length_of(request), chunk_of(request))) {
        return cost;
    }
    cost.rounds = t.chunks > 0 ? t.chunks + last_phase(&t) : 0;
    if (request->collective == TT_BARRIER) {
        cost.rounds = tt_log2_ceil(t.host_count) + 1;
    }
    for (int rank = 0; rank < request->size && request->collective != TT_BARRIER; rank++) {
        const tt_plan_cost_t one =
            request->collective == TT_ALL_GATHER ? gather_cost(&t, rank) : broadcast_cost(&t, rank);
        cost.sent = one.sent > cost.sent ? one.sent : cost.sent;
        cost.read = one.read > cost.read ? one.read : cost.read;
    }
    tt_two_level_close(&t);
    return cost;
}
