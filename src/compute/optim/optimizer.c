/* The contract of a kind of optimizer: what it must have, its options by its table, and what it is
 * given. */
#include "compute/optim/optimizer.h"
#include "core/base/integers.h"

#include <string.h>

static const tutti_optim_option_t *find_lr(const tutti_optim_ops_t *kind)
{
    const tutti_optim_option_t *option = kind->options;
    while (option != NULL && option->name != NULL && strcmp(option->name, "lr") != 0) {
        option++;
    }
    return option == NULL || option->name == NULL ? NULL : option;
}

double tt_optim_lr_of(const tutti_optim_ops_t *kind, const void *options)
{
    return *(const double *)((const char *)options + find_lr(kind)->offset);
}

/* Its tensor in a file is "<parameter>.<moment>". */
static bool is_moment_name(const tutti_optim_ops_t *kind, int i)
{
    const char *name = kind->moments[i];
    bool is_fine = name[0] != 0 && strchr(name, '.') == NULL && strcmp(name, "step") != 0 &&
                   strcmp(name, "master") != 0;
    for (int k = 0; k < i && is_fine; k++) {
        is_fine = kind->moments[k] != NULL && strcmp(kind->moments[k], name) != 0;
    }
    return is_fine;
}

static tutti_status_t check_offsets(const tutti_optim_ops_t *kind)
{
    for (const tutti_optim_option_t *o = kind->options; o->name != NULL; o++) {
        if (o->offset % _Alignof(double) != 0 || o->offset + sizeof(double) > kind->options_bytes) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "optimizer %s: option %s is a double at offset %zu of %zu bytes: want "
                           "offsetof() of a field, and options_bytes",
                           kind->name, o->name, o->offset, kind->options_bytes);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_check_kind(const tutti_optim_ops_t *kind)
{
    if (kind == NULL || kind->name == NULL || kind->name[0] == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "optim_create: a kind with a name is required");
    }
    if (kind->update == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "optimizer %s: its table has no update", kind->name);
    }
    if (kind->options_bytes > TUTTI_OPTIM_OPTIONS_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "optimizer %s: options_bytes is %zu: it must be at most %d",
                       kind->name, kind->options_bytes, TUTTI_OPTIM_OPTIONS_BYTES_MAX);
    }
    if (kind->wants_whole && kind->measure != NULL) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "optimizer %s: a measure adds up sections, but it wants_whole: want one of "
                       "the two",
                       kind->name);
    }
    if (find_lr(kind) == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "optimizer %s: its table of options has no \"lr\"",
                       kind->name);
    }
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        if (kind->moments[i] != NULL && !is_moment_name(kind, i)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "optimizer %s: moment %d is \"%s\": want a name of its own without a "
                           "dot, not step and not master, and no gap before it",
                           kind->name, i, kind->moments[i]);
        }
    }
    return check_offsets(kind);
}

static tutti_status_t check_range(const char *kind, const tutti_optim_option_t *option,
                                  double value)
{
    if (isfinite(value) && value >= option->min && value < option->below) {
        return TUTTI_OK;
    }
    if (isinf(option->min)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is %g: it must be finite", kind, option->name, value);
    }
    if (isinf(option->below)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is %g: it must be finite and at least %g", kind,
                       option->name, value, option->min);
    }
    return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is %g: it must be at least %g and below %g", kind,
                   option->name, value, option->min, option->below);
}

tutti_status_t tt_optim_resolve(const tutti_optim_ops_t *kind, void *options)
{
    if (kind->resolve != NULL) {
        TT_TRY(kind->resolve(options));
    }
    for (const tutti_optim_option_t *o = kind->options; o->name != NULL; o++) {
        double *value = (double *)((char *)options + o->offset);
        *value = tt_or_default(*value, o->fallback);
        TT_TRY(check_range(kind->name, o, *value));
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_check_dtype(const tutti_optim_t *opt, const char *name,
                                    const tutti_tensor_t *x)
{
    char text[200];
    const tutti_dtype_t dtype = tutti_tensor_dtype(x);
    if (dtype != TUTTI_F32 && dtype != TUTTI_BF16 && dtype != TUTTI_F16) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: parameter \"%s\" is %s: it must be f32, bf16 or f16",
                       opt->ops->name, name, tutti_tensor_describe(x, text, sizeof text));
    }
    return TUTTI_OK;
}

/* Whole blocks, so that norms of gradients can be cut where sections are. */
size_t tt_optim_section(size_t numel)
{
    const size_t even = tt_round_up(tt_divide_up(numel, TUTTI_OPTIM_SECTIONS_MAX), TT_FLAT_BLOCK);
    return even < TUTTI_OPTIM_SECTION ? TUTTI_OPTIM_SECTION : even;
}
