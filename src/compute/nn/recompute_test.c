/* Recomputation: the bits, the hooks and the statistics of a forward that keeps everything, with
 * less memory, and failures that say where they were. A GPT: recompute_gpt_test.c. */
#include "core/base/testing.h"

#include <tutti/nn_layers.h>
#include <tutti/op_linear.h>
#include <tutti/op_math.h>
#include <tutti/op_nn.h>
#include <tutti/op_random.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/recompute.h>

#include "core/tensor/tensor_impl.h"

static tutti_context_t *new_context(int threads)
{
    tutti_context_t *ctx;
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = threads, .seed = 5}, &ctx), 0);
    return ctx;
}

static tutti_scope_t *open_scope(tutti_context_t *ctx)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(ctx, &s), 0);
    return s;
}

/* ---- a module that does all sorts of things -------------------------------------------------- */

typedef struct {
    tutti_module_t *norm;
    tutti_tensor_t *w;     /* used twice inside, and once outside */
    int forwards, again;   /* calls, and those of them that recompute */
    bool adds_one_again;   /* an operation that the first forward did not do */
    bool leaves_out_again; /* the last one */
    bool does_other_again; /* another in its place */
    bool fails_again;      /* what it does has wrong shapes */
    bool goes_back_inside; /* calls backward */
    size_t bytes_max;      /* allocated at the end of any forward */
} odd_t;

static tutti_status_t odd_init(tutti_module_t *m, const void *options)
{
    (void)options;
    odd_t *odd = tutti_module_state(m);
    const tutti_batch_norm_layer_options_t norm = {.width = 4, .momentum = 0.1, .eps = 1e-5};
    TT_TRY(tutti_module_new_child(m, "norm", &tutti_batch_norm_layer, &norm, &odd->norm));
    return tutti_module_new_parameter(m, "w", TUTTI_SHAPE(4, 4),
                                      (tutti_init_t){TUTTI_INIT_NORMAL, 0, 0.5}, &odd->w);
}

static tutti_tensor_t *misbehave(tutti_scope_t *s, const odd_t *odd, tutti_tensor_t *y)
{
    y = odd->adds_one_again ? tutti_exp(s, y) : y;
    y = odd->does_other_again ? tutti_exp(s, y) : y;
    return odd->fails_again ? tutti_matmul(s, y, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(3, 3))) : y;
}

/* y = tanh(dropout(norm(x w)) w + noise) */
static tutti_tensor_t *odd_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    odd_t *odd = tutti_module_state(m);
    const bool is_again = tutti_context_is_recomputing(tutti_scope_context(s));
    odd->forwards++;
    odd->again += is_again;
    tutti_tensor_t *y = tutti_forward(s, odd->norm, tutti_matmul(s, x, odd->w));
    y = tutti_matmul(s, tutti_dropout(s, y, 0.3f), odd->w);
    y = tutti_add(s, y, tutti_uniform(s, TUTTI_F32, tutti_tensor_shape(y), -1, 1));
    if (is_again) {
        y = misbehave(s, odd, y);
    }
    if (odd->goes_back_inside) {
        (void)tutti_backward(s, tutti_sum(s, y));
    }
    if (!(is_again && (odd->leaves_out_again || odd->does_other_again))) {
        y = tutti_tanh(s, y);
    }
    const size_t bytes = tt_alloc_stats().bytes;
    odd->bytes_max = bytes > odd->bytes_max ? bytes : odd->bytes_max;
    return y;
}

static const tutti_module_ops_t odd_ops = {.name = "odd",
                                           .about = "all sorts",
                                           .state_bytes = sizeof(odd_t),
                                           .init = odd_init,
                                           .forward = odd_forward};

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *m;
    odd_t *odd;
    tutti_scope_t *s;
    tutti_tensor_t *x;
    int hook_calls;
} setting_t;

static void count_call(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    ((setting_t *)user)->hook_calls++;
}

static setting_t begin(void)
{
    static const float values[] = {1, 2, 3, 4, -1, 0, 2, 5, 7, 1, -3, 2};
    setting_t set = {.ctx = new_context(1)};
    assert_int_equal(tutti_module_create(set.ctx, &odd_ops, NULL, &set.m), 0);
    set.odd = tutti_module_state(set.m);
    set.s = open_scope(set.ctx);
    set.x = tutti_from_data(set.s, TUTTI_F32, TUTTI_SHAPE(3, 4), values);
    return set;
}

static tutti_status_t end(setting_t *set)
{
    const tutti_status_t status = tutti_scope_close(set->s);
    tutti_module_release(set->m);
    tutti_context_release(set->ctx);
    return status;
}

static tutti_tensor_t *call(setting_t *set, tutti_tensor_t *x, bool recompute)
{
    return recompute ? tutti_recompute(set->s, set->m, x) : tutti_forward(set->s, set->m, x);
}

/* Twice the module, w outside of it too, x itself wanted; some dropout before and after, so that a
 * random number too many would be seen. */
