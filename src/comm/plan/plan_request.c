/* What a request says: names, lengths of pieces and results, parts, hosts, leaves, slices. */
#include "comm/plan/plan.h"
#include "core/kernel/combine.h"

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

size_t tt_plan_piece_elements(const tt_plan_request_t *request)
{
    const size_t part = request->counts != NULL ? request->counts[request->rank] : request->count;
    const size_t all = sum_parts(request->counts, request->count, request->size);
    if (request->collective == TT_SCATTER && request->rank != request->root) {
        return 0;
    }
    switch (request->collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return piece_elements;
#include "comm/plan/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    return 0;
}

size_t tt_plan_out_elements(const tt_plan_request_t *request)
{
    const bool is_exchange = request->collective == TT_ALL_TO_ALL && request->counts != NULL;
    const size_t *counts = is_exchange ? request->recv_counts : request->counts;
    const size_t part = counts != NULL ? counts[request->rank] : request->count;
    const size_t all = sum_parts(counts, request->count, request->size);
    if ((request->collective == TT_REDUCE || request->collective == TT_GATHER) &&
        request->rank != request->root) {
        return 0;
    }
    switch (request->collective) {
#define X(identifier, name, reduces, piece_elements, out_elements)                                 \
    case TT_##identifier:                                                                          \
        return out_elements;
#include "comm/plan/collectives.def"
#undef X
    case TT_COLLECTIVE_COUNT:
        break;
    }
    return 0;
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

int tt_plan_first_leaf(const tt_plan_request_t *request, int rank)
{
    if (request->first != NULL) {
        return request->first[rank];
    }
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return tt_tree_first_leaf(leaves, request->size, rank);
}

tt_slice_t tt_plan_slice(size_t count, int size, int rank)
{
    const size_t even = (count + (size_t)size - 1) / (size_t)size;
    const size_t grains = (even + SLICE_GRAIN - 1) / SLICE_GRAIN * SLICE_GRAIN;
    const size_t begin = grains * (size_t)rank < count ? grains * (size_t)rank : count;
    const size_t left = count - begin;
    return (tt_slice_t){begin, grains < left ? grains : left};
}

int tt_plan_pieces_of(const tt_plan_request_t *request, int rank)
{
    const int leaves = request->leaves > 0 ? request->leaves : request->size;
    return tt_tree_pieces(leaves, tt_plan_first_leaf(request, rank),
                          tt_plan_first_leaf(request, rank + 1), NULL);
}
