/* Tensors of the module that DDP leaves alone (options.ignored): no other part of it has them in
 * its lists. */
#include <string.h>

#include "compute/nn/module_impl.h"
#include "core/base/nearest.h"
#include "parallel/ddp/ddp_impl.h"

typedef struct {
    tutti_ddp_t *ddp;
    const char *pattern;
    bool has_one;
} choosing_t;

/* Of a tensor, or of a module that it is in: what stands before one of the name's dots. */
static bool is_meant(const char *pattern, const char *name)
{
    char part[TT_MODULE_NAME_BYTES];
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        memcpy(part, name, (size_t)(dot - name));
        part[dot - name] = 0;
        if (tt_name_matches(pattern, part)) {
            return true;
        }
    }
    return tt_name_matches(pattern, name);
}

static tutti_status_t choose(void *user, const char *name, tutti_tensor_t *x)
{
    choosing_t *choosing = user;
    bool is_new;
    if (!is_meant(choosing->pattern, name)) {
        return TUTTI_OK;
    }
    choosing->has_one = true;
    return tt_pointer_set_add(&choosing->ddp->ignored.set, x, &is_new);
}

/* Of what a pipeline gave a rank as a whole, numbers of optimizers are added up over the ranks that
 * deal parameters out; of this one each of them has all (slice.h). The same on all stages. */
static tutti_status_t check_slicer(const tutti_ddp_t *ddp, const char *name,
                                   const tutti_tensor_t *x)
{
    return x->slice == NULL || ddp->options.stage == 0
               ? TUTTI_OK
               : TT_FAIL(
                     TUTTI_ERR_UNSUPPORTED,
                     "ddp: options.ignored: %s is a pipeline's, and at stage %d its norms would "
                     "be those of all ranks together: take stage 0, or do not ignore it",
                     name, ddp->options.stage);
}

static tutti_status_t list_param(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_ddp_t *ddp = user;
    if (!tt_ddp_is_ignored(ddp, x)) {
        return TUTTI_OK;
    }
    TT_TRY(check_slicer(ddp, name, x));
    return tt_tensor_list_add(&ddp->ignored.params, name, x);
}

tutti_status_t tt_ddp_choose_ignored(tutti_ddp_t *ddp)
{
    const tutti_ddp_options_t *o = &ddp->options;
    for (int i = 0; i < o->ignored_count; i++) {
        choosing_t choosing = {.ddp = ddp, .pattern = o->ignored[i]};
        if (o->ignored[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "ddp: options.ignored: name %d is NULL", i);
        }
        TT_TRY(tutti_module_each_tensor(ddp->module, choose, &choosing));
        if (!choosing.has_one) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ddp: options.ignored: no parameter, buffer or module with such is "
                           "called %s",
                           o->ignored[i]);
        }
    }
    return tutti_module_each_parameter(ddp->module, list_param, ddp);
}

bool tt_ddp_is_ignored(const tutti_ddp_t *ddp, const tutti_tensor_t *x)
{
    return tt_pointer_set_has(&ddp->ignored.set, x);
}

void tt_ddp_ignored_begin_step(tutti_ddp_t *ddp)
{
    for (size_t i = 0; i < ddp->ignored.params.count; i++) {
        tutti_tensor_zero_grad(tt_listed(&ddp->ignored.params, i));
    }
}

void tt_ddp_forget_ignored(tutti_ddp_t *ddp)
{
    tt_pointer_set_release(&ddp->ignored.set);
    tt_tensor_list_release(&ddp->ignored.params);
}
