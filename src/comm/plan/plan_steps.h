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
void tt_plan_barrier(tt_plan_t *plan);

/* The sum of two neighbour blocks of 2^k ranks, mine and that of rank ^ 2^k, in order of ranks;
 * finished if they are the whole group. */
void tt_plan_add_pair(tt_plan_t *plan, int k, tt_part_t mine, tt_part_t theirs);

/* The pieces of ranks [begin, end) as terms, to be freed; NULL if there are none, or on failure,
 * which the plan keeps. */
tt_plan_term_t *tt_plan_terms(tt_plan_t *plan, const tt_plan_request_t *request, int begin, int end,
                              int *count);

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
static inline bool tt_is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Whether there are several ranks, and their memory is not behind bounce buffers: what algorithms
 * that only send messages want. */
static inline bool tt_plan_can_send(const tt_plan_request_t *request)
{
    return request->size > 1 && !request->is_staged;
}

/* Whether sums over 1, 2, 4, … ranks, beginning at multiples of so many, are nodes of the tree. */
bool tt_plan_is_aligned(const tt_plan_request_t *request);

/* Whether every rank passes exactly one piece. */
bool tt_plan_has_single_pieces(const tt_plan_request_t *request);

int tt_plan_host_count(const tt_plan_request_t *request);

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

#endif
