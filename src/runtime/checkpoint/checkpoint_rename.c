/* Other names for what a checkpoint holds: a manifest of them, without slices, beside that of the
 * source. Each tensor in it is one of the source's, perhaps transposed.
 *
 *     names      tok.weight  head.weight  blocks.0.qkv.weight [3C, C]
 *                     \      /                   |  transposed
 *     source         wte.weight           h.0.attn.c_attn.weight [C, 3C]
 */
#include <string.h>

#include "core/base/alloc.h"
#include "runtime/checkpoint/saved_impl.h"

enum { NAME_BYTES = 1024 };

typedef struct {
    const tt_manifest_t *source;
    tt_manifest_t *names;
    tt_fit_t *fits; /* [room] */
    size_t room;
} rename_t;

static tutti_status_t fail_twice(const char *name)
{
    return TT_FAIL(TUTTI_ERR_ARG, "rename: two tensors would be called \"%s\"", name);
}

static tutti_status_t add(rename_t *r, const char *name, tt_fit_t fit)
{
    tt_saved_tensor_t *tensor;
    tutti_shape_t shape = fit.saved->shape;
    const size_t number = r->names->tensor_count;
    if (tt_manifest_find(r->names, name) != NULL) {
        return fail_twice(name);
    }
    if (fit.is_transposed && shape.rank != 2) {
        return TT_FAIL(TUTTI_ERR_ARG, "rename: tensor \"%s\" is to be transposed, and no matrix",
                       fit.saved->name);
    }
    if (fit.is_transposed) {
        shape = TUTTI_SHAPE(shape.dims[1], shape.dims[0]);
    }
    if (number == r->room) {
        const size_t room = 2 * r->room + 16;
        tt_fit_t *fits = tt_realloc(r->fits, room * sizeof *fits, "rename");
        TT_TRY_ALLOC(fits);
        r->fits = fits;
        r->room = room;
    }
    TT_TRY(tt_manifest_add(r->names, name, fit.saved->dtype, shape, &tensor));
    r->fits[number] = fit;
    return TUTTI_OK;
}

static bool has_name(const rename_t *r, const tt_saved_tensor_t *tensor, const char *name)
{
    const tt_saved_tensor_t *named = tt_manifest_find(r->names, name);
    return named != NULL && r->fits[named - r->names->tensors].saved == tensor;
}

/* Adafactor's sums of rows are those of the columns of the parameter that is transposed: no rule is
 * about them. */
static bool is_vector_of_optim(tt_fit_t fit)
{
    return fit.is_transposed && fit.saved->shape.rank != 2 &&
           strncmp(fit.saved->name, TT_OPTIM_PREFIX, sizeof TT_OPTIM_PREFIX - 1) == 0;
}

/* What is called `stored` gets its `name`; it may have several, but not only those of others. */
static tutti_status_t name_one(rename_t *r, const tt_saved_tensor_t *tensor,
                               const tutti_load_options_t *options)
{
    char name[NAME_BYTES], taken[NAME_BYTES] = "";
    bool is_named = false, is_taken = false;
    for (size_t i = 0; i < options->rule_count; i++) {
        const tutti_load_rule_t back = {options->rules[i].stored, options->rules[i].name, false};
        if (!tt_load_rename(&back, tensor->name, name, sizeof name)) {
            continue;
        }
        const tt_fit_t fit = tt_load_find(options, r->source, name);
        if (fit.saved == tensor && is_vector_of_optim(fit)) {
            continue;
        }
        if (fit.saved == tensor) {
            TT_TRY(has_name(r, tensor, name) ? TUTTI_OK : add(r, name, fit));
            is_named = true;
        } else if (!is_taken) {
            memcpy(taken, name, strlen(name) + 1);
            is_taken = true;
        }
    }
    return is_named   ? TUTTI_OK
           : is_taken ? fail_twice(taken)
                      : add(r, tensor->name, (tt_fit_t){tensor, false});
}

/* What is called `name` gets the first rule's `stored`. */
static tutti_status_t store_one(rename_t *r, const tt_saved_tensor_t *tensor,
                                const tutti_load_options_t *options)
{
    char stored[NAME_BYTES];
    for (size_t i = 0; i < options->rule_count; i++) {
        const tt_fit_t fit = {tensor, tt_load_transposes(&options->rules[i], tensor)};
        if (tt_load_rename(&options->rules[i], tensor->name, stored, sizeof stored)) {
            if (is_vector_of_optim(fit)) {
                break;
            }
            return add(r, stored, fit);
        }
    }
    return add(r, tensor->name, (tt_fit_t){tensor, false});
}

static tutti_status_t rename_all(rename_t *r, const tutti_load_options_t *options, bool to_stored)
{
    for (size_t i = 0; i < r->source->tensor_count; i++) {
        TT_TRY((to_stored ? store_one : name_one)(r, &r->source->tensors[i], options));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_saved_rename(tutti_saved_t *saved, const tutti_load_rule_t *rules,
                                  size_t rule_count, bool to_stored)
{
    const tutti_load_options_t options = {.rules = rules, .rule_count = rule_count};
    const tt_manifest_t *source = saved->source.manifest;
    rename_t r = {.source = source};
    TT_TRY(tt_load_options_check(&options));
    tutti_status_t status = tt_manifest_create(source->step, source->ranks, &r.names);
    if (status >= 0) {
        status = rename_all(&r, &options, to_stored);
    }
    if (status < 0) {
        tt_manifest_release(r.names);
        tt_free(r.fits);
        return status;
    }
    tt_saved_set_names(saved, r.names, r.fits);
    return TUTTI_OK;
}
