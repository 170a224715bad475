/* Packs: memory in the shared heap where the tensors of a list lie side by side while a call is
 * under way, or where a contribution is scaled; and the tensors that the call holds. The engine
 * copies what goes in and out, in the order of the calls (call_memory.c).
 *
 * Kept by the group and used again; a pack that is too small gets larger memory. So in the steady
 * state nothing is allocated. Cost: one copy in and one out of what does not lie side by side.
 */
#include "comm/group/group_impl.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

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
    tt_free(pack->packed.copies);
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

static tutti_status_t grow_lists(tt_pack_t *pack, int count)
{
    if (count <= pack->capacity) {
        return TUTTI_OK;
    }
    const int wanted = count > 2 * pack->capacity ? count : 2 * pack->capacity;
    void *held = tt_realloc(pack->held, (size_t)wanted * sizeof *pack->held, "tensors of a list");
    TT_TRY_ALLOC(held);
    pack->held = held;
    tt_copy_t *copies =
        tt_realloc(pack->packed.copies, (size_t)wanted * sizeof *copies, "copies of a list");
    TT_TRY_ALLOC(copies);
    pack->packed.copies = copies;
    pack->capacity = wanted;
    return TUTTI_OK;
}

tutti_status_t tt_pack_grow(tutti_group_t *group, tt_pack_t *pack, size_t bytes, int capacity)
{
    TT_TRY(grow_memory(group, pack, bytes));
    return grow_lists(pack, capacity);
}

tutti_status_t tt_pack_take(tutti_group_t *group, size_t bytes, int capacity, tt_pack_t **out)
{
    tt_pack_t *pack = group->free_packs;
    if (pack != NULL) {
        group->free_packs = pack->next;
    } else {
        pack = tt_alloc(sizeof *pack, "pack");
        TT_TRY_ALLOC(pack);
    }
    const tutti_status_t status = tt_pack_grow(group, pack, bytes, capacity);
    if (status < 0) {
        free_pack(group, pack);
        return status;
    }
    pack->held_count = pack->packed.count = 0;
    *out = pack;
    return TUTTI_OK;
}

void tt_pack_hold(tt_pack_t *pack, tutti_tensor_t *x, bool is_output)
{
    TT_ASSERT(pack->held_count < pack->capacity);
    pack->held[pack->held_count++] = (tt_held_t){tutti_tensor_retain(x), is_output};
}

void tt_pack_hold_list(tt_pack_t *pack, tutti_tensor_t *const *list, int size, char *memory,
                       bool is_out)
{
    for (int i = 0; i < size; i++) {
        const size_t bytes = tutti_tensor_bytes(list[i]);
        tt_pack_hold(pack, list[i], is_out);
        if (memory != NULL && bytes > 0) {
            tt_pack_add(pack, (tt_copy_t){.memory = tutti_tensor_data(list[i]),
                                          .packed = memory,
                                          .bytes = bytes,
                                          .is_in = !is_out,
                                          .is_out = is_out});
            memory += bytes;
        }
    }
}

void tt_pack_add(tt_pack_t *pack, tt_copy_t copy)
{
    TT_ASSERT(pack->packed.count < pack->capacity);
    pack->packed.copies[pack->packed.count++] = copy;
}

void tt_pack_touch_outputs(const tt_pack_t *pack)
{
    for (int i = 0; i < pack->held_count; i++) {
        if (pack->held[i].is_output) {
            tt_tensor_touch(pack->held[i].x);
        }
    }
}

void tt_pack_give_back(tutti_group_t *group, tt_pack_t *pack)
{
    for (int i = 0; i < pack->held_count; i++) {
        tutti_tensor_release(pack->held[i].x);
    }
    pack->held_count = 0;
    pack->next = group->free_packs;
    group->free_packs = pack;
}

tutti_status_t tt_group_check_apart(const tutti_group_t *group, const char *call,
                                    tutti_tensor_t *const *outputs)
{
    const char *end = NULL; /* of all before */
    for (int i = 0; i < group->size; i++) {
        const char *data = tutti_tensor_data(outputs[i]);
        for (int k = 0; data < end && k < i; k++) {
            if (tt_tensors_overlap(outputs[i], outputs[k])) {
                return TT_FAIL(TUTTI_ERR_ARG,
                               "%s: outputs[%d] and outputs[%d] of rank %d overlap; each becomes "
                               "another part",
                               call, k, i, group->rank);
            }
        }
        const char *own_end = data + tutti_tensor_bytes(outputs[i]);
        end = own_end > end ? own_end : end;
    }
    return TUTTI_OK;
}

void tt_pack_free_all(tutti_group_t *group)
{
    while (group->free_packs != NULL) {
        tt_pack_t *pack = group->free_packs;
        group->free_packs = pack->next;
        free_pack(group, pack);
    }
}
