/* Which hooks there are, and which one DDP has (reducer_hook.c). */
#include <tutti/ddp.h>

#include <string.h>

#include "parallel/ddp/ddp_impl.h"

const tutti_ddp_hook_ops_t *const *tutti_ddp_hooks(void)
{
    static const tutti_ddp_hook_ops_t *const hooks[] = {
#define X(table) &table,
#include "parallel/ddp/hooks.def"
#undef X
        NULL,
    };
    return hooks;
}

const tutti_ddp_hook_ops_t *tutti_ddp_hook_find(const char *name)
{
    const tutti_ddp_hook_ops_t *const *at = tutti_ddp_hooks();
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at++;
    }
    return *at;
}

const char *tutti_ddp_hook_name(const tutti_ddp_t *ddp)
{
    return ddp->reducer->hook != NULL ? ddp->reducer->hook->name : "contributions";
}

tutti_status_t tutti_ddp_set_hook(tutti_ddp_t *ddp, const tutti_ddp_hook_ops_t *hook,
                                  const void *options)
{
    if (ddp->step.phase != TT_DDP_BETWEEN_STEPS) {
        return TT_FAIL(TUTTI_ERR_STATE, "ddp: set_hook in the middle of a step");
    }
    if (hook != NULL && hook->start == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "ddp: set_hook: hook %s has no start", hook->name);
    }
    if (hook != NULL && ddp->options.stage > 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: hook %s leaves all averages on every rank: it wants options.stage 0",
                       hook->name);
    }
    if (hook != NULL && ddp->options.uneven != TUTTI_DDP_EVEN) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "ddp: hook %s averages over shards, not over what they weigh: it wants "
                       "options.uneven TUTTI_DDP_EVEN",
                       hook->name);
    }
    return tt_reducer_set_hook(ddp->reducer, hook, options);
}
