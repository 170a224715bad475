/* Recomputation of a module: its call as a region of the graph (region.h). What the module reads
 * beside its inputs are its parameters, and in evaluation its buffers; their memory and versions
 * are the stamp. Cost: modes.h. */
#include <tutti/modes.h>

#include "compute/autograd/region.h"
#include "compute/nn/module_impl.h"

static void forward(tutti_scope_t *s, void *user, tutti_tensor_t *const *inputs, int input_count,
                    tutti_tensor_t **outputs, int output_count)
{
    tutti_forward_many(s, user, inputs, input_count, outputs, output_count);
}

/* Other memory, as of a cast or of mixed precision, is another value, too; so is that of two
 * tensors which swap it. */
static uint64_t mix(uint64_t stamp, uint64_t value)
{
    return (stamp + value) * UINT64_C(0x9e3779b97f4a7c15);
}

/* While a module trains, its buffers are what it writes. */
static uint64_t stamp(void *user, bool is_training)
{
    const tutti_module_t *m = user;
    uint64_t sum = 0;
    for (size_t i = 0; i < m->slot_count; i++) {
        const tutti_tensor_t *x = m->slots[i].tensor;
        if (!m->slots[i].is_buffer || !is_training) {
            sum = mix(mix(sum, (uintptr_t)x->storage), (uint64_t)x->offset);
            sum = mix(sum, x->storage->version);
        }
    }
    for (size_t i = 0; i < m->child_count; i++) {
        sum = mix(sum, stamp(m->children[i].module, is_training));
    }
    return sum;
}

static bool reads(void *user, tt_storage_t *const *storages, size_t count)
{
    const tutti_module_t *m = user;
    for (size_t i = 0; i < m->slot_count; i++) {
        if (tt_is_over_any(m->slots[i].tensor, storages, count)) {
            return true;
        }
    }
    for (size_t i = 0; i < m->child_count; i++) {
        if (reads(m->children[i].module, storages, count)) {
            return true;
        }
    }
    return false;
}

static void release(void *user)
{
    tutti_module_release(user);
}

void tutti_recompute_many(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                          int input_count, tutti_tensor_t **outputs, int output_count)
{
    const tt_region_forward_t region = {.name = m->ops->name,
                                        .user = tutti_module_retain(m),
                                        .forward = forward,
                                        .stamp = stamp,
                                        .reads = reads,
                                        .release = release};
    tt_region_run(s, &region, &(tt_region_call_t){inputs, input_count, outputs, output_count});
}

tutti_tensor_t *tutti_recompute(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    tutti_tensor_t *y;
    tutti_recompute_many(s, m, &x, 1, &y, 1);
    return y;
}
