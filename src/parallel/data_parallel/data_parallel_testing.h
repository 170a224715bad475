/* What the tests of DataParallel share: a model, its wrapper, its gradients. For *_test.c only. */
#ifndef TT_DATA_PARALLEL_TESTING_H
#define TT_DATA_PARALLEL_TESTING_H

#include <tutti/data_parallel.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/testing.h"
#include "core/tensor/tensor_impl.h"

enum { IN = 10, HIDDEN = 19, OUT = 5, VALUES_MAX = 2048 };

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct {
    int64_t hidden; /* 0: HIDDEN */
    int layers;     /* more linear layers of HIDDEN */
    float dropout;
    bool has_norm;
} plan_t;

static inline tutti_status_t add_middle(tutti_module_t *m, const plan_t *plan, int64_t hidden)
{
    const tutti_linear_options_t middle = {.in = hidden, .out = hidden};
    for (int i = 0; i < plan->layers; i++) {
        TUTTI_CHECK(tutti_sequential_add(m, &tutti_linear_layer, &middle, NULL));
    }
    if (plan->has_norm) {
        const tutti_batch_norm_layer_options_t norm = {.width = hidden};
        TUTTI_CHECK(tutti_sequential_add(m, &tutti_batch_norm_layer, &norm, NULL));
    }
    if (plan->dropout > 0) {
        const tutti_dropout_options_t dropout = {.p = plan->dropout};
        TUTTI_CHECK(tutti_sequential_add(m, &tutti_dropout_layer, &dropout, NULL));
    }
    return TUTTI_OK;
}

static inline tutti_status_t build(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    const plan_t *plan = user;
    const int64_t hidden = plan->hidden == 0 ? HIDDEN : plan->hidden;
    const tutti_linear_options_t up = {
        .in = IN, .out = hidden, .activation = TUTTI_ACTIVATION_TANH};
    const tutti_linear_options_t down = {.in = hidden, .out = OUT};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    tutti_status_t status = tutti_sequential_add(*out, &tutti_linear_layer, &up, NULL);
    if (status >= 0) {
        status = add_middle(*out, plan, hidden);
    }
    if (status >= 0) {
        status = tutti_sequential_add(*out, &tutti_linear_layer, &down, NULL);
    }
    if (status < 0) {
        tutti_module_release(*out);
    }
    return status;
}

/* A module, its wrapper, and a scope. */
typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *module, *model;
    tutti_scope_t *s;
} rig_t;

static inline rig_t open_rig_of(const plan_t *plan, tutti_data_parallel_options_t options)
{
    rig_t rig;
    const tutti_context_options_t context = {.threads = 1, .seed = 42};
    options.build = options.build == NULL ? build : options.build;
    options.user = options.user == NULL ? (void *)(uintptr_t)plan : options.user;
    options.threads = options.threads == 0 ? 1 : options.threads;
    assert_int_equal(tutti_context_create(&context, &rig.ctx), TUTTI_OK);
    assert_int_equal(build(rig.ctx, (void *)(uintptr_t)plan, &rig.module), TUTTI_OK);
    assert_int_equal(tutti_data_parallel_create(rig.module, &options, &rig.model), TUTTI_OK);
    assert_int_equal(tutti_scope_open(rig.ctx, &rig.s), TUTTI_OK);
    return rig;
}

static inline rig_t open_rig(int replicas)
{
    static const plan_t plain = {0};
    return open_rig_of(&plain, (tutti_data_parallel_options_t){.replicas = replicas});
}

static inline void close_rig(rig_t *rig)
{
    assert_int_equal(tutti_scope_close(rig->s), TUTTI_OK);
    tutti_module_release(rig->model);
    tutti_module_release(rig->module);
    tutti_context_release(rig->ctx);
}

/* The same rows each time. */
static inline tutti_tensor_t *rows_of(tutti_scope_t *s, int64_t count)
{
    const uint64_t calls = s->ctx->random_calls;
    s->ctx->random_calls = 1000;
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(count, IN), -1, 1);
    s->ctx->random_calls = calls;
    return x;
}

static inline tutti_tensor_t *mean_square(tutti_scope_t *s, tutti_tensor_t *y)
{
    return tutti_mean(s, tutti_mul(s, y, y));
}

/* ---- what parameters have as gradients ------------------------------------------------------- */

typedef struct {
    float values[VALUES_MAX];
    int64_t count;
    int missing;
} grads_t;

static inline tutti_status_t take_grad(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    grads_t *grads = user;
    tutti_tensor_t *grad = tutti_tensor_grad(x);
    grads->missing += grad == NULL;
    for (int64_t i = 0; grad != NULL && i < tutti_tensor_numel(x); i++) {
        assert_true(grads->count < VALUES_MAX);
        grads->values[grads->count++] = (float)tutti_tensor_at(grad, i);
    }
    return tutti_tensor_set_grad(x, NULL);
}

/* And forget them. */
static inline grads_t take_grads(tutti_module_t *m)
{
    grads_t grads = {0};
    assert_int_equal(tutti_module_each_parameter(m, take_grad, &grads), TUTTI_OK);
    return grads;
}

static inline grads_t grads_of(rig_t *rig, tutti_module_t *m, int64_t rows)
{
    tutti_tensor_t *y = tutti_forward(rig->s, m, rows_of(rig->s, rows));
    assert_int_equal(tutti_backward(rig->s, mean_square(rig->s, y)), TUTTI_OK);
    return take_grads(rig->module);
}

static inline void expect_close(const grads_t *a, const grads_t *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->missing, b->missing);
    for (int64_t i = 0; i < a->count; i++) {
        assert_float_equal(a->values[i], b->values[i], 2e-6);
    }
}

static inline void expect_same(const grads_t *a, const grads_t *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->missing, b->missing);
    assert_memory_equal(a->values, b->values, (size_t)a->count * sizeof a->values[0]);
}

static inline void expect_same_values(tutti_tensor_t *a, tutti_tensor_t *b)
{
    assert_true(tutti_shape_equal(tutti_tensor_shape(a), tutti_tensor_shape(b)));
    for (int64_t i = 0; i < tutti_tensor_numel(a); i++) {
        assert_true(tutti_tensor_at(a, i) == tutti_tensor_at(b, i));
    }
}

#endif
