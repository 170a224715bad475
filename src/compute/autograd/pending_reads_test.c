/* What a backward under way has still to read. */
#include "core/tensor/device_testing.h"

#include <tutti/autograd.h>
#include <tutti/op_math.h>
#include <tutti/tensor.h>

#include "compute/autograd/node.h"
#include "core/tensor/tensor_impl.h"

enum { COUNT = 6 };

typedef struct {
    tutti_context_t *ctx;
    tutti_tensor_t *w[COUNT];
    int calls;
} chain_t;

/* Storages in one order and in the other: any number of those that are read later, and none. */
static bool reads(const chain_t *chain, int first, int end, bool is_reversed)
{
    tt_storage_t *storages[COUNT];
    for (int i = first; i < end; i++) {
        storages[is_reversed ? end - 1 - i : i - first] = chain->w[i]->storage;
    }
    return tt_backward_reads(chain->ctx, storages, (size_t)(end - first));
}

/* The gradient of w[at] is there. Those before it are still to be read, but for w[0], which would
 * be read for a gradient of x, which wants none. */
static void look(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    chain_t *chain = user;
    int at = 0;
    (void)s;
    while (chain->w[at] != leaf) {
        at++;
    }
    chain->calls++;
    for (int is_reversed = 0; is_reversed < 2; is_reversed++) {
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(reads(chain, i, COUNT, is_reversed), at >= 2 && i < at);
        }
        assert_false(reads(chain, 0, 1, is_reversed));
    }
}

static void what_is_read_later_is_found_in_any_order(void **state)
{
    chain_t chain = {.calls = 0};
    tutti_scope_t *s;
    (void)state;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &chain.ctx), 0);
    assert_int_equal(tutti_scope_open(chain.ctx, &s), 0);
    tutti_tensor_t *y = tutti_ones(s, TUTTI_F32, TUTTI_SCALAR);
    for (int i = 0; i < COUNT; i++) {
        chain.w[i] = tutti_full(s, TUTTI_F32, TUTTI_SCALAR, i + 1);
        assert_int_equal(tutti_tensor_set_requires_grad(chain.w[i], true), 0);
        assert_int_equal(tutti_tensor_on_accumulate(chain.w[i], look, &chain), 0);
        y = tutti_mul(s, y, chain.w[i]);
    }
    assert_false(reads(&chain, 0, COUNT, false)); /* no backward is under way */
    assert_int_equal(tutti_backward(s, y), 0);
    assert_int_equal(chain.calls, COUNT);
    assert_int_equal(tutti_scope_close(s), 0);
    tutti_context_release(chain.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_later_is_found_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
