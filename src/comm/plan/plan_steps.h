/* What algorithms describe their rounds with, and the shapes that several of them share. */
#ifndef TT_PLAN_STEPS_H
#define TT_PLAN_STEPS_H

#include "comm/plan/plan.h"

static inline tt_part_t tt_part_at(tt_buffer_t buffer, size_t offset)
{
    return (tt_part_t){buffer, 0, offset};
}

static inline tt_part_t tt_piece_at(int index, size_t offset)
{
    return (tt_part_t){TT_BUFFER_PIECE, index, offset};
}

static inline tt_part_t tt_out_at(size_t offset)
{
    return (tt_part_t){TT_BUFFER_OUT, 0, offset};
}

/* A sum; how much further on its sources are, in pieces and elsewhere; whose memory it writes. */
typedef struct {
    int sum;
    size_t piece, shift;
    tt_target_t to;
    int peer;
} tt_sum_at_t;

void tt_plan_send(tt_plan_t *plan, int peer, tt_part_t src, size_t count);
void tt_plan_recv(tt_plan_t *plan, int peer, tt_part_t dst, size_t count);
void tt_plan_copy(tt_plan_t *plan, tt_part_t src, tt_part_t dst, size_t count);
void tt_plan_get(tt_plan_t *plan, tt_source_t src, tt_part_t dst, size_t count);
void tt_plan_reduce(tt_plan_t *plan, tt_sum_at_t at, tt_part_t dst, size_t count);

/* BARRIER in rounds begin, begin + stride, … before `end`. */
void tt_plan_add_meets(tt_plan_t *plan, int begin, int end, int stride);

/* The sum of two neighbour blocks of 2^k ranks, mine and that of rank ^ 2^k, in order of ranks;
 * finished if they are the whole group. */
void tt_plan_add_pair(tt_plan_t *plan, int k, tt_part_t mine, tt_part_t theirs);

/* Where the pieces of other ranks are when they are added up.
 *
 *     PIECE      where they were
 *     SCRATCH    mine, where they are received: one after the other, in order of ranks
 *     BOUNCE     in the bounce buffers of their ranks, by their numbers
 */
typedef struct {
    tt_buffer_t buffer;
    size_t begin, stride; /* of the first one; from each one to the next */
} tt_others_t;

void tt_plan_find_others(const tt_plan_t *plan, tt_others_t others, tt_plan_term_t *terms,
                         int count);

/* The sum over the pieces of ranks [0, end), those of other ranks where `others` says. */
int tt_plan_sum_pieces(tt_plan_t *plan, int end, tt_others_t others, bool is_partial);

/* Groups of consecutive terms that add up to one node, as large as they can be: group i ends before
 * term ends[i]. Returns how many; `ends` has room for `count`. Terms need not touch each other. */
int tt_plan_group_terms(int leaves, const tt_plan_term_t *terms, int count, int *ends);

/* ---- ranks ---- */

/* The rank so many further on, or back; going around. At most `size` in either direction. */
static inline int tt_plan_peer(const tt_plan_t *plan, int distance)
{
    return (plan->rank + distance + plan->size) % plan->size;
}

/* How far this rank is behind the root. */
static inline int tt_plan_place(const tt_plan_t *plan)
{
    return tt_plan_peer(plan, -plan->root);
}

int tt_log2_ceil(int n);

/* ---- parts, slices and chunks ---- */

/* All parts together, and the longest one. */
size_t tt_plan_all(const tt_plan_request_t *request);
size_t tt_plan_part_max(const tt_plan_request_t *request);

/* The parts of ranks [begin, end), and their slices of the vector; there is at least one. */
tt_slice_t tt_plan_parts(const tt_plan_request_t *request, int begin, int end);
tt_slice_t tt_plan_slices(const tt_plan_request_t *request, int begin, int end);

/* The parts of `count` ranks from `begin` on, going on at rank 0 behind the last one, as one or two
 * slices; returns how many. */
int tt_plan_wrapped_parts(const tt_plan_request_t *request, int begin, int count,
                          tt_slice_t slices[2]);

/* What `rank` takes of a peer's piece (parts of it, in order of ranks; a count of 0 for nothing),
 * and where in its out it goes. For collectives that do not reduce. */
tt_slice_t tt_plan_wanted(const tt_plan_request_t *request, int rank, int peer, size_t *out_offset);

/* What a peer takes of my piece. */
tt_slice_t tt_plan_given(const tt_plan_request_t *request, int peer);

/* A call that is cut into chunks. Of each chunk of the vector, a rank owns a slice. Or parts are
 * cut, and a rank owns the chunks of its part. */
typedef struct {
    const tt_plan_request_t *request;
    bool has_parts;
    size_t chunk; /* elements of one; of a part, if these are cut */
    int chunks;
} tt_cut_t;

/* Into chunks of about so many elements: fewer if the call has less, more if it has so many that
 * their number would grow too large. */
tt_cut_t tt_cut_vector(const tt_plan_request_t *request, size_t chunk);
tt_cut_t tt_cut_parts(const tt_plan_request_t *request, size_t chunk);

/* Chunk c of what is `count` long; empty beyond its end. */
tt_slice_t tt_cut_chunk(const tt_cut_t *cut, size_t count, int c);

/* What a rank owns of chunk c, as offsets into the pieces; and the longest that it owns of any. */
tt_slice_t tt_cut_owned(const tt_cut_t *cut, int rank, int c);
size_t tt_cut_longest(const tt_cut_t *cut, int rank);

/* Room in a buffer for some chunks at a time, which take turns. */
typedef struct {
    size_t elements; /* of a slot */
    int count;
} tt_slots_t;

/* As many slots as `count`, or fewer if there are not so many chunks; at the front of a buffer. */
tt_slots_t tt_plan_reserve_slots(tt_plan_t *plan, const tt_cut_t *cut, tt_buffer_t buffer,
                                 size_t elements, int count);

/* Where the slot of chunk c begins. */
static inline size_t tt_slot_at(const tt_slots_t *slots, int c)
{
    return (size_t)(c % slots->count) * slots->elements;
}

#endif
