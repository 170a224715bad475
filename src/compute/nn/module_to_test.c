/* Modules moved to a device: values, gradients, marks, ties, hooks; an optimizer made before. */
#include <tutti/autograd.h>
#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

#include "core/base/testing.h"
#include "core/exec/gate_testing.h"
#include "core/tensor/device_testing.h"

typedef struct {
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_module_t *net; /* parameters weight [3], bias [3]; buffers */
    tutti_tensor_t *weight, *mean;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    const tutti_batch_norm_layer_options_t options = {.width = 3};
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), 0);
    assert_int_equal(tutti_context_create(NULL, &f.ctx), 0);
    assert_int_equal(tutti_module_create(f.ctx, &tutti_batch_norm_layer, &options, &f.net), 0);
    f.weight = tutti_module_find(f.net, "weight");
    f.mean = tutti_module_find(f.net, "running_mean");
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    tutti_module_release(f->net);
    tutti_context_release(f->ctx);
    tutti_device_release(f->device);
    return 0;
}

static void count(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    ++*(int *)user;
}

/* Forward and backward over values that lie where the module does. */
static void train(fixture_t *f)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 0, 0.25, 12);
    x = tutti_reshape(s, x, TUTTI_SHAPE(4, 3));
    x = tutti_tensor_to(s, x, tutti_tensor_device(f->weight));
    tutti_tensor_t *y = tutti_forward(s, f->net, x);
    assert_int_equal(tutti_backward(s, tutti_sum(s, tutti_mul(s, y, y))), 0);
    assert_int_equal(tutti_scope_close(s), 0);
}

static tutti_status_t expect_on(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    assert_ptr_equal(tutti_tensor_device(x), user);
    return TUTTI_OK;
}

static void a_module_moves_with_its_gradients(void **state)
{
    fixture_t *f = *state;
    int heard = 0;
    char before[TUTTI_DIGEST_BYTES], after[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_tensor_on_accumulate(f->weight, count, &heard), 0);
    train(f);
    tutti_tensor_t *grad = tutti_tensor_grad(f->weight);
    const double first = tutti_tensor_at(grad, 1);
    const uint32_t version = f->weight->storage->version;
    assert_true(first != 0);
    assert_int_equal(tutti_module_digest(f->net, before), 0);

    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_int_equal(tutti_module_each_tensor(f->net, expect_on, f->device), 0);
    assert_ptr_equal(tutti_module_find(f->net, "weight"), f->weight);
    assert_ptr_equal(tutti_tensor_grad(f->weight), grad);
    assert_ptr_equal(tutti_tensor_device(grad), f->device);
    assert_true(tutti_tensor_requires_grad(f->weight) && !tutti_tensor_requires_grad(f->mean));
    assert_true(f->weight->storage->version > version);
    assert_true(tutti_tensor_at(grad, 1) == first);
    assert_int_equal(tutti_module_digest(f->net, after), 0);
    assert_string_equal(after, before);

    train(f); /* accumulates there */
    assert_int_equal(heard, 2);
    assert_true(tutti_tensor_at(grad, 1) == 2 * first);
    assert_int_equal(tutti_module_to(f->net, NULL), 0);
    assert_int_equal(tutti_module_each_tensor(f->net, expect_on, NULL), 0);
    assert_null(tutti_tensor_device(grad));
    assert_true(tutti_tensor_at(grad, 1) == 2 * first);
}

/* Its memory lies where the parameter was: the next one begins anew. */
static void a_forgotten_gradient_does_not_come_back(void **state)
{
    fixture_t *f = *state;
    train(f);
    const double first = tutti_tensor_at(tutti_tensor_grad(f->weight), 2);
    tutti_module_zero_grad(f->net);
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_null(tutti_tensor_grad(f->weight));
    train(f);
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_grad(f->weight)), f->device);
    assert_true(tutti_tensor_at(tutti_tensor_grad(f->weight), 2) == first);
}

static void tied_parameters_stay_tied(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *gpt;
    const tutti_gpt_options_t options = {
        .layers = 1, .width = 8, .heads = 2, .context = 4, .vocab = 5};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_gpt_layer, &options, &gpt), 0);
    const size_t parameters = tutti_module_parameter_count(gpt);
    assert_int_equal(tutti_module_to(gpt, f->device), 0);
    assert_int_equal(tutti_module_parameter_count(gpt), parameters);
    assert_int_equal(tutti_module_each_tensor(gpt, expect_on, f->device), 0);
    tutti_module_release(gpt);
}

static void what_lies_there_is_left_alone(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    const tt_storage_t *storage = f->weight->storage;
    const uint32_t version = storage->version;
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_ptr_equal(f->weight->storage, storage);
    assert_int_equal(storage->version, version);
}

static tutti_status_t set_grad(void *user, const char *name, tutti_tensor_t *x)
{
    tutti_tensor_t *grad;
    (void)user, (void)name;
    assert_int_equal(tutti_tensor_create(tutti_tensor_dtype(x), tutti_tensor_shape(x), &grad), 0);
    assert_int_equal(tutti_tensor_fill(grad, 0.5), 0);
    assert_int_equal(tutti_tensor_set_grad(x, grad), 0);
    tutti_tensor_release(grad);
    return TUTTI_OK;
}

