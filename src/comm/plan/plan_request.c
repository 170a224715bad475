/* What a request says: lengths of pieces and results, parts, hosts, leaves, slices; and whether an
 * algorithm can do it. */
#include "comm/plan/plan.h"
#include "core/kernel/elementwise/combine.h"

enum { SLICE_GRAIN = 64 };
_Static_assert(SLICE_GRAIN % TT_COMBINE_GRAIN == 0, "elements of several numbers stay whole");

int tt_plan_contributors(const tt_plan_request_t *request, int rank)
{
    return request->collective == TT_SCAN     ? rank + 1
           : request->collective == TT_EXSCAN ? rank
                                              : request->size;
}

/* Parts of all ranks together, after `counts`. */
static size_t sum_parts(const size_t *counts, size_t count, int size)
{
    size_t sum = 0;
    for (int i = 0; counts != NULL && i < size; i++) {
        sum += counts[i];
    }
    return counts != NULL ? sum : count * (size_t)size;
}

/* Elements of the piece, or of the result, of a rank that has one. */
static size_t elements_of(const tt_plan_request_t *request, bool is_out)
{
    enum { part = 1, all }; /* as collectives.def says; else nothing */
    static const unsigned char kinds[][2] = {
#define X(identifier, name, reduces, piece_elements, out_elements) {piece_elements, out_elements},
#include "comm/plan/collectives.def"
#undef X
    };
    const bool takes = is_out && request->collective == TT_ALL_TO_ALL && request->counts != NULL;
    const size_t *counts = takes ? request->recv_counts : request->counts;
    switch (kinds[request->collective][is_out]) {
    case part:
        return counts != NULL ? counts[request->rank] : request->count;
    case all:
        return sum_parts(counts, request->count, request->size);
    default:
        return 0;
    }
}

size_t tt_plan_piece_elements(const tt_plan_request_t *request)
{
    const bool has_none = request->collective == TT_SCATTER && request->rank != request->root;
    return has_none ? 0 : elements_of(request, false);
}

size_t tt_plan_out_elements(const tt_plan_request_t *request)
{
    const bool is_to_root = request->collective == TT_REDUCE || request->collective == TT_GATHER;
    return is_to_root && request->rank != request->root ? 0 : elements_of(request, true);
}

/* Some of `counts` (NULL: all are `count`), which begin at `begins`, if that has been laid out. */
static tt_slice_t part_of(const size_t *counts, const size_t *begins, size_t count, int rank)
{
    if (counts == NULL) {
        return (tt_slice_t){count * (size_t)rank, count};
    }
    return (tt_slice_t){begins != NULL ? begins[rank] : sum_parts(counts, 0, rank), counts[rank]};
}

tt_slice_t tt_plan_part(const tt_plan_request_t *request, int rank)
{
    return part_of(request->counts, request->begins, request->count, rank);
}

tt_slice_t tt_plan_recv_part(const tt_plan_request_t *request, int rank)
{
    return part_of(request->counts != NULL ? request->recv_counts : NULL, request->recv_begins,
                   request->count, rank);
}

int tt_plan_host(const tt_plan_request_t *request, int rank)
{
    return request->hosts != NULL ? request->hosts[rank] : 0;
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

static int leaves_of(const tt_plan_request_t *request)
{
    return request->leaves > 0 ? request->leaves : request->size;
}

int tt_plan_first_leaf(const tt_plan_request_t *request, int rank)
{
    return request->first != NULL ? request->first[rank]
                                  : tt_tree_first_leaf(leaves_of(request), request->size, rank);
}

int tt_plan_nodes(const tt_plan_request_t *request, int begin, int end, tt_leaves_t *nodes)
{
    return tt_tree_pieces(leaves_of(request), tt_plan_first_leaf(request, begin),
                          tt_plan_first_leaf(request, end), nodes);
}

tt_slice_t tt_plan_slice(size_t count, int size, int rank)
{
    const size_t even = (count + (size_t)size - 1) / (size_t)size;
    const size_t grains = (even + SLICE_GRAIN - 1) / SLICE_GRAIN * SLICE_GRAIN;
    const size_t begin = grains * (size_t)rank < count ? grains * (size_t)rank : count;
    const size_t left = count - begin;
    return (tt_slice_t){begin, grains < left ? grains : left};
}

/* ---- what algorithms need ---- */

static bool has_aligned_leaves(const tt_plan_request_t *request)
{
    for (int block = 1; block <= request->size; block *= 2) {
        for (int rank = 0; rank + block <= request->size; rank += block) {
            if (!tt_tree_is_node(leaves_of(request), tt_plan_first_leaf(request, rank),
                                 tt_plan_first_leaf(request, rank + block))) {
                return false;
            }
        }
    }
    return true;
}

static bool has_single_pieces(const tt_plan_request_t *request)
{
    for (int rank = 0; rank < request->size; rank++) {
        if (tt_plan_pieces_of(request, rank) != 1) {
            return false;
        }
    }
    return true;
}

bool tt_algorithm_fits(const tt_algorithm_t *algorithm, const tt_plan_request_t *request)
{
    const tt_collective_t collective = request->collective;
    const bool adds = tt_collective_reduces(collective);
    const bool has_leaf_each =
        request->first == NULL && (request->leaves == 0 || request->leaves == request->size);
    const bool is_even = collective != TT_ALL_TO_ALL || request->counts == NULL;
    return (algorithm->collectives >> collective & 1) != 0 &&
           (!request->is_staged || algorithm->may_be_staged) &&
           (!algorithm->needs_one_host || request->hosts == NULL) &&
           (!algorithm->needs_hosts || tt_plan_host_count(request) > 1) &&
           (!algorithm->needs_several_ranks || request->size > 1) &&
           (!algorithm->needs_power_of_two || (request->size & (request->size - 1)) == 0) &&
           (!algorithm->needs_even_exchange || is_even) &&
           (!algorithm->needs_aligned_leaves || !adds || has_aligned_leaves(request)) &&
           (!algorithm->needs_single_pieces || !adds || has_single_pieces(request)) &&
           (!tt_collective_is_prefix(collective) || has_leaf_each);
}
