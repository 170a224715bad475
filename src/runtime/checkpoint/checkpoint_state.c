/* Slices of a module and an optimizer: of what ranks step slices of, each rank has the state of its
 * own alone. */
#include "runtime/checkpoint/checkpoint_state.h"

#include <stdio.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/load_names.h"

enum { NAME_BYTES = 1024 };

/* Under its name in a checkpoint. */
static tutti_status_t add_optim(void *list, const char *name, tutti_tensor_t *tensor)
{
    char prefixed[NAME_BYTES];
    const int bytes = snprintf(prefixed, sizeof prefixed, TT_OPTIM_PREFIX "%s", name);
    return bytes > 0 && bytes < NAME_BYTES
               ? tt_tensor_list_add(list, prefixed, tensor)
               : TT_FAIL(TUTTI_ERR_ARG, "checkpoint: the name \"%.200s…\" is too long", name);
}

/* A tensor of the state: whole, or what this rank has of it (slice.h). */
static tutti_slice_t slice_of(const char *name, tutti_tensor_t *x)
{
    return x->part == NULL ? tutti_slice_whole(name, x)
                           : tutti_slice_interval(name, x, x->part->whole, x->part->first);
}

/* A parameter of which no rank keeps the whole: what this rank has of it is saved, and read into.
 */
static bool is_elsewhere(const tutti_tensor_t *x)
{
    return x->slice != NULL && x->slice->values->storage != x->storage;
}

static tutti_status_t add_module(void *list, const char *name, tutti_tensor_t *x)
{
    return tt_tensor_list_add(list, name, is_elsewhere(x) ? x->slice->values : x);
}

/* All tensors of the list, and the caller's slices. */
static tutti_status_t list_slices(const tutti_checkpoint_t *c, tt_checkpoint_state_t *state)
{
    const size_t own = state->tensors.count;
    state->slices = tt_alloc_array(own + c->slice_count + 1, sizeof *state->slices, "checkpoint");
    TT_TRY_ALLOC(state->slices);
    for (size_t i = 0; i < own; i++) {
        state->slices[i] = slice_of(state->tensors.items[i].name, tt_listed(&state->tensors, i));
    }
    for (size_t i = 0; i < c->slice_count; i++) {
        state->slices[own + i] = c->slices[i];
    }
    state->slice_count = own + c->slice_count;
    return TUTTI_OK;
}

tutti_status_t tt_checkpoint_state_saved(const tutti_checkpoint_t *c, tt_checkpoint_state_t *out)
{
    *out = (tt_checkpoint_state_t){0};
    tutti_status_t status = TUTTI_OK;
    if (c->module != NULL) {
        status = tutti_module_each_tensor(c->module, add_module, &out->tensors);
    }
    out->module_count = out->tensors.count;
    if (c->optim != NULL && status >= 0) {
        status = tutti_optim_each_state(c->optim, add_optim, &out->tensors);
    }
    status = status < 0 ? status : list_slices(c, out);
    return status < 0 ? tt_checkpoint_state_end(out, status) : TUTTI_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* A module's tensor, and what is read into, at the same place of both lists. */
static tutti_status_t want_module(const tutti_checkpoint_t *c, tt_checkpoint_state_t *state)
{
    TT_TRY(tutti_module_each_tensor(c->module, add_module, &state->module));
    for (size_t i = 0; i < state->module.count; i++) {
        const char *name = state->module.items[i].name;
        tutti_tensor_t *x = tt_listed(&state->module, i), *into;
        TT_TRY(tt_load_check(x, name, c->device));
        TT_TRY(tt_load_begin(x, c->device, &into));
        const tutti_status_t status = tt_tensor_list_add(&state->tensors, name, into);
        tutti_tensor_release(into);
        TT_TRY(status);
    }
    return TUTTI_OK;
}

static tt_saved_state_t find_saved(const void *source, const char *name)
{
    char prefixed[NAME_BYTES];
    const tt_loaded_t *from = source;
    snprintf(prefixed, sizeof prefixed, TT_OPTIM_PREFIX "%s", name);
    if (!tt_load_takes(&from->options, prefixed)) {
        return TT_STATE_STAYS;
    }
    return tt_load_find(&from->options, from->manifest, prefixed).saved != NULL ? TT_STATE_SAVED
           : from->options.allow_missing                                        ? TT_STATE_STAYS
                                                                                : TT_STATE_NONE;
}

static tutti_status_t want_all(const tutti_checkpoint_t *c, const tt_loaded_t *from,
                               tt_checkpoint_state_t *state)
{
    if (c->module != NULL) {
        TT_TRY(want_module(c, state));
    }
    if (c->optim != NULL) {
        TT_TRY(tt_optim_load_begin(c->optim, c->device, find_saved, from, &state->loading));
        TT_TRY(tt_optim_load_each(state->loading, add_optim, &state->tensors));
    }
    return list_slices(c, state);
}

tutti_status_t tt_checkpoint_state_wanted(const tutti_checkpoint_t *c, const tt_loaded_t *from,
                                          tt_checkpoint_state_t *out)
{
    *out = (tt_checkpoint_state_t){0};
    const tutti_status_t status = want_all(c, from, out);
    return status < 0 ? tt_checkpoint_state_end(out, status) : TUTTI_OK;
}

/* ---- who must know of what is read ----------------------------------------------------------- */

typedef struct {
    bool is_begin;
    tt_slicer_t *told; /* the last one */
    tutti_status_t status;
} telling_t;

/* Parameters of one slicer follow each other, mostly; to be told twice is no harm. */
static tutti_status_t tell(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    telling_t *telling = user;
    if (!is_elsewhere(x) || x->slice->slicer == telling->told) {
        return TUTTI_OK;
    }
    tt_slicer_t *slicer = telling->told = x->slice->slicer;
    telling->status = telling->is_begin ? slicer->agree(slicer, telling->status)
                                        : slicer->stepped(slicer, telling->status);
    return TUTTI_OK;
}

static tutti_status_t tell_slicers(const tutti_checkpoint_t *c, bool is_begin,
                                   tutti_status_t status)
{
    telling_t telling = {.is_begin = is_begin, .status = status};
    if (c->module != NULL) {
        (void)tutti_module_each_tensor(c->module, tell, &telling);
    }
    return telling.status;
}

tutti_status_t tt_checkpoint_state_claim(const tutti_checkpoint_t *c)
{
    return tell_slicers(c, true, TUTTI_OK);
}

tutti_status_t tt_checkpoint_state_publish(const tutti_checkpoint_t *c)
{
    return tell_slicers(c, false, TUTTI_OK);
}

tutti_status_t tt_checkpoint_state_end(tt_checkpoint_state_t *state, tutti_status_t status)
{
    if (state->loading != NULL) {
        status = tt_optim_load_end(state->loading, status);
    }
    for (size_t i = 0; i < state->module.count && i < state->tensors.count && status >= 0; i++) {
        tutti_tensor_t *into = tutti_tensor_retain(tt_listed(&state->tensors, i));
        status = tt_load_end(tt_listed(&state->module, i), into, status);
    }
    tt_tensor_list_release(&state->module);
    tt_tensor_list_release(&state->tensors);
    tt_free(state->slices);
    *state = (tt_checkpoint_state_t){0};
    return status;
}
