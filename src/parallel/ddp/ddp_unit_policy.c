/* Which modules are units, and which parameters are whose.
 *
 * A module is a unit if the options have its name or its kind, or if its parameters, without those
 * of units inside it, have so many bytes; children are looked at before their parents. A parameter
 * belongs to the innermost unit around the module that has it. One that several units have is the
 * root's, which is there whenever they are. */
#include <stdio.h>
#include <string.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

typedef struct {
    tutti_ddp_t *ddp;
    char name[TT_MODULE_NAME_BYTES];
    int capacity;
} walk_t;

static tutti_status_t add_unit(walk_t *walk, tutti_module_t *m, bool is_kept)
{
    tt_ddp_units_t *units = &walk->ddp->units;
    if (units->count == walk->capacity) {
        const int capacity = walk->capacity == 0 ? 16 : 2 * walk->capacity;
        tt_unit_t *grown = tt_realloc(units->units, (size_t)capacity * sizeof *grown, "ddp units");
        TT_TRY_ALLOC(grown);
        units->units = grown;
        walk->capacity = capacity;
    }
    tt_unit_t *unit = &units->units[units->count];
    *unit = (tt_unit_t){.ddp = walk->ddp, .module = m, .is_kept = is_kept};
    unit->name = tt_strdup(walk->name, "ddp units");
    TT_TRY_ALLOC(unit->name);
    units->count++;
    return TUTTI_OK;
}

static int unit_of_module(const tt_ddp_units_t *units, const tutti_module_t *m)
{
    for (int i = 0; i < units->count; i++) {
        if (units->units[i].module == m) {
            return i;
        }
    }
    return -1;
}

