/* What the log says of a save. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "runtime/checkpoint/saving.h"

uint64_t tt_saving_bytes(const tt_saving_t *save, int rank)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < save->plan->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &save->plan->tensors[i];
        for (size_t k = 0; k < tensor->slice_count; k++) {
            if (rank == TT_ALL_RANKS || tensor->slices[k].rank == rank) {
                bytes += (uint64_t)tt_box_numel(&tensor->slices[k].box) *
                         tutti_dtype_bytes(tensor->dtype);
            }
        }
    }
    return bytes;
}

void tt_saving_log(const tt_saving_t *save)
{
    char bytes[TT_UNITS_TEXT_BYTES], took[TT_UNITS_TEXT_BYTES], held[TT_UNITS_TEXT_BYTES];
    if (save->rank != 0) {
        return;
    }
    tt_units_bytes(tt_saving_bytes(save, TT_ALL_RANKS), bytes);
    tt_units_seconds((double)(tt_clock_ns() - save->begin_ns) / (double)TT_NS_PER_S, took);
    tt_units_seconds((double)save->held_ns / (double)TT_NS_PER_S, held);
    tt_log(TT_LOG_INFO, "checkpoint of step %lld: %s in %s%s%s%s", (long long)save->step, bytes,
           took, save->held_ns > 0 ? ", " : "", save->held_ns > 0 ? held : "",
           save->held_ns > 0 ? " of it in the step" : "");
}
