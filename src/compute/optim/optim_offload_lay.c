/* Which units of the disk's ring (disk_ring.h) the state of slots is in. A slot of many elements is
 * cut into chunks, each of which is a unit: a chunk of every moment, and of the master, one behind
 * another. Slots of few elements share a unit with those beside them. Kinds that look at whole
 * parameters have units of whole slots.
 *
 * A chunk is a multiple of a section, so that what is measured is the same numbers as in memory.
 */
#include <string.h>

#include "compute/optim/optim_offload.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/device/disk_device.h"

/* CHUNK: elements. UNIT_BYTES: of slots together, less where all state is little: buffers are to be
 * a small part of it. */
enum { CHUNK = 1 << 18, UNIT_BYTES = 2 << 20, UNIT_BYTES_MIN = 64 << 10, UNITS_MIN = 64 };
_Static_assert((int)TT_OPTIM_STORED == (int)TT_DISK_RANGES_MAX, "a unit has room for a slot");

tt_device_t *tt_optim_host_state_device(const tutti_optim_t *opt)
{
    return opt->offload == NULL ? NULL : opt->offload->disk;
}

tt_device_t *tt_optim_state_device(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    tt_device_t *own = tt_optim_weight(slot)->storage->device;
    return own == NULL ? tt_optim_host_state_device(opt) : own;
}

tutti_tensor_t *tt_optim_stored(const tt_optim_slot_t *slot, int i)
{
    if (i < TT_OPTIM_KEPT) {
        return tt_optim_kept(slot, i);
    }
    return !tt_optim_is_stored(slot) ? NULL
           : i == TT_OPTIM_WEIGHT    ? tt_optim_weight(slot)
                                     : tt_optim_grad(slot);
}

/* Where it is in the file; NULL: nowhere. */
static const void *place_of(const tutti_optim_t *opt, const tt_optim_slot_t *slot, int i)
{
    const tutti_tensor_t *kept = tt_optim_stored(slot, i);
    return kept == NULL || kept->numel == 0 || !tt_optim_is_offloaded(opt, slot)
               ? NULL
               : tt_tensor_data(kept);
}

bool tt_optim_is_as_laid(const tutti_optim_t *opt, size_t slot)
{
    if (slot >= opt->offload->place_count) {
        return false;
    }
    for (int i = 0; i < TT_OPTIM_STORED; i++) {
        if (opt->offload->places[slot].at[i] != place_of(opt, &opt->slots[slot], i)) {
            return false;
        }
    }
    return true;
}

bool tt_optim_is_laid(const tutti_optim_t *opt)
{
    if (!tt_disk_ring_take(tt_disk_ring_of(opt->offload->disk), opt)) {
        return false;
    }
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (!tt_optim_is_as_laid(opt, i)) {
            return false;
        }
    }
    return opt->offload->place_count == opt->slot_count;
}

static size_t chunk_of(const tutti_optim_t *opt, const tt_optim_slot_t *slot)
{
    if (opt->ops->wants_whole) {
        return SIZE_MAX;
    }
    return opt->ops->measure == NULL
               ? CHUNK
               : tt_round_up(CHUNK, tt_optim_section((size_t)slot->tensor->numel));
}

size_t tt_optim_kept_bytes(const tutti_optim_t *opt, const tutti_tensor_t *kept, size_t count)
{
    const size_t elements = opt->ops->wants_whole ? (size_t)kept->numel : count;
    return tt_round_up(elements * sizeof(float), TT_DISK_BLOCK);
}

size_t tt_optim_chunk_count(const tt_optim_slot_t *slot, const tt_optim_place_t *place,
                            size_t first)
{
    return tt_min_size((size_t)tt_optim_weight(slot)->numel - first, place->chunk);
}

typedef struct {
    tutti_optim_t *opt;
    tt_optim_place_t *places;
    tt_disk_unit_t *units;
    size_t unit_count, capacity;
    size_t unit_bytes; /* of slots together, at most */
    bool is_shared;    /* the last unit is of whole slots: more may come into it */
} laying_t;

static tutti_status_t add_unit(laying_t *laying)
{
    if (laying->unit_count == laying->capacity) {
        const size_t capacity = 2 * laying->capacity + 64;
        tt_disk_unit_t *grown = tt_realloc(laying->units, capacity * sizeof *grown, "offload");
        TT_TRY_ALLOC(grown);
        laying->units = grown;
        laying->capacity = capacity;
    }
    laying->units[laying->unit_count++] = (tt_disk_unit_t){.count = 0};
    return TUTTI_OK;
}