static tutti_tensor_t *loss_of(setting_t *set, bool recompute)
{
    tutti_scope_t *s = set->s;
    assert_int_equal(tutti_tensor_set_requires_grad(set->x, true), 0);
    tutti_tensor_t *y = call(set, tutti_dropout(s, set->x, 0.1f), recompute);
    y = call(set, tutti_matmul(s, y, set->odd->w), recompute);
    return tutti_sum(s, tutti_dropout(s, tutti_mul(s, y, y), 0.3f));
}

static tutti_status_t expect_equal(void *user, const char *name, tutti_tensor_t *a)
{
    tutti_tensor_t *b = tutti_module_find(user, name);
    assert_memory_equal(tutti_tensor_data(a), tutti_tensor_data(b), a->storage->bytes);
    a = tutti_tensor_grad(a);
    b = tutti_tensor_grad(b);
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL) {
        assert_memory_equal(tutti_tensor_data(a), tutti_tensor_data(b), a->storage->bytes);
    }
    return TUTTI_OK;
}

static void expect_same(setting_t *a, setting_t *b)
{
    assert_int_equal(tutti_module_each_tensor(a->m, expect_equal, b->m), 0);
    assert_memory_equal(tutti_tensor_data(tutti_tensor_grad(a->x)),
                        tutti_tensor_data(tutti_tensor_grad(b->x)), 12 * sizeof(float));
    assert_int_equal(a->ctx->random_calls, b->ctx->random_calls);
}

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
        assert_memory_equal(tutti_tensor_data(grads[0]), /* of one backward */
                            tutti_tensor_data(tutti_tensor_grad(set->x)), 12 * sizeof(float));
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
    assert_memory_equal(tutti_tensor_data(grad[0]), tutti_tensor_data(tutti_tensor_grad(bias)), 16);
    assert_memory_equal(tutti_tensor_data(grad[1]), tutti_tensor_data(tutti_tensor_grad(w)), 64);
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

/* The module in so many sequentials, one in another, each with the module once more behind the
 * inner one; the caller releases it. */
static tutti_module_t *nest(setting_t *set, int levels, bool recompute)
{
    tutti_module_t *inner = tutti_module_retain(set->m);
    for (int i = 0; i < levels; i++) {
        tutti_module_t *outer;
        const tutti_sequential_options_t options = {
            .modules = (tutti_module_t *[]){inner, set->m}, .count = 2, .recompute = recompute};
        assert_int_equal(tutti_module_create(set->ctx, &tutti_sequential_layer, &options, &outer),
                         0);
        tutti_module_release(inner);
        inner = outer;
    }
    return inner;
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
            memcpy(grads[i], tutti_tensor_data(tutti_tensor_grad(set.x)), sizeof grads[i]);
            assert_int_equal(end(&set), 0);
        }
        assert_memory_equal(grads[0], grads[1], sizeof grads[0]);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { BLOCKS = 24 };

static int count_storages(void)
{
    char report[4096];
    int count = 0;
    (void)tt_alloc_report(report, sizeof report);
    const char *at = strstr(report, "\nstorage: ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\nstorage: %d blocks", &count), 1);
    return count;
}

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

static void the_peak_is_that_of_one_block_and_of_all_inputs(void **state)
{
    (void)state;
    const size_t kept = peak_of(false, false), again = peak_of(true, false);
    const size_t retained = peak_of(true, true), input = 4096 * 4 * sizeof(float);
    printf("peak of %d blocks: %zu KiB kept, %zu KiB recomputed\n", BLOCKS, kept / 1024,
           again / 1024);
    assert_true(kept > 3 * (size_t)BLOCKS * input);
    assert_true(again < (size_t)(BLOCKS + 16) * input);
    assert_true(retained < (size_t)(BLOCKS + 16) * input);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void expect_failure(setting_t *set, tutti_tensor_t *loss, tutti_status_t status,
                           const char *text)
{
    assert_int_equal(tutti_backward(set->s, loss), status);
    tt_expect_error("recomputing odd for its backward: ");
    tt_expect_error(text);
    assert_false(tutti_context_is_recomputing(set->ctx));
    assert_int_equal(end(set), status);
}

static void a_forward_that_does_not_repeat_itself_is_named(void **state)
{
    (void)state;
    const struct {
        size_t offset;
        tutti_status_t status;
        const char *text;
    } cases[] = {
        {offsetof(odd_t, adds_one_again), TUTTI_ERR_STATE, "is exp, and was tanh the first time"},
        {offsetof(odd_t, leaves_out_again), TUTTI_ERR_STATE,
         "5 operations were recorded, and 6 the first time"},
        {offsetof(odd_t, does_other_again), TUTTI_ERR_STATE, "is exp, and was tanh the first time"},
        {offsetof(odd_t, fails_again), TUTTI_ERR_SHAPE, "matmul: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setting_t set = begin();
        *(bool *)((char *)set.odd + cases[i].offset) = true;
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        expect_failure(&set, loss, cases[i].status, cases[i].text);
    }
}

static void what_was_written_since_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        setting_t set = begin();
        tutti_context_set_training(set.ctx, i < 2);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        tutti_tensor_t *mean = tutti_module_find(set.m, "norm.running_mean");
        assert_int_equal(tutti_tensor_fill(i == 0 ? set.x : i == 1 ? set.odd->w : mean, 3), 0);
        expect_failure(&set, loss, TUTTI_ERR_STATE,
                       i == 0   ? "its input f32[3, 4] was written since"
                       : i == 1 ? "a parameter was written since: step after backward"
                                : "a parameter or buffer was written since");
    }
}

