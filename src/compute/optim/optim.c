/* Optimizers: groups of options, and parameters. */
#include <tutti/optim.h>

#include <math.h>
#include <string.h>

#include "compute/optim/optim_offload.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/fnv.h"
#include "core/tensor/tensor_impl.h"

enum { ROOM_FIRST = 16, FEW = 32 };

tutti_status_t tutti_optim_create(tutti_context_t *ctx, const tutti_optim_ops_t *kind,
                                  const void *options, tutti_optim_t **out)
{
    TT_WANT("optim_create", ctx);
    TT_WANT("optim_create", out);
    TT_TRY(tt_optim_check_kind(kind));
    tutti_optim_t *opt = tt_alloc(sizeof *opt, "optimizer");
    TT_TRY_ALLOC(opt);
    opt->ops = kind;
    opt->ctx = tutti_context_retain(ctx);
    int group;
    const tutti_status_t status = tutti_optim_add_group(opt, options, &group);
    if (status < 0) {
        tutti_optim_release(opt);
        return status;
    }
    *out = opt;
    return TUTTI_OK;
}

static void release_slot(tt_optim_slot_t *slot)
{
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        tutti_tensor_release(slot->moments[i]);
    }
    tt_optim_release_master(slot);
    tutti_tensor_release(slot->tensor);
    tt_free(slot->name);
}

void tutti_optim_release(tutti_optim_t *opt)
{
    if (opt == NULL) {
        return;
    }
    tt_optim_offload_leave(opt);
    for (size_t i = opt->slot_count; i-- > 0;) {
        release_slot(&opt->slots[i]);
    }
    tt_optim_offload_release(opt);
    for (int i = 0; i < opt->group_count; i++) {
        tt_free(opt->groups[i].options);
    }
    tutti_context_release(opt->ctx);
    tt_pointer_set_release(&opt->seen);
    tt_free(opt->slots);
    tt_free(opt->groups);
    tt_free(opt);
}

static tutti_status_t open_group(const tutti_optim_t *opt, tt_optim_group_t *new)
{
    TT_TRY(tt_optim_resolve(opt->ops, new->options));
    new->lr = tt_optim_lr_of(opt->ops, new->options);
    const double first =
        opt->group_count == 0 ? new->lr : tt_optim_lr_of(opt->ops, opt->groups[0].options);
    if (first == 0 && new->lr != 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "%s: group %d has lr %g, group 0 has 0: rates keep their ratio to the "
                       "first, so it must not be 0",
                       opt->ops->name, opt->group_count, new->lr);
    }
    new->ratio = first == 0 ? 1 : new->lr / first;
    new->lr = opt->group_count == 0 ? new->lr : new->ratio * opt->groups[0].lr;
    return TUTTI_OK;
}

tutti_status_t tutti_optim_add_group(tutti_optim_t *opt, const void *options, int *group)
{
    const size_t count = (size_t)opt->group_count + 1;
    tt_optim_group_t *groups = tt_realloc(opt->groups, count * sizeof *groups, "optimizer");
    TT_TRY_ALLOC(groups);
    opt->groups = groups;
    tt_optim_group_t *new = &groups[opt->group_count];
    new->options = tt_alloc(opt->ops->options_bytes, "optimizer");
    TT_TRY_ALLOC(new->options);
    if (options != NULL) {
        memcpy(new->options, options, opt->ops->options_bytes);
    }
    const tutti_status_t status = open_group(opt, new);
    if (status < 0) {
        tt_free(new->options);
        return status;
    }
    *group = opt->group_count++;
    return TUTTI_OK;
}

/* Both are contiguous. */
static bool is_overlap(const tutti_tensor_t *x, const tutti_tensor_t *y)
{
    const int64_t each[] = {(int64_t)tutti_dtype_bytes(x->dtype),
                            (int64_t)tutti_dtype_bytes(y->dtype)};
    return x->storage == y->storage && x->numel > 0 && y->numel > 0 &&
           x->offset * each[0] < (y->offset + y->numel) * each[1] &&
           y->offset * each[1] < (x->offset + x->numel) * each[0];
}

static tutti_status_t check_parameter(const tutti_optim_t *opt, int group, const char *name,
                                      const tutti_tensor_t *x)
{
    TT_TRY(tutti_tensor_status(x));
    if (group < 0 || group >= opt->group_count) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: parameter \"%s\": group %d; there are %d",
                       opt->ops->name, name, group, opt->group_count);
    }
    TT_TRY(tt_optim_check_dtype(opt, name, x));
    if (!tutti_tensor_is_contiguous(x)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: parameter \"%s\" is not contiguous",
                       opt->ops->name, name);
    }
    TT_TRY(tt_optim_offload_admit(opt, opt->ops->name, name, x));
    if (x->spread != NULL && (opt->ops->measure != NULL || opt->ops->wants_whole)) {
        return TT_FAIL(
            TUTTI_ERR_UNSUPPORTED,
            "%s: parameter \"%s\" is a part by tensor parallelism, and this kind looks at "
            "whole parameters: choose one that goes element by element, such as adamw",
            opt->ops->name, name);
    }
    return TUTTI_OK;
}

static tutti_status_t note(tutti_optim_t *opt, const char *name, const tutti_tensor_t *x,
                           bool *is_new)
{
    const uint64_t hash = tt_fnv(TT_FNV_BEGIN, name, strlen(name)) | 1; /* no pointer is odd */
    const void *const all[] = {(const void *)(uintptr_t)hash, x, x->storage};
    *is_new = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool is_first;
        TT_TRY(tt_pointer_set_add(&opt->seen, all[i], &is_first));
        *is_new = *is_new && is_first;
    }
    return TUTTI_OK;
}

