/* Plans: what one rank does in a collective, as data. A plan is a pure function of (collective,
 * rank, size, counts, root, leaf map, hosts). It names no memory and no address of a peer, so that
 * it can be printed, simulated for all ranks in one process, checked, and cached.
 *
 * Steps of one round run at the same time, in any order; but between two ranks, sends are received
 * in the order in which they are listed. A round ends when all its steps are done. Offsets and
 * counts are elements.
 *
 *     piece i      what this rank passes: its contribution, or its pieces of the leaves
 *     out          the result
 *     scratch      private, of the pieces' dtype, as large as the plan says
 *     sum          private, of the accumulator's dtype (f32 for 16-bit floats, else the pieces')
 *     bounce       a buffer in the shared heap, of the pieces' dtype, that local ranks read
 *     bounce_back  the same memory, of out's dtype: local ranks write results over what they have
 *                  read. Offsets count the pieces' elements, counts those of out
 *     bounce_out   in the shared heap, of out's dtype
 *
 * Before the first round all local ranks have arrived (and, unless the plan is staged, the pieces
 * and outs of every local rank can be touched). After the last round no rank goes on before all
 * local ranks are done. In between, local ranks wait for each other in BARRIER steps, as many in
 * every local rank's plan.
 *
 * A plan's memory does not grow with the count: an algorithm says in which loops its rounds are and
 * what each phase of a loop does; tt_plan_round() makes the steps of a round from that. The steps
 * of short plans are kept.
 *
 * Adding an algorithm: one file with a tt_algorithm_t, one line in algorithms.def.
 */
#ifndef TT_PLAN_H
#define TT_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/fail.h"
#include "core/kernel/reduce/tree.h"

typedef enum {
#define X(identifier, name, reduces, piece_elements, out_elements) TT_##identifier,
#include "comm/plan/collectives.def"
#undef X
    TT_COLLECTIVE_COUNT
} tt_collective_t;

/* Sets of collectives, a bit for each one. Prefixes are the last ones. */
enum {
    TT_ALL_BUT_PREFIXES = (1 << TT_SCAN) - 1,
    TT_ALL_COLLECTIVES = (1 << TT_COLLECTIVE_COUNT) - 1
};

/* Inline, so that what is asked of a constant is known when it is compiled. */
static inline const char *tt_collective_name(tt_collective_t collective)
{
    static const char *const names[] = {
#define X(identifier, name, reduces, piece_elements, out_elements) name,
#include "comm/plan/collectives.def"
#undef X
    };
    return names[collective];
}

static inline bool tt_collective_reduces(tt_collective_t collective)
{
    static const bool all[] = {
#define X(identifier, name, reduces, piece_elements, out_elements) reduces,
#include "comm/plan/collectives.def"
#undef X
    };
    return all[collective];
}

static inline bool tt_collective_has_root(tt_collective_t collective)
{
    return collective == TT_BROADCAST || collective == TT_REDUCE || collective == TT_GATHER ||
           collective == TT_SCATTER;
}

static inline bool tt_collective_is_prefix(tt_collective_t collective)
{
    return collective == TT_SCAN || collective == TT_EXSCAN;
}

typedef struct {
    tt_collective_t collective;
    int rank, size, root;
    size_t count; /* elements of a part */

    /* [size] elements of each rank's part; NULL: all are `count`. The same on every rank, but for
     * all_to_all: what this rank gives to each rank, and gets from each. */
    const size_t *counts, *recv_counts;
    /* [size + 1] where these parts begin, which a plan lays out for its own request; else NULL. */
    const size_t *begins, *recv_begins;

    int leaves;       /* of a reduction; 0: one for each rank */
    const int *first; /* [size + 1] first leaf of each rank; NULL: spread evenly */
    const int *hosts; /* [size] each rank's host, numbered as they first appear; NULL: one host */
    bool is_staged;   /* local ranks look at the bounce buffer instead of pieces and outs */
    bool keeps_order; /* a with b is not b with a: the algorithm must be canonical */
} tt_plan_request_t;

