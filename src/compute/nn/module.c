/* Modules: making, sharing, registering tensors and children. */
#include <tutti/nn.h>

#include <string.h>

#include "compute/nn/module_hooks.h"
#include "core/base/alloc.h"
#include "core/base/fnv.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t init_module(tutti_module_t *m, const void *options)
{
    m->state = tt_alloc(m->ops->state_bytes, "module state");
    TT_TRY_ALLOC(m->state);
    return m->ops->init == NULL ? TUTTI_OK : m->ops->init(m, options);
}

tutti_status_t tutti_module_create(tutti_context_t *ctx, const tutti_module_ops_t *ops,
                                   const void *options, tutti_module_t **out)
{
    TT_WANT("module_create", ctx);
    TT_WANT("module_create", ops);
    TT_WANT("module_create", out);
    tutti_module_t *m = tt_alloc(sizeof *m, "module");
    TT_TRY_ALLOC(m);
    tt_ref_init(&m->ref);
    m->ops = ops;
    m->ctx = tutti_context_retain(ctx);
    const tutti_status_t status = init_module(m, options);
    if (status < 0) {
        tutti_module_release(m);
        return status;
    }
    *out = m;
    return TUTTI_OK;
}

tutti_module_t *tutti_module_retain(tutti_module_t *m)
{
    tt_ref_retain(&m->ref);
    return m;
}

void tutti_module_release(tutti_module_t *m)
{
    if (m == NULL || !tt_ref_release(&m->ref)) {
        return;
    }
    if (m->state != NULL && m->ops->fini != NULL) {
        m->ops->fini(m);
    }
    for (size_t i = m->child_count; i-- > 0;) {
        tutti_module_release(m->children[i].module);
        tt_free(m->children[i].name);
    }
    for (size_t i = m->slot_count; i-- > 0;) {
        tutti_tensor_release(m->slots[i].tensor);
        tt_free(m->slots[i].name);
    }
    tt_pointer_set_release(&m->hashes);
    tt_hooks_free(&m->hooks);
    for (tt_module_cut_t *cut = m->cut, *next; cut != NULL; cut = next) {
        next = cut->next;
        cut->release(cut);
    }
    tt_free(m->children);
    tt_free(m->slots);
    tutti_context_release(m->ctx);
    tt_free(m->state);
    tt_free(m);
}

void *tutti_module_state(tutti_module_t *m)
{
    return m->state;
}

const tutti_module_ops_t *tutti_module_kind(const tutti_module_t *m)
{
    return m->ops;
}

/* ---- names ----------------------------------------------------------------------------------- */

enum { FEW_NAMES = 16 };

static size_t name_count(const tutti_module_t *m)
{
    return m->slot_count + m->child_count;
}

static const char *name_at(const tutti_module_t *m, size_t i)
{
    return i < m->slot_count ? m->slots[i].name : m->children[i - m->slot_count].name;
}

static tutti_status_t note_hash(tutti_module_t *m, const char *name, bool *is_new)
{
    const uint64_t hash = tt_fnv(TT_FNV_BEGIN, name, strlen(name));
    return tt_pointer_set_add(&m->hashes, (const void *)(uintptr_t)(hash | 1), is_new);
}

static tutti_status_t note_hashes(tutti_module_t *m)
{
    bool is_new;
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < name_count(m) && status >= 0; i++) {
        status = note_hash(m, name_at(m, i), &is_new);
    }
    if (status < 0) {
        tt_pointer_set_release(&m->hashes); /* all or none */
    }
    return status;
}

/* Whether a name must be compared with all that there are: they are few, or one had its hash. */
static tutti_status_t may_be_taken(tutti_module_t *m, const char *name, bool *out)
{
    bool is_new = false;
    if (name_count(m) >= FEW_NAMES) {
        TT_TRY(m->hashes.count == 0 ? note_hashes(m) : TUTTI_OK);
        TT_TRY(note_hash(m, name, &is_new));
    }
    *out = !is_new;
    return TUTTI_OK;
}

static bool has_name(tutti_module_t *m, const char *name)
{
    for (size_t i = 0; i < name_count(m); i++) {
        m->names_compared++;
        if (strcmp(name_at(m, i), name) == 0) {
            return true;
        }
    }
    return false;
}

