/* gather and scatter along a binomial tree: the rank v places behind the root deals with the parts
 * of places [v, v + lowest bit of v). A rank that has parts of others keeps them in its scratch, in
 * the order of places; the parts of ranks that end and begin the group again are two messages.
 *
 *     gather    round k: v, whose lowest bit is 2^k, sends what it has to v - 2^k
 *     scatter   in reverse order: round i is for k = L - 1 - i
 */
#include "comm/algorithm/tree_plans.h"

typedef struct {
    tt_plan_t *plan;
    const tt_plan_request_t *request;
    bool is_gather;
    int place, end; /* it deals with places [place, end) */
} place_t;

static int end_of(int size, int place)
{
    const int lowest = place & -place;
    return place == 0 || place + lowest > size ? size : place + lowest;
}

static int rank_at(const place_t *p, int place)
{
    return (place + p->plan->root) % p->plan->size;
}

static bool is_leaf(const place_t *p)
{
    return p->end - p->place == 1;
}

/* The parts of places [begin, end), together. */
static size_t total(const place_t *p, int begin, int end)
{
    tt_slice_t parts[2] = {{0}};
    const int runs =
        begin < end ? tt_plan_wrapped_parts(p->request, rank_at(p, begin), end - begin, parts) : 0;
    return runs > 0 ? parts[0].count + parts[1].count : 0;
}

/* Messages between me and `peer` for the parts of places [begin, end), which lie in the whole
 * buffer if I am the root, else in scratch; a leaf has nothing but its own. */
static void move(const place_t *p, tt_step_kind_t kind, int peer, int begin, int end)
{
    size_t at = total(p, p->place, begin);
    tt_slice_t parts[2];
    const int runs = tt_plan_wrapped_parts(p->request, rank_at(p, begin), end - begin, parts);
    for (int i = 0; i < runs; i++) {
        const tt_buffer_t buffer = p->place != 0 && !is_leaf(p)      ? TT_BUFFER_SCRATCH
                                   : (p->place == 0) == p->is_gather ? TT_BUFFER_OUT
                                                                     : TT_BUFFER_PIECE;
        const tt_part_t mine = tt_part_at(buffer, p->place == 0 ? parts[i].begin
                                                  : is_leaf(p)  ? 0
                                                                : at);
        (kind == TT_STEP_SEND ? tt_plan_send : tt_plan_recv)(p->plan, rank_at(p, peer), mine,
                                                             parts[i].count);
        at += parts[i].count;
    }
}

static void keep_own(const place_t *p)
{
    const tt_slice_t own = tt_plan_part(p->request, p->plan->rank);
    const tt_part_t piece = tt_piece_at(0, p->place == 0 && !p->is_gather ? own.begin : 0);
    const tt_part_t out = tt_out_at(p->place == 0 && p->is_gather ? own.begin : 0);
    const tt_part_t scratch = tt_part_at(TT_BUFFER_SCRATCH, 0);
    if (p->place == 0) {
        tt_plan_copy(p->plan, piece, out, own.count);
    } else if (!is_leaf(p)) {
        tt_plan_reserve(p->plan, TT_BUFFER_SCRATCH, total(p, p->place, p->end));
        tt_plan_copy(p->plan, p->is_gather ? piece : scratch, p->is_gather ? scratch : out,
                     own.count);
    }
}

void tt_tree_list_parts(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const bool is_gather = plan->collective == TT_GATHER;
    const int levels = tt_log2_ceil(plan->size), place = tt_plan_place(plan);
    const place_t p = {plan, request, is_gather, place, end_of(plan->size, place)};
    for (int round = 0; round < levels; round++) {
        const int step = 1 << (is_gather ? round : levels - 1 - round), child = place + step;
        tt_plan_open_round(plan, round);
        if (step == 1) {
            keep_own(&p);
        }
        if ((place & (2 * step - 1)) == step) {
            move(&p, is_gather ? TT_STEP_SEND : TT_STEP_RECV, place - step, place, p.end);
        } else if ((place & (2 * step - 1)) == 0 && child < plan->size) {
            move(&p, is_gather ? TT_STEP_RECV : TT_STEP_SEND, child, child,
                 end_of(plan->size, child));
        }
    }
}