/* First leaf of a rank (or of `size`) under a request. */
int tt_plan_first_leaf(const tt_plan_request_t *request, int rank);

/* How many ranks, from rank 0 on, contribute to the result of `rank`: all of them, but for scan
 * (rank + 1) and exscan (rank; rank 0 has no result). */
int tt_plan_contributors(const tt_plan_request_t *request, int rank);

/* The largest nodes of the canonical tree inside the leaves of ranks [begin, end), in order;
 * returns how many. `nodes` has room for TT_TREE_DEPTH_MAX, or is NULL. */
int tt_plan_nodes(const tt_plan_request_t *request, int begin, int end, tt_leaves_t *nodes);

/* How many pieces a rank passes in a reduction. */
static inline int tt_plan_pieces_of(const tt_plan_request_t *request, int rank)
{
    return tt_plan_nodes(request, rank, rank + 1, NULL);
}

/* Elements of this rank's piece and result; 0 where the root alone has one. */
size_t tt_plan_piece_elements(const tt_plan_request_t *request);
size_t tt_plan_out_elements(const tt_plan_request_t *request);

/* Some of `count` elements. */
typedef struct {
    size_t begin, count;
} tt_slice_t;

/* A rank's part, in the buffer that has the parts of all; what an all_to_all gives to a rank, and
 * gets from it. */
tt_slice_t tt_plan_part(const tt_plan_request_t *request, int rank);
tt_slice_t tt_plan_recv_part(const tt_plan_request_t *request, int rank);

/* The slice of `count` elements that a rank owns: whole 64s, so that owners share no cache line. A
 * reduction's parts are cut at multiples of TT_COMBINE_GRAIN from where they begin, nowhere else
 * (tt_plan_check). */
tt_slice_t tt_plan_slice(size_t count, int size, int rank);

int tt_plan_host(const tt_plan_request_t *request, int rank);
int tt_plan_host_count(const tt_plan_request_t *request);

typedef enum {
    TT_STEP_SEND,    /* src of mine to peer */
    TT_STEP_RECV,    /* from peer to dst of mine */
    TT_STEP_COPY,    /* src of mine to dst of mine, of the same dtype */
    TT_STEP_GET,     /* src of peer's memory (a local rank's) to dst of mine */
    TT_STEP_PUT,     /* src of mine to dst of peer's memory (a local rank's) */
    TT_STEP_REDUCE,  /* sum number `sum`, src.offset further on in pieces, to dst of `to` */
    TT_STEP_BARRIER, /* wait until all local ranks are in this round */
} tt_step_kind_t;

typedef enum {
    TT_BUFFER_PIECE,
    TT_BUFFER_OUT,
    TT_BUFFER_SCRATCH,
    TT_BUFFER_SUM,
    TT_BUFFER_BOUNCE,
    TT_BUFFER_BOUNCE_BACK,
    TT_BUFFER_BOUNCE_OUT,
    TT_BUFFER_COUNT
} tt_buffer_t;

/* The buffer whose memory a buffer is: the bounce buffer has two names. */
static inline tt_buffer_t tt_plan_memory(tt_buffer_t buffer)
{
    return buffer == TT_BUFFER_BOUNCE_BACK ? TT_BUFFER_BOUNCE : buffer;
}

/* Numbers of which dtype a buffer has: the pieces', out's, or the accumulator's. */
typedef enum { TT_OF_PIECE, TT_OF_OUT, TT_OF_SUM } tt_content_t;

static inline tt_content_t tt_plan_content(tt_buffer_t buffer)
{
    const bool is_out = buffer == TT_BUFFER_OUT || buffer == TT_BUFFER_BOUNCE_OUT ||
                        buffer == TT_BUFFER_BOUNCE_BACK;
    return is_out ? TT_OF_OUT : buffer == TT_BUFFER_SUM ? TT_OF_SUM : TT_OF_PIECE;
}

