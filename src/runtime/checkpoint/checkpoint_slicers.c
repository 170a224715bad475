/* Slicers are found before anybody waits for others, so that what may fail on one rank alone, for
 * want of memory, does so while ranks still agree on how to go on.
 */
#include "runtime/checkpoint/checkpoint_slicers.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

static bool has_slicer(const tt_checkpoint_slicers_t *list, const tt_slicer_t *slicer)
{
    for (size_t i = list->count; i > 0; i--) { /* mostly the last one */
        if (list->slicers[i - 1] == slicer) {
            return true;
        }
    }
    return false;
}

static tutti_status_t add_slicer_of(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    tt_checkpoint_slicers_t *list = user;
    if (x->slice == NULL || has_slicer(list, x->slice->slicer)) {
        return TUTTI_OK;
    }
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 4;
        tt_slicer_t **slicers =
            tt_realloc(list->slicers, capacity * sizeof(tt_slicer_t *), "checkpoint slicers");
        TT_TRY_ALLOC(slicers);
        list->slicers = slicers;
        list->capacity = capacity;
    }
    list->slicers[list->count++] = x->slice->slicer;
    return TUTTI_OK;
}

tutti_status_t tt_checkpoint_slicers_find(tutti_module_t *module, tt_checkpoint_slicers_t *out)
{
    *out = (tt_checkpoint_slicers_t){0};
    return module == NULL ? TUTTI_OK : tutti_module_each_tensor(module, add_slicer_of, out);
}

void tt_checkpoint_slicers_release(tt_checkpoint_slicers_t *list)
{
    tt_free(list->slicers);
    *list = (tt_checkpoint_slicers_t){0};
}

/* Ranks whose groups have failed do not wait in later ones: these are told, too. */
tutti_status_t tt_checkpoint_slicers_claim(const tt_checkpoint_slicers_t *list)
{
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < list->count; i++) {
        tt_slicer_t *slicer = list->slicers[i];
        const tutti_status_t begun = slicer->begin(slicer);
        status = slicer->agree(slicer, status < 0 ? status : begun);
    }
    return status;
}

tutti_status_t tt_checkpoint_slicers_publish(const tt_checkpoint_slicers_t *list,
                                             tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    tutti_status_t published = status;
    for (size_t i = 0; i < list->count; i++) {
        published = list->slicers[i]->stepped(list->slicers[i], published);
    }
    return status < 0 ? tt_fail_again(status, text) : published;
}
