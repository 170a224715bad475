/* The tensors of a checkpoint on this rank: those of module and optimizer, and the caller's slices,
 * in one list of slices.
 */
#ifndef TT_CHECKPOINT_STATE_H
#define TT_CHECKPOINT_STATE_H

#include <tutti/checkpoint.h>

#include "compute/optim/optimizer.h"
#include "core/tensor/tensor_list.h"
#include "runtime/checkpoint/load_state.h"

typedef struct {
    tutti_slice_t *slices;            /* [slice_count] what is saved, or read into */
    size_t slice_count, module_count; /* the first ones are of the module, if these are saved */
    tt_tensor_list_t module, tensors; /* the module's; what the slices are of */
    size_t *first; /* [tensors + 1] the slices of each begin there: one, or those of its runs, of
                      which this rank may have none */
    tt_tensor_list_t views;      /* runs of what is spread over ranks */
    tt_optim_loading_t *loading; /* NULL: none */
} tt_checkpoint_state_t;

/* What is saved. Errors: NOMEM, those of the devices. */
tutti_status_t tt_checkpoint_state_saved(const tutti_checkpoint_t *checkpoint,
                                         tt_checkpoint_state_t *out);

/* What is read into: memory for the module's tensors on meta, and for the optimizer's state that
 * is loaded. Errors: ARG (a device without memory), NOMEM. */
tutti_status_t tt_checkpoint_state_wanted(const tutti_checkpoint_t *checkpoint,
                                          const tt_loaded_t *from, tt_checkpoint_state_t *out);

/* How reading went: if well, module and optimizer have what was read. Releases the list in any
 * case. Errors: that status; FORMAT (no state of an optimizer). */
tutti_status_t tt_checkpoint_state_end(tt_checkpoint_state_t *state, tutti_status_t status);

#endif
