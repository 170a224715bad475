/* two_level without adding up.
 *
 *     all_gather   each rank sends its piece to one rank of each other host (its helper there),
 *                  whose local ranks copy it out of the helper's memory two rounds later; pieces of
 *                  local ranks are copied directly
 *     broadcast    the root's local ranks copy the vector; together they send it to each other
 *                  host, to whose n-th rank its n-th slice goes; local ranks copy the slices from
 *                  each other
 *     barrier      the first ranks of the hosts run a dissemination; then the ranks of each host
 *                  have a barrier
 *
 * Chunk c begins in round c. With bounce buffers, local ranks read pieces from bounce buffers and
 * what was received from bounce_outs, and every rank copies what it received itself.
 */
#include "comm/algorithm/two_level.h"

/* With bounce buffers or without: hosts that differ in that exchange the same messages. */
enum { CHUNK = 64 << 10, LAG = 2 };

/* ---- all_gather ---- */

/* What local ranks read of my piece. */
static tt_part_t piece_at(const tt_two_level_t *t, int c, size_t begin)
{
    const size_t bounce = tt_two_level_slot(t, c, TT_BOUNCE_SLOTS, 1);
    return t->request->is_staged ? tt_part_at(TT_BUFFER_BOUNCE, bounce) : tt_piece_at(0, begin);
}

/* Where a helper keeps what `owner` sent of chunk c, which belongs at `begin` of out. */
static tt_part_t received_at(const tt_two_level_t *t, int c, int owner, size_t begin)
{
    const size_t slot = tt_two_level_slot(t, c, TT_BOUNCE_OUT_SLOTS, (size_t)t->request->size);
    return t->request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT, slot + (size_t)owner * t->cut.chunk)
               : tt_out_at(begin);
}

static void gather_send(const tt_two_level_t *t, int c)
{
    tt_plan_t *plan = t->plan;
    const size_t part = tt_plan_part(t->request, plan->rank).count;
    const tt_slice_t chunk = tt_cut_chunk(&t->cut, part, c);
    const tt_part_t piece = tt_piece_at(0, chunk.begin);
    if (t->request->is_staged) {
        tt_plan_copy(plan, piece, piece_at(t, c, 0), chunk.count);
    }
    for (int host = 0; host < t->host_count; host++) {
        if (host != t->host) {
            tt_plan_send(plan, tt_two_level_helper(t, host, plan->rank), piece, chunk.count);
        }
    }
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t theirs = tt_cut_owned(&t->cut, owner, c);
        if (tt_two_level_helps(t, owner)) {
            tt_plan_recv(plan, owner, received_at(t, c, owner, theirs.begin), theirs.count);
        }
    }
}

