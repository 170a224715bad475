/* A module's hooks, for its call and its end. */
#ifndef TT_MODULE_HOOKS_H
#define TT_MODULE_HOOKS_H

#include "compute/nn/module_impl.h"

/* Before forward: inputs may be other tensors afterwards. After it: outputs may.
 * takes_grads: an input needs a gradient; leave is told what enter said.
 * status: how entry and forward went; the result is that, or a hook's failure. */
tutti_status_t tt_module_enter(tutti_scope_t *s, tutti_module_call_t *call, bool *takes_grads);
tutti_status_t tt_module_leave(tutti_scope_t *s, tutti_module_call_t *call, bool takes_grads,
                               tutti_status_t status);

#endif
