/* staged: local ranks whose memory others cannot reach. Each has a small bounce buffer in the
 * shared heap that stays in its cache, and pieces travel through it in chunks, three chunks at a
 * time:
 *
 *     round c      copy what local ranks need of chunk c into my bounce buffer
 *     round c + 2  take what I need out of all bounce buffers: add up my slice of the chunk, or
 *                  copy it out
 *     round c + 4  (all_reduce, reduce) copy the result out of my bounce buffer, where the local
 *                  ranks have put it in the place of what they took
 *
 * Rounds have a BARRIER, so that a rank in round t knows that all have done round t - 2; local
 * ranks may be a round apart without waiting. A part of a bounce buffer that is written in round t
 * is read in t + 2, perhaps written by a local rank then and read in t + 4, and written again when
 * all that is over.
 *
 * Putting results where the pieces came from is what makes it fast: a core that reads a line and
 * then writes it owns the line, and gives it back with the result. Lines that only one core writes
 * and another one reads cost twice, since the writer has to fetch its own line back each time: on
 * two cores of an EPYC 9004 60 to 90 ns per KiB, against 17 (measured, both cores at once).
 *
 * Cost of an all_reduce, per element and rank: (size - 1) / size copied in, one read and one
 * written while adding up, one copied out; each line travels twice. Source: Tutti, after the
 * copy-in-copy-out rings of Open MPI's and MPICH's shared memory.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

enum { CHUNK = 16 << 10, LAG = 2 };

/* How a call is cut into chunks, and what a bounce buffer holds of each: `width` things of up to
 * cut.chunk elements, side by side. */
typedef struct {
    tt_cut_t cut;
    int width;
    tt_slots_t slots;
} state_t;

static bool is_sent_back(const tt_plan_t *plan)
{
    return plan->collective == TT_ALL_REDUCE || plan->collective == TT_REDUCE;
}

/* Where thing number `index` of a chunk is in a bounce buffer. */
static tt_part_t bounce_at(const state_t *s, int c, int index)
{
    return tt_part_at(TT_BUFFER_BOUNCE, tt_slot_at(&s->slots, c) + (size_t)index * s->cut.chunk);
}

/* ---- reductions ---- */

static void copy_pieces_in(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t chunk = tt_cut_chunk(&s->cut, plan->count, c);
    const tt_slice_t mine = tt_plan_slice(chunk.count, plan->size, plan->rank);
    const size_t after = mine.begin + mine.count;
    for (int i = 0; i < plan->pieces_of[plan->rank]; i++) {
        tt_part_t bounce = bounce_at(s, c, i);
        tt_plan_copy(plan, tt_piece_at(i, chunk.begin), bounce, mine.begin);
        bounce.offset += after;
        tt_plan_copy(plan, tt_piece_at(i, chunk.begin + after), bounce, chunk.count - after);
    }
}

static void copy_parts_in(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int i = 0; i < plan->pieces_of[plan->rank]; i++) {
        for (int peer = 0; peer < plan->size; peer++) {
            const tt_slice_t chunk = tt_cut_owned(&s->cut, peer, c);
            if (peer != plan->rank) {
                tt_plan_copy(plan, tt_piece_at(i, chunk.begin),
                             bounce_at(s, c, i * plan->size + peer), chunk.count);
            }
        }
    }
}

static void reduce_part(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t chunk = tt_cut_owned(&s->cut, plan->rank, c);
    const size_t part = tt_plan_part(&plan->request, plan->rank).begin;
    tt_plan_reduce(plan, (tt_sum_at_t){.piece = chunk.begin, .shift = tt_slot_at(&s->slots, c)},
                   tt_out_at(chunk.begin - part), chunk.count);
}

/* The part of my bounce buffer, or a local rank's, that gets results: thing 0 of the slot. */
static tt_part_t back_at(const state_t *s, int c, tt_slice_t slice)
{
    const size_t within = slice.begin - s->cut.chunk * (size_t)c;
    return tt_part_at(TT_BUFFER_BOUNCE_BACK, tt_slot_at(&s->slots, c) + within);
}

/* Round c + 2: my slice, for all, for the root, or for me alone. */
static void reduce_slice(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    const bool is_for_all = plan->collective == TT_ALL_REDUCE;
    const bool is_for_me = !is_for_all && plan->rank == plan->root;
    const tt_sum_at_t at = {
        .piece = mine.begin,
        .shift = back_at(s, c, mine).offset,
        .to = is_for_all  ? TT_TO_LOCAL_RANKS
              : is_for_me ? TT_TO_ME
                          : TT_TO_PEER,
        .peer = plan->root,
    };
    tt_plan_reduce(plan, at, is_for_me ? tt_out_at(mine.begin) : back_at(s, c, mine), mine.count);
}

/* Round c + 4: what has come back, slice by slice: out's elements may be narrower. */
static void take_back(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const bool is_for_all = plan->collective == TT_ALL_REDUCE;
    for (int owner = 0; owner < plan->size && (is_for_all || plan->rank == plan->root); owner++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, owner, c);
        if (is_for_all || owner != plan->root) { /* else it is there already */
            tt_plan_copy(plan, back_at(s, c, slice), tt_out_at(slice.begin), slice.count);
        }
    }
}

