/* What sources have in common: memory for the state, and wholes that are several ranks'. */
#include "parallel/ddp/unit_source.h"

#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
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

bool tt_unit_may_share(void)
{
    int64_t is_wanted = 0;
    return tt_config_int(TT_CONFIG_SHARED_PARAMETERS, 0, 1, &is_wanted) >= 0 && is_wanted == 1;
}

/* To be written: what others have stays as it is. */
tutti_status_t tt_unit_source_copy(tt_unit_source_t *source, const tutti_tensor_t *common,
                                   tutti_tensor_t **whole)
{
    TT_TRY(tt_tensor_new(NULL, common->dtype, common->shape, false, whole));
    memcpy(tt_tensor_data(*whole), tt_tensor_data(common), tutti_tensor_bytes(common));
    tt_unit_source_hold(source, tutti_tensor_bytes(*whole));
    return TUTTI_OK;
}

void tt_unit_source_drop(tt_unit_source_t *source, const tutti_tensor_t *common,
                         tutti_tensor_t **whole)
{
    if (*whole != NULL && (*whole)->storage != common->storage) {
        tt_unit_source_let_go(source, tutti_tensor_bytes(*whole)); /* a copy */
    }
    tutti_tensor_release(*whole);
    *whole = NULL;
}

void tt_unit_flat_text(const tt_unit_flat_t *flat, int index, tt_unit_kind_t kind, char *text)
{
    const bool is_root = flat->name == NULL || flat->name[0] == 0;
    snprintf(text, TT_UNIT_FLAT_TEXT_BYTES, "parameters of %s (flat %d%s)",
             is_root ? "the root unit" : flat->name, index,
             kind == TT_UNIT_COMPUTE ? ", as computed with" : "");
}
