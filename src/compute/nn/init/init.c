/* Initial values of parameters. Parameter number i of a context draws from the stream (seed, before
 * any step, i), and an element takes the number with its own index, so that its maker changes
 * nothing.
 */
#include "compute/nn/module_impl.h"
#include "core/kernel/elementwise/map.h"
#include "core/kernel/random/random.h"
#include "core/tensor/tensor_impl.h"

/* A step that never comes: streams of steps are named by those from 0 on. */
#define BEFORE_ANY_STEP UINT64_MAX

tt_rng_t tt_init_stream(const tutti_context_t *ctx, uint64_t index)
{
    return tt_rng_stream(ctx->seed, BEFORE_ANY_STEP, 0, index, 0);
}

tutti_status_t tt_init_fill(tutti_context_t *ctx, tutti_init_t init, uint64_t index,
                            tutti_tensor_t *x)
{
    const tt_random_t at = {.rng = tt_init_stream(ctx, index)};
    tt_exec_t *exec = tt_tensor_exec(ctx, x);
    const tt_strided_t out = tt_tensor_strided(x);
    const size_t count = (size_t)tutti_tensor_numel(x);
    switch (init.kind) {
    case TUTTI_INIT_UNIFORM:
        return tt_fill_uniform(exec, at, TUTTI_F32, out.data, count, init.a, init.b);
    case TUTTI_INIT_NORMAL:
        return tt_fill_normal(exec, at, TUTTI_F32, out.data, count, init.a, init.b);
    case TUTTI_INIT_CONSTANT:
        break;
    }
    return tt_fill(exec, &out, init.a);
}