static void gather_take(const tt_two_level_t *t, int c)
{
    tt_plan_t *plan = t->plan;
    for (int owner = 0; owner < plan->size; owner++) {
        const tt_slice_t chunk = tt_cut_owned(&t->cut, owner, c);
        const size_t within = t->cut.chunk * (size_t)c;
        const tt_part_t dst = tt_out_at(chunk.begin);
        const tt_part_t received = received_at(t, c, owner, chunk.begin);
        const int helper = tt_two_level_helper(t, t->host, owner);
        if (owner == plan->rank) {
            tt_plan_copy(plan, tt_piece_at(0, within), dst, chunk.count);
        } else if (tt_two_level_host(t, owner) == t->host) {
            tt_plan_get(plan, (tt_source_t){owner, piece_at(t, c, within)}, dst, chunk.count);
        } else if (helper != plan->rank) {
            tt_plan_get(plan, (tt_source_t){helper, received}, dst, chunk.count);
        } else if (t->request->is_staged) {
            tt_plan_copy(plan, received, dst, chunk.count);
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
    const tt_slice_t chunk = tt_cut_chunk(&t->cut, t->request->count, c);
    const tt_slice_t slice = tt_plan_slice(chunk.count, tt_two_level_local_ranks(t, host), index);
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* The rank of the root's host that sends to rank number `index` of another one. */
static int sender_to(const tt_two_level_t *t, int index)
{
    return tt_two_level_helper(t, root_host(t), index);
}

static tt_part_t share_at(const tt_two_level_t *t, int c, tt_slice_t slice)
{
    const size_t within = slice.begin - t->cut.chunk * (size_t)c;
    const size_t slot = tt_two_level_slot(t, c, TT_BOUNCE_OUT_SLOTS, 1);
    return t->request->is_staged ? tt_part_at(TT_BUFFER_BOUNCE_OUT, slot + within)
                                 : tt_out_at(slice.begin);
}

/* In which round, after that of its chunk, the root's local ranks have the vector. */
static int lead(const tt_plan_request_t *request)
{
    return request->is_staged ? LAG : 0;
}

static void broadcast_outside(const tt_two_level_t *t, int c)
{
    for (int host = 0; host < t->host_count; host++) {
        for (int i = 0; host != t->host && i < tt_two_level_local_ranks(t, host); i++) {
            const tt_slice_t slice = share(t, host, i, c);
            if (sender_to(t, i) == t->plan->rank) {
                tt_plan_send(t->plan, t->ranks[t->begins[host] + i], tt_out_at(slice.begin),
                             slice.count);
            }
        }
    }
}

/* On the root's host. */
static void broadcast_from_root(const tt_two_level_t *t, tt_plan_at_t at)
{
    tt_plan_t *plan = t->plan;
    const tt_slice_t chunk = tt_cut_chunk(&t->cut, plan->count, at.chunk);
    const tt_part_t piece = tt_piece_at(0, chunk.begin), out = tt_out_at(chunk.begin);
    const tt_part_t shown = piece_at(t, at.chunk, chunk.begin);
    const bool is_root = plan->rank == plan->root;
    if (at.phase == 0 && t->request->is_staged && is_root) {
        tt_plan_copy(plan, piece, shown, chunk.count);
    } else if (at.phase == lead(t->request) && is_root) {
        tt_plan_copy(plan, piece, out, chunk.count);
    } else if (at.phase == lead(t->request)) {
        tt_plan_get(plan, (tt_source_t){plan->root, shown}, out, chunk.count);
    } else if (at.phase == lead(t->request) + 1) {
        broadcast_outside(t, at.chunk);
    }
}

static void broadcast_elsewhere(const tt_two_level_t *t, tt_plan_at_t at)
{
    tt_plan_t *plan = t->plan;
    const bool receives = at.phase == lead(t->request) + 1;
    const bool takes = at.phase == lead(t->request) + 1 + LAG;
    for (int i = 0; i < tt_two_level_local_ranks(t, t->host); i++) {
        const int owner = t->ranks[t->begins[t->host] + i];
        const tt_slice_t slice = share(t, t->host, i, at.chunk);
        const tt_part_t from = share_at(t, at.chunk, slice), dst = tt_out_at(slice.begin);
        if (receives && owner == plan->rank) {
            tt_plan_recv(plan, sender_to(t, i), from, slice.count);
        } else if (takes && owner != plan->rank) {
            tt_plan_get(plan, (tt_source_t){owner, from}, dst, slice.count);
        } else if (takes && t->request->is_staged) {
            tt_plan_copy(plan, from, dst, slice.count);
        }
    }
}

/* ---- all ---- */

/* Round k of the dissemination among the first ranks of the hosts; local ranks meet in the last
 * one. */
static void add_barrier(const tt_two_level_t *t, int k)
{
    tt_plan_t *plan = t->plan;
    const int hosts = t->host_count;
    if (k == tt_log2_ceil(hosts)) {
        tt_plan_barrier(plan);
    } else if (t->ranks[t->begins[t->host]] == plan->rank) {
        const int next = (t->host + (1 << k)) % hosts, last = (t->host + hosts - (1 << k)) % hosts;
        tt_plan_send(plan, t->ranks[t->begins[next]], tt_piece_at(0, 0), 0);
        tt_plan_recv(plan, t->ranks[t->begins[last]], tt_piece_at(0, 0), 0);
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

void tt_two_level_prepare_moves(tt_plan_t *plan, tt_two_level_t *t)
{
    const bool is_gather = plan->collective == TT_ALL_GATHER;
    const size_t width = is_gather ? (size_t)plan->size : 1;
    if (plan->collective == TT_BARRIER) {
        tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = tt_log2_ceil(t->host_count) + 1});
        return;
    }
    t->cut = (is_gather ? tt_cut_parts : tt_cut_vector)(t->request, CHUNK / width);
    if (t->request->is_staged) {
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE, t->cut.chunk * TT_BOUNCE_SLOTS);
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE_OUT, t->cut.chunk * TT_BOUNCE_OUT_SLOTS * width);
    }
    tt_two_level_loop(t, last_phase(t), 1);
}

void tt_two_level_add_moves(const tt_two_level_t *t, tt_plan_at_t at)
{
    switch (t->plan->collective) {
    case TT_BARRIER:
        add_barrier(t, at.chunk);
        break;
    case TT_ALL_GATHER:
        if (at.phase != 1) {
            (at.phase == 0 ? gather_send : gather_take)(t, at.chunk);
        }
        break;
    default:
        (t->host == root_host(t) ? broadcast_from_root : broadcast_elsewhere)(t, at);
    }
}
