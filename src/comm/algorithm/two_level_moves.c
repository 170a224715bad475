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
    const size_t bounce = t->cut.chunk * (size_t)(c % TT_BOUNCE_SLOTS);
    return t->request->is_staged ? tt_part_at(TT_BUFFER_BOUNCE, bounce) : tt_piece_at(0, begin);
}

/* Where a helper keeps what `owner` sent of chunk c, which belongs at `begin` of out. */
static tt_part_t received_at(const tt_two_level_t *t, int c, int owner, size_t begin)
{
    return t->request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT,
                            tt_slot_at(&t->outs, c) + (size_t)owner * t->cut.chunk)
               : tt_out_at(begin);
}

static void gather_send(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
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

static void gather_take(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
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
    return t->request->is_staged
               ? tt_part_at(TT_BUFFER_BOUNCE_OUT, tt_slot_at(&t->outs, c) + within)
               : tt_out_at(slice.begin);
}

/* On the root's host. */
static void broadcast_show(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
    const tt_slice_t chunk = tt_cut_chunk(&t->cut, plan->count, c);
    if (plan->rank == plan->root) {
        tt_plan_copy(plan, tt_piece_at(0, chunk.begin), piece_at(t, c, 0), chunk.count);
    }
}

static void broadcast_inside(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
    const tt_slice_t chunk = tt_cut_chunk(&t->cut, plan->count, c);
    const tt_part_t out = tt_out_at(chunk.begin);
    if (plan->rank == plan->root) {
        tt_plan_copy(plan, tt_piece_at(0, chunk.begin), out, chunk.count);
    } else {
        tt_plan_get(plan, (tt_source_t){plan->root, piece_at(t, c, chunk.begin)}, out, chunk.count);
    }
}

static void broadcast_outside(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
    for (int host = 0; host < t->host_count; host++) {
        for (int i = 0; host != t->host && i < tt_two_level_local_ranks(t, host); i++) {
            const tt_slice_t slice = share(t, host, i, c);
            if (sender_to(t, i) == plan->rank) {
                tt_plan_send(plan, t->ranks[t->begins[host] + i], tt_out_at(slice.begin),
                             slice.count);
            }
        }
    }
}

/* Elsewhere. */
static void broadcast_receive(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
    for (int i = 0; i < tt_two_level_local_ranks(t, t->host); i++) {
        if (t->ranks[t->begins[t->host] + i] == plan->rank) {
            const tt_slice_t slice = share(t, t->host, i, c);
            tt_plan_recv(plan, sender_to(t, i), share_at(t, c, slice), slice.count);
        }
    }
}

static void broadcast_take(tt_plan_t *plan, int c)
{
    const tt_two_level_t *t = plan->state;
    for (int i = 0; i < tt_two_level_local_ranks(t, t->host); i++) {
        const int owner = t->ranks[t->begins[t->host] + i];
        const tt_slice_t slice = share(t, t->host, i, c);
        const tt_part_t from = share_at(t, c, slice), dst = tt_out_at(slice.begin);
        if (owner != plan->rank) {
            tt_plan_get(plan, (tt_source_t){owner, from}, dst, slice.count);
        } else if (t->request->is_staged) {
            tt_plan_copy(plan, from, dst, slice.count);
        }
    }
}

/* The root's local ranks have a chunk in its first round, or LAG later; then it is sent, and LAG
 * later taken: not if every other host has one rank, and none uses bounce buffers. */
static tt_plan_loop_t broadcast_loop(const tt_plan_t *plan, int *last)
{
    const tt_two_level_t *t = plan->state;
    const bool is_staged = plan->request.is_staged;
    const int lead = is_staged ? LAG : 0;
    tt_plan_loop_t loop = {.phases = {NULL}};
    bool takes = is_staged;
    for (int host = 0; host < t->host_count; host++) {
        takes = takes || (host != root_host(t) && tt_two_level_local_ranks(t, host) > 1);
    }
    if (t->host != root_host(t)) {
        loop.phases[lead + 1] = broadcast_receive;
        loop.phases[lead + 1 + LAG] = broadcast_take;
    } else {
        loop.phases[0] = broadcast_show;
        loop.phases[lead] = broadcast_inside;
        loop.phases[lead + 1] = broadcast_outside;
    }
    *last = lead + 1 + (takes ? LAG : 0);
    return loop;
}

/* ---- barrier ---- */

/* Round k of the dissemination among the first ranks of the hosts. */
static void disseminate(tt_plan_t *plan, int k)
{
    const tt_two_level_t *t = plan->state;
    const int hosts = t->host_count;
    if (t->ranks[t->begins[t->host]] == plan->rank) {
        const int next = (t->host + (1 << k)) % hosts, last = (t->host + hosts - (1 << k)) % hosts;
        tt_plan_send(plan, t->ranks[t->begins[next]], tt_piece_at(0, 0), 0);
        tt_plan_recv(plan, t->ranks[t->begins[last]], tt_piece_at(0, 0), 0);
    }
}

void tt_two_level_prepare_moves(tt_plan_t *plan)
{
    tt_two_level_t *t = plan->state;
    const bool is_gather = plan->collective == TT_ALL_GATHER;
    const size_t width = is_gather ? (size_t)plan->size : 1;
    if (plan->collective == TT_BARRIER) {
        const int levels = tt_log2_ceil(t->host_count);
        tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = levels, .phases = {disseminate}});
        tt_plan_add_meets(plan, levels, levels + 1, 1);
        return;
    }
    t->cut = (is_gather ? tt_cut_parts : tt_cut_vector)(&plan->request, CHUNK / width);
    if (plan->request.is_staged) {
        tt_plan_reserve(plan, TT_BUFFER_BOUNCE, t->cut.chunk * TT_BOUNCE_SLOTS);
        t->outs = tt_plan_reserve_slots(plan, &t->cut, TT_BUFFER_BOUNCE_OUT, t->cut.chunk * width,
                                        TT_BOUNCE_OUT_SLOTS);
    }
    int last = LAG;
    tt_plan_loop_t loop = {.phases = {gather_send, [LAG] = gather_take}};
    if (!is_gather) {
        loop = broadcast_loop(plan, &last);
    }
    loop.chunks = t->cut.chunks;
    if (loop.chunks > 0) {
        tt_plan_add_meets(plan, 1, loop.chunks + last - 1, 1);
    }
    tt_plan_add_loop(plan, loop);
}
