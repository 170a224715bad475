/* What an optimizer is about to change, kept so that the change can be undone. */
#ifndef TT_PIPELINE_UNDO_H
#define TT_PIPELINE_UNDO_H

#include "compute/optim/optimizer.h"

typedef struct tt_undo_slot tt_undo_slot_t;

typedef struct {
    tutti_optim_t *opt;    /* borrowed */
    tt_undo_slot_t *slots; /* [slot_count] */
    size_t slot_count;
} tt_undo_t;

tutti_status_t tt_undo_open(tutti_optim_t *opt, tt_undo_t *undo);
void tt_undo_close(tt_undo_t *undo);

/* Values and state of all slots that have a gradient, and how often they were changed. A step ends
 * what was kept before. */
tutti_status_t tt_undo_keep(tt_undo_t *undo);

/* They are what they were. Slices are claimed and published around it by the caller. */
tutti_status_t tt_undo_put_back(tt_undo_t *undo);

/* Whether the slot had a gradient. */
bool tt_undo_has(const tt_undo_t *undo, size_t slot);

#endif
