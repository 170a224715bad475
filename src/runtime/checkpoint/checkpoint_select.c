/* Some of what a checkpoint holds, or all of it in another dtype: other names (checkpoint_rename.c)
 * of what there is. */
#include "core/base/alloc.h"
#include "runtime/checkpoint/saved_impl.h"

typedef struct {
    tutti_load_options_t names; /* include and exclude */
    const tutti_dtype_t *dtype; /* of floating tensors; NULL: their own */
} choice_t;

static tutti_status_t choose(const tutti_saved_t *saved, const choice_t *choice,
                             tt_manifest_t *names, tt_fit_t *fits)
{
    const tt_manifest_t *from = tt_saved_names(saved);
    for (size_t i = 0; i < from->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &from->tensors[i];
        tt_saved_tensor_t *to;
        if (tt_load_takes(&choice->names, tensor->name)) {
            const bool is_cast = choice->dtype != NULL && tutti_dtype_is_float(tensor->dtype);
            fits[names->tensor_count] = tt_saved_fit(saved, tensor);
            TT_TRY(tt_manifest_add(names, tensor->name, is_cast ? *choice->dtype : tensor->dtype,
                                   tensor->shape, &to));
        }
    }
    return names->tensor_count > 0 || from->tensor_count == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_NOT_FOUND,
                         "%s: of its %zu tensors none is left: `include` and `exclude` are "
                         "patterns of whole names",
                         saved->path, from->tensor_count);
}

static tutti_status_t apply(tutti_saved_t *saved, const choice_t *choice)
{
    const tt_manifest_t *from = tt_saved_names(saved);
    tt_manifest_t *names = NULL;
    tt_fit_t *fits = tt_alloc_array(from->tensor_count + 1, sizeof *fits, "select");
    TT_TRY_ALLOC(fits);
    tutti_status_t status = tt_manifest_create(from->step, from->ranks, &names);
    status = status < 0 ? status : choose(saved, choice, names, fits);
    if (status < 0) {
        tt_manifest_release(names);
        tt_free(fits);
        return status;
    }
    tt_saved_set_names(saved, names, fits);
    return TUTTI_OK;
}

tutti_status_t tutti_saved_select(tutti_saved_t *saved, const char *const *include,
                                  size_t include_count, const char *const *exclude,
                                  size_t exclude_count)
{
    const choice_t choice = {.names = {.include = include,
                                       .include_count = include_count,
                                       .exclude = exclude,
                                       .exclude_count = exclude_count}};
    TT_TRY(tt_load_options_check(&choice.names));
    return apply(saved, &choice);
}

tutti_status_t tutti_saved_cast(tutti_saved_t *saved, tutti_dtype_t dtype)
{
    if (!tutti_dtype_is_float(dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: cast to %s: want a floating dtype", saved->path,
                       tutti_dtype_name(dtype));
    }
    return apply(saved, &(choice_t){.dtype = &dtype});
}
