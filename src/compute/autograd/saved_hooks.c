/* Hooks that pack what operations save, and unpack it for their backward: a keeper of sets. */
#include <tutti/autograd.h>
#include <tutti/modes.h>

#include "compute/autograd/node.h"
#include "core/base/alloc.h"

/* In place of a tensor. What was not packed stays in the set. */
typedef struct tt_packed {
    bool is_packed;
    void *data; /* the program's */
    tutti_spec_t spec;
    tt_device_t *place;          /* retained; NULL: the host */
    const tt_storage_t *storage; /* of the tensor; to be compared alone */
} packed_t;

typedef struct {
    tt_keeper_t keeper;
    tutti_saved_hooks_t hooks;
} hooks_t;

static const tutti_saved_hooks_t *hooks_of(const tt_keeper_t *keeper)
{
    return &((const hooks_t *)keeper)->hooks;
}

static void release_packed(const tutti_saved_hooks_t *hooks, packed_t *packed, int count)
{
    for (int i = 0; i < count; i++) {
        if (packed[i].is_packed && hooks->release != NULL) {
            hooks->release(packed[i].data, hooks->user);
        }
        tutti_device_release(packed[i].place);
    }
    tt_free(packed);
}

static tutti_status_t pack_all(const tutti_saved_hooks_t *hooks, tutti_scope_t *s,
                               const tt_saved_set_t *set, packed_t *packed)
{
    for (int i = 0; i < set->count; i++) {
        tutti_tensor_t *x = set->items[i].tensor;
        if (x == NULL || set->items[i].is_leaf) {
            continue;
        }
        packed[i].spec = (tutti_spec_t){x->dtype, x->shape};
        packed[i].place =
            x->storage->device == NULL ? NULL : tutti_device_retain(x->storage->device);
        packed[i].storage = x->storage;
        TT_TRY(hooks->pack(s, x, hooks->user, &packed[i].data));
        packed[i].is_packed = true;
        TT_TRY(tutti_scope_status(s));
    }
    return TUTTI_OK;
}

/* Calls a hook's operations in a scope of their own; nothing of them is recorded. */
typedef tutti_status_t (*inside_fn_t)(const tutti_saved_hooks_t *hooks, tutti_scope_t *s,
                                      const tt_saved_set_t *set, packed_t *packed);

static tutti_status_t call_inside(inside_fn_t function, const tt_keeper_t *keeper,
                                  tutti_scope_t *outer, const tt_saved_set_t *set, packed_t *packed)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open_inside(outer, &s));
    const bool was_enabled = tutti_context_set_grad_enabled(s->ctx, false);
    const tutti_dtype_t autocast = tutti_context_set_autocast(s->ctx, TUTTI_F32);
    const tutti_status_t status = function(hooks_of(keeper), s, set, packed);
    (void)tutti_context_set_autocast(s->ctx, autocast);
    (void)tutti_context_set_grad_enabled(s->ctx, was_enabled);
    if (status < 0) {
        (void)tutti_scope_fail(s, status);
    }
    return tutti_scope_close(s);
}

static void let_go(tt_saved_set_t *set)
{
    for (int i = 0; i < set->count; i++) {
        if (set->at.packed[i].is_packed) {
            tutti_tensor_release(set->items[i].tensor);
            set->items[i].tensor = NULL;
        }
    }
}

static void forget(tt_saved_set_t *set, const tt_run_t *run)
{
    if (set->run == run) {
        let_go(set);
    }
}

static tutti_status_t keep(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set)
{
    packed_t *packed = tt_alloc_array((size_t)set->count, sizeof *packed, "packed tensors");
    TT_TRY_ALLOC(packed);
    const tutti_status_t status = call_inside(pack_all, keeper, s, set, packed);
    if (status < 0) {
        release_packed(hooks_of(keeper), packed, set->count);
        return status;
    }
    set->at.packed = packed;
    let_go(set);
    return TUTTI_OK;
}

