/* Many parameters of one optimizer: each once, in time that grows as their number does. */
#include <tutti/context.h>
#include <tutti/optim.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/testing.h"

/* Names, tensors and memory that are there already, among many. */
static void many_parameters_are_hardly_compared(void **state)
{
    enum { MANY = 2000, ELEMENTS = 4 };
    (void)state;
    tutti_context_t *ctx;
    tutti_tensor_t *other;
    tutti_optim_t *opt;
    tutti_tensor_t *x, *view;
    char name[16];
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ELEMENTS), &other), 0);
    assert_int_equal(tutti_optim_create(ctx, &tutti_sgd, NULL, &opt), 0);
    const size_t before = tt_alloc_stats().allocations;
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ELEMENTS), &x), 0);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, name, x), 0);
        tutti_tensor_release(x);
    }
    assert_in_range(opt->compared, 1, 1000);
    assert_in_range(tt_alloc_stats().allocations - before, MANY, 6 * MANY);
    for (size_t i = 0; i < MANY; i += 101) {
        tutti_tensor_t *there = opt->slots[i].tensor;
        snprintf(name, sizeof name, "%zu", i);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, "new", there), TUTTI_ERR_ARG);
        tt_expect_error("is there already");
        assert_int_equal(tutti_optim_add_parameter(opt, 0, name, other), TUTTI_ERR_ARG);
        tt_expect_error("another parameter is called");
        assert_int_equal(tt_tensor_over(there->storage, TUTTI_F32, TUTTI_SHAPE(2), NULL,
                                        there->offset + 2, &view),
                         0);
        snprintf(name, sizeof name, "view %zu", i);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, name, view), TUTTI_ERR_ARG);
        tt_expect_error("shares memory with");
        tutti_tensor_release(view);
    }
    assert_int_equal(opt->slot_count, MANY);
    assert_int_equal(tutti_optim_add_parameter(opt, 0, "new", other), 0); /* refused before */
    tutti_optim_release(opt);
    tutti_tensor_release(other);
    tutti_context_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_parameters_are_hardly_compared),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
