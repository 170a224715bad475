/* Hooks on saved tensors: what they see, when, and that nothing is lost. */
#include "core/tensor/device_testing.h"

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *w, *x; /* [2, 2]: a leaf, and no leaf */
    int packs, unpacks, releases;
    bool narrows;  /* unpack gives bf16 */
    bool forgets;  /* a forward does not pop */
    int fail_pack; /* the nth one; 0: none */
    bool fail_unpack, gives_nothing;
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){0};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(2, 2), &f.w), 0);
    assert_int_equal(tutti_tensor_fill(f.w, 3), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(f.w, true), 0);
    f.x = tutti_full(f.s, TUTTI_F32, TUTTI_SHAPE(2, 2), 2);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->w);
    tutti_context_release(f->ctx);
    return 0;
}

static tutti_status_t pack(tutti_scope_t *s, tutti_tensor_t *x, void *user, void **packed)
{
    fixture_t *f = user;
    assert_false(tutti_tensor_requires_grad(x));
    if (++f->packs == f->fail_pack) {
        return tutti_fail(TUTTI_ERR_IO, "the disk is full");
    }
    tutti_tensor_t *copy = tutti_add(s, x, tutti_zeros(s, TUTTI_F32, tutti_tensor_shape(x)));
    TUTTI_CHECK(tutti_tensor_status(copy));
    *packed = tutti_tensor_retain(copy);
    return TUTTI_OK;
}

static tutti_tensor_t *unpack(tutti_scope_t *s, void *packed, void *user)
{
    fixture_t *f = user;
    f->unpacks++;
    if (f->gives_nothing) {
        return NULL;
    }
    if (f->fail_unpack) {
        return tutti_scope_fail(s, tutti_fail(TUTTI_ERR_IO, "the disk is gone"));
    }
    return f->narrows ? tutti_cast(s, packed, TUTTI_BF16) : packed;
}

static void release(void *packed, void *user)
{
    ((fixture_t *)user)->releases++;
    tutti_tensor_release(packed);
}

static tutti_saved_hooks_t hooks_of(fixture_t *f)
{
    return (tutti_saved_hooks_t){pack, unpack, release, f};
}

static void push(fixture_t *f)
{
    const tutti_saved_hooks_t hooks = hooks_of(f);
    assert_int_equal(tutti_saved_hooks_push(f->ctx, &hooks), 0);
}

/* tanh(x w) * w: saves x, tanh twice, and w, a leaf, which is not packed */
static tutti_tensor_t *loss_of(fixture_t *f)
{
    tutti_tensor_t *y = tutti_matmul(f->s, f->x, f->w);
    return tutti_sum(f->s, tutti_mul(f->s, tutti_tanh(f->s, y), f->w));
}

static void expect_calls(const fixture_t *f, int packs, int unpacks, int releases)
{
    assert_int_equal(f->packs, packs);
    assert_int_equal(f->unpacks, unpacks);
    assert_int_equal(f->releases, releases);
}

static void gradients_are_those_of_what_is_unpacked(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_backward(f->s, loss_of(f)), 0);
    tutti_tensor_t *plain = tutti_tensor_retain(tutti_tensor_grad(f->w));
    assert_int_equal(tutti_tensor_set_grad(f->w, NULL), 0);
    push(f);
    tutti_tensor_t *loss = loss_of(f);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    expect_calls(f, 3, 0, 0);
    assert_int_equal(tutti_backward(f->s, loss), 0);
    expect_calls(f, 3, 3, 3);
    assert_memory_equal(tt_test_host(plain), tt_test_host(tutti_tensor_grad(f->w)), 16);
    tutti_tensor_release(plain);
}

static void each_backward_unpacks_and_the_last_releases(void **state)
{
    fixture_t *f = *state;
    push(f);
    tutti_tensor_t *loss = loss_of(f);
    const tutti_backward_options_t retain = {.retain_graph = true};
    assert_int_equal(tutti_backward_with(f->s, loss, &retain), 0);
    expect_calls(f, 3, 3, 0);
    assert_int_equal(tutti_backward(f->s, loss), 0);
    expect_calls(f, 3, 6, 3);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
}

static void a_graph_that_goes_releases_what_it_packed(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    push(f);
    (void)tutti_mul(s, tutti_matmul(s, f->x, f->w), f->x);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    expect_calls(f, 2, 0, 0); /* of what needs no gradient nothing is saved */
    assert_int_equal(tutti_scope_close(s), 0);
    expect_calls(f, 2, 0, 2);
}

static void the_innermost_hooks_take_a_tensor(void **state)
{
    fixture_t *f = *state, outer = {0};
    push(&(fixture_t){.ctx = f->ctx});
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    const tutti_saved_hooks_t hooks = hooks_of(&outer);
    assert_int_equal(tutti_saved_hooks_push(f->ctx, &hooks), 0);
    tutti_tensor_t *y = tutti_matmul(f->s, f->x, f->w);
    push(f);
    tutti_tensor_t *loss = tutti_sum(f->s, tutti_tanh(f->s, y));
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    expect_calls(&outer, 1, 0, 0);
    expect_calls(f, 1, 0, 0);
    assert_int_equal(tutti_backward(f->s, loss), 0);
    expect_calls(&outer, 1, 1, 1);
    expect_calls(f, 1, 1, 1);
}

