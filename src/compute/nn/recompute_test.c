/* Recomputation: the bits, the hooks and the statistics of a forward that keeps everything, with
 * less memory. Failures: recompute_fail_test.c. A GPT: recompute_gpt_test.c. */
#include "compute/nn/recompute_testing.h"

#include <tutti/modes.h>

#include "compute/autograd/node.h"

static void gradients_statistics_and_hooks_are_those_of_a_plain_forward(void **state)
{
    (void)state;
    setting_t sets[2];
    for (int i = 0; i < 2; i++) {
        sets[i] = begin();
        setting_t *set = &sets[i];
        assert_int_equal(tutti_tensor_on_accumulate(set->odd->w, count_call, set), 0);
        tutti_tensor_t *loss = loss_of(set, i == 1);
        tutti_context_set_step(set->ctx, 77); /* of the next step: backward is the last one's */
        (void)tutti_dropout(set->s, set->x, 0.5f);
        assert_int_equal(tutti_backward(set->s, loss), 0);
        assert_int_equal(set->hook_calls, 1);
        assert_int_equal(set->odd->forwards, i == 0 ? 2 : 4);
        assert_int_equal(set->odd->again, i == 0 ? 0 : 2);
        assert_int_equal(tutti_context_step(set->ctx), 77);
        assert_true(tutti_tensor_at(tutti_module_find(set->m, "norm.num_batches_tracked"), 0) == 2);
    }
    expect_same(&sets[0], &sets[1]);
    assert_int_equal(end(&sets[0]), 0);
    assert_int_equal(end(&sets[1]), 0);
}

static void each_backward_computes_again(void **state)
{
    (void)state;
    setting_t sets[2];
    for (int i = 0; i < 2; i++) {
        sets[i] = begin();
        setting_t *set = &sets[i];
        tutti_tensor_t *loss = loss_of(set, i == 1), *grads[2];
        tutti_tensor_t *const inputs[] = {set->x, set->odd->w};
        const tutti_backward_options_t retain = {.retain_graph = true};
        assert_int_equal(tutti_backward_with(set->s, loss, &retain), 0);
        const size_t between = tt_alloc_stats().bytes;
        assert_int_equal(tutti_grad(set->s, loss, &retain, inputs, 2, grads), 0);
        assert_int_equal(set->odd->again, i == 0 ? 0 : 4);
        assert_memory_equal(tt_test_host(grads[0]), /* of one backward */
                            tt_test_host(tutti_tensor_grad(set->x)), 12 * sizeof(float));
        /* what was computed again is gone, but for the two gradients */
        assert_true(tt_alloc_stats().bytes <= between + 4096);
        assert_int_equal(tutti_backward(set->s, loss), 0);
        assert_int_equal(set->odd->again, i == 0 ? 0 : 6);
        assert_int_equal(tutti_backward(set->s, loss), TUTTI_ERR_STATE);
        tt_expect_error("a second time");
    }
    expect_same(&sets[0], &sets[1]);
    assert_int_equal(end(&sets[0]), TUTTI_ERR_STATE);
    assert_int_equal(end(&sets[1]), TUTTI_ERR_STATE);
}

/* A part of the graph is run first, and the rest behind it without what the first has used. */
static void parts_of_a_region_may_be_run_one_by_one(void **state)
{
    (void)state;
    setting_t set = begin();
    const tutti_backward_options_t retain = {.retain_graph = true};
    tutti_tensor_t *y = tutti_recompute(set.s, set.m, set.x), *grad[2];
    tutti_tensor_t *bias = tutti_module_find(set.m, "norm.bias"), *w = set.odd->w;
    tutti_tensor_t *loss = tutti_sum(set.s, y);
    assert_int_equal(tutti_grad(set.s, loss, &retain, &bias, 1, &grad[0]), 0);
    assert_int_equal(tutti_grad(set.s, loss, &retain, &w, 1, &grad[1]), 0);
    assert_int_equal(set.odd->again, 2);
    assert_int_equal(tutti_backward(set.s, loss), 0);
    assert_memory_equal(tt_test_host(grad[0]), tt_test_host(tutti_tensor_grad(bias)), 16);
    assert_memory_equal(tt_test_host(grad[1]), tt_test_host(tutti_tensor_grad(w)), 64);
    assert_int_equal(end(&set), 0);
}

