/* Powers as norms want them. */
#ifndef TT_FLAT_POWER_H
#define TT_FLAT_POWER_H

#include <tutti/tensor.h>

/* x^p, recorded. Of a p between 0 and 1 the slope at 0 is infinite, and would be NaN times a
 * gradient of 0 from above: 0 gives 0 there without a gradient, as PyTorch's norms have it. Cost:
 * three passes more for such a p. */
tutti_tensor_t *tt_flat_power(tutti_scope_t *s, tutti_tensor_t *x, double p);

#endif
