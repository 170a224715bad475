/* Who takes what out of whose piece. */
#include "comm/algorithm/plan_gets.h"

#include "core/base/alloc.h"

bool tt_plan_can_sum(const tt_plan_request_t *request)
{
    return !tt_collective_is_prefix(request->collective) ||
           (request->first == NULL && (request->leaves == 0 || request->leaves == request->size));
}

int tt_plan_sum_pieces(tt_plan_t *plan, const tt_plan_request_t *request, int end)
{
    int count;
    tt_plan_term_t *terms = tt_plan_terms(plan, request, 0, end, &count);
    const int sum = terms != NULL ? tt_plan_add_sum(plan, terms, count, false) : -1;
    tt_free(terms);
    return sum;
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

void tt_plan_get_all(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const bool has_table = plan->collective == TT_ALL_TO_ALL && request->counts != NULL;
    for (int i = 0; i < plan->size && plan->collective != TT_BARRIER; i++) {
        /* start with my own, so that not all ranks read the same memory at once */
        const int peer = tt_plan_peer(plan, i);
        size_t at;
        const tt_slice_t part = tt_plan_wanted(request, plan->rank, peer, &at);
        const tt_part_t src = {TT_BUFFER_PIECE, has_table ? TT_FROM_TABLE : 0, part.begin};
        tt_plan_get(plan, (tt_source_t){peer, src}, tt_out_at(at), part.count);
    }
}
