/* What algorithms describe their rounds with: one function for each kind of step, and small pure
 * functions of a request. */
#include "comm/plan/plan_steps.h"

#include "core/base/alloc.h"
#include "core/kernel/elementwise/combine.h"

/* Ranks of a host count rounds up to 2^20 (tt_phase); calls with more get longer chunks. */
enum { CHUNKS_MAX = 1 << 19 };

void tt_plan_send(tt_plan_t *plan, int peer, tt_part_t src, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_SEND, .peer = peer, .src = src, .count = count});
}

void tt_plan_recv(tt_plan_t *plan, int peer, tt_part_t dst, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_RECV, .peer = peer, .dst = dst, .count = count});
}

void tt_plan_copy(tt_plan_t *plan, tt_part_t src, tt_part_t dst, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_COPY, .src = src, .dst = dst, .count = count});
}

void tt_plan_get(tt_plan_t *plan, tt_source_t src, tt_part_t dst, size_t count)
{
    const tt_step_t step = {
        .kind = TT_STEP_GET, .peer = src.rank, .src = src.part, .dst = dst, .count = count};
    tt_plan_add(plan, step);
}

void tt_plan_reduce(tt_plan_t *plan, tt_sum_at_t at, tt_part_t dst, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .peer = at.peer,
                                  .sum = at.sum,
                                  .to = at.to,
                                  .src.offset = at.piece,
                                  .dst = dst,
                                  .count = count,
                                  .shift = at.shift});
}

static void meet(tt_plan_t *plan, int chunk)
{
    (void)chunk;
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_BARRIER});
}

void tt_plan_add_meets(tt_plan_t *plan, int begin, int end, int stride)
{
    tt_plan_add_loop(plan, (tt_plan_loop_t){.begin = begin,
                                            .chunks = (end - begin + stride - 1) / stride,
                                            .stride = stride,
                                            .phases = {meet}});
}

void tt_plan_add_pair(tt_plan_t *plan, int k, tt_part_t mine, tt_part_t theirs)
{
    const bool is_upper = (plan->rank >> k & 1) != 0;
    const tt_source_t pair[] = {{plan->rank, is_upper ? theirs : mine},
                                {plan->rank, is_upper ? mine : theirs}};
    (void)tt_plan_add_plain_sum(plan, pair, 2, 2 << k < plan->size);
}

void tt_plan_find_others(const tt_plan_t *plan, tt_others_t others, tt_plan_term_t *terms,
                         int count)
{
    const bool is_received = others.buffer == TT_BUFFER_SCRATCH;
    int received = 0;
    for (int i = 0; i < count && others.buffer != TT_BUFFER_PIECE; i++) {
        tt_source_t *source = &terms[i].source;
        if (source->rank != plan->rank) {
            const size_t index = (size_t)(is_received ? received++ : source->part.index);
            source->rank = is_received ? plan->rank : source->rank;
            source->part = tt_part_at(others.buffer, others.begin + others.stride * index);
        }
    }
}

int tt_plan_sum_pieces(tt_plan_t *plan, int end, tt_others_t others, bool is_partial)
{
    int count = 0, sum = -1;
    for (int rank = 0; rank < end; rank++) {
        count += plan->pieces_of[rank];
    }
    tt_plan_term_t *terms = tt_alloc_array((size_t)count, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
    } else if (count > 0) {
        tt_plan_find_others(plan, others, terms, tt_plan_piece_terms(plan, 0, end, terms));
        sum = tt_plan_add_sum(plan, terms, count, is_partial);
    }
    tt_free(terms);
    return sum;
}

/* Whether the node that ends at `left` and the one that begins at `right` are two children. */
static bool are_children(int leaves, tt_leaves_t left, tt_leaves_t right)
{
    return left.end == right.begin && tt_tree_is_node(leaves, left.begin, right.end);
}

int tt_plan_group_terms(int leaves, const tt_plan_term_t *terms, int count, int *ends)
{
    int groups = 0;
    for (int i = 0; i < count; i++) {
        ends[groups++] = i + 1;
        while (groups > 1) {
            const int begin = groups > 2 ? ends[groups - 3] : 0, mid = ends[groups - 2];
            const tt_leaves_t left = {terms[begin].leaves.begin, terms[mid - 1].leaves.end};
            const tt_leaves_t right = {terms[mid].leaves.begin, terms[i].leaves.end};
            if (!are_children(leaves, left, right)) {
                break;
            }
            ends[--groups - 1] = i + 1;
        }
    }
    return groups;
}

int tt_log2_ceil(int n)
{
    int log = 0;
    while (1 << log < n) {
        log++;
    }
    return log;
}

size_t tt_plan_all(const tt_plan_request_t *request)
{
    const tt_slice_t last = tt_plan_part(request, request->size - 1);
    return last.begin + last.count;
}

size_t tt_plan_part_max(const tt_plan_request_t *request)
{
    size_t most = request->counts == NULL ? request->count : 0;
    for (int rank = 0; request->counts != NULL && rank < request->size; rank++) {
        most = request->counts[rank] > most ? request->counts[rank] : most;
    }
    return most;
}

static tt_slice_t from_to(tt_slice_t first, tt_slice_t last)
{
    return (tt_slice_t){first.begin, last.begin + last.count - first.begin};
}

