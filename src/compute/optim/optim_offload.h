/* State of slots in a file (device disk): what a step does instead of using tensors in memory.
 *
 *     slot, 3 chunks   | moments[0]: a0 a1 a2 |  | moments[1]: b0 b1 b2 |   tensors in the file
 *     units            | a0 b0 |  | a1 b1 |  | a2 b2 |                      as they are in memory
 *     small slots      | moments, master | moments, master | …             one unit
 *
 * Slots have their tensors as ever, whose storages lie on the disk. A round is a step of all slots.
 *
 * Where weights lie on a disk, as slices of DDP may (options.offload), state lies there, too,
 * without being asked to: a chunk then has the weight, and the gradient, which is read alone.
 */
#ifndef TT_OPTIM_OFFLOAD_H
#define TT_OPTIM_OFFLOAD_H

#include "compute/optim/optimizer.h"

/* Moments and the master; then a weight and a gradient that lie in the file, too. */
enum {
    TT_OPTIM_KEPT = TT_MOMENTS_MAX + 1,
    TT_OPTIM_WEIGHT = TT_OPTIM_KEPT,
    TT_OPTIM_GRADIENT,
    TT_OPTIM_STORED
};

/* Where the state of a slot is. */
typedef struct {
    size_t unit;                     /* of the first chunk */
    size_t base;                     /* bytes before it in the unit's memory */
    size_t chunk;                    /* elements of one, but for the last; 0: there is nothing */
    const void *at[TT_OPTIM_STORED]; /* its tensors' memory; NULL: there is none, or not here */
} tt_optim_place_t;

typedef struct tt_optim_offload {
    tt_device_t *disk;
    bool is_borrowed;         /* the disk is that of the weights */
    tt_optim_place_t *places; /* [place_count], of slots; optim_offload_lay.c */
    size_t place_count;
    /* optim_offload.c */
    bool is_open;                   /* in a round */
    bool has_changed;               /* something, in this round */
    bool is_broken;                 /* a round failed half-way */
    char text[TT_ERROR_TEXT_BYTES]; /* of that failure */
} tt_optim_offload_t;

/* ---- laying out (optim_offload_lay.c) -------------------------------------------------------- */

/* Where a slot's state lies, or would: the disk where the parameter lies in the host's memory. */
tt_device_t *tt_optim_state_device(const tutti_optim_t *opt, const tt_optim_slot_t *slot);

/* The same for a parameter in the host's memory. */
tt_device_t *tt_optim_host_state_device(const tutti_optim_t *opt);

/* Its state comes and goes. */
static inline bool tt_optim_is_offloaded(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    const tt_device_t *device = tt_optim_weight(slot)->storage->device;
    return opt->offload != NULL && (device == NULL || device == opt->offload->disk);
}

/* The weight lies in a file. */
static inline bool tt_optim_is_stored(const tt_optim_slot_t *slot)
{
    return tt_device_is_store(tt_optim_weight(slot)->storage->device);
}

/* Moment i, or the master; NULL: there is none. */
static inline tutti_tensor_t *tt_optim_kept(const tt_optim_slot_t *slot, int i)
{
    return i == TT_MOMENTS_MAX ? slot->master : slot->moments[i];
}

/* All that may lie in the file, by its number; NULL: there is none, or it lies elsewhere. */
tutti_tensor_t *tt_optim_stored(const tt_optim_slot_t *slot, int i);

/* Bytes of it in a unit, where that has `count` elements of the slot. */
size_t tt_optim_kept_bytes(const tutti_optim_t *opt, const tutti_tensor_t *kept, size_t count);

/* Elements of the chunk that begins at `first`. */
size_t tt_optim_chunk_count(const tt_optim_slot_t *slot, const tt_optim_place_t *place,
                            size_t first);

/* Whether units are what slots have: of one, of all; and lay them out anew. Nothing is changed
 * where it fails. */
bool tt_optim_is_as_laid(const tutti_optim_t *opt, size_t slot);
bool tt_optim_is_laid(const tutti_optim_t *opt);
tutti_status_t tt_optim_lay_out(tutti_optim_t *opt);

/* ---- steps (optim_offload.c) ----------------------------------------------------------------- */

/* STATE if a step failed half-way. OK without offload. */
tutti_status_t tt_optim_offload_check(const tutti_optim_t *opt);

/* Before slots are stepped, with their tensors made: units are laid out, if they have changed, and
 * the first is there. Nothing is changed where it fails. Does nothing within a round. */
tutti_status_t tt_optim_offload_begin(tutti_optim_t *opt);

/* How the round went; the same status. */
tutti_status_t tt_optim_offload_end(tutti_optim_t *opt, tutti_status_t status);

/* The round goes on, or it is broken. The same status. */
tutti_status_t tt_optim_offload_note(tutti_optim_t *opt, tutti_status_t status);

/* The step of a slot: weight, moments and master. sums: as update_slot has them. */
tutti_status_t tt_optim_offload_update(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                       const tutti_tensor_t *grad, const double *sums);

/* The sums of all its sections of `length` elements, one behind another. */
tutti_status_t tt_optim_offload_measure(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                        const tutti_tensor_t *grad, size_t length, double *sums);

/* All state is new. */
void tt_optim_offload_forgive(tutti_optim_t *opt);

/* ---- having a disk (offload.c) --------------------------------------------------------------- */

/* UNSUPPORTED if state is on a disk, and this parameter's, which lies on a device, would not go
 * there. */
tutti_status_t tt_optim_offload_admit(const tutti_optim_t *opt, const char *call, const char *name,
                                      const tutti_tensor_t *x);
/* Where weights lie on a disk, that is the optimizer's. Errors: NOMEM; STATE (there is state on
 * another one). */
tutti_status_t tt_optim_offload_attach(tutti_optim_t *opt);

/* Before the slots release their tensors, and behind it. */
void tt_optim_offload_leave(tutti_optim_t *opt);
void tt_optim_offload_release(tutti_optim_t *opt);

#endif
