/* A context and a scope of its own for each test. For *_test.c only.
 *
 *     static int setup(void **state)
 *     {
 *         return tt_fixture_open(state, (tutti_context_options_t){.threads = 1});
 *     }
 *     … cmocka_unit_test_setup_teardown(test, setup, tt_fixture_close) …
 */
#ifndef TT_SCOPE_TESTING_H
#define TT_SCOPE_TESTING_H

#include "core/tensor/device_testing.h"

#include <tutti/context.h>
#include <tutti/tensor.h>

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
} tt_fixture_t;

static inline int tt_fixture_open(void **state, tutti_context_options_t options)
{
    static tt_fixture_t f;
    assert_int_equal(tt_test_context(&options, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

/* The program fails if memory is left. */
static inline int tt_fixture_close(void **state)
{
    tt_fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    return tt_nothing_is_left(state);
}

#endif
