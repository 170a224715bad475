/* Slices of a module and an optimizer: of what ranks step slices of, each rank has the state of its
 * own alone. */
#include "runtime/checkpoint/checkpoint_state.h"

#include <stdio.h>
#include <string.h>

#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/base/pointer_set.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/load_names.h"

enum { NAME_BYTES = 1024 };

/* Under its name in a checkpoint. */
static tutti_status_t add_under(tt_tensor_list_t *list, const char *prefix, const char *name,
                                tutti_tensor_t *tensor)
{
    char prefixed[NAME_BYTES];
    const int bytes = snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
    return bytes > 0 && bytes < NAME_BYTES
               ? tt_tensor_list_add(list, prefixed, tensor)
               : TT_FAIL(TUTTI_ERR_ARG, "checkpoint: the name \"%.200s…\" is too long", name);
}

static tutti_status_t add_optim(void *list, const char *name, tutti_tensor_t *tensor)
{
    return add_under(list, TT_OPTIM_PREFIX, name, tensor);
}

static tutti_status_t add_average(void *list, const char *name, tutti_tensor_t *tensor)
{
    return add_under(list, TT_AVERAGED_PREFIX, name, tensor);
}

/* They are read into as they lie: a load that fails midway is one of a damaged file. */
static tutti_status_t add_averages(const tutti_checkpoint_t *c, tt_checkpoint_state_t *state)
{
    return c->averaged == NULL
               ? TUTTI_OK
               : tutti_averaged_each_state(c->averaged, add_average, &state->tensors);
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
    TT_TRY(tt_tensor_check_decided(x, name));
    return tt_tensor_list_add(list, name, is_elsewhere(x) ? x->slice->values : x);
}

/* Run `run` of a tensor that is spread over ranks (spread.h), whose first index is `at` of it. */
static tutti_status_t add_run(tt_checkpoint_state_t *state, const char *name,
                              const tutti_tensor_t *x, int run, int64_t at)
{
    const tt_spread_t *spread = x->spread;
    int64_t offset[TUTTI_RANK_MAX] = {0}, strides[TUTTI_RANK_MAX];
    tutti_shape_t shape = x->part == NULL ? x->shape : x->part->whole;
    tutti_tensor_t *view;
    if (x->part == NULL) {
        memcpy(strides, x->strides, sizeof strides);
    } else {
        tt_shape_strides(shape, strides);
    }
    shape.dims[spread->dim] = spread->runs[run].count;
    offset[spread->dim] = spread->runs[run].first;
    TT_TRY(tt_tensor_over(x->storage, x->dtype, shape, strides,
                          x->offset + at * strides[spread->dim], &view));
    const tutti_status_t status = tt_tensor_list_add(&state->views, name, view);
    if (status >= 0) {
        state->slices[state->slice_count++] = tutti_slice_box(name, view, spread->whole, offset);
    }
    tutti_tensor_release(view);
    return status;
}

/* Who deals out what is spread gives it to one rank, as a whole. */
static tutti_status_t add_spread(tt_checkpoint_state_t *state, size_t item)
{
    const char *name = state->tensors.items[item].name;
    const tutti_tensor_t *x = tt_listed(&state->tensors, item);
    int64_t at = 0;
    if (x->part != NULL && x->numel == 0) {
        return TUTTI_OK;
    }
    if (x->part != NULL && x->numel != tutti_shape_numel(x->part->whole)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "checkpoint: %s is a part by tensor parallelism, of which this rank has a "
                       "slice: such a part of a part cannot be saved",
                       name);
    }
    for (int run = 0; run < x->spread->run_count; run++) {
        TT_TRY(x->spread->runs[run].count > 0 ? add_run(state, name, x, run, at) : TUTTI_OK);
        at += x->spread->runs[run].count;
    }
    return TUTTI_OK;
}

static size_t count_slices(const tt_checkpoint_state_t *state)
{
    size_t count = 0;
    for (size_t i = 0; i < state->tensors.count; i++) {
        const tt_spread_t *spread = tt_listed(&state->tensors, i)->spread;
        count += spread == NULL ? 1 : (size_t)spread->run_count;
    }
    return count;
}

/* All tensors of the list, of which the first `module_tensors` are the module's, and the caller's
 * slices. */
