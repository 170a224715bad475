/* What the tests of recomputation share: a module that does all sorts of things. For *_test.c only.
 */
#ifndef TT_RECOMPUTE_TESTING_H
#define TT_RECOMPUTE_TESTING_H

#include "core/tensor/device_testing.h"

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "core/tensor/tensor_impl.h"

static inline tutti_context_t *new_context(int threads)
{
    tutti_context_t *ctx;
    assert_int_equal(
        tt_test_context(&(tutti_context_options_t){.threads = threads, .seed = 5}, &ctx), 0);
    return ctx;
}

static inline tutti_scope_t *open_scope(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    return s;
}

/* ---- a module that does all sorts of things -------------------------------------------------- */

typedef struct {
    tutti_module_t *norm;
    tutti_tensor_t *w;     /* used twice inside, and once outside */
    int forwards, again;   /* calls, and those of them that recompute */
    bool adds_one_again;   /* an operation that the first forward did not do */
    bool leaves_out_again; /* the last one */
    bool does_other_again; /* another in its place */
    bool fails_again;      /* what it does has wrong shapes */
    bool goes_back_inside; /* calls backward */
    size_t bytes_max;      /* allocated at the end of any forward */
} odd_t;

static inline tutti_status_t odd_init(tutti_module_t *m, const void *options)
{
    (void)options;
    odd_t *odd = tutti_module_state(m);
    const tutti_batch_norm_layer_options_t norm = {.width = 4, .momentum = 0.1, .eps = 1e-5};
    TT_TRY(tutti_module_new_child(m, "norm", &tutti_batch_norm_layer, &norm, &odd->norm));
    return tutti_module_new_parameter(m, "w", TUTTI_SHAPE(4, 4),
                                      (tutti_init_t){TUTTI_INIT_NORMAL, 0, 0.5}, &odd->w);
}

static inline tutti_tensor_t *misbehave(tutti_scope_t *s, const odd_t *odd, tutti_tensor_t *y)
{
    y = odd->adds_one_again ? tutti_exp(s, y) : y;
    y = odd->does_other_again ? tutti_exp(s, y) : y;
    return odd->fails_again ? tutti_matmul(s, y, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 3))) : y;
}

/* y = tanh(dropout(norm(x w)) w + noise) */
static inline tutti_tensor_t *odd_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    odd_t *odd = tutti_module_state(m);
    const bool is_again = tutti_context_is_recomputing(tutti_scope_context(s));
    odd->forwards++;
    odd->again += is_again;
    tutti_tensor_t *y = tutti_forward(s, odd->norm, tutti_matmul(s, x, odd->w));
    y = tutti_matmul(s, tutti_dropout(s, y, 0.3f), odd->w);
    y = tutti_add(s, y, tutti_uniform(s, TUTTI_F32, tutti_tensor_shape(y), -1, 1));
    if (is_again) {
        y = misbehave(s, odd, y);
    }
    if (odd->goes_back_inside) {
        (void)tutti_backward(s, tutti_sum(s, y));
    }
    if (!(is_again && (odd->leaves_out_again || odd->does_other_again))) {
        y = tutti_tanh(s, y);
    }
    const size_t bytes = tt_alloc_stats().bytes;
    odd->bytes_max = bytes > odd->bytes_max ? bytes : odd->bytes_max;
    return y;
}

static const tutti_module_ops_t odd_ops = {.name = "odd",
                                           .about = "all sorts",
                                           .state_bytes = sizeof(odd_t),
                                           .init = odd_init,
                                           .forward = odd_forward};

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *m;
    odd_t *odd;
    tutti_scope_t *s;
    tutti_tensor_t *x;
    int hook_calls;
} setting_t;

static inline void count_call(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    ((setting_t *)user)->hook_calls++;
}

static inline setting_t begin(void)
{
    static const float values[] = {1, 2, 3, 4, -1, 0, 2, 5, 7, 1, -3, 2};
    setting_t set = {.ctx = new_context(1)};
    assert_int_equal(tutti_module_create(set.ctx, &odd_ops, NULL, &set.m), 0);
    set.odd = tutti_module_state(set.m);
    set.s = open_scope(set.ctx);
    set.x = tutti_from_data(set.s, TUTTI_F32, TUTTI_SHAPE(3, 4), values);
    return set;
}

static inline tutti_status_t end(setting_t *set)
{
    const tutti_status_t status = tutti_scope_close(set->s);
    tutti_module_release(set->m);
    tutti_context_release(set->ctx);
    return status;
}

static inline tutti_tensor_t *call(setting_t *set, tutti_tensor_t *x, bool recompute)
{
    return recompute ? tutti_recompute(set->s, set->m, x) : tutti_forward(set->s, set->m, x);
}

/* Twice the module, w outside of it too, x itself wanted; some dropout before and after, so that a
 * random number too many would be seen. */
static inline tutti_tensor_t *loss_of(setting_t *set, bool recompute)
{
    tutti_scope_t *s = set->s;
    assert_int_equal(tutti_tensor_set_requires_grad(set->x, true), 0);
    tutti_tensor_t *y = call(set, tutti_dropout(s, set->x, 0.1f), recompute);
    y = call(set, tutti_matmul(s, y, set->odd->w), recompute);
    return tutti_sum(s, tutti_dropout(s, tutti_mul(s, y, y), 0.3f));
}

static inline tutti_status_t expect_equal(void *user, const char *name, tutti_tensor_t *a)
{
    tutti_tensor_t *b = tutti_module_find(user, name);
    assert_memory_equal(tt_test_host(a), tt_test_host(b), a->storage->bytes);
    a = tutti_tensor_grad(a);
    b = tutti_tensor_grad(b);
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL) {
        assert_memory_equal(tt_test_host(a), tt_test_host(b), a->storage->bytes);
    }
    return TUTTI_OK;
}

static inline void expect_same(setting_t *a, setting_t *b)
{
    assert_int_equal(tutti_module_each_tensor(a->m, expect_equal, b->m), 0);
    assert_memory_equal(tt_test_host(tutti_tensor_grad(a->x)),
                        tt_test_host(tutti_tensor_grad(b->x)), 12 * sizeof(float));
    assert_int_equal(a->ctx->random_calls, b->ctx->random_calls);
}
/* The module in so many sequentials, one in another, each with the module once more behind the
 * inner one; the caller releases it. */
static inline tutti_module_t *nest(setting_t *set, int levels, bool recompute)
{
    tutti_module_t *inner = tutti_module_retain(set->m);
    for (int i = 0; i < levels; i++) {
        tutti_module_t *outer;
        const tutti_sequential_options_t options = {
            .modules = (tutti_module_t *[]){inner, set->m}, .count = 2, .recompute = recompute};
        assert_int_equal(tutti_module_create(set->ctx, &tutti_sequential_layer, &options, &outer),
                         0);
        tutti_module_release(inner);
        inner = outer;
    }
    return inner;
}
static inline void expect_failure(setting_t *set, tutti_tensor_t *loss, tutti_status_t status,
                                  const char *text)
{
    assert_int_equal(tutti_backward(set->s, loss), status);
    tt_expect_error("recomputing odd for its backward: ");
    tt_expect_error(text);
    assert_false(tutti_context_is_recomputing(set->ctx));
    assert_int_equal(end(set), status);
}

static inline int count_storages(void)
{
    char report[4096] = "\n"; /* in no order: it may begin with what is looked for */
    int count = 0;
    (void)tt_alloc_report(report + 1, sizeof report - 1);
    const char *at = strstr(report, "\nstorage: ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\nstorage: %d blocks", &count), 1);
    return count;
}

#endif
