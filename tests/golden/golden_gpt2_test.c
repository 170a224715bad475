/* GPT-2 from files of others: from Hugging Face's names and layout, and from llm.c's file, the
 * logits are PyTorch's (make_gpt2_golden.py). */
#include <math.h>

#include <tutti/tutti.h>

#include "core/base/testing.h"
#include "core/tensor/device_testing.h"

#define FOLDER TUTTI_SOURCE_DIR "/tests/golden/"

/* As in make_gpt2_golden.py. */
static const tutti_gpt_options_t shape = {.layers = 2,
                                          .width = 16,
                                          .heads = 2,
                                          .context = 12,
                                          .vocab = 21,
                                          .activation = TUTTI_ACTIVATION_GELU_TANH};

static void compare_logits(tutti_context_t *ctx, tutti_module_t *gpt)
{
    tutti_scope_t *s;
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(FOLDER "gpt2_logits.safetensors", &file), TUTTI_OK);
    assert_int_equal(tutti_scope_open(ctx, &s), TUTTI_OK);
    tutti_tensor_t *want = tutti_safetensors_load(s, file, "logits");
    tutti_tensor_t *logits = tutti_forward(s, gpt, tutti_safetensors_load(s, file, "tokens"));
    assert_true(tutti_shape_equal(tutti_tensor_shape(logits), tutti_tensor_shape(want)));
    for (int64_t i = 0; i < tutti_tensor_numel(want); i++) {
        const double difference = tutti_tensor_at(logits, i) - tutti_tensor_at(want, i);
        if (!(fabs(difference) <= 1e-4)) {
            fail_msg("logit %lld is %.8g, PyTorch's is %.8g", (long long)i,
                     tutti_tensor_at(logits, i), tutti_tensor_at(want, i));
        }
    }
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_safetensors_close(file);
}

static void expect_logits(const char *path, const tutti_load_options_t *options)
{
    tutti_context_t *ctx;
    tutti_module_t *gpt;
    const tutti_context_options_t one = {.threads = 1};
    assert_int_equal(tt_test_context(&one, &ctx), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, &tutti_gpt_layer, &shape, &gpt), TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {.module = gpt};
    if (tutti_checkpoint_load_from(&checkpoint, path, options) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    compare_logits(ctx, gpt);
    tutti_module_release(gpt);
    tutti_context_release(ctx);
}

static void logits_are_those_of_hugging_faces_gpt2(void **state)
{
    (void)state;
    static const char *const masks[] = {"*.attn.bias"};
    tutti_load_options_t options = {.exclude = masks, .exclude_count = 1};
    options.rules = tutti_gpt2_rules(&options.rule_count);
    expect_logits(FOLDER "gpt2_hf.safetensors", &options);
}

static void logits_are_those_of_llmcs_gpt2(void **state)
{
    (void)state;
    expect_logits(FOLDER "gpt2.bin", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_hugging_faces_gpt2),
        cmocka_unit_test(logits_are_those_of_llmcs_gpt2),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
