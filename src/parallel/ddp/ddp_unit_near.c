/* Units that stay near: from a unit's forward to its backward sets of ranks, usually those of a
 * host, keep it together, and backward gathers it among them alone (options.reshard_ranks,
 * decision 0051).
 *
 *     4 ranks, sets of 2      forward    | 0 | 1 | 2 | 3 |     slices, gathered from all
 *                             backward   | 0'  | 1'  |         parts, from ranks 0 and 1
 *                                        | 2'  | 3'  |         and from ranks 2 and 3
 *
 * Who keeps what, and gathers it, the source knows (unit_source.h); when, unit_turns.h.
 *
 * Cost: of N bytes of parameters in units each of k ranks has up to N / k more, behind the forward.
 * Source: Wang et al., "ZeRO++", 2023, arXiv 2306.10209, 3.2 (hierarchical partitioning).
 */
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"

static tutti_status_t check_alone(const tutti_ddp_options_t *o)
{
    if (o->reshard_ranks < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.reshard_ranks is %d: want 0, or more",
                       o->reshard_ranks);
    }
    if (o->reshard_ranks > 0 && o->stage < 3) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: options.reshard_ranks is %d at stage %d, where every rank has all "
                       "parameters: take stage 3, or 0",
                       o->reshard_ranks, o->stage);
    }
    return o->reshard_ranks <= 1 || !o->keep_after_forward
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "ddp: options.reshard_ranks is %d, and keep_after_forward keeps units "
                         "whole on each rank: take one of them",
                         o->reshard_ranks);
}

tutti_status_t tt_ddp_choose_near(tutti_ddp_t *ddp)
{
    tutti_ddp_options_t *o = &ddp->options;
    const tt_unit_rows_t *rows = &ddp->units.rows;
    const int size = rows->rows > 1 ? rows->size : tutti_group_size(ddp->group);
    TT_TRY(check_alone(o));
    if (o->reshard_ranks > 0 && size % o->reshard_ranks != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "ddp: options.reshard_ranks is %d, and %d ranks gather a unit: want a "
                       "divisor of %d, as many as a host has; or 0",
                       o->reshard_ranks, size, size);
    }
    o->keep_after_forward |= o->reshard_ranks == 1;
    ddp->units.near_ranks = o->reshard_ranks > 1 && o->reshard_ranks < size ? o->reshard_ranks : 0;
    return TUTTI_OK;
}
