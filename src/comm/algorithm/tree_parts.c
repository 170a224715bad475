/* gather and scatter along a binomial tree: the rank v places behind the root deals with the parts
 * of places [v, v + lowest bit of v). Who has parts of others keeps them in its scratch, in the
 * order of places; the parts of ranks that end and begin the group again are two messages.
 *
 *     gather    round k: v, whose lowest bit is 2^k, sends what it has to v - 2^k
 *     scatter   the other way round: round i is for k = L - 1 - i
 */
#include "comm/algorithm/tree_plans.h"

typedef struct {
    tt_plan_t *plan;
    const tt_plan_request_t *request;
    int size, address, end; /* it deals with places [place, end) */
} place_t;

static int end_of(const tt_plan_request_t *request, int address)
{
    const int size = request->size, lowest = address & -address;
    return address == 0 || address + lowest > size ? size : address + lowest;
}

static place_t place_of(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int size = request->size, address = (request->rank - request->root + size) % size;
    return (place_t){plan, request, size, address, end_of(request, address)};
}

static int rank_at(const place_t *p, int address)
{
    return (address + p->request->root) % p->size;
}

static bool is_leaf(const place_t *p)
{
    return p->end - p->address == 1;
}

/* The parts of places [begin, end), together. */
static size_t total(const tt_plan_request_t *request, int begin, int end)
{
    size_t sum = 0;
    for (int address = begin; address < end; address++) {
        sum += tt_plan_part(request, (address + request->root) % request->size).count;
    }
    return sum;
}

/* Messages between me and `peer` for the parts of places [begin, end), which lie in `whole` if I am
 * the root, else in scratch; a leaf has nothing but its own. */
static void move(const place_t *p, tt_step_t step, int begin, int end)
{
    const bool is_gather = p->plan->collective == TT_GATHER;
    const tt_buffer_t whole = is_gather ? TT_BUFFER_OUT : TT_BUFFER_PIECE;
    const tt_buffer_t single = is_gather ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
    size_t at = total(p->request, p->address, begin);
    tt_slice_t parts[2];
    const int runs = tt_plan_wrapped_parts(p->request, rank_at(p, begin), end - begin, parts);
    for (int i = 0; i < runs; i++) {
        const tt_part_t mine = p->address == 0 ? tt_part_at(whole, parts[i].begin)
                               : is_leaf(p)    ? tt_part_at(single, 0)
                                               : tt_part_at(TT_BUFFER_SCRATCH, at);
        step.src = step.dst = mine;
        step.count = parts[i].count;
        tt_plan_add(p->plan, step);
        at += parts[i].count;
    }
}

static void keep_own(const place_t *p, int round)
{
    const bool is_gather = p->plan->collective == TT_GATHER;
    const tt_slice_t own = tt_plan_part(p->request, p->plan->rank);
    if (p->address == 0) {
        tt_plan_copy(p->plan, round, tt_piece_at(0, is_gather ? 0 : own.begin),
                     tt_part_at(TT_BUFFER_OUT, is_gather ? own.begin : 0), own.count);
    } else if (!is_leaf(p)) {
        tt_plan_reserve(p->plan, TT_BUFFER_SCRATCH, total(p->request, p->address, p->end));
        tt_plan_copy(
            p->plan, round, is_gather ? tt_piece_at(0, 0) : tt_part_at(TT_BUFFER_SCRATCH, 0),
            is_gather ? tt_part_at(TT_BUFFER_SCRATCH, 0) : tt_part_at(TT_BUFFER_OUT, 0), own.count);
    }
}

void tt_tree_plan_parts(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const bool is_gather = plan->collective == TT_GATHER;
    const tt_step_kind_t up = is_gather ? TT_STEP_SEND : TT_STEP_RECV;
    const tt_step_kind_t down = is_gather ? TT_STEP_RECV : TT_STEP_SEND;
    const int levels = tt_log2_ceil(request->size);
    const place_t p = place_of(plan, request);
    keep_own(&p, is_gather || levels == 0 ? 0 : levels - 1);
    for (int k = 0; k < levels; k++) {
        const int step = 1 << k, round = is_gather ? k : levels - 1 - k;
        if ((p.address & (2 * step - 1)) == step) {
            move(&p, (tt_step_t){.kind = up, .round = round, .peer = rank_at(&p, p.address - step)},
                 p.address, p.end);
        } else if ((p.address & (2 * step - 1)) == 0 && p.address + step < p.size) {
            const int child = p.address + step;
            move(&p, (tt_step_t){.kind = down, .round = round, .peer = rank_at(&p, child)}, child,
                 end_of(request, child));
        }
    }
}

tt_plan_cost_t tt_tree_parts_cost(const tt_plan_request_t *request)
{
    const int levels = tt_log2_ceil(request->size);
    tt_plan_cost_t cost = {.rounds = levels > 0 ? levels : 1};
    for (int address = 0; address < request->size; address++) {
        const int end = end_of(request, address);
        const bool is_gather = request->collective == TT_GATHER;
        const size_t sent = is_gather ? (address > 0 ? total(request, address, end) : 0)
                                      : total(request, address + 1, end);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}
