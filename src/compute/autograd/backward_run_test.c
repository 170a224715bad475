/* Backwards of several results, into a sink, of gradients that come later, in two turns. */
#include "core/tensor/device_testing.h"

#include <tutti/autograd.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>

#include "compute/autograd/node.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_tensor_t *a, *b; /* leaves of one element: 3 and 5 */
    int calls;             /* of hooks, sinks, idle functions */
    tutti_tensor_t *again; /* for a hook: run backward from here */
    tutti_status_t status; /* of it */
    tutti_backward_run_t *run;
} fixture_t;

static tutti_tensor_t *leaf(double value)
{
    tutti_tensor_t *x;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SCALAR, &x), 0);
    assert_int_equal(tutti_tensor_fill(x, value), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(x, true), 0);
    return x;
}

static int setup(void **state)
{
    static fixture_t f;
    f = (fixture_t){.a = leaf(3), .b = leaf(5)};
    assert_int_equal(tt_test_context(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_tensor_release(f->a);
    tutti_tensor_release(f->b);
    tutti_context_release(f->ctx);
    return 0;
}

static double value(const tutti_tensor_t *x)
{
    assert_non_null(x);
    return tutti_tensor_at(x, 0);
}

static double grad_of(tutti_tensor_t *x)
{
    return value(tutti_tensor_grad(x));
}

static tutti_tensor_t *number(fixture_t *f, double x)
{
    return tutti_full(f->s, TUTTI_F32, TUTTI_SCALAR, x);
}

static tutti_tensor_t *count_grad(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    ((fixture_t *)user)->calls++;
    return NULL;
}

/* ---- several results ------------------------------------------------------------------------- */

static void what_several_results_share_runs_once(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *shared = tutti_mul(f->s, f->a, f->b); /* 15 */
    assert_int_equal(tutti_tensor_on_grad(shared, count_grad, f), 0);
    const tutti_root_t roots[] = {
        {.tensor = tutti_mul(f->s, shared, shared)},
        {.tensor = tutti_mul(f->s, shared, f->b), .grad_output = number(f, 10)},
        {.tensor = shared, .grad_output = number(f, 7)}};
    assert_int_equal(tutti_backward_many(f->s, roots, 3, NULL), 0);
    assert_int_equal(f->calls, 1);
    /* d = 2 * 15 + 10 * 5 + 7 for the shared one */
    assert_true(grad_of(f->a) == 87 * 5);
    assert_true(grad_of(f->b) == 87 * 3 + 10 * 15);
}

static void one_result_may_be_named_twice(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_mul(f->s, f->a, f->b);
    const tutti_root_t roots[] = {{.tensor = y}, {.tensor = y}, {.tensor = f->a}};
    assert_int_equal(tutti_backward_many(f->s, roots, 3, NULL), 0);
    assert_true(grad_of(f->a) == 11 && grad_of(f->b) == 6);
}

static void the_gradient_of_several_results_is_their_sum(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *grads[2], *const inputs[] = {f->a, f->b};
    const tutti_root_t roots[] = {
        {.tensor = tutti_mul(f->s, f->a, f->a), .grad_output = number(f, 2)},
        {.tensor = tutti_mul(f->s, f->a, f->b)}};
    assert_int_equal(tutti_grad_many(f->s, roots, 2, NULL, inputs, 2, grads), 0);
    assert_true(value(grads[0]) == 2 * 2 * 3 + 5 && value(grads[1]) == 3);
    assert_null(tutti_tensor_grad(f->a));
}

static void roots_are_checked(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    const tutti_root_t bad[] = {
        {.tensor = f->a, .is_awaited = true},
        {.tensor = f->a, .grad_output = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2))},
        {.tensor = number(f, 1)}};
    const struct {
        int count;
        const tutti_root_t *root;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {0, bad, TUTTI_ERR_ARG, "0 roots"},
        {1, &bad[0], TUTTI_ERR_ARG, "gradient of root 0 is awaited: call tutti_backward_begin()"},
        {1, &bad[1], TUTTI_ERR_SHAPE, "f32[2] does not have the shape"},
        {1, &bad[2], TUTTI_ERR_STATE, "needs no gradient"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_backward_many(s, cases[i].root, cases[i].count, NULL),
                         cases[i].status);
        tt_expect_error(cases[i].text);
        assert_int_equal(tutti_scope_close(s), cases[i].status);
    }
}

