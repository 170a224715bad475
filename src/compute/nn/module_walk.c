/* Going through a module: own tensors first, then the children in their order, with full names. */
#include <tutti/nn.h>

#include <stdio.h>
#include <string.h>

#include "compute/nn/module_impl.h"
#include "core/base/pointer_set.h"

typedef struct {
    char name[TT_MODULE_NAME_BYTES]; /* of the place where the walk is */
    tutti_tensor_visit_t on_tensor;  /* may be NULL */
    tutti_module_visit_t on_module;  /* may be NULL */
    bool skips_buffers, skips_parameters;
    void *user;
} walk_t;

/* Append a name to the place; `length` is the place's, and comes back grown. */
static tutti_status_t enter(walk_t *walk, const char *name, size_t *length)
{
    if (name[0] == 0) {
        return TUTTI_OK;
    }
    const size_t room = sizeof walk->name - *length;
    const int n = snprintf(walk->name + *length, room, "%s%s", *length > 0 ? "." : "", name);
    if (n < 0 || (size_t)n >= room) {
        walk->name[*length] = 0;
        return TT_FAIL(TUTTI_ERR_ARG, "the name of \"%s\" below \"%s\" is longer than %d bytes",
                       name, walk->name, TT_MODULE_NAME_BYTES - 1);
    }
    *length += (size_t)n;
    return TUTTI_OK;
}

static tutti_status_t walk_slots(walk_t *walk, tutti_module_t *m, size_t length)
{
    for (size_t i = 0; i < m->slot_count && walk->on_tensor != NULL; i++) {
        size_t end = length;
        if (m->slots[i].is_buffer ? walk->skips_buffers : walk->skips_parameters) {
            continue;
        }
        TT_TRY(enter(walk, m->slots[i].name, &end));
        TT_TRY(walk->on_tensor(walk->user, walk->name, m->slots[i].tensor));
        walk->name[length] = 0;
    }
    return TUTTI_OK;
}

static tutti_status_t walk_module(walk_t *walk, tutti_module_t *m, size_t length)
{
    if (walk->on_module != NULL) {
        TT_TRY(walk->on_module(walk->user, walk->name, m));
    }
    TT_TRY(walk_slots(walk, m, length));
    for (size_t i = 0; i < m->child_count; i++) {
        size_t end = length;
        TT_TRY(enter(walk, m->children[i].name, &end));
        TT_TRY(walk_module(walk, m->children[i].module, end));
        walk->name[length] = 0;
    }
    return TUTTI_OK;
}

tutti_status_t tutti_module_each_tensor(tutti_module_t *m, tutti_tensor_visit_t visit, void *user)
{
    TT_WANT("module_each_tensor", m);
    walk_t walk = {.on_tensor = visit, .user = user};
    return walk_module(&walk, m, 0);
}

tutti_status_t tutti_module_apply(tutti_module_t *m, tutti_module_visit_t visit, void *user)
{
    TT_WANT("module_apply", m);
    walk_t walk = {.on_module = visit, .user = user};
    return walk_module(&walk, m, 0);
}

/* ---- each parameter, each buffer once -------------------------------------------------------- */

typedef struct {
    tt_pointer_set_t seen;
    tutti_tensor_visit_t visit;
    void *user;
} once_t;

static tutti_status_t visit_once(void *user, const char *name, tutti_tensor_t *tensor)
{
    once_t *once = user;
    bool is_new;
    TT_TRY(tt_pointer_set_add(&once->seen, tensor, &is_new));
    return is_new ? once->visit(once->user, name, tensor) : TUTTI_OK;
}

static tutti_status_t walk_once(walk_t walk, tutti_module_t *m, tutti_tensor_visit_t visit,
                                void *user)
{
    TT_WANT("module_each", m);
    once_t once = {.visit = visit, .user = user};
    walk.on_tensor = visit_once;
    walk.user = &once;
    const tutti_status_t status = walk_module(&walk, m, 0);
    tt_pointer_set_release(&once.seen);
    return status;
}

tutti_status_t tutti_module_each_parameter(tutti_module_t *m, tutti_tensor_visit_t visit,
                                           void *user)
{
    return walk_once((walk_t){.skips_buffers = true}, m, visit, user);
}

tutti_status_t tutti_module_each_buffer(tutti_module_t *m, tutti_tensor_visit_t visit, void *user)
{
    return walk_once((walk_t){.skips_parameters = true}, m, visit, user);
}

/* ---- what is made of it ---------------------------------------------------------------------- */

typedef struct {
    size_t count;
    int64_t numel;
} size_sum_t;

static tutti_status_t add_size(void *user, const char *name, tutti_tensor_t *tensor)
{
    (void)name;
    size_sum_t *sum = user;
    sum->count++;
    sum->numel += tutti_tensor_numel(tensor);
    return TUTTI_OK;
}

static size_sum_t measure(tutti_module_t *m)
{
    size_sum_t sum = {0};
    return tutti_module_each_parameter(m, add_size, &sum) < 0 ? (size_sum_t){0} : sum;
}

size_t tutti_module_parameter_count(tutti_module_t *m)
{
    return measure(m).count;
}

int64_t tutti_module_numel(tutti_module_t *m)
{
    return measure(m).numel;
}

typedef struct {
    const char *name;
    tutti_tensor_t *found;
} search_t;

static tutti_status_t compare_name(void *user, const char *name, tutti_tensor_t *tensor)
{
    search_t *search = user;
    if (search->found == NULL && strcmp(name, search->name) == 0) {
        search->found = tensor;
    }
    return TUTTI_OK;
}

tutti_tensor_t *tutti_module_find(tutti_module_t *m, const char *name)
{
    search_t search = {.name = name};
    (void)tutti_module_each_tensor(m, compare_name, &search);
    return search.found;
}

static tutti_status_t set_requires_grad(void *user, const char *name, tutti_tensor_t *tensor)
{
    (void)name;
    return tutti_tensor_set_requires_grad(tensor, *(const bool *)user);
}

tutti_status_t tutti_module_set_requires_grad(tutti_module_t *m, bool requires_grad)
{
    return tutti_module_each_parameter(m, set_requires_grad, &requires_grad);
}

static tutti_status_t zero_grad(void *user, const char *name, tutti_tensor_t *tensor)
{
    (void)user;
    (void)name;
    tutti_tensor_zero_grad(tensor);
    return TUTTI_OK;
}

void tutti_module_zero_grad(tutti_module_t *m)
{
    (void)tutti_module_each_tensor(m, zero_grad, NULL);
}
