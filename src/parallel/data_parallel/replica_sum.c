/* The replicas' gradients of each parameter become one: in the first replica's memory, which then
 * becomes the original's gradient without a copy, and added up by the canonical tree.
 *
 * Cost: reads each gradient of each replica once, writes one of each parameter.
 */
#include <tutti/op_math.h>
#include <tutti/op_shape.h>

#include "core/kernel/elementwise/combine.h"
#include "core/kernel/reduce/tree.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"
#include "parallel/reduce/local_sum.h"

_Static_assert((int)TUTTI_DATA_PARALLEL_MAX <= (int)TT_LOCAL_SUM_MAX, "a source of each replica");

/* The gradients of parameter `index`, retained, on the first device; NULL where none came. */
static tutti_status_t take_gradients(const tt_replica_run_t *run, size_t index,
                                     tutti_tensor_t **grads, tutti_tensor_t **first)
{
    for (int i = 0; i < run->count; i++) {
        tutti_tensor_t *grad = tutti_tensor_grad(tt_listed(&run->team->replicas[i].params, index));
        if (grad != NULL) {
            grads[i] = tutti_tensor_retain(grad);
            TT_TRY(tt_replica_move(tt_replica_device(run->team, 0), &grads[i]));
            *first = *first == NULL ? grads[i] : *first;
        }
    }
    return TUTTI_OK;
}

/* As tt_local_sum() by the tree, launched: sums of 16-bit gradients are f32. */
static tutti_status_t sum_launched(tutti_scope_t *s, tutti_tensor_t *target,
                                   tutti_tensor_t *const *grads, int count)
{
    tutti_tensor_t *stack[TT_TREE_DEPTH_MAX];
    tt_tree_stack_t tree = {.leaves = count};
    const tutti_dtype_t dtype = tt_combine_dtype(target->dtype);
    for (int i = 0; i < count; i++) {
        stack[tree.depth] = tutti_cast(s, grads[i], dtype);
        tt_tree_push(&tree, i, i + 1);
        while (tt_tree_can_merge(&tree)) {
            const int left = tree.depth - 2;
            stack[left] = tutti_add(s, stack[left], stack[left + 1]);
            tt_tree_merge(&tree);
        }
    }
    TT_TRY(tutti_scope_status(s));
    return tutti_tensor_copy(target, stack[0]);
}

/* All of them, added up in `target`. */
static tutti_status_t sum_gradients(tutti_scope_t *s, tutti_tensor_t *target,
                                    tutti_tensor_t **grads, int count)
{
    for (int i = 0; i < count; i++) {
        if (grads[i] == NULL) {
            TT_TRY(tt_tensor_new(tt_memory_of(s->ctx, target), target->dtype, target->shape, true,
                                 &grads[i]));
        }
    }
    if (target->storage->device != NULL) {
        return sum_launched(s, target, grads, count);
    }
    tt_local_sum(tt_scope_threads(s), target, grads, count, true);
    return TUTTI_OK;
}

static tutti_status_t sum_parameter(tutti_scope_t *s, tt_replica_run_t *run, size_t k,
                                    tutti_tensor_t **grads)
{
    tutti_tensor_t *target = NULL;
    TT_TRY(take_gradients(run, k, grads, &target));
    if (target == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(sum_gradients(s, target, grads, run->count));
    run->sums[k] = tutti_tensor_retain(target);
    for (int i = 0; i < run->count; i++) {
        TT_TRY(tutti_tensor_set_grad(tt_listed(&run->team->replicas[i].params, k), NULL));
    }
    return TUTTI_OK;
}

tutti_status_t tt_replica_sum(tutti_scope_t *s, tt_replica_run_t *run)
{
    for (size_t k = 0; k < run->team->params.count; k++) {
        tutti_tensor_t *grads[TUTTI_DATA_PARALLEL_MAX] = {0};
        tutti_tensor_release(run->sums[k]);
        run->sums[k] = NULL;
        const tutti_status_t status = sum_parameter(s, run, k, grads);
        tt_tensors_release(grads, (size_t)run->count);
        TT_TRY(status);
    }
    return TUTTI_OK;
}
