/* The replicas' gradients of each parameter become one: in the first replica's memory, which then
 * becomes the original's gradient without a copy, and added up by the canonical tree.
 *
 * Cost: reads each gradient of each replica once, writes one of each parameter.
 */
#include "core/tensor/tensor_impl.h"
#include "parallel/data_parallel/data_parallel_impl.h"
#include "parallel/reduce/local_sum.h"

_Static_assert((int)TUTTI_DATA_PARALLEL_MAX <= (int)TT_LOCAL_SUM_MAX, "a source of each replica");

/* The gradients of parameter `index`, NULL where none came; returns the first one. */
static tutti_tensor_t *find_gradients(const tt_replica_run_t *run, size_t index,
                                      tutti_tensor_t **grads)
{
    tutti_tensor_t *first = NULL;
    for (int i = 0; i < run->count; i++) {
        grads[i] = tutti_tensor_grad(tt_listed(&run->team->replicas[i].params, index));
        first = first == NULL ? grads[i] : first;
    }
    return first;
}

/* All of them, added up in `target`. */
static tutti_status_t sum_gradients(tutti_scope_t *s, tutti_tensor_t *target,
                                    tutti_tensor_t **grads, int count)
{
    tutti_tensor_t *zero = NULL;
    for (int i = 0; i < count; i++) {
        if (grads[i] == NULL && zero == NULL) {
            TT_TRY(tt_tensor_new(s->ctx->place.device, target->dtype, target->shape, true, &zero));
        }
        grads[i] = grads[i] == NULL ? zero : grads[i];
    }
    tt_local_sum(tt_scope_threads(s), target, grads, count, true);
    tutti_tensor_release(zero);
    return TUTTI_OK;
}

tutti_status_t tt_replica_sum(tutti_scope_t *s, tt_replica_run_t *run)
{
    tutti_tensor_t *grads[TUTTI_DATA_PARALLEL_MAX];
    for (size_t k = 0; k < run->team->params.count; k++) {
        tutti_tensor_release(run->sums[k]);
        run->sums[k] = NULL;
        tutti_tensor_t *target = find_gradients(run, k, grads);
        if (target == NULL) {
            continue;
        }
        TT_TRY(sum_gradients(s, target, grads, run->count));
        run->sums[k] = tutti_tensor_retain(target);
        for (int i = 0; i < run->count; i++) {
            TT_TRY(tutti_tensor_set_grad(tt_listed(&run->team->replicas[i].params, k), NULL));
        }
    }
    return TUTTI_OK;
}