/* What is asked for is the gradient of the module's result: its inside has no part in it. */
static void the_gradient_of_a_result_computes_nothing_again(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_tensor_t *y = tutti_recompute(set.s, set.m, set.x), *grad;
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_mul(set.s, y, y));
    assert_int_equal(tutti_grad(set.s, loss, NULL, &y, 1, &grad), 0);
    assert_true(tutti_tensor_at(grad, 0) == 2 * tutti_tensor_at(y, 0));
    assert_int_equal(set.odd->again, 0);
    assert_int_equal(tutti_backward(set.s, tutti_sum(set.s, y)), 0);
    assert_int_equal(set.odd->again, 1);
    assert_int_equal(end(&set), 0);
}

static void where_nothing_is_recorded_nothing_is_repeated(void **state)
{
    (void)state;
    setting_t set = begin();
    (void)tutti_context_set_grad_enabled(set.ctx, false);
    char report[1024];
    tutti_tensor_t *y = tutti_recompute(set.s, set.m, set.x);
    (void)tt_alloc_report(report, sizeof report);
    assert_null(strstr(report, "graph"));
    assert_false(tutti_tensor_requires_grad(y));
    assert_int_equal(end(&set), 0);
}
/* Of three levels the innermost module is computed again once for each region around it. */
static void recomputations_nest(void **state)
{
    (void)state;
    setting_t sets[2];
    for (int i = 0; i < 2; i++) {
        sets[i] = begin();
        tutti_module_t *m = nest(&sets[i], 3, i);
        assert_int_equal(tutti_tensor_set_requires_grad(sets[i].x, true), 0);
        tutti_tensor_t *y = tutti_forward(sets[i].s, m, tutti_dropout(sets[i].s, sets[i].x, 0.1f));
        tutti_tensor_t *loss = tutti_sum(sets[i].s, tutti_mul(sets[i].s, y, y));
        const tutti_backward_options_t retain = {.retain_graph = true};
        assert_int_equal(tutti_backward_with(sets[i].s, loss, &retain), 0);
        assert_int_equal(sets[i].odd->again, i * (3 + 3 + 2 + 1));
        assert_int_equal(tutti_backward(sets[i].s, loss), 0); /* and once more */
        assert_int_equal(sets[i].odd->again, 2 * i * (3 + 3 + 2 + 1));
        tutti_module_release(m);
    }
    expect_same(&sets[0], &sets[1]);
    assert_int_equal(end(&sets[0]), 0);
    assert_int_equal(end(&sets[1]), 0);
}

static void only_what_a_gradient_needs_is_computed_again(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_module_t *m = nest(&set, 2, true);
    tutti_tensor_t *h = tutti_recompute(set.s, m, set.x), *grad;
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, m, h));
    assert_int_equal(tutti_grad(set.s, loss, NULL, &h, 1, &grad), 0);
    assert_int_equal(set.odd->again, 3 + 3 + 2); /* of the second call: three levels around */
    tutti_module_release(m);
    assert_int_equal(end(&set), 0);
}

/* ---- another backward that ends meanwhile ---------------------------------------------------- */

typedef struct {
    tutti_tensor_t *loss;
    tutti_backward_run_t *other;
    int calls;
} ending_t;

static tutti_status_t end_other(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    ending_t *ending = user;
    ending->calls += tutti_context_is_recomputing(tutti_scope_context(s));
    if (ending->calls > 0) {
        tutti_backward_release(ending->other);
        ending->other = NULL;
    }
    return TUTTI_OK;
}

