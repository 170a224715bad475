/* Lengths along a dimension. */
#ifndef TT_LENGTHS_H
#define TT_LENGTHS_H

#include <tutti/tensor.h>

/* (Σ |x|^p)^(1/p) along dim, which stays with size 1; at least eps. x is f32 or f64, p above 0, or
 * infinite. */
tutti_tensor_t *tt_length_of(tutti_scope_t *s, tutti_tensor_t *x, double p, int dim, double eps);

#endif
