/* DataParallel when memory runs out, anywhere: a status that says so, or the same gradients; no
 * leak, and nobody waits. */
#include "parallel/data_parallel/data_parallel_testing.h"

static tutti_status_t step(tutti_context_t *ctx, tutti_module_t *model)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *y = tutti_forward(s, model, rows_of(s, 5));
    (void)tutti_backward(s, mean_square(s, y));
    return tutti_scope_close(s);
}

static tutti_status_t wrap_and_step(tutti_context_t *ctx, tutti_module_t *module, plan_t *plan)
{
    tutti_module_t *model;
    const tutti_data_parallel_options_t options = {
        .replicas = 2, .threads = 1, .build = build, .user = plan};
    TUTTI_CHECK(tutti_data_parallel_create(module, &options, &model));
    const tutti_status_t status = step(ctx, model);
    tutti_module_release(model);
    return status;
}

/* What is left of a job that may fail anywhere. */
typedef struct {
    tutti_status_t status;
    int has_failed; /* an allocation */
    grads_t grads;
} outcome_t;

static outcome_t run_job(size_t failing_allocation)
{
    outcome_t outcome = {0};
    plan_t plan = {.has_norm = true, .dropout = 0.5F};
    tutti_context_t *ctx;
    tutti_module_t *module;
    const tutti_context_options_t context = {.threads = 1, .seed = 42};
    assert_int_equal(tutti_context_create(&context, &ctx), TUTTI_OK);
    assert_int_equal(build(ctx, &plan, &module), TUTTI_OK);
    tt_alloc_fail_at(failing_allocation);
    outcome.status = wrap_and_step(ctx, module, &plan);
    outcome.has_failed = tt_alloc_has_failed();
    tt_alloc_fail_at(0);
    if (outcome.status >= 0) {
        outcome.grads = take_grads(module);
    }
    tutti_module_release(module);
    tutti_context_release(ctx);
    return outcome;
}

static void a_failed_allocation_is_a_status_or_does_no_harm(void **state)
{
    (void)state;
    char report[1024];
    const outcome_t whole = run_job(0);
    assert_int_equal(whole.status, TUTTI_OK);
    size_t nth = 0;
    for (int has_failed = 1; has_failed;) {
        const outcome_t outcome = run_job(++nth);
        has_failed = outcome.has_failed;
        if (outcome.status < 0) {
            assert_int_equal(outcome.status, TUTTI_ERR_NOMEM);
        } else {
            expect_same(&outcome.grads, &whole.grads);
        }
        if (tt_alloc_report(report, sizeof report) != 0) {
            fail_msg("allocation %zu failed, and there leaked:\n%s", nth, report);
        }
    }
    assert_true(nth > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_allocation_is_a_status_or_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
