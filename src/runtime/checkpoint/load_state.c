/* Loading: all ranks compare, then each takes its texts, then its tensors. */
#include "runtime/checkpoint/load_state.h"

#include <string.h>

#include "comm/group/agree.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/checkpoint_slicers.h"
#include "runtime/checkpoint/checkpoint_state.h"
#include "runtime/checkpoint/checkpoint_texts.h"
#include "runtime/checkpoint/host_slices.h"
#include "runtime/checkpoint/load_slices.h"

/* Those of the library tell of an object: "tutti.optimizer". */
static void miss_text(void *problems, const char *name)
{
    if (strncmp(name, "tutti.", 6) == 0) {
        tt_problems_add(problems, "text \"%s\" is not in it: it was saved without the %s", name,
                        name + 6);
    } else {
        tt_problems_add(problems, "text \"%s\" is not in it", name);
    }
}

/* Whether all that this rank has of a tensor is read. */
static bool is_saved(const tt_checkpoint_state_t *state, const tt_slices_load_t *load,
                     size_t number)
{
    size_t i = state->first[number];
    while (i < state->first[number + 1] && load->fits[i].saved != NULL) {
        i++;
    }
    return i == state->first[number + 1];
}

/* Of a tensor that has several names, one is enough. */
static bool is_filled(const tt_checkpoint_state_t *state, const tt_slices_load_t *load,
                      size_t number)
{
    for (size_t i = 0; i < state->module.count; i++) {
        if (tt_listed(&state->tensors, i) == tt_listed(&state->tensors, number) &&
            is_saved(state, load, i)) {
            return true;
        }
    }
    return false;
}

/* What is on meta gets memory, which must be filled: the module's tensors are the first. */
static tutti_status_t check_meta(const tt_checkpoint_state_t *state, const tt_slices_load_t *load)
{
    for (size_t i = 0; i < state->module.count; i++) {
        const bool is_new = tt_listed(&state->module, i) != tt_listed(&state->tensors, i);
        if (is_new && !is_filled(state, load, i)) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "%s: \"%s\" lies on meta, and nothing is loaded into it: "
                           "tutti_module_materialize() gives it values before",
                           load->what, state->module.items[i].name);
        }
    }
    return TUTTI_OK;
}

/* The optimizer's tensors are the next ones. Those of a parameter are new, to be filled: a state of
 * which a part is from elsewhere would be none. */
static tutti_status_t check_optim(const tt_checkpoint_state_t *state, const tt_slices_load_t *load)
{
    for (size_t i = state->module.count; i < state->tensors.count; i++) {
        if (!is_saved(state, load, i)) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "%s: \"%s\" is not loaded, but its parameter's step is: want all or "
                           "nothing of a parameter's state",
                           load->what, state->tensors.items[i].name);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check_new(const tt_checkpoint_state_t *state, const tt_slices_load_t *load)
{
    TT_TRY(check_meta(state, load));
    return check_optim(state, load);
}

/* Texts come first: a loader that refuses its own leaves all tensors as they are. */
static tutti_status_t read_into(const tutti_checkpoint_t *c, const tt_checkpoint_state_t *state,
                                tt_slices_load_t *load)
{
    tt_problems_t problems = {0};
    tt_checkpoint_texts_check(c, load->manifest, miss_text, &problems);
    TT_TRY(tt_slices_fit(load, &problems));
    TT_TRY(tt_group_agree(c->group, check_new(state, load)));
    TT_TRY(tt_group_agree(c->group, tt_checkpoint_texts_load(c, load->manifest)));
    return load->holders == NULL ? tt_group_agree(c->group, tt_slices_read(load))
                                 : tt_host_slices_read(load);
}

/* Between a claim and what is published: the same status on all ranks, or on none. */
static tutti_status_t read_claimed(const tutti_checkpoint_t *c, const tt_loaded_t *from,
                                   tt_checkpoint_state_t *state)
{
    tt_slices_load_t load = {.what = from->what,
                             .group = c->group,
                             .slices = state->slices,
                             .slice_count = state->slice_count,
                             .folder = from->folder,
                             .manifest = from->manifest,
                             .holders = from->holders,
                             .options = from->options};
    tutti_status_t status = read_into(c, state, &load);
    tt_slices_end(&load);
    const bool is_read = status >= 0;
    status = tt_checkpoint_state_end(state, status);
    return is_read ? tt_group_agree(c->group, status) : status;
}

static tutti_status_t want(const tutti_checkpoint_t *c, const tt_loaded_t *from,
                           tt_checkpoint_slicers_t *slicers, tt_checkpoint_state_t *state)
{
    TT_TRY(tt_checkpoint_slicers_find(c->module, slicers));
    return tt_checkpoint_state_wanted(c, from, state);
}

/* A slicer asks its own group, which may be a part of this one: all ranks hear how it was. `status`
 * is that of all. */
static tutti_status_t publish(const tutti_checkpoint_t *c, const tt_checkpoint_slicers_t *slicers,
                              tutti_status_t status)
{
    const tutti_status_t published = tt_checkpoint_slicers_publish(slicers, status);
    return status < 0 ? published : tt_group_agree(c->group, published);
}

tutti_status_t tt_load_state(const tutti_checkpoint_t *c, const tt_loaded_t *from)
{
    tt_checkpoint_state_t state = {0};
    tt_checkpoint_slicers_t slicers = {0};
    tutti_status_t status = tt_group_agree(c->group, want(c, from, &slicers, &state));
    if (status >= 0) {
        status = tt_group_agree(c->group, tt_checkpoint_slicers_claim(&slicers));
        status =
            status < 0 ? tt_checkpoint_state_end(&state, status) : read_claimed(c, from, &state);
        status = publish(c, &slicers, status);
    } else {
        status = tt_checkpoint_state_end(&state, status);
    }
    tt_checkpoint_slicers_release(&slicers);
    return status;
}
