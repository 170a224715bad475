/* Cuts of a bucket. Cost: parameters plus ranks. */
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

void tt_slice_plan(const tt_slice_param_t *params, int count, int64_t numel, int ranks,
                   int64_t *cuts)
{
    int i = 0;
    for (int rank = 0; rank <= ranks; rank++) {
        const int64_t want =
            rank == ranks ? numel : numel / ranks * rank + numel % ranks * rank / ranks;
        while (i + 1 < count && params[i + 1].offset <= want) {
            i++;
        }
        cuts[rank] = rank == 0 ? 0
                     : rank == ranks
                         ? numel
                         : place_in(&params[i], i + 1 < count ? params[i + 1].offset : numel, want);
    }
}