static bool is_named(const tutti_ddp_units_t *want, const char *name)
{
    for (int i = 0; i < want->name_count; i++) {
        if (strcmp(want->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

bool tt_ddp_is_kind(const char *kind, const char *name)
{
    const size_t length = strlen(name), end = kind == NULL ? 0 : strlen(kind);
    return kind != NULL && length >= end && strcmp(name + length - end, kind) == 0 &&
           (length == end || name[length - end - 1] == '_');
}

static size_t bytes_of_slots(const tutti_ddp_t *ddp, const tutti_module_t *m)
{
    size_t bytes = 0;
    for (size_t i = 0; i < m->slot_count; i++) {
        const tutti_tensor_t *x = m->slots[i].tensor;
        bytes += m->slots[i].is_buffer || tt_ddp_is_ignored(ddp, x) ? 0 : tutti_tensor_bytes(x);
    }
    return bytes;
}

/* Names of the walk's place: appends one, and returns how long it was. */
static size_t enter(walk_t *walk, const char *name)
{
    const size_t length = strlen(walk->name);
    if (name[0] != 0) {
        snprintf(walk->name + length, sizeof walk->name - length, "%s%s", length > 0 ? "." : "",
                 name);
    }
    return length;
}

/* `bytes`: of m's parameters that are in no unit below it. */
static tutti_status_t find_units(walk_t *walk, tutti_module_t *m, size_t *bytes)
{
    const tutti_ddp_units_t *want = &walk->ddp->options.units;
    const bool is_root = m == walk->ddp->module;
    *bytes = 0;
    if (!is_root && unit_of_module(&walk->ddp->units, m) >= 0) {
        return TUTTI_OK; /* it has two parents */
    }
    *bytes = bytes_of_slots(walk->ddp, m);
    for (size_t i = 0; i < m->child_count; i++) {
        size_t below;
        const size_t length = enter(walk, m->children[i].name);
        TT_TRY(find_units(walk, m->children[i].module, &below));
        walk->name[length] = 0;
        *bytes += below;
    }
    if (!is_root && (is_named(want, walk->name) || tt_ddp_is_kind(want->kind, m->ops->name) ||
                     (want->bytes > 0 && *bytes >= want->bytes))) {
        *bytes = 0;
        return add_unit(walk, m, false);
    }
    return TUTTI_OK;
}

static tutti_status_t check_names(const tutti_ddp_t *ddp)
{
    const tutti_ddp_units_t *want = &ddp->options.units;
    for (int i = 0; i < want->name_count; i++) {
        bool is_there = false;
        for (int u = 1; u < ddp->units.count; u++) {
            is_there |= strcmp(ddp->units.units[u].name, want->names[i]) == 0;
        }
        if (!is_there) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.units: no module called %s",
                           want->names[i]);
        }
    }
    return want->kind == NULL || ddp->units.count > 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "ddp: options.units: no module of kind %s: tutti_module_describe() says "
                         "which there are",
                         want->kind);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static tutti_tensor_t *param_at(const tutti_ddp_t *ddp, int i)
{
    return i < ddp->param_count ? ddp->params[i].tensor
                                : tt_listed(&ddp->frozen, (size_t)(i - ddp->param_count));
}

static int find_param(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    for (int i = 0; i < ddp->units.param_count; i++) {
        if (param_at(ddp, i) == x) {
            return i;
        }
    }
    return -1;
}

static void assign(tutti_ddp_t *ddp, const tutti_module_t *m, int unit)
{
    tt_ddp_units_t *units = &ddp->units;
    const int own = unit_of_module(units, m);
    unit = own >= 0 ? own : unit;
    for (size_t i = 0; i < m->slot_count; i++) {
        const int param = m->slots[i].is_buffer ? -1 : find_param(ddp, m->slots[i].tensor);
        if (param >= 0) {
            int *of = &units->unit_of[param];
            *of = *of < 0 || *of == unit ? unit : 0;
        }
    }
    for (size_t i = 0; i < m->child_count; i++) {
        assign(ddp, m->children[i].module, unit);
    }
}

/* Small ones stay. */
static tutti_status_t keep_small(walk_t *walk)
{
    tutti_ddp_t *ddp = walk->ddp;
    const size_t limit = ddp->options.persistence_bytes;
    if (limit == 0) {
        return TUTTI_OK;
    }
    const int kept = ddp->units.count;
    walk->name[0] = 0;
    TT_TRY(add_unit(walk, NULL, true));
    for (int i = 0; i < ddp->units.param_count; i++) {
        if (tutti_tensor_bytes(param_at(ddp, i)) < limit) {
            ddp->units.unit_of[i] = kept;
        }
    }
    return TUTTI_OK;
}

char *tt_ddp_unit_name(const tt_unit_t *unit, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s%s",
             unit->is_kept        ? "the unit that is kept"
             : unit->name[0] == 0 ? "the root unit"
                                  : "unit ",
             unit->name);
    return text;
}

static tutti_status_t write_reasons(const tt_ddp_units_t *units)
{
    static const char comes[] = "is sharded (options.stage 3): it is there while its module "
                                "computes, or between tutti_ddp_unshard() and tutti_ddp_reshard()";
    static const char stays[] = "(parameters smaller than options.persistence_bytes) is away while "
                                "its values change, and behind a failure";
    for (int i = 0; i < units->count; i++) {
        tt_unit_t *unit = &units->units[i];
        char name[TT_MODULE_NAME_BYTES + 32];
        const char *const why = unit->is_kept ? stays : comes;
        tt_ddp_unit_name(unit, name, sizeof name);
        const size_t bytes = strlen(name) + 1 + strlen(why) + 1;
        unit->reason = tt_alloc(bytes, "ddp units");
        TT_TRY_ALLOC(unit->reason);
        snprintf(unit->reason, bytes, "%s %s", name, why);
    }
    return TUTTI_OK;
}

tutti_status_t tt_ddp_choose_units(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    walk_t walk = {.ddp = ddp};
    size_t bytes;
    if (ddp->options.stage < 3) {
        return TUTTI_OK;
    }
    TT_TRY(add_unit(&walk, ddp->module, false));
    TT_TRY(find_units(&walk, ddp->module, &bytes));
    TT_TRY(check_names(ddp));
    units->param_count = ddp->param_count + (int)ddp->frozen.count;
    units->unit_of = tt_alloc_array((size_t)units->param_count, sizeof(int), "ddp units");
    TT_TRY_ALLOC(units->unit_of);
    for (int i = 0; i < units->param_count; i++) {
        units->unit_of[i] = -1;
    }
    assign(ddp, ddp->module, 0);
    TT_TRY(keep_small(&walk));
    return write_reasons(units);
}

/* What is printed of a unit: "unit blocks.0: 12 parameters, 7200 bytes". */
static int print_unit(const tutti_ddp_t *ddp, int index, char *text, size_t bytes)
{
    const tt_unit_t *unit = tt_ddp_unit(ddp, index);
    int count = 0;
    size_t size = 0;
    for (int i = 0; i < ddp->units.param_count; i++) {
        const bool is_its = ddp->units.unit_of[i] == index;
        count += is_its;
        size += is_its ? tutti_tensor_bytes(param_at(ddp, i)) : 0;
    }
    return snprintf(text, bytes, "%s%s: %d parameters, %zu bytes\n",
                    unit->is_kept        ? "kept on all ranks"
                    : unit->name[0] == 0 ? "the root unit"
                                         : "unit ",
                    unit->is_kept ? "" : unit->name, count, size);
}

size_t tt_ddp_describe_units(const tutti_ddp_t *ddp, char *text, size_t bytes)
{
    size_t used = 0;
    for (int u = 0; u < ddp->units.count; u++) {
        const bool has_room = used < bytes;
        used +=
            (size_t)print_unit(ddp, u, has_room ? text + used : NULL, has_room ? bytes - used : 0);
    }
    return used;
}

void tt_ddp_forget_units(tutti_ddp_t *ddp)
{
    tt_ddp_units_t *units = &ddp->units;
    for (int i = 0; i < units->count; i++) {
        tt_free(units->units[i].name);
        tt_free(units->units[i].reason);
    }
    tt_free(units->units);
    tt_free(units->unit_of);
}
