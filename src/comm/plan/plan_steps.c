/* What algorithms say their steps with: one function for each kind, and small pure functions of a
 * request. */
#include "comm/plan/plan_steps.h"

#include "core/base/alloc.h"

/* Ranks of a host count rounds up to 2^20 (tt_phase); calls with more get longer chunks. */
enum { CHUNKS_MAX = 1 << 19 };

void tt_plan_send(tt_plan_t *plan, int round, int peer, tt_part_t src, size_t count)
{
    tt_plan_add(
        plan, (tt_step_t){
                  .kind = TT_STEP_SEND, .round = round, .peer = peer, .src = src, .count = count});
}

void tt_plan_recv(tt_plan_t *plan, int round, int peer, tt_part_t dst, size_t count)
{
    tt_plan_add(
        plan, (tt_step_t){
                  .kind = TT_STEP_RECV, .round = round, .peer = peer, .dst = dst, .count = count});
}

void tt_plan_copy(tt_plan_t *plan, int round, tt_part_t src, tt_part_t dst, size_t count)
{
    tt_plan_add(
        plan,
        (tt_step_t){.kind = TT_STEP_COPY, .round = round, .src = src, .dst = dst, .count = count});
}

void tt_plan_get(tt_plan_t *plan, int round, tt_source_t src, tt_part_t dst, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_GET,
                                  .round = round,
                                  .peer = src.rank,
                                  .src = src.part,
                                  .dst = dst,
                                  .count = count});
}

void tt_plan_reduce(tt_plan_t *plan, int round, int sum, tt_part_t dst, size_t count)
{
    tt_plan_reduce_at(plan, round, (tt_sum_at_t){.sum = sum}, dst, count);
}

void tt_plan_reduce_at(tt_plan_t *plan, int round, tt_sum_at_t at, tt_part_t dst, size_t count)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_REDUCE,
                                  .round = round,
                                  .sum = at.sum,
                                  .src.offset = at.piece,
                                  .shift = at.shift,
                                  .dst = dst,
                                  .count = count});
}

void tt_plan_barrier(tt_plan_t *plan, int round)
{
    tt_plan_add(plan, (tt_step_t){.kind = TT_STEP_BARRIER, .round = round});
}

tt_plan_term_t *tt_plan_terms(tt_plan_t *plan, const tt_plan_request_t *request, int begin, int end,
                              int *count)
{
    *count = tt_plan_piece_terms(request, begin, end, TT_BUFFER_PIECE, 0, NULL);
    if (*count == 0 || plan->status < 0) {
        return NULL;
    }
    tt_plan_term_t *terms = tt_alloc_array((size_t)*count, sizeof *terms, "terms of a plan");
    if (terms == NULL) {
        plan->status = TUTTI_ERR_NOMEM;
        return NULL;
    }
    tt_plan_piece_terms(request, begin, end, TT_BUFFER_PIECE, 0, terms);
    return terms;
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

int tt_chunk_count(size_t count, size_t chunk)
{
    return (int)((count + chunk - 1) / chunk);
}

tt_slice_t tt_chunk(size_t count, size_t chunk, int index)
{
    const size_t begin = chunk * (size_t)index;
    if (begin >= count) {
        return (tt_slice_t){count, 0};
    }
    return (tt_slice_t){begin, count - begin < chunk ? count - begin : chunk};
}

size_t tt_chunk_elements(size_t count, size_t chunk)
{
    const size_t least = (count + CHUNKS_MAX - 1) / CHUNKS_MAX;
    return least > chunk ? least : chunk;
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

/* The parts of ranks [begin, end). */
static tt_slice_t parts(const tt_plan_request_t *request, int begin, int end)
{
    const tt_slice_t first = tt_plan_part(request, begin), last = tt_plan_part(request, end - 1);
    return (tt_slice_t){first.begin, last.begin + last.count - first.begin};
}

int tt_plan_wrapped_parts(const tt_plan_request_t *request, int begin, int count,
                          tt_slice_t slices[2])
{
    const int size = request->size;
    begin %= size;
    if (begin + count <= size) {
        slices[0] = parts(request, begin, begin + count);
        return 1;
    }
    slices[0] = parts(request, begin, size);
    slices[1] = parts(request, 0, begin + count - size);
    return 2;
}

bool tt_plan_is_aligned(const tt_plan_request_t *request)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    for (int block = 1; block <= request->size; block *= 2) {
        for (int rank = 0; rank + block <= request->size; rank += block) {
            if (!tt_tree_is_node(leaves, tt_plan_first_leaf(request, rank),
                                 tt_plan_first_leaf(request, rank + block))) {
                return false;
            }
        }
    }
    return true;
}

bool tt_plan_has_single_pieces(const tt_plan_request_t *request)
{
    for (int rank = 0; rank < request->size; rank++) {
        if (tt_plan_pieces_of(request, rank) != 1) {
            return false;
        }
    }
    return true;
}

int tt_plan_host_count(const tt_plan_request_t *request)
{
    int count = 0;
    for (int rank = 0; rank < request->size; rank++) {
        const int host = tt_plan_host(request, rank);
        count = host >= count ? host + 1 : count;
    }
    return count;
}
