/* A GPT whose blocks are recomputed learns the same bits: all that a transformer does. */
#include "core/tensor/device_testing.h"

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>

#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t subtract_gradient(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    tutti_tensor_t *grad = tutti_tensor_grad(x);
    if (grad != NULL) {
        const tt_strided_t p = tt_tensor_strided(x), g = tt_tensor_strided(grad);
        TT_TRY(tt_map_binary(tt_tensor_exec(user, x), TT_BINARY_ADD_SCALED,
                             (tt_map_params_t){.p = -0.1}, &p, &p, &g));
        tt_tensor_touch(x);
    }
    return TUTTI_OK;
}

typedef struct {
    bool recompute;
    tutti_dtype_t dtype;
    float dropout;
    int threads;
} recipe_t;

static void train_gpt(const recipe_t *recipe, char digest[TUTTI_DIGEST_BYTES])
{
    const tutti_context_options_t context = {.threads = recipe->threads, .seed = 5};
    tutti_context_t *ctx;
    assert_int_equal(tt_test_context(&context, &ctx), 0);
    const tutti_gpt_options_t options = {.layers = 3,
                                         .width = 16,
                                         .heads = 2,
                                         .context = 8,
                                         .vocab = 11,
                                         .dropout = recipe->dropout,
                                         .recompute = recipe->recompute};
    tutti_module_t *gpt;
    assert_int_equal(tutti_module_create(ctx, &tutti_gpt_layer, &options, &gpt), 0);
    (void)tutti_context_set_autocast(ctx, recipe->dtype);
    for (int step = 0; step < 3; step++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(ctx, &s), 0);
        tutti_context_set_step(ctx, step);
        tutti_module_zero_grad(gpt);
        const int32_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5};
        tutti_tensor_t *x = tutti_from_data(s, TUTTI_I32, TUTTI_SHAPE(2, 8), bytes);
        tutti_tensor_t *loss = tutti_cross_entropy(s, tutti_forward(s, gpt, x), x);
        assert_int_equal(tutti_backward(s, loss), 0);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_int_equal(tutti_module_each_parameter(gpt, subtract_gradient, ctx), 0);
    }
    assert_int_equal(tutti_module_digest(gpt, digest), 0);
    tutti_module_release(gpt);
    tutti_context_release(ctx);
}

static void a_gpt_learns_the_same_bits(void **state)
{
    (void)state;
    const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    char last[TUTTI_DIGEST_BYTES] = "";
    for (int i = 0; i < 8; i++) {
        char kept[TUTTI_DIGEST_BYTES], again[TUTTI_DIGEST_BYTES];
        recipe_t recipe = {
            .dtype = dtypes[i % 2], .dropout = i & 2 ? 0.2f : 0, .threads = i & 4 ? 3 : 1};
        train_gpt(&recipe, kept);
        recipe.recompute = true;
        train_gpt(&recipe, again);
        assert_string_equal(kept, again);
        assert_string_not_equal(kept, last); /* each recipe is another training */
        memcpy(last, kept, sizeof last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_gpt_learns_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