/* ---- a sink ---------------------------------------------------------------------------------- */

static tutti_status_t add_up(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *grad, void *user)
{
    (void)s;
    fixture_t *f = user;
    f->calls += x == f->a ? 1 : 100;
    assert_true(value(grad) == (x == f->a ? 11 : 3));
    return TUTTI_OK;
}

static void a_sink_takes_whole_gradients_and_leaves_keep_theirs(void **state)
{
    fixture_t *f = *state;
    const tutti_backward_options_t options = {.sink = add_up, .sink_user = f};
    assert_int_equal(tutti_tensor_on_grad(f->a, count_grad, f), 0);
    tutti_tensor_t *y = tutti_add(f->s, tutti_mul(f->s, f->a, f->a), tutti_mul(f->s, f->a, f->b));
    assert_int_equal(tutti_backward_with(f->s, y, &options), 0);
    assert_int_equal(f->calls, 102); /* the hook, and each leaf once */
    assert_null(tutti_tensor_grad(f->a));
    assert_null(tutti_tensor_grad(f->b));
}

static tutti_status_t refuse(tutti_scope_t *s, tutti_tensor_t *x, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)x, (void)grad, (void)user;
    return tutti_fail(TUTTI_ERR_FORMAT, "no more");
}

static void a_sink_that_fails_ends_the_backward(void **state)
{
    fixture_t *f = *state;
    const tutti_backward_options_t options = {.sink = refuse};
    assert_int_equal(tutti_backward_with(f->s, tutti_mul(f->s, f->a, f->b), &options),
                     TUTTI_ERR_FORMAT);
    tt_expect_error("no more");
}

/* ---- several over one graph ------------------------------------------------------------------ */

static tutti_tensor_t *run_inside(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    tutti_scope_t *own;
    tutti_tensor_t *y = f->again;
    if (y != NULL) {
        f->again = NULL;
        assert_int_equal(tutti_scope_open(f->ctx, &own), 0);
        f->status = tutti_backward_with(own, y, &(tutti_backward_options_t){.retain_graph = true});
        (void)tutti_scope_close(own);
    }
    return NULL;
}

static void a_hook_may_run_a_part_of_the_graph_that_runs(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *part = tutti_mul(f->s, f->a, f->b), *y = tutti_mul(f->s, part, part);
    f->again = part;
    assert_int_equal(tutti_tensor_on_grad(y, run_inside, f), 0);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_int_equal(f->status, 0);
    assert_true(grad_of(f->a) == 30 * 5 + 5 && grad_of(f->b) == 30 * 3 + 3);
}

static tutti_root_t awaited(tutti_tensor_t *y)
{
    return (tutti_root_t){.tensor = y, .is_awaited = true};
}

static void two_take_turns_over_one_graph(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *part = tutti_mul(f->s, f->a, f->b), *y = tutti_mul(f->s, part, part);
    const tutti_backward_options_t keeps = {.retain_graph = true};
    const tutti_root_t roots[] = {awaited(y), awaited(part)};
    tutti_backward_run_t *one, *other;
    assert_int_equal(tutti_backward_begin(f->s, roots, 2, &keeps, &one), 0);
    assert_int_equal(tutti_backward_begin(f->s, roots, 2, NULL, &other), 0);
    assert_int_equal(tutti_backward_deliver(one, 0, number(f, 1)), 0);
    assert_int_equal(tutti_backward_advance(one), TUTTI_PENDING); /* y has run, part has not */
    assert_int_equal(tutti_backward_deliver(other, 0, number(f, 2)), 0);
    assert_int_equal(tutti_backward_advance(other), TUTTI_PENDING);
    assert_int_equal(tutti_backward_deliver(one, 1, number(f, 0)), 0);
    assert_int_equal(tutti_backward_advance(one), TUTTI_OK);
    assert_true(grad_of(f->a) == 30 * 5);
    assert_int_equal(tutti_backward_deliver(other, 1, number(f, 3)), 0);
    assert_int_equal(tutti_backward_advance(other), TUTTI_OK);
    assert_true(grad_of(f->a) == 30 * 5 + 63 * 5 && grad_of(f->b) == 30 * 3 + 63 * 3);
    tutti_backward_release(one);
    tutti_backward_release(other);
}

