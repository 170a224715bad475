/* staged: ranks of one host whose memory the others cannot reach. Chunk by chunk, everyone copies
 * what others need of its piece into a stage in the shared heap; stages are small enough to stay in
 * the cache. Three things go on in a round, on three chunks, and then all mates meet:
 *
 *     round 2k    fill   chunk k:     piece -> my stage
 *                 reduce chunk k - 1: my slice of it, out of all stages -> my out and stage_out
 *                 fetch  chunk k - 2: the others' slices, out of their stage_outs -> my out
 *     round 2k+1  meet
 *
 *     all_reduce      as above; rank r owns slice r of each chunk
 *     reduce          the root alone fetches
 *     reduce_scatter  a chunk is a chunk of every part; the owner reduces into its out
 *     all_gather, gather, broadcast, scatter, all_to_all
 *                     fetch follows fill
 *
 * Stages hold two chunks by turns: what is filled in one round is read in the next.
 * Cost of an all_reduce over 2 ranks: 2 N copied and N read from the other in all, in cache.
 *
 * Source: Tutti; copy-in copy-out as in XHC (Katevenis et al.), DeepSpeed's shared-memory
 * all_reduce, in chunks.
 */
#include "comm/coll/plan.h"
#include "core/base/alloc.h"

enum { STAGE_ELEMENTS = 48 << 10, CHUNK_MIN = 1 << 10 };

typedef struct {
    tt_plan_t *plan;
    const tt_plan_request_t *request;
    size_t chunk;    /* elements of a part, or of the whole of an all_reduce, that go at once */
    size_t length;   /* of the longest part */
    int regions;     /* chunks that a stage holds for one turn: one per piece or per rank */
    size_t stage[2]; /* where each turn begins */
    size_t stage_out[2];
} staged_t;

static bool is_sliced(const tt_plan_request_t *request)
{
    return request->collective == TT_ALL_REDUCE || request->collective == TT_REDUCE;
}

/* A region for each rank, of which each holds that rank's part. */
static bool has_region_per_rank(const tt_plan_request_t *request)
{
    return request->collective == TT_REDUCE_SCATTER || request->collective == TT_SCATTER ||
           request->collective == TT_ALL_TO_ALL;
}

static size_t longest_part(const tt_plan_request_t *request)
{
    size_t longest = request->counts == NULL ? request->count : 0;
    for (int i = 0; request->counts != NULL && i < request->size; i++) {
        longest = request->counts[i] > longest ? request->counts[i] : longest;
    }
    return longest;
}

static int most_pieces(const tt_plan_request_t *request)
{
    int most = 1;
    for (int i = 0; tt_collective_reduces(request->collective) && i < request->size; i++) {
        const int pieces = tt_plan_pieces_of(request, i);
        most = pieces > most ? pieces : most;
    }
    return most;
}

/* The same on every rank. */
static staged_t lay_out(tt_plan_t *plan, const tt_plan_request_t *request)
{
    staged_t s = {.plan = plan, .request = request, .length = longest_part(request)};
    s.regions = most_pieces(request) * (has_region_per_rank(request) ? request->size : 1);
    const size_t even = STAGE_ELEMENTS / (size_t)s.regions / 64 * 64;
    s.chunk = even > CHUNK_MIN ? even : CHUNK_MIN;
    return s;
}

static int chunk_count(const staged_t *s)
{
    return (int)((s->length + s->chunk - 1) / s->chunk);
}

/* Chunk k of a part. */
static tt_slice_t chunk_of(const staged_t *s, tt_slice_t part, int k)
{
    const size_t begin = s->chunk * (size_t)k;
    if (begin >= part.count) {
        return (tt_slice_t){part.begin, 0};
    }
    const size_t left = part.count - begin;
    return (tt_slice_t){part.begin + begin, left < s->chunk ? left : s->chunk};
}

static tt_slice_t whole(const staged_t *s)
{
    return (tt_slice_t){0, s->request->count};
}

