/* Other values of units' parameters: slices are claimed, written, and published. */
#include <stdio.h>

#include "parallel/ddp/ddp_impl.h"
#include "parallel/ddp/ddp_units.h"

tutti_status_t tt_ddp_units_claim(tutti_ddp_t *ddp)
{
    tt_unit_source_t *source = &ddp->units.source;
    TT_TRY(tt_ddp_store_claim(ddp));
    return source->ops->claim != NULL ? source->ops->claim(source) : TUTTI_OK;
}

tutti_status_t tt_ddp_units_go(tutti_ddp_t *ddp)
{
    tutti_status_t status = TUTTI_OK;
    tt_unit_turns_let_go(&ddp->order.turns);
    for (int u = 0; u < ddp->units.count; u++) {
        for (tt_unit_kind_t kind = TT_UNIT_FULL; kind < TT_UNIT_KINDS; kind++) {
            const tutti_status_t one = tt_ddp_unit_leave(ddp, u, kind);
            status = status < 0 ? status : one;
        }
    }
    return status;
}

static tutti_status_t bring_kept(tutti_ddp_t *ddp)
{
    const int last = ddp->units.count - 1;
    return ddp->units.units[last].is_kept ? tt_ddp_unit_want(ddp, last) : TUTTI_OK;
}

tutti_status_t tt_ddp_units_show(tutti_ddp_t *ddp)
{
    tt_unit_source_t *source = &ddp->units.source;
    TT_TRY(tt_ddp_rows_publish(ddp));
    TT_TRY(source->ops->publish != NULL ? source->ops->publish(source) : TUTTI_OK);
    return bring_kept(ddp);
}

/* Whatever goes wrong before: others wait for this rank's slices. */
tutti_status_t tt_ddp_units_publish(tutti_ddp_t *ddp)
{
    char text[TT_ERROR_TEXT_BYTES];
    const tutti_status_t gone = tt_ddp_units_go(ddp);
    snprintf(text, sizeof text, "%s", gone < 0 ? tutti_last_error() : "");
    for (int i = 0; i < ddp->units.param_count; i++) {
        ddp->units.params[i].storages[TT_UNIT_FULL]->version++;
    }
    const tutti_status_t shown = tt_ddp_units_show(ddp);
    return gone < 0 ? tt_fail_again(gone, text) : shown;
}

tutti_status_t tt_ddp_check_units(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        const tt_unit_param_t *param = &ddp->units.params[i];
        if (param->tensor->storage != param->storages[TT_UNIT_FULL] &&
            param->tensor->storage != param->storages[TT_UNIT_COMPUTE]) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "ddp: parameter %s has other memory than when ddp was made: move and "
                           "cast the module before",
                           param->name);
        }
    }
    return TUTTI_OK;
}
