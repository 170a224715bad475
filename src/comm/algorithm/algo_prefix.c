/* prefix: scan and exscan. Rank r's result is the canonical tree over the pieces of ranks 0 ... r
 * (scan) or 0 ... r - 1 (exscan; rank 0 has none, and its out is not touched).
 *
 * On one host, in place: rank s owns slice s of the vector, in all memories. It stores the results
 * of the last rank first, then those of the one before it, and so on: in a call in place these
 * overwrite pieces that no later result needs. No other rank touches the slice, so that none waits.
 *
 *     round 0    slice s of pieces 0 1 2 3  ->  out of rank 3
 *     round 1    slice s of pieces 0 1 2    ->  out of rank 2
 *     round 2    slice s of pieces 0 1      ->  out of rank 1
 *     round 3    slice s of piece  0        ->  out of rank 0
 *
 * By messages, between hosts and where memory is foreign, chunk c goes through
 *
 *     round c      every rank sends slice j of its piece to owner j
 *     round c + 1  the owner adds up every rank's result of its slice, unfinished (16-bit floats
 *                  in f32)
 *     round c + 2  it sends each to its rank, and finishes its own
 *     round c + 3  the rank finishes what it got: AVG divides, 16-bit floats are rounded
 *
 * Cost: in place, every rank reads slices of N / size elements, size (size + 1) / 2 of them; by
 * messages, every rank sends 2 N (size - 1) / size elements, as in an all_reduce. Source: Tutti.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/plan_gets.h"
#include "core/base/alloc.h"

/* What is received in one round is used in the next one, while the next chunk arrives. */
enum { CHUNK = 256 << 10, SLOTS = 2 };

static bool is_in_place(const tt_plan_request_t *request)
{
    return request->hosts == NULL && !request->is_staged;
}

/* Ranks whose pieces are needed: of an exscan the last one's is not. */
static int givers(const tt_plan_request_t *request)
{
    return tt_plan_contributors(request, request->size - 1);
}

/* The lowest rank that has a result; it is that of one piece. */
static int first_result(const tt_plan_request_t *request)
{
    return request->collective == TT_EXSCAN;
}

/* Sums: over all pieces, which is only there to be shared; the results of all ranks; and by
 * messages that which finishes a result. */
enum { SUM_WHOLE, SUM_RESULTS };

typedef struct {
    tt_cut_t cut;
    size_t slice;  /* the longest that this rank owns of any chunk */
    size_t pieces; /* of the scratch buffer, for a chunk: a slice of every rank's piece */
    size_t
        results;  /* of the sum buffer, for a chunk: a slice of every rank's result, then `taken` */
    size_t taken; /* where a chunk of this rank's own result is collected */
    int finish;
} state_t;

static int sum_of(const tt_plan_request_t *request, int rank)
{
    return SUM_RESULTS + rank - first_result(request);
}

static void add_results_of_all(tt_plan_t *plan, const tt_plan_request_t *request, bool is_partial)
{
    for (int rank = first_result(request); rank < plan->size; rank++) {
        const int count = tt_plan_contributors(request, rank);
        (void)tt_plan_add_prefix_sum(plan, SUM_WHOLE, count, is_partial);
    }
}

/* ---- in place ---- */

static void prepare_in_place(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const bool owns = tt_plan_slice(plan->count, plan->size, plan->rank).count > 0;
    if (owns && tt_plan_sum_pieces(plan, request, givers(request)) >= 0) {
        add_results_of_all(plan, request, false);
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = givers(request)});
}

/* The last rank's result is chunk 0. */
static void add_in_place(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const tt_slice_t slice = tt_plan_slice(plan->count, plan->size, plan->rank);
    const int rank = plan->size - 1 - c;
    tt_plan_reduce(
        plan,
        (tt_sum_at_t){
            .sum = sum_of(request, rank), .piece = slice.begin, .to = TT_TO_PEER, .peer = rank},
        tt_out_at(slice.begin), slice.count);
}

/* ---- by messages ---- */

/* Where a rank's result of my slice is, and where my result of an owner's slice is. */
static size_t result_at(const state_t *s, int rank, int c)
{
    return (size_t)(c % SLOTS) * s->results + s->slice * (size_t)rank;
}

static size_t taken_at(const state_t *s, tt_slice_t slice, int c)
{
    return (size_t)(c % SLOTS) * s->results + s->taken + slice.begin - s->cut.chunk * (size_t)c;
}

static void exchange_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const state_t *s = plan->state;
    const size_t mine = tt_cut_owned(&s->cut, plan->rank, c).count;
    for (int i = 1; i < plan->size && plan->rank < givers(request); i++) {
        const int peer = tt_plan_peer(plan, i);
        const tt_slice_t slice = tt_cut_owned(&s->cut, peer, c);
        tt_plan_send(plan, peer, tt_piece_at(0, slice.begin), slice.count);
    }
    for (int peer = 0; peer < givers(request); peer++) {
        const size_t at = (size_t)(c % SLOTS) * s->pieces + s->slice * (size_t)peer;
        if (peer != plan->rank) {
            tt_plan_recv(plan, peer, tt_part_at(TT_BUFFER_SCRATCH, at), mine);
        }
    }
}