/* Where region i of chunk k lies in a stage. */
static size_t region(const staged_t *s, int k, int i)
{
    return s->stage[k % 2] + s->chunk * (size_t)i;
}

static void copy(const staged_t *s, int round, tt_part_t src, tt_part_t dst, size_t count)
{
    tt_plan_add(
        s->plan,
        (tt_step_t){.kind = TT_STEP_COPY, .round = round, .src = src, .dst = dst, .count = count});
}

static void pull(const staged_t *s, int round, int peer, tt_part_t src, tt_part_t dst, size_t count)
{
    tt_plan_add(s->plan, (tt_step_t){.kind = TT_STEP_PULL,
                                     .round = round,
                                     .peer = peer,
                                     .src = src,
                                     .dst = dst,
                                     .count = count});
}

/* ---- reductions ---- */

/* What rank reduces of chunk k, as offsets into pieces; and where it lies within the chunk. */
static tt_slice_t share_of(const staged_t *s, int rank, int k, size_t *within)
{
    if (!is_sliced(s->request)) {
        *within = 0;
        return chunk_of(s, tt_plan_part(s->request, rank), k);
    }
    const tt_slice_t chunk = chunk_of(s, whole(s), k);
    const tt_slice_t slice = tt_plan_slice(chunk.count, s->request->size, rank);
    *within = slice.begin;
    return (tt_slice_t){chunk.begin + slice.begin, slice.count};
}

/* The region of a rank's stage that has what `owner` reduces of the rank's piece. */
static size_t term_at(const staged_t *s, int k, int piece, int owner)
{
    const int size = has_region_per_rank(s->request) ? s->request->size : 1;
    return region(s, k, piece * size + (size > 1 ? owner : 0));
}

static void fill_pieces(const staged_t *s, int round, int k)
{
    const int rank = s->request->rank;
    for (int piece = 0; piece < s->plan->pieces_of[rank]; piece++) {
        for (int peer = 0; peer < s->request->size; peer++) {
            size_t within;
            const tt_slice_t share = share_of(s, peer, k, &within);
            if (peer != rank) {
                copy(s, round, (tt_part_t){TT_BUFFER_PIECE, piece, share.begin},
                     (tt_part_t){TT_BUFFER_STAGE, 0, term_at(s, k, piece, peer) + within},
                     share.count);
            }
        }
    }
}

/* My own pieces are read where they are. Returns the sum, -1 without memory. */
static int add_terms(const staged_t *s, int k, tt_slice_t share, size_t within)
{
    const tt_plan_request_t *request = s->request;
    const int count = tt_plan_piece_terms(request, 0, request->size, TT_BUFFER_PIECE, 0, NULL);
    tt_plan_term_t *terms = tt_alloc_array((size_t)count, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        s->plan->status = TUTTI_ERR_NOMEM;
        return -1;
    }
    tt_plan_piece_terms(request, 0, request->size, TT_BUFFER_PIECE, 0, terms);
    for (int i = 0; i < count; i++) {
        tt_part_t *part = &terms[i].source.part;
        if (terms[i].source.rank == request->rank) {
            part->offset = share.begin;
        } else {
            const size_t at = term_at(s, k, part->index, request->rank);
            *part = (tt_part_t){TT_BUFFER_STAGE, 0, at + within};
        }
    }
    const int sum = tt_plan_add_sum(s->plan, terms, count, false);
    tt_free(terms);
    return sum;
}

static void reduce_chunk(const staged_t *s, int round, int k)
{
    size_t within;
    const tt_plan_request_t *request = s->request;
    const tt_slice_t share = share_of(s, request->rank, k, &within);
    if (share.count == 0) {
        return;
    }
    const bool keeps = request->collective != TT_REDUCE || request->rank == request->root;
    const bool is_shared = is_sliced(request) && !(request->collective == TT_REDUCE && keeps);
    const tt_part_t out = {TT_BUFFER_OUT, 0,
                           is_sliced(request) ? share.begin : s->chunk * (size_t)k};
    const tt_part_t shown = {TT_BUFFER_STAGE_OUT, 0, s->stage_out[k % 2] + within};
    tt_plan_add(s->plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                     .round = round,
                                     .dst = is_shared ? shown : out,
                                     .count = share.count,
                                     .sum = add_terms(s, k, share, within)});
}

