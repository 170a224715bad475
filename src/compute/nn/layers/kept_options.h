/* For layers whose state is a copy of their options. */
#ifndef TT_KEPT_OPTIONS_H
#define TT_KEPT_OPTIONS_H

#include <string.h>

#include <tutti/nn.h>

#include "core/base/fail.h"

/* Zeros without options. Returns the state. */
static inline void *tt_keep_options(tutti_module_t *m, const void *options)
{
    void *state = tutti_module_state(m);
    if (options != NULL) {
        memcpy(state, options, tutti_module_kind(m)->state_bytes);
    }
    return state;
}

/* Whether a call has so many inputs and one output; else the scope has failed. */
static inline bool tt_is_call_of(tutti_scope_t *s, tutti_module_t *m, int wanted, int input_count,
                                 int output_count)
{
    if (input_count == wanted && output_count == 1) {
        return true;
    }
    (void)tutti_scope_fail(
        s, TT_FAIL(TUTTI_ERR_ARG, "%s takes %d tensors and gives one, not %d and %d",
                   tutti_module_kind(m)->name, wanted, input_count, output_count));
    return false;
}

#endif
