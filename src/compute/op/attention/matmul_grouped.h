/* Products of many heads with matrices that groups of them share. */
#ifndef TT_MATMUL_GROUPED_H
#define TT_MATMUL_GROUPED_H

#include <tutti/tensor.h>

/* x [B,H,M,K] · y [B,Hkv,K,N] -> [B,H,M,N]: head h has matrix h / (H / Hkv). The rows of a group
 * are those of one product, so that nothing is repeated, and dy is one product, too. */
tutti_tensor_t *tt_matmul_grouped(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *y);

#endif
