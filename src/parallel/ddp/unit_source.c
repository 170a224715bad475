/* What all sources have in common: memory for the state. */
#include "parallel/ddp/unit_source.h"

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"

tutti_status_t tt_unit_source_open(const tt_unit_source_ops_t *ops, tt_unit_source_t *source)
{
    source->state = tt_alloc(ops->state_bytes + 1, "unit source");
    if (source->state == NULL) {
        return tt_group_agree(source->group, TUTTI_ERR_NOMEM);
    }
    source->ops = ops;
    return ops->open(source);
}

void tt_unit_source_close(tt_unit_source_t *source)
{
    if (source->ops != NULL) {
        source->ops->close(source);
    }
    tt_free(source->state);
    source->ops = NULL;
    source->state = NULL;
}

void tt_unit_source_hold(tt_unit_source_t *source, size_t bytes)
{
    source->held_bytes += bytes;
    source->peak_held_bytes = tt_max_size(source->peak_held_bytes, source->held_bytes);
}

void tt_unit_source_let_go(tt_unit_source_t *source, size_t bytes)
{
    source->held_bytes -= bytes;
}
