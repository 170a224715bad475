/* Truncated normal numbers by inversion: u uniform between Φ(low) and Φ(high), then Φ⁻¹(u). A
 * number of 53 bits each, so that the tails are filled. Bounds above the mean are mirrored, for Φ
 * is precise where it is small. Cost: four calls of libm a number, on one thread. Source:
 * Abramowitz and Stegun, 26.2.23, for the first guess of Φ⁻¹; Halley's steps after it. */
#include <tutti/nn.h>

#include <math.h>

#include "compute/nn/init/initializers.h"
#include "compute/nn/module_impl.h"
#include "core/base/default.h"
#include "core/base/rng.h"
#include "core/kernel/random/random.h"
#include "core/tensor/tensor_impl.h"

enum { REFINEMENTS = 3 };

static double phi(double z)
{
    return 0.5 * erfc(-z * 0.70710678118654752);
}

/* Φ⁻¹ for p in (0, 0.5]. */
static double lower_quantile(double p)
{
    const double t = sqrt(-2 * log(p));
    const double above = 2.515517 + t * (0.802853 + t * 0.010328);
    const double below = 1 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    double z = above / below - t;
    for (int i = 0; i < REFINEMENTS; i++) {
        const double step = (phi(z) - p) * 2.5066282746310002 * exp(z * z / 2);
        z -= step / (1 + z * step / 2);
    }
    return z;
}

static double quantile(double p)
{
    return p <= 0.5 ? lower_quantile(p) : -lower_quantile(1 - p);
}

/* A normal number between two bounds, in units of the deviation; u is in (0, 1). */
static double draw(double low, double high, double u)
{
    if (low > 0) {
        return -draw(-high, -low, 1 - u);
    }
    const double first = phi(low), p = first + u * (phi(high) - first);
    return p > 0 && p < 1 ? fmin(fmax(quantile(p), low), high) : p > 0 ? high : low;
}

/* An integer of 53 bits and a half: neither 0 nor 1. */
static double uniform(tt_rng_t rng, uint64_t index)
{
    const tt_rng_block_t block = tt_rng_block(rng, index);
    const uint64_t bits = (uint64_t)block.v[0] << 21 | block.v[1] >> 11;
    return ((double)bits + 0.5) * 0x1p-53;
}

static tutti_status_t check_options(const tutti_trunc_normal_options_t *o)
{
    if (!(o->std > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "init_trunc_normal: the standard deviation %g is not above 0",
                       o->std);
    }
    return o->low < o->high
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "init_trunc_normal: nothing lies between %g and %g", o->low,
                         o->high);
}

static tutti_status_t make(tutti_context_t *ctx, tutti_tensor_t *x, const tt_initializer_t *init)
{
    const double mean = init->numbers[0], std = init->numbers[1];
    const double first = init->numbers[2], last = init->numbers[3];
    const double low = (first - mean) / std, high = (last - mean) / std;
    tutti_tensor_t *values;
    (void)ctx;
    TT_TRY(tt_init_borrow(x, &values));
    float *data = tutti_tensor_data(values);
    for (int64_t i = 0; i < x->numel; i++) {
        data[i] = (float)(mean + std * draw(low, high, uniform(init->rng, (uint64_t)i)));
    }
    tt_init_bound(x, values, first, last, true);
    return tt_init_give_back(x, values);
}

tutti_status_t tutti_init_trunc_normal(tutti_context_t *ctx, tutti_tensor_t *x,
                                       const tutti_trunc_normal_options_t *options)
{
    tutti_trunc_normal_options_t o = options == NULL ? (tutti_trunc_normal_options_t){0} : *options;
    o.std = tt_or_default(o.std, 1);
    if (!tt_is_given(o.low) && !tt_is_given(o.high)) {
        o.low = -2;
        o.high = 2;
    }
    TT_TRY(tt_init_check(x, "init_trunc_normal", 0));
    TT_TRY(check_options(&o));
    return tt_init_run(ctx, x,
                       (tt_initializer_t){.run = make,
                                          .numbers = {o.mean, o.std, o.low, o.high},
                                          .rng = tt_init_next(ctx)});
}
