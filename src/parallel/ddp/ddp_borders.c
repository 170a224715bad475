/* Modules that compute in f32 under mixed precision (options.f32_kinds): their parameters are no
 * 16-bit copies, and what crosses their border is cast there; so is what the root gives
 * (options.f32_output).
 *
 *     16 bits ── before_forward ──> f32   all in the module   f32 ── after_forward ──> 16 bits
 *
 * In a step alone: between two, all modules compute in f32.
 *
 * Source: PyTorch's FSDP, MixedPrecision(_module_classes_to_ignore, output_dtype).
 */
#include <tutti/op_shape.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

/* ---- casts ----------------------------------------------------------------------------------- */

static bool is_on(const tt_ddp_border_t *border)
{
    return border->is_always || border->ddp->step.phase != TT_DDP_BETWEEN_STEPS;
}

static void cast_all(tutti_scope_t *s, tutti_tensor_t **tensors, int count, tutti_dtype_t dtype)
{
    for (int i = 0; i < count; i++) {
        const tutti_tensor_t *x = tensors[i];
        if (x != NULL && tutti_tensor_status(x) >= 0 && tutti_dtype_is_float(x->dtype) &&
            x->dtype != dtype) {
            tensors[i] = tutti_cast(s, tensors[i], dtype);
        }
    }
}

static tutti_status_t cast_inputs(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    const tt_ddp_border_t *border = user;
    if (is_on(border) && border->casts_inputs) {
        cast_all(s, call->inputs, call->input_count, TUTTI_F32);
    }
    return TUTTI_OK; /* a failure is the scope's */
}

static tutti_status_t cast_outputs(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    const tt_ddp_border_t *border = user;
    if (is_on(border)) {
        cast_all(s, call->outputs, call->output_count, border->outside);
    }
    return TUTTI_OK;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static tutti_status_t add_border(tutti_ddp_t *ddp, tt_ddp_border_t border)
{
    tt_ddp_borders_t *all = &ddp->borders;
    for (int i = 0; i < all->count; i++) {
        if (all->borders[i].module == border.module &&
            all->borders[i].casts_inputs == border.casts_inputs) {
            return TUTTI_OK; /* it has two parents */
        }
    }
    tt_ddp_border_t *grown =
        tt_realloc(all->borders, (size_t)(all->count + 1) * sizeof *grown, "ddp borders");
    TT_TRY_ALLOC(grown);
    all->borders = grown;
    border.ddp = ddp;
    grown[all->count++] = border;
    return TUTTI_OK;
}

static bool is_chosen(const tutti_ddp_t *ddp, const tutti_module_t *m)
{
    for (int i = 0; i < ddp->options.f32_kind_count; i++) {
        if (tt_ddp_is_kind(ddp->options.f32_kinds[i], m->ops->name)) {
            return true;
        }
    }
    return false;
}

static tutti_status_t walk(tutti_ddp_t *ddp, tutti_module_t *m, bool is_inside)
{
    tt_ddp_borders_t *all = &ddp->borders;
    bool is_new;
    const bool begins = !is_inside && is_chosen(ddp, m);
    is_inside |= begins;
    if (begins && ddp->options.param_dtype != TUTTI_F32) {
        const bool stays = m == ddp->module && ddp->options.f32_output;
        const tutti_dtype_t outside = stays ? TUTTI_F32 : ddp->options.param_dtype;
        TT_TRY(add_border(
            ddp, (tt_ddp_border_t){.module = m, .casts_inputs = true, .outside = outside}));
    }
    for (size_t i = 0; i < m->slot_count; i++) {
        TT_TRY(tt_pointer_set_add(is_inside ? &all->inside : &all->outside, m->slots[i].tensor,
                                  &is_new));
    }
    for (size_t i = 0; i < m->child_count; i++) {
        TT_TRY(walk(ddp, m->children[i].module, is_inside));
    }
    return TUTTI_OK;
}

static tutti_status_t check_tensor(void *user, const char *name, tutti_tensor_t *x)
{
    const tutti_ddp_t *ddp = user;
    return tt_pointer_set_has(&ddp->borders.inside, x) &&
                   tt_pointer_set_has(&ddp->borders.outside, x) && !tt_ddp_is_ignored(ddp, x)
               ? TT_FAIL(TUTTI_ERR_ARG,
                         "ddp: options.f32_kinds: %s is in a module of these kinds, and in another "
                         "one that computes in %s: it cannot be both",
                         name, tutti_dtype_name(ddp->options.param_dtype))
               : TUTTI_OK;
}

typedef struct {
    const char *kind;
    bool is_there;
} search_t;

static tutti_status_t look_for_kind(void *user, const char *name, tutti_module_t *m)
{
    (void)name;
    search_t *search = user;
    search->is_there |= tt_ddp_is_kind(search->kind, m->ops->name);
    return TUTTI_OK;
}

static tutti_status_t check_kinds(const tutti_ddp_t *ddp)
{
    for (int i = 0; i < ddp->options.f32_kind_count; i++) {
        search_t search = {.kind = ddp->options.f32_kinds[i]};
        if (search.kind == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.f32_kinds: kind %d is NULL", i);
        }
        TT_TRY(tutti_module_apply(ddp->module, look_for_kind, &search));
        if (!search.is_there) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ddp: options.f32_kinds: no module of kind %s: "
                           "tutti_module_describe() says which there are",
                           search.kind);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_choose_borders(tutti_ddp_t *ddp)
{
    TT_TRY(check_kinds(ddp));
    if (ddp->options.f32_kind_count > 0) {
        TT_TRY(walk(ddp, ddp->module, false));
        TT_TRY(tutti_module_each_parameter(ddp->module, check_tensor, ddp));
    }
    return ddp->options.f32_output ? add_border(ddp, (tt_ddp_border_t){.module = ddp->module,
                                                                       .outside = TUTTI_F32,
                                                                       .is_always = true})
                                   : TUTTI_OK;
}

/* ---- for the others -------------------------------------------------------------------------- */

bool tt_ddp_stays_f32(const void *user, const tutti_tensor_t *x)
{
    const tutti_ddp_t *ddp = user;
    return tt_pointer_set_has(&ddp->borders.inside, x);
}

tutti_status_t tt_ddp_hook_borders(tutti_ddp_t *ddp)
{
    static const tutti_module_hooks_t hooks = {.before_forward = cast_inputs,
                                               .after_forward = cast_outputs};
    for (int i = 0; i < ddp->borders.count; i++) {
        tt_ddp_border_t *border = &ddp->borders.borders[i];
        TT_TRY(tutti_module_add_hooks(border->module, &hooks, border));
    }
    return TUTTI_OK;
}

void tt_ddp_close_borders(tutti_ddp_t *ddp)
{
    tt_ddp_borders_t *all = &ddp->borders;
    for (int i = 0; i < all->count; i++) {
        tutti_module_remove_hooks(all->borders[i].module, &all->borders[i]);
    }
    tt_pointer_set_release(&all->inside);
    tt_pointer_set_release(&all->outside);
    tt_free(all->borders);
}