enum { TT_FROM_TABLE = -1 };

/* Whose memory a step writes. */
typedef enum { TT_TO_ME, TT_TO_LOCAL_RANKS, TT_TO_PEER } tt_target_t;

typedef struct {
    tt_buffer_t buffer;
    int index; /* of a piece. In a GET, TT_FROM_TABLE: where the peer's counts say that mine is */
    size_t offset;
} tt_part_t;

typedef struct {
    tt_step_kind_t kind;
    int peer;       /* of send, recv, get, put, and reduce to a peer */
    int sum;        /* of reduce */
    tt_target_t to; /* of reduce; of put: TO_PEER; of all others: TO_ME */
    tt_part_t src, dst;
    size_t count;
    size_t shift; /* of reduce: how much further on its sources outside pieces are */
} tt_step_t;

/* One thing that is added up: a part of a rank's memory, mine or a local rank's. */
typedef struct {
    int rank;
    tt_part_t part;
} tt_source_t;

/* What a REDUCE step adds up: nodes of the canonical tree, in the order of their leaves. All its
 * sources have one dtype: they lie in pieces, scratch and bounce buffer, or all in the sum buffer.
 */
typedef struct {
    int count, depth;
    int leaves;            /* of its tree: what AVG divides by */
    tt_source_t *sources;  /* [count] */
    unsigned char *merges; /* [count] how often to merge after each */
    bool is_partial;       /* goes on as a sum; else it is finished: AVG divides, out's dtype */
} tt_plan_sum_t;

typedef struct tt_plan tt_plan_t;

enum { TT_PLAN_LOOPS = 3, TT_PLAN_PHASES = 8 };

/* Rounds that repeat: phase p of chunk c is in round begin + c × stride + p. A chunk is whatever
 * the algorithm counts: a part of the vector, a level of a tree, a step around a ring. */
typedef struct {
    int begin, chunks, stride; /* stride 0: 1 */
    /* Add the steps of a phase of a chunk; NULL: it has none. Pure: they make no sums. */
    void (*phases[TT_PLAN_PHASES])(tt_plan_t *plan, int chunk);
} tt_plan_loop_t;

/* A node of the tree and where it is, for tt_plan_add_sum. */
typedef struct {
    tt_leaves_t leaves;
    tt_source_t source;
} tt_plan_term_t;

typedef struct tt_algorithm tt_algorithm_t;

struct tt_plan {
    const tt_algorithm_t *algorithm;
    tt_collective_t collective;
    int rank, size, root, leaves;
    size_t count;
    int rounds;
    tt_plan_request_t request; /* its arrays are borrowed as long as the plan lives */

    tt_plan_loop_t loops[TT_PLAN_LOOPS];
    int loop_count;
    void *state;                  /* the algorithm's */
    struct tt_plan_block *blocks; /* tt_plan_alloc */

    /* The steps of a plan with loops are kept if they are few; otherwise those of a round are made
     * when tt_plan_round() asks for it. */
    bool is_made_by_rounds;
    int step_count, step_capacity;
    tt_step_t *steps; /* in order of rounds; NULL if they are not kept */
    int start_capacity;
    int *round_starts; /* [rounds + 1] the first step of each */

    int sum_count, sum_capacity;
    tt_plan_sum_t *sums;
    int source_count_max, depth_max; /* over the sums */

    int *pieces_of; /* [size] of a reduction: how many pieces each rank passes */
    int pieces_of_rank_max;

    /* Elements that the executor must provide; tt_plan_reserve raises them. 0: of pieces, outs, and
     * the second name of the bounce buffer. */
    size_t room[TT_BUFFER_COUNT];
    tutti_status_t status; /* the first failure while it was made */
};

/* The steps of one round, as tt_plan_round() gives them. Zero at first. Used again for other rounds
 * and plans it allocates nothing, once it has been as large. */
