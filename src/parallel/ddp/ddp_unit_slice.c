/* Where slices of units are: this rank's tensor of each flat, and the cuts of all ranks'. */
#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"

bool tt_ddp_has_units(const tutti_ddp_t *ddp)
{
    return ddp->options.stage >= 3;
}

bool tt_ddp_has_store(const tutti_ddp_t *ddp)
{
    return ddp->options.offload != NULL && tt_ddp_has_units(ddp);
}

const int64_t *tt_ddp_unit_cuts(const tutti_ddp_t *ddp, int flat)
{
    const int buckets = ddp->reducer->plan.bucket_count;
    return flat < buckets ? ddp->reducer->buckets[flat].cuts
                          : ddp->units.cuts[2 * (flat - buckets)];
}

tutti_tensor_t *tt_ddp_unit_slice(const tutti_ddp_t *ddp, int flat)
{
    return ddp->units.rows.rows > 1 ? ddp->units.rows.slices[flat]
           : tt_ddp_has_store(ddp)  ? ddp->units.store.values[flat]
                                    : ddp->units.source.flats[flat].own;
}
