/* Recomputation that fails, and says where it was. */
#include "compute/nn/recompute_testing.h"

#include <tutti/modes.h>

static void a_forward_that_does_not_repeat_itself_is_named(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {offsetof(odd_t, adds_one_again), TUTTI_ERR_STATE, "is exp, and was tanh the first time"},
        {offsetof(odd_t, leaves_out_again), TUTTI_ERR_STATE,
         "5 operations were recorded, and 6 the first time"},
        {offsetof(odd_t, does_other_again), TUTTI_ERR_STATE, "is exp, and was tanh the first time"},
        {offsetof(odd_t, fails_again), TUTTI_ERR_SHAPE, "matmul: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setting_t set = begin();
        *(bool *)((char *)set.odd + cases[i].offset) = true;
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        expect_failure(&set, loss, cases[i].status, cases[i].text);
    }
}

static void what_was_written_since_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        setting_t set = begin();
        tutti_context_set_training(set.ctx, i < 2);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        tutti_tensor_t *mean = tutti_module_find(set.m, "norm.running_mean");
        assert_int_equal(tutti_tensor_fill(i == 0 ? set.x : i == 1 ? set.odd->w : mean, 3), 0);
        expect_failure(&set, loss, TUTTI_ERR_STATE,
                       i == 0   ? "its input f32[3, 4] was written since"
                       : i == 1 ? "a parameter was written since: step after backward"
                                : "a parameter or buffer was written since");
    }
}

/* Other memory, of however many writes. */
static void a_cast_is_a_write(void **state)
{
    (void)state;
    static const tutti_dtype_t casts[][2] = {{TUTTI_F64, TUTTI_F64}, {TUTTI_BF16, TUTTI_F32}};
    for (int i = 0; i < 2; i++) {
        setting_t set = begin();
        assert_int_equal(tutti_module_cast(set.m, TUTTI_F64), TUTTI_OK);
        assert_int_equal(tutti_module_cast(set.m, TUTTI_F32), TUTTI_OK);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        assert_int_equal(tutti_module_cast(set.m, casts[i][0]), TUTTI_OK);
        assert_int_equal(tutti_module_cast(set.m, casts[i][1]), TUTTI_OK);
        expect_failure(&set, loss, TUTTI_ERR_STATE, "a parameter was written since");
    }
}

/* Two parameters of one shape, of which no memory is written. */
static void parameters_that_take_over_each_others_values_are_written(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_tensor_t *a = tutti_module_find(set.m, "norm.weight");
    tutti_tensor_t *b = tutti_module_find(set.m, "norm.bias");
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
    tt_tensor_swap(a, b);
    expect_failure(&set, loss, TUTTI_ERR_STATE, "a parameter was written since");
}

static void a_backward_inside_is_refused(void **state)
{
    (void)state;
    setting_t set = begin();
    set.odd->goes_back_inside = true;
    assert_int_equal(tutti_tensor_status(tutti_recompute(set.s, set.m, set.x)), TUTTI_ERR_STATE);
    tt_expect_error("backward inside a forward that is to be recomputed");
    assert_int_equal(end(&set), TUTTI_ERR_STATE);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        setting_t set = begin();
        tutti_module_t *m = nest(&set, 1, true);
        assert_int_equal(tutti_tensor_set_requires_grad(set.x, true), 0);
        tt_alloc_fail_at(n);
        tutti_tensor_t *y = tutti_recompute(set.s, set.m, set.x);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, m, y));
        (void)tutti_backward(set.s, loss);
        (void)tutti_scope_fail(set.s, tt_test_wait(set.ctx));
        const tutti_status_t status = tutti_scope_status(set.s);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        tutti_module_release(m);
        assert_int_equal(end(&set), status);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* A backward of nested regions that failed anywhere leaves nothing, and may be run again. */
static void a_failed_backward_may_be_run_again(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_module_t *m = nest(&set, 2, true);
    const tutti_backward_options_t retain = {.retain_graph = true};
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, m, set.x));
    float want[16];
    bool has_failed = true;
    tutti_scope_t *s = open_scope(set.ctx);
    assert_int_equal(tutti_backward_with(s, loss, &retain), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    memcpy(want, tt_test_host(tutti_tensor_grad(set.odd->w)), sizeof want);
    tutti_module_zero_grad(m);
    const int storages = count_storages();
    for (size_t n = 1; has_failed; n++) {
        s = open_scope(set.ctx);
        tt_alloc_fail_at(n);
        (void)tutti_backward_with(s, loss, &retain);
        (void)tt_test_wait(set.ctx);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        (void)tutti_scope_close(s);
        assert_int_equal(count_storages(), storages);
        tutti_module_zero_grad(m);
        s = open_scope(set.ctx);
        assert_int_equal(tutti_backward_with(s, loss, &retain), 0);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_memory_equal(tt_test_host(tutti_tensor_grad(set.odd->w)), want, sizeof want);
        tutti_module_zero_grad(m);
    }
    tutti_module_release(m);
    assert_int_equal(end(&set), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forward_that_does_not_repeat_itself_is_named),
        cmocka_unit_test(what_was_written_since_is_named),
        cmocka_unit_test(a_cast_is_a_write),
        cmocka_unit_test(parameters_that_take_over_each_others_values_are_written),
        cmocka_unit_test(a_backward_inside_is_refused),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
        cmocka_unit_test(a_failed_backward_may_be_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