typedef struct {
    const tt_step_t *steps;
    int count;
    tt_step_t *made; /* of plans whose steps are not kept */
    int capacity;
} tt_plan_round_t;

/* What a plan takes: rounds, elements sent over wires, elements read from or put into other ranks'
 * memory; or the maxima over several plans. */
typedef struct {
    int rounds;
    size_t sent, read;
} tt_plan_cost_t;

struct tt_algorithm {
    const char *name, *about, *source;
    bool is_canonical;
    bool shares_memory;    /* reads or writes local ranks' memory, or their bounce buffers */
    bool travels_in_flags; /* pieces are copied into the flag lines: small ones only */

    /* What it can do: see tt_algorithm_fits. */
    unsigned collectives; /* a bit for each one: 1 << TT_ALL_REDUCE … */
    bool may_be_staged;   /* also when local ranks look at the bounce buffer */
    bool needs_one_host;  /* all ranks are local ranks */
    bool needs_hosts;     /* there are several */
    bool needs_several_ranks;
    bool needs_power_of_two;   /* ranks */
    bool needs_aligned_leaves; /* sums over 1, 2, 4, … ranks are nodes of the tree */
    bool needs_single_pieces;  /* each rank passes one piece of a sum */
    bool needs_even_exchange;  /* an all_to_all of uneven parts is none: nobody knows the others' */

    /* Reserves buffers, makes sums, adds loops, or lists the steps of a plan that is always short
     * (tt_plan_open_round). */
    void (*prepare)(tt_plan_t *plan);
};

/* Whether an algorithm can do what is asked for. */
bool tt_algorithm_fits(const tt_algorithm_t *algorithm, const tt_plan_request_t *request);

/* So much payload fits into the flag slot of a call (flags.h). */
enum { TT_FLAG_EXTRA_BYTES = 1920 };

/* Errors: ARG (rank, root, leaf map), UNSUPPORTED (the algorithm does not fit), NOMEM. */
tutti_status_t tt_plan_create(const tt_plan_request_t *request, const tt_algorithm_t *algorithm,
                              tt_plan_t **out);
void tt_plan_release(tt_plan_t *plan);

/* Errors: NOMEM. */
tutti_status_t tt_plan_make_round(const tt_plan_t *plan, int round, tt_plan_round_t *out);
void tt_plan_round_close(tt_plan_round_t *round);

/* For tt_plan_create: adds the steps of all rounds of the loops, if they are few. */
tutti_status_t tt_plan_unroll(tt_plan_t *plan);
/* For tt_plan_release: what tt_plan_alloc gave. */
void tt_plan_free_blocks(tt_plan_t *plan);

/* Adds what the steps of a round take. */
void tt_plan_add_cost(const tt_plan_t *plan, const tt_plan_round_t *round, tt_plan_cost_t *cost);

/* Raises *cost to at least what a plan takes. Errors: NOMEM. */
tutti_status_t tt_plan_raise_cost(const tt_plan_t *plan, tt_plan_cost_t *cost);

static inline void tt_plan_max_cost(tt_plan_cost_t *cost, tt_plan_cost_t one)
{
    cost->rounds = one.rounds > cost->rounds ? one.rounds : cost->rounds;
    cost->sent = one.sent > cost->sent ? one.sent : cost->sent;
    cost->read = one.read > cost->read ? one.read : cost->read;
}

/* The steps of a round of a plan; valid until `out` is used again, or the plan is released. */
static inline tutti_status_t tt_plan_round(const tt_plan_t *plan, int round, tt_plan_round_t *out)
{
    if (plan->is_made_by_rounds) {
        return tt_plan_make_round(plan, round, out);
    }
    const int *starts = &plan->round_starts[round];
    out->steps = plan->steps + starts[0];
    out->count = starts[1] - starts[0];
    return TUTTI_OK;
}

