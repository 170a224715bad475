/* A gradient lies where its tensor does: whoever gives one from elsewhere is told, before a kernel
 * touches memory that is not its device's. */
#include "core/base/testing.h"

#include <string.h>

#include <tutti/tutti.h>

typedef struct {
    tutti_device_t *device, *other;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *x;     /* [8], a leaf on strict:0 */
    tutti_tensor_t *host;  /* [8] */
    tutti_tensor_t *there; /* [8], on strict:1 */
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    assert_int_equal(tutti_device_open("strict:0", NULL, &f.device), TUTTI_OK);
    assert_int_equal(tutti_device_open("strict:1", NULL, &f.other), TUTTI_OK);
    const tutti_context_options_t options = {.threads = 1, .device = f.device};
    assert_int_equal(tutti_context_create(&options, &f.ctx), TUTTI_OK);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), TUTTI_OK);
    f.x = tutti_ones(f.s, TUTTI_F32, TUTTI_SHAPE(8));
    assert_int_equal(tutti_tensor_set_requires_grad(f.x, true), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(8), &f.host), TUTTI_OK);
    assert_int_equal(tutti_tensor_fill(f.host, 2), TUTTI_OK);
    f.there = tutti_tensor_to(f.s, f.host, f.other);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_device_synchronize(f->device, 0), TUTTI_OK);
    assert_int_equal(tutti_device_synchronize(f->other, 0), TUTTI_OK);
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->host);
    tutti_context_release(f->ctx);
    tutti_device_release(f->other);
    tutti_device_release(f->device);
    return 0;
}

static void expect(tutti_status_t status, const char *who, const char *got, const char *want)
{
    char text[256];
    snprintf(text, sizeof text,
             "%s: the gradient f32[8] lies on %s, and what it is a gradient of on %s: "
             "tutti_tensor_to() brings it there",
             who, got, want);
    assert_int_equal(status, TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), text);
}

static void that_of_a_root(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_layer_norm(f->s, f->x, NULL, NULL, 0);
    const tutti_backward_options_t options = {.grad_output = f->host};
    expect(tutti_backward_with(f->s, y, &options), "backward", "the host", "strict:0");
}

static void that_of_a_root_on_the_host(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_tensor_set_requires_grad(f->host, true), TUTTI_OK);
    tutti_tensor_t *y = tutti_layer_norm(f->s, f->host, NULL, NULL, 0);
    const tutti_backward_options_t options = {.grad_output = f->there};
    expect(tutti_backward_with(f->s, y, &options), "backward", "strict:1", "the host");
}

static void that_of_a_root_which_is_a_leaf(void **state)
{
    fixture_t *f = *state;
    const tutti_backward_options_t options = {.grad_output = f->there};
    expect(tutti_backward_with(f->s, f->x, &options), "backward", "strict:1", "strict:0");
}

/* From one's own device it is taken as ever. */
static void one_that_is_delivered_later(void **state)
{
    fixture_t *f = *state;
    const tutti_root_t root = {.tensor = tutti_silu(f->s, f->x), .is_awaited = true};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_begin(f->s, &root, 1, NULL, &run), TUTTI_OK);
    expect(tutti_backward_deliver(run, 0, f->there), "backward", "strict:1", "strict:0");
    assert_int_equal(tutti_backward_deliver(run, 0, tutti_tensor_to(f->s, f->there, f->device)),
                     TUTTI_OK);
    assert_int_equal(tutti_backward_wait(run, 1000), TUTTI_OK);
    tutti_backward_release(run);
    assert_ptr_equal(tutti_tensor_device(tutti_tensor_grad(f->x)), f->device);
}

static void one_that_is_set(void **state)
{
    fixture_t *f = *state;
    expect(tutti_tensor_set_grad(f->x, f->host), "set_grad", "the host", "strict:0");
    assert_null(tutti_tensor_grad(f->x));
    assert_int_equal(tutti_tensor_set_grad(f->x, tutti_tensor_to(f->s, f->host, f->device)),
                     TUTTI_OK);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, f->x)), TUTTI_OK);
    assert_true(tutti_tensor_at(tutti_tensor_grad(f->x), 0) == 3);
}

static tutti_tensor_t *give(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s;
    (void)grad;
    return user;
}

static void one_that_a_hook_makes(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_layer_norm(f->s, f->x, NULL, NULL, 0);
    assert_int_equal(tutti_tensor_on_grad(y, give, f->host), TUTTI_OK);
    expect(tutti_backward(f->s, tutti_sum(f->s, y)), "a hook", "the host", "strict:0");
}

static void one_that_a_hook_of_a_leaf_makes(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, f->x)), TUTTI_OK);
    assert_int_equal(tutti_tensor_on_grad(f->x, give, f->there), TUTTI_OK);
    expect(tutti_backward(f->s, tutti_sum(f->s, f->x)), "a hook", "strict:1", "strict:0");
    assert_true(tutti_tensor_at(tutti_tensor_grad(f->x), 7) == 1);
}

/* ---- operations of one's own ----------------------------------------------------------------- */

static tutti_status_t copy_forward(tutti_op_call_t *call)
{
    return tutti_tensor_copy(call->outputs[0], call->inputs[0]);
}

