/* Modules one after the other, called "0", "1", … */
#include <tutti/nn_layers.h>

#include <stdio.h>

#include <tutti/modes.h>

#include "compute/nn/module_impl.h"

typedef struct {
    bool recompute;
} sequential_t;

static void format_number(size_t number, char text[24])
{
    snprintf(text, 24, "%zu", number);
}

static tutti_status_t init(tutti_module_t *m, const void *options)
{
    const tutti_sequential_options_t *o = options;
    sequential_t *state = tutti_module_state(m);
    state->recompute = o != NULL && o->recompute;
    for (int i = 0; o != NULL && i < o->count; i++) {
        char name[24];
        format_number((size_t)i, name);
        TT_TRY(tutti_module_add_child(m, name, o->modules[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_sequential_add(tutti_module_t *sequential, const tutti_module_ops_t *ops,
                                    const void *options, tutti_module_t **out)
{
    TT_WANT("sequential_add", sequential);
    char name[24];
    format_number(sequential->child_count, name);
    return tutti_module_new_child(sequential, name, ops, options, out);
}

static tutti_tensor_t *forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const sequential_t *state = tutti_module_state(m);
    for (size_t i = 0; i < m->child_count; i++) {
        tutti_module_t *child = m->children[i].module;
        x = state->recompute ? tutti_recompute(s, child, x) : tutti_forward(s, child, x);
    }
    return x;
}

static bool chain(tutti_module_t *m, int place, tutti_chain_link_t *link)
{
    const sequential_t *state = tutti_module_state(m);
    if ((size_t)place >= m->child_count) {
        return false;
    }
    *link = (tutti_chain_link_t){.module = m->children[place].module,
                                 .is_recomputed = state->recompute};
    return true;
}

const tutti_module_ops_t tutti_sequential_layer = {
    .name = "sequential",
    .about = "modules one after the other",
    .state_bytes = sizeof(sequential_t),
    .init = init,
    .forward = forward,
    .chain = chain,
};