/* Joined to the one before where it lies behind it. False: there is no place for another. */
static bool add_range(tt_disk_unit_t *unit, tt_disk_range_t range)
{
    tt_disk_range_t *last = unit->count == 0 ? NULL : &unit->ranges[unit->count - 1];
    if (last != NULL && last->at + last->bytes == range.at &&
        last->is_constant == range.is_constant) {
        last->bytes += range.bytes;
        return true;
    }
    if (unit->count == TT_DISK_RANGES_MAX) {
        return false;
    }
    unit->ranges[unit->count++] = range;
    return true;
}

/* A chunk of all that is kept of a slot. */
static bool add_chunk(const laying_t *laying, size_t slot, size_t first, tt_disk_unit_t *unit)
{
    const tt_optim_slot_t *at = &laying->opt->slots[slot];
    const tt_optim_place_t *place = &laying->places[slot];
    const size_t count = tt_optim_chunk_count(at, place, first);
    bool has_room = true;
    for (int i = 0; i < TT_OPTIM_STORED; i++) {
        if (place->at[i] != NULL) {
            has_room &= add_range(
                unit,
                (tt_disk_range_t){tt_disk_place(place->at[i]) + first * sizeof(float),
                                  tt_optim_kept_bytes(laying->opt, tt_optim_stored(at, i), count),
                                  i == TT_OPTIM_GRADIENT});
        }
    }
    return has_room;
}

/* Into the unit before, if it is shared and this one is small. */
static bool share_unit(laying_t *laying, size_t slot)
{
    tt_disk_unit_t *last = &laying->units[laying->unit_count - 1];
    tt_disk_unit_t together = *last;
    if (!laying->is_shared || !add_chunk(laying, slot, 0, &together) ||
        tt_disk_unit_bytes(&together) > laying->unit_bytes) {
        return false;
    }
    laying->places[slot].unit = laying->unit_count - 1;
    laying->places[slot].base = tt_disk_unit_bytes(last);
    *last = together;
    return true;
}

static bool has_state(const tt_optim_place_t *place)
{
    for (int i = 0; i < TT_OPTIM_STORED; i++) {
        if (place->at[i] != NULL) {
            return true;
        }
    }
    return false;
}

static tutti_status_t lay_slot(laying_t *laying, size_t slot)
{
    const tt_optim_slot_t *at = &laying->opt->slots[slot];
    tt_optim_place_t *place = &laying->places[slot];
    for (int i = 0; i < TT_OPTIM_STORED; i++) {
        place->at[i] = place_of(laying->opt, at, i);
    }
    if (!has_state(place)) {
        return TUTTI_OK;
    }
    const size_t numel = (size_t)tt_optim_weight(at)->numel;
    place->chunk = chunk_of(laying->opt, at);
    const bool is_one = numel <= place->chunk;
    if (is_one && laying->unit_count > 0 && share_unit(laying, slot)) {
        return TUTTI_OK;
    }
    place->unit = laying->unit_count;
    for (size_t first = 0; first < numel; first += tt_min_size(place->chunk, numel)) {
        TT_TRY(add_unit(laying));
        (void)add_chunk(laying, slot, first, &laying->units[laying->unit_count - 1]);
    }
    laying->is_shared = is_one;
    return TUTTI_OK;
}

static size_t bytes_together(const tutti_optim_t *opt)
{
    size_t bytes = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        for (int k = 0; k < TT_OPTIM_STORED; k++) {
            bytes += place_of(opt, &opt->slots[i], k) == NULL
                         ? 0
                         : tutti_tensor_bytes(tt_optim_stored(&opt->slots[i], k));
        }
    }
    return tt_max_size(UNIT_BYTES_MIN, tt_min_size(UNIT_BYTES, bytes / UNITS_MIN));
}

static tutti_status_t lay_slots(laying_t *laying)
{
    const tutti_optim_t *opt = laying->opt;
    laying->unit_bytes = bytes_together(opt);
    laying->places = tt_alloc_array(opt->slot_count + 1, sizeof(tt_optim_place_t), "offload");
    TT_TRY_ALLOC(laying->places);
    for (size_t i = 0; i < opt->slot_count; i++) {
        TT_TRY(lay_slot(laying, i));
    }
    return tt_disk_ring_set_units(tt_disk_ring_of(opt->offload->disk), laying->units,
                                  laying->unit_count);
}

tutti_status_t tt_optim_lay_out(tutti_optim_t *opt)
{
    laying_t laying = {.opt = opt};
    const tutti_status_t status = lay_slots(&laying);
    tt_free(laying.units);
    if (status < 0) {
        tt_free(laying.places);
        return status;
    }
    tt_free(opt->offload->places);
    opt->offload->places = laying.places;
    opt->offload->place_count = opt->slot_count;
    return TUTTI_OK;
}