/* ---- the others ---- */

/* What goes into thing `index` of a slot: what that rank takes, or all others. */
static tt_slice_t given(const tt_plan_t *plan, int index)
{
    const state_t *s = plan->state;
    const int other = plan->rank == plan->root ? tt_plan_peer(plan, 1) : plan->root;
    const int taker = s->width > 1 ? index : other;
    return taker != plan->rank ? tt_plan_given(&plan->request, taker) : (tt_slice_t){0, 0};
}

static void give(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    for (int index = 0; index < s->width; index++) {
        const tt_slice_t part = given(plan, index);
        const tt_slice_t chunk = tt_cut_chunk(&s->cut, part.count, c);
        tt_plan_copy(plan, tt_piece_at(0, part.begin + chunk.begin), bounce_at(s, c, index),
                     chunk.count);
    }
}

static void take(tt_plan_t *plan, int c)
{
    const state_t *s = plan->state;
    const tt_part_t bounce = bounce_at(s, c, s->width > 1 ? plan->rank : 0);
    for (int i = 0; i < plan->size; i++) {
        const int peer = tt_plan_peer(plan, i);
        size_t at;
        const tt_slice_t part = tt_plan_wanted(&plan->request, plan->rank, peer, &at);
        const tt_slice_t chunk = tt_cut_chunk(&s->cut, part.count, c);
        const tt_part_t dst = tt_out_at(at + chunk.begin);
        if (peer == plan->rank) {
            tt_plan_copy(plan, tt_piece_at(0, part.begin + chunk.begin), dst, chunk.count);
        } else {
            tt_plan_get(plan, (tt_source_t){peer, bounce}, dst, chunk.count);
        }
    }
}

/* Things of a slot: of every piece of a reduction, for every rank that takes something else. */
static int width_of(const tt_plan_t *plan)
{
    const bool is_for_each = plan->collective == TT_REDUCE_SCATTER ||
                             plan->collective == TT_SCATTER || plan->collective == TT_ALL_TO_ALL;
    return (is_for_each ? plan->size : 1) *
           (plan->pieces_of_rank_max > 1 ? plan->pieces_of_rank_max : 1);
}

/* The sum over my own pieces, and what lies in the local ranks' bounce buffers: for a part of mine,
 * in thing i × size + rank of their slots. */
static void add_sum(tt_plan_t *plan)
{
    const state_t *s = plan->state;
    const bool has_parts = s->cut.has_parts;
    const size_t chunk = s->cut.chunk;
    const tt_others_t bounced = {TT_BUFFER_BOUNCE, has_parts ? chunk * (size_t)plan->rank : 0,
                                 has_parts ? chunk * (size_t)plan->size : chunk};
    tt_plan_sum_pieces(plan, plan->size, bounced, false);
}

static tt_plan_loop_t loop_of(const tt_plan_t *plan)
{
    if (is_sent_back(plan)) {
        return (tt_plan_loop_t){
            .phases = {copy_pieces_in, [LAG] = reduce_slice, [2 * LAG] = take_back}};
    }
    if (plan->collective == TT_REDUCE_SCATTER) {
        return (tt_plan_loop_t){.phases = {copy_parts_in, [LAG] = reduce_part}};
    }
    return (tt_plan_loop_t){.phases = {give, [LAG] = take}};
}

static void prepare_staged(tt_plan_t *plan)
{
    const bool is_back = is_sent_back(plan);
    const bool has_vector = is_back || plan->collective == TT_BROADCAST;
    tt_plan_loop_t loop = loop_of(plan);
    state_t *s = plan->state = tt_plan_alloc(plan, 1, sizeof *s);
    if (s == NULL) {
        return;
    }
    s->width = width_of(plan);
    s->cut = (has_vector ? tt_cut_vector : tt_cut_parts)(&plan->request, CHUNK / (size_t)s->width);
    s->slots = tt_plan_reserve_slots(plan, &s->cut, TT_BUFFER_BOUNCE,
                                     (size_t)s->width * s->cut.chunk, 2 * LAG + is_back);
    loop.chunks = s->cut.chunks;
    if (loop.chunks > 0 && tt_collective_reduces(plan->collective)) {
        add_sum(plan);
    }
    if (loop.chunks > 0 && plan->size > 1) {
        tt_plan_add_meets(plan, 1, loop.chunks + (is_back ? 2 * LAG : LAG) - 1,
                          loop.chunks > 1 ? 1 : LAG);
    }
    tt_plan_add_loop(plan, loop);
}

const tt_algorithm_t tt_algorithm_staged = {
    .name = "staged",
    .about =
        "memory outside the heap is copied in chunks through bounce buffers that stay in the cache",
    .source = "Tutti",
    .is_canonical = true,
    .shares_memory = true,
    .collectives = TT_ALL_BUT_PREFIXES,
    .may_be_staged = true,
    .needs_one_host = true,
    .needs_even_exchange = true,
    .prepare = prepare_staged,
};