/* Results of chunk k that lie in stage_outs, my own among them. */
static void fetch_results(const staged_t *s, int round, int k)
{
    const tt_plan_request_t *request = s->request;
    const bool is_reduce = request->collective == TT_REDUCE;
    if (is_reduce && request->rank != request->root) {
        return;
    }
    for (int i = 0; i < request->size; i++) {
        const int peer = (request->rank + i) % request->size;
        size_t within;
        const tt_slice_t share = share_of(s, peer, k, &within);
        const tt_part_t from = {TT_BUFFER_STAGE_OUT, 0, s->stage_out[k % 2] + within};
        if (!is_reduce || peer != request->rank) {
            pull(s, round, peer, from, (tt_part_t){TT_BUFFER_OUT, 0, share.begin}, share.count);
        }
    }
}

/* ---- what only moves ---- */

static bool gives(const tt_plan_request_t *request, int rank)
{
    return (request->collective != TT_BROADCAST && request->collective != TT_SCATTER) ||
           rank == request->root;
}

static bool takes(const tt_plan_request_t *request, int rank)
{
    return request->collective != TT_GATHER || rank == request->root;
}

/* What `from` gives to `to`, as offsets into from's piece. */
static tt_slice_t given(const staged_t *s, int from, int to)
{
    const tt_plan_request_t *request = s->request;
    if (has_region_per_rank(request)) {
        return tt_plan_part(request, to);
    }
    return (tt_slice_t){0, request->collective == TT_BROADCAST ? request->count
                                                               : tt_plan_part(request, from).count};
}

/* Where it belongs in to's out. */
static size_t taken_at(const tt_plan_request_t *request, int from)
{
    const bool is_alone = request->collective == TT_BROADCAST || request->collective == TT_SCATTER;
    return is_alone ? 0 : tt_plan_recv_part(request, from).begin;
}

static size_t gathered_at(const tt_plan_request_t *request, int from)
{
    const bool is_gather = request->collective == TT_ALL_GATHER || request->collective == TT_GATHER;
    return is_gather ? tt_plan_part(request, from).begin : taken_at(request, from);
}

static void fill_parts(const staged_t *s, int round, int k)
{
    const tt_plan_request_t *request = s->request;
    const bool is_each = has_region_per_rank(request);
    for (int peer = 0; gives(request, request->rank) && peer < (is_each ? request->size : 1);
         peer++) {
        const tt_slice_t part = chunk_of(s, given(s, request->rank, peer), k);
        if (!is_each || peer != request->rank) {
            copy(s, round, (tt_part_t){TT_BUFFER_PIECE, 0, part.begin},
                 (tt_part_t){TT_BUFFER_STAGE, 0, region(s, k, is_each ? peer : 0)}, part.count);
        }
    }
}

static void fetch_parts(const staged_t *s, int round, int k)
{
    const tt_plan_request_t *request = s->request;
    const int rank = request->rank;
    for (int i = 0; takes(request, rank) && i < request->size; i++) {
        const int peer = (rank + i) % request->size;
        const tt_slice_t part = chunk_of(s, given(s, peer, rank), k);
        const tt_part_t dst = {TT_BUFFER_OUT, 0, gathered_at(request, peer) + s->chunk * (size_t)k};
        const int at = has_region_per_rank(request) ? rank : 0;
        if (!gives(request, peer)) {
            continue;
        }
        if (peer == rank) {
            copy(s, round, (tt_part_t){TT_BUFFER_PIECE, 0, part.begin}, dst, part.count);
        } else {
            pull(s, round, peer, (tt_part_t){TT_BUFFER_STAGE, 0, region(s, k, at)}, dst,
                 part.count);
        }
    }
}

