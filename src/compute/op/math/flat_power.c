/* 0 is taken out before the power, and put back behind it. See flat_power.h. */
#include "compute/op/math/flat_power.h"

#include <tutti/op_math.h>

tutti_tensor_t *tt_flat_power(tutti_scope_t *s, tutti_tensor_t *x, double p)
{
    if (p == 1) {
        return x;
    }
    if (!(p > 0 && p < 1)) {
        return tutti_pow_scalar(s, x, p);
    }
    tutti_tensor_t *is_zero = tutti_eq_scalar(s, x, 0);
    x = tutti_masked_fill(s, x, is_zero, 1);
    x = p == 0.5 ? tutti_sqrt(s, x) : tutti_pow_scalar(s, x, p);
    return tutti_masked_fill(s, x, is_zero, 0);
}
