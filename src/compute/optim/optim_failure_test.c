/* A launch that fails within an optimizer: the call says so, and the next one finds nothing half
 * done.
 */
#include "core/base/testing.h"

#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "compute/optim/optimizer.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    tutti_tensor_t *x; /* [4] bf16, of twos; its gradient: ones */
} fixture_t;

/* ---- launches of a context ------------------------------------------------------------------- */

static size_t left; /* until one fails; 0: none does */

static tutti_status_t launch_or_fail(tt_exec_t *exec, const tt_kernel_t *kernel,
                                     const void *arguments)
{
    if (left > 0 && --left == 0) {
        return TT_FAIL(TUTTI_ERR_IO, "%s: it cannot be launched", kernel->name);
    }
    return kernel->run(exec->threads, arguments);
}

static int setup(void **state)
{
    static fixture_t f;
    tutti_tensor_t *grad;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(
        tutti_optim_create(f.ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.5}, &f.opt), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(4), &f.x), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_BF16, TUTTI_SHAPE(4), &grad), 0);
    assert_int_equal(tutti_tensor_fill(f.x, 2), 0);
    assert_int_equal(tutti_tensor_fill(grad, 1), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), 0);
    assert_int_equal(tutti_tensor_set_grad(f.x, grad), 0);
    assert_int_equal(tutti_optim_add_parameter(f.opt, 0, "x", f.x), 0);
    tutti_tensor_release(grad);
    f.ctx->exec.launch = launch_or_fail;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_optim_release(f->opt);
    tutti_tensor_release(f->x);
    tutti_context_release(f->ctx);
    return 0;
}

/* The f32 copy of the parameter has no values until it has all of them. */
static void a_master_that_was_not_made_is_made_again(void **state)
{
    fixture_t *f = *state;
    left = 1;
    assert_int_equal(tt_optim_prepare_master(f->opt, &f->opt->slots[0]), TUTTI_ERR_IO);
    assert_null(f->opt->slots[0].master);
    assert_int_equal(tutti_optim_step(f->opt), 0);
    assert_true(tutti_tensor_at(f->x, 3) == 1.5);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_master_that_was_not_made_is_made_again),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