static void of_what_is_recomputed_the_inputs_are_packed(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *block;
    const tutti_transformer_block_options_t options = {.width = 8, .heads = 2};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_transformer_block_layer, &options, &block),
                     0);
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1, 4, 8));
    push(f);
    tutti_tensor_t *y = tutti_recompute(f->s, block, x);
    expect_calls(f, 1, 0, 0);
    y = tutti_recompute(f->s, block, y);
    expect_calls(f, 2, 0, 0);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    expect_calls(f, 2, 2, 2);
    tutti_module_release(block);
}

static tutti_tensor_t *pushing_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    fixture_t *f = *(fixture_t **)tutti_module_state(m);
    tutti_tensor_t *y = tutti_matmul(s, x, f->w);
    push(f);
    y = tutti_tanh(s, y);
    if (!f->forgets) {
        assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    }
    return tutti_tanh(s, y);
}

static const tutti_module_ops_t pushing = {
    .name = "pushing", .state_bytes = sizeof(fixture_t *), .forward = pushing_forward};

static void hooks_inside_a_recomputed_forward_keep_their_part(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m;
    assert_int_equal(tutti_module_create(f->ctx, &pushing, NULL, &m), 0);
    *(fixture_t **)tutti_module_state(m) = f;
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_forward(f->s, m, f->x))), 0);
    tutti_tensor_t *plain = tutti_tensor_retain(tutti_tensor_grad(f->w));
    expect_calls(f, 1, 1, 1);
    assert_int_equal(tutti_tensor_set_grad(f->w, NULL), 0);
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, tutti_recompute(f->s, m, f->x))), 0);
    expect_calls(f, 2, 2, 2); /* the second forward packs nothing */
    assert_memory_equal(tt_test_host(plain), tt_test_host(tutti_tensor_grad(f->w)), 16);
    tutti_tensor_release(plain);
    tutti_module_release(m);
}

static void hooks_that_are_left_end_with_a_recomputed_forward(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *m, *nested;
    assert_int_equal(tutti_module_create(f->ctx, &pushing, NULL, &m), 0);
    *(fixture_t **)tutti_module_state(m) = f;
    const tutti_sequential_options_t options = {.modules = &m, .count = 1, .recompute = true};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_sequential_layer, &options, &nested), 0);
    f->forgets = true;
    tutti_tensor_t *y = tutti_recompute(f->s, nested, f->x);
    assert_null(f->ctx->keeper); /* neither hooks nor region */
    assert_int_equal(tutti_backward(f->s, tutti_sum(f->s, y)), 0);
    expect_calls(f, 2, 2, 2);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), TUTTI_ERR_STATE);
    tutti_module_release(nested);
    tutti_module_release(m);
}

static void what_hooks_do_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    push(f);
    f->fail_pack = 3;
    assert_int_equal(tutti_tensor_status(loss_of(f)), TUTTI_ERR_IO);
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
    assert_int_equal(tutti_scope_close(f->s), TUTTI_ERR_IO);
    tt_expect_error("the disk is full");
    assert_int_equal(f->releases, 2);
    const struct {
        tutti_status_t status;
        const char *text;
    } cases[] = {{TUTTI_ERR_IO, "the disk is gone"},
                 {TUTTI_ERR_DTYPE, "unpacked as bf16[2, 2], and was packed as f32[2, 2]"},
                 {TUTTI_ERR_ARG, "unpacked as NULL"}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
        f->x = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(2, 2), 2);
        f->fail_unpack = i == 0;
        f->narrows = i == 1;
        f->gives_nothing = i == 2;
        push(f);
        tutti_tensor_t *loss = loss_of(f);
        assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
        assert_int_equal(tutti_backward(f->s, loss), cases[i].status);
        tt_expect_error(cases[i].text);
        (void)tutti_scope_close(f->s);
        assert_int_equal(f->packs - 1, f->releases); /* one failed */
    }
    assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
}

static void pushes_and_pops_are_checked(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(tutti_saved_hooks_pop(f->ctx), TUTTI_ERR_STATE);
    assert_int_equal(tutti_saved_hooks_push(f->ctx, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_saved_hooks_push(f->ctx, &(tutti_saved_hooks_t){.pack = pack}),
                     TUTTI_ERR_ARG);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        const tutti_saved_hooks_t hooks = hooks_of(f);
        (void)tutti_scope_close(f->s);
        assert_int_equal(tutti_scope_open(f->ctx, &f->s), 0);
        f->x = tutti_full(f->s, TUTTI_F32, TUTTI_SHAPE(2, 2), 2);
        assert_int_equal(tutti_tensor_set_grad(f->w, NULL), 0);
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_saved_hooks_push(f->ctx, &hooks);
        if (status >= 0) {
            status = tutti_backward(f->s, loss_of(f));
            assert_int_equal(tutti_saved_hooks_pop(f->ctx), 0);
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(gradients_are_those_of_what_is_unpacked),
        T(each_backward_unpacks_and_the_last_releases),
        T(a_graph_that_goes_releases_what_it_packed),
        T(the_innermost_hooks_take_a_tensor),
        T(of_what_is_recomputed_the_inputs_are_packed),
        T(hooks_inside_a_recomputed_forward_keep_their_part),
        T(hooks_that_are_left_end_with_a_recomputed_forward),
        T(what_hooks_do_wrong_is_said),
        T(pushes_and_pops_are_checked),
        T(no_allocation_that_fails_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