/* It came through the nodes for which the one that goes on has a forward run again. */
static void a_backward_that_ends_takes_from_no_other_what_was_computed_again(void **state)
{
    (void)state;
    for (int levels = 1; levels <= 3; levels += 2) {
        setting_t sets[2];
        for (int i = 0; i < 2; i++) {
            ending_t ending = {0};
            const tutti_module_hooks_t hooks = {.after_forward = end_other};
            sets[i] = begin();
            tutti_module_t *m = nest(&sets[i], levels, true);
            assert_int_equal(tutti_tensor_set_requires_grad(sets[i].x, true), 0);
            if (i == 1) {
                assert_int_equal(tutti_module_add_hooks(sets[i].m, &hooks, &ending), 0);
            }
            const tutti_root_t root = {
                .tensor = tutti_sum(sets[i].s, tutti_forward(sets[i].s, m, sets[i].x))};
            assert_int_equal(tutti_backward_begin(sets[i].s, &root, 1, NULL, &ending.other), 0);
            assert_int_equal(tutti_backward(sets[i].s, root.tensor), 0);
            assert_int_equal(ending.calls, i * sets[i].odd->again);
            tutti_backward_release(ending.other);
            tutti_module_release(m);
        }
        expect_same(&sets[0], &sets[1]);
        assert_int_equal(end(&sets[0]), 0);
        assert_int_equal(end(&sets[1]), 0);
    }
}

/* ---- several in, several out ----------------------------------------------------------------- */

static void mix(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs, int input_count,
                tutti_tensor_t **outputs, int output_count)
{
    (void)m, (void)input_count, (void)output_count;
    outputs[0] = inputs[1] == NULL ? tutti_sigmoid(s, inputs[0]) : inputs[1];
    outputs[1] = tutti_exp(s, tutti_mul(s, inputs[0], outputs[0]));
}

static const tutti_module_ops_t mix_ops = {.name = "mix", .about = "", .forward_many = mix};

static void several_tensors_go_in_and_come_out(void **state)
{
    (void)state;
    for (int has_second = 0; has_second < 2; has_second++) {
        float grads[2][12];
        for (int i = 0; i < 2; i++) {
            setting_t set = begin();
            tutti_module_t *m;
            tutti_tensor_t *outputs[2], *loss;
            assert_int_equal(tutti_module_create(set.ctx, &mix_ops, NULL, &m), 0);
            assert_int_equal(tutti_tensor_set_requires_grad(set.x, true), 0);
            tutti_tensor_t *inputs[] = {set.x, has_second ? tutti_tanh(set.s, set.x) : NULL};
            (i == 0 ? tutti_forward_many : tutti_recompute_many)(set.s, m, inputs, 2, outputs, 2);
            loss = tutti_sum(set.s, tutti_add(set.s, outputs[0], tutti_log(set.s, outputs[1])));
            tutti_module_release(m); /* the graph holds it */
            assert_int_equal(tutti_backward(set.s, loss), 0);
            memcpy(grads[i], tt_test_host(tutti_tensor_grad(set.x)), sizeof grads[i]);
            assert_int_equal(end(&set), 0);
        }
        assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { BLOCKS = 24 };

/* The tensors that a graph of blocks in groups keeps after forward, where groups and blocks are
 * recomputed. */
static int kept_by(int groups)
{
    setting_t set = begin();
    tutti_module_t *all;
    const tutti_sequential_options_t recompute = {.recompute = true};
    assert_int_equal(tutti_module_create(set.ctx, &tutti_sequential_layer, &recompute, &all), 0);
    for (int i = 0; i < groups; i++) {
        tutti_module_t *group;
        assert_int_equal(tutti_sequential_add(all, &tutti_sequential_layer, &recompute, &group), 0);
        for (int k = 0; k < BLOCKS / groups; k++) {
            char name[8];
            snprintf(name, sizeof name, "%d", k);
            assert_int_equal(tutti_module_add_child(group, name, set.m), 0);
        }
    }
    tutti_tensor_t *x = tutti_uniform(set.s, TUTTI_F32, TUTTI_SHAPE(4096, 4), -1, 1);
    const int before = count_storages();
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_forward(set.s, all, x));
    const int kept = count_storages() - before;
    assert_int_equal(tutti_backward(set.s, loss), 0);
    tutti_module_release(all);
    assert_int_equal(end(&set), 0);
    return kept;
}

static void a_region_keeps_no_inputs_of_those_inside(void **state)
{
    (void)state;
    /* x of the first one, which the caller has, the inputs of the other groups, result and loss */
    assert_int_equal(kept_by(4), 3 + 2);
    assert_int_equal(kept_by(BLOCKS), BLOCKS - 1 + 2);
}

/* The most bytes at the end of any forward, first or second; what stays behind backward. */
static size_t peak_of(bool recompute, bool retain)
{
    setting_t set = begin();
    tutti_module_t *blocks;
    const size_t before = tt_alloc_stats().bytes;
    const tutti_sequential_options_t none = {.recompute = recompute};
    assert_int_equal(tutti_module_create(set.ctx, &tutti_sequential_layer, &none, &blocks), 0);
    for (int i = 0; i < BLOCKS; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(tutti_module_add_child(blocks, name, set.m), 0);
    }
    tutti_tensor_t *x = tutti_uniform(set.s, TUTTI_F32, TUTTI_SHAPE(4096, 4), -1, 1);
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_forward(set.s, blocks, x));
    const tutti_backward_options_t options = {.retain_graph = retain};
    assert_int_equal(tutti_backward_with(set.s, loss, &options), 0);
    const size_t peak = set.odd->bytes_max - before;
    tutti_module_release(blocks);
    assert_int_equal(end(&set), 0);
    return peak;
}

