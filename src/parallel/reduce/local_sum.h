/* The sum of several tensors in this process, by the context's threads. */
#ifndef TT_LOCAL_SUM_H
#define TT_LOCAL_SUM_H

#include "core/base/threads.h"
#include "core/tensor/tensor_impl.h"

enum { TT_LOCAL_SUM_MAX = 64 };

/* sources: [count], at most TT_LOCAL_SUM_MAX, added up by the canonical tree over them, or from
 * left to right. out may be a source; it has their dtype, or 16 bits where they have f32. */
void tt_local_sum(tt_threads_t *threads, tutti_tensor_t *out, tutti_tensor_t *const *sources,
                  int count, bool by_tree);

#endif