static void what_another_has_freed_is_an_error(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *y = tutti_mul(f->s, f->a, f->b);
    const tutti_root_t root = awaited(y);
    tutti_scope_t *s;
    tutti_backward_run_t *late;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_backward_begin(s, &root, 1, NULL, &late), 0);
    assert_int_equal(tutti_backward(f->s, y), 0);
    assert_int_equal(tutti_backward_deliver(late, 0, number(f, 1)), 0);
    assert_int_equal(tutti_backward_advance(late), TUTTI_ERR_STATE);
    tt_expect_error("backward through mul a second time");
    tutti_backward_release(late);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_STATE);
    assert_true(grad_of(f->a) == 5);
}

/* ---- gradients that come later --------------------------------------------------------------- */

/* a's gradient is a sum of four, whose order could be told from its bits. */
static float sum_of_four(fixture_t *f, const int *order)
{
    const double grads[] = {0.5, 1, -1e8, 1e8};
    tutti_root_t roots[4]; /* the latest made first */
    tutti_backward_run_t *run;
    for (int i = 0; i < 4; i++) {
        roots[3 - i] = awaited(tutti_mul(f->s, f->a, number(f, 1)));
    }
    tutti_tensor_zero_grad(f->a);
    assert_int_equal(tutti_backward_begin(f->s, roots, 4, NULL, &run), 0);
    for (int i = 0; i < 4; i++) {
        const int root = 3 - order[i];
        assert_int_equal(tutti_backward_advance(run), TUTTI_PENDING);
        assert_int_equal(tutti_backward_deliver(run, root, number(f, grads[order[i]])), 0);
    }
    assert_int_equal(tutti_backward_advance(run), TUTTI_OK); /* and nothing is left */
    tutti_backward_release(run);
    return (float)grad_of(f->a);
}

static void the_bits_do_not_depend_on_who_comes_first(void **state)
{
    fixture_t *f = *state;
    const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 3, 0},
                             {1, 0, 3, 2}, {2, 0, 1, 3}, {0, 3, 1, 2}};
    for (int i = 0; i < 6; i++) { /* the latest made first: (1e8 - 1e8) + 1 + 0.5 */
        assert_true(sum_of_four(f, orders[i]) == 1.5F);
    }
}

/* One result as several roots, and a result that others take, too. */
static float sum_at_one_node(fixture_t *f, const int *order, bool is_late)
{
    const double grads[] = {1e8, -1e8, 1};
    tutti_backward_run_t *run;
    tutti_tensor_t *y = tutti_mul(f->s, f->a, number(f, 1));
    const tutti_root_t roots[] = {
        awaited(y), awaited(y), awaited(y), {.tensor = tutti_mul(f->s, y, number(f, 1))}};
    tutti_tensor_zero_grad(f->a);
    assert_int_equal(tutti_backward_begin(f->s, roots, 4, NULL, &run), 0);
    for (int i = 0; i < 3; i++) {
        if (is_late) {
            assert_int_equal(tutti_backward_advance(run), TUTTI_PENDING);
        }
        assert_int_equal(tutti_backward_deliver(run, order[i], number(f, grads[order[i]])), 0);
    }
    assert_int_equal(tutti_backward_advance(run), TUTTI_OK);
    tutti_backward_release(run);
    return (float)grad_of(f->a);
}

static void several_gradients_of_one_result_have_an_order(void **state)
{
    fixture_t *f = *state;
    const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (int i = 0; i < 6; i++) {
        assert_true(sum_at_one_node(f, orders[i / 2], i % 2) == 1); /* (1 + 1e8) - 1e8 + 1 */
    }
}

static void deliver_now(void *user)
{
    fixture_t *f = user;
    if (++f->calls == 3) {
        tutti_tensor_t *grad = leaf(4);
        assert_int_equal(tutti_backward_deliver(f->run, 0, grad), 0);
        tutti_tensor_release(grad);
    }
}

