/* What a profile is told of operations (profiler.h): where they run, and what they move. */
#ifndef TT_PROFILED_H
#define TT_PROFILED_H

#include <tutti/op.h>

#include "core/base/profiler.h"
#include "core/tensor/tensor_impl.h"

/* The number of the module whose forward runs. */
static inline uint32_t tt_profiled_module(const tutti_context_t *ctx)
{
    return ctx->frame == NULL ? 0 : ctx->frame->profiled;
}

/* Elements of outputs, bytes of inputs and outputs. */
tt_profile_end_t tt_profiled_forward(const tutti_op_call_t *call);

/* Elements of the gradients that it made, and their bytes, with those of what came in and of what
 * was saved. */
tt_profile_end_t tt_profiled_backward(const tutti_op_backward_t *call, int saved_count);

#endif
