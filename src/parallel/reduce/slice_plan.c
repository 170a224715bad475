/* Cuts of a bucket. Cost: parameters, and the ranks as often as the level falls. */
#include "parallel/reduce/slice_plan.h"

#include "core/base/integers.h"

static int64_t nearer(int64_t a, int64_t b, int64_t to)
{
    return to - a <= b - to ? a : b;
}

/* The place for a cut that is nearest to `want`, which is in [param, next parameter). */
static int64_t place_in(const tt_slice_param_t *param, int64_t end, int64_t want)
{
    if (param->grain == 0 || param->grain >= param->numel) {
        return nearer(param->offset, end, want);
    }
    const int64_t below = (want - param->offset) / param->grain * param->grain,
                  above = below + param->grain;
    const int64_t last = (param->numel - 1) / param->grain * param->grain;
    return below > last
               ? end
               : nearer(param->offset + below, above > last ? end : param->offset + above, want);
}

/* How ranks are filled up: so many have no more than the level, and `water` together, with what
 * comes. */
typedef struct {
    int64_t level, water;
    int count;
} filling_t;

/* Without those above the level it is lower, and perhaps others are above it then. */
static filling_t fill_up(const int64_t *totals, int ranks, int64_t numel)
{
    filling_t now = {.level = INT64_MAX, .count = -1}, before;
    do {
        before = now;
        now = (filling_t){.water = numel};
        for (int rank = 0; rank < ranks; rank++) {
            now.count += totals[rank] <= before.level;
            now.water += totals[rank] <= before.level ? totals[rank] : 0;
        }
        now.level = now.water / now.count;
    } while (now.count != before.count);
    return now;
}

/* Where a slice would end, if `count` ranks up to it are filled up that have so much. */
static int64_t want_end(const filling_t *filling, int64_t count, int64_t have)
{
    return filling->water / filling->count * count +
           filling->water % filling->count * count / filling->count - have;
}

void tt_slice_plan(const tt_slice_flat_t *flat, int ranks, int64_t *totals, int64_t *cuts)
{
    const filling_t filling = fill_up(totals, ranks, flat->numel);
    const tt_slice_param_t *params = flat->params;
    int64_t count = 0, have = 0;
    int i = 0;
    cuts[0] = 0;
    cuts[ranks] = flat->numel;
    for (int rank = 1; rank < ranks; rank++) {
        const bool is_filled_up = totals[rank - 1] <= filling.level;
        count += is_filled_up;
        have += is_filled_up ? totals[rank - 1] : 0;
        const int64_t want = want_end(&filling, count, have);
        while (i + 1 < flat->count && params[i + 1].offset <= want) {
            i++;
        }
        cuts[rank] =
            place_in(&params[i], i + 1 < flat->count ? params[i + 1].offset : flat->numel, want);
    }
    for (int rank = 0; rank < ranks; rank++) {
        totals[rank] += cuts[rank + 1] - cuts[rank];
    }
}
