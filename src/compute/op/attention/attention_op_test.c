/* How attention's operands and results lie: nothing is copied on the way of a transformer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/modes.h>
#include <tutti/op_nn.h>
#include <tutti/op_shape.h>
#include <tutti/tensor.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/device_testing.h"

enum { B = 2, T = 70, H = 3, D = 8, C = H * D };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *qkv; /* [B, T, 3 C], a leaf */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 2}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    f.qkv = tutti_normal(f.s, TUTTI_F32, TUTTI_SHAPE(B, T, 3 * C), 0, 1);
    assert_int_equal(tutti_tensor_set_requires_grad(f.qkv, true), TUTTI_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_scope_close(f->s), TUTTI_OK);
    tutti_context_release(f->ctx);
    assert_int_equal(tt_alloc_stats().blocks, 0);
    return 0;
}

/* Attention on three views of qkv; [B, H, T, D]. */
static tutti_tensor_t *attend_split(fixture_t *f, const tutti_attention_options_t *options)
{
    tutti_tensor_t *part[3];
    tutti_split(f->s, f->qkv, 2, 3, part);
    for (int i = 0; i < 3; i++) {
        part[i] = tutti_view(f->s, part[i], TUTTI_SHAPE(B, T, H, D));
        part[i] = tutti_transpose(f->s, part[i], 1, 2);
    }
    return tutti_attention(f->s, part[0], part[1], part[2], options);
}

static tutti_tensor_t *merge(fixture_t *f, tutti_tensor_t *y)
{
    return tutti_reshape(f->s, tutti_transpose(f->s, y, 1, 2), TUTTI_SHAPE(B, T, C));
}

static void assert_same_bits(tutti_tensor_t *x, tutti_tensor_t *y)
{
    assert_true(tutti_tensor_is_contiguous(x) && tutti_tensor_is_contiguous(y));
    assert_int_equal(tutti_tensor_bytes(x), tutti_tensor_bytes(y));
    assert_memory_equal(tt_test_host(x), tt_test_host(y), tutti_tensor_bytes(x));
}

static void merging_the_heads_copies_nothing(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = attend_split(f, NULL);
    assert_ptr_equal(merge(f, y)->storage, y->storage);
}

static void splitting_the_heads_copies_nothing(void **state)
{
    fixture_t *f = *state;
    (void)tutti_context_set_grad_enabled(f->ctx, false);
    const size_t before = tt_device_stats(f->ctx->place.device).requests;
    (void)attend_split(f, NULL);
    assert_int_equal(tt_device_stats(f->ctx->place.device).requests - before, 2); /* y, log-sums */
}

static void one_tensor_and_three_views_give_the_same_bits(void **state)
{
    fixture_t *f = *state;
    const tutti_attention_options_t options = {
        .causal = true, .dropout = 0.25F, .name = {.module = 3, .call = 4}};
    tutti_tensor_t *fused = tutti_attention_qkv(f->s, f->qkv, H, &options);
    tutti_tensor_t *split = merge(f, attend_split(f, &options));
    assert_same_bits(fused, split);
    const tutti_backward_options_t backward = {
        .grad_output = tutti_normal(f->s, TUTTI_F32, TUTTI_SHAPE(B, T, C), 0, 1)};
    tutti_tensor_t *grads[2];
    assert_int_equal(tutti_grad(f->s, fused, &backward, &f->qkv, 1, &grads[0]), TUTTI_OK);
    assert_int_equal(tutti_grad(f->s, split, &backward, &f->qkv, 1, &grads[1]), TUTTI_OK);
    assert_same_bits(grads[0], tutti_contiguous(f->s, grads[1]));
}

static void memory_grows_with_the_length_and_not_its_square(void **state)
{
    fixture_t *f = *state;
    const int64_t length = 2048;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_BF16, TUTTI_SHAPE(1, length, 3 * D));
    const size_t before = tt_alloc_stats().bytes;
    (void)tutti_attention_qkv(f->s, x, 1, &(tutti_attention_options_t){.causal = true});
    assert_true(tt_alloc_stats().bytes - before < (size_t)(length * length) / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(merging_the_heads_copies_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(splitting_the_heads_copies_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(one_tensor_and_three_views_give_the_same_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(memory_grows_with_the_length_and_not_its_square, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