static tutti_status_t grad_on_the_host(tutti_op_backward_t *call)
{
    call->grads[0] = tutti_tensor_to(call->scope, call->grad_outputs[0], NULL);
    return TUTTI_OK;
}

static const tutti_op_t lost = {.name = "lost",
                                .infer = tutti_op_infer_same,
                                .forward = copy_forward,
                                .backward = grad_on_the_host};

static void one_that_an_operation_makes(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_layer_norm(f->s, f->x, NULL, NULL, 0);
    y = tutti_op_run(f->s, &lost, &y, 1, NULL);
    expect(tutti_backward(f->s, tutti_sum(f->s, y)), "lost", "the host", "strict:0");
}

/* A copy of x beside it, and one on the device that is the parameter. */
static tutti_status_t infer_two(const tutti_op_call_t *call, tutti_spec_t *outputs)
{
    TT_TRY(tutti_op_infer_same(call, &outputs[0]));
    return tutti_op_infer_same(call, &outputs[1]);
}

static tutti_status_t part_forward(tutti_op_call_t *call)
{
    tutti_device_t *const *device = call->params;
    tutti_tensor_t *x = call->inputs[0];
    TT_TRY(tutti_op_set_output(call, 0, tutti_clone(call->scope, x)));
    return tutti_op_set_output(call, 1, tutti_tensor_to(call->scope, x, *device));
}

static tutti_status_t part_backward(tutti_op_backward_t *call)
{
    tutti_device_t *const *device = call->params;
    assert_ptr_not_equal(tutti_tensor_device(call->grad_outputs[0]), *device);
    assert_ptr_equal(tutti_tensor_device(call->grad_outputs[1]), *device);
    call->grads[0] = call->grad_outputs[0];
    return TUTTI_OK;
}

static const tutti_op_t part = {.name = "part",
                                .output_count = 2,
                                .params_bytes = sizeof(tutti_device_t *),
                                .infer = infer_two,
                                .forward = part_forward,
                                .backward = part_backward,
                                .makes_outputs = true,
                                .zero_grad_outputs = true};

static void zeros_lie_where_the_output_does(void **state)
{
    fixture_t *f = *state;
    for (int used = 0; used < 2; used++) {
        tutti_tensor_t *y[2];
        tutti_op_run_many(f->s, &part, &f->x, 1, &f->other, y, 2);
        assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y[used])), TUTTI_OK);
        assert_true(tutti_tensor_at(tutti_tensor_grad(f->x), 0) == 1);
    }
}

/* ---- leaves that move, and what was saved ---------------------------------------------------- */

static void one_of_a_parameter_that_was_moved_since(void **state)
{
    fixture_t *f = *state;
    static const tutti_module_ops_t plain = {.name = "plain"};
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &plain, NULL, &m), TUTTI_OK);
    assert_int_equal(tutti_module_add_parameter(m, "x", f->x), TUTTI_OK);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_silu(f->s, f->x));
    assert_int_equal(tutti_module_to(m, NULL), TUTTI_OK);
    expect(tutti_backward(f->s, loss), "silu", "strict:0", "the host");
    tutti_module_release(m);
}

static tutti_status_t pack(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **data)
{
    (void)user;
    *data = tutti_tensor_retain(tutti_tensor_to(s, x, NULL));
    return TUTTI_OK;
}

static tutti_tensor_t *unpack(tutti_scope_t *s, void *data, void *user)
{
    return tutti_tensor_to(s, data, user);
}

static void release(void *data, void *user)
{
    (void)user;
    tutti_tensor_release(data);
}

static void what_was_saved_is_unpacked_where_it_was(void **state)
{
    fixture_t *f = *state;
    for (int is_back = 0; is_back < 2; is_back++) {
        const tutti_saved_hooks_t hooks = {
            .pack = pack, .unpack = unpack, .release = release, .user = is_back ? f->device : NULL};
        assert_int_equal(tutti_saved_hooks_push(f->ctx, &hooks), TUTTI_OK);
        tutti_tensor_t *y = tutti_silu(f->s, tutti_silu(f->s, f->x));
        assert_int_equal(tutti_saved_hooks_pop(f->ctx), TUTTI_OK);
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), TUTTI_OK);
        const tutti_status_t status = tutti_backward(s, tutti_sum(s, y));
        assert_int_equal(status, is_back ? TUTTI_OK : TUTTI_ERR_ARG);
        if (!is_back) {
            assert_string_equal(tutti_last_error(),
                                "a saved tensor was unpacked on the host, and was packed on "
                                "strict:0");
        }
        (void)tutti_scope_close(s);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(that_of_a_root),
        TEST(that_of_a_root_on_the_host),
        TEST(that_of_a_root_which_is_a_leaf),
        TEST(one_that_is_delivered_later),
        TEST(one_that_is_set),
        TEST(one_that_a_hook_makes),
        TEST(one_that_a_hook_of_a_leaf_makes),
        TEST(one_that_an_operation_makes),
        TEST(zeros_lie_where_the_output_does),
        TEST(one_of_a_parameter_that_was_moved_since),
        TEST(what_was_saved_is_unpacked_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