static void count_look(void *user)
{
    ((fixture_t *)user)->calls++;
}

static void a_wait_lets_communication_deliver(void **state)
{
    fixture_t *f = *state;
    tutti_idle_t idle = {.call = deliver_now, .user = f};
    const tutti_root_t root = awaited(tutti_mul(f->s, f->a, f->b));
    assert_int_equal(tutti_backward_begin(f->s, &root, 1, NULL, &f->run), 0);
    tutti_context_add_idle(f->ctx, &idle);
    assert_int_equal(tutti_backward_wait(f->run, -1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_backward_wait(f->run, 60000), 0);
    tutti_context_remove_idle(f->ctx, &idle);
    assert_true(grad_of(f->a) == 20);
    tutti_backward_release(f->run);
}

static void a_wait_ends_and_names_the_root(void **state)
{
    fixture_t *f = *state;
    const tutti_root_t roots[] = {{.tensor = tutti_add(f->s, f->a, f->b)},
                                  awaited(tutti_mul(f->s, f->a, f->b)),
                                  awaited(f->a)};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_begin(f->s, roots, 3, NULL, &run), 0);
    tutti_idle_t idle = {.move = count_look, .call = count_look, .user = f};
    tutti_context_add_idle(f->ctx, &idle);
    tutti_context_add_idle(f->ctx, &idle); /* is there already */
    assert_int_equal(tutti_backward_wait(run, 50), TUTTI_ERR_TIMEOUT);
    assert_in_range(f->calls, 1, 5000); /* the core is left to others */
    tutti_context_remove_idle(f->ctx, &idle);
    tt_expect_error("gradient of root 1 (mul) has not been delivered within 50 ms");
    assert_int_equal(tutti_backward_deliver(run, 0, number(f, 1)), TUTTI_ERR_ARG);
    assert_int_equal(tutti_backward_deliver(run, 3, number(f, 1)), TUTTI_ERR_ARG);
    assert_int_equal(tutti_backward_deliver(run, 1, NULL), 0); /* none comes */
    assert_int_equal(tutti_backward_deliver(run, 1, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_backward_wait(run, 1), TUTTI_ERR_TIMEOUT);
    tt_expect_error("root 2 (a leaf)");
    assert_true(grad_of(f->b) == 1); /* complete without them */
    assert_int_equal(tutti_backward_deliver(run, 2, number(f, 6)), 0);
    assert_int_equal(tutti_backward_wait(run, 1), TUTTI_OK);
    assert_true(grad_of(f->a) == 7);
    tutti_backward_release(run);
}

static tutti_status_t note_end(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s;
    ((fixture_t *)user)->status = status;
    return TUTTI_OK;
}

static tutti_tensor_t *queue_end(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)grad;
    assert_int_equal(tutti_backward_on_end(s, note_end, user), 0);
    return NULL;
}

static void the_end_is_told_once_also_when_it_never_comes(void **state)
{
    fixture_t *f = *state;
    for (int completes = 0; completes < 2; completes++) {
        tutti_scope_t *s;
        tutti_backward_run_t *run;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        tutti_tensor_t *part = tutti_mul(s, f->a, f->b), *y = tutti_mul(s, part, part);
        const tutti_root_t roots[] = {{.tensor = y}, awaited(part)};
        assert_int_equal(tutti_tensor_on_grad(y, queue_end, f), 0);
        f->status = 1;
        assert_int_equal(tutti_backward_begin(s, roots, 2, NULL, &run), 0);
        assert_int_equal(tutti_backward_advance(run), TUTTI_PENDING);
        assert_int_equal(f->status, 1);
        if (completes) {
            assert_int_equal(tutti_backward_deliver(run, 1, NULL), 0);
            assert_int_equal(tutti_backward_advance(run), TUTTI_OK);
        }
        tutti_backward_release(run);
        assert_int_equal(f->status, completes ? TUTTI_OK : TUTTI_ERR_ABORTED);
        (void)tutti_scope_close(s);
    }
}