/* As they are now: what moved since has another storage. */
static tutti_status_t note_all(tutti_optim_t *opt)
{
    bool is_new;
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(note(opt, opt->slots[i].name, opt->slots[i].tensor, &is_new));
    }
    return TUTTI_OK;
}

/* Whether it must be compared with all that there are: they are few, or one has its name's hash,
 * or its storage. */
static tutti_status_t may_be_there(tutti_optim_t *opt, const char *name, const tutti_tensor_t *x,
                                   bool *out)
{
    bool is_new = false;
    if (opt->slot_count >= FEW) {
        TT_TRY(opt->seen.count == 0 ? note_all(opt) : TUTTI_OK);
        TT_TRY(note(opt, name, x, &is_new));
    }
    *out = !is_new;
    return TUTTI_OK;
}

static tutti_status_t check_new(tutti_optim_t *opt, const char *name, const tutti_tensor_t *x)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        opt->compared++;
        if (opt->slots[i].tensor == x) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: parameter \"%s\" is there already, as \"%s\"",
                           opt->ops->name, name, opt->slots[i].name);
        }
        if (strcmp(opt->slots[i].name, name) == 0) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: another parameter is called \"%s\" already: make the modules "
                           "children of one, or name it by tutti_optim_add_parameter()",
                           opt->ops->name, name);
        }
        if (is_overlap(opt->slots[i].tensor, x)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "%s: parameter \"%s\" shares memory with \"%s\": a step would change "
                           "it twice",
                           opt->ops->name, name, opt->slots[i].name);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t make_room(tutti_optim_t *opt)
{
    if (opt->slot_count < opt->slot_room) {
        return TUTTI_OK;
    }
    const size_t room = opt->slot_room == 0 ? ROOM_FIRST : 2 * opt->slot_room;
    tt_optim_slot_t *slots = tt_realloc(opt->slots, room * sizeof *slots, "optimizer");
    TT_TRY_ALLOC(slots);
    opt->slots = slots;
    opt->slot_room = room;
    return TUTTI_OK;
}

tutti_status_t tutti_optim_add_parameter(tutti_optim_t *opt, int group, const char *name,
                                         tutti_tensor_t *x)
{
    TT_WANT("optim_add_parameter", opt);
    TT_WANT("optim_add_parameter", x);
    if (opt->driver != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "%s: parameter \"%s\": %s steps this optimizer and would leave it out: add "
                       "it before",
                       opt->ops->name, name, opt->driver);
    }
    bool is_compared;
    TT_TRY(check_parameter(opt, group, name, x));
    TT_TRY(may_be_there(opt, name, x, &is_compared));
    TT_TRY(is_compared ? check_new(opt, name, x) : TUTTI_OK);
    TT_TRY(make_room(opt));
    char *copy = tt_strdup(name, "parameter name");
    TT_TRY_ALLOC(copy);
    opt->slots[opt->slot_count++] =
        (tt_optim_slot_t){.name = copy, .tensor = tutti_tensor_retain(x), .group = group};
    return TUTTI_OK;
}

typedef struct {
    tutti_optim_t *opt;
    tutti_optim_choose_t choose;
    void *user;
} adding_t;

static tutti_status_t add_chosen(void *user, const char *name, tutti_tensor_t *x)
{
    const adding_t *adding = user;
    const int group = adding->choose == NULL ? 0 : adding->choose(adding->user, name, x);
    return group < 0 ? TUTTI_OK : tutti_optim_add_parameter(adding->opt, group, name, x);
}

tutti_status_t tutti_optim_add_module(tutti_optim_t *opt, tutti_module_t *m,
                                      tutti_optim_choose_t choose, void *user)
{
    TT_WANT("optim_add_module", opt);
    TT_WANT("optim_add_module", m);
    adding_t adding = {opt, choose, user};
    return tutti_module_each_parameter(m, add_chosen, &adding);
}

tutti_status_t tt_optim_check_free(const tutti_optim_t *opt, const char *call)
{
    return opt->driver == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: %s steps this optimizer inside backward, or right behind it, each "
                         "parameter as soon as its gradient is there: what needs all gradients, or "
                         "changes them, comes too late; a DDP without options.optimizer, or a "
                         "synchronous schedule of a pipeline, leaves the step to the caller",
                         call, opt->driver);
}

tutti_status_t tt_optim_check_decided(const tutti_optim_t *opt, const char *call)
{
    return !opt->is_undecided
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s: the last step may be undone yet: %s() comes first",
                         call, opt->decides);
}

int tt_optim_find(const tutti_optim_t *opt, const tutti_tensor_t *x)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (opt->slots[i].tensor == x) {
            return (int)i;
        }
    }
    return -1;
}

void tutti_optim_zero_grad(tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        tt_tensor_slice_t *slice = opt->slots[i].tensor->slice;
        tutti_tensor_zero_grad(opt->slots[i].tensor);
        if (slice != NULL) {
            slice->grad = NULL;
        }
    }
}

void tutti_optim_set_lr(tutti_optim_t *opt, double lr)
{
    for (int i = 0; i < opt->group_count; i++) {
        opt->groups[i].lr = lr * opt->groups[i].ratio;
    }
}

double tutti_optim_lr(const tutti_optim_t *opt, int group)
{
    return group < 0 || group >= opt->group_count ? NAN : opt->groups[group].lr;
}