/* ---- the rounds ---- */

static void plan_rounds(const staged_t *s)
{
    const bool is_reduction = tt_collective_reduces(s->request->collective);
    const int phases = is_sliced(s->request) ? 3 : 2, chunks = chunk_count(s);
    for (int k = 0; chunks > 0 && k < chunks + phases - 1; k++) {
        const int round = 2 * k;
        if (k < chunks) {
            (is_reduction ? fill_pieces : fill_parts)(s, round, k);
        }
        if (k >= 1 && k - 1 < chunks) {
            (is_reduction ? reduce_chunk : fetch_parts)(s, round, k - 1);
        }
        if (k >= 2 && phases == 3) {
            fetch_results(s, round, k - 2);
        }
        if (k < chunks + phases - 2) {
            tt_plan_add(s->plan, (tt_step_t){.kind = TT_STEP_MEET, .round = round + 1});
        }
    }
}

static void plan_staged(tt_plan_t *plan, const tt_plan_request_t *request)
{
    staged_t s = lay_out(plan, request);
    for (int turn = 0; turn < 2 && s.length > 0; turn++) {
        s.stage[turn] = tt_plan_reserve(plan, TT_BUFFER_STAGE, s.chunk * (size_t)s.regions);
        if (is_sliced(request)) {
            s.stage_out[turn] = tt_plan_reserve(plan, TT_BUFFER_STAGE_OUT, s.chunk);
        }
    }
    plan_rounds(&s);
}

/* The ranks could not know how many chunks an uneven all_to_all has. */
static bool fits_staged(const tt_plan_request_t *request)
{
    return request->hosts == NULL && request->is_staged && request->collective != TT_BARRIER &&
           !(request->collective == TT_ALL_TO_ALL && request->counts != NULL);
}

static size_t read_by(const staged_t *s, int rank)
{
    const tt_plan_request_t *request = s->request;
    size_t read = 0, within;
    for (int k = 0; k < chunk_count(s); k++) {
        for (int peer = 0; peer < request->size; peer++) {
            if (peer == rank) {
                continue;
            }
            if (!tt_collective_reduces(request->collective)) {
                const bool moves = takes(request, rank) && gives(request, peer);
                tt_slice_t part = {0, 0};
                if (moves) {
                    part = chunk_of(s,
                                    has_region_per_rank(request) ? tt_plan_part(request, rank)
                                                                 : given(s, peer, rank),
                                    k);
                }
                read += part.count;
                continue;
            }
            read += share_of(s, rank, k, &within).count * (size_t)tt_plan_pieces_of(request, peer);
            const bool fetches = request->collective == TT_ALL_REDUCE ||
                                 (request->collective == TT_REDUCE && rank == request->root);
            read += fetches ? share_of(s, peer, k, &within).count : 0;
        }
    }
    return read;
}

static tt_plan_cost_t cost_staged(const tt_plan_request_t *request)
{
    const staged_t s = lay_out(NULL, request);
    const int phases = is_sliced(request) ? 3 : 2, chunks = chunk_count(&s);
    tt_plan_cost_t cost = {.rounds = chunks > 0 ? 2 * (chunks + phases - 1) - 1 : 0};
    for (int rank = 0; rank < request->size; rank++) {
        const size_t read = read_by(&s, rank);
        cost.read = read > cost.read ? read : cost.read;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_staged = {
    .name = "staged",
    .about = "memory that others cannot reach: in chunks through stages that stay in the cache",
    .source = "Tutti; copy-in copy-out of XHC and DeepSpeed",
    .is_canonical = true,
    .needs_one_host = true,
    .shares_memory = true,
    .fits = fits_staged,
    .plan = plan_staged,
    .cost = cost_staged,
};