/* Source number `index` of a reduce step. */
static inline tt_source_t tt_plan_source(const tt_plan_t *plan, const tt_step_t *step, int index)
{
    tt_source_t source = plan->sums[step->sum].sources[index];
    source.part.offset += source.part.buffer == TT_BUFFER_PIECE ? step->src.offset : step->shift;
    return source;
}

/* What a step reads: how many parts of anyone's memory, and number `index` of them. */
static inline int tt_plan_reads(const tt_plan_t *plan, const tt_step_t *step)
{
    return step->kind == TT_STEP_REDUCE
               ? plan->sums[step->sum].count
               : step->kind != TT_STEP_RECV && step->kind != TT_STEP_BARRIER;
}

static inline tt_source_t tt_plan_read(const tt_plan_t *plan, const tt_step_t *step, int index)
{
    return step->kind == TT_STEP_REDUCE
               ? tt_plan_source(plan, step, index)
               : (tt_source_t){step->kind == TT_STEP_GET ? step->peer : plan->rank, step->src};
}

/* The rank whose memory a step writes; for all local ranks this one stands. */
static inline int tt_plan_target(const tt_plan_t *plan, const tt_step_t *step)
{
    return step->to == TT_TO_PEER ? step->peer : plan->rank;
}

/* ---- for algorithms; failures are kept in the plan ---- */

/* Append a step to the round that is made. Steps that move nothing are left out, but for BARRIER
 * and those of a barrier and of an all_to_all of uneven parts. */
void tt_plan_add(tt_plan_t *plan, tt_step_t step);

/* For a plan that is listed: the following steps are of this round. Rounds come in order. */
void tt_plan_open_round(tt_plan_t *plan, int round);

/* Rounds that repeat, at most TT_PLAN_LOOPS times; within a round, what began earlier (the later
 * phases) is added first. */
void tt_plan_add_loop(tt_plan_t *plan, tt_plan_loop_t loop);

/* Zeroed memory that goes with the plan; NULL on failure. */
void *tt_plan_alloc(tt_plan_t *plan, size_t count, size_t bytes);

/* A sum over nodes, in order: they tile a node of the tree, or, if the sum is finished, all leaves
 * up to the end of the last one. Returns its number, -1 on failure. */
int tt_plan_add_sum(tt_plan_t *plan, const tt_plan_term_t *terms, int count, bool is_partial);

/* The same over the first `count` terms of an earlier sum, each of one leaf; shares its sources. */
int tt_plan_add_prefix_sum(tt_plan_t *plan, int whole, int count, bool is_partial);

/* A sum over anything, from left to right, which is not canonical by itself. */
int tt_plan_add_plain_sum(tt_plan_t *plan, const tt_source_t *sources, int count, bool is_partial);

/* The pieces of ranks [begin, end), in order of leaves, as terms. Returns how many. */
int tt_plan_piece_terms(const tt_plan_t *plan, int begin, int end, tt_plan_term_t *terms);

/* Room for `count` more elements of a scratch, sum or bounce buffer; returns where it begins. */
size_t tt_plan_reserve(tt_plan_t *plan, tt_buffer_t buffer, size_t count);

/* One line per step. Returns the length that the whole text has (it may have been cut). */
size_t tt_plan_print(const tt_plan_t *plan, char *text, size_t text_bytes);

/* All ranks' plans as a picture (SVG): ranks side by side, rounds from top to bottom, messages as
 * arrows, reads and writes of local ranks' memory as broken arrows. `hosts` as in the
 * request; at most TT_DRAW_RANKS ranks and TT_DRAW_ROUNDS rounds are shown. Returns the length of
 * the whole text; 0 without memory. */
enum { TT_DRAW_RANKS = 64, TT_DRAW_ROUNDS = 64 };
size_t tt_plan_draw(tt_plan_t *const *plans, const int *hosts, char *text, size_t text_bytes);

#endif
