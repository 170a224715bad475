/* DataParallel and recomputation: of a wrapper as a whole, of modules inside its replicas, of both;
 * gradients and buffers are those of a run that keeps everything. */
#include <tutti/modes.h>

#include "parallel/data_parallel/data_parallel_testing.h"

static tutti_status_t wrap(tutti_context_t *ctx, void *user, bool recompute, tutti_module_t **out)
{
    tutti_module_t *plain;
    TUTTI_CHECK(build(ctx, user, &plain));
    const tutti_sequential_options_t options = {
        .modules = &plain, .count = 1, .recompute = recompute};
    const tutti_status_t status = tutti_module_create(ctx, &tutti_sequential_layer, &options, out);
    tutti_module_release(plain);
    return status;
}

static tutti_status_t build_keeping(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    return wrap(ctx, user, false, out);
}

static tutti_status_t build_recomputing(tutti_context_t *ctx, void *user, tutti_module_t **out)
{
    return wrap(ctx, user, true, out);
}

typedef struct {
    grads_t grads;
    float buffers[2 * HIDDEN + 1]; /* running_mean, running_var, num_batches_tracked */
    float x[7 * IN];               /* the gradient of the input */
} result_t;

static tutti_status_t take_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    float **next = user;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        *(*next)++ = (float)tutti_tensor_at(x, i);
    }
    return TUTTI_OK;
}

/* Two backwards of two forwards each. */
static result_t learn(bool outside, bool inside)
{
    static const plan_t plan = {.dropout = 0.3f, .has_norm = true};
    const tutti_replica_build_t make = inside ? build_recomputing : build_keeping;
    tutti_context_t *ctx;
    tutti_module_t *module, *model;
    tutti_scope_t *s;
    result_t result = {.grads = {.count = 0}};
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 42}, &ctx), 0);
    assert_int_equal(make(ctx, (void *)(uintptr_t)&plan, &module), 0);
    const tutti_data_parallel_options_t options = {
        .replicas = 2, .threads = 1, .build = make, .user = (void *)(uintptr_t)&plan};
    assert_int_equal(tutti_data_parallel_create(module, &options, &model), 0);
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    tutti_tensor_t *x = rows_of(s, 7);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *y = outside ? tutti_recompute(s, model, x) : tutti_forward(s, model, x);
        tutti_tensor_t *z = outside ? tutti_recompute(s, model, x) : tutti_forward(s, model, x);
        tutti_tensor_t *loss = mean_square(s, tutti_add(s, y, z));
        const tutti_backward_options_t retain = {.retain_graph = i == 0};
        assert_int_equal(tutti_backward_with(s, loss, &retain), 0);
        assert_int_equal(i == 0 ? tutti_backward(s, loss) : TUTTI_OK, 0);
    }
    float *next = result.buffers;
    assert_int_equal(tutti_module_each_buffer(module, take_buffer, &next), 0);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        result.x[i] = (float)tutti_tensor_at(tutti_tensor_grad(x), i);
    }
    result.grads = take_grads(module);
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_module_release(model);
    tutti_module_release(module);
    tutti_context_release(ctx);
    return result;
}

static void recomputation_outside_and_inside_changes_no_bit(void **state)
{
    (void)state;
    const result_t kept = learn(false, false);
    assert_true(kept.grads.missing == 0 && kept.buffers[2 * HIDDEN] == 4);
    for (int i = 1; i < 4; i++) {
        const result_t again = learn(i & 1, i & 2);
        expect_same(&again.grads, &kept.grads);
        assert_memory_equal(again.buffers, kept.buffers, sizeof kept.buffers);
        assert_memory_equal(again.x, kept.x, sizeof kept.x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_outside_and_inside_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
