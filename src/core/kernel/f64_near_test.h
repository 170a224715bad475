/* What computes in f64, against formulas in long double: near to a few units of the last place, for
 * sizes around the vectors' widths, with the same bits on all variants. */
#ifndef TT_F64_NEAR_TEST_H
#define TT_F64_NEAR_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/kernel/isa.h"

typedef long double wide_t;

static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129};

enum { SIZES = sizeof sizes / sizeof *sizes, N_MAX = 129 };

static inline void fill(double *x, size_t n, uint64_t stream)
{
    const tt_rng_t rng = tt_rng_stream(stream, 0, 0, 0, 0);
    for (size_t i = 0; i < n; i++) {
        x[i] = (double)tt_rng_normal(rng, 2 * i) + 1e-9 * (double)tt_rng_normal(rng, 2 * i + 1);
    }
}

static inline void assert_near(const char *what, const double *got, const wide_t *want, size_t n)
{
    wide_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmaxl(most, fabsl(want[i]));
    }
    for (size_t i = 0; i < n; i++) {
        if (!(fabsl((wide_t)got[i] - want[i]) <= 1e-14L * (fabsl(want[i]) + most))) {
            fail_msg("%s of %zu, element %zu (%s): %.17g, not %.20Lg", what, n, i,
                     tt_isa_variant_name(tt_isa()), got[i], want[i]);
        }
    }
}

/* Every variant, which the first call of `run` sees as the first; all leave the same bytes. */
static inline void on_all_variants(void (*run)(size_t n), size_t n, const void *result,
                                   size_t bytes)
{
    static unsigned char first[1 << 16];
    assert_true(bytes <= sizeof first);
    unsetenv("TUTTI_ISA");
    const int best = (int)tt_isa();
    for (int variant = 0; variant <= best; variant++) {
        setenv("TUTTI_ISA", tt_isa_variant_name((tt_variant_t)variant), 1);
        run(n);
        if (variant == 0) {
            memcpy(first, result, bytes);
        } else {
            assert_memory_equal(first, result, bytes);
        }
    }
    unsetenv("TUTTI_ISA");
}

#endif
