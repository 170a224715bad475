/* The random stream of a call. */
#ifndef TT_RANDOM_STREAM_H
#define TT_RANDOM_STREAM_H

#include <tutti/op_nn.h>

#include "core/base/rng.h"
#include "core/tensor/tensor_impl.h"

/* The next stream of a context, or the named one: a function of (seed, step, shard, module,
 * call). */
static inline tt_rng_t tt_random_stream(tutti_context_t *ctx, tutti_random_name_t name)
{
    const uint64_t call = name.module == 0 ? ctx->random_calls++ : name.call;
    return tt_rng_stream(ctx->seed, (uint64_t)ctx->step, (uint64_t)ctx->shard, name.module, call);
}

/* A tensor [batch, own, each] that is a part of one of [batch, whole, each], from `first` on; whole
 * 0: all of it. Random numbers are those of the whole. */
typedef struct {
    int64_t each, own, first, whole;
} tt_window_t;

/* Dropout by a stream, whatever the mode: element i is dropped by the stream's number i. */
tutti_tensor_t *tt_dropout_by(tutti_scope_t *s, tutti_tensor_t *x, tt_rng_t rng, double p,
                              const tt_window_t *window);

/* tutti_dropout() of a part. */
tutti_tensor_t *tt_dropout_part(tutti_scope_t *s, tutti_tensor_t *x, float p,
                                const tt_window_t *window);

#endif
