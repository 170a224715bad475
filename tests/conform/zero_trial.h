/* A trial of zero_test.c: a value for an option, and what came of it. */
#ifndef TT_ZERO_TRIAL_H
#define TT_ZERO_TRIAL_H

#include <tutti/modes.h>

#include "core/tensor/device_testing.h"

enum { N = 24 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    double value;
    double out[2 * N]; /* what came of it */
} trial_t;

enum { NUMBERS_MAX = 1024 };

/* Rows of small numbers, so that an eps counts. */
static tutti_tensor_t *numbers(tutti_scope_t *s, tutti_shape_t shape)
{
    float values[NUMBERS_MAX];
    const int64_t n = tutti_shape_numel(shape);
    assert_in_range(n, 1, NUMBERS_MAX);
    for (int64_t i = 0; i < n; i++) {
        values[i] = 1e-3F * (float)((i * 7 + 3) % 11 - 5);
    }
    return tutti_from_data(s, TUTTI_F32, shape, values);
}

static void keep(trial_t *t, int first, const tutti_tensor_t *x)
{
    for (int64_t i = 0; i < N && i < tutti_tensor_numel(x); i++) {
        t->out[first + i] = tutti_tensor_at(x, i);
    }
}

static tutti_status_t keep_result(trial_t *t, const tutti_tensor_t *y)
{
    TUTTI_CHECK(tutti_scope_status(t->s));
    keep(t, 0, y);
    return TUTTI_OK;
}

#endif
