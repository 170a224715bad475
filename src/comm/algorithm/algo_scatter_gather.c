/* scatter_gather: a broadcast of long vectors. The root's slices go down a binomial tree, v being
 * the place behind the root; then everyone passes slices on to the next place, until all have all.
 *
 *     round i             v, a multiple of 2^(k + 1), sends slices [v + 2^k, ...) to v + 2^k, where
 *                         k = L - 1 - i and L = ceil(log2(size))
 *     round L + s         v sends slice v - s to v + 1 and receives slice v - s - 1; the root, who
 *                         has all, receives nothing
 *
 * Cost: L + size - 1 rounds; the root sends about 2 N. Source: van de Geijn's broadcast, after
 * Thakur, Rabenseifner, Gropp 2005.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan_steps.h"

/* Slices [begin, end), together. */
static tt_slice_t slices(const tt_plan_request_t *request, int begin, int end)
{
    const tt_slice_t first = tt_plan_slice(request->count, request->size, begin);
    const tt_slice_t last = tt_plan_slice(request->count, request->size, end - 1);
    return (tt_slice_t){first.begin, last.begin + last.count - first.begin};
}

static int clip(int address, int size)
{
    return address < size ? address : size;
}

static void scatter(tt_plan_t *plan, const tt_plan_request_t *request, int address)
{
    const int size = request->size, levels = tt_log2_ceil(size);
    const tt_buffer_t from = address == 0 ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
    for (int i = 0; i < levels; i++) {
        const int step = 1 << (levels - 1 - i), at = address % (2 * step);
        if (at == 0 && address + step < size) {
            const tt_slice_t part = slices(request, address + step, clip(address + 2 * step, size));
            tt_plan_send(plan, i, (plan->rank + step) % size, tt_part_at(from, part.begin),
                         part.count);
        } else if (at == step) {
            const tt_slice_t part = slices(request, address, clip(address + step, size));
            tt_plan_recv(plan, i, (plan->rank - step + size) % size,
                         tt_part_at(TT_BUFFER_OUT, part.begin), part.count);
        }
    }
}

static void pass_on(tt_plan_t *plan, const tt_plan_request_t *request, int address)
{
    const int size = request->size, first = tt_log2_ceil(size);
    const tt_buffer_t from = address == 0 ? TT_BUFFER_PIECE : TT_BUFFER_OUT;
    for (int s = 0; s < size - 1; s++) {
        const tt_slice_t mine = tt_plan_slice(request->count, size, (address - s + size) % size);
        const tt_slice_t next =
            tt_plan_slice(request->count, size, (address - s - 1 + size) % size);
        if (address < size - 1) {
            tt_plan_send(plan, first + s, (plan->rank + 1) % size, tt_part_at(from, mine.begin),
                         mine.count);
        }
        if (address > 0) {
            tt_plan_recv(plan, first + s, (plan->rank - 1 + size) % size,
                         tt_part_at(TT_BUFFER_OUT, next.begin), next.count);
        }
    }
}

static void plan_scatter_gather(tt_plan_t *plan, const tt_plan_request_t *request)
{
    const int address = (plan->rank - plan->root + request->size) % request->size;
    if (address == 0) {
        tt_plan_copy(plan, 0, tt_piece_at(0, 0), tt_part_at(TT_BUFFER_OUT, 0), plan->count);
    }
    scatter(plan, request, address);
    pass_on(plan, request, address);
}

static bool fits_scatter_gather(const tt_plan_request_t *request)
{
    return request->collective == TT_BROADCAST && !request->is_staged;
}

static size_t sent_by(const tt_plan_request_t *request, int address)
{
    const int size = request->size;
    const int subtree = address == 0 ? size : address & -address;
    const int next = (address + 1) % size;
    size_t sent = 0;
    if (address + 1 < clip(address + subtree, size)) {
        sent += slices(request, address + 1, clip(address + subtree, size)).count;
    }
    if (address < size - 1) {
        sent += request->count - tt_plan_slice(request->count, size, next).count;
    }
    return sent;
}

static tt_plan_cost_t cost_scatter_gather(const tt_plan_request_t *request)
{
    const int size = request->size;
    tt_plan_cost_t cost = {.rounds = size > 1 ? tt_log2_ceil(size) + size - 1 : 1};
    for (int address = 0; address < size; address++) {
        const size_t sent = sent_by(request, address);
        cost.sent = sent > cost.sent ? sent : cost.sent;
    }
    return cost;
}

const tt_algorithm_t tt_algorithm_scatter_gather = {
    .name = "scatter_gather",
    .about = "a broadcast as scatter down a tree, then all_gather around a ring",
    .source = "Thakur, Rabenseifner, Gropp 2005",
    .is_canonical = true,
    .fits = fits_scatter_gather,
    .plan = plan_scatter_gather,
    .cost = cost_scatter_gather,
};
