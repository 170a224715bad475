/* Who deals a module's tensors out to ranks (slice.h), and must know that a checkpoint is read into
 * them.
 */
#ifndef TT_CHECKPOINT_SLICERS_H
#define TT_CHECKPOINT_SLICERS_H

#include <tutti/nn.h>

#include "core/tensor/slice.h"

/* Each once, in the order of the module's tensors: the same on all ranks, whatever part of a tensor
 * a rank has. */
typedef struct {
    tt_slicer_t **slicers; /* [count], borrowed */
    size_t count, capacity;
} tt_checkpoint_slicers_t;

/* module: NULL has none. Errors: NOMEM; the list is to be released in any case. */
tutti_status_t tt_checkpoint_slicers_find(tutti_module_t *module, tt_checkpoint_slicers_t *out);
void tt_checkpoint_slicers_release(tt_checkpoint_slicers_t *list);

/* Slices will be written; have been, or not: publish follows each claim, with how reading went. All
 * ranks call it. Errors: as their slicer's, on all ranks; publish hands a failure of reading on. */
tutti_status_t tt_checkpoint_slicers_claim(const tt_checkpoint_slicers_t *list);
tutti_status_t tt_checkpoint_slicers_publish(const tt_checkpoint_slicers_t *list,
                                             tutti_status_t status);

#endif