static void add_results(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    const size_t shift = (size_t)(c % SLOTS) * s->pieces;
    for (int rank = first_result(request); rank < plan->size; rank++) {
        tt_plan_reduce(plan, (tt_sum_at_t){sum_of(request, rank), mine.begin, shift, TT_TO_ME, 0},
                       tt_part_at(TT_BUFFER_SUM, result_at(s, rank, c)), mine.count);
    }
}

/* My result of a slice, which lies at `from` in the sum buffer. */
static void finish_slice(tt_plan_t *plan, size_t from, tt_slice_t slice)
{
    const state_t *s = plan->state;
    tt_plan_reduce(plan, (tt_sum_at_t){.sum = s->finish, .shift = from}, tt_out_at(slice.begin),
                   slice.count);
}

static void exchange_results(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const state_t *s = plan->state;
    const tt_slice_t mine = tt_cut_owned(&s->cut, plan->rank, c);
    for (int i = 1; i < plan->size; i++) {
        const int peer = tt_plan_peer(plan, i);
        if (peer >= first_result(request)) {
            tt_plan_send(plan, peer, tt_part_at(TT_BUFFER_SUM, result_at(s, peer, c)), mine.count);
        }
    }
    if (plan->rank < first_result(request)) {
        return;
    }
    finish_slice(plan, result_at(s, plan->rank, c), mine);
    for (int i = 1; i < plan->size; i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        tt_plan_recv(plan, tt_plan_peer(plan, i), tt_part_at(TT_BUFFER_SUM, taken_at(s, slice, c)),
                     slice.count);
    }
}

static void finish_results(tt_plan_t *plan, const tt_plan_request_t *request, int c)
{
    const state_t *s = plan->state;
    for (int i = 1; i < plan->size && plan->rank >= first_result(request); i++) {
        const tt_slice_t slice = tt_cut_owned(&s->cut, tt_plan_peer(plan, i), c);
        finish_slice(plan, taken_at(s, slice, c), slice);
    }
}

/* Over my piece and what is received of the others'. */
static void add_whole(tt_plan_t *plan, const tt_plan_request_t *request, const state_t *s)
{
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, givers(request), &count);
    for (int rank = 0; terms != NULL && rank < count; rank++) {
        if (rank != plan->rank) {
            terms[rank].source =
                (tt_source_t){plan->rank, tt_part_at(TT_BUFFER_SCRATCH, s->slice * (size_t)rank)};
        }
    }
    if (terms != NULL) {
        (void)tt_plan_add_sum(plan, terms, count, false);
        add_results_of_all(plan, request, true);
    }
    tt_free(terms);
}

static void prepare_messages(tt_plan_t *plan, const tt_plan_request_t *request)
{
    state_t *s = plan->state;
    s->cut = tt_cut_vector(request, CHUNK);
    s->slice = tt_cut_longest(&s->cut, plan->rank);
    s->pieces = s->taken = s->slice * (size_t)plan->size;
    s->results = s->taken + s->cut.chunk;
    const size_t slots = (size_t)(s->cut.chunks < SLOTS ? s->cut.chunks : SLOTS);
    tt_plan_reserve(plan, TT_BUFFER_SCRATCH, slots * s->pieces);
    tt_plan_reserve(plan, TT_BUFFER_SUM, slots * s->results);
    if (s->slice > 0) {
        add_whole(plan, request, s);
    }
    const tt_leaves_t leaves = {0, tt_plan_contributors(request, plan->rank)};
    if (leaves.end > 0) {
        const tt_plan_term_t result = {leaves, {plan->rank, tt_part_at(TT_BUFFER_SUM, 0)}};
        s->finish = tt_plan_add_sum(plan, &result, 1, false);
    }
    tt_plan_add_loop(plan, (tt_plan_loop_t){.chunks = s->cut.chunks, .last = 3});
}

static void prepare_prefix(tt_plan_t *plan, const tt_plan_request_t *request)
{
    (is_in_place(request) ? prepare_in_place : prepare_messages)(plan, request);
}

static void add_phase(tt_plan_t *plan, const tt_plan_request_t *request, tt_plan_at_t at)
{
    static void (*const phases[])(tt_plan_t *, const tt_plan_request_t *, int) = {
        exchange_pieces, add_results, exchange_results, finish_results};
    (is_in_place(request) ? add_in_place : phases[at.phase])(plan, request, at.chunk);
}

static bool fits_prefix(const tt_plan_request_t *request)
{
    return tt_collective_is_prefix(request->collective) && tt_plan_can_sum(request);
}

const tt_algorithm_t tt_algorithm_prefix = {
    .name = "prefix",
    .about = "scan: the owner of a slice adds up every rank's result of it by the tree",
    .source = "Tutti",
    .is_canonical = true,
    .shares_memory = true,
    .fits = fits_prefix,
    .prepare = prepare_prefix,
    .phase = add_phase,
    .state_bytes = sizeof(state_t),
};
