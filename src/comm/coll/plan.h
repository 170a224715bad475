/* Plans: what one rank does in a collective, as data. A plan is a pure function of (collective,
 * rank, size, count, root, leaf map); it names no memory and no peer's address, so that it can be
 * printed, simulated for all ranks in one process, checked for deadlock and cost, and cached.
 *
 * Steps of one round run at the same time, in any order; but between two ranks, sends are received
 * in the order in which they are listed. A round ends when all its steps are done. Offsets and
 * counts are elements.
 *
 *     piece i   what this rank passes: its contribution, or its pieces of the leaves
 *     out       the result
 *     scratch   as large as the plan says, of the pieces' dtype
 *
 * Adding an algorithm: one file with a tt_algorithm_t, one line in algorithms.def.
 */
#ifndef TT_PLAN_H
#define TT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"
#include "core/kernel/tree.h"

typedef enum {
#define X(identifier, name, reduces, piece_elements, out_elements) TT_##identifier,
#include "comm/coll/collectives.def"
#undef X
    TT_COLLECTIVE_COUNT
} tt_collective_t;

const char *tt_collective_name(tt_collective_t collective);
bool tt_collective_reduces(tt_collective_t collective);

/* Elements of a piece and of the result. */
size_t tt_collective_piece_elements(tt_collective_t collective, size_t count, int size);
size_t tt_collective_out_elements(tt_collective_t collective, size_t count, int size);

typedef struct {
    tt_collective_t collective;
    int rank, size, root;
    size_t count;
    int leaves;       /* of a reduction; 0: one for each rank */
    const int *first; /* [size + 1] first leaf of each rank; NULL: spread evenly */
} tt_plan_request_t;

/* First leaf of a rank (or of `size`) under a request. */
int tt_plan_first_leaf(const tt_plan_request_t *request, int rank);

typedef enum {
    TT_STEP_SEND,   /* src of mine to peer */
    TT_STEP_RECV,   /* from peer to dst of mine */
    TT_STEP_COPY,   /* src of mine to dst of mine */
    TT_STEP_TREE,   /* the tree over plan.sources (mine) to dst of mine */
    TT_STEP_PULL,   /* src of peer's memory to dst of mine */
    TT_STEP_DIRECT, /* the tree over all ranks' pieces at src.offset to dst, mine or everyone's */
} tt_step_kind_t;

typedef enum { TT_BUFFER_PIECE, TT_BUFFER_OUT, TT_BUFFER_SCRATCH } tt_buffer_t;

typedef struct {
    tt_buffer_t buffer;
    int index; /* of a piece */
    size_t offset;
} tt_part_t;

typedef struct {
    tt_step_kind_t kind;
    int round;
    int peer; /* of send, recv, pull */
    tt_part_t src, dst;
    size_t count;
    bool to_all; /* of direct: dst is written in every rank's memory */
} tt_step_t;

typedef struct {
    int rank, index; /* the indexth piece of a rank */
} tt_piece_ref_t;

struct tt_algorithm;

typedef struct {
    const struct tt_algorithm *algorithm;
    tt_collective_t collective;
    int rank, size, root, leaves;
    size_t count;
    int rounds;

    int step_count, step_capacity;
    tt_step_t *steps; /* in order of rounds */

    /* Of a reduction: every rank's pieces in the order of leaves, and how to merge them. */
    int piece_count;
    tt_piece_ref_t *pieces;
    int *pieces_of; /* [size] how many are a rank's */
    unsigned char *merges;
    int depth;
    int pieces_of_rank_max;
    tt_part_t *sources; /* [piece_count], for TREE */

    size_t scratch_count;
    tutti_status_t status; /* the first failure while it was made */
} tt_plan_t;

/* Maxima over the ranks. Elements sent over a wire and read from other ranks' memory. */
typedef struct {
    int rounds;
    size_t sent, read;
} tt_plan_cost_t;

typedef struct tt_algorithm {
    const char *name, *about, *source;
    bool is_canonical;
    bool needs_shared_memory;
    bool travels_in_flags; /* pieces are copied into the flag lines: small ones only */
    void (*plan)(tt_plan_t *plan, const tt_plan_request_t *request);
    tt_plan_cost_t (*cost)(const tt_plan_request_t *request);
} tt_algorithm_t;

/* Every algorithm there is; the end is NULL. */
extern const tt_algorithm_t *const tt_algorithms[];

#define X(name) extern const tt_algorithm_t tt_algorithm_##name;
#include "comm/coll/algorithms.def"
#undef X

/* NULL if there is none of that name. */
const tt_algorithm_t *tt_algorithm_find(const char *name);

/* Errors: ARG (rank, root, leaf map), NOMEM. */
tutti_status_t tt_plan_create(const tt_plan_request_t *request, const tt_algorithm_t *algorithm,
                              tt_plan_t **out);
void tt_plan_release(tt_plan_t *plan);

/* For algorithms: append a step; failures are kept in the plan. Steps that move nothing are left
 * out, but for those of a barrier. */
void tt_plan_add(tt_plan_t *plan, tt_step_t step);

/* The slice of `count` elements that a rank owns: whole 64s, so that owners share no cache line. */
typedef struct {
    size_t begin, count;
} tt_slice_t;

tt_slice_t tt_plan_slice(size_t count, int size, int rank);

/* One line per step. Returns the length that the whole text has (it may have been cut). */
size_t tt_plan_print(const tt_plan_t *plan, char *text, size_t text_bytes);

#endif
