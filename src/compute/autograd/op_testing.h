/* What tests of operations of one's own share: a context, a scope and a leaf. */
#ifndef TT_OP_TESTING_H
#define TT_OP_TESTING_H

#include <string.h>

#include <tutti/tutti.h>

#include "core/tensor/device_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x; /* a leaf [2]: 2, 3 */
} fixture_t;

static inline int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2), &f.x), 0);
    assert_int_equal(tutti_tensor_copy_from(f.x, (float[]){2, 3}), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    *state = &f;
    return 0;
}

static inline int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->x);
    tutti_context_release(f->ctx);
    return 0;
}

/* A scope for what is to fail; it says `text`, and is closed. */
static inline tutti_scope_t *open_scope_to_fail(const fixture_t *f)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    return s;
}

static inline void close_failed_scope(tutti_scope_t *s, const char *text)
{
    assert_non_null(strstr(tutti_scope_error(s), text));
    assert_true(tutti_scope_close(s) < 0);
}

static inline void expect_values(tutti_tensor_t *x, double first, double second)
{
    assert_non_null(x);
    assert_true(tutti_tensor_at(x, 0) == first && tutti_tensor_at(x, 1) == second);
}

#endif
