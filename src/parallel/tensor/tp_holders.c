/* Who holds parameters: modules that no style is for compute with whole parameters, of whole
 * activations. One that has a part of either would give wrong gradients without a word. */
#include "parallel/tensor/tp_item.h"

#include <tutti/autograd.h>

#include <string.h>

/* Who cuts a parameter, of the items that do. */
static const tt_tp_item_t *cutter_of(const tt_tp_plan_t *plan, const tutti_tensor_t *x,
                                     const char **name)
{
    for (size_t i = 0; i < plan->count; i++) {
        const tt_tp_item_t *item = &plan->items[i];
        for (int k = 0; k < item->parameter_count; k++) {
            if (item->parameters[k].tensor == x && item->parameters[k].dim >= 0) {
                *name = item->parameters[k].name;
                return item;
            }
        }
    }
    return NULL;
}

/* Whether m knows how its parameters lie: it is cut, now or before, or computes what every rank
 * has. */
static bool knows_parts(const tt_tp_plan_t *plan, const tutti_module_t *m)
{
    for (size_t i = 0; i < plan->count; i++) {
        if (plan->items[i].m == m && plan->items[i].rule.style <= TUTTI_PARALLEL_SEQUENCE) {
            return true;
        }
    }
    return tt_tp_is_cut(m);
}

/* Whether the input of a module of that name was made whole by a rule, here or above. */
static bool has_whole_input(const tt_tp_plan_t *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++) {
        const tt_tp_item_t *item = &plan->items[i];
        const size_t length = strlen(item->name);
        if (item->rule.style == TUTTI_PARALLEL_INPUT &&
            item->rule.how.to.kind == TUTTI_PLACEMENT_REPLICATE &&
            strncmp(name, item->name, length) == 0 &&
            (length == 0 || name[length] == 0 || name[length] == '.')) {
            return true;
        }
    }
    return false;
}

static tutti_status_t check_holder(const tt_tp_plan_t *plan, const char *name, const char *slot,
                                   const tutti_tensor_t *x)
{
    const char *cut = NULL, *dot = *name != 0 ? "." : "";
    const tt_tp_item_t *cutter = cutter_of(plan, x, &cut);
    if (cutter != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "parallelize: %s%s%s is %s.%s, which is to be cut, but no rule is for the "
                       "module that shares it: give that one a style, too",
                       name, dot, slot, cutter->name, cut);
    }
    if (x->spread != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "parallelize: %s%s%s was cut by an earlier call, as another module's: cut "
                       "modules that share a parameter by one call",
                       name, dot, slot);
    }
    return TUTTI_OK;
}

/* A module that no style is for computes with whole parameters, and of whole activations. */
static tutti_status_t check_module(void *user, const char *name, tutti_module_t *m)
{
    const tt_tp_plan_t *plan = user;
    if (knows_parts(plan, m)) {
        return TUTTI_OK;
    }
    for (size_t i = 0; i < m->slot_count; i++) {
        const tt_slot_t *slot = &m->slots[i];
        TT_TRY(slot->is_buffer ? TUTTI_OK : check_holder(plan, name, slot->name, slot->tensor));
        if (!slot->is_buffer && plan->is_sequence_cut && tutti_tensor_requires_grad(slot->tensor) &&
            !has_whole_input(plan, name)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "parallelize: no rule is for %s%s%s, whose gradient would be of this "
                           "rank's part of the sequence: give it %s",
                           name, *name != 0 ? "." : "", slot->name,
                           tt_tp_style_takes(TUTTI_PARALLEL_SEQUENCE, m)
                               ? "the style sequence"
                               : "a style, or make its input whole by the style input");
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_tp_plan_check(tutti_module_t *m, tt_tp_plan_t *plan)
{
    return tutti_module_apply(m, check_module, plan);
}