static tutti_status_t check_name(tutti_module_t *m, const char *name)
{
    bool is_suspect = false;
    if (strchr(name, '.') != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "module %s: the name \"%s\" must not contain a dot",
                       m->ops->name, name);
    }
    TT_TRY(name[0] == 0 ? TUTTI_OK : may_be_taken(m, name, &is_suspect));
    if (is_suspect && has_name(m, name)) {
        return TT_FAIL(TUTTI_ERR_ARG, "module %s: the name \"%s\" is taken", m->ops->name, name);
    }
    return TUTTI_OK;
}

/* With room for one more: an array is full where its count is a power of two. */
static void *with_room(void *items, size_t count, size_t item_bytes)
{
    return (count & (count - 1)) != 0
               ? items
               : tt_realloc(items, (count == 0 ? 1 : 2 * count) * item_bytes, "module");
}

/* ---- tensors and children -------------------------------------------------------------------- */

static tutti_status_t add_slot(tutti_module_t *m, const char *name, tutti_tensor_t *tensor,
                               bool is_buffer)
{
    TT_TRY(tutti_tensor_status(tensor));
    if (name[0] == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "module %s: a tensor needs a name", m->ops->name);
    }
    TT_TRY(check_name(m, name));
    tt_slot_t *slots = with_room(m->slots, m->slot_count, sizeof *slots);
    TT_TRY_ALLOC(slots);
    m->slots = slots;
    char *copy = tt_strdup(name, "module name");
    TT_TRY_ALLOC(copy);
    slots[m->slot_count++] = (tt_slot_t){copy, tutti_tensor_retain(tensor), is_buffer};
    return TUTTI_OK;
}

tutti_status_t tutti_module_add_parameter(tutti_module_t *m, const char *name,
                                          tutti_tensor_t *tensor)
{
    return add_slot(m, name, tensor, false);
}

tutti_status_t tutti_module_add_buffer(tutti_module_t *m, const char *name, tutti_tensor_t *tensor)
{
    return add_slot(m, name, tensor, true);
}

tutti_status_t tutti_module_new_parameter(tutti_module_t *m, const char *name, tutti_shape_t shape,
                                          tutti_init_t init, tutti_tensor_t **out)
{
    TT_WANT("module_new_parameter", m);
    tutti_tensor_t *x;
    tutti_status_t status = tt_tensor_new(m->ctx->home, TUTTI_F32, shape, false, &x);
    if (status < 0) {
        return TT_FAIL(status, "module %s: %s: %s", m->ops->name, name, tutti_last_error());
    }
    status = tt_init_run(m->ctx, x, tt_init_filler(m->ctx, init));
    if (status >= 0) {
        status = tutti_tensor_set_requires_grad(x, true);
    }
    if (status >= 0) {
        status = add_slot(m, name, x, false);
    }
    tutti_tensor_release(x);
    if (status >= 0 && out != NULL) {
        *out = x; /* the module's */
    }
    return status;
}

static bool contains(const tutti_module_t *m, const tutti_module_t *sought)
{
    if (m == sought) {
        return true;
    }
    for (size_t i = 0; i < m->child_count; i++) {
        if (contains(m->children[i].module, sought)) {
            return true;
        }
    }
    return false;
}

tutti_status_t tutti_module_add_child(tutti_module_t *m, const char *name, tutti_module_t *child)
{
    TT_WANT("module_add_child", m);
    TT_WANT("module_add_child", child);
    TT_TRY(check_name(m, name));
    if (contains(child, m)) {
        return TT_FAIL(TUTTI_ERR_ARG, "module %s: its child \"%s\" would contain it", m->ops->name,
                       name);
    }
    tt_child_t *children = with_room(m->children, m->child_count, sizeof *children);
    TT_TRY_ALLOC(children);
    m->children = children;
    char *copy = tt_strdup(name, "module name");
    TT_TRY_ALLOC(copy);
    children[m->child_count++] = (tt_child_t){copy, tutti_module_retain(child)};
    return TUTTI_OK;
}

tutti_status_t tutti_module_new_child(tutti_module_t *m, const char *name,
                                      const tutti_module_ops_t *ops, const void *options,
                                      tutti_module_t **out)
{
    TT_WANT("module_new_child", m);
    tutti_module_t *child;
    TT_TRY(tutti_module_create(m->ctx, ops, options, &child));
    const tutti_status_t status = tutti_module_add_child(m, name, child);
    tutti_module_release(child);
    if (status >= 0 && out != NULL) {
        *out = child; /* the module's */
    }
    return status;
}