static tutti_tensor_t *advance_inside(tutti_scope_t *s, tutti_tensor_t *grad, void *user)
{
    (void)s, (void)grad;
    fixture_t *f = user;
    f->status = tutti_backward_advance(f->run);
    return NULL;
}

static void a_backward_is_not_advanced_from_inside_itself(void **state)
{
    fixture_t *f = *state;
    const tutti_root_t root = awaited(tutti_mul(f->s, f->a, f->b));
    assert_int_equal(tutti_tensor_on_grad(root.tensor, advance_inside, f), 0);
    assert_int_equal(tutti_backward_begin(f->s, &root, 1, NULL, &f->run), 0);
    assert_int_equal(tutti_backward_deliver(f->run, 0, number(f, 1)), 0);
    assert_int_equal(tutti_backward_advance(f->run), TUTTI_OK);
    assert_int_equal(f->status, TUTTI_ERR_STATE);
    tt_expect_error("advanced from inside itself");
    tutti_backward_release(f->run);
    assert_true(grad_of(f->a) == 5);
}

static void only_a_first_turn_has_a_second(void **state)
{
    fixture_t *f = *state;
    const tutti_root_t root = {.tensor = tutti_mul(f->s, f->a, f->b)};
    assert_int_equal(tutti_backward_begin(f->s, &root, 1, NULL, &f->run), 0);
    assert_int_equal(tutti_backward_weights(f->run), TUTTI_ERR_STATE);
    tt_expect_error("not one of tutti_backward_inputs()");
    assert_null(tutti_tensor_grad(f->a));
}

static void what_waits_is_known_to_read(void **state)
{
    fixture_t *f = *state;
    const tutti_root_t root = awaited(tutti_mul(f->s, f->a, f->b));
    tt_storage_t *storage = f->b->storage;
    tutti_backward_run_t *run;
    assert_false(tt_backward_reads(f->ctx, &storage, 1));
    assert_int_equal(tutti_backward_begin(f->s, &root, 1, NULL, &run), 0);
    assert_true(tt_backward_reads(f->ctx, &storage, 1));
    tutti_backward_release(run);
    assert_false(tt_backward_reads(f->ctx, &storage, 1));
}

/* ---- two turns ------------------------------------------------------------------------------- */

static void the_first_turn_gives_the_inputs_the_second_the_rest(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = leaf(2), *grad;
    tutti_tensor_t *h = tutti_mul(f->s, x, f->a), *y = tutti_mul(f->s, h, f->b);
    const tutti_root_t root = {.tensor = y};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_tensor_on_grad(h, count_grad, f), 0);
    assert_int_equal(tutti_backward_inputs(f->s, &root, 1, NULL, &x, 1, &grad, &run), 0);
    assert_true(value(grad) == 15);
    assert_null(tutti_tensor_grad(f->a));
    assert_null(tutti_tensor_grad(f->b));
    assert_int_equal(tutti_backward_weights(run), 0);
    assert_true(grad_of(f->a) == 10 && grad_of(f->b) == 6);
    assert_null(tutti_tensor_grad(x));
    assert_int_equal(f->calls, 1);
    assert_int_equal(tutti_backward(f->s, y), TUTTI_ERR_STATE); /* the graph is gone */
    tutti_tensor_release(x);
}

static void what_does_not_lead_to_an_input_waits_for_the_second_turn(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = leaf(2), *grad, *apart = tutti_mul(f->s, f->a, f->a);
    const tutti_root_t roots[] = {{.tensor = tutti_mul(f->s, x, f->b)}, {.tensor = apart}};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_tensor_on_grad(apart, count_grad, f), 0);
    assert_int_equal(tutti_backward_inputs(f->s, roots, 2, NULL, &x, 1, &grad, &run), 0);
    assert_int_equal(f->calls, 0);
    assert_int_equal(tutti_backward_weights(run), 0);
    assert_int_equal(f->calls, 1);
    assert_true(grad_of(f->a) == 6 && grad_of(f->b) == 2);
    tutti_tensor_release(x);
}