static tutti_status_t list_slices(const tutti_checkpoint_t *c, size_t module_tensors,
                                  tt_checkpoint_state_t *state)
{
    const size_t room = count_slices(state) + c->slice_count + 1;
    state->slices = tt_alloc_array(room, sizeof *state->slices, "checkpoint");
    TT_TRY_ALLOC(state->slices);
    state->first = tt_alloc_array(state->tensors.count + 1, sizeof *state->first, "checkpoint");
    TT_TRY_ALLOC(state->first);
    for (size_t i = 0; i < state->tensors.count; i++) {
        tutti_tensor_t *x = tt_listed(&state->tensors, i);
        if (x->spread != NULL) {
            TT_TRY(add_spread(state, i));
        } else {
            state->slices[state->slice_count++] = slice_of(state->tensors.items[i].name, x);
        }
        state->first[i + 1] = state->slice_count;
    }
    state->module_count = state->first[module_tensors];
    for (size_t i = 0; i < c->slice_count; i++) {
        state->slices[state->slice_count++] = c->slices[i];
    }
    return TUTTI_OK;
}

tutti_status_t tt_checkpoint_state_saved(const tutti_checkpoint_t *c, tt_checkpoint_state_t *out)
{
    *out = (tt_checkpoint_state_t){0};
    tutti_status_t status = TUTTI_OK;
    if (c->module != NULL) {
        status = tutti_module_each_tensor(c->module, add_module, &out->tensors);
    }
    const size_t module_tensors = out->tensors.count;
    if (c->optim != NULL && status >= 0) {
        status = tutti_optim_each_state(c->optim, add_optim, &out->tensors);
    }
    status = status < 0 ? status : add_averages(c, out);
    status = status < 0 ? status : list_slices(c, module_tensors, out);
    return status < 0 ? tt_checkpoint_state_end(out, status) : TUTTI_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* What is read into: the same for all names of a tensor. */
static tutti_status_t begin_tensor(const tutti_checkpoint_t *c, const tt_checkpoint_state_t *state,
                                   size_t number, bool is_new, tutti_tensor_t **into)
{
    size_t first = 0;
    tutti_tensor_t *x = tt_listed(&state->module, number);
    if (is_new) {
        TT_TRY(tt_load_check(x, state->module.items[number].name, c->device));
        return tt_load_begin(x, c->device, into);
    }
    while (tt_listed(&state->module, first) != x) {
        first++;
    }
    *into = tutti_tensor_retain(tt_listed(&state->tensors, first));
    return TUTTI_OK;
}

static tutti_status_t want_tensors(const tutti_checkpoint_t *c, tt_checkpoint_state_t *state,
                                   tt_pointer_set_t *seen)
{
    for (size_t i = 0; i < state->module.count; i++) {
        bool is_new;
        tutti_tensor_t *into;
        TT_TRY(tt_pointer_set_add(seen, tt_listed(&state->module, i), &is_new));
        TT_TRY(begin_tensor(c, state, i, is_new, &into));
        const tutti_status_t status =
            tt_tensor_list_add(&state->tensors, state->module.items[i].name, into);
        tutti_tensor_release(into);
        TT_TRY(status);
    }
    return TUTTI_OK;
}

/* A module's tensor, and what is read into, at the same place of both lists. */
static tutti_status_t want_module(const tutti_checkpoint_t *c, tt_checkpoint_state_t *state)
{
    tt_pointer_set_t seen = {0};
    TT_TRY(tutti_module_each_tensor(c->module, add_module, &state->module));
    const tutti_status_t status = want_tensors(c, state, &seen);
    tt_pointer_set_release(&seen);
    return status;
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
    TT_TRY(add_averages(c, state));
    return list_slices(c, 0, state);
}

tutti_status_t tt_checkpoint_state_wanted(const tutti_checkpoint_t *c, const tt_loaded_t *from,
                                          tt_checkpoint_state_t *out)
{
    *out = (tt_checkpoint_state_t){0};
    const tutti_status_t status = want_all(c, from, out);
    return status < 0 ? tt_checkpoint_state_end(out, status) : TUTTI_OK;
}

/* One that has several names has left meta with the first. */
static tutti_status_t end_tensor(const tt_checkpoint_state_t *state, size_t number)
{
    tutti_tensor_t *x = tt_listed(&state->module, number);
    return tt_device_has_values(tutti_tensor_device(x))
               ? TUTTI_OK
               : tt_load_end(x, tutti_tensor_retain(tt_listed(&state->tensors, number)), TUTTI_OK);
}

tutti_status_t tt_checkpoint_state_end(tt_checkpoint_state_t *state, tutti_status_t status)
{
    if (state->loading != NULL) {
        status = tt_optim_load_end(state->loading, status);
    }
    for (size_t i = 0; i < state->module.count && i < state->tensors.count && status >= 0; i++) {
        status = end_tensor(state, i);
    }
    tt_tensor_list_release(&state->module);
    tt_tensor_list_release(&state->views);
    tt_tensor_list_release(&state->tensors);
    tt_free(state->slices);
    tt_free(state->first);
    *state = (tt_checkpoint_state_t){0};
    return status;
}
