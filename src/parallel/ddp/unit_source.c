/* What all sources have in common: memory for the state. */
#include "parallel/ddp/unit_source.h"

#include "comm/group/agree.h"
#include "core/base/alloc.h"

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