static void an_input_may_be_a_result(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *h = tutti_mul(f->s, f->a, f->a), *grad;
    const tutti_root_t root = {.tensor = tutti_mul(f->s, h, f->b)};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_inputs(f->s, &root, 1, NULL, &h, 1, &grad, &run), 0);
    assert_true(value(grad) == 5);
    assert_int_equal(tutti_backward_weights(run), 0);
    assert_true(grad_of(f->a) == 30 && grad_of(f->b) == 9);
}

static void a_first_turn_may_be_all(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = leaf(2), *grad, *y = tutti_mul(f->s, x, f->b);
    const tutti_root_t root = {.tensor = y};
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_inputs(f->s, &root, 1, NULL, &x, 1, &grad, &run), 0);
    tutti_backward_release(run);
    assert_null(tutti_tensor_grad(f->b));
    assert_int_equal(tutti_backward(f->s, y), 0); /* nothing was freed */
    assert_true(grad_of(f->b) == 2 && grad_of(x) == 5);
    tutti_tensor_release(x);
}

static void a_second_turn_that_cannot_be_is_released(void **state)
{
    fixture_t *f = *state;
    tutti_scope_t *s;
    tutti_tensor_t *x = leaf(2), *grad;
    tutti_backward_run_t *run;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    const tutti_root_t root = {.tensor = tutti_mul(s, x, f->b)};
    assert_int_equal(tutti_backward_inputs(s, &root, 1, NULL, &x, 1, &grad, &run), 0);
    (void)tutti_scope_fail(s, tutti_fail(TUTTI_ERR_IO, "something else"));
    assert_int_equal(tutti_backward_weights(run), TUTTI_ERR_IO);
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_IO);
    assert_null(tutti_tensor_grad(f->b));
    tutti_tensor_release(x);
}

/* ---- */

static tutti_status_t run_all_kinds(fixture_t *f, tutti_scope_t *s)
{
    tutti_tensor_t *grad, *h = tutti_mul(s, f->a, f->b), *y = tutti_mul(s, h, f->b);
    const tutti_root_t roots[] = {{.tensor = y}, awaited(h)};
    tutti_backward_run_t *run;
    TUTTI_CHECK(tutti_scope_status(s));
    TUTTI_CHECK(
        tutti_backward_begin(s, roots, 2, &(tutti_backward_options_t){.retain_graph = true}, &run));
    tutti_status_t status = tutti_backward_deliver(run, 1, tutti_ones(s, TUTTI_F32, TUTTI_SCALAR));
    if (status >= 0) {
        status = tutti_backward_advance(run);
    }
    tutti_backward_release(run);
    TUTTI_CHECK(status);
    TUTTI_CHECK(tutti_backward_inputs(s, roots, 1, NULL, &f->a, 1, &grad, &run));
    return tutti_backward_weights(run);
}

static void every_allocation_may_fail(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tutti_scope_t *s;
        assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
        assert_int_equal(tutti_tensor_set_grad(f->a, NULL) | tutti_tensor_set_grad(f->b, NULL), 0);
        tt_alloc_fail_at(nth);
        const tutti_status_t status = run_all_kinds(f, s);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        (void)tutti_scope_close(s);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_several_results_share_runs_once),
        T(one_result_may_be_named_twice),
        T(the_gradient_of_several_results_is_their_sum),
        T(roots_are_checked),
        T(a_sink_takes_whole_gradients_and_leaves_keep_theirs),
        T(a_sink_that_fails_ends_the_backward),
        T(a_hook_may_run_a_part_of_the_graph_that_runs),
        T(two_take_turns_over_one_graph),
        T(what_another_has_freed_is_an_error),
        T(the_bits_do_not_depend_on_who_comes_first),
        T(several_gradients_of_one_result_have_an_order),
        T(a_backward_is_not_advanced_from_inside_itself),
        T(only_a_first_turn_has_a_second),
        T(a_wait_lets_communication_deliver),
        T(a_wait_ends_and_names_the_root),
        T(the_end_is_told_once_also_when_it_never_comes),
        T(what_waits_is_known_to_read),
        T(the_first_turn_gives_the_inputs_the_second_the_rest),
        T(what_does_not_lead_to_an_input_waits_for_the_second_turn),
        T(an_input_may_be_a_result),
        T(a_first_turn_may_be_all),
        T(a_second_turn_that_cannot_be_is_released),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