/* A parameter that forward will read again, though nothing that was saved holds it. */
static void what_is_to_be_computed_again_is_known_to_read(void **state)
{
    (void)state;
    setting_t set = begin();
    const tutti_root_t root = {.tensor = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x)),
                               .is_awaited = true};
    tutti_tensor_t *other = tutti_ones(set.s, TUTTI_F32, TUTTI_SHAPE(1));
    tt_storage_t *read = set.odd->w->storage, *input = set.x->storage, *beside = other->storage;
    tutti_backward_run_t *run;
    assert_int_equal(tutti_backward_begin(set.s, &root, 1, NULL, &run), 0);
    assert_true(tt_backward_reads(set.ctx, &read, 1));
    assert_true(tt_backward_reads(set.ctx, &input, 1));
    assert_false(tt_backward_reads(set.ctx, &beside, 1));
    tutti_backward_release(run);
    assert_false(tt_backward_reads(set.ctx, &read, 1));
    assert_int_equal(end(&set), 0);
}

static void the_peak_is_that_of_one_block_and_of_all_inputs(void **state)
{
    (void)state;
    tt_test_host_only(); /* what is counted is the host's memory */
    const size_t kept = peak_of(false, false), again = peak_of(true, false);
    const size_t retained = peak_of(true, true), input = 4096 * 4 * sizeof(float);
    printf("peak of %d blocks: %zu KiB kept, %zu KiB recomputed\n", BLOCKS, kept / 1024,
           again / 1024);
    assert_true(kept > 3 * (size_t)BLOCKS * input);
    assert_true(again < (size_t)(BLOCKS + 16) * input);
    assert_true(retained < (size_t)(BLOCKS + 16) * input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_statistics_and_hooks_are_those_of_a_plain_forward),
        cmocka_unit_test(each_backward_computes_again),
        cmocka_unit_test(parts_of_a_region_may_be_run_one_by_one),
        cmocka_unit_test(the_gradient_of_a_result_computes_nothing_again),
        cmocka_unit_test(where_nothing_is_recorded_nothing_is_repeated),
        cmocka_unit_test(recomputations_nest),
        cmocka_unit_test(only_what_a_gradient_needs_is_computed_again),
        cmocka_unit_test(a_backward_that_ends_takes_from_no_other_what_was_computed_again),
        cmocka_unit_test(several_tensors_go_in_and_come_out),
        cmocka_unit_test(a_region_keeps_no_inputs_of_those_inside),
        cmocka_unit_test(what_is_to_be_computed_again_is_known_to_read),
        cmocka_unit_test(the_peak_is_that_of_one_block_and_of_all_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