static tutti_status_t check_unpacked(const tutti_tensor_t *x, const packed_t *packed)
{
    char got[192], shape[160];
    const tutti_spec_t want = packed->spec;
    TT_TRY(tt_tensor_status(x));
    if (tutti_tensor_device(x) != packed->place) {
        return TT_FAIL(TUTTI_ERR_ARG, "a saved tensor was unpacked on %s, and was packed on %s",
                       tt_device_text(tutti_tensor_device(x)), tt_device_text(packed->place));
    }
    if (x->dtype == want.dtype && tutti_shape_equal(x->shape, want.shape)) {
        return TUTTI_OK;
    }
    return TT_FAIL(x->dtype != want.dtype ? TUTTI_ERR_DTYPE : TUTTI_ERR_SHAPE,
                   "a saved tensor was unpacked as %s, and was packed as %s%s",
                   tutti_tensor_describe(x, got, sizeof got), tutti_dtype_name(want.dtype),
                   tutti_shape_format(want.shape, shape, sizeof shape));
}

static tutti_status_t unpack_all(const tutti_saved_hooks_t *hooks, tutti_scope_t *s,
                                 const tt_saved_set_t *set, packed_t *packed)
{
    for (int i = 0; i < set->count; i++) {
        if (!packed[i].is_packed) {
            continue;
        }
        tutti_tensor_t *x = hooks->unpack(s, packed[i].data, hooks->user), *alias;
        TT_TRY(tutti_scope_status(s));
        if (x == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "a saved tensor was unpacked as NULL");
        }
        TT_TRY(check_unpacked(x, &packed[i]));
        TT_TRY(tt_tensor_alias(x, &alias));
        set->items[i].tensor = alias;
        set->items[i].version = alias->storage->version;
    }
    return TUTTI_OK;
}

static tutti_status_t restore(tt_keeper_t *keeper, tutti_scope_t *s, tt_saved_set_t *set)
{
    const tutti_status_t status = call_inside(unpack_all, keeper, s, set, set->at.packed);
    if (status < 0) {
        let_go(set);
        return status;
    }
    set->is_away = false;
    return TUTTI_OK;
}

/* Hooks may have kept the tensor itself. */
static bool reads(const tt_saved_set_t *set, tt_storage_t *const *storages, size_t count)
{
    for (int i = 0; i < set->count; i++) {
        for (size_t k = 0; k < count && set->at.packed[i].is_packed; k++) {
            if (set->at.packed[i].storage == storages[k]) {
                return true;
            }
        }
    }
    return false;
}

static void leave(tt_keeper_t *keeper, tt_saved_set_t *set)
{
    release_packed(hooks_of(keeper), set->at.packed, set->count);
}

static void destroy(tt_keeper_t *keeper)
{
    tt_free(keeper);
}

static const tt_keeper_ops_t ops = {.keep = keep,
                                    .restore = restore,
                                    .reads = reads,
                                    .forget = forget,
                                    .leave = leave,
                                    .destroy = destroy};

tutti_status_t tutti_saved_hooks_push(tutti_context_t *ctx, const tutti_saved_hooks_t *hooks)
{
    if (hooks == NULL || hooks->pack == NULL || hooks->unpack == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "saved_hooks_push: pack and unpack are both wanted");
    }
    hooks_t *own = tt_alloc(sizeof *own, "saved-tensor hooks");
    TT_TRY_ALLOC(own);
    tt_ref_init(&own->keeper.ref);
    own->keeper.ops = &ops;
    own->hooks = *hooks;
    tt_keeper_enter(ctx, &own->keeper);
    tt_keeper_release(&own->keeper); /* the context holds it, and the sets that it keeps */
    return TUTTI_OK;
}

tutti_status_t tutti_saved_hooks_pop(tutti_context_t *ctx)
{
    if (ctx->keeper == NULL || ctx->keeper->ops != &ops) {
        return TT_FAIL(TUTTI_ERR_STATE, "saved_hooks_pop: no hooks were pushed here");
    }
    tt_keeper_leave(ctx, ctx->keeper->outer);
    return TUTTI_OK;
}