tt_slice_t tt_plan_parts(const tt_plan_request_t *request, int begin, int end)
{
    return from_to(tt_plan_part(request, begin), tt_plan_part(request, end - 1));
}

tt_slice_t tt_plan_slices(const tt_plan_request_t *request, int begin, int end)
{
    return from_to(tt_plan_slice(request->count, request->size, begin),
                   tt_plan_slice(request->count, request->size, end - 1));
}

int tt_plan_wrapped_parts(const tt_plan_request_t *request, int begin, int count,
                          tt_slice_t slices[2])
{
    const int size = request->size;
    begin %= size;
    if (begin + count <= size) {
        slices[0] = tt_plan_parts(request, begin, begin + count);
        return 1;
    }
    slices[0] = tt_plan_parts(request, begin, size);
    slices[1] = tt_plan_parts(request, 0, begin + count - size);
    return 2;
}

tt_slice_t tt_plan_wanted(const tt_plan_request_t *request, int rank, int peer, size_t *out_offset)
{
    const bool is_root = rank == request->root, is_from_root = peer == request->root;
    const tt_slice_t mine = tt_plan_part(request, rank), theirs = tt_plan_part(request, peer);
    *out_offset = 0;
    switch (request->collective) {
    case TT_ALL_GATHER:
        *out_offset = theirs.begin;
        return (tt_slice_t){0, theirs.count};
    case TT_GATHER:
        *out_offset = theirs.begin;
        return (tt_slice_t){0, is_root ? theirs.count : 0};
    case TT_BROADCAST:
        return (tt_slice_t){0, is_from_root ? request->count : 0};
    case TT_SCATTER:
        return (tt_slice_t){mine.begin, is_from_root ? mine.count : 0};
    case TT_ALL_TO_ALL: /* of uneven parts, where it begins is the peer's to know */
        *out_offset = tt_plan_recv_part(request, peer).begin;
        return (tt_slice_t){request->counts == NULL ? mine.begin : 0,
                            tt_plan_recv_part(request, peer).count};
    default:
        break;
    }
    return (tt_slice_t){0, 0};
}

tt_slice_t tt_plan_given(const tt_plan_request_t *request, int peer)
{
    size_t at;
    return request->collective == TT_ALL_TO_ALL ? tt_plan_part(request, peer)
                                                : tt_plan_wanted(request, peer, request->rank, &at);
}

static tt_cut_t cut(const tt_plan_request_t *request, size_t length, size_t chunk)
{
    const size_t least = (length + CHUNKS_MAX - 1) / CHUNKS_MAX;
    chunk = least > chunk ? least : chunk;
    chunk = (chunk / TT_COMBINE_GRAIN + (chunk % TT_COMBINE_GRAIN != 0)) * TT_COMBINE_GRAIN;
    tt_cut_t made = {.request = request, .chunk = chunk > 0 ? chunk : TT_COMBINE_GRAIN};
    made.chunk = length < made.chunk ? length : made.chunk;
    made.chunks = length > 0 ? (int)((length + made.chunk - 1) / made.chunk) : 0;
    return made;
}

tt_cut_t tt_cut_vector(const tt_plan_request_t *request, size_t chunk)
{
    return cut(request, request->count, chunk);
}

tt_cut_t tt_cut_parts(const tt_plan_request_t *request, size_t chunk)
{
    tt_cut_t made = cut(request, tt_plan_part_max(request), chunk);
    made.has_parts = true;
    return made;
}

tt_slice_t tt_cut_chunk(const tt_cut_t *cut, size_t count, int c)
{
    const size_t begin = cut->chunk * (size_t)c;
    if (begin >= count) {
        return (tt_slice_t){count, 0};
    }
    return (tt_slice_t){begin, count - begin < cut->chunk ? count - begin : cut->chunk};
}

tt_slice_t tt_cut_owned(const tt_cut_t *cut, int rank, int c)
{
    const tt_plan_request_t *request = cut->request;
    const tt_slice_t all =
        cut->has_parts ? tt_plan_part(request, rank) : (tt_slice_t){0, request->count};
    const tt_slice_t chunk = tt_cut_chunk(cut, all.count, c);
    const tt_slice_t own = cut->has_parts ? (tt_slice_t){0, chunk.count}
                                          : tt_plan_slice(chunk.count, request->size, rank);
    return (tt_slice_t){all.begin + chunk.begin + own.begin, own.count};
}

/* The last chunk is the only one of another length, and may be cut such that its last slices are
 * longer. */
size_t tt_cut_longest(const tt_cut_t *cut, int rank)
{
    const size_t first = tt_cut_owned(cut, rank, 0).count;
    const size_t last = cut->chunks > 0 ? tt_cut_owned(cut, rank, cut->chunks - 1).count : 0;
    return first > last ? first : last;
}

tt_slots_t tt_plan_reserve_slots(tt_plan_t *plan, const tt_cut_t *cut, tt_buffer_t buffer,
                                 size_t elements, int count)
{
    const tt_slots_t slots = {elements, cut->chunks < count ? cut->chunks : count};
    TT_ASSERT(tt_plan_reserve(plan, buffer, elements * (size_t)slots.count) == 0);
    return slots;
}