static void move_between_steps(fixture_t *f, tutti_optim_t *opt)
{
    static const char path[] = "module_to_test.safetensors";
    assert_int_equal(tutti_module_each_parameter(f->net, set_grad, NULL), 0);
    assert_int_equal(tutti_optim_step(opt), 0);
    assert_int_equal(tutti_optim_save(opt, path), 0);
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_int_equal(tutti_optim_step(opt), TUTTI_ERR_STATE);
    tt_expect_error("adam: the exp_avg of parameter \"weight\" lies on the host, the parameter on "
                    "strict:0: behind tutti_module_to() make a new optimizer");
    assert_int_equal(tutti_optim_load(opt, path), 0);
    assert_int_equal(tutti_optim_step(opt), 0);
    assert_int_equal(remove(path), 0);
}

static void an_optimizer_of_before_says_where_its_state_lies(void **state)
{
    fixture_t *f = *state;
    static const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2; i++) {
        tutti_optim_t *opt;
        assert_int_equal(tutti_module_to(f->net, NULL), 0);
        assert_int_equal(tutti_module_cast(f->net, dtypes[i]), 0);
        assert_int_equal(
            tutti_optim_create(f->ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.1}, &opt), 0);
        assert_int_equal(tutti_optim_add_module(opt, f->net, NULL, NULL), 0);
        move_between_steps(f, opt);
        tutti_optim_release(opt);
    }
}

static void a_cast_is_of_floats_that_have_another_dtype(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *batches = tutti_module_find(f->net, "num_batches_tracked");
    assert_int_equal(tutti_tensor_fill(batches, 257), 0); /* no number of bf16 */
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    assert_int_equal(tutti_tensor_dtype(f->mean), TUTTI_BF16);
    assert_int_equal(tutti_tensor_dtype(batches), TUTTI_I64);
    assert_true(tutti_tensor_at(batches, 0) == 257);
    const void *weight = tutti_tensor_device_data(f->weight);
    assert_int_equal(tutti_module_cast(f->net, TUTTI_BF16), 0);
    assert_ptr_equal(tutti_tensor_device_data(f->weight), weight);
}

static void a_parameter_that_does_not_fit_says_so(void **state)
{
    (void)state;
    tutti_device_t *small;
    tutti_context_t *ctx;
    tutti_module_t *linear;
    assert_int_equal(
        tutti_device_open("strict:5", &(tutti_device_options_t){.memory_bytes = 1 << 16}, &small),
        0);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.device = small}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_linear_layer,
                                         &(tutti_linear_options_t){.in = 128, .out = 256}, &linear),
                     TUTTI_ERR_NOMEM);
    tt_expect_error("module linear: weight: strict:5: 131072 bytes for tensor data: 65536 of 65536 "
                    "are free");
    assert_int_equal(tutti_device_stats(small).live_bytes, 0);
    tutti_context_release(ctx);
    tutti_device_release(small);
}

/* Their copies are skipped: the parameters must stay what they were. */
static void behind_a_failure_nothing_is_moved_or_cast(void **state)
{
    fixture_t *f = *state;
    tutti_device_t *other;
    assert_int_equal(tutti_device_open("strict:1", NULL, &other), 0);
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    assert_int_equal(tutti_tensor_fill(f->weight, 3), 0);
    for (int way = 0; way < 3; way++) {
        tt_test_fail_on(f->device);
        assert_int_equal(way == 0   ? tutti_module_cast(f->net, TUTTI_BF16)
                         : way == 1 ? tutti_module_to(f->net, other)
                                    : tutti_module_to(f->net, NULL),
                         TUTTI_ERR_ARG);
        tt_expect_error("failure: it fails");
        assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_ERR_ARG);
        (void)tutti_device_synchronize(other, 0);
        assert_int_equal(tutti_tensor_dtype(f->weight), TUTTI_F32);
        assert_ptr_equal(tutti_tensor_device(f->weight), f->device);
        assert_true(tutti_tensor_at(f->weight, 1) == 3);
    }
    tutti_device_release(other);
}

/* The copy of another stream reads what the parameters left. */
static void pinned_parameters_outlive_the_move(void **state)
{
    fixture_t *f = *state;
    tutti_stream_t *side;
    tutti_tensor_t *y;
    assert_int_equal(tutti_stream_create(f->device, &side), 0);
    assert_int_equal(tt_tensor_new(f->device, TUTTI_F32, TUTTI_SHAPE(3), false, &y), 0);
    assert_int_equal(tutti_tensor_fill(f->weight, 3), 0);
    assert_int_equal(tutti_tensor_pin(f->weight), 0);
    assert_int_equal(tutti_device_set_stream(f->device, side), 0);
    tt_gate_close(tt_device_exec(f->device), TT_GATE_PASSES);
    assert_int_equal(tutti_tensor_copy(y, f->weight), 0);
    assert_int_equal(tutti_device_set_stream(f->device, NULL), 0);
    assert_int_equal(tutti_module_to(f->net, f->device), 0);
    tt_gate_open();
    assert_int_equal(tutti_device_synchronize(f->device, 0), 0);
    assert_true(tutti_tensor_at(y, 2) == 3 && tutti_tensor_at(f->weight, 2) == 3);
    tutti_tensor_release(y);
    tutti_stream_release(side);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_module_moves_with_its_gradients),
        TEST(a_forgotten_gradient_does_not_come_back),
        TEST(tied_parameters_stay_tied),
        TEST(what_lies_there_is_left_alone),
        TEST(an_optimizer_of_before_says_where_its_state_lies),
        TEST(a_cast_is_of_floats_that_have_another_dtype),
        TEST(a_parameter_that_does_not_fit_says_so),
        TEST(behind_a_failure_nothing_is_moved_or_cast),
        TEST(pinned_parameters_outlive_the_move),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