/* Other memory, of however many writes. */
static void a_cast_is_a_write(void **state)
{
    (void)state;
    static const tutti_dtype_t casts[][2] = {{TUTTI_F64, TUTTI_F64}, {TUTTI_BF16, TUTTI_F32}};
    for (int i = 0; i < 2; i++) {
        setting_t set = begin();
        assert_int_equal(tutti_module_cast(set.m, TUTTI_F64), TUTTI_OK);
        assert_int_equal(tutti_module_cast(set.m, TUTTI_F32), TUTTI_OK);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
        assert_int_equal(tutti_module_cast(set.m, casts[i][0]), TUTTI_OK);
        assert_int_equal(tutti_module_cast(set.m, casts[i][1]), TUTTI_OK);
        expect_failure(&set, loss, TUTTI_ERR_STATE, "a parameter was written since");
    }
}

/* Two parameters of one shape, of which no memory is written. */
static void parameters_that_take_over_each_others_values_are_written(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_tensor_t *a = tutti_module_find(set.m, "norm.weight");
    tutti_tensor_t *b = tutti_module_find(set.m, "norm.bias");
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, set.m, set.x));
    tt_tensor_swap(a, b);
    expect_failure(&set, loss, TUTTI_ERR_STATE, "a parameter was written since");
}

static void a_backward_inside_is_refused(void **state)
{
    (void)state;
    setting_t set = begin();
    set.odd->goes_back_inside = true;
    assert_int_equal(tutti_tensor_status(tutti_recompute(set.s, set.m, set.x)), TUTTI_ERR_STATE);
    tt_expect_error("backward inside a forward that is to be recomputed");
    assert_int_equal(end(&set), TUTTI_ERR_STATE);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    (void)state;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        setting_t set = begin();
        tutti_module_t *m = nest(&set, 1, true);
        assert_int_equal(tutti_tensor_set_requires_grad(set.x, true), 0);
        tt_alloc_fail_at(n);
        tutti_tensor_t *y = tutti_recompute(set.s, set.m, set.x);
        tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, m, y));
        const tutti_status_t status = tutti_backward(set.s, loss);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        tutti_module_release(m);
        assert_int_equal(end(&set), status);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* A backward of nested regions that failed anywhere leaves nothing, and may be run again. */
static void a_failed_backward_may_be_run_again(void **state)
{
    (void)state;
    setting_t set = begin();
    tutti_module_t *m = nest(&set, 2, true);
    const tutti_backward_options_t retain = {.retain_graph = true};
    tutti_tensor_t *loss = tutti_sum(set.s, tutti_recompute(set.s, m, set.x));
    float want[16];
    bool has_failed = true;
    tutti_scope_t *s = open_scope(set.ctx);
    assert_int_equal(tutti_backward_with(s, loss, &retain), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    memcpy(want, tutti_tensor_data(tutti_tensor_grad(set.odd->w)), sizeof want);
    tutti_module_zero_grad(m);
    const int storages = count_storages();
    for (size_t n = 1; has_failed; n++) {
        s = open_scope(set.ctx);
        tt_alloc_fail_at(n);
        (void)tutti_backward_with(s, loss, &retain);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        (void)tutti_scope_close(s);
        assert_int_equal(count_storages(), storages);
        tutti_module_zero_grad(m);
        s = open_scope(set.ctx);
        assert_int_equal(tutti_backward_with(s, loss, &retain), 0);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_memory_equal(tutti_tensor_data(tutti_tensor_grad(set.odd->w)), want, sizeof want);
        tutti_module_zero_grad(m);
    }
    tutti_module_release(m);
    assert_int_equal(end(&set), 0);
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
        cmocka_unit_test(several_tensors_go_in_and_come_out),
        cmocka_unit_test(the_peak_is_that_of_one_block_and_of_all_inputs),
        cmocka_unit_test(a_region_keeps_no_inputs_of_those_inside),
        cmocka_unit_test(a_forward_that_does_not_repeat_itself_is_named),
        cmocka_unit_test(what_was_written_since_is_named),
        cmocka_unit_test(a_cast_is_a_write),
        cmocka_unit_test(parameters_that_take_over_each_others_values_are_written),
        cmocka_unit_test(a_backward_inside_is_refused),
        cmocka_unit_test(no_allocation_that_fails_is_lost),
        cmocka_unit_test(a_failed_backward_may_be_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
