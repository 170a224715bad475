/* The f64 product, for gradient checks: right, not fast. Leading dimensions are filled in. */
#ifndef TT_MATMUL_F64_H
#define TT_MATMUL_F64_H

#include "core/kernel/matmul/matmul.h"

tutti_status_t tt_matmul_f64(tt_pool_t *pool, const tt_matmul_t *m);

#endif
