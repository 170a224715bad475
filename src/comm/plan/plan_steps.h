/* What algorithms say their steps with, and the shapes that several of them share. */
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

void tt_plan_send(tt_plan_t *plan, int round, int peer, tt_part_t src, size_t count);
void tt_plan_recv(tt_plan_t *plan, int round, int peer, tt_part_t dst, size_t count);
void tt_plan_copy(tt_plan_t *plan, int round, tt_part_t src, tt_part_t dst, size_t count);
void tt_plan_get(tt_plan_t *plan, int round, tt_source_t src, tt_part_t dst, size_t count);
void tt_plan_reduce(tt_plan_t *plan, int round, int sum, tt_part_t dst, size_t count);
void tt_plan_barrier(tt_plan_t *plan, int round);

/* A sum, and how much further on its sources are: in pieces, and elsewhere. */
typedef struct {
    int sum;
    size_t piece, shift;
} tt_sum_at_t;

void tt_plan_reduce_at(tt_plan_t *plan, int round, tt_sum_at_t at, tt_part_t dst, size_t count);

/* The pieces of ranks [begin, end) as terms, to be freed; NULL if there are none, or on failure,
 * which the plan keeps. */
tt_plan_term_t *tt_plan_terms(tt_plan_t *plan, const tt_plan_request_t *request, int begin, int end,
                              int *count);

/* Groups of consecutive terms that add up to one node, as large as they can be: group i ends before
 * term ends[i]. Returns how many; `ends` has room for `count`. Terms need not touch each other. */
int tt_plan_group_terms(int leaves, const tt_plan_term_t *terms, int count, int *ends);

int tt_log2_ceil(int n);
static inline bool tt_is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Cutting `count` elements into chunks of `chunk`: how many, and the one with that number (empty
 * beyond the end). */
int tt_chunk_count(size_t count, size_t chunk);
tt_slice_t tt_chunk(size_t count, size_t chunk, int index);

/* `chunk`, or more if it took too many of them to cut `count`. */
size_t tt_chunk_elements(size_t count, size_t chunk);

/* All parts together, and the longest one. */
size_t tt_plan_all(const tt_plan_request_t *request);
size_t tt_plan_part_max(const tt_plan_request_t *request);

/* The parts of `count` ranks from `begin` on, going on at rank 0 behind the last one, as one or two
 * slices; returns how many. */
int tt_plan_wrapped_parts(const tt_plan_request_t *request, int begin, int count,
                          tt_slice_t slices[2]);

/* Whether sums over 1, 2, 4, … ranks, beginning at multiples of so many, are nodes of the tree. */
bool tt_plan_is_aligned(const tt_plan_request_t *request);

/* Whether everyone passes exactly one piece. */
bool tt_plan_has_single_pieces(const tt_plan_request_t *request);

int tt_plan_host_count(const tt_plan_request_t *request);

#endif
