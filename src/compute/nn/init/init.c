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

tt_rng_t tt_init_next(tutti_context_t *ctx)
{
    return tt_rng_stream(ctx->seed, BEFORE_ANY_STEP, 0, ctx->parameter_count++, 0);
}

tutti_status_t tt_init_fill(tutti_context_t *ctx, tutti_tensor_t *x, const tt_initializer_t *init)
{
    const tt_random_t at = {.rng = init->rng};
    const double a = init->numbers[0], b = init->numbers[1];
    tt_exec_t *exec = tt_tensor_exec(ctx, x);
    const tt_strided_t out = tt_tensor_strided(x);
    const size_t count = (size_t)tutti_tensor_numel(x);
    switch ((tutti_init_kind_t)init->numbers[2]) {
    case TUTTI_INIT_UNIFORM:
        return tt_fill_uniform(exec, at, TUTTI_F32, out.data, count, a, b);
    case TUTTI_INIT_NORMAL:
        return tt_fill_normal(exec, at, TUTTI_F32, out.data, count, a, b);
    case TUTTI_INIT_CONSTANT:
        break;
    }
    return tt_fill(exec, &out, a);
}

tt_initializer_t tt_init_filler(tutti_context_t *ctx, tutti_init_t init)
{
    return (tt_initializer_t){.run = tt_init_fill,
                              .numbers = {init.a, init.b, (double)init.kind},
                              .rng = tt_init_next(ctx)};
}

tutti_status_t tt_init_run(tutti_context_t *ctx, tutti_tensor_t *x, tt_initializer_t init)
{
    if (tt_device_has_values(x->storage->device)) {
        return init.run(ctx, x, &init);
    }
    init.dtype = x->dtype;
    return tt_tensor_keep(x, &init);
}
