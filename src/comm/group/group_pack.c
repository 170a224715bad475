/* Packs: memory in the shared heap where the tensors of a list lie side by side while a call is
 * under way, or where a contribution is scaled; and the tensors that the call holds.
 *
 * Kept by the group and used again; a pack that is too small gets larger memory. So in the steady
 * state nothing is allocated. Cost: one copy in and one out of what does not lie side by side.
 */
#include "comm/group/group_impl.h"

#include <string.h>

#include "core/base/alloc.h"

static tt_device_t *heap_of(tutti_group_t *group)
{
    return group->backend->memory(group->state);
}

static void free_pack(tutti_group_t *group, tt_pack_t *pack)
{
    if (pack->memory != NULL) {
        tt_device_free(heap_of(group), pack->memory, pack->bytes);
    }
    tt_free(pack->held);
    tt_free(pack);
}

static tutti_status_t grow_memory(tutti_group_t *group, tt_pack_t *pack, size_t bytes)
{
    if (bytes <= pack->bytes) {
        return TUTTI_OK;
    }
    const size_t page = tt_heap_page_bytes(); /* whole pages can be replaced: heap.h */
    bytes = bytes > page ? bytes : page;
    void *memory = tt_device_alloc(heap_of(group), bytes, "packed tensors");
    TT_TRY_ALLOC(memory);
    if (pack->memory != NULL) {
        tt_device_free(heap_of(group), pack->memory, pack->bytes);
    }
    pack->memory = memory;
    pack->bytes = bytes;
    return TUTTI_OK;
}

static tutti_status_t grow_held(tt_pack_t *pack, int count)
{
    if (count <= pack->held_capacity) {
        return TUTTI_OK;
    }
    const int wanted = count > 2 * pack->held_capacity ? count : 2 * pack->held_capacity;
    tt_held_t *held = tt_realloc(pack->held, (size_t)wanted * sizeof *held, "tensors of a list");
    TT_TRY_ALLOC(held);
    pack->held = held;
    pack->held_capacity = wanted;
    return TUTTI_OK;
}

tutti_status_t tt_pack_grow(tutti_group_t *group, tt_pack_t *pack, size_t bytes, int held_count)
{
    TT_TRY(grow_memory(group, pack, bytes));
    return grow_held(pack, held_count);
}

tutti_status_t tt_pack_take(tutti_group_t *group, size_t bytes, int held_count, tt_pack_t **out)
{
    tt_pack_t *pack = group->free_packs;
    if (pack != NULL) {
        group->free_packs = pack->next;
    } else {
        pack = tt_alloc(sizeof *pack, "pack");
        TT_TRY_ALLOC(pack);
    }
    const tutti_status_t status = tt_pack_grow(group, pack, bytes, held_count);
    if (status < 0) {
        free_pack(group, pack);
        return status;
    }
    pack->held_count = 0;
    *out = pack;
    return TUTTI_OK;
}

void tt_pack_hold(tt_pack_t *pack, const tt_held_t *held)
{
    TT_ASSERT(pack->held_count < pack->held_capacity);
    pack->held[pack->held_count++] = *held;
    (void)tutti_tensor_retain(held->x);
}

void tt_pack_settle(tutti_group_t *group, tt_pack_t *pack, bool is_good)
{
    for (int i = 0; i < pack->held_count; i++) {
        const tt_held_t *held = &pack->held[i];
        if (is_good && held->from != NULL) {
            memcpy(tutti_tensor_data(held->x), held->from, tutti_tensor_bytes(held->x));
        }
        tutti_tensor_release(held->x);
    }
    pack->held_count = 0;
    pack->next = group->free_packs;
    group->free_packs = pack;
}

void tt_pack_free_all(tutti_group_t *group)
{
    while (group->free_packs != NULL) {
        tt_pack_t *pack = group->free_packs;
        group->free_packs = pack->next;
        free_pack(group, pack);
    }
}
